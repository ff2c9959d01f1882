"""``trimaran compare``: comparison of two watchers, such as load-watcher in Go and trimaran's before a migration."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from client.connecting import WatcherCredentials
from client.errors import ClientError
from runtime.terminal import duration_option, echo, echo_document, echo_table, output_option
from scoring.arrays import Float64s
from trimaran.cli.options import connected, credential_options, fail, option
from watcher.model import AVERAGES, WatcherMetrics

_MAX_NAMED = 5


@dataclass
class Differences:
    """Differences between two watchers in values of one type and operator, such as the average CPU, over all rounds.

    Attributes:
        nodes: number of nodes for which both watchers have the value, in the last round.
        mean: mean absolute difference, percentage points.
        largest: largest absolute difference, percentage points.
        node: node with the largest difference.
        rank: Spearman's rank correlation of the nodes in the last round, 1 for the same order; None if all nodes of one
            watcher have the same value.
    """

    nodes: int
    mean: float
    largest: float
    node: str
    rank: float | None


@click.command()
@click.argument("theirs", metavar="GO")
@click.argument("ours", metavar="OURS")
@duration_option(
    "--for",
    "span",
    default="0",
    show_default=False,
    help="Repeat the comparison for this long, such as 1h. [default: once]",
)
@duration_option("--interval", default="1m", help="Time between two rounds.")
@option("--tolerance", default=5.0, help="Largest accepted mean difference, in percentage points.")
@click.option("--window", help="Window to compare. [default: the default window of each watcher]")
@output_option("text", "json", "yaml")
@credential_options("watcher OURS")
def compare(
    theirs: str,
    ours: str,
    span: float,
    interval: float,
    tolerance: float,
    window: str | None,
    output: str,
    access: WatcherCredentials,
) -> None:
    """Compare two watchers: their values, the order of the nodes, and nodes that only one of them has.

    GO and OURS are addresses; either may be load-watcher in Go. Tokens and certificates are sent to OURS only.

    \b
    Example: trimaran compare http://load-watcher:2020 http://trimaran:2020 --for 1h

    Exit status: 0 if the watchers agree, 1 if they do not, 2 if one of them cannot be read.
    """
    rounds: list[tuple[WatcherMetrics, WatcherMetrics]] = []
    with connected(theirs) as go, connected(ours, access) as us:
        end = time.monotonic() + span
        while True:
            try:
                rounds.append((go.metrics(window), us.metrics(window)))
            except ClientError as error:
                fail(error, status=2)
            if time.monotonic() + interval > end:
                break
            time.sleep(interval)
    report = _report(rounds, tolerance)
    if output == "text":
        _show(report)
    else:
        echo_document(report, output)
    raise SystemExit(0 if report["agree"] else 1)


def _report(rounds: list[tuple[WatcherMetrics, WatcherMetrics]], tolerance: float) -> dict[str, Any]:
    theirs, ours = rounds[-1]
    kinds = sorted({kind for pair in rounds for kind in _values(pair[0]).keys() & _values(pair[1]).keys()})
    values = {" ".join(kind): each for kind in kinds if (each := _differences(rounds, kind)) is not None}
    only_theirs = sorted(theirs.data.keys() - ours.data.keys())
    only_ours = sorted(ours.data.keys() - theirs.data.keys())
    apart = [name for name, differences in values.items() if differences.mean > tolerance]
    return {
        "rounds": len(rounds),
        "nodes": len(theirs.data.keys() & ours.data.keys()),
        "only_theirs": only_theirs,
        "only_ours": only_ours,
        "values": {name: vars(differences) for name, differences in values.items()},
        "apart": apart,
        "agree": bool(values) and not (only_theirs or apart),
    }


def _values(metrics: WatcherMetrics) -> dict[tuple[str, str], dict[str, float]]:
    """Return the values by (type, operator) and node name; latest values count as averages, as in the score plugins."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    for name, node in metrics.data.items():
        for metric in node.metrics:
            operator = "AVG" if metric.operator in AVERAGES else metric.operator
            values.setdefault((metric.type, operator), {})[name] = metric.value
    return values


def _differences(rounds: list[tuple[WatcherMetrics, WatcherMetrics]], kind: tuple[str, str]) -> Differences | None:
    """Return the differences in values of a type and operator; None if no node has such a value in both watchers."""
    means, largest, nodes, rank = [], (-1.0, ""), 0, None
    for pair in rounds:
        theirs, ours = (_values(metrics).get(kind, {}) for metrics in pair)
        names = sorted(theirs.keys() & ours.keys())
        nodes = len(names)
        if not names:
            continue
        left, right = (np.array([side[name] for name in names]) for side in (theirs, ours))
        differences = np.abs(left - right)
        means.append(float(differences.mean()))
        largest = max(largest, (float(differences.max()), names[int(differences.argmax())]), key=lambda pair: pair[0])
        rank = _rank_correlation(left, right)
    if not means:
        return None
    mean = sum(means) / len(means)
    return Differences(nodes, round(mean, 3), round(largest[0], 3), largest[1], rank)


def _rank_correlation(left: Float64s, right: Float64s) -> float | None:
    """Return Spearman's rank correlation; ties share their mean rank. None if all values of one watcher are equal."""
    from scipy.stats import rankdata  # slow to import

    ranks = rankdata([left, right], axis=1)
    return round(float(np.corrcoef(ranks)[0, 1]), 4) if np.ptp(ranks, axis=1).all() else None


def _show(report: Mapping[str, Any]) -> None:
    rows = [
        [
            name, str(each["nodes"]), f"{each['mean']:.2f}", f"{each['largest']:.2f} ({each['node']})",
            "-" if each["rank"] is None else f"{each['rank']:.3f}",
        ]
        for name, each in report["values"].items()
    ]  # fmt: skip
    echo_table(["VALUE", "NODES", "MEAN DIFF", "MAX DIFF", "RANK CORR"], rows)
    count = "once" if report["rounds"] == 1 else f"{report['rounds']} times"
    echo()
    echo(f"{report['nodes']} nodes on both sides, compared {count}; differences in percentage points")
    for side, names in (("GO", report["only_theirs"]), ("OURS", report["only_ours"])):
        if names:
            more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            echo(f"only {side} has {', '.join(names[:_MAX_NAMED])}{more}")
    if report["apart"]:
        echo(f"differences above --tolerance: {', '.join(report['apart'])}")
    if not report["values"]:
        echo("no node has the same kind of value on both sides: do both watchers use the same node names?")
    echo("the watchers agree" if report["agree"] else "the watchers do not agree")
