"""The file that survives a crash."""

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlite_utils
from support.servers import wait_until
from support.snapshots import WINDOWS, WRITER, loaded, rows, snapshot

from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.providers.base import Reading, Sample
from watcher.store import Store
from watcher.windows.samples import SampleRound
from watcher.wire import encode


def incompressible(timestamp: int, kilobytes: int) -> WatcherMetrics:
    """Return a snapshot that takes about that much room in the file."""
    text = random.Random(timestamp).randbytes(kilobytes * 512).hex()
    return WatcherMetrics(
        timestamp,
        Window("15m", timestamp - 900, timestamp),
        "x",
        {"a": NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", 1.0),), {"filler": text})},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "sub" / "watcher.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open store on disk."""
    store = Store(path)
    yield store
    store.close()


def execute(path: Path, statement: str, *values: object) -> None:
    """Change the file past the store."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_is_saved_is_loaded(path: Path, in_memory: bool) -> None:
    """The newest snapshot of each window comes back equal, from disk and from memory."""
    store = Store(None if in_memory else path)
    store.save_snapshots({"15m": snapshot(1000), "5m": snapshot(1000, 5)})
    store.save_snapshots({"15m": snapshot(1060, 7, nodes=3)})
    assert loaded(store) == ({"15m": snapshot(1060, 7, nodes=3)} if in_memory else
                                         {"15m": snapshot(1060, 7, nodes=3), "5m": snapshot(1000, 5)})  # fmt: skip
    assert store.failure == ""
    store.close()


def test_what_is_saved_survives_closing(path: Path) -> None:
    """Another process that opens the file later finds the snapshot and the samples."""
    first = Store(path)
    first.save_snapshots({"15m": snapshot()})
    taken = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5), Reading("memory", "Memory", 3)))})
    first.save_samples("x", taken, keep_since=0)
    first.close()
    second = Store(path)
    assert loaded(second) == {"15m": snapshot()}
    assert second.load_samples("x", since=0) == [taken]
    second.close()


def test_a_node_named_as_gos_key_is_loaded(store: Store) -> None:
    """What is kept is in one dialect, whatever its nodes are called and whatever they lack."""
    node = snapshot().data["node-0"]
    for data in ({"NodeMetricsMap": node}, {"NodeMetricsMap": node, "b": node}, {"NodeMetricsMap": NodeMetrics(())}):
        metrics = replace(snapshot(), data=data)
        store.save_snapshots({"15m": metrics})
        assert loaded(store) == {"15m": metrics}
        assert [*store.load_recent("15m", 1, "x")] == [metrics]


def test_sources_are_kept_apart(store: Store) -> None:
    """What another source wrote is not loaded."""
    store.save_snapshots({"15m": snapshot(source="x")})
    store.save_samples("x", SampleRound.of(1.0, {"a": Sample(1, (Reading("cpu", "CPU", 1),))}), keep_since=0)
    assert loaded(store, "y") == {}
    assert store.load_samples("y", since=0) == []


def test_the_recent_snapshots_come_newest_first(store: Store, path: Path) -> None:
    """Those of one window and source, as many as asked for; one that cannot be read is passed over."""
    for timestamp in (1000, 1060, 1120, 1180):
        store.save_snapshots({"5m": snapshot(timestamp), "15m": snapshot(timestamp)})
    store.save_snapshots({"5m": snapshot(1240, source="y")})
    assert [each.timestamp for each in store.load_recent("5m", 3, "x")] == [1180, 1120, 1060]
    execute(path, "update snapshots set body = 'garbage' where timestamp = 1120")
    assert [each.timestamp for each in store.load_recent("5m", 3, "x", "y")] == [1240, 1180]


def test_all_windows_of_a_fetch_are_one_transaction(store: Store, path: Path) -> None:
    """When one window's row is refused by the database, none of the fetch is written, and failure says why."""
    execute(
        path, "create trigger t before insert on snapshots when new.window = '5m' begin select raise(abort, 'no'); end"
    )
    store.save_snapshots({"15m": snapshot(), "5m": snapshot()})
    assert rows(path) == []
    assert store.failure == "no"
    execute(path, "drop trigger t")
    store.save_snapshots({"15m": snapshot(), "5m": snapshot()})
    assert len(rows(path)) == 2
    assert store.failure == ""


