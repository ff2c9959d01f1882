"""A report of comparisons: one page that asks nobody for anything, and the same as a document for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.measures import HOT_PERCENTS
from trimaran.simulator.policies.catalogue import DEFAULT
from trimaran.simulator.report import figures as pictures
from trimaran.simulator.report import statistics
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.statistics import GAP_MEASURES, GOALS, Interval
from trimaran.simulator.report.text import number

SAVED = "nodes_saved_percent"


@dataclass(frozen=True)
class Picture:
    """An image and what it shows, for those who see it and those who do not."""

    title: str
    image: str
    text: str


def document(compared: Sequence[ReportSection]) -> list[dict[str, Any]]:
    """Return what the page shows, for programs: one object for each overcommit."""
    return [
        {
            "overcommit": each.overcommit,
            "worlds": each.comparison,
            "means": _as_dicts(statistics.by_policy(each.comparison)),
            "gap_closed_percent": {goal: _as_dicts(rows) for goal, rows in statistics.gaps(each.comparison).items()},
            "lost_cases": [asdict(lost) for lost in statistics.lost_cases(each.comparison)],
            "heat": {"world": each.heat_world, "cpu_percent": each.heat},
        }
        for each in compared
    ]


def page(compared: Sequence[ReportSection], made_with: str) -> str:
    """Return the report as HTML.

    Args:
        compared: what was made, at least one replay.
        made_with: program, version and command, to be told.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    template = environment.from_string(files("trimaran.simulator.report").joinpath("page.html").read_text())
    return template.render(
        made_with=made_with,
        sections=[
            {
                "title": _title(each),
                "comparison": each.comparison,
                "means": statistics.by_policy(each.comparison),
                "gaps": statistics.gaps(each.comparison),
                "pictures": list(_pictures(each)),
                "lost": _lost_by_policy(each.comparison),
            }
            for each in compared
            if each.comparison
        ],
        benefits=_benefits(compared),
        default=DEFAULT,
        goals=GOALS,
        gap_measures=GAP_MEASURES,
        has_saved=any(SAVED in m for c in compared for w in c.comparison.values() for m in w.values()),
    )


def _title(compared: ReportSection) -> str:
    worlds = f"{len(compared.comparison)} world{'s' if len(compared.comparison) > 1 else ''}"
    return f"{worlds}, overcommit {compared.label}" if compared.label else f"{worlds}, each at its own overcommit"


def _pictures(compared: ReportSection) -> list[Picture]:
    comparison, drawn = compared.comparison, []
    for goal, rows in statistics.gaps(comparison).items():
        shown = {
            measure: {policy: row[measure] for policy, row in rows.items() if measure in row}
            for measure in GAP_MEASURES
            if any(measure in row for row in rows.values())
        }
        text = (
            f"The part of the way from {DEFAULT} (0) to {goal} (100), mean over worlds with 95 % bootstrap "
            "intervals. Blue: above 0; red: below; grey: the interval holds 0."
        )
        drawn.append(Picture(f"Gap closed to {goal}", pictures.forest(shown, "gap closed, %"), text))
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
            "Nodes saved, at no more hot minutes at 80 % and overruns than the default scheduler has on all of them, "
            "against hot node-minutes on all nodes; means over worlds. The line joins what nothing is better than."
        )
        drawn.append(Picture("Nodes saved against hot minutes", pictures.trade_off(groups, "nodes saved, %"), text))
    if compared.heat:
        image = pictures.heat_maps(compared.heat, compared.heat_hours)
        text = f"World {compared.heat_world}: each policy's nodes from the hottest down, over time; colour is CPU use."
        drawn.append(Picture("Nodes over time", image, text))
    return drawn


def _benefits(compared: Sequence[ReportSection]) -> list[Picture]:
    """Draw what policies gain over the default scheduler against overcommit: curves of a sweep, else a dot a world."""
    made = []
    for percent in HOT_PERCENTS:
        measure = f"hot_minutes_{percent}"
        lines: dict[str, dict[float, Interval]] = {}
        clouds: dict[str, list[tuple[float, float]]] = {}
        for each in compared:
            for policy in statistics.policy_names(each.comparison):
                gained = statistics.benefit(each.comparison, policy, measure)
                if policy == DEFAULT or not gained:
                    continue
                if each.label:
                    lines.setdefault(policy, {})[float(each.label)] = statistics.interval(list(gained.values()))
                points = [(each.overcommit[world], value) for world, value in gained.items()]
                clouds.setdefault(policy, []).extend(points)
        labels = ("overcommit of CPU", f"fewer node-minutes at {percent} %")
        text = f"How many fewer node-minutes at or above {percent} % CPU than {DEFAULT} has, a panel a policy: "
        title = f"Benefit against overcommit, hot at {percent} %"
        if len(compared) > 1 and lines:
            shown = "the mean over worlds with its 95 % bootstrap interval."
            made.append(Picture(title, pictures.curves(lines, labels), text + shown))
        elif clouds:
            shown = "a dot a world, at the world's overcommit; red: worse than the default."
            made.append(Picture(title, pictures.dots(clouds, labels), text + shown))
    return made


def _lost_by_policy(comparison: Comparison) -> dict[str, dict[str, list[statistics.LostCase]]]:
    """Return the cases that were lost, by policy and world."""
    found: dict[str, dict[str, list[statistics.LostCase]]] = {}
    for each in statistics.lost_cases(comparison):
        found.setdefault(each.policy, {}).setdefault(each.world, []).append(each)
    return found


def _as_dicts(rows: Mapping[str, Mapping[str, Interval]]) -> dict[str, dict[str, dict[str, Any]]]:
    return {name: {measure: asdict(each) for measure, each in row.items()} for name, row in rows.items()}
