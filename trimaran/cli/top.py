"""``trimaran top``: show the load of the nodes, with age, coverage and grade of the data."""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from client.connecting import WatcherClient, WatcherCredentials
from client.errors import ClientError, NoMetrics, UnknownNode, UnknownWindow
from runtime.terminal import colorize, duration_option, echo, echo_document, echo_table, load_color, output_option
from trimaran.cli.options import connected, embedded_options, fail, option, watcher_options
from watcher.commands import load_or_exit
from watcher.model import REQUIRED, Load, MetricType, NodeMetrics, WatcherMetrics, coverage_text, grades
from watcher.settings import WatcherSettings

_Snapshots = Mapping[str, WatcherMetrics]
_sleep = time.sleep
_BARS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR_CELLS, _EMPTY = 10, "·"
_FRAME_LINES = 5  # of the table with --watch: header, count of hidden nodes, blank line, summary, cursor
_WIDE_ONLY = {MetricType.MEMORY_FULL_PRESSURE, MetricType.IO_FULL_PRESSURE}
_SPARKS = 48
_MISSING = "missing"  # grade of a node that the newest window does not have


@click.command()
@click.argument("node", required=False)
@watcher_options
@click.option("--windows", help="Windows to show, comma-separated. [default: all windows of the watcher]")
@option(
    "--sort",
    type=click.Choice(["load", "name", "cpu", "memory", "cpu-std", "memory-std", "age", "coverage", "grade"]),
    default="load",
    show_default=True,
    help="Order of the nodes: with the highest load of CPU or memory first, by name, or with the highest value, the "
    "oldest values, the least coverage or the worst grade first.",
)
@click.option("-w", "--watch", is_flag=True, help="Repeat until Ctrl-C.")
@embedded_options
@duration_option("--interval", default="10s", help="Time between two refreshes with --watch.")
@output_option("text", "wide", "json", "yaml")
def top(
    node: str | None,
    address: str | None,
    access: WatcherCredentials,
    windows: str | None,
    sort: str,
    interval: float,
    last: float,
    provider_flags: dict[str, str | None],
    output: str,
    *,
    watch: bool,
) -> None:
    """Show the load of every node, or all values of one NODE.

    For each window, average and standard deviation in percent of the node's capacity, with a bar for CPU and memory of
    the first window. AGE is the age of the newest sample, COVERAGE the share of the window with samples, and GRADE how
    the values were obtained.

    \b
    Examples: trimaran top --watch
              trimaran top node-1
              trimaran top --provider Prometheus --address http://prometheus:9090 --last 7d
              trimaran top -o json | jq '.[0].data'

    Exit status: 0 if metrics are shown, 1 without metrics or if NODE is unknown, 2 if an option cannot be used.
    """
    wanted = None if windows is None else [name.strip() for name in windows.split(",") if name.strip()]
    settings = None
    if address is None:
        assignments = (f"watch.windows={last:g}s",) if last else ()
        settings = load_or_exit(WatcherSettings, None, assignments, provider_flags).settings
    elif last or any(provider_flags.values()):
        raise click.UsageError("--provider, --address and --last are for an embedded watcher: leave out --watcher")
    with connected(address, access, settings) as client:
        while True:
            snapshots = _read(client, wanted, node)
            if watch:
                click.clear()
            if output in {"json", "yaml"}:
                echo_document([*snapshots.values()], output)
            elif node:
                _show_node(client, snapshots, node)
            else:
                _show_all(snapshots, sort, output, _visible_rows() if watch else None)
            if not watch:
                return
            _sleep(interval)


def _read(client: WatcherClient, wanted: Sequence[str] | None, node: str | None) -> _Snapshots:
    """Return the metrics of each available window, by window; exit with an error if no window is available.

    Args:
        client: client of the watcher.
        wanted: windows to read; None for all windows of the watcher.
        node: node to read; None for all nodes.
    """
    snapshots: dict[str, WatcherMetrics] = {}
    missing: Exception = ValueError("--windows is empty: name windows, such as 15m,5m")
    try:
        windows = client.windows() if wanted is None else wanted
    except ClientError as error:
        fail(error, status=1)
    for window in windows:
        try:
            snapshots[window] = client.node_metrics(node, window) if node else client.metrics(window)
        except UnknownWindow as error:
            missing = missing if isinstance(missing, NoMetrics | UnknownNode) else error
        except (NoMetrics, UnknownNode) as error:
            missing = error
        except ClientError as error:
            fail(error, status=1)
    return snapshots or fail(missing, status=1 if isinstance(missing, NoMetrics | UnknownNode) else 2)


