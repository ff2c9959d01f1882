"""Checks of the use of pods: whether the provider measures them, which run, and the names of their workloads."""

from collections.abc import Collection, Iterator

from runtime.errors import SettingsError
from runtime.http.budget import use_budget
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError
from watcher.model import Window
from watcher.providers.base import Check
from watcher.settings import Settings
from watcher.usage.learn.recurrence import LOW_SHARE, Recurrence
from watcher.usage.sources.sources import PodUseSources, open_sources

_STEP, _NAMES = "use of pods", "names of workloads"
_SHOWN = 5


def examine_pods(settings: Settings, now: float, failed: Collection[str] = ()) -> Iterator[Check]:
    """Yield steps about the use of pods.

    Measuring pods is optional: the step succeeds if measuring is switched off, or if no provider can measure pods, such
    as a Prometheus without series of pods. It fails if a source does not answer. The step about names fails if pods of
    one program seem to have different workloads.

    Args:
        settings: all settings.
        now: Unix time.
        failed: names of providers with a failed step; the consequences of this step for pods are not reported again.
    """
    if not settings.workloads.enabled:
        yield Check(_STEP, ok=True, message="not measured: workloads.enabled is false")
        return
    try:
        sources = open_sources(settings)
    except SettingsError as error:
        yield Check(_STEP, ok=True, message=f"not measured: {'; '.join(error.problems)}")
        return
    try:
        if sources.name in failed:
            return
        with use_budget(settings.watch.usage_budget()):
            yield from _examine(sources, settings, int(now))
    except ProviderError as error:
        has_no_pods = isinstance(error, ProviderAnswerError)
        yield Check(_STEP, ok=has_no_pods, message=f"not measured: {error}", setting="workloads")
    finally:
        sources.close()


def _examine(sources: PodUseSources, settings: Settings, now: int) -> Iterator[Check]:
    window = Window("", now - int(settings.workloads.interval_seconds), now)
    use, pods = sources.read(window, Deadline.after(settings.workloads.timeout_seconds))
    message = f"{sources.name} measures {len(use)} containers over {use.window_seconds:g} s"
    for problem in (*sources.pods.problems, *(finding.message for finding in use.findings)):
        message += f"; {problem}"
    yield Check(_STEP, ok=True, message=message)
    recurrence = Recurrence()
    share = recurrence.update(pods)
    count = len({pod.template.workload for pod in pods.values()})
    message = f"{len(pods)} running pods are of {count} workloads"
    if share < LOW_SHARE:
        message += (
            f"; for {1 - share:.0%} of the pods no other pod of the workload runs, such as "
            f"{', '.join(recurrence.lone(_SHOWN))}: if runs of one program have different names here, name them by a "
            "label (a running watcher counts earlier runs, too: metric trimaran_pod_use_recurring_ratio)"
        )
    yield Check(_NAMES, ok=share >= LOW_SHARE, message=message, setting="workloads.owner_labels")
