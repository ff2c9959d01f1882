"""Draw the pictures of the scores, from computed scores.

python docs/scores/draw.py [directory]      writes one SVG per plugin, by default into this folder
"""

import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scoring import (
    CongestionCost,
    Container,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    Node,
    NodeTable,
    Peaks,
    Pod,
    PowerModel,
    Profile,
    ResourceList,
    ScorePlugin,
    TargetLoadPacking,
)
from scoring.load.measured_resource import CPU_LOAD
from scoring.plugins.congestion import CONGESTED_CPU_AND_MEMORY
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

COLORS = ("#0072b2", "#d55e00", "#009e73", "#a0457f")
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 200, 44, 52
CPU = 1000  # millicores of each node: one percent is 10

Points = list[tuple[float, float]]


class Line(NamedTuple):
    """Line of a chart, with a label and points: x in percent, y a score."""

    label: str
    points: Points


def chart(title: str, x_label: str, lines: Sequence[Line]) -> str:
    """Return an SVG of lines with axes from 0 to 100, each labeled at its right end."""

    def x_of(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / 100

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / 100

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="13">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="26" font-size="16" font-weight="600" fill="#222222">{escape(title)}</text>',
    ]
    for tick in range(0, 101, 20):
        x, y = x_of(tick), y_of(tick)
        parts += [
            f'<path d="M{LEFT} {y:.1f}H{x_of(100):.1f}M{x:.1f} {TOP}V{y_of(0):.1f}" stroke="#e4e4e4" fill="none"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">{tick}</text>',
            f'<text x="{x:.1f}" y="{y_of(0) + 18:.1f}" text-anchor="middle" fill="#555555">{tick}</text>',
        ]
    middle = (LEFT + x_of(100)) / 2
    parts += [
        f'<text x="{middle:.1f}" y="{HEIGHT - 12}" text-anchor="middle" fill="#222222">{escape(x_label)}</text>',
        f'<text transform="translate(18 {y_of(50):.1f}) rotate(-90)" text-anchor="middle" fill="#222222">score</text>',
    ]
    ends = spread([y_of(line.points[-1][1]) for line in lines], 18)
    for line, color, end in zip(lines, COLORS, ends, strict=False):
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in line.points)
        last = line.points[-1]
        parts += [
            f'<path d="M{path}" stroke="{color}" stroke-width="2.5" stroke-linejoin="round" fill="none"/>',
            (
                f'<path d="M{x_of(last[0]):.1f} {y_of(last[1]):.1f}L{x_of(100) + 12:.1f} {end:.1f}" stroke="{color}" '
                'stroke-dasharray="2 2" fill="none"/>'
            ),
            f'<text x="{x_of(100) + 16:.1f}" y="{end + 4:.1f}" fill="{color}">{escape(line.label)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move heights apart so that labels do not overlap, and keep their order."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for above, below in itertools.pairwise(order):
        moved[below] = max(moved[below], moved[above] + gap)
    excess = max(0.0, max(moved) - (HEIGHT - BOTTOM))
    return [height - excess for height in moved]


def table(count: int, pods: Iterable[Pod] = ()) -> NodeTable:
    """Return nodes of one core."""
    amounts = ResourceList({"cpu": CPU})
    return NodeTable([Node(f"n{i}", amounts, amounts) for i in range(count)], pods)


def loads(averages: Sequence[float], deviation: float = 0.0) -> WatcherMetrics:
    """Return a snapshot of CPU loads in percent."""
    data = {
        f"n{i}": NodeMetrics((Metric("m", "CPU", "AVG", "15m", average), Metric("m", "CPU", "STD", "15m", deviation)))
        for i, average in enumerate(averages)
    }
    return WatcherMetrics(900, Window("15m", 0, 900), "drawn", data)


def pod(percent: float, limit: float | None = None, **fields: str) -> Pod:
    """Return a pod with a request, and optionally a limit, in percent of a node."""
    limits = ResourceList({} if limit is None else {"cpu": int(limit * CPU / 100)})
    return Pod(containers=(Container(ResourceList({"cpu": int(percent * CPU / 100)}), limits),), **fields)


def over_load(plugin: ScorePlugin, percent: float, deviation: float = 0.0, *, steps: int = 201) -> Points:
    """Return a pod's score on nodes of every load."""
    averages = [float(x) for x in np.linspace(0, 100, steps)]
    scores = Profile.of(plugin).score(pod(percent), table(steps), loads(averages, deviation)).total
    return list(zip(averages, map(float, scores), strict=True))


def target_load_packing() -> str:
    """Draw the score over predicted use for three targets."""
    nothing = {"default_requests": 0}
    lines = [Line(f"target {t}%", over_load(TargetLoadPacking(t, **nothing), 0)) for t in (40, 60, 80)]
    return chart("TargetLoadPacking", "CPU use with the pod, percent of capacity", lines)


def load_variation_risk_balancing() -> str:
    """Draw the score over load for several deviations, and with a higher sensitivity."""
    plain, sensitive = LoadVariationRiskBalancing(), LoadVariationRiskBalancing(safe_variance_sensitivity=2)
    lines = [
        Line("deviation 0", over_load(plain, 0)),
        Line("deviation 10%", over_load(plain, 0, 10.0)),
        Line("deviation 20%", over_load(plain, 0, 20.0)),
        Line("10%, sensitivity 2", over_load(sensitive, 0, 10.0)),
    ]
    return chart("LoadVariationRiskBalancing", "average CPU use with the pod, percent of allocatable", lines)


def low_risk_over_commitment() -> str:
    """Draw the score over load for several limits; half of the node is requested."""
    plugin = LowRiskOverCommitment(smoothing_window_size=1, resources=(CPU_LOAD,))
    averages = [float(x) for x in np.linspace(0, 100, 201)]
    lines = []
    for limit in (50, 120, 250):
        running = [pod(50, limit, uid=f"u{i}", node_name=f"n{i}") for i in range(len(averages))]
        scores = plugin.score(pod(0.1, 0.1), table(len(averages), running), loads(averages, 10.0))
        lines.append(Line(f"limits {limit}% of node", list(zip(averages, map(float, scores), strict=True))))
    return chart("LowRiskOverCommitment, half of each node requested", "average CPU use, percent; deviation 10%", lines)


def peaks() -> str:
    """Draw the normalized score of a pod of ten percent among nodes of every load, for two shapes of power."""
    lines = []
    for label, constants in (
        ("power flattens (k2 < 0)", PowerModel(471.7, -91.5, -0.0719)),
        ("power steepens (k2 > 0)", PowerModel(100, 20, 0.02)),
    ):
        plugin = Peaks({f"n{i}": constants for i in range(181)}, missing="worst")
        averages = [float(x) for x in np.linspace(0, 90, 181)]
        scores = Profile.of(plugin).score(pod(10), table(181), loads(averages)).total
        lines.append(Line(label, list(zip(averages, map(float, scores), strict=True))))
    return chart("Peaks, a pod of 10% among nodes of every load", "CPU use before the pod, percent of capacity", lines)


def congestion_cost() -> str:
    """Draw the rise in cost that a pod of ten percent causes on nodes of every load, and the resulting score."""
    cpu = CONGESTED_CPU_AND_MEMORY[0]
    averages = [float(x) for x in np.linspace(0, 100, 201)]
    lines = []
    for power in (4, 8, 16):
        plugin = CongestionCost((replace(cpu, power=power),), stranding=1)
        rise = plugin.prepare(table(len(averages)), loads(averages)).terms(pod(10))["rise"][0]
        points = [(x, 100 * float(y)) for x, y in zip(averages, rise, strict=True) if y <= 1]
        lines.append(Line(f"100 x rise, power {power}", points))
    lines.append(Line("score, power 8", over_load(CongestionCost((cpu,)), 10)))
    return chart("CongestionCost, a pod of 10%", "CPU use before the pod, percent of capacity", lines)


PICTURES = {
    "congestion-cost": congestion_cost,
    "target-load-packing": target_load_packing,
    "load-variation-risk-balancing": load_variation_risk_balancing,
    "low-risk-over-commitment": low_risk_over_commitment,
    "peaks": peaks,
}

if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, draw in PICTURES.items():
        (directory / f"{name}.svg").write_text(draw())
