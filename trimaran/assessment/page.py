"""Assessment as one self-contained HTML page."""

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from trimaran.assessment import text
from trimaran.assessment.model import Assessment


def write_page(assessment: Assessment, path: Path, made_with: str) -> None:
    """Write the page.

    Raises:
        OSError: the file cannot be written.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"heat": _heat_color, "title_case": _title_case}
    template = environment.from_string(files("trimaran.assessment").joinpath("page.html").read_text(encoding="utf-8"))
    page = template.render(
        assessment=assessment, text=text, made_with=made_with, has_prices=assessment.cluster.monthly_cost is not None
    )
    path.write_text(page, encoding="utf-8")


def _heat_color(percent: float | None) -> str:
    """Return the color of a load: from white to red at 100 percent; grey where unknown."""
    if percent is None:
        return "#bbb"
    lightness = 100 - 0.55 * min(percent, 100)
    return f"hsl(10 {min(percent, 100):.0f}% {lightness:.0f}%)"


def _title_case(column: str) -> str:
    """Return the name of a column with one capital letter, apart from names of units."""
    return column.capitalize().replace("Cpu", "CPU").replace("cpu", "CPU").replace("Gib", "GiB")
