"""Figures of a report, drawn with matplotlib and returned as data URLs.

matplotlib is imported only when a report is written.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from trimaran.simulator.heat_map import HeatMap
from trimaran.simulator.report.statistics import Interval, pareto

_BLUE, _GRAY, _RED = "#0072b2", "#777777", "#d55e00"
_COLUMNS = 4
_styled = mpl.rc_context(
    {
        "svg.hashsalt": "trimaran",  # makes the output reproducible
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
    }
)


@_styled
def forest(groups: Mapping[str, Mapping[str, Interval]], label: str) -> str:
    """Draw means with intervals: a panel per group, a row per name, and a line at 0."""
    names = list(dict.fromkeys(name for rows in groups.values() for name in rows))
    figure = _figure(2.2 + 2.4 * len(groups), 0.8 + 0.26 * len(names))
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for panel, (title, rows) in zip(panels, groups.items(), strict=True):
        for place, name in enumerate(names):
            if name in rows:
                interval = rows[name]
                color = _GRAY
                if interval.low is not None and interval.high is not None:
                    color = _RED if interval.high < 0 else _BLUE if interval.low > 0 else _GRAY
                    panel.plot([interval.low, interval.high], [place, place], color=color, linewidth=2)
                panel.plot(interval.mean, place, "o", color=color, markersize=4)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set(title=title, xlabel=label, yticks=range(len(names)), yticklabels=names)
    panels[0].invert_yaxis()
    return _svg(figure)


@_styled
def curves(lines: Mapping[str, Mapping[float, Interval]], labels: tuple[str, str]) -> str:
    """Draw a panel per name: means with their intervals along x, and a line at 0."""
    figure, panels = _panels(list(lines), 2.4, 1.9)
    for (name, points), panel in zip(lines.items(), panels, strict=True):
        x = sorted(points)
        means, lows, highs = (
            np.array([getattr(points[at], part) for at in x], np.float64) for part in ("mean", "low", "high")
        )  # NaN, for no interval, is not drawn
        panel.fill_between(x, lows, highs, color=_BLUE, alpha=0.2, linewidth=0)
        panel.plot(x, means, "o-", color=_BLUE, markersize=3)
        panel.axhline(0, color="black", linewidth=0.8)
        panel.set_title(fill(name, 26))
    _label(figure, labels)
    return _svg(figure)


@_styled
def dots(clouds: Mapping[str, Sequence[tuple[float, float]]], labels: tuple[str, str]) -> str:
    """Draw a panel per name: a dot per point, and a line at 0."""
    figure, panels = _panels(list(clouds), 2.4, 1.9)
    for (name, points), panel in zip(clouds.items(), panels, strict=True):
        for x, y in points:
            panel.plot(x, y, "o", color=_RED if y < 0 else _BLUE, markersize=4)
        panel.axhline(0, color="black", linewidth=0.8)
        panel.set_title(fill(name, 26))
    _label(figure, labels)
    return _svg(figure)


@_styled
def trade_off(groups: Mapping[str, Mapping[str, tuple[float, float]]], label: str) -> str:
    """Draw points, a panel per group, and join the Pareto front: left and up is better.

    Points are numbered, because their names would overlap.
    """
    names = list(dict.fromkeys(name for points in groups.values() for name in points))
    figure = _figure(3.0 * len(groups) + 2.5, max(3.6, 0.22 * len(names)))
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for panel, (title, points) in zip(panels, groups.items(), strict=True):
        front = pareto(points)
        panel.step(*zip(*(points[name] for name in front), strict=True), color=_BLUE, alpha=0.5, where="post")
        for name, (x, y) in points.items():
            number = f"{names.index(name) + 1}"
            panel.plot(x, y, "o", color=_BLUE if name in front else _GRAY, markersize=5)
            panel.annotate(number, (x, y), xytext=(3, 3), textcoords="offset points", fontsize=8, in_layout=False)
        panel.set(xlabel=title)
    panels[0].set_ylabel(label)
    numbered = [Line2D([], [], linestyle="none", label=f"{place} {name}") for place, name in enumerate(names, 1)]
    figure.legend(handles=numbered, loc="outside right upper", frameon=False, handlelength=0, fontsize=8)
    return _svg(figure)


@_styled
def heat_maps(maps: Mapping[str, HeatMap], hours: float) -> str:
    """Draw a heat map per name: a row per node, hottest first, time to the right, and CPU use as color."""
    figure, panels = _panels(list(maps), 3.0, 1.8)
    for (name, rows), panel in zip(maps.items(), panels, strict=True):
        image = panel.imshow(
            np.array(rows, np.float64), aspect="auto", cmap="inferno", vmin=0, vmax=100, interpolation="nearest",
            extent=(0, hours, len(rows), 0),
        )  # fmt: skip
        panel.grid(visible=False)
        panel.set_title(fill(name, 26))
    figure.colorbar(image, ax=panels, label="CPU use, % of capacity", extend="max", aspect=40)
    _label(figure, ("hours after the warm-up", "nodes"))
    return _png(figure)


def _panels(names: Sequence[str], width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel per name, all with the same axes."""
    columns = min(len(names), _COLUMNS)
    rows = -(-len(names) // columns)
    figure = _figure(max(width * columns, 4.0), height * rows + 0.5)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for panel in panels[len(names) :]:
        panel.remove()
    return figure, panels[: len(names)]


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _label(figure: Figure, labels: tuple[str, str]) -> None:
    figure.supxlabel(labels[0], fontsize=9)
    figure.supylabel(labels[1], fontsize=9)


def _svg(figure: Figure) -> str:
    return _data(figure, "svg", "image/svg+xml", metadata={"Date": None})


def _png(figure: Figure) -> str:
    return _data(figure, "png", "image/png", dpi=130)


def _data(figure: Figure, form: str, media: str, **options: Any) -> str:
    """Return a figure as a data URL."""
    file = io.BytesIO()
    figure.savefig(file, format=form, **options)
    return f"data:{media};base64,{base64.b64encode(file.getvalue()).decode()}"
