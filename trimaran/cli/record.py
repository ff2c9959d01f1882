"""``trimaran record``: record a cluster as a trace, which the simulator can replay with any placement policy."""

import contextlib
import sys
import time
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from runtime import masking
from runtime.http import credentials
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession
from runtime.kubernetes.paths import NODES, PODS
from runtime.terminal import duration_option, echo
from scoring import Node
from trimaran.cli.options import KubernetesOpener, fail, kubernetes_options, option, path_option
from trimaran.cli.trace_output import check_new, write_or_fail
from trimaran.traces.recording.assembly import RecordingCounts, assemble
from trimaran.traces.recording.history import STEP_SECONDS, HistoryError, PrometheusHistory
from trimaran.traces.recording.lifetimes import UsageCollector
from trimaran.traces.recording.pods import PodSpec, specs_from_api, specs_from_kube_state_metrics
from trimaran.traces.trace import Trace, world_name
from watcher.providers.prometheus.container_labels import CPU_SERIES, ContainerLabels, read_container_labels
from watcher.providers.prometheus.pod_use import MEMORY_SERIES
from watcher.usage.sources.pods import PodKey

_LIST_SECONDS = 300.0
_MAX_PODS = 2_000_000  # in a recording; the largest clusters have 300,000 at a time


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--prometheus",
    "address",
    required=True,
    metavar="URL",
    help="Address of the Prometheus with the containers' history.",
)
@duration_option("--last", default="24h", help="Length of the recording.")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ"]),
    help="End of the recording, in UTC. [default: now]",
)
@duration_option("--warm-up", default="1h", help="First part of the recording, which replays do not measure.")
@duration_option("--rate", default="2m", help="Range of CPU rates: at least twice the scrape interval.")
@click.option("--matchers", default="", help='Label matchers for all series, such as cluster="north".')
@click.option(
    "--node-selector", default="", help="Label selector of the nodes to record, such as pool=web. [default: all nodes]"
)
@option(
    "--minutes-at-once", type=click.IntRange(5, 10_000), default=120, help="Longest time range of a query, in minutes."
)
@path_option("--token-file", help="File with a bearer token for the Prometheus.")
@path_option("--ca-file", help="Certificate authorities to trust for the Prometheus.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="HTTP header of each query, such as X-Scope-OrgID=a; may be repeated.",
)
@kubernetes_options
def record(
    folder: Path,
    address: str,
    last: float,
    until: datetime | None,
    warm_up: float,
    rate: float,
    matchers: str,
    node_selector: str,
    minutes_at_once: int,
    token_file: Path | None,
    ca_file: Path | None,
    headers: tuple[str, ...],
    kubernetes: KubernetesOpener,
) -> None:
    """Record a cluster into FOLDER as a trace: its nodes, its pods, and the measured use of each pod.

    \b
    Example: trimaran record monday --prometheus http://prometheus:9090 --kube-config ~/.kube/config --last 24h

    Nodes and pods come from the Kubernetes API, deleted pods from the metrics of kube-state-metrics in the Prometheus,
    and use from its cAdvisor metrics. All access is read-only. The trace contains the names of pods and owners.

    Exit status: 0 if the trace is written, 1 if a source fails or has no pods, 2 if an option cannot be used.
    """
    minutes, warm_up_minutes = round(last / STEP_SECONDS), round(warm_up / STEP_SECONDS)
    if not 0 <= warm_up_minutes < minutes:
        raise click.UsageError(f"--warm-up, {warm_up_minutes} minutes, must be less than --last, {minutes} minutes")
    if rate < STEP_SECONDS:
        raise click.UsageError(f"--rate must be at least {STEP_SECONDS} seconds, not {rate:g}")
    check_new(folder)
    now = time.time()
    end = int(now if until is None else until.replace(tzinfo=UTC).timestamp()) // STEP_SECONDS * STEP_SECONDS
    if end > now:
        raise click.UsageError(f"--until {until} is in the future")
    with _session(address, token_file, ca_file, headers) as session:
        nodes, specs = _read_kubernetes(kubernetes, node_selector)
        history = PrometheusHistory(session, address, end - minutes * STEP_SECONDS, minutes, minutes_at_once)
        try:
            usage = _read_usage(history, round(rate), matchers)
            if missing := usage.keys - specs.keys():
                specs |= specs_from_kube_state_metrics(history, missing, matchers)
        except HistoryError as error:
            fail(error, 1)
    trace, counts = assemble(
        world_name(folder), nodes, usage.lifetimes(), specs,
        minutes=minutes, warm_up_minutes=warm_up_minutes, only_these_nodes=bool(node_selector),
    )  # fmt: skip
    for warning in history.warnings:
        echo(f"trimaran: warning of the Prometheus: {warning}", err=True)
    _write(folder, trace, counts)


