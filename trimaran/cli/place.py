"""``trimaran place``: a plan for many pods at once."""

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import orjson
import yaml

from client.connecting import WatcherCredentials, connect
from client.errors import BadSettings, ClientError, UnknownWindow
from runtime import masking
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Access, KubernetesApi
from runtime.kubernetes.credentials import UnusableAccess
from runtime.kubernetes.manifests import FileError, read_objects
from runtime.terminal import echo_table
from scoring import NodeTable
from trimaran.cli.options import fail, watcher_options
from trimaran.cluster.view import ClusterView
from trimaran.planning.binding import Bound, bind, bindings, failed_gangs
from trimaran.planning.cluster import Batch, Waiting, read_batch, read_waiting
from trimaran.planning.exact import SolverMissing
from trimaran.planning.local_search import Search
from trimaran.planning.planner import (
    BOUND_SECONDS,
    Planned,
    as_document,
    compare_rivals,
    enough_seconds,
    make_plan,
    measure_rows,
)
from trimaran.planning.problem import Measures, why_unplaced
from watcher.model import WatcherMetrics

_SYNC_SECONDS = 60.0
_PENDING = "spec.nodeName=,status.phase=Pending"
_MORE = {
    "--bound-seconds": "--bound-seconds may find a higher one",
    "--seconds": "--seconds may find a better plan or a higher bound",
}


