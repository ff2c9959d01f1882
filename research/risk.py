"""Probability that the CPU or memory use of a real machine exceeds its average by 1, 2 or 3 deviations.

The result says what the arguments of LoadVariationRiskBalancing mean as a probability. For each window of 15 minutes,
the script computes average + margin * deviation^(1 / sensitivity), in parts of capacity, and the share of the samples
of the next 15 minutes that are above it. The traces are the same as for detectors.py.

    python research/risk.py FOLDER
"""

import argparse

import numpy as np
from machine_traces import Trace, add_folder, load_traces, windows

from scoring import LoadVariationRiskBalancing

SPAN = 900
RESOURCES = ("CPU", "Memory")  # the plugin's default
# Margin and sensitivity; a normal distribution has 16, 2.3 and 0.13 percent above the first three.
ARGUMENTS = ((1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (1.0, 2.0), (1.0, 0.5))


def shares_above(trace: Trace, resource: str) -> list[float]:
    """Return, for each pair of ARGUMENTS, the percentage of samples above the threshold, and the number of samples.

    Args:
        trace: samples of a fleet of machines.
        resource: resource, such as ``CPU``.
    """
    samples = trace.samples[resource]
    length = max(1, SPAN // trace.step)
    ends = np.arange(length - 1, samples.shape[1] - length, length)
    served = windows(trace, [SPAN], ends * trace.step)
    average, deviation = (served[resource, operator, SPAN] for operator in ("AVG", "STD"))
    later = np.stack([samples[:, ends + ahead] for ahead in range(1, length + 1)], axis=-1)
    known = ~np.isnan(later) & ~np.isnan(average)[..., None]
    shares = []
    for margin, sensitivity in ARGUMENTS:
        plugin = LoadVariationRiskBalancing(safe_variance_margin=margin, safe_variance_sensitivity=sensitivity)
        sigma = plugin.sigma(np.nan_to_num(deviation), np.full_like(deviation, 100.0))
        shares.append(100 * float((later > (average + 100 * sigma)[..., None])[known].mean()))
    return [*shares, int(known.sum())]


def main() -> None:
    """Print a row for each trace and resource, and a column for each pair of arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folder(parser)
    traces = list(load_traces(parser.parse_args().folder))
    columns = " | ".join(f"margin {margin:g}, sensitivity {sensitivity:g}" for margin, sensitivity in ARGUMENTS)
    print(f"\n| trace | samples | {columns} |\n|---|---:" + "|---:" * len(ARGUMENTS) + "|")
    for name, trace in traces:
        for resource in [resource for resource in RESOURCES if resource in trace.samples]:
            *shares, count = shares_above(trace, resource)
            cells = " | ".join(f"{share:.2g} %" for share in shares)
            print(f"| {name}, {resource}, every {trace.step} s | {count:,} | {cells} |")


if __name__ == "__main__":
    main()
