"""The fetch loop across restarts, clock changes and store failures, and its stop."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.bench import START, Bench
from support.not_served import not_served
from support.servers import wait_until
from support.threads import started

from watcher import loop
from watcher.history import Steps
from watcher.model import WatcherMetrics
from watcher.publishing.cache import Publication
from watcher.store import Store
from watcher.wire import MetricsCode


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench with the default settings, in memory."""
    bench = Bench()
    yield bench
    bench.watcher.stop()


def test_a_restart_serves_the_last_snapshot(tmp_path: Path) -> None:
    """The store's snapshot is served before the first fetch with its own timestamp, until it is stale."""
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


def test_a_snapshot_from_the_future_is_stale(bench: Bench) -> None:
    """A snapshot far in the future is not fresh, and the next fetch replaces it."""
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
def test_snapshots_are_dropped_when_the_clock_is_set_back(bench: Bench, seconds: int) -> None:
    """With the provider down, setting the clock back does not make the last good snapshot look younger."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m", "5m")
    bench.now -= seconds
    bench.watcher.fetch_once()
    for _ in range(10):
        with not_served(MetricsCode.NO_METRICS):
            bench.watcher.published()
        bench.now += 60
        bench.watcher.fetch_once()


def test_dropped_snapshots_are_deleted_from_the_store(tmp_path: Path) -> None:
    """A snapshot that was dropped because the clock was set back is not in the store after a restart either."""
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


@pytest.mark.parametrize("scenario", ["runs on", "restarts again", "cannot write"])
def test_stored_snapshots_from_the_future_are_never_served(
    tmp_path: Path, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots of a run whose clock was an hour ahead are not served an hour later, nor after another restart."""
    path = tmp_path / "store.sqlite"
    ahead = Bench(path, now=START + 3600)
    ahead.watcher.fetch_once()
    ahead.watcher.stop()
    if scenario == "cannot write":
        monkeypatch.setattr(Store, "forget_snapshots", lambda store, since: None)
    bench = Bench(path, now=START + 30)
    if scenario == "restarts again":
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


@pytest.mark.parametrize("seconds", [-86400, 86400])
def test_the_history_survives_a_wrong_clock(tmp_path: Path, seconds: int) -> None:
    """Fetches with a wrong clock, while running or after a restart, delete nothing of the history."""
    bench = Bench(tmp_path / "store.sqlite")
    for minute in range(120):
        bench.now = START + 60 * minute
        bench.watcher.fetch_once()
    end = bench.now
    for number in range(3):
        bench.now = end + seconds + 60 * number
        bench.watcher.fetch_once()
    bench.watcher.stop()
    other = Bench(tmp_path / "store.sqlite", now=end + seconds + 600)
    other.watcher.fetch_once()
    other.watcher.stop()
    again = Bench(tmp_path / "store.sqlite", now=end + 60)
    again.watcher.fetch_once()
    history = again.watcher.history("a", "CPU", "AVG", since=START)
    again.watcher.stop()
    assert (history.of("CPU") == 50).all()
    assert history.steps.count >= 121


