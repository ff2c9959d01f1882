"""The store: snapshots and samples in a file that survives a crash."""

import contextlib
import gc
import random
import shutil
import sqlite3
import subprocess
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlite_utils
from support.histories import save_fetch
from support.killed import check, run_and_kill
from support.pod_rounds import pod_round
from support.snapshots import WINDOWS, WRITER, load_windows, rows, snapshot
from support.workload_rounds import measured

from watcher.history import Steps
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.providers.base import Reading, Sample
from watcher.store import Store
from watcher.usage.history.persistent_pod_use import PersistentPodUse
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.store import UsageTables
from watcher.windows.samples import SampleRound
from watcher.wire import encode


def incompressible(timestamp: int, kilobytes: int) -> WatcherMetrics:
    """Return a snapshot that takes about this many kilobytes in the file."""
    text = random.Random(timestamp).randbytes(kilobytes * 512).hex()
    return WatcherMetrics(
        timestamp,
        Window("15m", timestamp - 900, timestamp),
        "x",
        {"a": NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", 1.0),), {"filler": text})},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of the store's file, in a folder that does not exist yet."""
    return tmp_path / "sub" / "watcher.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open store on disk."""
    store = Store(path)
    yield store
    store.close()


def execute(path: Path, statement: str, *values: object) -> None:
    """Change the file directly, without the store."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize("in_memory", [False, True])
def test_newest_snapshots_are_loaded(path: Path, in_memory: bool) -> None:
    """The newest snapshot of each window is loaded, from a file and from memory."""
    store = Store(None if in_memory else path)
    store.save_snapshots({"15m": snapshot(1000), "5m": snapshot(1000, 5)})
    store.save_snapshots({"15m": snapshot(1060, 7, nodes=3)})
    assert load_windows(store) == ({"15m": snapshot(1060, 7, nodes=3)} if in_memory else
                                         {"15m": snapshot(1060, 7, nodes=3), "5m": snapshot(1000, 5)})  # fmt: skip
    assert store.failure == ""
    store.close()


def test_saved_data_survives_closing(path: Path) -> None:
    """A store that opens the file later, in folders that were created, loads the snapshot and the samples."""
    path = path.parent / "deeper" / path.name
    first = Store(path)
    first.save_snapshots({"15m": snapshot()})
    samples = SampleRound.of(
        1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5), Reading("memory", "Memory", 3)))}
    )
    first.save_samples("x", samples, keep_since=0)
    first.close()
    second = Store(path)
    assert load_windows(second) == {"15m": snapshot()}
    assert second.load_samples("x", since=0) == [samples]
    second.close()


def test_a_node_named_as_gos_key_is_loaded(store: Store) -> None:
    """A node named NodeMetricsMap is loaded as a node, with or without metrics and other nodes."""
    node = snapshot().data["node-0"]
    for data in ({"NodeMetricsMap": node}, {"NodeMetricsMap": node, "b": node}, {"NodeMetricsMap": NodeMetrics(())}):
        metrics = replace(snapshot(), data=data)
        store.save_snapshots({"15m": metrics})
        assert load_windows(store) == {"15m": metrics}
        assert [*store.load_recent("15m", 1, "x")] == [metrics]


def test_sources_are_kept_apart(store: Store) -> None:
    """Data of another source is not loaded."""
    store.save_snapshots({"15m": snapshot(source="x")})
    store.save_samples("x", SampleRound.of(1.0, {"a": Sample(1, (Reading("cpu", "CPU", 1),))}), keep_since=0)
    assert load_windows(store, "y") == {}
    assert store.load_samples("y", since=0) == []


def test_the_recent_snapshots_come_newest_first(store: Store, path: Path) -> None:
    """load_recent returns one window's snapshots of the sources, newest first, and skips unreadable ones."""
    for timestamp in (1000, 1060, 1120, 1180):
        store.save_snapshots({"5m": snapshot(timestamp), "15m": snapshot(timestamp)})
    store.save_snapshots({"5m": snapshot(1240, source="y")})
    assert [metrics.timestamp for metrics in store.load_recent("5m", 3, "x")] == [1180, 1120, 1060]
    execute(path, "update snapshots set body = 'garbage' where timestamp = 1120")
    assert [metrics.timestamp for metrics in store.load_recent("5m", 3, "x", "y")] == [1240, 1180]


def test_all_windows_of_a_fetch_are_one_transaction(store: Store, path: Path) -> None:
    """If the database refuses one window's row, nothing of the fetch is written, and failure has the reason."""
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
    """If pruning fails, the new snapshot is not written either."""
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


def test_oldest_snapshots_are_pruned_beyond_the_size(path: Path) -> None:
    """Beyond max_megabytes the oldest snapshots are deleted, and no more than necessary."""
    store = Store(path, max_megabytes=1)
    for timestamp in range(1000, 1020):
        store.save_snapshots({"15m": incompressible(timestamp, 400)})
    timestamps = sorted(timestamp for (timestamp,) in rows(path, "timestamp"))
    assert timestamps[-1] == 1019
    sizes = [length for (length,) in rows(path, "length(body)")]
    assert sum(sizes) <= 1024**2 < sum(sizes) + sizes[0]
    store.close()


def test_newest_fetch_is_never_pruned(path: Path) -> None:
    """A fetch that is larger than max_megabytes stays complete, for the next restart."""
    store = Store(path, max_megabytes=1)
    for timestamp in (1000, 1060):
        store.save_snapshots({window: incompressible(timestamp, 1500) for window in ("15m", "10m", "5m")})
    assert sorted(rows(path, "window, timestamp")) == [("10m", 1060), ("15m", 1060), ("5m", 1060)]
    store.close()


def test_memory_keeps_no_history() -> None:
    """Without a file only the newest fetch is stored, so that memory does not grow."""
    store = Store(None)
    for timestamp in range(1000, 1010):
        store.save_snapshots({"15m": snapshot(timestamp)})
    assert store._db["snapshots"].count == 1
    store.close()


def test_rows_from_the_future_are_deleted(store: Store, path: Path) -> None:
    """After the clock was set back, the next write deletes snapshots and samples from the future."""
    for now in (5000, 1000):
        store.save_snapshots({"15m": snapshot(now)})
        store.save_samples(
            "x", SampleRound.of(now, {"a": Sample(now, (Reading("c", "CPU", 1),))}), keep_since=now - 900
        )
    assert load_windows(store)["15m"].timestamp == 1000
    assert rows(path, "timestamp") == [(1000,)]
    assert rows(path, "taken_at", "samples") == [(1000.0,)]


def test_old_samples_are_deleted(store: Store, path: Path) -> None:
    """Saving samples deletes those before keep_since, and loading skips those before since."""
    for now in (100.0, 200.0, 300.0):
        store.save_samples("x", SampleRound.of(now, {"a": Sample(now, (Reading("c", "CPU", 1),))}), keep_since=150)
    assert rows(path, "taken_at", "samples") == [(200.0,), (300.0,)]
    assert [samples.taken_at for samples in store.load_samples("x", since=250)] == [300.0]


def test_samples_that_are_not_finite_are_left_out() -> None:
    """A reading that is not finite is left out of the round."""
    sample = Sample(1, (Reading("c", "CPU", float("nan")), Reading("d", "CPU", float("inf")), Reading("e", "CPU", 1)))
    assert SampleRound.of(1.0, {"a": sample}).values == {("e", "CPU"): {"a": 1.0}}


@pytest.mark.parametrize(
    "garbage", ["x'11'", "null", "'text'", "17", "x''", "x'789c4bca49cc0000'", "cast(x'ff' as text)"]
)
def test_unreadable_rows_are_skipped(store: Store, path: Path, garbage: str) -> None:
    """An unreadable snapshot is skipped for the next older one, and an unreadable round of samples is a gap."""
    store.save_snapshots({"15m": snapshot(1000), "5m": snapshot(1000)})
    columns = "insert into snapshots (window, timestamp, source, nodes, body) values"
    for window in ("15m", "10m"):
        execute(path, f"{columns} ('{window}', 1060, 'x', 1, {garbage})")
    assert load_windows(store) == {"15m": snapshot(1000), "5m": snapshot(1000)}
    good = SampleRound.of(1000.0, {"a": Sample(1, (Reading("c", "CPU", 1),))})
    store.save_samples("x", good, keep_since=0)
    execute(path, f"insert into samples (source, taken_at, body) values ('x', 1060, {garbage})")
    assert store.load_samples("x", since=0) == [good]
    store.save_snapshots({"15m": snapshot(1120)})
    assert store.failure == ""


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"{}", b'{"values": 1, "timestamps": {}}', b'{"values": [[1]]}', b"1"]
)
def test_a_sample_of_another_shape_is_a_gap(store: Store, path: Path, body: bytes) -> None:
    """Samples that are JSON of another shape are skipped."""
    execute(path, "insert into samples (source, taken_at, body) values ('x', 1060, ?)", zlib.compress(body))
    assert store.load_samples("x", since=0) == []


