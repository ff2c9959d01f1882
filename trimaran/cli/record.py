"""``trimaran record``: write a trace of a cluster, to be replayed against any policy."""

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from runtime import masking
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession
from runtime.kubernetes import credentials
from runtime.kubernetes.api import REQUEST_FAILURES, Access, KubernetesApi
from runtime.kubernetes.credentials import UnusableAccess
from runtime.terminal import duration_option
from scoring import Node
from trimaran.cli.options import fail
from trimaran.cli.trace_output import check_new, write_or_fail
from trimaran.cluster.view import NODES, PODS
from trimaran.traces.recording.assembly import RecordingCounts, assemble
from trimaran.traces.recording.history import STEP_SECONDS, PrometheusHistory, HistoryError
from trimaran.traces.recording.lifetimes import UsageCollector
from trimaran.traces.recording.pods import PodKey, PodSpec, specs_from_api, specs_from_kube_state_metrics
from trimaran.traces.trace import Trace, world_name

_LIST_SECONDS = 300.0
_PAUSE = 'container!="",container!="POD"'  # neither a pod's own sum nor its pause container


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--prometheus", "address", required=True, metavar="URL", help="Where containers' history is.")
@duration_option("--last", default="24h", help="How long a history.")
@click.option(
    "--until", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ"]), help="UTC. [default: now]"
)
@duration_option("--warm-up", default="1h", help="Of this, what replays do not measure.")
@duration_option("--rate", default="2m", help="CPU is a rate over this: at least twice the scrape interval.")
@click.option("--matchers", default="", help='Label matchers of all series, such as cluster="north".')
@click.option("--node-selector", default="", help="Labels of the nodes to record, such as pool=web. [default: all]")
@click.option("--minutes-at-once", type=click.IntRange(5, 10_000), default=120, show_default=True, help="A query.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with the Prometheus' bearer token.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="The Prometheus' certificate authorities.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Of each query, such as X-Scope-OrgID=a."
)
@click.option("--kube-config", type=click.Path(path_type=Path), help="[default: the pod's service account]")
@click.option("--kube-context", default="", help="One of its contexts. [default: the current one]")
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
    kube_config: Path | None,
    kube_context: str,
) -> None:
    """Write a trace of a cluster into FOLDER: its nodes, its pods, and what each pod really used.

    \b
    Example: trimaran record monday --prometheus http://prometheus:9090 --kube-config ~/.kube/config --last 24h

    Nodes and pods are read from the Kubernetes API, pods that are gone from kube-state-metrics in the Prometheus, use
    from its cAdvisor series. Nothing is changed anywhere. The trace has the names of pods and owners. Ends with status
    0 when it is written, 1 when a source fails or tells of no pod, 2 when it cannot be asked so.
    """
    minutes, warm_up_minutes = round(last / STEP_SECONDS), round(warm_up / STEP_SECONDS)
    if not 0 <= warm_up_minutes < minutes:
        raise click.UsageError(f"--warm-up of {warm_up_minutes} minutes leaves nothing of --last, {minutes} minutes")
    if rate < STEP_SECONDS:
        raise click.UsageError(f"--rate must be at least {STEP_SECONDS} seconds, not {rate:g}")
    check_new(folder)
    now = time.time()
    end = int(now if until is None else until.replace(tzinfo=UTC).timestamp()) // STEP_SECONDS * STEP_SECONDS
    if end > now:
        raise click.UsageError(f"--until {until} is in the future")
    with _session(address, token_file, ca_file, headers) as session:
        nodes, known = _from_kubernetes(kube_config, kube_context, node_selector)
        history = PrometheusHistory(session, address, end - minutes * STEP_SECONDS, minutes, minutes_at_once)
        try:
            uses = _uses(history, round(rate), matchers)
            if missing := uses.keys - known.keys():
                known |= specs_from_kube_state_metrics(history, missing, matchers)
        except HistoryError as error:
            fail(error, 1)
    trace, counts = assemble(
        world_name(folder), nodes, uses.lives(), known,
        minutes=minutes, warm_up_minutes=warm_up_minutes, only_these_nodes=bool(node_selector),
    )  # fmt: skip
    for warning in history.warnings:
        click.echo(f"trimaran: the Prometheus warns: {warning}", err=True)
    _tell(folder, trace, counts)


