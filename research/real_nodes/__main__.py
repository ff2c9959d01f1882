"""Latency of services on real kubelets and containers: does a hot minute hurt, and does placing by load help.

    isolated=tests/real_nodes/isolated.py
    python $isolated .venv/bin/python research/real_nodes minutes FOLDER --minutes 60 --seed 1
    python $isolated .venv/bin/python research/real_nodes contrast FOLDER --pairs 12 --kind active
    python research/real_nodes table FOLDER
    python research/real_nodes plot FOLDER IMAGE

Four nodes have .25 cores each, of which kubelet and containerd use about 13 percent, and a quota with periods of 5 ms:
at the usual 100 ms a stall is up to 75 ms, and the 99th percentile of latency would measure the period. Requests come
at random times from outside of the nodes; latency counts from the intended time. ``minutes`` and ``contrast`` add rows
to files in FOLDER, and go on after an interruption. ``table`` prints what they show, ``plot`` draws it.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from contrast import KINDS, contrast, contrast_table
from hot_minutes import minutes, minutes_table, plot
from measuring import PERIOD_MICROSECONDS


def table(options: argparse.Namespace) -> int:
    """Print the tables of the files that are in the folder."""
    minutes_table(options.folder)
    contrast_table(options.folder)
    return 0


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("minutes", minutes), ("contrast", contrast), ("table", table), ("plot", plot)):
        command = commands.add_parser(name, help=(function.__doc__ or "").partition("\n")[0])
        command.add_argument("folder", type=Path)
        command.set_defaults(run=function)
        if name == "minutes":
            command.add_argument("--minutes", type=int, default=60)
            command.add_argument("--seed", type=int, default=1)
        if name == "contrast":
            command.add_argument("--pairs", type=int, default=12, help="pairs that the file has at the end")
            command.add_argument("--kind", choices=KINDS, default=KINDS[0])
        if name in {"minutes", "contrast"}:
            command.add_argument("--period", type=int, default=PERIOD_MICROSECONDS, help="of the quota, microseconds")
        if name == "plot":
            command.add_argument("image", type=Path)
    options = parser.parse_args()
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
