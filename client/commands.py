"""The commands of the client: ``trimaran top`` and ``trimaran score``."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import click
import orjson

from client.connecting import WatcherClient, connect
from client.errors import AccessDenied, BadSettings, ClientError, NoMetrics, UnknownWindow, WatcherUnavailable
from scoring import INFEASIBLE, FallbackPolicy, Judgment, NodeGrade, NodeTable, Pod, Profile, Scores, plugin_from_config
from watcher.kubernetes_files import read_objects
from watcher.model import AVERAGES, MetricType, NodeMetrics, Operator, WatcherMetrics

Command = TypeVar("Command", bound=Callable[..., Any])

PLUGINS = ("TargetLoadPacking", "LoadVariationRiskBalancing", "LowRiskOverCommitment")
_GRADED_BY_PODS = {NodeGrade.ALLOCATION, NodeGrade.PREDICTED}
_FILTERED = "Filtered by room, cordons, taints and node affinity; kube-scheduler also looks at volumes and other pods."


def watcher_options(command: Command) -> Command:
    """Give a command what :func:`client.connect` needs."""
    for option in (
        click.option(
            "--client-certificate", type=click.Path(path_type=Path), help="A PEM file with a certificate and its key."
        ),
        click.option("--ca-file", type=click.Path(path_type=Path), help="Certificate authorities to trust."),
        click.option("--token-file", type=click.Path(path_type=Path), help="A file with the watcher's bearer token."),
        click.option(
            "--watcher",
            "address",
            envvar="TRIMARAN_WATCHER_ADDRESS",
            show_envvar=True,
            help="The watcher's address. [default: none, this command watches by itself and says so]",
        ),
    ):
        command = option(command)
    return command


@click.command()
@watcher_options
@click.option("--windows", default="15m,10m,5m", show_default=True, help="Windows to show, comma-separated.")
@click.option("--sort", type=click.Choice(["name", "cpu", "memory"]), default="name", show_default=True)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def top(
    address: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: Path | None,
    windows: str,
    sort: str,
    output: str,
) -> None:
    """Show what every node uses: average and deviation, in percent of its capacity, for each window."""
    with _connected(address, token_file, ca_file, client_certificate) as client:
        snapshots = _read_windows(client, [name.strip() for name in windows.split(",") if name.strip()])
    if output == "json":
        click.echo(orjson.dumps(list(snapshots.values()), default=dict, option=orjson.OPT_INDENT_2))
        return
    newest = next(iter(snapshots.values()))
    names = sorted({name for metrics in snapshots.values() for name in metrics.data})
    if sort != "name":
        type_ = MetricType.CPU if sort == "cpu" else MetricType.MEMORY
        names.sort(key=lambda name: -_average(newest.data.get(name), type_))
    present = {
        metric.type for metrics in snapshots.values() for node in metrics.data.values() for metric in node.metrics
    }
    types = [*(type_.value for type_ in MetricType if type_ in present), *sorted(present - set(MetricType))]
    header = ["NODE", *(f"{type_.upper()} {window}" for type_ in types for window in snapshots)]
    rows = [
        [name, *(_cell(metrics.data.get(name), type_) for type_ in types for metrics in snapshots.values())]
        for name in names
    ]
    _print_table([header, *rows])
    grades = ", ".join(sorted({str(node.metadata.get("grade", "")) for node in newest.data.values()} - {""}))
    count = "1 node" if len(names) == 1 else f"{len(names)} nodes"
    click.echo(f"\n{count} from {newest.source}{f', grade: {grades}' if grades else ''}")


@click.command()
@click.option("--pod", "pod_file", required=True, type=click.Path(path_type=Path), help="The pod to place; - is stdin.")
@click.option("--nodes", "nodes_file", required=True, type=click.Path(path_type=Path), help="kubectl get nodes -o yaml")
@click.option(
    "--pods", "pods_file", type=click.Path(path_type=Path), help="The pods that run: kubectl get pods -A -o yaml"
)
@click.option(
    "--plugin",
    "plugin_names",
    type=click.Choice(PLUGINS),
    multiple=True,
    default=("LoadVariationRiskBalancing",),
    show_default=True,
    help="How to score; repeated, the scores are added, as kube-scheduler does with weights of 1.",
)
@click.option("--window", help="Exactly this window. [default: the watcher's choice]")
@click.option(
    "--fallback",
    type=click.Choice(["open", "closed", "off"]),
    default="open",
    show_default=True,
    help="For nodes without metrics: open goes by what else is known, closed places on measured nodes only, off scores "
    "as the Go plugins do.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@watcher_options
def score(
    pod_file: Path,
    nodes_file: Path,
    pods_file: Path | None,
    plugin_names: Sequence[str],
    window: str | None,
    fallback: Literal["open", "closed", "off"],
    output: str,
    address: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: Path | None,
) -> None:
    """Rank nodes for a pod by what they really use, and say why.

    Nodes that the pod cannot go to come last, without a score: where it does not fit, and where cordons, taints, its
    node selector or required node affinity keep it off.
    """
    try:
        pod = Pod.from_k8s(read_objects(pod_file, "Pod")[0])
        running = read_objects(pods_file, "Pod") if pods_file else []
        nodes = NodeTable.from_k8s(read_objects(nodes_file, "Node"), running)
        profile = Profile.of(*(plugin_from_config(name, {}) for name in plugin_names))
    except ValueError as error:
        _fail(error, status=2)
    snapshot, missing = None, ""
    with _connected(address, token_file, ca_file, client_certificate) as client:
        try:
            snapshot = client.metrics(window)
        except (NoMetrics, WatcherUnavailable) as error:
            if fallback == "off":
                _fail(error, status=1)
            missing = str(error)
            click.echo(f"trimaran: no metrics: {error}", err=True)
        except ClientError as error:
            _fail(error, status=1)
    if fallback == "off":
        assert snapshot is not None  # noqa: S101
        prepared = profile.prepare(nodes, snapshot)
    else:
        prepared = profile.prepare(nodes, FallbackPolicy(fallback).judge(nodes, snapshot, time.time()))
    scores = prepared.score(pod, nodes.feasible(pod))
    for doubt in _doubts(scores, snapshot, pods_known=pods_file is not None):
        click.echo(f"trimaran: {doubt}", err=True)
    ranked = scores.order()
    if output == "json":
        click.echo(orjson.dumps(_as_document(scores, ranked, snapshot), option=orjson.OPT_INDENT_2, default=str))
        return
    if snapshot is None or NodeGrade.ALLOCATION in scores.grades:
        by = f"allocation: {missing or (scores.judgment and scores.judgment.reasons[0])}"
    else:
        by = f"the {snapshot.window.duration} window of {snapshot.source}"
    click.echo(f"{pod.namespace}/{pod.name}, by {by}\n")
    _print_table(_ranking_rows(scores, ranked))
    if scores.judgment:
        click.echo(f"\n{_counted(scores.judgment)}")
    click.echo(f"\n{_FILTERED}")


def _doubts(scores: Scores, snapshot: WatcherMetrics | None, *, pods_known: bool) -> Iterator[str]:
    """Say what was most likely not meant."""
    if snapshot is not None and snapshot.data and snapshot.data.keys().isdisjoint(scores.names):
        known = sorted(snapshot.data)
        more = ", ..." if len(known) > 5 else ""
        yield f"the watcher knows none of these nodes; the ones it knows are named {', '.join(known[:5])}{more}"
    by_pods = {name for name, part in scores.plugins.items() if part.weighted.plugin.reads_pods}
    affected = sorted(by_pods | _GRADED_BY_PODS.intersection(scores.grades))
    if affected and not pods_known:
        yield f"without --pods all nodes count as empty, which matters to {', '.join(affected)}"


def _ranking_rows(scores: Scores, ranked: Sequence[str]) -> list[list[str]]:
    """Return the ranking as a table's rows; without fallback there are no grades in it."""
    graded = scores.judgment is not None
    rows = [["RANK", "NODE", "SCORE", *(["GRADE"] if graded else []), "WHY"]]
    for rank, name in enumerate(ranked, 1):
        explained = scores.explain(name)
        total = "-" if explained.total == INFEASIBLE else str(explained.total)
        node_cells = [str(rank), name, total, *([explained.grade] if graded else [])]
        for part, _, normalized in explained.parts:
            rows.append([*node_cells, f"{part.plugin} {normalized}: {part.line}"])
            node_cells = [""] * len(node_cells)
    return rows