def test_writing_and_pruning_are_one_transaction(store: Store, path: Path) -> None:
    """When the old cannot be deleted, the new is not written either: the file never holds half of a change."""
    store.save_snapshots({"15m": snapshot(1000)})
    execute(path, "create trigger t before delete on snapshots begin select raise(abort, 'no'); end")
    store.save_snapshots({"15m": snapshot(1000 + 25 * 3600)})
    assert rows(path, "timestamp") == [(1000,)]
    assert store.failure == "no"


def test_old_snapshots_are_pruned(path: Path) -> None:
    """Snapshots older than keep_hours are deleted at the next write."""
    store = Store(path, keep_hours=1)
    for timestamp in (1000, 2000, 4600, 5601):
        store.save_snapshots({"15m": snapshot(timestamp)})
    assert sorted(rows(path, "timestamp")) == [(4600,), (5601,)]
    store.close()


def test_the_oldest_snapshots_go_beyond_the_size(path: Path) -> None:
    """Beyond max_megabytes the oldest go, and no more of them than needed."""
    store = Store(path, max_megabytes=1)
    for timestamp in range(1000, 1020):
        store.save_snapshots({"15m": incompressible(timestamp, 400)})
    kept = sorted(timestamp for (timestamp,) in rows(path, "timestamp"))
    assert kept[-1] == 1019
    sizes = [length for (length,) in rows(path, "length(body)")]
    assert sum(sizes) <= 1024**2 < sum(sizes) + sizes[0]
    store.close()


def test_the_newest_fetch_stays_however_large(path: Path) -> None:
    """A fetch that alone is beyond max_megabytes is kept whole: a restart needs it."""
    store = Store(path, max_megabytes=1)
    for timestamp in (1000, 1060):
        store.save_snapshots({window: incompressible(timestamp, 1500) for window in ("15m", "10m", "5m")})
    assert sorted(rows(path, "window, timestamp")) == [("10m", 1060), ("15m", 1060), ("5m", 1060)]
    store.close()


def test_memory_keeps_no_history() -> None:
    """Without a file only the newest fetch is kept, so that memory does not grow for a day."""
    store = Store(None)
    for timestamp in range(1000, 1010):
        store.save_snapshots({"15m": snapshot(timestamp)})
    assert store._db["snapshots"].count == 1
    store.close()


def test_a_clock_that_was_set_back_does_not_stick(store: Store, path: Path) -> None:
    """Snapshots and samples of the future are deleted at the next write, else they would be the newest for ever."""
    for now in (5000, 1000):
        store.save_snapshots({"15m": snapshot(now)})
        store.save_samples(
            "x", SampleRound.of(now, {"a": Sample(now, (Reading("c", "CPU", 1),))}), keep_since=now - 900
        )
    assert loaded(store)["15m"].timestamp == 1000
    assert rows(path, "timestamp") == [(1000,)]
    assert rows(path, "taken_at", "samples") == [(1000.0,)]


def test_old_samples_are_deleted(store: Store, path: Path) -> None:
    """Saving a sample deletes those before keep_since; loading leaves out those before since."""
    for now in (100.0, 200.0, 300.0):
        store.save_samples("x", SampleRound.of(now, {"a": Sample(now, (Reading("c", "CPU", 1),))}), keep_since=150)
    assert rows(path, "taken_at", "samples") == [(200.0,), (300.0,)]
    assert [taken.taken_at for taken in store.load_samples("x", since=250)] == [300.0]


def test_samples_that_are_no_numbers_are_gaps() -> None:
    """A reading that is not finite is left out of the round."""
    sample = Sample(1, (Reading("c", "CPU", float("nan")), Reading("d", "CPU", float("inf")), Reading("e", "CPU", 1)))
    assert SampleRound.of(1.0, {"a": sample}).values == {("e", "CPU"): {"a": 1.0}}