def test_loading_reads_only_the_newest_bodies(path: Path) -> None:
    """Loading from a long history takes the memory of the newest snapshots, not of all snapshots."""
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
        assert load_windows(store)["15m"].timestamp == 1060
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        store.close()
    assert peak < 2 * 1024**2


def test_windows_of_a_fetch_may_differ_in_time(store: Store) -> None:
    """All windows of a fetch are kept, also if their snapshots have different times."""
    fetch = {"15m": snapshot(1060), "5m": snapshot(1000)}
    store.save_snapshots(fetch)
    assert load_windows(store) == fetch


def test_data_from_a_time_on_is_forgotten(store: Store, path: Path) -> None:
    """Snapshots and samples from the given second on are deleted, the samples of their source only."""
    for now in (1000, 1060, 1120):
        save_both(store, now)
        store.save_samples("y", SampleRound.of(now, {}), keep_since=0)
    store.forget_snapshots(since=1060)
    store.forget_samples("x", since=1060)
    assert rows(path, "timestamp") == [(1000,)]
    assert sorted(rows(path, "source, taken_at", "samples")) == [("x", 1000), ("y", 1000), ("y", 1060), ("y", 1120)]


def test_the_history_has_its_limits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history gets the snapshot of its window with its limits, in whole hours and in bytes."""
    given: list[object] = []

    def add(_: object, metrics: WatcherMetrics, origin: str, **limits: int) -> None:
        given.append((metrics, origin, limits))

    monkeypatch.setattr("watcher.store.history.add", add)
    store = Store(path, keep_hours=2.5, history_megabytes=1.5, origins={"x": "east"})
    store.save_snapshots({"15m": snapshot(1060), "5m": snapshot(1000)}, history_window="5m")
    assert given == [(snapshot(1000), "east", {"keep_hours": 3, "max_bytes": 1_572_864})]
    store.save_snapshots({"15m": snapshot(1120)}, history_window="5m")
    store.save_snapshots({"15m": snapshot(1180)})
    assert (len(given), store.failure) == (1, "")
    store.close()


def test_a_store_that_works_opens_its_file_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A file that nothing disturbs is opened once, has a history, and is written without a word in the log."""
    for now in (1000, 1060):
        save_both(store, now)
        store.reopen()
    assert (store.times_opened, store.set_aside, store.times_set_aside, store.failure) == (1, None, 0, "")
    assert (store.has_file, store.keeps_history) == (True, True)
    assert caplog.text == ""


