"""What a provider answers: nodes, how old their values are, what is wrong with them, and which nodes are missing."""

from collections.abc import Callable, Collection, Iterable, Iterator

from runtime import duration
from runtime.http.budget import spending
from runtime.http.gather import Deadline
from watcher.errors import ProviderError
from watcher.findings import Finding, Kind
from watcher.model import Window
from watcher.providers.base import Check, SampleProvider, Samples, WindowProvider
from watcher.quality import analyzer
from watcher.settings import Settings

_SHOWN = 5  # findings of one kind, or nodes
_OLD_SECONDS = 180.0  # a metrics server measures every minute at the latest
_TRIED = {Kind.QUERY_FAILED, Kind.UNMATCHED_NODE}  # a provider's own check tells what leads to them


def examine_metrics(
    provider: WindowProvider | SampleProvider,
    settings: Settings,
    nodes: Collection[str],
    clock: Callable[[], float],
    *,
    told: bool,
) -> Iterator[Check]:
    """Fetch for real, judge what came as the watcher would, and hold its nodes against the cluster's.

    Args:
        provider: the provider.
        settings: all settings.
        nodes: the names of the cluster's nodes; empty where they are not known.
        clock: unix time.
        told: a step before this one has failed; what that leads to is not said again.
    """
    shortest = min(settings.watch.windows, key=duration.seconds)
    now = int(clock())
    deadline = Deadline.after(settings.watch.fetch_timeout_seconds)
    findings: Iterable[Finding]
    try:
        if isinstance(provider, WindowProvider):
            with spending(settings.watch.fetch_budget()):
                fetched = provider.fetch(Window(shortest, now - duration.seconds(shortest), now), deadline)
            clean, found = analyzer.clean(fetched.nodes, shortest)
            served, findings = set(clean), (*fetched.findings, *found)
            yield Check(f"fetch {shortest}", ok=bool(served), message=_count(served), setting="provider")
        else:
            with spending(settings.watch.fetch_budget()):
                taken = provider.sample(deadline)
            served, findings = set(taken), taken.findings if isinstance(taken, Samples) else ()
            yield Check("sample", ok=bool(served), message=_count(served), setting="provider")
            yield from _examine_ages([clock() - sample.timestamp for sample in taken.values()])
    except ProviderError as error:
        if not told:
            yield Check(f"fetch {shortest}", ok=False, message=str(error), setting="provider")
        return
    yield from judge(finding for finding in findings if not (told and finding.kind in _TRIED))
    if nodes and served:
        yield from compare(served, set(nodes))


def _examine_ages(ages: list[float]) -> Iterator[Check]:
    if ages:
        fresh = max(map(abs, ages)) < _OLD_SECONDS
        message = f"samples are {min(ages):.0f} to {max(ages):.0f} s old"
        hint = "" if fresh else "; is the source's clock right?"
        yield Check("freshness", ok=fresh, message=message + hint, setting="provider.address")


def judge(findings: Iterable[Finding]) -> Iterator[Check]:
    """Yield a failed step for each kind of finding."""
    by_kind: dict[str, list[str]] = {}
    for finding in findings:
        about = " ".join(filter(None, (finding.node, finding.metric)))
        by_kind.setdefault(finding.kind, []).append(f"{about}: {finding.message}" if about else finding.message)
    for kind, messages in by_kind.items():
        more = f" (and {len(messages) - _SHOWN} more)" if len(messages) > _SHOWN else ""
        message = "; ".join(messages[:_SHOWN]) + more
        yield Check(kind.replace("_", " "), ok=False, message=message, setting="provider", details=tuple(messages))


def compare(served: set[str], nodes: set[str]) -> Iterator[Check]:
    """Yield whether every node of the cluster has metrics, and whether all metrics are about one of its nodes."""
    missing, foreign = sorted(nodes - served), sorted(served - nodes)
    message = f"without metrics: {_listed(missing)}" if missing else f"all {len(nodes)} have metrics"
    yield Check("the cluster's nodes", ok=not missing, message=message, setting="provider", details=tuple(missing))
    if foreign:
        message = f"metrics of what is no node of the cluster: {_listed(foreign)}"
        yield Check("metrics of no node", ok=False, message=message, setting="provider", details=tuple(foreign))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _count(nodes: Collection[str]) -> str:
    return f"{len(nodes)} nodes"
