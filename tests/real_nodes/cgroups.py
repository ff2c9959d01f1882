"""Control groups of the nodes, of version 1 or 2, below the roots of this machine's hierarchies."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

#: The group with those of all nodes.
NAME = "trimaran-nodes"
#: Length of a quota's period; a container that has used its quota waits for the rest of it.
PERIOD_MICROSECONDS = 100_000
# Without a share of its own a node would not get its quota while other processes load the machine.
_SHARES, _WEIGHT = 10_240, 1_000
_NEEDED = {"cpu", "cpuacct", "cpuset", "memory", "pids"}
_NEEDED_OF_2 = {"cpu", "cpuset", "memory", "pids"}
_LEAF = "system"


@dataclass(frozen=True)
class Hierarchy:
    """A mounted hierarchy.

    Attributes:
        folder: where it is mounted.
        kind: type of the mount, ``cgroup`` or ``cgroup2``.
        options: mount options that select it; in version 1 its controllers, or its name.
    """

    folder: Path
    kind: str
    options: str

    @property
    def controllers(self) -> set[str]:
        """Names of its controllers."""
        if self.kind == "cgroup":
            return set(self.options.split(","))
        with contextlib.suppress(OSError):
            return set((self.folder / "cgroup.controllers").read_text().split())
        return set()


def hierarchies() -> list[Hierarchy]:
    """Return the hierarchies that nodes use: those of version 1, if there are any, else that of version 2."""
    found = mounted()
    return [each for each in found if each.kind == "cgroup"] or [each for each in found if each.controllers]


def mounted() -> list[Hierarchy]:
    """Return all mounted hierarchies."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in {"cgroup", "cgroup2"}:
            own = [each for each in options.split(",") if each not in {"rw", "ro", "xattr"} and "agent" not in each]
            folder = Path(before.split()[4])
            # "none" is no controller: it has to be said when a named hierarchy is mounted.
            words = ["none", *own] if any(each.startswith("name=") for each in own) else own
            found[folder] = Hierarchy(folder, kind, ",".join(words))
    return list(found.values())


def version() -> int:
    """Return the version of this machine's control groups: 1, 2, or 0 without any."""
    kinds = {each.kind for each in hierarchies()}
    return 1 if "cgroup" in kinds else 2 if kinds else 0


def missing_controllers() -> list[str]:
    """Return the controllers that nodes need and this machine does not have."""
    have = {name for each in hierarchies() for name in each.controllers}
    return sorted((_NEEDED_OF_2 if version() == 2 else _NEEDED) - have)


@dataclass(frozen=True)
class Counters:
    """Counters of a group, and the time at which they were read.

    Attributes:
        time: Unix seconds.
        cpu: processor time of the group, seconds.
        periods: periods of the quota in which it ran.
        throttled: periods in which it had to wait.
        memory: working set as the kubelet defines it, bytes.
    """

    time: float
    cpu: float
    periods: int
    throttled: int
    memory: int

    def cores_since(self, earlier: "Counters") -> float:
        """Return the mean number of cores in use since an earlier reading."""
        return (self.cpu - earlier.cpu) / (self.time - earlier.time)


