"""Run a command in namespaces of its own, in which it can run nodes; nothing of it outlives this process.

    python tests/real_nodes/isolated.py COMMAND    run it: processes, mounts and network end with it, or with a kill -9
    python tests/real_nodes/isolated.py            only remove the control groups that a killed run has left

The command sees no processes of others, and no network but its own. The kernel ends all processes of its namespace of
processes with the first one, and this one ends with its parent. Only empty control groups can stay, until the next run.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from real_nodes import cgroups, machine

#: Environment variable that the command has.
MARK = "REAL_NODES_ISOLATED"
_LOCK = Path("/run/lock/trimaran-nodes")
# A shell is the first process, as it has the usual signals, and reaps what the command leaves.
_SHELL = 'ip link set lo up && "$@"; status=$?; exit $status'


def run(command: list[str]) -> int:
    """Run a command; return its status. One run at a time: another one on this machine waits."""
    _say(machine.description())
    if reason := machine.lack():
        if os.environ.get("CI") == "true":
            _say(f"failed, as CI=true allows no skip: {reason}")
            return 1
        _say(f"skipped: {reason}")
        return 0
    with _alone():
        _clean()
        mounts = _mounts()
        spaces = ["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
        isolated = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "sh", "-c", _SHELL, "sh", *command]
        try:
            return subprocess.run(isolated, env={**os.environ, MARK: "1"}, check=False).returncode
        finally:
            processes, groups = _clean()
            left = sorted(_mounts() - mounts)
            found = f"{processes} processes, {groups} control groups, {len(left)} mounts"
            _say(f"left behind and removed: {found} {' '.join(left)}".rstrip())


def clean() -> None:
    """Remove what an earlier run has left, and say what it was."""
    with _alone():
        _say("removed: {} processes, {} control groups".format(*_clean()))


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other run is going on."""
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    with _LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for the end of another run on this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _clean() -> tuple[int, int]:
    groups = cgroups.remains()
    processes = {pid for each in groups for pid in cgroups.members(each)}
    cgroups.remove(*(each for each in groups if each.name == cgroups.NAME))
    return len(processes), len(groups)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _mounts() -> set[str]:
    """Return the mounts of this machine that are of nodes, or in its folder of network namespaces."""
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {each for each in points if cgroups.NAME in each or "netns" in each or "containerd" in each}


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(run(sys.argv[1:]))
    clean()
