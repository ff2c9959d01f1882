"""The loop across restarts, clock changes, a store that fails, and its own end."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.bench import START, Bench
from support.not_served import not_served
from support.servers import wait_until

from watcher.model import WatcherMetrics
from watcher.pipeline import loop
from watcher.publishing.cache import Publication
from watcher.store import Store
from watcher.wire import MetricsCode


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench with the default settings, all in memory."""
    bench = Bench()
    yield bench
    bench.watcher.stop()


def test_a_restart_serves_the_last_snapshot_under_its_own_timestamp(tmp_path: Path) -> None:
    """What the store has is served before the first fetch, goes stale in its time, and health says so throughout."""
    path = tmp_path / "store.sqlite"
    first = Bench(path)
    first.watcher.fetch_once()
    first.watcher.stop()
    second = Bench(path)
    second.now += 200
    assert second.served() == ("15m", None)
    assert second.watcher.published().metrics.timestamp == START
    assert second.watcher.is_ready()
    assert second.watcher.health().reasons == ("nothing was fetched since the start",)
    second.fail("15m", "10m", "5m")
    second.watcher.fetch_once()
    assert second.served() == ("15m", "last_good")
    second.now += 101
    with not_served(MetricsCode.STALE):
        second.watcher.published()
    second.watcher.stop()


def test_a_clock_set_back_does_not_freeze_the_old(bench: Bench) -> None:
    """A snapshot far in the future is not fresh; the next fetch replaces it."""
    bench.watcher.fetch_once()
    bench.now -= 3600
    with not_served(MetricsCode.STALE):
        bench.watcher.published()
    assert not bench.watcher.is_ready()
    assert bench.watcher.health().reasons
    bench.watcher.fetch_once()
    assert bench.watcher.published().metrics.timestamp == START - 3600
    assert bench.watcher.health().reasons == ()


@pytest.mark.parametrize("seconds", [10, 200, 3600])
def test_what_a_clock_stamped_before_it_was_set_back_is_given_up(bench: Bench, seconds: int) -> None:
    """With the provider down, a clock set back does not make the last good snapshot younger than it is."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m", "5m")
    bench.now -= seconds
    bench.watcher.fetch_once()
    for _ in range(10):
        with not_served(MetricsCode.NO_METRICS):
            bench.watcher.published()
        bench.now += 60
        bench.watcher.fetch_once()


def test_what_is_given_up_does_not_come_back_with_a_restart(tmp_path: Path) -> None:
    """What an hour later has the age of a minute, as the clock was set back by the rest, is not in the store either."""
    bench = Bench(tmp_path / "store.sqlite")
    bench.watcher.fetch_once()
    bench.fail("15m", "10m", "5m")
    bench.now += 3600
    bench.watcher.fetch_once()
    bench.now = START + 60
    bench.watcher.fetch_once()
    bench.watcher.stop()
    again = Bench(tmp_path / "store.sqlite")
    again.now = START + 60
    with not_served(MetricsCode.NO_METRICS):
        again.watcher.published()
    again.watcher.stop()


@pytest.mark.parametrize("how", ["runs on", "restarts again", "cannot write"])
def test_what_is_of_the_future_at_a_restart_never_becomes_fresh(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run with a clock an hour ahead left behind is not served in an hour, nor after one more restart."""
    path = tmp_path / "store.sqlite"
    ahead = Bench(path, now=START + 3600)
    ahead.watcher.fetch_once()
    ahead.watcher.stop()
    if how == "cannot write":
        monkeypatch.setattr(Store, "forget_snapshots", lambda store, since: None)
    bench = Bench(path, now=START + 30)
    if how == "restarts again":
        bench.watcher.stop()
        bench = Bench(path, now=START + 3660)
    bench.fail("15m", "10m", "5m")
    bench.now = START + 3660
    for window in (None, "15m", "5m"):
        with not_served(MetricsCode.NO_METRICS):
            bench.watcher.published(window)
    bench.watcher.fetch_once()
    assert not bench.watcher.is_ready()
    bench.watcher.stop()


