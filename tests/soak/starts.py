"""Start a watcher again and again while busy clients request it; check that none of them gets an error.

    python tests/soak/starts.py [--starts 1000] [--readers 24] [--seconds 1.5] [--most-seconds SECONDS]

Each start is a new interpreter with a stored snapshot, as after a restart. The clients request it from its first moment
on, so that their requests run while the worker still imports the modules of the routes. The script prints the number of
starts with an error and the first of the errors; its exit status is 1 if there are any.
"""

import argparse
import math
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.starts import start_once
from support.waiting import within


def main() -> None:
    """Run all starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--readers", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.5, help="time under load after the first answer")
    parser.add_argument("--most-seconds", type=float, default=math.inf, help="end earlier; default: %(default)s")
    arguments = parser.parse_args()
    failed, answers = 0, Counter[tuple[str, int]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start_once(folder, 0, 1.5)  # fills the store
        for number in within(arguments.most_seconds, range(1, arguments.starts + 1)):
            errors, counted = start_once(folder, arguments.readers, arguments.seconds)
            answers += counted
            failed += bool(errors)
            for error in errors[:3] if failed <= 5 else []:
                print(f"start {number}: {error}", flush=True)
            if number % 100 == 0:
                print(f"{number} starts, {failed} with an error, {sum(answers.values())} answers", flush=True)
    for (path, status), count in sorted(answers.items()):
        print(f"{path:>24} {status} {count:>9,}")
    print(f"{failed} of {number} starts under {arguments.readers} clients had an error")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