# -- clocks that jump ---------------------------------------------------------------------------------------------


def test_a_snapshot_of_the_future_is_not_loaded(store: Store) -> None:
    """The newest snapshot up to the given second is loaded, and none from after it."""
    for now in (1000, 9999):
        store.save_snapshots({"15m": snapshot(now)})
    assert store.load_snapshots(["x"], WINDOWS, until=9999)["15m"].timestamp == 9999
    assert store.load_snapshots(["x"], WINDOWS, until=9998)["15m"].timestamp == 1000
    assert store.load_snapshots(["x"], WINDOWS, until=999) == {}


def test_a_clock_that_jumps_ahead_deletes_little(store: Store, path: Path) -> None:
    """A write two days ahead deletes a few of the oldest rows; the others are still there after a correction."""
    for now in range(1000, 1100):
        save_both(store, now)
    save_both(store, 1100 + 2 * 86400)
    save_both(store, 1100)
    for column, table in (("timestamp", "snapshots"), ("taken_at", "samples")):
        assert sorted(rows(path, column, table)) == [(now,) for now in range(1005, 1101)]


def test_pruning_catches_up(store: Store, path: Path) -> None:
    """After a long pause, later writes delete all old rows in several steps."""
    for now in range(1000, 1020):
        save_both(store, now)
    for now in range(100_000, 100_005):
        save_both(store, now)
    for column, table in (("timestamp", "snapshots"), ("taken_at", "samples")):
        assert sorted(rows(path, column, table)) == [(now,) for now in range(100_000, 100_005)]


def save_both(store: Store, now: int) -> None:
    """Save a snapshot and a round of samples; samples are kept for an hour."""
    store.save_snapshots({"15m": snapshot(now)})
    samples = SampleRound.of(now, {"a": Sample(now, (Reading("c", "CPU", 1),))})
    store.save_samples("x", samples, keep_since=now - 3600)


