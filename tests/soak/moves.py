"""Meet a rebalancer with 2,000 drawn faults, at least 50 of each kind, in memory.

    python tests/soak/moves.py [--runs 8] [--faults 250] [--most-seconds SECONDS]

Each run has a seed of its own. The script prints what must not have happened; its exit status is 1 if anything did.
"""

import argparse
import logging
import math
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.move_faults import FaultRun
from support.waiting import within


def main() -> int:
    """Run the draws of several seeds; return 1 after any harm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--faults", type=int, default=250, help="of each run; default: %(default)s")
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="end earlier; default: %(default)s")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    faults: Counter[str] = Counter()
    hours, moves, harm = 0.0, 0, 0
    for seed in within(arguments.most_seconds, range(1, arguments.runs + 1)):
        run = FaultRun(seed)
        begin = run.world.now
        run.run(arguments.faults)
        faults += run.faults
        hours, moves, harm = hours + (run.world.now - begin) / 3600, moves + len(run.moves), harm + len(run.harm)
        print(
            f"seed {seed}: {faults.total()} faults, {hours:.0f} h, {moves} moves, {run.brakes} brakes",
            *run.harm,
            flush=True,
        )
    print(f"at least {min(faults.values())} faults of each of {len(faults)} kinds; harm: {harm}")
    return int(bool(harm))


if __name__ == "__main__":
    sys.exit(main())
