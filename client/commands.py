"""The commands of the client: ``trimaran top`` and ``trimaran score``."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import orjson

from client.connecting import WatcherClient, connect
from client.errors import BadSettings, ClientError, UnknownWindow
from client.kubernetes_files import read_objects
from scoring import Explanation, MetricsTable, NodeTable, Pod, plugin_from_config
from watcher.model import MetricType, NodeMetrics, Operator, WatcherMetrics

Command = TypeVar("Command", bound=Callable[..., Any])

_AVERAGES = {Operator.AVG, Operator.LATEST}
PLUGINS = ("TargetLoadPacking", "LoadVariationRiskBalancing", "LowRiskOverCommitment")


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
            help="The watcher's address. [default: none, this process watches by itself]",
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
        click.echo(orjson.dumps(list(snapshots.values()), option=orjson.OPT_INDENT_2))
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
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@watcher_options
def score(
    pod_file: Path,
    nodes_file: Path,
    pods_file: Path | None,
    plugin_names: Sequence[str],
    window: str | None,
    output: str,
    address: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    client_certificate: Path | None,
) -> None:
    """Rank nodes for a pod by what they really use, and say why."""
    try:
        pod = Pod.from_k8s(read_objects(pod_file, "Pod")[0])
        running = read_objects(pods_file, "Pod") if pods_file else []
        nodes = NodeTable.from_k8s(read_objects(nodes_file, "Node"), running)
        plugins = [plugin_from_config(name, {}) for name in plugin_names]
    except ValueError as error:
        _fail(error, status=2)
    with _connected(address, token_file, ca_file, client_certificate) as client:
        try:
            snapshot = client.metrics(window)
        except ClientError as error:
            _fail(error, status=1)
    metrics = MetricsTable.align(snapshot, nodes)
    prepared = [plugin.prepare(nodes, metrics) for plugin in plugins]
    ranking = [(name, [each.explain(pod, name) for each in prepared]) for name in nodes.names]
    ranking.sort(key=lambda ranked: (-_total(ranked[1]), ranked[0]))
    if output == "json":
        click.echo(orjson.dumps(_as_document(pod, snapshot, ranking), option=orjson.OPT_INDENT_2, default=str))
        return
    click.echo(f"{pod.namespace}/{pod.name}, by the {snapshot.window.duration} window of {snapshot.source}\n")
    rows = [["RANK", "NODE", "SCORE", "WHY"]]
    for rank, (name, explanations) in enumerate(ranking, 1):
        node_cells = [str(rank), name, str(_total(explanations))]
        for each in explanations:
            rows.append([*node_cells, f"{each.plugin} {each.score}: {each.line}"])
            node_cells = ["", "", ""]
    _print_table(rows)


def _total(explanations: Sequence[Explanation]) -> int:
    return sum(each.score for each in explanations)


def _as_document(
    pod: Pod, snapshot: WatcherMetrics, ranking: Sequence[tuple[str, Sequence[Explanation]]]
) -> dict[str, Any]:
    return {
        "pod": f"{pod.namespace}/{pod.name}",
        "window": asdict(snapshot.window),
        "source": snapshot.source,
        "nodes": [
            {
                "name": name,
                "score": _total(explanations),
                "plugins": [
                    {"name": each.plugin, "score": each.score, "why": each.line, "terms": dict(each.terms)}
                    for each in explanations
                ],
            }
            for name, explanations in ranking
        ],
    }


def _connected(
    address: str | None, token_file: Path | None, ca_file: Path | None, client_certificate: Path | None
) -> WatcherClient:
    try:
        if not address:
            return connect()
        return connect(address, token_file=token_file, ca_file=ca_file, client_certificate=client_certificate)
    except (BadSettings, ValueError) as error:
        _fail(error, status=2)


def _read_windows(client: WatcherClient, windows: Sequence[str]) -> dict[str, WatcherMetrics]:
    """Return the windows that the watcher keeps; it is an error when that is none of them."""
    found: dict[str, WatcherMetrics] = {}
    unknown: Exception = ValueError("--windows names no window")
    for window in windows:
        try:
            found[window] = client.metrics(window)
        except UnknownWindow as error:
            unknown = error
        except ClientError as error:
            _fail(error, status=1)
    return found or _fail(unknown, status=2)


def _average(node: NodeMetrics | None, type_: str) -> float:
    values = (
        [metric.value for metric in node.metrics if metric.type == type_ and metric.operator in _AVERAGES]
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
    click.echo(f"trimaran: {error}", err=True)
    raise SystemExit(status)
