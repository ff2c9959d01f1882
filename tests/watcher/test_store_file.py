"""The store's file: damaged, locked, shared or removed. Its content is tested in test_store.py."""

import errno
import fcntl
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.snapshots import load_windows, rows, snapshot

from watcher.providers.base import Reading, Sample
from watcher.store import Store, schema
from watcher.store.lock import FileLock
from watcher.store.store import _HANDOVER_SECONDS
from watcher.windows.samples import SampleRound


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of the store's file."""
    return tmp_path / "watcher.sqlite"


pytestmark = pytest.mark.usefixtures("short_handover")


def filled(path: Path) -> bytes:
    """Write a file with a few fetches and samples, and return its content."""
    store = Store(path)
    for timestamp in (1000, 1060):
        store.save_snapshots({"15m": snapshot(timestamp, nodes=50), "5m": snapshot(timestamp)})
        samples = SampleRound.of(timestamp, {"a": Sample(timestamp, (Reading("cpu", "CPU", 1),))})
        store.save_samples("x", samples, keep_since=0)
    store.close()
    return path.read_bytes()


def check_store_works(path: Path) -> Store:
    """Check that a store opens the file, whatever its content, reads and writes; return the store."""
    store = Store(path)
    load_windows(store)
    list(store.load_recent("15m", 10, "x"))
    store.load_samples("x", since=0)
    store.save_snapshots({"15m": snapshot(2000)})
    assert store.failure == ""
    assert load_windows(store)["15m"] == snapshot(2000)
    store.close()
    again = Store(path)
    assert (again.failure, again.set_aside) == ("", None)
    assert load_windows(again)["15m"] == snapshot(2000)
    again.close()
    return store


def failure_of(path: Path) -> str:
    """Open a store at the path and close it; return the failure that it had."""
    store = Store(path)
    failure = store.failure
    store.close()
    return failure


# -- damage -------------------------------------------------------------------------------------------------------


def test_any_damaged_byte_is_survived(path: Path) -> None:
    """After damage to any byte, the file works or is set aside with its content, without an exception."""
    good = filled(path)
    random_ = random.Random(903)
    set_aside = 0
    for _ in range(60):
        position = random_.choice([random_.randrange(200), random_.randrange(len(good))])
        damaged = bytearray(good)
        damaged[position] = random_.choice([0xFF, damaged[position] ^ (1 << random_.randrange(8))])
        path.write_bytes(damaged)
        moved = check_store_works(path).set_aside
        if moved is not None:
            set_aside += 1
            assert moved.read_bytes() == damaged
            moved.unlink()
    assert 0 < set_aside < 60


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b"tablesamples", 6),  # a table's name
        (b'"name" TEXT', 1),  # a column's name
        (b'"body" BLOB', 1),
        (b"create_samples", 0),  # a migration's name
        (b"SQLite format 3\0", 18),  # the write version: an unknown one makes the file read-only
        (b"SQLite format 3\0", 47),  # the schema's format number
    ],
)
def test_damage_outside_of_pages_is_detected(path: Path, text: bytes, offset: int) -> None:
    """Damaged names, texts and versions raise various errors, which all count as corruption."""
    damaged = bytearray(filled(path))
    damaged[damaged.index(text) + offset] = 0xFF
    path.write_bytes(damaged)
    moved = check_store_works(path).set_aside
    assert moved is not None
    assert moved.read_bytes() == damaged


def test_a_file_that_becomes_corrupt_in_use_is_set_aside(path: Path) -> None:
    """A file that a write finds corrupt is set aside, and the write goes to a new file."""
    filled(path)
    store = Store(path)
    store._db.execute("pragma wal_checkpoint(truncate)")
    store._db.execute("pragma shrink_memory")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    store.save_snapshots({"15m": snapshot(2000)})
    assert store.failure == ""
    assert store.set_aside is not None
    assert load_windows(store) == {"15m": snapshot(2000)}
    store.close()
    assert rows(path, "timestamp") == [(2000,)]


