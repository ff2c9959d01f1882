"""Comparisons as tables of text."""

from collections.abc import Mapping, Sequence

from simulator.comparison import Comparison
from simulator.policies.catalogue import DEFAULT
from simulator.report.statistics import GAP_MEASURES, GOALS, Interval, by_policy, gaps, lost_cases


def tables(comparison: Comparison) -> str:
    """Return measures side by side, a block for each world; of several worlds also their means with intervals."""
    blocks = [
        _block(
            world, {name: [number(value) for value in row.values()] for name, row in policies.items()}, _names(policies)
        )
        for world, policies in comparison.items()
    ]
    return "\n\n".join([*blocks, *(_over_worlds(comparison) if len(comparison) > 1 else ())])


def number(value: float) -> str:
    """Return a number as people read it."""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _over_worlds(comparison: Comparison) -> list[str]:
    """Return the blocks over all worlds: means, and the gaps that are closed, all with their intervals."""
    said = f"{len(comparison)} worlds: mean (95 % bootstrap interval)"
    means = by_policy(comparison)
    spreads = {policy: [_spread(each) for each in row.values()] for policy, row in means.items()}
    blocks = [_block(said, spreads, _names(means))]
    closed = gaps(comparison)
    if not closed:
        why = f"{DEFAULT} and {' or '.join(GOALS)} must be among the policies, and the second be better"
        return [*blocks, f"gap closed: cannot be told: {why}"]
    worse = {(each.policy, each.measure, each.world) for each in lost_cases(comparison)}
    for goal, rows in closed.items():
        cells = {
            policy: [
                f"{_spread(row[name])}, worse in {sum((policy, name, world) in worse for world in comparison)}"
                if name in row
                else "-"
                for name in GAP_MEASURES
            ]
            for policy, row in rows.items()
        }
        blocks.append(_block(f"gap closed, %: {DEFAULT} is 0, {goal} 100", cells, GAP_MEASURES))
    return blocks


def _spread(each: Interval) -> str:
    return f"{number(each.mean)} ({number(each.low)} to {number(each.high)})"


def _names(rows: Mapping[str, Mapping[str, object]]) -> list[str]:
    return list(next(iter(rows.values())))


def _block(title: str, rows: Mapping[str, Sequence[str]], header: Sequence[str]) -> str:
    """Return a table: its title, the columns' names, and a row for each policy."""
    lines = [header, *rows.values()]
    widths = [max(12, *map(len, column)) for column in zip(*lines, strict=True)]
    left = max(map(len, (title, *rows)))
    return "\n".join(
        f"{name:{left}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        for name, line in zip((title, *rows), lines, strict=True)
    )