def test_watchers_with_skewed_clocks_share_a_file_in_turn(tmp_path: Path) -> None:
    """Two watchers that take turns with a file, their clocks a day apart, each keep the history of both."""
    path = tmp_path / "store.sqlite"
    skew, turns = 86400, 4
    for turn in range(turns):
        for offset in (0, -skew):
            bench = Bench(path, now=START + 3600 * turn + offset)
            for _ in range(5):
                bench.watcher.fetch_once()
                bench.now += 60
            bench.watcher.stop()
    store = Store(path)
    steps = Steps(int(START - skew) // 3600 * 3600, 3600, 24 + turns)
    loads = store.load_history(["Test"], steps, "a", "CPU", "AVG", until=START + 3600 * turns).of("CPU")[0]
    store.close()
    assert loads[[*range(turns), *range(24, 24 + turns)]].tolist() == [50] * 2 * turns


def test_a_small_clock_correction_is_ignored(bench: Bench) -> None:
    """A correction by a few seconds, as by time servers, keeps the last good snapshot."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m", "5m")
    bench.now -= 4
    bench.watcher.fetch_once()
    assert bench.served() == ("15m", "last_good")


@pytest.mark.parametrize("window", ["10m", "5m"])
def test_stored_windows_are_loaded_on_request(tmp_path: Path, window: str) -> None:
    """After a restart the default window is loaded at once, and other windows at their first request."""
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
def test_a_stored_shorter_window_replaces_the_default(tmp_path: Path, long_ago: bool) -> None:
    """If the store has no default window, or only an expired one, a shorter stored window is served."""
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
def test_a_store_locked_at_the_start_is_read_later(tmp_path: Path) -> None:
    """With the provider down and the store locked at the start, the next fetch loads the last run's snapshots."""
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
def test_a_late_read_replaces_nothing_newer(tmp_path: Path, newer: str) -> None:
    """Snapshots read late do not replace fetched ones, and are not served after the clock was set back."""
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
        again = Bench(path, now=START + 90)  # the fetch made while the file was locked is stored too
        assert again.watcher.published().metrics.timestamp == START + 60
        again.watcher.stop()
    else:
        with not_served(MetricsCode.NO_METRICS):
            second.watcher.published()
        second.watcher.stop()


def test_a_failing_store_is_a_warning(tmp_path: Path) -> None:
    """With a store that cannot be opened, metrics are served from memory, with a health warning and telemetry."""
    bench = Bench(tmp_path)
    bench.watcher.fetch_once()
    health = bench.watcher.health()
    assert bench.served() == ("15m", None)
    assert health.reasons == ()
    assert len(health.warnings) == 1
    assert "cannot be opened" in health.warnings[0]
    assert b"trimaran_store_works 0.0" in bench.telemetry.exposition()
    bench.watcher.stop()


def test_a_file_set_aside_later_is_counted_too(tmp_path: Path) -> None:
    """Each corrupt file that appears while the watcher runs is counted once."""
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
    assert b"trimaran_store_works 1.0" in bench.telemetry.exposition()
    assert "store.sqlite.corrupt-" in str(bench.watcher.health().warnings)
    bench.watcher.stop()


def test_telemetry_counts_fetches(bench: Bench) -> None:
    """Failures, nodes and timestamps are reported by window."""
    bench.fail("15m")
    bench.watcher.fetch_once()
    text = bench.telemetry.exposition().decode()
    assert 'trimaran_fetch_failures_total{window="15m"} 1.0' in text
    assert 'trimaran_snapshot_nodes{window="5m"} 1.0' in text
    assert f'trimaran_snapshot_timestamp_seconds{{window="5m"}} {START}' in text.replace("1.7e+09", str(START))


def test_telemetry_is_computed_at_the_scrape(bench: Bench) -> None:
    """Snapshots that expired since the last fetch are not counted as served."""
    bench.watcher.fetch_once()
    assert 'trimaran_served_nodes{grade="measured"} 1.0' in bench.telemetry.exposition().decode()
    bench.now += 301
    text = bench.telemetry.exposition().decode()
    assert 'trimaran_served_nodes{grade="measured"} 0.0' in text
    assert 'trimaran_snapshot_nodes{window="15m"} 1.0' in text


def test_snapshots_are_stored_before_they_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is served only after it is stored: a killed watcher never serves an older one after its restart."""
    bench = Bench(tmp_path / "store.sqlite")
    save, served = bench.watcher._store.save_snapshots, []

    def save_and_record(*what: Any) -> None:
        save(*what)
        newest = bench.watcher.newest()
        served.append(newest and newest.timestamp)

    monkeypatch.setattr(bench.watcher._store, "save_snapshots", save_and_record)
    for _ in range(2):
        bench.watcher.fetch_once()
        bench.now += 60
    assert served == [None, START]
    newest = bench.watcher.newest()
    assert newest is not None
    assert newest.timestamp == START + 60
    bench.watcher.stop()


def test_the_loop_continues_after_any_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception in a fetch does not end the loop; stop() ends it and closes the provider."""
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
    assert not started("watching")


def test_stopping_closes_the_store_even_if_the_provider_does_not_close(tmp_path: Path) -> None:
    """A provider whose close() raises does not keep the store open, and stop() can be called twice."""
    bench = Bench(tmp_path / "store.sqlite")

    def close() -> None:
        raise OSError("stuck")

    bench.source.close = close  # type: ignore[method-assign]
    bench.watcher.stop()
    bench.watcher.stop()
    assert not (tmp_path / "store.sqlite-wal").exists()


def test_a_fetch_that_ends_after_stopping_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fetch that ends after stop() is neither published nor logged as a failure."""
    bench = Bench(tmp_path / "store.sqlite")
    bench.watcher.stop()
    assert not bench.watcher.fetch_once()
    assert bench.watcher.newest() is None
    assert caplog.text == ""
