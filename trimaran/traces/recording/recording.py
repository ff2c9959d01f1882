"""Recording of a cluster as a trace: its objects from the Kubernetes API, and the use of its pods from a Prometheus."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.paths import NODES, PODS
from scoring import Node
from trimaran.traces.node_use import NodeUse
from trimaran.traces.recording.assembly import RecordingCounts, assemble
from trimaran.traces.recording.history import STEP_SECONDS, HistoryError, NoSeries, PrometheusHistory, RecordingError
from trimaran.traces.recording.lifetimes import UsageCollector
from trimaran.traces.recording.node_use_collector import NodeUseCollector
from trimaran.traces.recording.pods import PodSpec, specs_from_api, specs_from_kube_state_metrics
from trimaran.traces.trace import Trace
from watcher.providers.prometheus.container_labels import CPU_SERIES, ContainerLabels, read_container_labels
from watcher.providers.prometheus.pod_use import MEMORY_SERIES
from watcher.usage.sources.pods import PodKey

_LIST_SECONDS = 300.0
_MAX_PODS = 2_000_000  # in a recording; the largest clusters have 300,000 at a time


@dataclass(frozen=True)
class SeriesOptions:
    """Options of the queries of use.

    Attributes:
        rate_seconds: range of CPU rates.
        matchers: label matchers of all series.
    """

    rate_seconds: int
    matchers: str


@dataclass(frozen=True)
class RecordedCluster:
    """Nodes and pods of a cluster as the Kubernetes API lists them.

    Attributes:
        nodes: the nodes.
        specs: specifications of the pods.
        node_selector: label selector of the nodes; empty for all.
    """

    nodes: list[Node]
    specs: dict[PodKey, PodSpec]
    node_selector: str = ""


@dataclass(frozen=True, eq=False)
class Recording:
    """Recorded cluster.

    Attributes:
        trace: the trace.
        node_use: use of the nodes as the pods were placed.
        counts: numbers of recorded and omitted pods.
        warnings: what the recording lacks, a line each.
    """

    trace: Trace
    node_use: NodeUse
    counts: RecordingCounts
    warnings: tuple[str, ...]


def read_cluster(api: KubernetesApi, node_selector: str = "") -> RecordedCluster:
    """Read the nodes and pods of a cluster.

    Raises:
        RecordingError: the API server cannot list them, or there are no nodes.
    """
    deadline = Deadline.after(_LIST_SECONDS)
    try:
        nodes = [Node.from_k8s(item) for item in api.list_items(NODES, deadline, labelSelector=node_selector)]
        specs = specs_from_api(api.list_items(PODS, deadline))
    except REQUEST_FAILURES as error:
        reason = describe(error).reason
        raise RecordingError(
            f"the Kubernetes API cannot be used: {reason}; the account needs the right to list nodes and pods"
        ) from error
    except ValueError as error:
        raise RecordingError(f"the answer of the Kubernetes API cannot be read: {error}") from None
    if not nodes:
        hint = f" with {node_selector}: see --node-selector" if node_selector else ""
        raise RecordingError(f"the cluster has no nodes{hint}")
    return RecordedCluster(nodes, specs, node_selector)


def record_use(
    name: str,
    cluster: RecordedCluster,
    history: PrometheusHistory,
    *,
    series: SeriesOptions,
    warm_up_minutes: int,
    progress: Callable[[float], None],
) -> Recording:
    """Read the use of all pods from a Prometheus, and return the recording.

    Args:
        name: name of the trace.
        cluster: the nodes and pods.
        history: the Prometheus and the time range.
        series: options of the queries.
        warm_up_minutes: first part of the recording, which replays do not measure.
        progress: called with the share of the history that was read.

    Raises:
        HistoryError: a query fails, or returns no series with pod names.
    """
    usage, warnings = read_usage(history, series, progress)
    specs = dict(cluster.specs)
    if missing := usage.keys - specs.keys():
        specs |= specs_from_kube_state_metrics(history, missing, series.matchers)
    collector = NodeUseCollector(cluster.nodes, history.minutes)
    trace, counts = assemble(
        name, cluster.nodes, collector.passing(usage.lifetimes(), specs), specs,
        minutes=history.minutes, warm_up_minutes=warm_up_minutes, only_these_nodes=bool(cluster.node_selector),
    )  # fmt: skip
    warnings += [f"warning of the Prometheus: {warning}" for warning in history.warnings]
    if counts.unknown:
        warnings.append(
            f"{counts.unknown} pods are left out: neither the Kubernetes API nor kube-state-metrics has "
            f"their requests, such as {', '.join(counts.examples)}"
        )
    return Recording(trace, collector.result(history.begin, usage.covered), counts, tuple(warnings))


def read_usage(
    history: PrometheusHistory, options: SeriesOptions, progress: Callable[[float], None]
) -> tuple[UsageCollector, list[str]]:
    """Return the measured CPU and memory use of all pods, and warnings about what was left out.

    Raises:
        NoSeries: the Prometheus has no use of containers in this time.
        HistoryError: a query fails, or no series has pod names.
    """
    seconds, rate_seconds, matchers = STEP_SECONDS * history.span_minutes, options.rate_seconds, options.matchers
    groups = read_container_labels(partial(_latest, history), matchers, None, Deadline.after(seconds), seconds)
    usage, warnings = UsageCollector(history.minutes), list[str]()
    queries = (
        ("CPU", [f"{_sum(each)} (rate({each.select(CPU_SERIES, matchers)}[{rate_seconds}s]))" for each in groups]),
        ("memory", [f"{_sum(each)} ({each.select(MEMORY_SERIES, matchers)})" for each in groups]),
    )
    done, all_minutes = 0, 2 * len(groups) * history.minutes
    for resource, (name, expressions) in enumerate(queries):
        series = nameless = 0
        promql = expressions[0]
        for span in chain.from_iterable(map(history.spans, expressions)):
            series += len(span.series)
            nameless += usage.add(resource, span)
            if len(usage.keys) > _MAX_PODS:
                raise HistoryError(f"the Prometheus has more than {_MAX_PODS} pods; narrow --matchers or --last")
            done += span.end - span.start
            progress(done / all_minutes)
        if not series:
            hint = f"a scrape interval above {rate_seconds // 2} s needs a longer --rate; " if name == "CPU" else ""
            raise NoSeries(
                f"the Prometheus has no {name} of containers: {promql}. Does it scrape the kubelets' cAdvisor? "
                f"{hint}see --matchers, --last and --until"
            )
        if nameless == series:
            raise HistoryError(
                f"no series of the {name} of containers has the labels namespace and pod: {promql}. Does the "
                "scrape configuration of the kubelets' cAdvisor rename or drop these labels?"
            )
        if nameless:
            warnings.append(f"{name} of containers without the labels namespace and pod is left out")
    return usage, warnings


def _sum(labels: ContainerLabels) -> str:
    return f"sum by ({labels.namespace}, {labels.pod})"


def _latest(history: PrometheusHistory, promql: str, _at: int | None, _deadline: Deadline) -> list[dict[str, Any]]:
    return [{"metric": labels} for labels, _ in history.latest(lambda _back: promql)]
