"""Comparisons as tables of text: the main measures, so narrow that they fit a screen."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trimaran.simulator.comparison import Comparison
from trimaran.simulator.policies.catalogue import DEFAULT
from trimaran.simulator.report.statistics import GAP_MEASURES, GOALS, Interval, by_policy, gaps, lost_cases

#: What the tables have of the measures; the last one where it was asked for.
MAIN_MEASURES = (
    *GAP_MEASURES, "memory_overrun_minutes", "unplaced_pods", "waited_pod_minutes", "moves", "node_minutes",
    "nodes_saved_percent",
)  # fmt: skip
_INDENT = "  "
_Line = tuple[str, Sequence[str]]


def tables(comparison: Comparison) -> str:
    """Return measures side by side, a block for each world; of several worlds also their means with intervals."""
    blocks = [
        _block(world, names, [(policy, [number(row[name]) for name in names]) for policy, row in policies.items()])
        for world, policies in comparison.items()
        for names in [_main(policies)]
    ]
    return "\n\n".join([*blocks, *(_over_worlds(comparison) if len(comparison) > 1 else ())])


def number(value: float) -> str:
    """Return a number as people read it."""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _over_worlds(comparison: Comparison) -> list[str]:
    """Return the blocks over all worlds: means, and the gaps that are closed, all with their intervals."""
    said = f"{len(comparison)} worlds: mean, 95 % bootstrap interval"
    means = by_policy(comparison)
    names = _main(means)
    spreads = [line for policy, row in means.items() for line in _spread(policy, row, names)]
    blocks = [_block(said, names, spreads)]
    closed = gaps(comparison)
    if not closed:
        why = f"{DEFAULT} and {' or '.join(GOALS)} must be among the policies, and the second be better"
        return [*blocks, f"gap closed: cannot be told: {why}"]
    worse = [(each.policy, each.measure) for each in lost_cases(comparison)]
    for goal, rows in closed.items():
        lines: list[_Line] = []
        for policy, row in rows.items():
            lines += _spread(policy, row, GAP_MEASURES)
            lines.append((f"{_INDENT}worse in", [str(worse.count((policy, name))) for name in GAP_MEASURES]))
        blocks.append(_block(f"gap closed, %: {DEFAULT} is 0, {goal} 100", GAP_MEASURES, lines))
    return blocks


def _main(rows: Mapping[str, Mapping[str, object]]) -> list[str]:
    measured = next(iter(rows.values()))
    return [name for name in MAIN_MEASURES if name in measured]


def _spread(policy: str, row: Mapping[str, Interval], names: Iterable[str]) -> Iterator[_Line]:
    """Yield a line of means, and below it where they lie; what is not told is a dash."""
    told = [row.get(name) for name in names]
    for label, end in ((policy, "mean"), (f"{_INDENT}from", "low"), (f"{_INDENT}to", "high")):
        yield label, ["-" if each is None else number(getattr(each, end)) for each in told]


def _block(title: str, names: Sequence[str], lines: Iterable[_Line]) -> str:
    """Return a table: its title, the columns' names, a word below the other, and the lines with their labels."""
    words = [name.split("_") for name in names]
    height = max(map(len, words))
    header = zip(*([""] * (height - len(each)) + each for each in words), strict=True)
    whole = [*(("", each) for each in header), *lines]
    left = max(len(label) for label, _ in whole)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in whole), strict=True)]
    rows = (
        f"{label:{left}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for label, cells in whole
    )
    return "\n".join([title, *rows])