@contextlib.contextmanager
def _session(
    address: str, token_file: Path | None, ca_file: Path | None, headers: tuple[str, ...]
) -> Iterator[BoundedSession]:
    if not address.startswith(("http://", "https://")):
        raise click.UsageError(
            f"--prometheus {masking.without_credentials(address)}: must begin with http:// or https://"
        )
    pairs = dict(each.partition("=")[::2] for each in headers)
    if not all(name and value for name, value in pairs.items()):
        raise click.UsageError("--header must be NAME=VALUE")
    if ca_file is not None and not ca_file.is_file():
        raise click.UsageError(f"--ca-file {ca_file}: there is no such file")
    masking.keep_secrets_of(address)
    authenticate = credentials.bearer(lambda: credentials.read_token(token_file) if token_file else "")
    with contextlib.closing(
        BoundedSession(authenticate, verify=True if ca_file is None else str(ca_file), headers=pairs)
    ) as session:
        yield session


def _from_kubernetes(kube_config: Path | None, context: str, selector: str) -> tuple[list[Node], dict[PodKey, PodSpec]]:
    names = {"kube_config": "--kube-config", "context": "--kube-context", "address": "--kube-config"}
    try:
        with contextlib.closing(KubernetesApi(Access(kube_config=kube_config, context=context, names=names))) as api:
            deadline = Deadline.after(_LIST_SECONDS)
            nodes = [Node.from_k8s(each) for each in api.list_items(NODES, deadline, labelSelector=selector)]
            known = specs_from_api(api.list_items(PODS, deadline))
    except UnusableAccess as error:
        fail(error, 2)
    except REQUEST_FAILURES as error:
        fail(f"the Kubernetes API cannot be used: {masking.said(error)}", 1)
    except ValueError as error:
        fail(f"the Kubernetes API tells what cannot be read: {error}", 1)
    if not nodes:
        fail(f"there are no nodes{f' with {selector}: see --node-selector' if selector else ''}", 1)
    return nodes, known


def _uses(history: PrometheusHistory, rate_seconds: int, matchers: str) -> UsageCollector:
    """Read what pods used, and say how far it is; fail where there is nothing."""
    chosen = ",".join(filter(None, (_PAUSE, matchers)))
    by = "sum by (namespace, pod)"
    uses, left = UsageCollector(history.minutes), list[str]()
    asked = (
        ("CPU", f"{by} (rate(container_cpu_usage_seconds_total{{{chosen}}}[{rate_seconds}s]))"),
        ("memory", f"{by} (container_memory_working_set_bytes{{{chosen}}})"),
    )
    with click.progressbar(length=2 * history.minutes, label="history", file=sys.stderr) as bar:
        for resource, (what, promql) in enumerate(asked):
            seen = nameless = 0
            for span in history.spans(promql):
                seen += len(span.series)
                nameless += uses.add(resource, span)
                bar.update(span.end - span.start)
            if not seen:
                hint = f"a scrape interval above {rate_seconds // 2} s needs a longer --rate; " if what == "CPU" else ""
                raise HistoryError(
                    f"the Prometheus has no {what} of containers: {promql}. Does it scrape the kubelets' cAdvisor? "
                    f"{hint}see --matchers, --last and --until"
                )
            if nameless == seen:
                raise HistoryError(
                    f"no series of the {what} of containers has a namespace and a pod: {promql}. Does its scrape "
                    "configuration rename these labels of the kubelets' cAdvisor, as honor_labels: false does?"
                )
            if nameless:
                left.append(what)
    for what in left:
        click.echo(f"trimaran: {what} of containers without a namespace or a pod is left out", err=True)
    return uses


def _tell(folder: Path, trace: Trace, counts: RecordingCounts) -> None:
    """Write the trace, and say what is in it and what is not."""
    if counts.unknown:
        click.echo(
            f"trimaran: {counts.unknown} pods are left out: neither the Kubernetes API nor kube-state-metrics in the "
            f"Prometheus knows what they asked for, such as {', '.join(counts.examples)}",
            err=True,
        )
    if not counts.recorded:
        fail("no pod is left to record", 1)
    write_or_fail(trace, folder)
    said: dict[str, Any] = {
        "nodes": len(trace.nodes),
        "runs of pods": counts.recorded,
        "minutes": trace.minutes,
        "pods of DaemonSets and static pods, taken off their nodes": counts.fixed,
        "pods on other nodes, left out": counts.elsewhere,
        "pods that ask for no CPU or no memory": counts.without_requests,
    }
    click.echo(f"{folder}: " + ", ".join(f"{count} {what}" for what, count in said.items() if count))
