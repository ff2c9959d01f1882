"""Collector: fresh metrics in the background, from a client that the test scripts."""

import threading
import time
from types import SimpleNamespace

import pytest

from client import BadAnswer, Collector, NoMetrics, Snapshot, StaleMetrics, WatcherUnavailable
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

NOW = 1_700_000_000


def metrics(timestamp: int = NOW, **metadata: str) -> WatcherMetrics:
    """Return a snapshot with one node."""
    node = NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", 20.0),), metadata=metadata)
    return WatcherMetrics(timestamp, Window("15m", timestamp - 900, timestamp), "Prometheus", {"node-1": node})


class ScriptedClient:
    """Answers with what it was given, the last for ever; an exception is raised."""

    def __init__(self, *answers: WatcherMetrics | Exception) -> None:
        self.answers = list(answers)
        self.asked = threading.Semaphore(0)
        self.closed = False

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return or raise the next answer."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.asked.release()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


@pytest.fixture
def clock():
    """A clock that the test moves; the monotonic one stands still beside it."""
    return SimpleNamespace(now=float(NOW))


def collector(client: ScriptedClient, clock: SimpleNamespace, **options: object) -> Collector:
    """Return a collector that is not started."""
    return Collector(client, clock=lambda: clock.now, **options)


def test_a_snapshot_is_the_metrics_with_their_age(clock):
    """A snapshot is a WatcherMetrics, says how old it is, and can be passed on as one."""
    clock.now = NOW + 12.0
    subject = collector(ScriptedClient(metrics()), clock)
    assert subject.refresh()
    snapshot = subject.snapshot()
    assert isinstance(snapshot, WatcherMetrics)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.data == metrics().data
    assert snapshot.window == metrics().window
    assert 12 <= snapshot.age_seconds < 20
    assert (snapshot.grade, snapshot.failure) == ("", "")


def test_the_age_grows_whatever_the_clock_does(clock, monkeypatch):
    """A clock that is set back does not make data young again."""
    subject = collector(ScriptedClient(metrics()), clock)
    subject.refresh()
    clock.now -= 3600
    later = time.monotonic() + 50
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert 49 <= subject.snapshot().age_seconds <= 51


def test_a_machine_that_slept_has_old_data(clock):
    """Suspended for an hour: the monotonic clock did not count it, and the data are an hour old all the same."""
    subject = collector(ScriptedClient(metrics()), clock)
    subject.refresh()
    clock.now += 3600
    with pytest.raises(StaleMetrics, match="3600 s old"):
        subject.snapshot()


def test_reading_the_same_again_makes_it_no_younger(clock, monkeypatch):
    """Nor does a clock that was set back, or runs behind the watcher's, when the same snapshot is read once more."""
    subject = collector(ScriptedClient(metrics(), metrics()), clock)
    subject.refresh()
    clock.now -= 3600
    later = time.monotonic() + 50
    monkeypatch.setattr(time, "monotonic", lambda: later)
    subject.refresh()
    assert 49 <= subject.snapshot().age_seconds <= 51


def test_a_failed_refresh_keeps_the_data(clock):
    """Good data survive a failed refresh, which the snapshot mentions."""
    subject = collector(ScriptedClient(metrics(), WatcherUnavailable("it is down")), clock)
    assert subject.refresh()
    assert not subject.refresh()
    assert subject.snapshot().failure == "it is down"
    assert subject.snapshot().data == metrics().data


def test_an_empty_answer_is_a_failed_refresh(clock):
    """What /compat answers when nothing is fresh does not replace data."""
    empty = WatcherMetrics(NOW + 60, Window("15m", 0, 0), "Prometheus", {})
    subject = collector(ScriptedClient(metrics(), empty), clock)
    subject.refresh()
    assert not subject.refresh()
    assert subject.snapshot().data == metrics().data


def test_old_data_are_refused(clock):
    """Data beyond max_age_seconds raise StaleMetrics, with the age, the limit and the last failure."""
    clock.now = NOW + 130.0
    subject = collector(ScriptedClient(metrics(), WatcherUnavailable("it is down")), clock, max_age_seconds=120)
    subject.refresh()
    subject.refresh()
    with pytest.raises(StaleMetrics, match=r"130 s old, the limit is 120 s; the last refresh failed: it is down"):
        subject.snapshot()


def test_no_data_say_why(clock):
    """Before anything came, NoMetrics says why the read failed."""
    subject = collector(ScriptedClient(BadAnswer("it is no watcher")), clock)
    subject.refresh()
    with pytest.raises(NoMetrics, match="it is no watcher"):
        subject.snapshot()