def _visible_rows() -> int | None:
    """Return the number of nodes that fit on the terminal; None if the output is not a terminal."""
    return max(1, shutil.get_terminal_size().lines - _FRAME_LINES) if sys.stdout.isatty() else None


def _show_all(snapshots: _Snapshots, sort: str, output: str, most: int | None = None) -> None:
    """Print the table of all nodes, or of the first ``most``."""
    now = time.time()
    newest = next(iter(snapshots.values()))
    names = sorted({name for metrics in snapshots.values() for name in metrics.data})
    by_name = _grades(snapshots)
    names.sort(key=lambda name: _sort_key(sort, snapshots, name, by_name[name], now))
    present = {
        metric.type for metrics in snapshots.values() for node in metrics.data.values() for metric in node.metrics
    }
    types = [*(type_.value for type_ in MetricType if type_ in present), *sorted(present - set(MetricType))]
    columns = _columns(types, list(snapshots), output)
    header = ["NODE", *(f"{type_.upper()} {window}" for type_, window in columns), "AGE", "COVERAGE"]
    header += ["GRADE", *(["SUSPECT", "POOL"] if output == "wide" else [])]
    rows = []
    for name in names[:most]:
        node = newest.data.get(name)
        loads = [_cell(snapshots[window].data.get(name), type_, output) for type_, window in columns]
        if output != "wide":
            first = next(iter(snapshots))
            loads = [
                _bar(node, type_) + cell if window == first and type_ in REQUIRED else cell
                for (type_, window), cell in zip(columns, loads, strict=True)
            ]
        coverage = "-" if node is None else coverage_text(node)
        rows.append([name, *loads, _age_text(snapshots, name, now), coverage, by_name[name]])
        if output == "wide":
            rows[-1] += [str(node.metadata.get(key, "-")) if node else "-" for key in ("suspect", "pool")]
    echo_table(header, rows, _color)
    if len(rows) < len(names):
        echo(f"... and {len(names) - len(rows)} more")
    of_windows = {grade for metrics in snapshots.values() for grade in grades(metrics).values()}
    others = ", ".join(sorted(of_windows - {"measured", "suspect"}))
    count = "1 node" if len(names) == 1 else f"{len(names)} nodes"
    echo()
    echo(f"{count} from {newest.source}{f', grade: {others}' if others else ''}")


def _columns(types: Sequence[str], windows: Sequence[str], output: str) -> list[tuple[str, str]]:
    """Return type and window of each column: all with ``-o wide``, else all windows of CPU and memory only."""
    if output == "wide":
        return [(type_, window) for type_ in types for window in windows]
    return [
        (type_, window)
        for type_ in types
        if type_ not in _WIDE_ONLY
        for window in (windows if type_ in REQUIRED else windows[:1])
    ]


def _bar(node: NodeMetrics | None, type_: str) -> str:
    """Return a load as a bar of ten cells and a blank; dots for an unknown load."""
    average = node.load(type_).avg if node else None
    eighths = round(max(0.0, min(100.0, average or 0.0)) / 100 * _BAR_CELLS * 8)
    whole, part = divmod(eighths, 8)
    return f"{'█' * whole + (_EIGHTHS[part] if part else ''):{_EMPTY}<{_BAR_CELLS}} "


def _show_node(client: WatcherClient, snapshots: _Snapshots, node: str) -> None:
    now = time.time()
    newest = next(iter(snapshots.values()))
    known = newest.data[node]
    kinds = list(dict.fromkeys((m.type, m.operator) for s in snapshots.values() for m in s.data[node].metrics))
    rows = []
    for type_, operator in kinds:
        cells = []
        for metrics in snapshots.values():
            values = [m.value for m in metrics.data[node].metrics if (m.type, m.operator) == (type_, operator)]
            cells.append(f"{values[-1]:.2f}%" if values else "-")
        rows.append([f"{type_} {operator}", *cells])
    echo(colorize(node, "bold"), f" from {newest.source}, {_age_text(snapshots, node, now)} old")
    echo()
    echo_table(["", *snapshots], rows)
    echo()
    for key, value in (*known.metadata.items(), *known.tags.items()):
        echo(f"{key}: {value}")
    _show_day(client, node)