@click.command()
@click.option("--nodes", "nodes_file", type=click.Path(path_type=Path), help="kubectl get nodes -o yaml")
@click.option(
    "--pods",
    "pods_file",
    type=click.Path(path_type=Path),
    help="kubectl get pods -A -o yaml: those that are bound count where they are, those that wait are placed.",
)
@click.option("--live", is_flag=True, help="Read nodes and pods from the Kubernetes API instead.")
@click.option("--kube-config", type=click.Path(path_type=Path), help="[default: the pod's service account]")
@click.option("--kube-context", default="", help="One of its contexts. [default: the current one]")
@click.option("--scheduler", "scheduler_name", default="", help="Only pods of this schedulerName. [default: all]")
@click.option("--window", default="24h", show_default=True, help="The watcher's window whose peaks count.")
@click.option(
    "--limit",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="The share of its capacity that a node may be used at its peak.",
)
@click.option("--gangs-within", default="", help="A node label, such as a rack's, whose value a gang's nodes share.")
@click.option(
    "--spread-weight",
    type=click.FloatRange(0, 1000),
    default=1.0,
    show_default=True,
    help="What spread between nodes counts beside imbalance within them; 0 is the paper's measure.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    help="How long to search. [default: 20, from 2,000 pods on one more for each 86 pods: 230 for 20,000]",
)
@click.option(
    "--bound-seconds",
    type=click.FloatRange(0, 3600),
    default=BOUND_SECONDS,
    show_default=True,
    help="How long to look at most for what no plan can beat, which the gap is over.",
)
@click.option(
    "--rounds", type=click.IntRange(1), default=1_000_000, help="The same in rounds, for equal plans each time."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--exact", is_flag=True, help="Go on with CP-SAT, for as long again; it proves some 64 pairs.")
@click.option("--compare", is_flag=True, help="Show what the plans of other methods would be worth, TBESK among them.")
@click.option("--write", "plan_file", type=click.Path(path_type=Path), help="Write the plan as v1 Bindings to a file.")
@click.option("--bind", "carry_out", is_flag=True, help="Carry the plan out. [default: a dry run]")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@watcher_options
def place(
    nodes_file: Path | None,
    pods_file: Path | None,
    kube_config: Path | None,
    kube_context: str,
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
    carry_out: bool,
) -> None:
    """Place many pods at once, by what nodes use at their peak, and say how far from the best that is.

    \b
    Example: trimaran place --nodes nodes.yaml --pods pods.yaml --write plan.yaml

    Without --bind nothing is changed. Ends with status 0 when every pod has a node, 1 when one has none or is not
    bound, 2 when the input cannot be used.
    """
    if live == bool(nodes_file or pods_file) or (not live and not (nodes_file and pods_file)):
        raise click.UsageError("give --nodes and --pods, or --live")
    for option, value in (
        ("--limit", limit), ("--spread-weight", spread_weight), ("--seconds", seconds or 0.0),
        ("--bound-seconds", bound_seconds),
    ):  # fmt: skip
        if not math.isfinite(value):
            raise click.UsageError(f"{option} must be a number, not {value}")
    peaks = _peaks(address, window, access)
    with contextlib.ExitStack() as stack:
        api = None
        if live or carry_out:
            api = stack.enter_context(_kubernetes(kube_config, kube_context))
        try:
            if api is not None and live:
                nodes, (waiting, left) = _from_api(api, kube_config, kube_context, scheduler_name)
            else:
                nodes, (waiting, left) = _from_files(nodes_file, pods_file, scheduler_name)
            batch = read_batch(nodes, waiting, left, peaks=peaks, limit=limit, gangs_within=gangs_within)
            _check_writable(plan_file)
            search = Search(spread_weight, rounds, seconds or enough_seconds(batch.problem.pods))
            planned = make_plan(batch.problem, search, seed, exactly=exact, bound_seconds=bound_seconds, tell=_tell)
            rivals = compare_rivals(batch.problem, seed) if compare else {}
            wanted = bindings(batch, planned.plan)
            if plan_file is not None:
                listed = {"apiVersion": "v1", "kind": "List", "items": wanted}
                plan_file.write_text(yaml.dump(listed, Dumper=yaml.CSafeDumper))
        except OSError as error:
            fail(f"{plan_file} cannot be written: {error.strerror}", 2)
        except (ValueError, SolverMissing) as error:
            fail(error, 2)
        bound = _bound(api, wanted) if api is not None and carry_out else []
    if output == "json":
        document = as_document(batch, planned, rivals, spread_weight)
        document["bound_pods"] = {each.pod: each.error or each.node for each in bound}
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    else:
        _show(batch, planned, rivals, spread_weight, listed=plan_file is None)
        _show_bound(batch, wanted, bound, carried_out=carry_out)
    raise SystemExit(1 if planned.measures.unplaced or any(each.error for each in bound) else 0)


def _bound(api: KubernetesApi, wanted: Sequence[dict[str, Any]]) -> list[Bound]:
    """Carry a plan out, with a bar for people who wait for it."""
    binding = bind(api, wanted)
    with click.progressbar(
        binding, length=len(wanted), label="binding", file=sys.stderr, hidden=not _on_terminal()
    ) as bar:
        return list(bar)


def _check_writable(path: Path | None) -> None:
    """See that a plan can be written, before it is looked for; raises OSError."""
    if path is not None:
        path.open("a").close()


def _peaks(address: str | None, window: str, access: WatcherCredentials) -> WatcherMetrics | None:
    if not address:
        return None
    try:
        with connect(address, **access) as client:
            return client.metrics(window)
    except UnknownWindow as error:
        fail(f"{error}; add {window} to its watch.windows and MAX to its watch.operators, or choose --window", 2)
    except (BadSettings, ValueError) as error:
        fail(error, 2)
    except ClientError as error:
        fail(error, 1)


@contextlib.contextmanager
def _kubernetes(kube_config: Path | None, context: str) -> Iterator[KubernetesApi]:
    names = {"kube_config": "--kube-config", "context": "--kube-context"}
    try:
        api = KubernetesApi(Access(kube_config=kube_config, context=context, names=names))
        api.connect()
    except UnusableAccess as error:
        fail(error, 2)
    with contextlib.closing(api):
        yield api


def _from_files(
    nodes_file: Path | None, pods_file: Path | None, scheduler_name: str
) -> tuple[NodeTable, tuple[list[Waiting], dict[str, str]]]:
    if nodes_file is None or pods_file is None:
        raise FileError("--nodes and --pods are both needed")
    pods = read_objects(pods_file, "Pod")
    return NodeTable.from_k8s(read_objects(nodes_file, "Node"), pods), read_waiting(pods, scheduler_name)


def _from_api(
    api: KubernetesApi, kube_config: Path | None, context: str, scheduler_name: str
) -> tuple[NodeTable, tuple[list[Waiting], dict[str, str]]]:
    try:
        with (
            _kubernetes(kube_config, context) as watched,
            contextlib.closing(ClusterView(watched).start()) as view,
        ):
            pods = list(api.list_items("/api/v1/pods", Deadline.after(_SYNC_SECONDS), fieldSelector=_PENDING))
            if not view.wait(_SYNC_SECONDS):
                fail("the Kubernetes API gave no whole list of nodes and pods within a minute", 1)
            with view.reading() as table:
                return table.copy(), read_waiting(pods, scheduler_name, leave_unreadable=True)
    except REQUEST_FAILURES as error:
        fail(f"the Kubernetes API cannot be used: {masking.said(error)}", 1)


def _show(batch: Batch, planned: Planned, rivals: dict[str, Measures], spread_weight: float, *, listed: bool) -> None:
    pods = list(zip(batch.waiting, planned.plan.tolist(), strict=True))
    if listed:
        echo_table(["POD", "NODE"], ([each.name, batch.names[row]] for each, row in pods if row >= 0))
        click.echo()
    for pod, (each, row) in enumerate(pods):
        if row < 0:
            click.echo(f"unplaced: {each.name}: {why_unplaced(batch.problem, pod)}")
    for name, reason in batch.left.items():
        click.echo(f"left to the scheduler: {name}: {reason}")
    header, *rows = measure_rows(planned, rivals, spread_weight)
    echo_table(header, rows)
    closing = f" (time ran out: a greater {_MORE[planned.short]}, and so a smaller gap)" if planned.short else ""
    click.echo(f"\n{len(pods)} pods on {batch.problem.nodes} nodes, by {', '.join(batch.problem.resources)}")
    gangs = ", whole gangs or not," if any(each.gang for each in batch.waiting) else ""
    click.echo(f"no plan for these pods{gangs} costs less than {planned.bound.cost:.4f}{closing}")
    for note in batch.notes:
        click.echo(f"trimaran: {note}", err=True)


def _tell(said: str) -> None:
    """Say what is done next, to people who wait for it."""
    if _on_terminal():
        click.echo(f"trimaran: {said}", err=True)


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def _show_bound(batch: Batch, wanted: Sequence[dict[str, Any]], bound: Sequence[Bound], *, carried_out: bool) -> None:
    if not carried_out:
        click.echo(f"dry run: {len(wanted)} pods would be bound; --bind carries it out")
        return
    for each in bound:
        if each.error:
            click.echo(f"not bound: {each.pod} to {each.node}: {each.error}")
    for gang in failed_gangs(batch, bound):
        click.echo(f"gang {gang} is bound in part")
    click.echo(f"{sum(not each.error for each in bound)} of {len(bound)} pods are bound")
