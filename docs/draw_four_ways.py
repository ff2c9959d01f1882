"""Draw ``images/four-ways.svg``: four ways to balance load, from their scores.

python docs/draw_four_ways.py [directory]      by default images/ in this folder

Each panel is the plane of a node's mean CPU use and its deviation. Darker cells have a higher score for the pod. Gray
cells are impossible: use between 0 and 100 percent cannot vary that much. The dots are four nodes.
"""

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scoring import (
    Container,
    LoadVariationRiskBalancing,
    Node,
    NodeTable,
    Pod,
    ResourceList,
    ScorePlugin,
)
from scoring.arrays import Int64s
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

POD_PERCENT = 10
STEP = 2.5  # percent, the side of a cell


class Way(NamedTuple):
    """Way to balance, with a title, a subtitle, and the plugin that computes its score."""

    title: str
    subtitle: str
    plugin: ScorePlugin


class NodeLoad(NamedTuple):
    """Point in the plane: a node with the mean and the deviation of its CPU use, percent."""

    name: str
    mean: float
    deviation: float


WAYS = (
    Way("By the load", "LoadVariationRiskBalancing, balance: load", LoadVariationRiskBalancing(balance="load")),
    Way("By the variability", "the same, balance: variability", LoadVariationRiskBalancing(balance="variability")),
    Way(
        "By the relative variability", "the same, balance: relative-variability",
        LoadVariationRiskBalancing(balance="relative-variability"),
    ),
    Way("By the risk", "the same, balance: risk (the default)", LoadVariationRiskBalancing()),
)  # fmt: skip
NODES = (NodeLoad("jumpy", 14, 34), NodeLoad("lively", 25, 15), NodeLoad("even", 45, 4), NodeLoad("full", 82, 5))


def scores(plugin: ScorePlugin, loads: list[NodeLoad] | tuple[NodeLoad, ...]) -> Int64s:
    """Return the scores of a pod that requests ``POD_PERCENT`` of a node, on nodes of one core."""
    core = ResourceList({"cpu": 1000})
    nodes = NodeTable([Node(load.name, core, core) for load in loads])
    data = {
        load.name: NodeMetrics(
            (Metric("m", "CPU", "AVG", "15m", load.mean), Metric("m", "CPU", "STD", "15m", load.deviation))
        )
        for load in loads
    }
    pod = Pod(name="web", containers=(Container(ResourceList({"cpu": 10 * POD_PERCENT})),))
    return plugin.score(pod, nodes, WatcherMetrics(900, Window("15m", 0, 900), "drawn", data))


def plane() -> list[NodeLoad]:
    """Return a node for the center of each possible cell, whose variance is at most mean (100 - mean)."""
    return [
        NodeLoad(f"{mean}/{deviation}", float(mean), float(deviation))
        for deviation in np.arange(STEP / 2, 50, STEP)
        for mean in np.arange(STEP / 2, 100, STEP)
        if deviation**2 <= mean * (100 - mean)
    ]


WIDTH, HEIGHT, SIDE, TALL = 760, 630, 300, 190
_SHADES = ("#f7fbff", "#e3eef9", "#cfe1f2", "#b5d4e9", "#93c4de", "#6daed5", "#4b97c9", "#2f7ebc", "#1864aa", "#0a4a90")


def draw() -> str:
    """Return the picture as SVG."""
    cells = plane()
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            'aria-label="Four ways to balance load" font-family="system-ui, sans-serif" font-size="13" '
            'shape-rendering="geometricPrecision">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for number, way in enumerate(WAYS):
        left, top = 60 + number % 2 * 360, 56 + number // 2 * 300
        parts += _panel(way, cells, left, top)
    parts += _legend()
    return "\n".join([*parts, "</svg>", ""])


def _panel(way: Way, cells: list[NodeLoad], left: int, top: int) -> list[str]:
    def x_of(mean: float) -> float:
        return left + SIDE * mean / 100

    def y_of(deviation: float) -> float:
        return top + TALL * (1 - deviation / 50)

    parts = [
        f'<text x="{left}" y="{top - 26}" font-size="16" font-weight="600" fill="#222222">{escape(way.title)}</text>',
        f'<text x="{left}" y="{top - 8}" fill="#555555">{escape(way.subtitle)}</text>',
        f'<rect x="{left}" y="{top}" width="{SIDE}" height="{TALL}" fill="#f2f2f2"/>',
    ]
    shades = np.minimum(scores(way.plugin, cells) // 10, 9).tolist()
    start = 0
    for cell in range(1, len(cells) + 1):  # draw adjacent cells of the same shade as one bar
        if cell < len(cells) and (cells[cell].deviation, shades[cell]) == (cells[start].deviation, shades[start]):
            continue
        first, last = cells[start], cells[cell - 1]
        x, y = x_of(first.mean - STEP / 2), y_of(first.deviation + STEP / 2)
        wide, tall = x_of(last.mean + STEP / 2) - x, TALL * STEP / 50
        parts.append(f'<path d="M{x:.1f} {y:.1f}h{wide:.1f}v{tall:.2f}h-{wide:.1f}z" fill="{_SHADES[shades[start]]}"/>')
        start = cell
    parts += [
        f'<text x="{x_of(tick):.0f}" y="{top + TALL + 16}" text-anchor="middle" fill="#555555">{tick}</text>'
        for tick in (0, 50, 100)
    ]
    parts += [
        f'<text x="{left - 8}" y="{y_of(tick) + 4:.0f}" text-anchor="end" fill="#555555">{tick}</text>'
        for tick in (0, 25, 50)
    ]
    middle = left + SIDE / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{top + TALL + 32}" text-anchor="middle" fill="#222222">mean CPU use, percent</text>'
    )
    parts.append(
        f'<text transform="translate({left - 34} {top + TALL / 2:.0f}) rotate(-90)" text-anchor="middle" '
        'fill="#222222">deviation</text>'
    )
    values = scores(way.plugin, NODES).tolist()
    for load, value in zip(NODES, values, strict=True):
        best = value == max(values)
        x, y = x_of(load.mean), y_of(load.deviation)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{8 if best else 5}" fill="{"#d55e00" if best else "#ffffff"}" '
            'stroke="#222222" stroke-width="1.5"/>'
        )
        parts.append(
            f'<text x="{x + 12:.1f}" y="{y + 4:.1f}" fill="#111111" stroke="#ffffff" stroke-width="3" '
            f'paint-order="stroke" font-weight="{600 if best else 400}">{load.name} {value}</text>'
        )
    return parts


def _legend() -> list[str]:
    parts = [f'<text x="60" y="{HEIGHT - 14}" fill="#222222">score 0</text>']
    for number, shade in enumerate(_SHADES):
        parts.append(f'<rect x="{116 + 22 * number}" y="{HEIGHT - 27}" width="22" height="16" fill="{shade}"/>')
    parts.append(f'<text x="344" y="{HEIGHT - 14}" fill="#222222">100</text>')
    parts.append(f'<circle cx="400" cy="{HEIGHT - 19}" r="8" fill="#d55e00" stroke="#222222" stroke-width="1.5"/>')
    parts.append(f'<text x="416" y="{HEIGHT - 14}" fill="#222222">the chosen node; gray: impossible loads</text>')
    return parts


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    (directory / "four-ways.svg").write_text(draw())