# -- files of other versions --------------------------------------------------------------------------------------


def test_a_file_of_an_older_schema_is_migrated(path: Path) -> None:
    """A file of the first version serves its snapshots, and gets and uses the tables of all later migrations."""
    store = Store(path)
    store.save_snapshots({"15m": snapshot()})
    store.close()
    for (table,) in rows(path, "name", "sqlite_master where type = 'table'"):
        if table not in {"snapshots", "_sqlite_migrations"}:
            execute(path, f"drop table {table}")
    execute(path, "alter table snapshots drop column origin")
    execute(path, "delete from _sqlite_migrations where name <> 'create_snapshots'")
    after = Store(path)
    assert after.set_aside is None
    assert load_windows(after) == {"15m": snapshot()}
    samples = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5),))})
    after.save_samples("x", samples, keep_since=0)
    assert after.load_samples("x", since=0) == [samples]
    save_fetch(after, 3600, {"a": 7})
    assert after.load_history(["x"], Steps(3600, 60, 1), "a", "CPU", "AVG", until=3660).of("CPU").tolist() == [[7]]
    LearnerService(after, "x").observe(*measured(0))
    PersistentPodUse(after, "x", dict).observe(*pod_round(0))
    tables = UsageTables(after, "x")
    assert (len(tables.load_state()), len(tables.load_pods().blocks)) == (2, 1)
    assert after.failure == ""
    after.close()


def test_a_file_of_a_newer_version_is_read_and_written(path: Path) -> None:
    """Unknown tables, columns and migrations stay unchanged: after a rollback the older version works on the file."""
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
    assert load_windows(older) == {"15m": snapshot(1000)}
    older.save_snapshots({"15m": snapshot(1060)})
    samples = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5),))})
    older.save_samples("x", samples, keep_since=0)
    assert load_windows(older) == {"15m": snapshot(1060)}
    assert older.load_samples("x", since=0) == [samples]
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
def test_an_incompatible_file_of_a_newer_version_is_read_only(
    path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest snapshots are served, the file is neither changed nor moved, and failure has the reason."""
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
    assert "newer version" in older.failure
    assert "store.path" in older.failure
    assert load_windows(older) == {"15m": snapshot(1060)}
    older.save_snapshots({"15m": snapshot(1120)})
    older.save_snapshots({"15m": snapshot(1180)})
    assert load_windows(older) == {"15m": snapshot(1180)}
    assert older.set_aside is None
    older.close()
    assert path.read_bytes() == content
    assert caplog.text.count("the store cannot be used") == 1


def test_unusable_tables_without_newer_migrations_are_set_aside(path: Path) -> None:
    """Tables that cannot be written count as damaged unless the file has a newer version's migrations."""
    Store(path).close()
    execute(path, "alter table samples rename column body to content")
    store = Store(path)
    assert store.set_aside is not None
    store.close()


# -- origins ------------------------------------------------------------------------------------------------------


def test_data_of_another_origin_is_not_loaded(path: Path) -> None:
    """A source whose origin changed loads nothing of the old origin; the old data stays in the file."""
    samples = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5),))})
    first = Store(path, origins={"x": "http://east", "y": "http://west"})
    first.save_snapshots({"15m": snapshot(1000)})
    first.save_samples("x", samples, keep_since=0)
    first.close()
    other = Store(path, origins={"x": "http://west", "y": "http://east"})
    for sources in (["x"], ["x", "y"]):
        assert other.load_snapshots(sources, WINDOWS) == {}
        assert list(other.load_recent("15m", 10, *sources)) == []
    assert other.load_samples("x", since=0) == []
    other.save_snapshots({"15m": snapshot(1060)})
    other.close()
    again = Store(path, origins={"x": "http://east"})
    assert load_windows(again) == {"15m": snapshot(1000)}
    assert again.load_samples("x", since=0) == [samples]
    again.close()


def test_rows_without_an_origin_are_loaded(path: Path) -> None:
    """Rows of an earlier version, which have no origin, count as rows of the present origin."""
    Store(path).close()
    earlier = sqlite_utils.Database(path)
    row = {"window": "15m", "timestamp": 1000, "source": "x", "nodes": 1, "body": zlib.compress(encode(snapshot(1000)))}
    earlier["snapshots"].insert_all([row], replace=True)
    earlier.close()
    store = Store(path, origins={"x": "http://east"})
    assert load_windows(store) == {"15m": snapshot(1000)}
    store.close()


