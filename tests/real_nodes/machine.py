"""Requirements of real nodes: what this machine has, what it lacks, and the command that installs it."""

import os
import shutil
import subprocess
from pathlib import Path

from real_nodes import cgroups
from support.programs import NODE_PACKAGES, how_to_install

_NAMESPACES = ("cgroup", "mnt", "net", "pid", "uts")


def description() -> str:
    """Return one line with what this machine has."""
    kinds = [name for name in _NAMESPACES if Path("/proc/self/ns", name).exists()]
    programs = " ".join(f"{Path(name).name} {'yes' if shutil.which(name) else 'no'}" for name in NODE_PACKAGES)
    tried = "" if cgroups.version() <= 1 else " (never tried)"
    return (
        f"this machine: cgroup v{cgroups.version()}{tried}, namespaces {' '.join(kinds)}, "
        f"overlay {'yes' if _has_overlay() else 'no'}, {'root' if os.geteuid() == 0 else 'not root'}, "
        f"{os.cpu_count()} processors, {programs}"
    )


def lack() -> str:
    """Return one line with the first thing that this machine lacks, and what to do about it; "" if it has all."""
    if os.geteuid() != 0:
        return "not root: sudo --preserve-env=PATH make e2e-nodes"
    if missing := [name for name in NODE_PACKAGES if shutil.which(name) is None]:
        return how_to_install(missing[0])
    if controllers := cgroups.missing_controllers():
        return f"the kernel has no control group controllers {', '.join(controllers)}: enable them at boot"
    if readonly := [str(each.folder) for each in cgroups.hierarchies() if not os.access(each.folder, os.W_OK)]:
        return f"{', '.join(readonly)} cannot be written: run it on the host or in a privileged container"
    if absent := [name for name in _NAMESPACES if not Path("/proc/self/ns", name).exists()]:
        return f"the kernel has no namespaces of the kind {', '.join(absent)}"
    if not _has_overlay():
        return "the kernel has no overlay file system: modprobe overlay"
    flags = [f"--{name}" for name in ("mount", "cgroup", "pid", "net", "uts")]
    tried = subprocess.run(["unshare", *flags, "--fork", "true"], capture_output=True, text=True, check=False)
    return f"namespaces cannot be created: {tried.stderr.strip()}" if tried.returncode else ""


def _has_overlay() -> bool:
    return "\toverlay\n" in Path("/proc/filesystems").read_text()