# -- a place that cannot be used ----------------------------------------------------------------------------------


def test_a_locked_file_is_not_set_aside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another program locks the file, the store continues in memory, and then uses the same file."""
    filled(path)
    monkeypatch.setattr(schema, "_BUSY_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    store = Store(path)
    assert "locked" in store.failure
    store.save_snapshots({"15m": snapshot(1120)})
    other.execute("commit")
    other.close()
    store.save_snapshots({"15m": snapshot(1180)})
    assert (store.failure, store.set_aside) == ("", None)
    store.close()
    assert set(rows(path, "timestamp")) == {(1000,), (1060,), (1120,), (1180,)}


@pytest.mark.parametrize(("suffix", "size"), [("", 0), ("", 4096), ("", 20_000), ("-wal", 0), ("-wal", 5000)])
def test_a_file_truncated_in_use_is_set_aside(path: Path, suffix: str, size: int) -> None:
    """A file or log that is truncated while in use is set aside and counted, and a new file replaces it."""
    filled(path)
    store = Store(path)
    store.save_snapshots({"15m": snapshot(1120, nodes=500)})
    if not suffix:
        store._db.execute("pragma wal_checkpoint(truncate)")
    os.truncate(f"{path}{suffix}", size)
    store.save_snapshots({"15m": snapshot(1180)})
    assert store.times_set_aside == 1
    assert store.failure == ""
    assert load_windows(store) == {"15m": snapshot(1180)}
    store.close()
    assert rows(path, "timestamp") == [(1180,)]


def test_a_file_that_is_compacted_in_use_stays(path: Path) -> None:
    """A file that shrank because another program ran VACUUM is complete and stays in use."""
    store = Store(path)
    store.save_snapshots({"15m": snapshot(1000, nodes=5)})
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("create table ballast as select randomblob(500000)")
    other.execute("pragma wal_checkpoint(truncate)")
    store.save_snapshots({"15m": snapshot(1060, nodes=5)})
    large = path.stat().st_size
    other.execute("drop table ballast")
    other.execute("vacuum")
    other.execute("pragma wal_checkpoint(truncate)")
    other.close()
    assert path.stat().st_size < large
    store.save_snapshots({"15m": snapshot(1120)})
    assert (store.times_set_aside, store.failure) == (0, "")
    store.close()
    assert {timestamp for (timestamp,) in rows(path, "timestamp")} == {1000, 1060, 1120}


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_pipes_are_refused_at_once(path: Path, suffix: str) -> None:
    """A named pipe at the path is refused without blocking, and the store continues in memory."""
    os.mkfifo(f"{path}{suffix}")
    store = Store(path)
    assert f"{path.name}{suffix} " in store.failure
    store.save_snapshots({"15m": snapshot()})
    assert load_windows(store) == {"15m": snapshot()}
    store.close()
    assert Path(f"{path}{suffix}").is_fifo()


def test_a_file_that_is_too_large_to_check_is_used(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The integrity check of a large file ends at its time limit; the file is used, and the log says so."""
    filled(path)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("create table ballast (body blob)")
        connection.executemany("insert into ballast values (zeroblob(?))", [(4_000_000,)] * 50)
    connection.close()
    monkeypatch.setattr(schema, "_CHECK_SECONDS", 0)
    monkeypatch.setattr(schema, "_INTERRUPT_SECONDS", 0.001)
    store = Store(path)
    assert "too large" in caplog.text
    assert (store.failure, store.set_aside) == ("", None)
    assert load_windows(store)["15m"] == snapshot(1060, nodes=50)
    store.save_snapshots({"15m": snapshot(1120)})
    assert store.failure == ""
    store.close()


