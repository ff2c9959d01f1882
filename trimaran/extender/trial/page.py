"""Report of a field trial as a self-contained HTML page."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

WIDTH, HEIGHT = 960, 240
_MARGIN = 30


def trial_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report.

    Args:
        document: the report, as :func:`trimaran.extender.trial.report.trial_document` returns it.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["time"] = lambda moment: f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M}"
    template = environment.from_string(files("trimaran.extender.trial").joinpath("page.html").read_text("utf-8"))
    return template.render(
        trial=document, bars=_bars(document), width=WIDTH, height=HEIGHT, margin=_MARGIN, top=_highest(document)
    )


def _bars(document: Mapping[str, Any]) -> list[dict[str, float | bool]]:
    """Return the bar of each block in the figure of the primary outcome."""
    begin, end, highest = document["begin"], document["end"], _highest(document)
    across, upright = (WIDTH - 2 * _MARGIN) / (end - begin), (HEIGHT - 2 * _MARGIN) / (highest or 1)
    bars = []
    for block in document["blocks"]:
        value = block["outcomes"].get(document["primary"])
        if value is not None:
            width = max(across * document["settings"]["block_seconds"] - 1, 0.5)
            bars.append({
                "x": round(_MARGIN + across * (block["start"] - begin), 1), "width": round(width, 1),
                "y": round(HEIGHT - _MARGIN - upright * value, 1), "height": round(upright * value, 1),
                "active": block["active"],
            })  # fmt: skip
    return bars


def _highest(document: Mapping[str, Any]) -> float:
    return max((block["outcomes"].get(document["primary"], 0.0) for block in document["blocks"]), default=0.0)
