"""Check of the store's path: a local, writable disk, and no file of another kind at the path."""

import tempfile
from pathlib import Path

from watcher.providers.base import Check
from watcher.store.file import check_kind
from watcher.store.lock import FileLock

_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"}
_MAGIC = b"SQLite format 3\0"  # the first bytes of an SQLite file
_PAGE_BYTES = 4096


def examine_store(path: Path) -> Check:
    """Return a step that tries the operations that a watcher needs at the store's location."""
    folder = next((parent for parent in path.parents if parent.exists()), Path("/"))
    kind = file_system(folder.resolve())
    if kind in _NETWORK_FILE_SYSTEMS:
        message = f"{path} is on a network file system ({kind}): SQLite needs a local disk"
        return Check("store", ok=False, message=message, setting="store.path")
    try:
        state = _try_store(path, folder)
    except OSError as error:
        message = f"{path} cannot be used: {error.strerror or error}; all data would be lost at a restart"
        return Check("store", ok=False, message=message, setting="store.path")
    return Check("store", ok=True, message=f"{path} is on a local disk ({kind or 'unknown'}){state}")


def _try_store(path: Path, folder: Path) -> str:
    """Try the file operations that a watcher's store needs, without leaving files; return a remark for the message.

    The file of a running watcher is not opened: if the watcher is in this process, closing the file would release
    SQLite's locks on it.
    """
    with tempfile.TemporaryFile(dir=folder) as file:  # root has permissions even on read-only disks
        file.write(bytes(_PAGE_BYTES))
    with FileLock(path) as lock:
        if not lock.take(create=False):
            return "; it is in use by a watcher"
        check_kind([path])
        if path.exists():
            with path.open("r+b") as file:
                head = file.read(len(_MAGIC))
            if head and head != _MAGIC:
                raise OSError("the file is not an SQLite database, and would be renamed")
    return ""


def file_system(folder: Path) -> str:
    """Return the type of a folder's file system, such as ``ext4``, from Linux' /proc; empty if unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    mounts_above = {mount_point: kind for _, mount_point, kind, *_ in mounts if folder.is_relative_to(mount_point)}
    return mounts_above[max(mounts_above, key=len)] if mounts_above else ""
