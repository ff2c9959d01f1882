"""Backfill of the learner of workloads: the days before the first start, from a provider that knows the past.

A day is read in parts and given to the learner as a whole. The learner stores the day and marks it as filled in one
transaction. So a watcher that is killed reads the day again, and no day is added twice. The newest day is read first.
Pods are named by kube-state-metrics, if the source has it; otherwise only pods that still run have names.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runtime.errors import SettingsError
from runtime.http.budget import use_budget
from runtime.http.gather import Deadline
from runtime.threads import start_thread
from watcher.errors import ProviderError
from watcher.providers.base import PastPodUseProvider, SeriesProvider, close_provider, open_provider
from watcher.settings import Settings
from watcher.usage.learn.learner_service import LearnerService

if TYPE_CHECKING:
    from runtime.kubernetes.workloads import Workload
    from watcher.usage.learn.past_days import FilledDay
    from watcher.usage.sources.pods import Capacity, PodKey, RunningPods
    from watcher.windows.container_use import ContainerUse

_log = logging.getLogger(__name__)
_DAY = 86400
_RETRY_SECONDS = 300.0
_MOST_FAILURES = 3
_PAUSE_SHARE, _LONGEST_PAUSE_SECONDS = 1.0, 10.0  # pause after a part, as a share of its time, to spare the source
_STOP_SECONDS = 2.0


class WorkloadBackfill:
    """Filling of the learner's past days, once. It observes rounds, and a thread of it starts after the first.

    Args:
        settings: all settings.
        learning: the learner.
        open_past: opens the first provider that knows the past; None if there is none.
        in_background: whether a thread fills the days; otherwise the caller does, by :meth:`fill_all`.
    """

    def __init__(
        self,
        settings: Settings,
        learning: LearnerService,
        open_past: Callable[[Settings], PastPodUseProvider | None] | None = None,
        *,
        in_background: bool = True,
    ) -> None:
        self._settings, self._learning, self._in_background = settings, learning, in_background
        self._open = open_past or _open_past
        self._running: RunningPods = {}
        self._provider: PastPodUseProvider | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def observe(self, _use: "ContainerUse", pods: "RunningPods", _capacity: "Capacity | None" = None) -> None:
        """Update the running pods; start the thread if days are missing."""
        self._running = pods
        may_start = self._in_background and self._thread is None and not self._stopped.is_set()
        if may_start and self._learning.unfilled()[0]:
            self._thread = start_thread(self._run, "workload-backfill")

    def stop(self) -> None:
        """Stop, abort the present request, and wait a moment for the thread."""
        self._stopped.set()
        if self._provider is not None:
            close_provider(self._provider)
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def fill_all(self, on_day: Callable[[int, int], object] = lambda _filled, _days: None) -> bool:
        """Fill all unfilled days; return whether all are filled.

        Args:
            on_day: called after each day with the number of filled days and of all days.

        Raises:
            ProviderError: a day cannot be read; the days that were read before stay filled.
        """
        self._provider = self._provider or self._open(self._settings)
        if self._provider is None:
            return True
        began = time.monotonic()
        days, live_since = self._learning.unfilled()
        for count, day in enumerate(days, start=1):
            filled = self._read(day, live_since, self._provider)
            if self._stopped.is_set():
                return False
            self._learning.fill(filled)
            extra = {"day": str(datetime.fromtimestamp(day * _DAY, UTC).date()), "containers": len(filled.keys)}
            _log.info("a past day of the use of workloads is filled", extra={**extra, "left": len(days) - count})
            on_day(count, len(days))
        if days:
            seconds = round(time.monotonic() - began, 1)
            _log.info("the past use of workloads is filled", extra={"days": len(days), "seconds": seconds})
        return True

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            left = len(self._learning.unfilled()[0])
            try:
                self.fill_all()
            except Exception as error:  # noqa: BLE001  a provider may raise anything
                if self._stopped.is_set():
                    return
                failures = 1 if len(self._learning.unfilled()[0]) < left else failures + 1
                trace = None if isinstance(error, ProviderError | SettingsError) else error
                extra = {"error": str(error), "failures": failures}
                _log.warning("the past use of workloads cannot be filled", extra=extra, exc_info=trace)
            else:
                return
            if failures >= _MOST_FAILURES:
                _log.warning(
                    "the past use of workloads is not read until the next start; the watcher learns from present use "
                    "(workloads.backfill_days)"
                )
                return
            self._stopped.wait(_RETRY_SECONDS)

    def _read(self, day: int, live_since: float, provider: PastPodUseProvider) -> "FilledDay":
        """Read the use of a day, up to the learner's first round."""
        from watcher.usage.learn.past_days import DayCollector  # imports numpy

        step = int(self._settings.workloads.interval_seconds)
        ends = range(day * _DAY + step, min((day + 1) * _DAY, int(live_since)) + 1, step)
        collector = DayCollector(day, step)
        if not ends:
            return collector.result()
        timeout = self._settings.workloads.timeout_seconds
        parts = iter(provider.past_pod_use(ends, timeout))
        while not self._stopped.is_set():
            began = time.monotonic()
            with use_budget(self._settings.watch.usage_budget()):
                part = next(parts, None)
                if part is None:
                    break
                namespaces, use = part
                named = self._names(namespaces, ends, provider)
            running = self._running

            def workload_of(
                namespace: str, pod: str, named: "Mapping[PodKey, Workload]" = named, running: "RunningPods" = running
            ) -> "Workload | None":
                key: PodKey = (namespace, pod)  # type: ignore[assignment]  # equals a PodKey
                return running[key].template.workload if key in running else named.get(key)

            collector.add(use, workload_of, running)  # pods that still run are those of the present revision
            self._stopped.wait(min(_PAUSE_SHARE * (time.monotonic() - began), _LONGEST_PAUSE_SECONDS))
        return collector.result()

    def _names(
        self, namespaces: tuple[str, ...], ends: range, provider: PastPodUseProvider
    ) -> "Mapping[PodKey, Workload]":
        """Return the workloads of the pods of some namespaces at a past time, from kube-state-metrics."""
        from watcher.usage.sources.kube_state_metrics import read_workloads

        if not isinstance(provider, SeriesProvider):
            return {}
        seconds, series = ends[-1] - ends[0] + ends.step, provider.series
        deadline = Deadline.after(self._settings.workloads.timeout_seconds)

        def ask(selector: str, keep: str) -> Iterable[tuple[Mapping[str, str], float]]:
            # The namespace is the label exported_namespace in the series of a scrape without honor_labels.
            within = f'namespace=~"{"|".join(namespaces)}"'
            matchers = f'exported_namespace="",{within}', f"exported_{within}"
            forms = (selector.replace("{", f"{{{each},", 1) for each in matchers)
            promql = " or ".join(f"last_over_time({form}[{seconds}s] @ {ends[-1]})" for form in forms)
            return series(f"max by ({keep}) ({promql})", deadline)

        return read_workloads(ask, self._settings.prometheus.matchers, self._settings.workloads.owner_labels)


def _open_past(settings: Settings) -> PastPodUseProvider | None:
    """Return the first provider that measures pods, if it knows the past; None otherwise."""
    for view in settings.for_each_provider():
        provider = open_provider(view)
        if isinstance(provider, PastPodUseProvider):
            return provider
        close_provider(provider)
    return None