def test_migrations_only_add(path: Path) -> None:
    """The columns of the first version exist, and every other column is nullable or has a default."""
    Store(path).close()
    for table, needed in {
        "snapshots": ("window", "timestamp", "source", "nodes", "body"),
        "samples": ("source", "taken_at", "body"),
    }.items():
        columns = rows(path, "name, [notnull], dflt_value", f"pragma_table_info('{table}')")
        assert set(needed) <= {name for name, _, _ in columns}
        assert (1, None) not in [(required, default) for name, required, default in columns if name not in needed]


def test_each_row_has_a_key(path: Path) -> None:
    """Each table has one unique key, so that a row that is written again replaces the first one."""
    Store(path).close()
    for table, key in {
        "snapshots": "window, timestamp",
        "samples": "source, taken_at",
        "history_nodes": "name",  # the number is the row's identifier
        "history_minutes": "minute, source, origin, type, operator, name",
        "history_blocks": "hour, source, origin, type, operator, name, chunk",
        "history_apart": "hour",
        "workload_state": "source, origin, part",
        "pod_use_pods": "source, origin, number",
        "pod_use_blocks": "source, origin, hour",
    }.items():
        indexes = f"pragma_index_list('{table}') as each, pragma_index_info(each.name) as part where each.[unique]"
        assert rows(path, "group_concat(part.name, ', ')", indexes) == [(key,)]


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
    """A damaged file is renamed with its content and logged, and a new file replaces it, repeatedly."""
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
        assert load_windows(after) == {}
        after.save_snapshots({"15m": snapshot()})
        assert after.failure == ""
        after.close()
        again = Store(path)
        assert again.set_aside is None
        assert load_windows(again) == {"15m": snapshot()}
        again.close()


