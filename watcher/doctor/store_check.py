"""Where the store is kept: on a local disk, ours to write, and no other file in its place."""

import tempfile
from pathlib import Path

from watcher.providers.base import Check
from watcher.store.file import check_kind
from watcher.store.lock import FileLock

_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"}
_MAGIC = b"SQLite format 3\0"  # what such a file begins with
_PAGE_BYTES = 4096


def examine_store(path: Path) -> Check:
    """Try what a watcher needs of the place that its file is in."""
    folder = next((each for each in path.parents if each.exists()), Path("/"))
    kind = file_system(folder.resolve())
    if kind in _NETWORK_FILE_SYSTEMS:
        message = f"{path} is on {kind}: SQLite needs a local disk"
        return Check("store", ok=False, message=message, setting="store.path")
    try:
        state = _try_store(path, folder)
    except OSError as error:
        message = f"{path} cannot be used: {error.strerror or error}; nothing would survive a restart"
        return Check("store", ok=False, message=message, setting="store.path")
    return Check("store", ok=True, message=f"{path} is on a local disk ({kind or 'unknown'}){state}")


def _try_store(path: Path, folder: Path) -> str:
    """Try what a watcher needs, and leave nothing behind; return what else there is to say.

    A file that a watcher has open is not opened: where that is in this process, closing it again would end the locks
    that SQLite has on it.
    """
    with tempfile.TemporaryFile(dir=folder) as file:  # rights alone do not tell: root has them where nobody can write
        file.write(bytes(_PAGE_BYTES))
    with FileLock(path) as lock:
        if not lock.take(create=False):
            return "; a watcher uses it"
        check_kind([path])
        if path.exists():
            with path.open("r+b") as file:
                head = file.read(len(_MAGIC))
            if head and head != _MAGIC:
                raise OSError("it is no SQLite database, and would be set aside")
    return ""


def file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder, as Linux tells it; empty where it cannot be told."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    holding = {where: kind for _, where, kind, *_ in mounts if folder.is_relative_to(where)}
    return holding[max(holding, key=len)] if holding else ""
