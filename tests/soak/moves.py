"""Meet a rebalancer with 2,000 drawn faults, at least 50 of each kind, in memory: python tests/soak/moves.py."""

import logging
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.move_faults import FaultRun

_RUNS, _FAULTS = 8, 250


def main() -> int:
    """Run the draws of several seeds; return 1 after any harm."""
    logging.disable(logging.CRITICAL)
    faults: Counter[str] = Counter()
    hours, moves, harm = 0.0, 0, 0
    for seed in range(1, _RUNS + 1):
        run = FaultRun(seed)
        begin = run.world.now
        run.run(_FAULTS)
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