@pytest.mark.parametrize("how", ["removed", "replaced", "folder removed", "lost for a while"])
def test_a_removed_or_replaced_file_is_detected(path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """The next write goes to the file that is now at the path, or to a new file, not to the deleted one."""
    other = path.with_name("backup.sqlite")
    backup = Store(other)
    backup.save_snapshots({"5m": snapshot(500)})
    backup.close()
    path = path.parent / "sub" / path.name
    store = Store(path)
    store.save_snapshots({"15m": snapshot(1000)})
    if how == "removed":
        for file in path.parent.iterdir():
            file.unlink()
    elif how == "replaced":
        other.replace(path)
    else:
        shutil.rmtree(path.parent)
    if how == "lost for a while":
        path.parent.write_text("in the way")
        store.save_snapshots({"15m": snapshot(1060)})
        assert "cannot be opened" in store.failure
        path.parent.unlink()
    store.save_snapshots({"15m": snapshot(1120)})
    assert store.failure == ""
    assert "removed or replaced" in caplog.text
    expected = {"15m": snapshot(1120), "5m": snapshot(500)} if how == "replaced" else {"15m": snapshot(1120)}
    assert load_windows(store) == expected
    assert "another watcher" in failure_of(path)
    store.close()
    expected_timestamps = {"replaced": [500, 1120], "lost for a while": [1060, 1120]}.get(how, [1120])
    assert sorted(timestamp for (timestamp,) in rows(path, "timestamp")) == expected_timestamps


def test_file_permissions(path: Path) -> None:
    """File, log and lock are readable by their owner only; an existing file keeps its permissions."""
    umask = os.umask(0o022)
    try:
        store = Store(path)
        store.save_snapshots({"15m": snapshot()})
        assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
            path.name + suffix: 0o600 for suffix in ("", "-wal", "-shm", ".lock")
        }
        store.close()
        path.chmod(0o640)
        Store(path).close()
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(umask)


# -- two watchers -------------------------------------------------------------------------------------------------


