"""Collector with a scripted client."""

import logging
import threading
import time
from types import SimpleNamespace

import pytest
from support.threads import started

from client import BadAnswer, Collector, NoMetrics, Snapshot, StaleMetrics, WatcherUnavailable
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

NOW = 1_700_000_000


def metrics(timestamp: int = NOW, **metadata: str) -> WatcherMetrics:
    """Return a snapshot with one node."""
    node = NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", 20.0),), metadata=metadata)
    return WatcherMetrics(timestamp, Window("15m", timestamp - 900, timestamp), "Prometheus", {"node-1": node})


class ScriptedClient:
    """Client that returns the given answers in order, the last one repeatedly; exceptions are raised."""

    def __init__(self, *answers: WatcherMetrics | Exception) -> None:
        self.answers = list(answers)
        self.requests = threading.Semaphore(0)
        self.closed = False

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return or raise the next answer."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.requests.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


@pytest.fixture
def clock():
    """Return a clock that the test sets; the monotonic clock stands still."""
    return SimpleNamespace(now=float(NOW))


def collector(client: ScriptedClient, clock: SimpleNamespace, **options: object) -> Collector:
    """Return a collector that is not started."""
    return Collector(client, clock=lambda: clock.now, **options)


def test_a_snapshot_has_the_metrics_and_their_age(clock, monkeypatch):
    """A snapshot is a WatcherMetrics with the metrics' age."""
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began)
    clock.now = NOW + 12.0
    subject = collector(ScriptedClient(metrics()), clock)
    assert subject.refresh()
    snapshot = subject.snapshot()
    assert isinstance(snapshot, WatcherMetrics)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.data == metrics().data
    assert snapshot.window == metrics().window
    assert snapshot.age_seconds == 12
    assert (snapshot.grade, snapshot.failure) == ("", "")


@pytest.mark.parametrize("reads_again", [False, True])
def test_a_clock_that_is_set_back_does_not_reduce_the_age(clock, monkeypatch, reads_again):
    """The age grows even if the clock is set back, and if an unchanged snapshot is read again."""
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began)
    subject = collector(ScriptedClient(metrics(), metrics()), clock)
    subject.refresh()
    clock.now -= 3600
    monkeypatch.setattr(time, "monotonic", lambda: began + 50)
    if reads_again:
        subject.refresh()
    assert subject.snapshot().age_seconds == 50


def test_the_age_includes_the_time_of_a_suspension(clock):
    """Metrics are an hour older after an hour of suspension, which the monotonic clock does not count."""
    subject = collector(ScriptedClient(metrics()), clock)
    subject.refresh()
    clock.now += 3600
    with pytest.raises(StaleMetrics, match="3600 s old"):
        subject.snapshot()


def test_a_failed_refresh_keeps_the_metrics(clock):
    """A failed refresh keeps the last metrics, and the snapshot has the failure."""
    subject = collector(ScriptedClient(metrics(), WatcherUnavailable("it is down")), clock)
    assert subject.refresh()
    assert not subject.refresh()
    assert subject.snapshot().failure == "it is down"
    assert subject.snapshot().data == metrics().data


def test_a_failure_with_changing_numbers_is_logged_once(clock, caplog):
    """A failure whose text has an age or a duration is logged once in a minute, and so is its end."""
    ages = [StaleMetrics(f"the last metrics are {age} s old") for age in (301, 316, 331)]
    subject = collector(ScriptedClient(*ages, metrics()), clock)
    with caplog.at_level(logging.INFO, logger="client"):
        assert [subject.refresh() for _ in range(5)] == [False, False, False, True, True]
    assert [record.message for record in caplog.records] == [
        "metrics cannot be refreshed", "metrics are refreshed again",
    ]  # fmt: skip


def test_an_empty_response_is_a_failed_refresh(clock):
    """An empty snapshot, which /compat returns without fresh metrics, does not replace metrics."""
    empty = WatcherMetrics(NOW + 60, Window("15m", 0, 0), "Prometheus", {})
    subject = collector(ScriptedClient(metrics(), empty), clock)
    subject.refresh()
    assert not subject.refresh()
    assert subject.snapshot().data == metrics().data


def test_metrics_above_the_maximum_age_are_refused(clock):
    """Metrics older than max_age_seconds raise StaleMetrics with the age, the limit and the last failure."""
    clock.now = NOW + 130.0
    subject = collector(ScriptedClient(metrics(), WatcherUnavailable("it is down")), clock, max_age_seconds=120)
    subject.refresh()
    subject.refresh()
    with pytest.raises(StaleMetrics, match=r"130 .* 120.*it is down"):
        subject.snapshot()


def test_no_metrics_has_the_reason(clock):
    """NoMetrics has the reason why the first read failed."""
    subject = collector(ScriptedClient(BadAnswer("it is no watcher")), clock)
    subject.refresh()
    with pytest.raises(NoMetrics, match="it is no watcher"):
        subject.snapshot()