@pytest.mark.parametrize("kind", ["directory", "below a file", "read-only"])
def test_an_unwritable_path_falls_back_to_memory(path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The store continues in memory, and failure keeps its reason after writes that only reach memory."""
    path.parent.mkdir()
    place = path
    if kind == "directory":
        path.mkdir()
    elif kind == "below a file":
        path.write_text("")
        place = path / "watcher.sqlite"
    else:
        place = Path("/proc/trimaran/watcher.sqlite")  # not writable, not even for root
    store = Store(place)
    assert str(place) in store.failure
    assert "store.path" in store.failure
    assert "the store cannot be used" in caplog.text
    store.save_snapshots({"15m": snapshot()})
    assert load_windows(store) == {"15m": snapshot()}
    assert "nothing will survive a restart" in store.failure
    store.close()


@pytest.mark.parametrize(
    ("refuse", "allow", "reason"),
    [("max_page_count = 1", "max_page_count = 100000", "full"), ("query_only = on", "query_only = off", "readonly")],
)
def test_a_refused_write_is_reported_until_one_succeeds(
    store: Store, path: Path, caplog: pytest.LogCaptureFixture, refuse: str, allow: str, reason: str
) -> None:
    """On a full disk or a read-only file a write does not raise; failure and one log line report it; reads go on."""
    store.save_snapshots({"15m": snapshot(1000)})
    store._db.execute(f"pragma {refuse}")
    for timestamp in (1060, 1120):
        store.save_snapshots({"15m": incompressible(timestamp, 100)})
        assert reason in store.failure
        assert load_windows(store) == {"15m": snapshot(1000)}
    assert caplog.text.count("the store cannot be written") == 1
    store._db.execute(f"pragma {allow}")
    store.save_snapshots({"15m": snapshot(1180)})
    assert store.failure == ""
    assert sorted(rows(path, "timestamp")) == [(1000,), (1180,)]


def test_a_disk_that_is_full_at_the_start(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On a full file system the store continues in memory with one log line, and uses the file once there is room."""
    caplog.set_level("INFO")
    path.parent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(path.parent)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        filler = path.parent / "filler"
        filler.write_bytes(b"")
        with contextlib.suppress(OSError):
            filler.write_bytes(bytes(512 * 1024))
        store = Store(path)
        for timestamp in (1000, 1060):
            store.save_snapshots({"15m": snapshot(timestamp)})
            assert load_windows(store) == {"15m": snapshot(timestamp)}
            assert str(path) in store.failure
        assert caplog.text.count("the store cannot be used") == 1
        filler.unlink()
        store.save_snapshots({"15m": snapshot(1120)})
        assert store.failure == ""
        assert "the store works again" in caplog.text
        with contextlib.suppress(OSError):
            filler.write_bytes(bytes(512 * 1024))
        store.save_snapshots({"15m": incompressible(1180, 300)})
        assert "full" in store.failure or "I/O" in store.failure
        assert load_windows(store) == {"15m": snapshot(1120)}
        filler.unlink()
        store.save_snapshots({"15m": snapshot(1240)})
        assert store.failure == ""
        store.close()
        assert rows(path, "timestamp") == [(1060,), (1120,), (1240,)]
    finally:
        subprocess.run(["umount", "--lazy", path.parent], check=True)


def test_a_file_system_that_becomes_read_only(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After an error of the disk the file is read on, with one log line; a restart after a repair goes on with it."""
    path.parent.mkdir()
    image = path.parents[1] / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    mount = ["mount", "-o", "loop", str(image), str(path.parent)]
    made = shutil.which("mkfs.ext4") and subprocess.run(["mkfs.ext4", "-q", image], check=False).returncode == 0
    if not made or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a file system from an image")
    try:
        store = Store(path)
        store.save_snapshots({"15m": snapshot(1000)})
        subprocess.run(["sync", "--file-system", path], check=True)
        subprocess.run(["mount", "-o", "remount,abort", path.parent], check=True)  # as ext4 does after an error
        for timestamp in (1060, 1120):
            store.save_snapshots({"15m": snapshot(timestamp)})
            assert store.failure
            assert load_windows(store) == {"15m": snapshot(1000)}
        assert caplog.text.count("the store cannot be written") == 1
        store.close()
        subprocess.run(["umount", path.parent], check=True)
        subprocess.run(["e2fsck", "-fy", image], check=False, capture_output=True)
        subprocess.run(mount, check=True)
        store = Store(path)
        assert load_windows(store) == {"15m": snapshot(1000)}
        store.save_snapshots({"15m": snapshot(1180)})
        assert (store.failure, store.set_aside) == ("", None)
        store.close()
        assert rows(path, "timestamp") == [(1000,), (1180,)]
    finally:
        subprocess.run(["umount", "--lazy", path.parent], check=False)


def test_the_file_is_opened_later(path: Path) -> None:
    """A file that could not be opened at the start is opened at a later write, and gets the snapshots from memory."""
    path.parent.write_text("in the way")
    store = Store(path)
    store.save_snapshots({"15m": snapshot(1000)})
    assert "cannot be opened" in store.failure
    path.parent.unlink()
    store.save_snapshots({"15m": snapshot(1060)})
    assert store.failure == ""
    store.close()
    assert rows(path, "timestamp") == [(1000,), (1060,)]


@pytest.mark.usefixtures("short_handover")
def test_a_file_that_can_be_used_again_gets_what_it_lacks(path: Path) -> None:
    """The file gets the snapshots and samples from memory, but its own rows of the same time stay."""
    first = Store(path)
    first.save_snapshots({"15m": snapshot(1000, 1)})
    second = Store(path)
    second.save_snapshots({"15m": snapshot(1000, 2), "5m": snapshot(1000, 3)})
    samples = SampleRound.of(1000.5, {"a": Sample(999.5, (Reading("cpu", "CPU", 12.5),))})
    second.save_samples("x", samples, keep_since=0)
    first.close()
    second.reopen()
    assert load_windows(second) == {"15m": snapshot(1000, 1), "5m": snapshot(1000, 3)}
    assert second.load_samples("x", since=0) == [samples]
    assert (second.failure, second.times_opened) == ("", 1)
    second.close()


def test_a_locked_file_is_reported(store: Store, path: Path) -> None:
    """While another program locks the file, a write fails with failure set, and succeeds after the lock is released."""
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
    """Writing to a closed store does not raise and sets failure."""
    store = Store(path)
    store.close()
    store.close()
    store.save_snapshots({"15m": snapshot()})
    assert load_windows(store) == {}
    assert store.failure


def test_a_dropped_store_in_memory_is_closed() -> None:
    """A store without a file needs no close(): its connection does not wait for the garbage collection."""
    store = Store(None)
    database = store._db
    store.itself = store  # type: ignore[attr-defined]
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("select 1")


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_writes(path: Path, times: int) -> None:
    """After kill -9 the file is sound and has complete fetches only, including every committed snapshot."""
    random_ = random.Random(903)
    for _ in range(times):
        committed = run_and_kill(WRITER, path, random_, nodes=300)
        assert check(path, committed, nodes=300)[0] == []
