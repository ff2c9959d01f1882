"""``trimaran place``: plan the placement of many pending pods at once, and bind them on request."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from client.connecting import WatcherCredentials, connect
from client.errors import BadSettings, ClientError, UnknownWindow
from runtime.http.gather import Deadline
from runtime.kubernetes.api import KubernetesApi
from runtime.kubernetes.manifests import ManifestError, read_objects
from runtime.kubernetes.paths import PODS
from runtime.terminal import echo, echo_document, echo_table, output_option
from scoring import NodeTable
from trimaran.cli.options import (
    FiniteRange,
    KubernetesOpener,
    fail,
    kubernetes_options,
    option,
    path_option,
    watcher_options,
)
from trimaran.cluster.view import ClusterView
from trimaran.planning.binding import BindResult, as_bindings, bind, partly_bound_gangs
from trimaran.planning.cluster import Batch, PendingPod, read_batch, read_pending_pods
from trimaran.planning.local_search import SearchSettings
from trimaran.planning.planner import (
    BOUND_SECONDS,
    PlanResult,
    compare_baselines,
    comparison_rows,
    default_seconds,
    make_plan,
    plan_document,
)
from trimaran.planning.problem import Measures, why_unplaced
from watcher.model import WatcherMetrics

_SYNC_SECONDS = 60.0
_PENDING = "spec.nodeName=,status.phase=Pending"
_MORE_TIME = {
    "--bound-seconds": "--bound-seconds may find a higher bound",
    "--seconds": "--seconds may find a better plan or a higher bound",
}


@click.command()
@path_option("--nodes", "nodes_file", help="Output of kubectl get nodes -o yaml.")
@path_option(
    "--pods",
    "pods_file",
    help="Output of kubectl get pods -A -o yaml. Bound pods take room on their nodes; pending pods are placed.",
)
@click.option("--live", is_flag=True, help="Read nodes and pods from the Kubernetes API instead.")
@kubernetes_options
@click.option("--scheduler", "scheduler_name", default="", help="Only pods with this schedulerName. [default: all]")
@option("--window", default="24h", help="Window of the watcher whose peaks are used.")
@option(
    "--limit",
    type=FiniteRange(0, 1, min_open=True),
    default=1.0,
    help="Largest use of a node at its peak, as a share of its capacity.",
)
@click.option(
    "--gangs-within",
    default="",
    help="Node label, such as that of the rack; all pods of a gang go to nodes with the same value.",
)
@option(
    "--spread-weight",
    type=FiniteRange(0, 1000),
    default=1.0,
    help="Weight of the differences between nodes, relative to the imbalance of resources within nodes; 0 "
    "ignores them.",
)
@click.option(
    "--seconds",
    type=FiniteRange(0.1, 3600),
    help="Time limit of the search. [default: 20, plus 1 per 86 pods above 2,000]",
)
@option(
    "--bound-seconds",
    type=FiniteRange(0, 3600),
    default=BOUND_SECONDS,
    help="Time limit for computing the lower bound, with which the plan's cost is compared.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=1_000_000,
    help="Largest number of search rounds; limits the search reproducibly, unlike time.",
)
@option("--seed", type=click.IntRange(0), default=0, help="Random seed of the search.")
@click.option(
    "--exact",
    is_flag=True,
    help="Then search by integer programming for the same time again; it proves the optimum for up to about 48 "
    "pod-node pairs.",
)
@click.option("--compare", is_flag=True, help="Also show the cost of the plans that old rules of kube-scheduler make.")
@path_option("--write", "plan_file", help="File to write the plan to, as v1 Bindings.")
@click.option("--bind", "bind_pods", is_flag=True, help="Bind the pods. [default: dry run]")
@output_option("text", "json", "yaml")
@watcher_options
def place(
    nodes_file: Path | None,
    pods_file: Path | None,
    kubernetes: KubernetesOpener,
    scheduler_name: str,
    window: str,
    limit: float,
    gangs_within: str,
    spread_weight: float,
    seconds: float | None,
    bound_seconds: float,
    rounds: int,
    seed: int,
    plan_file: Path | None,
    output: str,
    address: str | None,
    access: WatcherCredentials,
    *,
    live: bool,
    exact: bool,
    compare: bool,
    bind_pods: bool,
) -> None:
    """Place many pods at once, by the nodes' use at their peak, and show the gap to a lower bound of the cost.

    \b
    Example: trimaran place --nodes nodes.yaml --pods pods.yaml --write plan.yaml

    Without --bind the cluster is not changed.

    Exit status: 0 if every pod has a node, 1 if a pod has no node or is not bound, 2 if the input is invalid.
    """
    if live == bool(nodes_file or pods_file) or (not live and not (nodes_file and pods_file)):
        raise click.UsageError("give --nodes and --pods, or --live")
    peaks = _peaks(address, window, access)
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(kubernetes()) if live or bind_pods else None
        try:
            if api is not None and live:
                nodes, (pending, skipped) = _from_api(api, kubernetes, scheduler_name)
            else:
                nodes, (pending, skipped) = _from_files(nodes_file, pods_file, scheduler_name)
            batch = read_batch(nodes, pending, skipped, peaks=peaks, limit=limit, gangs_within=gangs_within)
            if plan_file is not None:
                plan_file.open("a").close()  # an unwritable file must fail before the long search
            settings = SearchSettings(spread_weight, rounds, seconds or default_seconds(batch.problem.pods))
            result = make_plan(
                batch.problem, settings, seed, exact=exact, bound_seconds=bound_seconds, report=_show_progress
            )
            baselines = compare_baselines(batch.problem, seed) if compare else {}
            bindings = as_bindings(batch, result.plan)
            if plan_file is not None:
                listing = {"apiVersion": "v1", "kind": "List", "items": bindings}
                plan_file.write_text(yaml.dump(listing, Dumper=yaml.CSafeDumper))
        except OSError as error:
            fail(f"{plan_file} cannot be written: {error.strerror}", 2)
        except ValueError as error:
            fail(error, 2)
        bound = _bind(api, bindings) if api is not None and bind_pods else []
    if output != "text":
        document = plan_document(batch, result, baselines, spread_weight)
        document["bound_pods"] = {each.pod: each.error or each.node for each in bound}
        echo_document(document, output)
    else:
        _show_plan(batch, result, baselines, spread_weight, with_pods=plan_file is None)
        _show_bound(batch, bindings, bound, dry_run=not bind_pods)
    raise SystemExit(1 if result.measures.unplaced or any(each.error for each in bound) else 0)


def _bind(api: KubernetesApi, bindings: Sequence[dict[str, Any]]) -> list[BindResult]:
    """Bind pods to their nodes, and return the results; show a progress bar on a terminal."""
    results = bind(api, bindings)
    with click.progressbar(
        results, length=len(bindings), label="binding", file=sys.stderr, hidden=not _on_terminal()
    ) as bar:
        return list(bar)


def _peaks(address: str | None, window: str, access: WatcherCredentials) -> WatcherMetrics | None:
    if not address:
        return None
    try:
        with connect(address, **access) as client:
            return client.metrics(window)
    except UnknownWindow as error:
        fail(f"{error}; in the watcher add {window} to watch.windows and MAX to watch.operators, or choose --window", 2)
    except (BadSettings, ValueError) as error:
        fail(error, 2)
    except ClientError as error:
        fail(error, 1)


def _from_files(
    nodes_file: Path | None, pods_file: Path | None, scheduler_name: str
) -> tuple[NodeTable, tuple[list[PendingPod], dict[str, str]]]:
    if nodes_file is None or pods_file is None:
        raise ManifestError("--nodes and --pods are both needed")
    pods = read_objects(pods_file, "Pod")
    return NodeTable.from_k8s(read_objects(nodes_file, "Node"), pods), read_pending_pods(pods, scheduler_name)


def _from_api(
    api: KubernetesApi, kubernetes: KubernetesOpener, scheduler_name: str
) -> tuple[NodeTable, tuple[list[PendingPod], dict[str, str]]]:
    with kubernetes() as watched, contextlib.closing(ClusterView(watched).start()) as view:
        pods = list(api.list_items(PODS, Deadline.after(_SYNC_SECONDS), fieldSelector=_PENDING))
        if not view.wait(_SYNC_SECONDS):
            fail("the Kubernetes API did not return a complete list of nodes and pods within a minute", 1)
        with view.reading() as table:
            nodes = table.copy()
        unknown = {name: why for name, why in view.unknown_nodes.items() if name in nodes}
        nodes.remove_nodes(unknown)
        for name, why in unknown.items():
            echo(f"trimaran: {name} gets no pods: {why}", err=True)
        return nodes, read_pending_pods(pods, scheduler_name, skip_unreadable=True)


def _show_plan(
    batch: Batch, result: PlanResult, baselines: dict[str, Measures], spread_weight: float, *, with_pods: bool
) -> None:
    pods = list(zip(batch.pending, result.plan.tolist(), strict=True))
    if with_pods:
        echo_table(["POD", "NODE"], ([pod.name, batch.names[row]] for pod, row in pods if row >= 0))
        echo()
    for number, (pod, row) in enumerate(pods):
        if row < 0:
            echo(f"unplaced: {pod.name}: {why_unplaced(batch.problem, number)}")
    for name, reason in batch.skipped.items():
        echo(f"left to the scheduler: {name}: {reason}")
    header, *rows = comparison_rows(result, baselines, spread_weight)
    echo_table(header, rows)
    echo()
    echo(f"{len(pods)} pods on {batch.problem.nodes} nodes, by {', '.join(batch.problem.resources)}")
    gangs = ", whole gangs or not," if any(pod.gang for pod in batch.pending) else ""
    more = f" (time ran out: a greater {_MORE_TIME[result.limited_by]})" if result.limited_by else ""
    echo(f"no plan for these pods{gangs} costs less than {result.bound.cost:.4f}{more}")
    for note in batch.notes:
        echo(f"trimaran: {note}", err=True)


def _show_progress(message: str) -> None:
    """Print a progress message to standard error if standard error is a terminal."""
    if _on_terminal():
        echo(f"trimaran: {message}", err=True)


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def _show_bound(
    batch: Batch, bindings: Sequence[dict[str, Any]], bound: Sequence[BindResult], *, dry_run: bool
) -> None:
    if dry_run:
        echo(f"dry run: {len(bindings)} pods would be bound; --bind binds them")
        return
    for pod in bound:
        if pod.error:
            echo(f"not bound: {pod.pod} to {pod.node}: {pod.error}")
    for gang in partly_bound_gangs(batch, bound):
        echo(f"gang {gang} is bound in part")
    echo(f"{sum(not pod.error for pod in bound)} of {len(bound)} pods are bound")