def _counted(judgment: Judgment) -> str:
    counts = ", ".join(f"{count} {grade}" for grade, count in sorted(judgment.counts().items()))
    return f"{counts} (fallback {judgment.policy.fail}; --fallback off scores as the Go plugins do)"


def _as_document(scores: Scores, ranked: Sequence[str], snapshot: WatcherMetrics | None) -> dict[str, Any]:
    return {
        "pod": f"{scores.pod.namespace}/{scores.pod.name}",
        "window": asdict(snapshot.window) if snapshot else None,
        "source": snapshot.source if snapshot else None,
        "fallback": scores.judgment.policy.fail if scores.judgment else "off",
        "grades": dict(scores.judgment.counts()) if scores.judgment else {},
        "nodes": [scores.explain(name).as_document() for name in ranked],
    }


def _connected(
    address: str | None, token_file: Path | None, ca_file: Path | None, client_certificate: Path | None
) -> WatcherClient:
    # What went wrong is said once, at the end; without a handler Python would print the watcher's warnings bare.
    logging.getLogger("watcher").addHandler(logging.NullHandler())
    try:
        if not address:
            from client.library import LibraryClient  # noqa: PLC0415  behind it stands the whole watcher

            client = LibraryClient()
            machine = ", this machine" if client.source == "Host" else ""
            click.echo(
                f"trimaran: no --watcher (TRIMARAN_WATCHER_ADDRESS): embedding one that reads {client.source}{machine}",
                err=True,
            )
            return client
        return connect(address, token_file=token_file, ca_file=ca_file, client_certificate=client_certificate)
    except (BadSettings, ValueError) as error:
        _fail(error, status=2)