def test_a_small_correction_of_the_clock_harms_nothing(bench: Bench) -> None:
    """A few seconds back, as time servers correct, leave the last good snapshot in place."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m", "5m")
    bench.now -= 4
    bench.watcher.fetch_once()
    assert bench.served() == ("15m", "last_good")


@pytest.mark.parametrize("window", ["10m", "5m"])
def test_after_a_restart_windows_come_from_the_store_when_asked_for(tmp_path: Path, window: str) -> None:
    """The default window is there at once; another is read when it is asked for, and once."""
    path = tmp_path / "store.sqlite"
    first = Bench(path)
    first.watcher.fetch_once()
    first.watcher.stop()
    second = Bench(path)
    assert second.watcher.published().metrics.timestamp == START
    assert second.watcher._cache.get(window) is None
    assert second.watcher.published(window).metrics.window.duration == window
    assert second.served() == ("15m", None)
    second.watcher.stop()


@pytest.mark.parametrize("long_ago", [False, True])
def test_after_a_restart_a_shorter_window_stands_in(tmp_path: Path, long_ago: bool) -> None:
    """Where the store has the default window not at all, or only of long ago, a shorter one of it is served."""
    first = Bench(tmp_path / "store.sqlite")
    if long_ago:
        first.now -= 400
        first.watcher.fetch_once()
        first.now += 400
    first.fail("15m", "10m")
    first.watcher.fetch_once()
    first.watcher.stop()
    second = Bench(tmp_path / "store.sqlite")
    assert second.watcher.is_ready()
    assert second.served() == ("5m", "shorter_window")
    second.watcher.stop()


@pytest.mark.usefixtures("short_handover")
def test_what_could_not_be_read_at_the_start_is_served_once_it_can(tmp_path: Path) -> None:
    """With the provider down and the file in use for a moment, the next fetch finds the last run in it."""
    path = tmp_path / "store.sqlite"
    first = Bench(path)
    first.watcher.fetch_once()
    second = Bench(path, now=START + 30)
    second.fail("15m", "10m", "5m")
    second.watcher.fetch_once()
    assert not second.watcher.is_ready()
    assert any("another watcher" in warning for warning in second.watcher.health().warnings)
    first.watcher.stop()
    second.watcher.fetch_once()
    assert second.served() == ("15m", "last_good")
    assert second.served("5m") == ("5m", "last_good")
    assert second.watcher.published().metrics.timestamp == START
    assert not any(warning.startswith("store") for warning in second.watcher.health().warnings)
    second.watcher.stop()


@pytest.mark.usefixtures("short_handover")
@pytest.mark.parametrize("newer", ["fetched", "clock set back"])
def test_what_is_read_late_replaces_nothing_newer(tmp_path: Path, newer: str) -> None:
    """What was fetched meanwhile stays; after a clock was set back nobody knows how old the last run is."""
    path = tmp_path / "store.sqlite"
    first = Bench(path)
    first.watcher.fetch_once()
    second = Bench(path, now=START + 60)
    if newer == "clock set back":
        second.fail("15m", "10m", "5m")
    second.watcher.fetch_once()
    second.fail("15m", "10m", "5m")
    if newer == "clock set back":
        second.now -= 30
        second.watcher.fetch_once()
    first.watcher.stop()
    second.watcher.fetch_once()
    if newer == "fetched":
        assert second.watcher.published().metrics.timestamp == START + 60
        second.watcher.stop()
        again = Bench(path, now=START + 90)  # also what was fetched while the file was not open is kept
        assert again.watcher.published().metrics.timestamp == START + 60
        again.watcher.stop()
    else:
        with not_served(MetricsCode.NO_METRICS):
            second.watcher.published()
        second.watcher.stop()


def test_a_store_that_fails_is_a_warning_and_not_the_end(tmp_path: Path) -> None:
    """Metrics are served from memory; health stays good, with the reason why nothing is kept, and so says telemetry."""
    bench = Bench(tmp_path)
    bench.watcher.fetch_once()
    health = bench.watcher.health()
    assert bench.served() == ("15m", None)
    assert health.reasons == ()
    assert len(health.warnings) == 1
    assert "cannot be opened" in health.warnings[0]
    assert b"trimaran_store_works 0.0" in bench.telemetry.exposition()
    bench.watcher.stop()


def test_a_file_set_aside_is_a_warning_and_counted(tmp_path: Path) -> None:
    """A corrupt file is named in health's warnings and counted."""
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"no database" * 500)
    bench = Bench(path)
    bench.watcher.fetch_once()
    assert "set aside as store.sqlite.corrupt-" in bench.watcher.health().warnings[0]
    assert b"trimaran_store_set_aside_total 1.0" in bench.telemetry.exposition()
    assert b"trimaran_store_works 1.0" in bench.telemetry.exposition()
    bench.watcher.stop()


def test_a_file_set_aside_later_is_counted_too(tmp_path: Path) -> None:
    """A corrupt file that is put there while the watcher runs is counted as well, and once."""
    path = tmp_path / "sub" / "store.sqlite"
    path.parent.write_text("in the way")
    bench = Bench(path)
    bench.watcher.fetch_once()
    assert b"trimaran_store_set_aside_total 0.0" in bench.telemetry.exposition()
    for count in (b"1.0", b"2.0"):
        if path.parent.is_file():
            path.parent.unlink()
            path.parent.mkdir()
        other = tmp_path / "other"
        other.write_bytes(b"no database" * 500)
        other.replace(path)
        for _ in range(2):
            bench.now += 60
            bench.watcher.fetch_once()
            assert b"trimaran_store_set_aside_total " + count in bench.telemetry.exposition()
    assert "set aside as store.sqlite.corrupt-" in str(bench.watcher.health().warnings)
    bench.watcher.stop()


