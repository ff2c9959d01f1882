"""Checks of fetched metrics: their nodes, their age, findings about them, and missing nodes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from runtime import duration
from runtime.http.budget import use_budget
from runtime.http.gather import Deadline
from watcher.errors import ProviderError
from watcher.findings import Finding, Kind
from watcher.model import PRESSURES, Window
from watcher.providers.base import Check, SampleProvider, Samples, WindowProvider
from watcher.quality import analyzer
from watcher.settings import Settings

_SHOWN = 5  # maximum number of findings of one kind, or of nodes, in a message
_OLD_SECONDS = 180.0  # metrics-server measures at least once a minute
_CHECKED = {Kind.QUERY_FAILED, Kind.UNMATCHED_NODE}  # a provider's own steps report the causes of these


def examine_metrics(
    provider: WindowProvider | SampleProvider,
    settings: Settings,
    nodes: Collection[str],
    clock: Callable[[], float],
    *,
    has_failed_step: bool,
) -> Iterator[Check]:
    """Fetch metrics, check them like the watcher, and compare their nodes with the cluster's nodes.

    Args:
        provider: the provider.
        settings: all settings.
        nodes: names of the cluster's nodes; empty if unknown.
        clock: returns the Unix time.
        has_failed_step: whether an earlier step has failed; consequences of that failure are not reported again.
    """
    shortest = min(settings.watch.windows, key=duration.seconds)
    now = int(clock())
    deadline = Deadline.after(settings.watch.fetch_timeout_seconds)
    findings: Iterable[Finding]
    try:
        if isinstance(provider, WindowProvider):
            with use_budget(settings.watch.fetch_budget()):
                fetched = provider.fetch(Window(shortest, now - duration.seconds(shortest), now), deadline)
            clean, clean_findings = analyzer.clean(fetched.nodes, shortest)
            served, findings = set(clean), (*fetched.findings, *clean_findings)
            types = {name: {metric.type for metric in node.metrics} for name, node in clean.items()}
            yield Check(f"fetch {shortest}", ok=bool(served), message=_node_count(served), setting="provider")
        else:
            with use_budget(settings.watch.fetch_budget()):
                samples = provider.sample(deadline)
            served, findings = set(samples), samples.findings if isinstance(samples, Samples) else ()
            types = {name: {reading.type for reading in sample.readings} for name, sample in samples.items()}
            yield Check("sample", ok=bool(served), message=_node_count(served), setting="provider")
            yield from _examine_ages([clock() - sample.timestamp for sample in samples.values()])
    except ProviderError as error:
        if not has_failed_step:
            yield Check(f"fetch {shortest}", ok=False, message=str(error), setting="provider")
        return
    if served:
        yield _examine_pressure(provider, types)
    yield from summarize(finding for finding in findings if not (has_failed_step and finding.kind in _CHECKED))
    if nodes and served:
        yield from compare_nodes(served, set(nodes))


def _examine_pressure(provider: WindowProvider | SampleProvider, types: Mapping[str, Collection[str]]) -> Check:
    """Check whether the provider has metrics of pressure. The check passes without them, and then has the reason.

    Args:
        provider: the provider.
        types: node name to the types of its metrics.
    """
    without = sorted(name for name, of in types.items() if not any(type_ in of for type_ in PRESSURES.values()))
    message = f"{len(types) - len(without)} of {len(types)} nodes have pressure (PSI)"
    if without:
        default = "this provider does not read it; Host, Kubelet and Prometheus do"
        message += f"; without: {_shorten(without)}: {getattr(provider, 'pressure_absence', '') or default}"
    return Check("pressure", ok=True, message=message, details=tuple(without))


def _examine_ages(ages: list[float]) -> Iterator[Check]:
    if ages:
        fresh = max(map(abs, ages)) < _OLD_SECONDS
        message = f"samples are {min(ages):.0f} to {max(ages):.0f} s old"
        hint = "" if fresh else "; is the source's clock correct?"
        yield Check("freshness", ok=fresh, message=message + hint, setting="provider.address")


def summarize(findings: Iterable[Finding]) -> Iterator[Check]:
    """Yield a failed step for each kind of finding; its message names each cause once, with all affected nodes.

    A problem in several windows is reported once, except low coverage, which differs between windows.
    """
    by_kind: dict[str, dict[tuple[str, str, str], dict[str, None]]] = {}
    for finding in findings:
        window = finding.window if finding.kind is Kind.LOW_COVERAGE else ""
        cause = finding.metric, window, finding.message
        by_kind.setdefault(finding.kind, {}).setdefault(cause, {})[finding.node] = None
    for kind, causes in by_kind.items():
        messages = [_with_subject(_nodes_text(list(nodes)), *cause) for cause, nodes in causes.items()]
        more = f" (and {len(messages) - _SHOWN} more)" if len(messages) > _SHOWN else ""
        message = "; ".join(messages[:_SHOWN]) + more
        details = tuple(_with_subject(node, *cause) for cause, nodes in causes.items() for node in nodes)
        yield Check(kind.replace("_", " "), ok=False, message=message, setting="provider", details=details)


def _with_subject(nodes: str, metric: str, window: str, message: str) -> str:
    subject = ", ".join(filter(None, (" ".join(filter(None, (nodes, metric))), window)))
    return f"{subject}: {message}" if subject else message


def _nodes_text(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes ({_shorten(nodes)})"


def compare_nodes(served: set[str], nodes: set[str]) -> Iterator[Check]:
    """Yield steps for the cluster's nodes that have no metrics, and for metrics of nodes not in the cluster."""
    missing, foreign = sorted(nodes - served), sorted(served - nodes)
    message = f"without metrics: {_shorten(missing)}" if missing else f"all {len(nodes)} have metrics"
    yield Check("the cluster's nodes", ok=not missing, message=message, setting="provider", details=tuple(missing))
    if foreign:
        message = f"the cluster has no such nodes: {_shorten(foreign)}"
        yield Check("unknown nodes", ok=False, message=message, setting="provider", details=tuple(foreign))


def _shorten(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _node_count(nodes: Collection[str]) -> str:
    return f"{len(nodes)} nodes"