def _session(
    address: str, token_file: Path | None, ca_file: Path | None, headers: tuple[str, ...]
) -> contextlib.closing[BoundedSession]:
    if not address.startswith(("http://", "https://")):
        raise click.UsageError(
            f"--prometheus {masking.without_credentials(address)}: must begin with http:// or https://"
        )
    pairs = dict(header.partition("=")[::2] for header in headers)
    if not all(name and value for name, value in pairs.items()):
        raise click.UsageError("--header must be NAME=VALUE")
    if ca_file is not None and not ca_file.is_file():
        raise click.UsageError(f"--ca-file {ca_file}: no such file")
    masking.register_address_secrets(address)
    authenticate = credentials.bearer(lambda: credentials.read_token(token_file) if token_file else "")
    verify = True if ca_file is None else str(ca_file)
    return contextlib.closing(BoundedSession(authenticate, verify=verify, headers=pairs))


def _read_kubernetes(kubernetes: KubernetesOpener, selector: str) -> tuple[list[Node], dict[PodKey, PodSpec]]:
    try:
        with kubernetes() as api:
            deadline = Deadline.after(_LIST_SECONDS)
            nodes = [Node.from_k8s(item) for item in api.list_items(NODES, deadline, labelSelector=selector)]
            specs = specs_from_api(api.list_items(PODS, deadline))
    except ValueError as error:
        fail(f"the answer of the Kubernetes API cannot be read: {error}", 1)
    if not nodes:
        fail(f"the cluster has no nodes{f' with {selector}: see --node-selector' if selector else ''}", 1)
    return nodes, specs


def _read_usage(history: PrometheusHistory, rate_seconds: int, matchers: str) -> UsageCollector:
    """Read the measured CPU and memory use of all pods from Prometheus; show a progress bar.

    Raises:
        HistoryError: a query fails, or returns no series with pod names.
    """
    seconds = STEP_SECONDS * history.span_minutes
    groups = read_container_labels(partial(_latest, history), matchers, None, Deadline.after(seconds), seconds)
    usage, incomplete = UsageCollector(history.minutes), list[str]()
    queries = (
        ("CPU", [f"{_sum(each)} (rate({each.select(CPU_SERIES, matchers)}[{rate_seconds}s]))" for each in groups]),
        ("memory", [f"{_sum(each)} ({each.select(MEMORY_SERIES, matchers)})" for each in groups]),
    )
    with click.progressbar(length=2 * len(groups) * history.minutes, label="history", file=sys.stderr) as bar:
        for resource, (name, expressions) in enumerate(queries):
            series = nameless = 0
            promql = expressions[0]
            for span in chain.from_iterable(map(history.spans, expressions)):
                series += len(span.series)
                nameless += usage.add(resource, span)
                if len(usage.keys) > _MAX_PODS:
                    raise HistoryError(f"the Prometheus has more than {_MAX_PODS} pods; narrow --matchers or --last")
                bar.update(span.end - span.start)
            if not series:
                hint = f"a scrape interval above {rate_seconds // 2} s needs a longer --rate; " if name == "CPU" else ""
                raise HistoryError(
                    f"the Prometheus has no {name} of containers: {promql}. Does it scrape the kubelets' cAdvisor? "
                    f"{hint}see --matchers, --last and --until"
                )
            if nameless == series:
                raise HistoryError(
                    f"no series of the {name} of containers has the labels namespace and pod: {promql}. Does the "
                    "scrape configuration of the kubelets' cAdvisor rename or drop these labels?"
                )
            if nameless:
                incomplete.append(name)
    for name in incomplete:
        echo(f"trimaran: {name} of containers without the labels namespace and pod is left out", err=True)
    return usage


def _sum(labels: ContainerLabels) -> str:
    return f"sum by ({labels.namespace}, {labels.pod})"


def _latest(history: PrometheusHistory, promql: str, _at: int | None, _deadline: Deadline) -> list[dict[str, Any]]:
    return [{"metric": labels} for labels, _ in history.latest(lambda _back: promql)]


def _write(folder: Path, trace: Trace, counts: RecordingCounts) -> None:
    """Write the trace, and print the number of recorded and omitted pods; exit with status 1 if no pod is recorded."""
    if counts.unknown:
        echo(
            f"trimaran: {counts.unknown} pods are left out: neither the Kubernetes API nor kube-state-metrics has "
            f"their requests, such as {', '.join(counts.examples)}",
            err=True,
        )
    if not counts.recorded:
        fail("the recording has no pods: see --matchers, --node-selector, --last and --until", 1)
    write_or_fail(trace, folder)
    summary: dict[str, Any] = {
        "nodes": len(trace.nodes),
        "pods": counts.recorded,
        "minutes": trace.minutes,
        "DaemonSet and static pods subtracted from their nodes": counts.node_bound,
        "pods on other nodes left out": counts.elsewhere,
        "pods without a CPU or memory request": counts.without_requests,
    }
    echo(f"{folder}: " + ", ".join(f"{count} {name}" for name, count in summary.items() if count))