@pytest.mark.parametrize("garbage", [b"garbage", None, "text", 17, b"", b"x\x9cK\xcaI\xcc\x00\x00"])
def test_a_row_of_garbage_is_passed_over(store: Store, path: Path, garbage: object) -> None:
    """An unreadable snapshot is skipped for the next older one, an unreadable sample is a gap; neither raises."""
    store.save_snapshots({"15m": snapshot(1000), "5m": snapshot(1000)})
    execute(
        path, "insert into snapshots (window, timestamp, source, nodes, body) values ('15m', 1060, 'x', 1, ?)", garbage
    )
    execute(
        path, "insert into snapshots (window, timestamp, source, nodes, body) values ('10m', 1060, 'x', 1, ?)", garbage
    )
    assert loaded(store) == {"15m": snapshot(1000), "5m": snapshot(1000)}
    good = SampleRound.of(1000.0, {"a": Sample(1, (Reading("c", "CPU", 1),))})
    store.save_samples("x", good, keep_since=0)
    execute(path, "insert into samples (source, taken_at, body) values ('x', 1060, ?)", garbage)
    assert store.load_samples("x", since=0) == [good]
    store.save_snapshots({"15m": snapshot(1120)})
    assert store.failure == ""


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"{}", b'{"values": 1, "timestamps": {}}', b'{"values": [[1]]}', b"1"]
)
def test_a_sample_of_another_shape_is_a_gap(store: Store, path: Path, body: bytes) -> None:
    """A sample that is JSON of another shape is skipped."""
    execute(path, "insert into samples (source, taken_at, body) values ('x', 1060, ?)", zlib.compress(body))
    assert store.load_samples("x", since=0) == []


def test_loading_does_not_read_a_days_bodies(path: Path) -> None:
    """Opening a file with much history takes the memory of the newest snapshots, not of all."""
    store = Store(path)
    store.save_snapshots({"15m": snapshot(1060)})
    for timestamp in range(1000, 1060):
        execute(
            path,
            "insert into snapshots (window, timestamp, source, nodes, body) "
            "values ('15m', ?, 'x', 1, randomblob(500000))",
            timestamp,
        )
    tracemalloc.start()
    try:
        assert loaded(store)["15m"].timestamp == 1060
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        store.close()
    assert peak < 2 * 1024**2


# -- clocks that jump ---------------------------------------------------------------------------------------------


def test_a_snapshot_of_the_future_is_not_loaded(store: Store) -> None:
    """The newest that is not of the future is loaded; at the very second it still is."""
    for now in (1000, 9999):
        store.save_snapshots({"15m": snapshot(now)})
    assert store.load_snapshots(["x"], WINDOWS, until=9999)["15m"].timestamp == 9999
    assert store.load_snapshots(["x"], WINDOWS, until=9998)["15m"].timestamp == 1000
    assert store.load_snapshots(["x"], WINDOWS, until=999) == {}


def test_a_clock_that_jumps_ahead_costs_little(store: Store, path: Path) -> None:
    """A fetch two days ahead deletes a few of the oldest and not the history; set right again, all others are there."""
    for now in range(1000, 1100):
        save_both(store, now)
    save_both(store, 1100 + 2 * 86400)
    save_both(store, 1100)
    for column, table in (("timestamp", "snapshots"), ("taken_at", "samples")):
        assert sorted(rows(path, column, table)) == [(now,) for now in range(1005, 1101)]


def test_pruning_catches_up(store: Store, path: Path) -> None:
    """After a long silence all that is old goes, though not at once."""
    for now in range(1000, 1020):
        save_both(store, now)
    for now in range(100_000, 100_005):
        save_both(store, now)
    for column, table in (("timestamp", "snapshots"), ("taken_at", "samples")):
        assert sorted(rows(path, column, table)) == [(now,) for now in range(100_000, 100_005)]


def save_both(store: Store, now: int) -> None:
    """Save a snapshot and a round of samples of which an hour is kept."""
    store.save_snapshots({"15m": snapshot(now)})
    taken = SampleRound.of(now, {"a": Sample(now, (Reading("c", "CPU", 1),))})
    store.save_samples("x", taken, keep_since=now - 3600)


# -- files of other versions --------------------------------------------------------------------------------------