@pytest.mark.parametrize(("later", "seconds", "is_replaced"), [(60, 0, False), (3600, 121, True), (3600, 0, True)])
def test_an_older_snapshot_replaces_only_an_invalid_one(clock, monkeypatch, later, seconds, is_replaced):
    """An older snapshot, as of another replica, replaces an expired one or one from the future, but no valid one."""
    clock.now = NOW + 60.0
    subject = collector(ScriptedClient(metrics(NOW + later), metrics(NOW)), clock, max_age_seconds=120)
    subject.refresh()
    monotonic = time.monotonic() + seconds
    monkeypatch.setattr(time, "monotonic", lambda: monotonic)
    subject.refresh()
    assert subject.snapshot().timestamp == NOW + (0 if is_replaced else later)


@pytest.mark.parametrize("grade", ["last_good", "shorter_window", "something_new"])
def test_a_snapshot_has_the_worst_grade_of_its_nodes(clock, grade):
    """A snapshot has the grade of its nodes, also an unknown grade."""
    subject = collector(ScriptedClient(metrics(grade=grade)), clock)
    subject.refresh()
    assert subject.snapshot().grade == grade


def test_a_collector_refreshes_until_it_is_closed(clock):
    """A collector reads at once and at its interval; closing it ends its thread and its client."""
    client = ScriptedClient(metrics())
    with collector(client, clock, interval_seconds=0.01) as subject:
        for _ in range(4):
            assert client.requests.acquire(timeout=60)
        assert subject.snapshot().source == "Prometheus"
    assert client.closed
    assert not started("collector")


def test_an_unexpected_exception_does_not_end_the_refreshes(clock):
    """An unexpected exception in the background does not end the refreshes."""
    client = ScriptedClient(metrics(), ZeroDivisionError("a defect"), metrics(NOW + 1))
    with collector(client, clock, interval_seconds=0.01) as subject:
        for _ in range(4):
            assert client.requests.acquire(timeout=60)
        assert subject.snapshot().timestamp == NOW + 1


def collectors() -> int:
    """Return the number of collector threads."""
    return len(started("collector"))


def test_an_unexpected_exception_of_the_first_read_is_not_raised(clock):
    """An unexpected exception of the first read is in NoMetrics, not raised by start(), and the next read recovers."""
    client = ScriptedClient(ZeroDivisionError("a defect"), ZeroDivisionError("a defect"), metrics())
    with collector(client, clock) as subject:
        with pytest.raises(NoMetrics, match="ZeroDivisionError: a defect"):
            subject.snapshot()
        with pytest.raises(ZeroDivisionError):
            subject.refresh()
        assert subject.refresh()
        assert subject.snapshot().failure == ""
    assert client.closed


def test_an_interrupted_start_closes_the_client(clock):
    """Ctrl-C during the first read closes the client, since the ``with`` block has not begun."""

    class Interrupted(ScriptedClient):
        def metrics(self, window: str | None = None) -> WatcherMetrics:
            raise KeyboardInterrupt

    client = Interrupted(metrics())
    with pytest.raises(KeyboardInterrupt), collector(client, clock):
        pass
    assert client.closed


def test_a_second_start_has_no_effect(clock):
    """A second start reads nothing and starts no thread."""
    client = ScriptedClient(metrics())
    with collector(client, clock).start() as subject:
        subject.start()
        assert collectors() == 1
        assert client.requests.acquire(timeout=60)
        assert not client.requests.acquire(blocking=False)
    assert collectors() == 0


def test_a_collector_is_closed_while_another_thread_starts_it(clock, monkeypatch):
    """Closing between the creation of the thread and its start neither fails nor leaves a thread."""
    own = collector(ScriptedClient(metrics()), clock)

    class Closed(threading.Thread):
        def start(self) -> None:
            own.close()
            super().start()

    monkeypatch.setattr(threading, "Thread", Closed)
    own.start()
    own.close()
    assert not collectors()


def test_a_closed_collector_cannot_be_started(clock):
    """Starting a closed collector raises, since its client is closed and could never refresh."""
    subject = collector(ScriptedClient(metrics()), clock)
    subject.start()
    subject.close()
    with pytest.raises(RuntimeError, match="closed"):
        subject.start()
    assert collectors() == 0


@pytest.mark.parametrize("name", ["interval_seconds", "max_age_seconds"])
@pytest.mark.parametrize("value", [-1, 0, float("nan"), float("inf"), 1e9, True, "30", None])
def test_an_invalid_number_of_seconds_is_rejected(clock, name: str, value: object):
    """An invalid number of seconds is rejected with its name and range."""
    with pytest.raises(ValueError, match=name):
        collector(ScriptedClient(metrics()), clock, **{name: value})


def test_an_address_is_no_client():
    """A collector of an address would fail in the background only, at every refresh."""
    with pytest.raises(TypeError, match="client:"):
        Collector("http://127.0.0.1:1")
