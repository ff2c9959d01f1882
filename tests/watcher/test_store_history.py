"""The history of nodes' use over the last hours, in a file that survives a crash."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.histories import save_fetch
from support.killed import integrity, run_and_kill

from watcher.history import BadHistoryQuery, History, Steps, start_time, step_seconds
from watcher.store import Store, history_blocks, schema
from watcher.windows.past_metrics import PastMetrics

HOUR = 3600
START = 1_700_000 * HOUR  # the beginning of an hour


def stored(
    store: Store, start: int, minutes: int, node: str | None = None, step: int = 60, operator: str = "AVG"
) -> History:
    """Read the history of CPU."""
    steps = Steps(start, step, minutes * 60 // step)
    return store.load_history(["x"], steps, node, "CPU", operator, until=start + 60 * minutes)


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Read the file directly, without the store."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of the store's file."""
    return tmp_path / "watcher.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open store on disk."""
    store = Store(path)
    yield store
    store.close()


def test_minutes_are_loaded(store: Store) -> None:
    """Each node's value of each minute is loaded, rounded to hundredths; a missing value is NaN."""
    save_fetch(store, START, {"a": 10.004, "b": 20})
    save_fetch(store, START + 120, {"b": 40, "c": 99.99})
    history = stored(store, START, 3)
    assert history.nodes == ("a", "b", "c")
    expected = [[10, np.nan, np.nan], [20, np.nan, 40], [np.nan, np.nan, 99.99]]
    np.testing.assert_array_equal(history.of("CPU"), np.array(expected, np.float32), strict=True)
    assert store.history_metrics(["x"]) == {("CPU", "AVG"), ("Memory", "AVG")}


def test_a_history_goes_on_under_another_spelling(store: Store) -> None:
    """A node whose name changes in case alone keeps its history, which both spellings find; others stay apart."""
    save_fetch(store, START, {"Worker-A": 10, "both": 1, "Both": 2})
    save_fetch(store, START + 60, {"worker-a": 20, "both": 3, "BOTH": 4})
    for name in ("Worker-A", "worker-a"):
        history = stored(store, START, 2, name)
        assert history.nodes == ("worker-a",)
        np.testing.assert_array_equal(history.of("CPU"), np.array([[10, 20]], np.float32))
    np.testing.assert_array_equal(stored(store, START, 2, "both").of("CPU"), np.array([[1, 3]], np.float32))
    assert stored(store, START, 2).nodes == ("BOTH", "both", "worker-a")


def test_packed_hours_have_the_same_values(store: Store, path: Path) -> None:
    """Across hours and blocks of nodes, all values are loaded, whether they are packed or not."""
    random_ = np.random.default_rng(5)
    names = [f"node-{number:03}" for number in range(300)]
    loads = np.round(random_.uniform(0, 100, (300, 150)), 2)
    for minute in range(150):
        save_fetch(store, START + 60 * minute, dict(zip(names, loads[:, minute].tolist(), strict=True)))
    assert rows(path, "select hour, count(*) from history_blocks group by 1") == [(1_700_000, 6), (1_700_001, 6)]
    assert rows(path, "select count(distinct minute) from history_minutes") == [(30,)]
    history = stored(store, START, 150)
    assert history.nodes == tuple(names)
    np.testing.assert_allclose(history.of("CPU"), loads, atol=1e-4)
    one = stored(store, START + 30 * 60, 60, "node-200")
    np.testing.assert_allclose(one.of("CPU"), loads[200:201, 30:90], atol=1e-4)
    assert [
        (series.type, series.operator)
        for series in store.load_history(["x"], Steps(START, 60, 9), "node-1", None, None, until=START + 540).series
    ] == []
    every = store.load_history(["x"], Steps(START, 60, 150), "node-001", None, None, until=START + 9000)
    np.testing.assert_allclose(every.of("Memory"), 100 - loads[1:2], atol=1e-4)