class NodeGroup:
    """The control group of a node, with the quota that is its capacity.

    Args:
        name: name of the node.
        cores: quota of its processes.
        memory_mebibytes: limit of their memory.
        period_microseconds: length of the quota's period.
    """

    def __init__(
        self, name: str, cores: float, memory_mebibytes: int, period_microseconds: int = PERIOD_MICROSECONDS
    ) -> None:
        self._name, self._cores, self._memory = name, cores, memory_mebibytes << 20
        self._period = period_microseconds
        self._hierarchies = hierarchies()
        self._unified = version() == 2

    @property
    def folders(self) -> list[Path]:
        """Folder of the group in each hierarchy."""
        return [each.folder / NAME / self._name for each in self._hierarchies]

    def create(self) -> None:
        """Create the group, empty."""
        for hierarchy, folder in zip(self._hierarchies, self.folders, strict=True):
            folder.parent.mkdir(exist_ok=True)
            if self._unified:
                needed = " ".join(f"+{name}" for name in sorted(hierarchy.controllers))
                for parent in (hierarchy.folder, folder.parent):
                    (parent / "cgroup.subtree_control").write_text(needed)
            elif "cpuset" in hierarchy.controllers:  # a new group has no processors and no memory
                _copy_sets(hierarchy.folder, folder.parent)
            folder.mkdir()
            if not self._unified and "cpuset" in hierarchy.controllers:
                _copy_sets(folder.parent, folder)
        quota = round(self._cores * self._period)
        if self._unified:
            self._write("cpu", {"cpu.max": f"{quota} {self._period}"})
            self._write("memory", {"memory.max": self._memory})
        else:
            self._write("cpu", {"cpu.cfs_period_us": self._period, "cpu.cfs_quota_us": quota})
            self._write("memory", {"memory.limit_in_bytes": self._memory})
        weight, share = ("cpu.weight", _WEIGHT) if self._unified else ("cpu.shares", _SHARES)
        of_node = self._of_controller["cpu"]
        for folder in (of_node.parent, of_node):  # the parent competes with the machine's other processes
            (folder / weight).write_text(str(share))

    def entering(self, *, first: bool = False) -> str:
        """Return shell commands that move the shell into the group.

        Args:
            first: for the process that begins the node's control group namespace, whose root is then the node itself.
                In version 2 the others are in a group below, as a group with processes has no controllers to give.
        """
        leaf = _LEAF if self._unified and not first else ""
        return " && ".join(f"echo $$ > {folder / leaf}/cgroup.procs" for folder in self.folders)

    def mounting(self) -> str:
        """Return shell commands, run in a new namespace of control groups, after which its root is the node."""
        lines = []
        for each in self._hierarchies:
            lines += [f"umount {each.folder}", f"mount -t {each.kind} -o {each.options} {each.kind} {each.folder}"]
        if self._unified:
            root = self._hierarchies[0].folder
            lines[-1] = f"mount -t cgroup2 cgroup2 {root}"
            lines += [
                f"mkdir {root}/{_LEAF}", f"echo $$ > {root}/{_LEAF}/cgroup.procs",
                f"for each in $(cat {root}/cgroup.controllers); do echo +$each > {root}/cgroup.subtree_control; done",
            ]  # fmt: skip
        # Programs would take the unified hierarchy next to those of version 1 for the node's.
        others = [each.folder for each in mounted() if each.folder not in {own.folder for own in self._hierarchies}]
        return " && ".join([*lines, *(f"umount {folder}" for folder in others)])

    def counters(self, *below: str) -> Counters:
        """Return the counters of the node, or of a group below it."""
        cpu = dict(line.split() for line in self._file("cpu", "cpu.stat", below).read_text().splitlines())
        memory = dict(line.split() for line in self._file("memory", "memory.stat", below).read_text().splitlines())
        if self._unified:
            used = int(cpu["usage_usec"]) / 1e6
            held = int(self._file("memory", "memory.current", below).read_text()) - int(memory["inactive_file"])
        else:
            used = int(self._file("cpuacct", "cpuacct.usage", below).read_text()) / 1e9
            inactive = int(memory["total_inactive_file"])
            held = int(self._file("memory", "memory.usage_in_bytes", below).read_text()) - inactive
        return Counters(time.time(), used, int(cpu["nr_periods"]), int(cpu["nr_throttled"]), held)

    def pods(self) -> dict[str, str]:
        """Return the groups of the pods that exist, relative to the node's, by their UIDs."""
        root = self._of_controller["cpu"]
        found = (root / "kubepods").glob("**/pod*/")
        return {each.name.removeprefix("pod"): str(each.relative_to(root)) for each in found}

    def containers(self) -> dict[str, str]:
        """Return the groups of the containers that exist, relative to the node's, by the containers' IDs."""
        root = self._of_controller["cpu"]
        return {each.name: str(each.relative_to(root)) for each in (root / "kubepods").glob("**/pod*/*/")}

    def processes(self, *below: str) -> list[int]:
        """Return the processes of a group below the node, without those of groups below it."""
        return list(members(self._of_controller["cpu"].joinpath(*below)))

    def limit(self, *below: str) -> float:
        """Return the quota of a group below the node, in cores; infinite without one."""
        if self._unified:
            quota, period = self._file("cpu", "cpu.max", below).read_text().split()
            return float("inf") if quota == "max" else int(quota) / int(period)
        cores = int(self._file("cpu", "cpu.cfs_quota_us", below).read_text())
        return float("inf") if cores < 0 else cores / int(self._file("cpu", "cpu.cfs_period_us", below).read_text())

    def remove(self) -> None:
        """Kill what is left in the group, and remove it with all groups below."""
        remove(*self.folders)
        for folder in self.folders:
            with contextlib.suppress(OSError):  # another node is left
                folder.parent.rmdir()

    @cached_property
    def _of_controller(self) -> dict[str, Path]:
        pairs = zip(self._hierarchies, self.folders, strict=True)
        return {name: folder for each, folder in pairs for name in each.controllers}

    def _file(self, controller: str, name: str, below: tuple[str, ...]) -> Path:
        return self._of_controller[controller].joinpath(*below, name)

    def _write(self, controller: str, values: dict[str, object]) -> None:
        for name, value in values.items():
            (self._of_controller[controller] / name).write_text(str(value))


def _copy_sets(source: Path, target: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (target / name).read_text().strip():
            (target / name).write_text((source / name).read_text())


def remains() -> list[Path]:
    """Return the groups of all nodes that exist, the innermost first."""
    return [folder for each in hierarchies() for folder in _inner_first(each.folder / NAME)]


def remove(*folders: Path) -> None:
    """Kill the processes of groups and of those below them, and remove these groups.

    Processes come and go until the last one that forks is dead, and a killed one needs a moment to leave its group.
    """
    for _ in range(100):
        groups = [each for folder in folders for each in _inner_first(folder)]
        for pid in {pid for each in groups for pid in members(each)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for each in groups:
            with contextlib.suppress(OSError):
                each.rmdir()
        if not any(folder.exists() for folder in folders):
            return
        time.sleep(0.1)
    raise AssertionError(f"these control groups cannot be removed: {[str(each) for each in folders if each.exists()]}")


def members(folder: Path) -> Iterator[int]:
    """Yield the processes of a group."""
    with contextlib.suppress(OSError):
        yield from (int(line) for line in (folder / "cgroup.procs").read_text().split() if line != "0")


def _inner_first(folder: Path) -> list[Path]:
    return [Path(each) for each, _, _ in os.walk(folder, topdown=False)]
