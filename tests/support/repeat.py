"""Repeat a command until it fails, with busy loops on the machine and stalls of the command if asked for.

python tests/support/repeat.py --times 20 --busy 4 COMMAND...
python tests/support/repeat.py --stall 0.5 COMMAND...   # as root
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":  # as pytest does
    sys.path.insert(0, str(Path(__file__).parents[1]))

from real_nodes import cgroups


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Run this number of processes that compute without end."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


@contextmanager
def stalls(seconds: float) -> Iterator[list[str]]:
    """Let all processes of a command stand still for so long at random moments, as on a virtual machine.

    Yields:
        Words to put before the command.
    """
    root = next((each.folder for each in cgroups.mounted() if each.kind == "cgroup2"), None)
    if root is None or os.geteuid():
        sys.exit("a stall needs root and a mounted cgroup2, whose groups can be frozen")
    group, over = root / f"stall-{os.getpid()}", threading.Event()
    group.mkdir()

    def stall() -> None:
        dice = random.Random(0)
        while not over.wait(dice.uniform(0, 4 * seconds)):
            (group / "cgroup.freeze").write_text("1")
            time.sleep(seconds)
            (group / "cgroup.freeze").write_text("0")

    thread = threading.Thread(target=stall)
    thread.start()
    try:
        yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(OSError):  # a process of the command lives on
            group.rmdir()


def repeat(command: list[str], times: int, busy: int, stall: float) -> int:
    """Run a command this often; return the first status that is not 0."""
    with busy_loops(busy), stalls(stall) if stall else contextlib.nullcontext([]) as prefix:
        for number in range(1, times + 1):
            status = subprocess.run([*prefix, *command], check=False).returncode
            if times > 1:
                sys.stderr.write(f"run {number} of {times}: {f'failed with status {status}' if status else 'passed'}\n")
            if status:
                return status
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--stall", type=float, default=0, help="seconds")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.exit(repeat(options.command, options.times, options.busy, options.stall))
