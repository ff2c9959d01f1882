"""Comparisons as text tables: the main measures, narrow enough for a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.policies.catalogue import DEFAULT
from trimaran.simulator.report.statistics import (
    GAP_MEASURES,
    GOALS,
    MIN_WORLDS,
    SEED_DEVIATION,
    Interval,
    by_policy,
    gaps,
    lost_cases,
    shared_worlds,
)

#: Measures in the tables; the last two only if they were measured.
MAIN_MEASURES = (
    *GAP_MEASURES, "memory_overrun_minutes", "unplaced_pods", "waited_pod_minutes", "moves", "node_minutes",
    "nodes_saved_percent", SEED_DEVIATION,
)  # fmt: skip
_INDENT = "  "
_Line = tuple[str, Sequence[str]]


def tables(comparison: Comparison) -> str:
    """Return a text table for each world (replayed trace).

    For several worlds, tables of means and of gaps closed follow, over the worlds in which all policies were replayed.
    With at least :data:`MIN_WORLDS` such worlds they have intervals.
    """
    blocks = [
        _block(world, names, [(policy, [number(row[name]) for name in names]) for policy, row in policies.items()])
        for world, policies in comparison.items()
        for names in [_main(policies)]
    ]
    return "\n\n".join([*blocks, *(_over_worlds(comparison) if len(comparison) > 1 else ())])


def number(value: float) -> str:
    """Return a number as text, without decimals if it is whole, otherwise with two."""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _over_worlds(comparison: Comparison) -> list[str]:
    """Return the tables over all worlds: means and gaps closed, with intervals if there are enough worlds."""
    shared = shared_worlds(comparison)
    if not shared:
        return ["means: not available: no world has all policies"]
    worlds = len(shared)
    basis = "mean, 95 % bootstrap interval" if worlds >= MIN_WORLDS else f"mean; an interval needs {MIN_WORLDS} worlds"
    count = "worlds" if worlds == len(comparison) else f"of {len(comparison)} worlds, those with all policies"
    title = f"{worlds} {count}: {basis}"
    means = by_policy(shared)
    names = _main(means)
    mean_lines = [line for policy, row in means.items() for line in _interval_lines(policy, row, names)]
    blocks = [_block(title, names, mean_lines)]
    closed = gaps(shared)
    if not closed:
        remedy = f"replay {DEFAULT} and {' or '.join(GOALS)}, in worlds where the second is better"
        return [*blocks, f"gap closed: not available: {remedy}"]
    worse = [(case.policy, case.measure) for case in lost_cases(shared)]
    for goal, rows in closed.items():
        lines: list[_Line] = []
        for policy, row in rows.items():
            lines += _interval_lines(policy, row, GAP_MEASURES)
            lines.append((f"{_INDENT}worse in", [str(worse.count((policy, name))) for name in GAP_MEASURES]))
        blocks.append(_block(f"gap closed, %: {DEFAULT} is 0, {goal} 100", GAP_MEASURES, lines))
    return blocks


def _main(rows: Mapping[str, Mapping[str, object]]) -> list[str]:
    measured = next(iter(rows.values()))
    return [name for name in MAIN_MEASURES if name in measured]


def _interval_lines(policy: str, row: Mapping[str, Interval], names: Iterable[str]) -> Iterator[_Line]:
    """Yield a line of means, and two lines with the ends of their intervals if there are any; a dash for no value."""
    intervals = [row.get(name) for name in names]
    for label, field in ((policy, "mean"), (f"{_INDENT}from", "low"), (f"{_INDENT}to", "high")):
        values = [getattr(interval, field, None) for interval in intervals]
        if values.count(None) < len(values):
            yield label, ["-" if value is None else number(value) for value in values]


def _block(title: str, names: Sequence[str], lines: Iterable[_Line]) -> str:
    """Return a table: title, column names with one word per line, and lines with their labels."""
    words = [name.split("_") for name in names]
    height = max(map(len, words))
    header = zip(*([""] * (height - len(column)) + column for column in words), strict=True)
    all_lines = [*(("", cells) for cells in header), *lines]
    left = max(len(label) for label, _ in all_lines)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in all_lines), strict=True)]
    rows = (
        f"{label:{left}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for label, cells in all_lines
    )
    return "\n".join([title, *rows])
