"""How often a node's use exceeds its average by 1, 2 or 3 deviations, on real machines.

    python research/risk.py FOLDER     or TRIMARAN_TRACES=FOLDER; README.md says which traces it reads

It says what the arguments of LoadVariationRiskBalancing mean as a chance: at the end of each window of 15 minutes, how
many of the next 15 minutes' samples are above average + margin * deviation^(1 / sensitivity), all in parts of capacity.
"""

import os
import sys
from pathlib import Path

import numpy as np
from machine_traces import LOADERS, SOURCES, Trace, windows

from scoring import LoadVariationRiskBalancing

SPAN = 900
RESOURCES = ("CPU", "Memory")  # what the plugin scores by default
# Margin and sensitivity; the first three are those whose chance a normal distribution gives: 16, 2.3 and .13 percent.
ARGUMENTS = ((1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (1.0, 2.0), (1.0, 0.5))


def exceeded(trace: Trace, resource: str) -> list[float]:
    """Return the percentage of later samples above the threshold, for each of ARGUMENTS, and how many there are."""
    samples = trace.samples[resource]
    length = max(1, SPAN // trace.step)
    ends = np.arange(length - 1, samples.shape[1] - length, length)
    served = windows(trace, [SPAN], ends * trace.step)
    average, deviation = (served[resource, operator, SPAN] for operator in ("AVG", "STD"))
    later = np.stack([samples[:, ends + ahead] for ahead in range(1, length + 1)], axis=-1)
    known = ~np.isnan(later) & ~np.isnan(average)[..., None]
    found = []
    for margin, sensitivity in ARGUMENTS:
        plugin = LoadVariationRiskBalancing(safe_variance_margin=margin, safe_variance_sensitivity=sensitivity)
        sigma = plugin.sigma(np.nan_to_num(deviation), np.full_like(deviation, 100.0))
        found.append(100 * float((later > (average + 100 * sigma)[..., None])[known].mean()))
    return [*found, int(known.sum())]


def main() -> None:
    """Print a table: a row for each trace and resource, a column for each pair of arguments."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TRIMARAN_TRACES", ""))
    rows, left_out = [], []
    for name, load in LOADERS.items():
        if not (folder / SOURCES[name]).is_file():
            left_out.append(
                f"Left out: {name}: no {SOURCES[name]} in a folder that TRIMARAN_TRACES or an argument names."
            )
            continue
        try:
            trace = load(folder)
        except ImportError as error:
            left_out.append(f"Left out: {name}: {error}")
            continue
        for resource in [each for each in RESOURCES if each in trace.samples]:
            *chances, count = exceeded(trace, resource)
            cells = " | ".join(f"{chance:.2g} %" for chance in chances)
            rows.append(f"| {name}, {resource}, every {trace.step} s | {count:,} | {cells} |")
    print("| trace | samples | " + " | ".join(f"margin {m:g}, sensitivity {s:g}" for m, s in ARGUMENTS) + " |")
    print("|---|---:" + "|---:" * len(ARGUMENTS) + "|")
    print(*rows, *left_out, sep="\n")


if __name__ == "__main__":
    main()
