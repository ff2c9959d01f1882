"""Line charts over a day as SVG images: a browser shows them without plotly, whose script takes a second to load."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

import numpy as np
from dash import html
from numpy.typing import NDArray

_WIDTH, _HEIGHT = 620, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 24, 22  # margins for the axes' labels and the legend
_HOUR = 3600
_TICK_HOURS = 4
_MOST_TICKS = 5
_GRAY = "#7a808a"  # readable on light and dark ground
_GRID = "#80808040"


@dataclass(frozen=True, eq=False)
class Line:
    """Line of a chart.

    Attributes:
        name: name in the legend.
        color: CSS color.
        is_dashed: whether the line is dashed, to tell lines apart without their color.
        values: value at each time, shape (times,); NaN where unknown, which leaves a gap.
    """

    name: str
    color: str
    is_dashed: bool
    values: NDArray[np.float64]


def line_chart(times: NDArray[np.float64], lines: Sequence[Line], text: str, id_: str, top: float = 0.0) -> html.Img:
    """Return a chart with a time axis in UTC and a vertical axis from 0.

    Args:
        times: Unix seconds, ascending, shape (times,).
        lines: lines to draw; those without any value are left out.
        text: description of the values, also for screen readers.
        id_: identifier of the element.
        top: upper end of the vertical axis; 0 chooses a round value above all values.
    """
    known = [line for line in lines if np.isfinite(line.values).any()]
    ticks = _ticks(top or max((float(np.nanmax(line.values)) for line in known), default=1.0))
    end = top or ticks[-1]
    begin, span = float(times[0]), max(1.0, float(times[-1] - times[0]))
    x = _LEFT + (times - begin) * ((_WIDTH - _LEFT - _RIGHT) / span)
    bottom, height = _HEIGHT - _BOTTOM, _HEIGHT - _TOP - _BOTTOM
    parts = [part for tick in ticks if tick <= end for part in _level(tick, bottom - height * tick / end)]
    parts += _hours(begin, span, bottom)
    left = float(_LEFT)
    for line in known:
        dash = ' stroke-dasharray="6 4"' if line.is_dashed else ""
        style = f'fill="none" stroke="{line.color}" stroke-width="2"{dash}'
        y = bottom - height * np.clip(line.values / end, 0, 1)
        parts += [f'<polyline {style} points="{points}"/>' for points in _points(x, y)]
        parts.append(f'<path {style} d="M{left:.0f} 10h22"/>{_label(left + 27, 14, line.name, "start")}')
        left += 45 + 7 * len(line.name)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="system-ui,sans-serif" font-size="12" fill="{_GRAY}">{"".join(parts)}</svg>'
    )
    return html.Img(src=f"data:image/svg+xml,{quote(svg)}", alt=text, id=id_, className="lines")


def _ticks(highest: float) -> list[float]:
    """Return round values from 0 to the first that is not below the highest value."""
    if highest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** np.floor(np.log10(highest / _MOST_TICKS))
    step = float(next(power * factor for factor in (1, 2, 5, 10) if highest / (power * factor) <= _MOST_TICKS))
    return [step * number for number in range(int(np.ceil(highest / step - 1e-9)) + 1)]


def _level(value: float, y: float) -> list[str]:
    line = f'<path stroke="{_GRID}" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
    return [line, _label(_LEFT - 6, y + 4, f"{value:,g}", "end")]


def _hours(begin: float, span: float, bottom: float) -> list[str]:
    """Return the SVG elements of vertical lines and labels at whole hours UTC."""
    width = _WIDTH - _LEFT - _RIGHT
    every = _HOUR * (_TICK_HOURS if span > 6 * _HOUR else 1)
    first = -(-int(begin) // every) * every
    parts: list[Any] = []
    for at in range(first, int(begin + span) + 1, every):
        x = _LEFT + (at - begin) / span * width
        parts.append(f'<path stroke="{_GRID}" d="M{x:.1f} {_TOP}V{bottom}"/>')
        anchor = "end" if x > _WIDTH - 40 else "middle"
        parts.append(_label(x, bottom + 16, f"{at // _HOUR % 24:02}:00", anchor))
    return parts


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[str]:
    """Return the points of each piece of a line; unknown values separate the pieces."""
    known = np.flatnonzero(np.isfinite(y))
    pieces = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    return [
        " ".join(f"{left:.1f},{top:.1f}" for left, top in zip(x[piece].tolist(), y[piece].tolist(), strict=True))
        for piece in pieces
        if piece.size
    ]
