"""``trimaran compare``: whether two watchers say the same, such as a load-watcher in Go and ours before a migration."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from client.connecting import WatcherCredentials
from client.errors import ClientError
from runtime.terminal import duration_option, echo_document, echo_table, output_option
from trimaran.cli.options import access_options, connected, fail
from watcher.model import AVERAGES, WatcherMetrics

_MOST_NAMED = 5


@dataclass
class Differences:
    """How far one kind of value is apart, over all rounds.

    Attributes:
        nodes: how many nodes have it on both sides, in the last round.
        mean: the mean distance, points of percent.
        largest: the largest, and of which node.
        rank: Spearman's correlation of the nodes' order, 1 when it is the same; None with fewer than two nodes.
    """

    nodes: int
    mean: float
    largest: float
    node: str
    rank: float | None


@click.command()
@click.argument("theirs", metavar="GO")
@click.argument("ours", metavar="OURS")
@duration_option("--for", "span", default="0", show_default=False, help="For how long, such as 1h. [default: once]")
@duration_option("--interval", default="1m", help="Time between rounds.")
@click.option("--tolerance", default=5.0, show_default=True, help="Points of percent that a mean may be apart.")
@click.option("--window", help="Exactly this window, where both keep it. [default: each one's choice]")
@output_option("text", "json", "yaml")
@access_options
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
    """Compare two watchers: their values, the order of the nodes by them, and which nodes only one knows.

    GO and OURS are addresses; either may be a load-watcher in Go. Tokens and certificates go to OURS alone.

    \b
    Example: trimaran compare http://load-watcher:2020 http://trimaran:2020 --for 1h

    Ends with status 0 when they agree, with 1 when they do not, with 2 when one of them cannot be asked.
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
    found = {" ".join(kind): each for kind in kinds if (each := _differences(rounds, kind)) is not None}
    only_theirs, only_ours = (
        sorted(theirs.data.keys() - ours.data.keys()),
        sorted(ours.data.keys() - theirs.data.keys()),
    )
    apart = [name for name, each in found.items() if each.mean > tolerance]
    return {
        "rounds": len(rounds),
        "nodes": len(theirs.data.keys() & ours.data.keys()),
        "only_theirs": only_theirs,
        "only_ours": only_ours,
        "values": {name: vars(each) for name, each in found.items()},
        "apart": apart,
        "agree": bool(found) and not (only_theirs or apart),
    }


def _values(metrics: WatcherMetrics) -> dict[tuple[str, str], dict[str, float]]:
    """Return values by (type, operator) and node; averages and latest values are one kind, as the plugins take them."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for name, node in metrics.data.items():
        for metric in node.metrics:
            operator = "AVG" if metric.operator in AVERAGES else metric.operator
            found.setdefault((metric.type, operator), {})[name] = metric.value
    return found


def _differences(rounds: list[tuple[WatcherMetrics, WatcherMetrics]], kind: tuple[str, str]) -> Differences | None:
    """Return how far a kind of value is apart; None where no node has it on both sides."""
    distances, largest, nodes, rank = [], (-1.0, ""), 0, None
    for theirs, ours in _pairs(rounds, kind):
        names = sorted(theirs.keys() & ours.keys())
        nodes = len(names)
        if not names:
            continue
        left, right = (np.array([side[name] for name in names]) for side in (theirs, ours))
        apart = np.abs(left - right)
        distances.append(float(apart.mean()))
        largest = max(largest, (float(apart.max()), names[int(apart.argmax())]), key=lambda each: each[0])
        rank = _rank_correlation(left, right)
    if not distances:
        return None
    mean = sum(distances) / len(distances)
    return Differences(nodes, round(mean, 3), round(largest[0], 3), largest[1], rank)


def _pairs(
    rounds: list[tuple[WatcherMetrics, WatcherMetrics]], kind: tuple[str, str]
) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    for theirs, ours in rounds:
        yield _values(theirs).get(kind, {}), _values(ours).get(kind, {})


def _rank_correlation(left: "np.ndarray[Any, np.dtype[np.float64]]", right: Any) -> float | None:
    """Return Spearman's correlation; equals share their mean rank."""
    ranks = []
    for values in (left, right):
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[inverse])
    spread = ranks[0].std() * ranks[1].std()
    if len(left) < 2 or not spread:
        return None
    covariance = float(((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean())
    return round(covariance / float(spread), 4)


def _show(report: Mapping[str, Any]) -> None:
    rows = [
        [
            name, str(each["nodes"]), f"{each['mean']:.2f}", f"{each['largest']:.2f} ({each['node']})",
            "-" if each["rank"] is None else f"{each['rank']:.3f}",
        ]
        for name, each in report["values"].items()
    ]  # fmt: skip
    echo_table(["VALUE", "NODES", "MEAN APART", "MOST APART", "RANKS"], rows)
    count = "once" if report["rounds"] == 1 else f"{report['rounds']} times"
    click.echo(f"\n{report['nodes']} nodes of both, asked {count}; apart in points of percent")
    for side, names in (("GO", report["only_theirs"]), ("OURS", report["only_ours"])):
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            click.echo(f"only {side} knows {', '.join(names[:_MOST_NAMED])}{more}")
    if report["apart"]:
        click.echo(f"too far apart: {', '.join(report['apart'])}")
    if not report["values"]:
        click.echo("no node has the same kind of value on both sides: are the nodes' names mapped alike?")
    click.echo("they agree" if report["agree"] else "they do not agree")