def test_a_step_is_the_mean_of_its_minutes(store: Store) -> None:
    """A step is the mean of its minutes' values, the maximum for MAX, and NaN without values."""
    for minute, load in ((0, 10), (1, 20), (3, 60), (7, 1)):
        save_fetch(store, START + 60 * minute, {"a": load})
    np.testing.assert_array_equal(stored(store, START, 12, step=180).of("CPU")[0], [15, 60, 1, np.nan])
    for minute, load in ((12, 10), (13, 20)):
        save_fetch(store, START + 60 * minute, {"a": load}, operator="MAX")
    np.testing.assert_array_equal(stored(store, START + 720, 3, step=180, operator="MAX").of("CPU", "MAX")[0], [20])


def test_the_first_fetch_of_a_minute_is_kept(store: Store) -> None:
    """With several fetches in a minute, the first one is stored."""
    for second in range(90):
        save_fetch(store, START + second, {"a": second})
    np.testing.assert_array_equal(stored(store, START, 2).of("CPU")[0], [0, 60])


def test_sources_are_kept_apart(path: Path) -> None:
    """Data of another source, or of another origin of the same source, is not loaded."""
    store = Store(path, origins={"x": "cluster 1"})
    save_fetch(store, START, {"a": 10})
    save_fetch(store, START + 60, {"a": 20}, source="y")
    np.testing.assert_array_equal(stored(store, START, 2).of("CPU")[0], [10, np.nan])
    save_fetch(store, START + HOUR, {"a": 30})
    both = store.load_history(["x", "y"], Steps(START, 60, 2), None, "CPU", "AVG", until=START + HOUR)
    np.testing.assert_array_equal(both.of("CPU")[0], [10, 20])
    store.close()
    other = Store(path, origins={"x": "cluster 2"})
    assert stored(other, START, 2).nodes == ()
    save_fetch(other, START + 120, {"a": 30})
    np.testing.assert_array_equal(stored(other, START, 3).of("CPU")[0], [np.nan, np.nan, 30])
    other.close()


def test_nodes_that_come_and_go_never_mix(store: Store, path: Path) -> None:
    """A node's number is given to another node only after all data of the first one was deleted."""
    store.keep_seconds = 3 * HOUR
    for hour in range(12):
        for minute in (0, 30):
            save_fetch(
                store, START + hour * HOUR + 60 * minute, {"stays": 50, f"node-{hour}": hour, f"also-{hour}": hour}
            )
        history = stored(store, START + max(0, hour - 2) * HOUR, 60 * min(hour + 1, 3))
        assert {f"node-{each}" for each in range(max(0, hour - 2), hour + 1)} <= set(history.nodes)
        for name, values in zip(history.nodes, history.of("CPU"), strict=True):
            values_present = set(values[~np.isnan(values)].tolist())
            assert values_present == {50 if name == "stays" else int(name.partition("-")[2])}
    assert rows(path, "select max(number) < 12, count(*) < 12 from history_nodes") == [(1, 1)]


def test_old_hours_are_pruned(path: Path) -> None:
    """Hours beyond keep_hours, and one more, are deleted as new hours are written."""
    store = Store(path, keep_hours=3)
    for hour in range(8):
        save_fetch(store, START + hour * HOUR, {"a": hour})
    assert rows(path, "select min(hour) - 1700000, max(hour) - 1700000 from history_blocks") == [(3, 6)]
    store.close()


@pytest.mark.slow
def test_the_history_stays_within_its_size(path: Path) -> None:
    """Beyond history_megabytes the oldest hours are deleted; with 0 no history is stored."""
    random_ = np.random.default_rng(5)
    store = Store(path, history_megabytes=1, max_megabytes=1)
    names = [f"node-{number}" for number in range(1000)]
    for hour in range(10):
        for minute in range(0, 60, 3):
            loads = random_.uniform(0, 100, 1000).tolist()
            save_fetch(store, START + hour * HOUR + 60 * minute, dict(zip(names, loads, strict=True)))
    ((size, first, last),) = rows(path, "select sum(length(body)), min(hour), max(hour) from history_blocks")
    assert 0 < int(str(size)) <= 2**20
    assert (last, first > 1_700_000) == (1_700_008, True)
    store.close()
    assert path.stat().st_size < 4 * 2**20
    none = Store(path.with_name("none.sqlite"), history_megabytes=0)
    save_fetch(none, START, {"a": 1})
    assert stored(none, START, 1).nodes == ()
    none.close()