def test_a_file_of_the_previous_schema_is_read_and_brought_up_to_date(path: Path) -> None:
    """A file from before samples were kept serves its snapshots, and takes samples from then on."""
    store = Store(path)
    store.save_snapshots({"15m": snapshot()})
    store.close()
    for table in ("samples", "history_nodes", "history_minutes", "history_blocks"):
        execute(path, f"drop table {table}")
    execute(path, "alter table snapshots drop column origin")
    execute(path, "delete from _sqlite_migrations where name <> 'create_snapshots'")
    after = Store(path)
    assert after.set_aside is None
    assert loaded(after) == {"15m": snapshot()}
    taken = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5),))})
    after.save_samples("x", taken, keep_since=0)
    assert after.load_samples("x", since=0) == [taken]
    assert after.failure == ""
    after.close()


def test_a_file_of_a_newer_version_is_read_and_written(path: Path) -> None:
    """Tables, columns and migrations we do not know are left alone: after a roll-back the older version goes on."""
    store = Store(path)
    store.save_snapshots({"15m": snapshot(1000)})
    store.close()
    execute(path, "alter table snapshots add column quality text default 'fine'")
    execute(path, "alter table samples add column node_count integer")
    execute(path, "create table forecasts (window text primary key, body blob)")
    execute(path, "insert into forecasts values ('15m', x'00')")
    execute(
        path,
        "insert into _sqlite_migrations (migration_set, name, applied_at) "
        "values ('trimaran.watcher', 'add_quality', '2030-01-01')",
    )
    older = Store(path)
    assert older.set_aside is None
    assert loaded(older) == {"15m": snapshot(1000)}
    older.save_snapshots({"15m": snapshot(1060)})
    taken = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5),))})
    older.save_samples("x", taken, keep_since=0)
    assert loaded(older) == {"15m": snapshot(1060)}
    assert older.load_samples("x", since=0) == [taken]
    assert older.failure == ""
    older.close()
    assert rows(path, "timestamp, quality") == [(1000, "fine"), (1060, "fine")]
    assert rows(path, "*", "forecasts") == [("15m", b"\0")]
    assert ("add_quality",) in rows(path, "name", "_sqlite_migrations")


@pytest.mark.parametrize(
    "change",
    [
        "create trigger t before insert on snapshots when new.nodes >= 0 begin select raise(abort, 'newer'); end",
        "alter table samples rename column body to content",
        "drop table samples",
    ],
)
def test_a_file_of_a_newer_version_that_cannot_be_written_is_read_and_left_alone(
    path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its newest snapshots are served, nothing in it is changed or moved, and the failure says why nothing is kept."""
    store = Store(path)
    for timestamp in (1000, 1060):
        store.save_snapshots({"15m": snapshot(timestamp)})
    store.close()
    execute(path, change)
    execute(
        path,
        "insert into _sqlite_migrations (migration_set, name, applied_at) "
        "values ('trimaran.watcher', 'change_all', '2030-01-01')",
    )
    content = path.read_bytes()
    older = Store(path)
    assert "a newer version wrote it" in older.failure
    assert "store.path" in older.failure
    assert loaded(older) == {"15m": snapshot(1060)}
    older.save_snapshots({"15m": snapshot(1120)})
    older.save_snapshots({"15m": snapshot(1180)})
    assert loaded(older) == {"15m": snapshot(1180)}
    assert older.set_aside is None
    older.close()
    assert path.read_bytes() == content
    assert caplog.text.count("the store cannot be used") == 1


def test_a_newer_version_that_is_not_there_yet_leaves_damage_damage(path: Path) -> None:
    """Tables that cannot be written without a newer version's migrations are damaged, and set aside."""
    Store(path).close()
    execute(path, "alter table samples rename column body to content")
    store = Store(path)
    assert store.set_aside is not None
    store.close()


# -- whose they are -----------------------------------------------------------------------------------------------


def test_what_a_source_wrote_about_another_system_is_not_loaded(path: Path) -> None:
    """A source that leads to another cluster now begins anew, in snapshots, samples and the past; both stay kept."""
    taken = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5),))})
    first = Store(path, origins={"x": "http://east", "y": "http://west"})
    first.save_snapshots({"15m": snapshot(1000)})
    first.save_samples("x", taken, keep_since=0)
    first.close()
    other = Store(path, origins={"x": "http://west", "y": "http://east"})
    for sources in (["x"], ["x", "y"]):
        assert other.load_snapshots(sources, WINDOWS) == {}
        assert list(other.load_recent("15m", 10, *sources)) == []
    assert other.load_samples("x", since=0) == []
    other.save_snapshots({"15m": snapshot(1060)})
    other.close()
    again = Store(path, origins={"x": "http://east"})
    assert loaded(again) == {"15m": snapshot(1000)}
    assert again.load_samples("x", since=0) == [taken]
    again.close()