def _show_day(client: WatcherClient, node: str) -> None:
    """Print a node's average loads over the last 24 hours as a bar chart, if the watcher keeps a history."""
    try:
        day = client.history(node, operator="AVG", since="24h", step="30m")
    except (ClientError, ValueError):  # an older watcher, load-watcher in Go, or no history
        return
    for series in day.series:
        line = "".join(
            " " if value != value else _BARS[min(len(_BARS) - 1, int(value * len(_BARS) / 100))]  # noqa: PLR0124  NaN
            for value in series.values[0, -_SPARKS:].tolist()
        )
        echo(f"{series.type + ' AVG':14}|{line}| 24 h, 0 to 100%")


def _cell(node: NodeMetrics | None, type_: str, output: str) -> str:
    load = node.load(type_) if node else None
    if load is None or load.avg is None:
        return "-"
    more = {"p90": load.p90, "p95": load.p95, "p99": load.p99, "max": load.max} if output == "wide" else {}
    quantiles = "".join(f" {name} {value:.1f}" for name, value in more.items() if value is not None)
    return f"{load.avg:.1f}%" + (f" ±{load.std:.1f}" if load.std is not None else "") + quantiles


def _grades(snapshots: _Snapshots) -> dict[str, str]:
    """Return the grade of each node: that of all windows or, if they differ, window and grade, as in 5m: last_good."""
    by_window = {window: grades(metrics) for window, metrics in snapshots.items()}
    result = {}
    for name in {name for of_nodes in by_window.values() for name in of_nodes}:
        of_node = {window: of_nodes.get(name, _MISSING) for window, of_nodes in by_window.items()}
        shared = {*of_node.values()}
        odd = (f"{window}: {grade}" for window, grade in of_node.items() if grade != "measured")
        result[name] = shared.pop() if len(shared) == 1 else ", ".join(odd)
    return result


def _age(snapshots: _Snapshots, name: str, now: float) -> float:
    """Return the age of a node's newest samples: seconds since the latest end of the windows that its values cover."""
    ends = [
        float(metrics.data[name].metadata.get("window_end", metrics.window.end))
        for metrics in snapshots.values()
        if name in metrics.data
    ]
    return max(0.0, now - max(ends, default=0.0))


def _age_text(snapshots: _Snapshots, name: str, now: float) -> str:
    seconds = _age(snapshots, name, now)
    return f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.0f}m"


def _coverage(node: NodeMetrics | None) -> float:
    return float(node.metadata.get("coverage", 1)) if node else 0.0


def _color(column: str, cell: str) -> str | None:
    if column == "GRADE":
        return {"measured": "green", _MISSING: "red"}.get(cell, "yellow")
    if column == "COVERAGE":
        return "yellow" if cell != "100%" else None
    percent = cell.partition("%")[0].rpartition(" ")[2]
    return load_color(float(percent)) if "%" in cell and percent.replace(".", "").isdecimal() else None


def _grade_rank(grade: str) -> int:
    """Return the rank of a grade for sorting; 0 for the worst grade, ``missing``."""
    worst_first = [_MISSING, "incomplete", "last_good", "shorter_window", "suspect", "unchecked", "measured"]
    ranks = (part.rpartition(": ")[2] for part in grade.split(", "))
    return min(worst_first.index(rank if rank in worst_first else "suspect") for rank in ranks)


def _sort_key(sort: str, snapshots: _Snapshots, name: str, grade: str, now: float) -> Any:
    """Return the sort key of a node for a value of ``--sort``."""
    node = next(iter(snapshots.values())).data.get(name)
    keys = {"name": name, "age": -_age(snapshots, name, now), "coverage": _coverage(node), "grade": _grade_rank(grade)}
    if sort in keys:
        return keys[sort]
    if sort == "load":
        averages = [node.load(type_).avg for type_ in REQUIRED] if node else []
        return (-max((value for value in averages if value is not None), default=-1.0), name)
    resource, _, deviation = sort.partition("-")
    load = node.load(MetricType[resource.upper()]) if node else Load()
    value = load.std if deviation else load.avg
    return 1.0 if value is None else -value  # the highest first