def test_memory_has_no_history(caplog: pytest.LogCaptureFixture) -> None:
    """A store in memory has no history, which is no error."""
    store = Store(None)
    save_fetch(store, START, {"a": 1})
    assert stored(store, START, 1).nodes == ()
    assert caplog.text == ""
    store.close()


# -- gaps ---------------------------------------------------------------------------------------------------------


def past(minutes: range, loads: dict[str, float]) -> PastMetrics:
    """Return values of the past: the load plus one hundredth per minute as CPU."""
    cpu = np.array([[load + minute / 100 for minute in minutes] for load in loads.values()])
    return PastMetrics(START + 60 * np.array(minutes), tuple(loads), {("CPU", "AVG", "cpu"): cpu})


def recorded(store: Store, hour: int = 0, source: str = "x") -> list[int]:
    """Return the recorded minutes of an hour, counted from the start."""
    return np.flatnonzero(store.recorded_minutes([source], 1_700_000 + hour)).tolist()


def test_recorded_minutes_of_an_hour(store: Store) -> None:
    """A minute is recorded if a row or a block has a value of one node; all are if the file cannot be read."""
    for minute in (60, 61, 59, 56):  # the clock was set back, so both hours have rows
        save_fetch(store, START + 60 * minute, {"a": 1, "b": 2})
    store.fill_history(past(range(9, 12), {"a": 5}), "x")
    assert recorded(store) == [9, 10, 11, 56, 59]
    assert recorded(store, 1) == [0, 1]
    assert recorded(store, -1) == recorded(store, source="y") == []
    store.write(lambda db: db.execute("update history_blocks set body = 'garbage'"))
    assert recorded(store) == [56, 59]
    store.close()
    assert recorded(store) == list(range(60))  # so that nothing is filled


def test_gaps_are_filled(store: Store) -> None:
    """Values of the past fill gaps only, for more nodes than a block has; missing values stay gaps."""
    save_fetch(store, START, {"node-000": 50})
    store.fill_history(past(range(2, 4), {"node-000": 10}), "x")
    loads = {f"node-{number:03}": number / 4 for number in range(1, 130)}
    store.fill_history(past(range(5), {"node-000": 20, **loads, "without": np.nan}), "x")
    history = stored(store, START, 6)
    assert history.nodes == ("node-000", *loads)
    expected = [[50, 20.01, 10.02, 10.03, 20.04], *past(range(5), loads).series["CPU", "AVG", "cpu"]]
    np.testing.assert_allclose(history.of("CPU")[:, :5], expected, atol=1e-4)
    assert np.isnan(history.of("CPU")[:, 5]).all()


