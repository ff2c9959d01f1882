"""Report of comparisons: a self-contained HTML page, and the same content as a JSON document."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.measures import HOT_PERCENTS
from trimaran.simulator.policies.catalogue import DEFAULT
from trimaran.simulator.report import figures, statistics
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.statistics import GAP_MEASURES, GOALS, Interval
from trimaran.simulator.report.text import number

SAVED = "nodes_saved_percent"


@dataclass(frozen=True)
class PageFigure:
    """Figure of the page.

    Attributes:
        title: the heading.
        image: the image as a data URL.
        text: caption, also the image's alternative text.
    """

    title: str
    image: str
    text: str


def write_report(sections: Sequence[ReportSection], path: Path, made_with: str) -> None:
    """Write the page, and its content as JSON to the same path with suffix ``.json``.

    Args:
        sections: the comparisons, with at least one replay.
        path: the HTML file.
        made_with: program, version and command, shown on the page.

    Raises:
        OSError: a file cannot be written.
    """
    path.write_text(page(sections, made_with), encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(document(sections), indent=1) + "\n", encoding="utf-8")


def document(sections: Sequence[ReportSection]) -> list[dict[str, Any]]:
    """Return the content of the page as a JSON document, with an object per section."""
    return [
        {
            "overcommit": section.overcommit,
            "worlds": section.comparison,
            "means": _as_dicts(statistics.by_policy(section.comparison)),
            "gap_closed_percent": {goal: _as_dicts(rows) for goal, rows in statistics.gaps(section.comparison).items()},
            "lost_cases": [asdict(lost) for lost in statistics.lost_cases(section.comparison)],
            "heat": {"world": section.heat_world, "cpu_percent": section.heat},
        }
        for section in sections
    ]


def page(sections: Sequence[ReportSection], made_with: str) -> str:
    """Return the report as HTML.

    Args:
        sections: the comparisons, with at least one replay.
        made_with: program, version and command, shown on the page.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    template = environment.from_string(files("trimaran.simulator.report").joinpath("page.html").read_text())
    return template.render(
        made_with=made_with,
        sections=[
            {
                "title": _title(section),
                "comparison": section.comparison,
                "means": statistics.by_policy(section.comparison),
                "gaps": statistics.gaps(section.comparison),
                "figures": _section_figures(section),
                "lost": _lost_by_policy(section.comparison),
            }
            for section in sections
            if section.comparison
        ],
        benefits=_benefit_figures(sections),
        default=DEFAULT,
        goals=GOALS,
        gap_measures=GAP_MEASURES,
        min_worlds=statistics.MIN_WORLDS,
        has_saved=any(
            SAVED in measures
            for section in sections
            for by_policy in section.comparison.values()
            for measures in by_policy.values()
        ),
    )


def _title(section: ReportSection) -> str:
    worlds = f"{len(section.comparison)} world{'s' if len(section.comparison) > 1 else ''}"
    return f"{worlds}, overcommit {section.label}" if section.label else f"{worlds}, each at its own overcommit"


def _section_figures(section: ReportSection) -> list[PageFigure]:
    """Return the figures for the measures that a section has: gaps closed, nodes saved, and heat maps."""
    comparison, result = section.comparison, []
    for goal, rows in statistics.gaps(comparison).items():
        shown = {
            measure: {policy: row[measure] for policy, row in rows.items() if measure in row}
            for measure in GAP_MEASURES
            if any(measure in row for row in rows.values())
        }
        text = (
            f"Gap closed between {DEFAULT} (0) and {goal} (100), mean over worlds with 95 % bootstrap intervals. "
            "Blue: above 0; red: below 0; gray: the interval contains 0, or there are too few worlds for one."
        )
        result.append(PageFigure(f"Gap closed to {goal}", figures.forest(shown, "gap closed, %"), text))
    means = statistics.by_policy(comparison)
    saved = {policy: measures for policy, measures in means.items() if SAVED in measures}
    if saved:
        groups = {
            f"hot node-minutes at {percent} %": {
                policy: (row[f"hot_minutes_{percent}"].mean, row[SAVED].mean) for policy, row in saved.items()
            }
            for percent in HOT_PERCENTS
        }
        text = (
            "Nodes that a policy saves while it has no more hot minutes at 80 %, overruns and unplaced pods than the "
            "default scheduler on all nodes, against hot node-minutes on all nodes; means over worlds. The line joins "
            "the Pareto front."
        )
        image = figures.trade_off(groups, "nodes saved, %")
        result.append(PageFigure("Nodes saved against hot minutes", image, text))
    if section.heat:
        image = figures.heat_maps(section.heat, section.heat_hours)
        text = f"World {section.heat_world}: each policy's nodes over time, hottest first; color is CPU use."
        result.append(PageFigure("Nodes over time", image, text))
    return result


def _benefit_figures(sections: Sequence[ReportSection]) -> list[PageFigure]:
    """Return figures of the benefit over the default scheduler by overcommit.

    A sweep is drawn as curves with intervals, a single overcommit as a dot per world.
    """
    result = []
    for percent in HOT_PERCENTS:
        measure = f"hot_minutes_{percent}"
        lines: dict[str, dict[float, Interval]] = {}
        clouds: dict[str, list[tuple[float, float]]] = {}
        for section in sections:
            for policy in statistics.policy_names(section.comparison):
                benefit = statistics.benefit(section.comparison, policy, measure)
                if policy == DEFAULT or not benefit:
                    continue
                if section.label:
                    lines.setdefault(policy, {})[float(section.label)] = statistics.interval(list(benefit.values()))
                points = [(section.overcommit[world], value) for world, value in benefit.items()]
                clouds.setdefault(policy, []).extend(points)
        labels = ("overcommit of CPU", f"fewer node-minutes at {percent} %")
        text = f"Reduction of node-minutes at or above {percent} % CPU compared with {DEFAULT}, a panel per policy: "
        title = f"Benefit against overcommit, hot at {percent} %"
        if len(sections) > 1 and lines:
            shown = "the mean over worlds with its 95 % bootstrap interval, if there are enough worlds."
            result.append(PageFigure(title, figures.curves(lines, labels), text + shown))
        elif clouds:
            shown = "a dot per world, at the world's overcommit; red: worse than the default."
            result.append(PageFigure(title, figures.dots(clouds, labels), text + shown))
    return result


def _lost_by_policy(comparison: Comparison) -> dict[str, dict[str, list[statistics.LostCase]]]:
    """Return the cases in which a policy is worse than the default scheduler, by policy and world."""
    result: dict[str, dict[str, list[statistics.LostCase]]] = {}
    for case in statistics.lost_cases(comparison):
        result.setdefault(case.policy, {}).setdefault(case.world, []).append(case)
    return result


def _as_dicts(rows: Mapping[str, Mapping[str, Interval]]) -> dict[str, dict[str, dict[str, Any]]]:
    return {name: {measure: asdict(interval) for measure, interval in row.items()} for name, row in rows.items()}