def test_a_second_watcher_goes_on_in_memory(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A second watcher on the file continues in memory, names the remedy, and takes over when the first one ends."""
    first = Store(path)
    first.save_snapshots({"15m": snapshot(1001, 1)})
    second = Store(path)
    assert "another watcher uses it: give this watcher another --store" in second.failure
    assert "store.path" in second.failure
    assert "another watcher" in str(vars(caplog.records[-1]))
    second.save_snapshots({"15m": snapshot(1000, 2)})
    assert load_windows(second) == {"15m": snapshot(1000, 2)}
    assert load_windows(first) == {"15m": snapshot(1001, 1)}
    assert rows(path, "timestamp") == [(1001,)]
    first.close()
    second.save_snapshots({"15m": snapshot(1060, 2)})
    assert second.failure == ""
    second.close()
    assert (1060,) in rows(path, "timestamp")


def test_a_watcher_waits_for_the_previous_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher waits a moment for the previous one to close the file."""
    monkeypatch.setattr("watcher.store.store._HANDOVER_SECONDS", _HANDOVER_SECONDS)
    first = Store(path)
    closing = threading.Timer(0.2, first.close)
    closing.start()
    assert failure_of(path) == ""
    closing.join()


OPENER = """
import sys, time
from pathlib import Path
from watcher.store import Store

print("ready", flush=True)
sys.stdin.readline()
store = Store(Path({path!r}))
print(store.failure or "open", store.set_aside, flush=True)
sys.stdin.readline()
"""


def test_watchers_started_together(path: Path) -> None:
    """Of watchers that start together, one uses the file and the others report why not; kill -9 frees the file."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER.format(path=str(path))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n"
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in started]
        owner = started[answers.index("open None\n")]
        assert sum("another watcher" in answer for answer in answers) == 2
        owner.kill()
        owner.wait(10)
        assert failure_of(path) == ""
    finally:
        for process in started:
            process.kill()
            process.communicate(timeout=60)


@pytest.mark.parametrize("put_back", [False, True])
def test_removing_the_lock_file_admits_no_second_watcher(path: Path, put_back: bool) -> None:
    """Without its lock file, an open database still refuses a second watcher, and its owner creates a new lock."""
    first = Store(path)
    first.save_snapshots({"15m": snapshot(1001, 1)})
    lock = Path(f"{path}.lock")
    lock.unlink()
    for _ in range(2):
        assert "lock file" in failure_of(path)
        assert not lock.exists()
    if put_back:
        lock.touch()
    first.save_snapshots({"15m": snapshot(1060)})
    assert first.failure == ""
    assert "another watcher" in failure_of(path)
    first.close()
    assert failure_of(path) == ""


def test_a_watcher_that_lost_its_lock_yields(path: Path) -> None:
    """If another watcher has locked the file, the first one stops using it, reports it, and changes nothing in it."""
    first = Store(path)
    first.save_snapshots({"15m": snapshot(1000)})
    lock = Path(f"{path}.lock")
    lock.unlink()
    lock.touch()
    second = Store(path)
    assert second.failure == ""
    first.save_snapshots({"15m": snapshot(1060)})
    assert "another watcher" in first.failure
    second.save_snapshots({"15m": snapshot(1090)})
    assert second.failure == ""
    first.close()
    second.close()
    assert rows(path, "timestamp") == [(1000,), (1090,)]


def test_a_database_without_a_lock_file_is_used(path: Path) -> None:
    """A database without a lock file that no process has open, such as a restored backup, is used."""
    filled(path)
    Path(f"{path}.lock").unlink()
    assert failure_of(path) == ""


def test_a_fork_does_not_hold_the_lock(path: Path) -> None:
    """A forked process that outlives the watcher does not hold the lock."""
    store = Store(path)
    reader, writer = os.pipe()
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        os.write(begins, b".")
        os.read(reader, 1)  # blocks until the parent closes its end
        os._exit(0)
    try:
        os.read(begun, 1)
        store.close()
        assert failure_of(path) == ""
    finally:
        for descriptor in (writer, reader, begun, begins):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_a_fork_that_ends_leaves_the_lock(path: Path) -> None:
    """The parent keeps the lock when a forked child ends."""
    store = Store(path)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert "another watcher" in failure_of(path)
    store.close()


def test_a_closed_store_stays_closed(path: Path) -> None:
    """A write to a closed store does not lock the file when it becomes free."""
    first = Store(path)
    second = Store(path)
    second.close()
    first.close()
    second.save_snapshots({"15m": snapshot()})
    assert failure_of(path) == ""


def test_a_lock_file_that_cannot_be_created(path: Path) -> None:
    """The file is used even if its lock file cannot be created."""
    Path(f"{path}.lock").mkdir()
    store = Store(path)
    store.save_snapshots({"15m": snapshot()})
    assert store.failure == ""
    store.close()
    assert rows(path, "timestamp") == [(1000,)]


def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is used even if the file system has no locks."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert failure_of(path) == ""


def test_a_lock_is_held_once(path: Path) -> None:
    """A lock is refused to others until it is released; a missing lock file is created, but not on ``create=False``."""
    lock_file = Path(f"{path}.lock")
    with FileLock(path) as lock, FileLock(path) as other:
        assert (lock.take(create=False), lock_file.exists()) == (True, False)
        assert (lock.take(), lock.was_made, lock.take(), other.take(0.05)) == (True, True, True, False)
        lock_file.unlink()
        assert (lock.is_lost(), other.is_lost()) == (True, False)
        lock.release()
        assert (other.take(), other.was_made, lock.is_lost(), lock.take(create=False)) == (True, True, False, False)
        other.release()
        assert (lock.take(), lock.was_made) == (True, False)


def test_a_lock_file_that_is_removed_before_it_is_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the lock file is removed between opening and locking it, a new one is created and locked."""
    flock, lock_file = fcntl.flock, Path(f"{path}.lock")

    def removed_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock_file.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with FileLock(path) as lock:
        assert (lock.take(), lock.is_lost()) == (True, False)
        assert FileLock(path).take() is False