def test_nodes_beyond_the_limit_are_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond the limit of nodes, values of new nodes are left out, measured or filled, and the log says so."""
    monkeypatch.setattr("watcher.store.history._MAX_NODES", 2)
    for minute, loads in enumerate(({"a": 1}, {"c": 4, "b": 3, "a": 2}, {"b": 6, "a": 5})):
        caplog.clear()
        save_fetch(store, START + 60 * minute, loads)
        assert ("too many nodes" in caplog.text) is ("c" in loads)
    store.fill_history(past(range(3, 4), {"c": 30, "a": 10}), "x")
    history = stored(store, START, 4)
    assert history.nodes == ("a", "b")
    np.testing.assert_allclose(history.of("CPU"), [[1, 2, 5, 10.03], [np.nan, 3, 6, np.nan]], atol=1e-4)


# -- clocks that are wrong ----------------------------------------------------------------------------------------


def save_hours(store: Store, hours: int, first: int = 0) -> NDArray[np.float32]:
    """Save fetches every ten minutes; return the load of each."""
    loads = np.arange(6 * first, 6 * (first + hours), dtype=np.float32) % 97
    for number, load in enumerate(loads, 6 * first):
        save_fetch(store, START + 600 * number, {"a": float(load)})
    return loads


@pytest.mark.parametrize("hours_off", [(24, 24, 24), (-24, -24, -24), (24, 48, 72), (-500, 500, -1), (1, -1, 1)])
def test_a_wrong_clock_deletes_no_history(store: Store, hours_off: tuple[int, ...]) -> None:
    """After three fetches with a wrong clock, all values of the last day are served, and the next ones are added."""
    loads = save_hours(store, 25)
    now = START + 25 * HOUR - 600
    for number, hours in enumerate(hours_off, 1):
        save_fetch(store, now + hours * HOUR + 60 * number, {"a": 99, "other": 99})
    loads = np.append(loads, save_hours(store, 2, first=25))
    assert store.failure == ""
    values = stored(store, START + 3 * HOUR, 24 * 60, node="a").of("CPU")[0]
    np.testing.assert_array_equal(values[::10], loads[18:])


def test_no_values_after_the_present_are_served(store: Store) -> None:
    """Values up to five minutes after the present time are served, and no later ones, even of a packed hour."""
    for minute in range(61):
        save_fetch(store, START + 60 * minute, {"a": minute})
    for first, until, last in ((0, 600, 15), (0, 599.9, 14), (14, 600, 15), (16, 600, 15), (20, 600, 15)):
        steps = Steps(START + 60 * first, 60, 30)
        history = store.load_history(["x"], steps, None, "CPU", "AVG", until=START + until)
        found = {load for each in history.series for load in each.values[~np.isnan(each.values)].tolist()}
        assert found == set(range(first, last + 1))


def test_history_of_the_future_is_not_served_until_then(store: Store) -> None:
    """Hours that a clock stamped that was ahead are served once the clock has reached them, but real ones win."""
    save_fetch(store, START, {"a": 1})
    for minute in (0, 1, 61):
        save_fetch(store, START + 30 * HOUR + 60 * minute, {"a": 90 + minute % 60})
    save_fetch(store, START + 60, {"a": 2})
    steps = Steps(START, 31 * HOUR, 1)
    history = store.load_history(["x"], steps, None, "CPU", "AVG", until=START + 60)
    np.testing.assert_array_equal(history.of("CPU")[0], [1.5])
    save_fetch(store, START + 30 * HOUR, {"a": 30})
    save_fetch(store, START + 31 * HOUR, {"a": 31})
    values = stored(store, START + 30 * HOUR, 62).of("CPU")[0]
    assert (values[[0, 1, 60, 61]].tolist(), np.isnan(values).sum()) == ([30, 91, 31, 91], 58)


def test_a_minute_is_not_overwritten_by_a_clock_that_is_behind(store: Store) -> None:
    """A clock that is set back does not replace values that were measured at these times."""
    loads = save_hours(store, 3)
    save_fetch(store, START + HOUR, {"a": 99, "b": 99})
    save_fetch(store, START + HOUR + 60, {"a": 98})
    save_hours(store, 1, first=3)
    values = stored(store, START, 180, node="a").of("CPU")[0]
    np.testing.assert_array_equal(values[::10], loads)
    assert values[61] == 98


def test_a_number_is_not_reused_after_the_clock_was_behind(store: Store) -> None:
    """A node keeps its number while hours with its values are stored, also if a fetch in the past had it last."""
    store.keep_seconds = 3 * HOUR
    for hour in range(4):
        save_fetch(store, START + hour * HOUR, {"a": 10})
    save_fetch(store, START + HOUR // 2, {"a": 11})
    for hour in range(4, 6):
        save_fetch(store, START + hour * HOUR, {"b": 20})
    history = stored(store, START + 3 * HOUR, 180)
    assert dict(zip(history.nodes, np.nanmax(history.of("CPU"), axis=1), strict=True)) == {"a": 10, "b": 20}


def test_an_hour_that_was_packed_too_early_continues(store: Store) -> None:
    """After a jump ahead and back, the present hour has the values from before and after the jump."""
    save_fetch(store, START, {"a": 1})
    save_fetch(store, START + 2 * HOUR, {"a": 99})
    save_fetch(store, START + 60, {"a": 2})
    save_fetch(store, START + HOUR, {"a": 3})
    assert stored(store, START, 61).of("CPU")[0][[0, 1, 60]].tolist() == [1, 2, 3]


def test_unreadable_history_is_a_gap(store: Store, path: Path) -> None:
    """A damaged block or minute is a gap, also after its hour is packed."""
    for minute in (0, 60, 61):
        save_fetch(store, START + 60 * minute, {"a": minute})
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("update history_blocks set body = 'garbage'")
        connection.execute("update history_minutes set body = x'01' where minute % 60 = 0")
    connection.close()
    assert np.flatnonzero(~np.isnan(stored(store, START, 62).of("CPU")[0])).tolist() == [61]
    save_fetch(store, START + 2 * HOUR, {"a": 5})
    assert store.failure == ""
    assert np.flatnonzero(~np.isnan(stored(store, START, 121).of("CPU")[0])).tolist() == [61, 120]
    store.write(lambda db: db.execute("update history_minutes set body = x'01'"))
    save_fetch(store, START + 3 * HOUR, {"a": 6})
    assert store.failure == ""
    assert np.flatnonzero(~np.isnan(stored(store, START, 181).of("CPU")[0])).tolist() == [61, 180]


@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_packing_round_trip(special: list[int], seed: int) -> None:
    """Unpacking a packed block, or some of its rows, returns the same bits."""
    matrix = np.random.default_rng(seed).choice(np.array(special, np.uint16), (history_blocks.CHUNK, schema.HOUR))
    body = history_blocks.pack_block(matrix)
    np.testing.assert_array_equal(history_blocks.unpack_block(body, np.arange(history_blocks.CHUNK)), matrix)
    np.testing.assert_array_equal(history_blocks.unpack_block(body, np.array([3, 100])), matrix[[3, 100]])


@given(st.integers(0, 2**33), st.integers(0, 40 * 86400), st.integers(2, 1500), st.none() | st.integers(1, 90))
def test_steps_cover_the_requested_range(until: int, span: int, most: int, minutes: int | None) -> None:
    """Steps begin before and end after the range, within the limit; an error names the shortest valid step."""
    since = max(0, until - span)
    try:
        steps = Steps.between(since, until, minutes and 60 * minutes, most)
    except BadHistoryQuery as error:
        assert minutes is not None
        shortest = int(str(error).rpartition("at least ")[2].removesuffix(" s"))
        assert shortest > 60 * minutes
        steps = Steps.between(since, until, shortest, most)
    assert 1 <= steps.count <= most
    assert steps.start <= since <= until < steps.start + steps.count * steps.seconds
    assert steps.start % steps.seconds == 0


@pytest.mark.parametrize("step", [0, -60, 61])
def test_steps_are_whole_minutes(step: int) -> None:
    """Steps that are not whole minutes are refused."""
    with pytest.raises(BadHistoryQuery, match="minutes"):
        Steps.between(0, 600, step, 100)


def test_formats_of_times() -> None:
    """Times are Unix seconds or durations before now; other values are refused."""
    assert (start_time(None, 1e6), start_time("6h", 1e6), start_time("900000", 1e6), start_time(5, 1e6)) == (
        913600,
        978400,
        9e5,
        5,
    )
    assert (step_seconds(None), step_seconds("5m"), step_seconds("300"), step_seconds(300)) == (None, 300, 300, 300)
    for bad in ("yesterday", "-5", "٣", float("nan"), float("inf")):
        with pytest.raises(BadHistoryQuery):
            start_time(bad, 1e6)
    with pytest.raises(BadHistoryQuery, match="duration"):
        step_seconds("soon")


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.histories import save_fetch
from watcher.store import Store

store = Store(Path({path!r}))
for number in range({first}, {first} + 10**5):
    save_fetch(store, 60 * number, {{f"node-{{each}}": number % 100 for each in range(200)}})
    print(number, flush=True)
"""


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_writes(path: Path, times: int) -> None:
    """After kill -9 the history has complete minutes with all nodes, across hours."""
    random_, first = random.Random(903), START // 60
    for _ in range(times):
        committed = run_and_kill(WRITER, path, random_, lines=65, first=first)
        assert integrity(path) == "ok"
        store = Store(path)
        history = stored(store, 60 * first, committed + 1 - first)
        store.close()
        assert len(history.nodes) == 200
        np.testing.assert_array_equal(history.of("CPU"), [np.arange(first, committed + 1) % 100] * 200)
        first = committed + 2
    assert store.set_aside is None


def test_percents_that_are_not_finite_are_missing() -> None:
    """Values are kept in hundredths of a percent and within the range of the file; NaN and infinity are missing."""
    packed = history_blocks.pack_percents(np.array([0.004, 12.346, -1.0, 1e9, np.nan, np.inf, -np.inf]))
    assert packed.tolist() == [0, 1235, 0, 65534, *[history_blocks.MISSING] * 3]
