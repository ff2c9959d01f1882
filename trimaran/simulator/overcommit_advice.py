"""Table for ``trimaran simulate overcommit``: measures of replays of recorded days with changed requests.

Each rule changes the requests of all pods: it divides them by a factor, or replaces them by those that the watcher
recommends. Under each rule, the default scheduler and congestion-cost each place the pods.
"""

from collections.abc import Iterator, Mapping, Sequence

from trimaran.simulator.policies.catalogue import CONGESTION, CONGESTION_RIGHT_SIZED, DEFAULT, RIGHT_SIZED
from trimaran.simulator.replay_batch import ReplayVariant
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.text import number

Advice = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Measures by world, rule, scheduler and measure name."""

SCHEDULERS = (DEFAULT, CONGESTION)
RECOMMENDED = "recommended"
ACCEPTED_PERCENT = 1.0
"""Share of the node-hours that may be short of CPU, and of memory, for a rule to count as safe."""
_AS_WRITTEN = (1.0, 1.0)
_RIGHT_SIZED = (RIGHT_SIZED, CONGESTION_RIGHT_SIZED)  # in the order of SCHEDULERS
_SHORT = ("cpu_short_percent", "memory_short_percent")
_COLUMNS = {
    "CPU REQUESTED, %": "cpu_requested_percent",
    "PODS NOT PLACED": "unplaced_pods",
    "SHORT OF CPU, %": _SHORT[0],
    "SHORT OF MEMORY, %": _SHORT[1],
    "HOT MINUTES": "hot_minutes_80",
}


def rules(factors: Sequence[float]) -> dict[str, ReplayVariant]:
    """Return the replays of each rule by its name: division by the factors, and recommended requests."""
    return {
        **{f"{factor:g}": ReplayVariant(SCHEDULERS, (factor, factor)) for factor in factors},
        RECOMMENDED: ReplayVariant(_RIGHT_SIZED, _AS_WRITTEN),
    }


def advice(names: Sequence[str], sections: Sequence[ReportSection]) -> Advice:
    """Return the measures of all rules.

    Args:
        names: names of the rules.
        sections: the replays of each rule, in the order of the names.
    """
    result: Advice = {}
    for name, section in zip(names, sections, strict=True):
        for world, by_policy in section.comparison.items():
            schedulers = {
                dict(zip(_RIGHT_SIZED, SCHEDULERS, strict=True)).get(policy, policy): measured
                for policy, measured in by_policy.items()
            }
            result.setdefault(world, {})[name] = schedulers
    return result


def header() -> list[str]:
    """Return the names of the columns."""
    return ["WORLD", "REQUESTS", *_COLUMNS]


def rows(found: Advice) -> Iterator[list[str]]:
    """Yield a row for each world and rule; a cell has the default scheduler's value, then congestion-cost's."""
    for world, by_rule in found.items():
        for rule, measured in by_rule.items():
            is_divisor = rule.replace(".", "", 1).isdigit()
            label = {"1": "as written"}.get(rule, f"divided by {rule}" if is_divisor else rule)
            yield [world, label, *(_cell(measured, name) for name in _COLUMNS.values())]


def verdicts(found: Advice, factors: Sequence[float]) -> Iterator[str]:
    """Yield a line for each world: the largest safe divisor by scheduler, and the smallest that places all pods."""
    for world, by_rule in found.items():
        known = {factor: by_rule[f"{factor:g}"] for factor in sorted(factors) if f"{factor:g}" in by_rule}
        safe = ", ".join(f"{name} {_largest_safe(known, name)}" for name in SCHEDULERS)
        placed = [
            f"{factor:g}"
            for factor, measured in known.items()
            if all(each["unplaced_pods"] == 0 for each in measured.values())
        ]
        all_placed = f"all pods are placed from {placed[0]} on" if placed else "some pods are never placed"
        yield f"{world}: at most {ACCEPTED_PERCENT:g} % of the node-hours are short with {safe}; {all_placed}"


def _largest_safe(known: Mapping[float, Mapping[str, Mapping[str, float]]], scheduler: str) -> str:
    """Return the largest divisor up to which few node-hours are short; "none" if the smallest is not safe."""
    largest = "none"
    for factor, measured in known.items():
        if any(measured.get(scheduler, {}).get(name, 100.0) > ACCEPTED_PERCENT for name in _SHORT):
            break
        largest = f"up to {factor:g}"
    return largest


def _cell(measured: Mapping[str, Mapping[str, float]], name: str) -> str:
    return " / ".join(number(measured[each][name]) if each in measured else "-" for each in SCHEDULERS)
