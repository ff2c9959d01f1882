"""Latency of services on real kubelets and containers: does a hot minute hurt, do placing by load and moves help?

    isolated=tests/real_nodes/isolated.py
    python $isolated .venv/bin/python research/real_nodes minutes FOLDER --runs 7 --minutes 4
    python $isolated .venv/bin/python research/real_nodes contrast FOLDER --units 6
    python $isolated .venv/bin/python research/real_nodes moves FOLDER --minutes 20
    python research/real_nodes plan FOLDER --units 6
    python research/real_nodes table FOLDER
    python research/real_nodes plot FOLDER IMAGE

Four nodes have .25 cores each, and a quota with periods of 5 ms: at the usual 100 ms a stall is up to 75 ms, and the
99th percentile of latency would measure the period. Requests come at random times from outside of the nodes, whatever
the answers; latency counts from the intended time. Of a run in which the generator was more than 5 ms late, or the
machine had less than 15 percent idle in a minute, the rows are kept apart, and it is repeated.

``minutes`` and ``contrast`` add rows to files in FOLDER. A run that is cut off leaves none; the same command goes on
after the last one that was complete. ``moves`` is one run with the rebalancer. ``plan`` prints what effect so many
units of ``contrast`` can find, ``table`` what all files show, ``plot`` draws latency.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from contrast import contrast, contrast_table, plan
from hot_minutes import minutes, minutes_table, plot
from measuring import PERIOD_MICROSECONDS
from moves import moves, moves_table


def table(options: argparse.Namespace) -> int:
    """Print what the files in the folder show."""
    minutes_table(options.folder)
    contrast_table(options.folder)
    moves_table(options.folder)
    return 0


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (minutes, contrast, moves, plan, table, plot):
        name = function.__name__
        command = commands.add_parser(name, help=(function.__doc__ or "").partition("\n")[0])
        command.add_argument("folder", type=Path)
        command.set_defaults(run=function)
        if name in {"minutes", "contrast", "moves"}:
            command.add_argument("--period", type=int, default=PERIOD_MICROSECONDS, help="of the quota, microseconds")
        if name in {"minutes", "contrast"}:
            command.add_argument("--attempts", type=int, default=3, help="largest number of repetitions of a run")
            command.add_argument(
                "--most-minutes",
                type=float,
                default=50,
                help="begin nothing that would end later; less than the hour for which accounts' tokens are valid",
            )
        if name == "minutes":
            command.add_argument("--runs", type=int, default=7)
            command.add_argument("--minutes", type=int, default=4, help="length of a run")
            command.add_argument("--seed", type=int, default=1, help="of the first run; the next ones follow")
        if name == "moves":
            command.add_argument("--minutes", type=int, default=20, help="length of the run")
            command.add_argument("--moves-per-hour", type=int, default=20, help="of the rebalancer")
            command.add_argument("--seed", type=int, default=1, help="of the requests")
        if name in {"contrast", "plan"}:
            command.add_argument("--units", type=int, default=6, help="units of three blocks that the file then has")
        if name == "contrast":
            command.add_argument(
                "--seconds", type=int, default=30, help="length of a block's measurement; a multiple of ten"
            )
        if name == "plot":
            command.add_argument("image", type=Path)
    options = parser.parse_args()
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