def test_what_an_earlier_version_wrote_is_loaded(path: Path) -> None:
    """Rows that do not say which system they came from are taken for the present one's: an upgrade costs nothing."""
    Store(path).close()
    earlier = sqlite_utils.Database(path)
    row = {"window": "15m", "timestamp": 1000, "source": "x", "nodes": 1, "body": zlib.compress(encode(snapshot(1000)))}
    earlier["snapshots"].insert_all([row], replace=True)
    earlier.close()
    store = Store(path, origins={"x": "http://east"})
    assert loaded(store) == {"15m": snapshot(1000)}
    store.close()


def test_migrations_only_add(path: Path) -> None:
    """The columns that the first version reads and writes are there, and no other is required of a writer."""
    Store(path).close()
    for table, needed in {
        "snapshots": ("window", "timestamp", "source", "nodes", "body"),
        "samples": ("source", "taken_at", "body"),
    }.items():
        columns = rows(path, "name, [notnull], dflt_value", f"pragma_table_info('{table}')")
        assert set(needed) <= {name for name, _, _ in columns}
        assert (1, None) not in [(required, default) for name, required, default in columns if name not in needed]


# -- files that cannot be used ------------------------------------------------------------------------------------


def _overwritten(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def _torn(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize("damage", [_overwritten, _torn, _cut])
def test_a_corrupt_file_is_set_aside(path: Path, damage: object, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file is renamed and logged, its content kept, and a new one works in its place; twice as well."""
    for number in (1, 2):
        store = Store(path)
        store.save_snapshots({"15m": snapshot(nodes=200)})
        store.close()
        damage(path)  # type: ignore[operator]
        content = path.read_bytes()
        after = Store(path)
        assert after.set_aside is not None
        assert after.set_aside.read_bytes() == content
        assert (
            len([file for file in path.parent.glob("*.corrupt-*") if not file.name.endswith(("-wal", "-shm"))])
            == number
        )
        assert "set aside" in caplog.text
        assert loaded(after) == {}
        after.save_snapshots({"15m": snapshot()})
        assert after.failure == ""
        after.close()
        again = Store(path)
        assert again.set_aside is None
        assert loaded(again) == {"15m": snapshot()}
        again.close()


@pytest.mark.parametrize("kind", ["directory", "below a file", "read-only"])
def test_a_place_that_cannot_be_written_is_no_end(path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Memory goes on without the file, and failure keeps saying so after writes that only reach memory."""
    path.parent.mkdir()
    place = path
    if kind == "directory":
        path.mkdir()
    elif kind == "below a file":
        path.write_text("")
        place = path / "watcher.sqlite"
    else:
        place = Path("/proc/trimaran/watcher.sqlite")  # a directory where nobody may write, not even root
    store = Store(place)
    assert f"{place} cannot be opened" in store.failure
    assert "store.path" in store.failure
    assert "the store cannot be used" in caplog.text
    store.save_snapshots({"15m": snapshot()})
    assert loaded(store) == {"15m": snapshot()}
    assert f"{place} cannot be opened" in store.failure
    store.close()


def test_a_full_disk_is_reported_once_and_over_when_it_is(
    store: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A write that finds no room does not raise; failure and one log line say so until a write works again."""
    store.save_snapshots({"15m": snapshot(1000)})
    pages = store._db.execute("pragma page_count").fetchone()[0]
    store._db.execute(f"pragma max_page_count = {pages}")
    for timestamp in (1060, 1120):
        store.save_snapshots({"15m": incompressible(timestamp, 100)})
        assert "full" in store.failure
    assert caplog.text.count("the store cannot be written") == 1
    store._db.execute("pragma max_page_count = 100000")
    store.save_snapshots({"15m": snapshot(1180)})
    assert store.failure == ""
    assert sorted(rows(path, "timestamp")) == [(1000,), (1180,)]


def test_a_disk_that_is_full_at_the_start(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On a real file system without room memory goes on, said once; with room again the file is used from then on."""
    caplog.set_level("INFO")
    path.parent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(path.parent)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        filler = path.parent / "filler"
        filler.write_bytes(b"")
        with contextlib.suppress(OSError):
            filler.write_bytes(bytes(512 * 1024))
        store = Store(path)
        for timestamp in (1000, 1060):
            store.save_snapshots({"15m": snapshot(timestamp)})
            assert loaded(store) == {"15m": snapshot(timestamp)}
            assert f"{path} cannot be opened" in store.failure
        assert caplog.text.count("the store cannot be used") == 1
        filler.unlink()
        store.save_snapshots({"15m": snapshot(1120)})
        assert store.failure == ""
        assert "the store works again" in caplog.text
        with contextlib.suppress(OSError):
            filler.write_bytes(bytes(512 * 1024))
        store.save_snapshots({"15m": incompressible(1180, 300)})
        assert "full" in store.failure or "I/O" in store.failure
        assert loaded(store) == {"15m": snapshot(1120)}
        filler.unlink()
        store.save_snapshots({"15m": snapshot(1240)})
        assert store.failure == ""
        store.close()
        assert rows(path, "timestamp") == [(1060,), (1120,), (1240,)]
    finally:
        subprocess.run(["umount", "--lazy", path.parent], check=True)


def test_a_file_that_becomes_read_only(store: Store, path: Path) -> None:
    """A write that is refused does not raise; what is there is still read, and written when that is possible again."""
    store.save_snapshots({"15m": snapshot(1000)})
    store._db.execute("pragma query_only = on")
    store.save_snapshots({"15m": snapshot(1060)})
    assert "readonly" in store.failure
    assert loaded(store) == {"15m": snapshot(1000)}
    store._db.execute("pragma query_only = off")
    store.save_snapshots({"15m": snapshot(1120)})
    assert store.failure == ""


def test_a_place_that_becomes_usable_is_used(path: Path) -> None:
    """A file that could not be opened at the start is opened at a later write, and gets what was kept in memory."""
    path.parent.write_text("in the way")
    store = Store(path)
    store.save_snapshots({"15m": snapshot(1000)})
    assert "cannot be opened" in store.failure
    path.parent.unlink()
    store.save_snapshots({"15m": snapshot(1060)})
    assert store.failure == ""
    store.close()
    assert rows(path, "timestamp") == [(1000,), (1060,)]


def test_a_locked_file_is_reported(store: Store, path: Path) -> None:
    """While another program holds the file the write is given up, said, and works again afterwards."""
    store._db.execute("pragma busy_timeout = 50")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    store.save_snapshots({"15m": snapshot()})
    assert "locked" in store.failure
    other.execute("commit")
    other.close()
    store.save_snapshots({"15m": snapshot()})
    assert store.failure == ""


def test_a_write_after_closing_does_not_raise(path: Path) -> None:
    """A fetch that ends after the store was closed harms nobody."""
    store = Store(path)
    store.close()
    store.close()
    store.save_snapshots({"15m": snapshot()})
    assert loaded(store) == {}
    assert store.failure


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_writes(path: Path, times: int) -> None:
    """Kill -9 leaves whole fetches only, a sound file, and every snapshot whose write had returned."""
    program = WRITER.format(tests=str(Path(__file__).parents[1]), path=str(path), nodes=300)
    random_ = random.Random(903)
    done = path.parent.parent / "done"
    for _ in range(times):
        before = done.read_text().count("\n") if done.exists() else 0
        with done.open("ab") as output:
            process = subprocess.Popen([sys.executable, "-c", program], stdout=output)
        wait_until(lambda: done.read_text().count("\n") >= before + 2, "the writer writes")  # noqa: B023
        time.sleep(random_.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        committed = int(done.read_text().split()[-1])
        connection = sqlite3.connect(path)
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        windows = connection.execute(
            "select timestamp, count(*) from snapshots group by 1 having count(*) != 3"
        ).fetchall()
        assert windows == []
        connection.close()
        store = Store(path)
        found = loaded(store)
        store.close()
        assert set(found) == {"15m", "10m", "5m"}
        for metrics in found.values():
            assert metrics.timestamp >= committed
            assert metrics == snapshot(metrics.timestamp, metrics.timestamp % 100, nodes=300)
    assert store.set_aside is None