def test_telemetry_counts_fetches(bench: Bench) -> None:
    """Failures, nodes and times are counted by window."""
    bench.fail("15m")
    bench.watcher.fetch_once()
    text = bench.telemetry.exposition().decode()
    assert 'trimaran_fetch_failures_total{window="15m"} 1.0' in text
    assert 'trimaran_snapshot_nodes{window="5m"} 1.0' in text
    assert f'trimaran_snapshot_timestamp_seconds{{window="5m"}} {START}' in text.replace("1.7e+09", str(START))


def test_telemetry_tells_the_state_of_the_moment_it_is_asked(bench: Bench) -> None:
    """What expired since the last fetch is not counted as served, though nothing was fetched or read meanwhile."""
    bench.watcher.fetch_once()
    assert 'trimaran_served_nodes{grade="measured"} 1.0' in bench.telemetry.exposition().decode()
    bench.now += 301
    text = bench.telemetry.exposition().decode()
    assert 'trimaran_served_nodes{grade="measured"} 0.0' in text
    assert 'trimaran_snapshot_nodes{window="15m"} 1.0' in text


def test_what_readers_see_is_kept_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is served when it is in the file, so that a killed watcher never goes back behind its readers."""
    bench = Bench(tmp_path / "store.sqlite")
    save, served = bench.watcher._store.save_snapshots, []

    def look_and_save(*what: Any) -> None:
        save(*what)
        newest = bench.watcher.newest()
        served.append(newest and newest.timestamp)

    monkeypatch.setattr(bench.watcher._store, "save_snapshots", look_and_save)
    for _ in range(2):
        bench.watcher.fetch_once()
        bench.now += 60
    assert served == [None, START]
    newest = bench.watcher.newest()
    assert newest is not None
    assert newest.timestamp == START + 60
    bench.watcher.stop()


def test_what_cannot_be_kept_is_served_all_the_same(bench: Bench) -> None:
    """A store that cannot be written costs the restart, which health says, and not the readers."""
    bench.watcher._store._db.execute("pragma query_only = on")
    bench.watcher.fetch_once()
    assert bench.served() == ("15m", None)
    assert "readonly" in str(bench.watcher.health().warnings)


def test_the_loop_goes_on_after_any_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of our own in one fetch does not end the loop; stop() ends it and closes the provider."""
    monkeypatch.setattr(loop, "_FIRST_RETRY_SECONDS", 0.01)
    bench = Bench()
    good = bench.watcher._cache.prepare
    outcomes = iter([RuntimeError("a defect")])

    def prepare(fetched: Mapping[str, WatcherMetrics], now: float) -> Publication:
        for error in outcomes:
            raise error
        return good(fetched, now)

    monkeypatch.setattr(bench.watcher._cache, "prepare", prepare)
    bench.watcher.start()
    wait_until(bench.watcher.is_ready, "the loop fetches")
    assert bench.watcher.is_alive()
    bench.watcher.stop()
    assert bench.source.closed
    assert not bench.watcher.is_alive()
    assert not any(thread.name == "watching" for thread in threading.enumerate())


def test_a_loop_that_does_not_tick_is_not_alive(bench: Bench) -> None:
    """is_alive() turns false when the loop has not begun a fetch for much longer than it may take."""
    assert bench.watcher.is_alive()
    bench.watcher._loop._ticked_at -= 60 + 2 * 30 + 31
    assert not bench.watcher.is_alive()


def test_stopping_closes_the_store_even_if_the_provider_does_not_close(tmp_path: Path) -> None:
    """A provider whose close() raises does not keep the store open; stopping twice is fine."""
    bench = Bench(tmp_path / "store.sqlite")

    def close() -> None:
        raise OSError("stuck")

    bench.source.close = close  # type: ignore[method-assign]
    bench.watcher.stop()
    bench.watcher.stop()
    assert not (tmp_path / "store.sqlite-wal").exists()


def test_a_fetch_that_ends_after_stopping_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was under way when stop() came is neither published nor logged as a failure."""
    bench = Bench(tmp_path / "store.sqlite")
    bench.watcher.stop()
    assert not bench.watcher.fetch_once()
    assert bench.watcher.newest() is None
    assert caplog.text == ""