def test_never_goes_back_in_time(clock):
    """An older snapshot, from another replica, does not replace a newer one that is still good."""
    clock.now = NOW + 60.0
    subject = collector(ScriptedClient(metrics(NOW + 60), metrics(NOW)), clock)
    subject.refresh()
    subject.refresh()
    assert subject.snapshot().timestamp == NOW + 60


def test_an_older_snapshot_is_better_than_an_expired_one(clock, monkeypatch):
    """When the watcher's clock was set back, its snapshots are taken again once ours expired."""
    subject = collector(ScriptedClient(metrics(NOW + 3600), metrics(NOW)), clock, max_age_seconds=120)
    subject.refresh()
    later = time.monotonic() + 121
    monkeypatch.setattr(time, "monotonic", lambda: later)
    subject.refresh()
    assert subject.snapshot().timestamp == NOW


def test_a_snapshot_from_the_future_is_not_held_on_to(clock):
    """When the watcher's clock is right again, what it says is taken at once: nobody believed what was ahead."""
    subject = collector(ScriptedClient(metrics(NOW + 3600), metrics(NOW)), clock, max_age_seconds=120)
    subject.refresh()
    subject.refresh()
    assert subject.snapshot().timestamp == NOW


@pytest.mark.parametrize("grade", ["last_good", "shorter_window", "something_new"])
def test_the_grade_of_the_nodes_is_the_snapshots(clock, grade):
    """A grade that any node carries is the snapshot's, also one that we do not know."""
    subject = collector(ScriptedClient(metrics(grade=grade)), clock)
    subject.refresh()
    assert subject.snapshot().grade == grade


def test_refreshes_in_the_background_and_stops(clock):
    """Started, it reads at once and then at its interval; closed, its thread and its client are gone."""
    client = ScriptedClient(metrics())
    with collector(client, clock, interval_seconds=0.01) as subject:
        for _ in range(4):
            assert client.asked.acquire(timeout=5)
        assert subject.snapshot().source == "Prometheus"
    assert client.closed
    assert not [thread for thread in threading.enumerate() if thread.name == "collector"]


def test_survives_what_nobody_expected(clock):
    """An exception of any kind in the background does not end the refreshing."""
    client = ScriptedClient(metrics(), ZeroDivisionError("a defect"), metrics(NOW + 1))
    with collector(client, clock, interval_seconds=0.01) as subject:
        for _ in range(4):
            assert client.asked.acquire(timeout=5)
        assert subject.snapshot().timestamp == NOW + 1


def collectors() -> int:
    """Return how many threads collect."""
    return sum(thread.name == "collector" for thread in threading.enumerate())


def test_a_defect_at_the_first_read_is_said_not_raised(clock):
    """An unexpected exception does not escape from the start; the snapshot tells it, and the next read mends it."""
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
    """Ctrl-C during the first read leaves no client open: ``with`` has not begun, so nobody else would close it."""

    class Interrupted(ScriptedClient):
        def metrics(self, window: str | None = None) -> WatcherMetrics:
            raise KeyboardInterrupt

    client = Interrupted(metrics())
    with pytest.raises(KeyboardInterrupt), collector(client, clock):
        pass
    assert client.closed


def test_started_twice_it_is_one(clock):
    """A second start reads nothing and adds no thread: ``with Collector(...).start()`` is fine."""
    client = ScriptedClient(metrics())
    with collector(client, clock).start() as subject:
        subject.start()
        assert collectors() == 1
        assert client.asked.acquire(timeout=5)
        assert not client.asked.acquire(blocking=False)
    assert collectors() == 0


def test_a_closed_collector_is_not_started_again(clock):
    """It would look alive and never refresh, as its client is closed."""
    subject = collector(ScriptedClient(metrics()), clock)
    subject.start()
    subject.close()
    with pytest.raises(RuntimeError, match="is closed"):
        subject.start()
    assert collectors() == 0


@pytest.mark.parametrize("name", ["interval_seconds", "max_age_seconds"])
@pytest.mark.parametrize("value", [-1, 0, float("nan"), float("inf"), 1e9, True, "30", None])
def test_refuses_what_is_no_time(clock, name: str, value: object):
    """A length of time that cannot be one is refused at once, by its name and with the range."""
    with pytest.raises(ValueError, match=f"{name} must be a number of seconds above 0 and up to 31536000, not "):
        collector(ScriptedClient(metrics()), clock, **{name: value})