def _read_windows(client: WatcherClient, windows: Sequence[str]) -> dict[str, WatcherMetrics]:
    """Return the windows that the watcher keeps and has; it is an error when that is none of them."""
    found: dict[str, WatcherMetrics] = {}
    missing: Exception = ValueError("--windows names no window")
    for window in windows:
        try:
            found[window] = client.metrics(window)
        except UnknownWindow as error:
            missing = missing if isinstance(missing, NoMetrics) else error
        except NoMetrics as error:
            missing = error
        except ClientError as error:
            _fail(error, status=1)
    return found or _fail(missing, status=1 if isinstance(missing, NoMetrics) else 2)


def _average(node: NodeMetrics | None, type_: str) -> float:
    values = (
        [metric.value for metric in node.metrics if metric.type == type_ and metric.operator in AVERAGES]
        if node
        else []
    )
    return values[-1] if values else -1.0


def _cell(node: NodeMetrics | None, type_: str) -> str:
    average = _average(node, type_)
    deviations = (
        [metric.value for metric in node.metrics if (metric.type, metric.operator) == (type_, Operator.STD)]
        if node
        else []
    )
    return "-" if average < 0 else f"{average:.1f}%" + (f" ±{deviations[-1]:.1f}" if deviations else "")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("   ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _fail(error: Exception, status: int) -> NoReturn:
    hint = "; see --token-file and --client-certificate" if isinstance(error, AccessDenied) else ""
    click.echo(f"trimaran: {error}{hint}", err=True)
    raise SystemExit(status)
