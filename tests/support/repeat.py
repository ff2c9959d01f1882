"""Repeat a command until it fails, with busy loops on the machine if asked for.

python tests/support/repeat.py --times 20 --busy 4 COMMAND...
"""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Run this number of processes that compute without end."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


def repeat(command: list[str], times: int, busy: int) -> int:
    """Run a command this often; return the first status that is not 0."""
    with busy_loops(busy):
        for number in range(1, times + 1):
            status = subprocess.run(command, check=False).returncode
            if times > 1:
                sys.stderr.write(f"run {number} of {times}: {f'failed with status {status}' if status else 'passed'}\n")
            if status:
                return status
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.exit(repeat(options.command, options.times, options.busy))
