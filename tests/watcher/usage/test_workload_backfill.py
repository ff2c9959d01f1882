"""Backfill of the use of workloads before the first start, by a real Prometheus and by a provider of known values."""

import contextlib
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.past_days import past_days
from support.servers import Service, prometheus_arguments, run_prometheus, wait_until

from runtime.kubernetes.workloads import Workload
from watcher.errors import ProviderUnavailable
from watcher.pipeline.origins import origins
from watcher.settings import ProviderSettings, Settings
from watcher.store import Store
from watcher.usage.backfill import WorkloadBackfill
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.learn.learner_service import LearnerService
from watcher.usage.learn.learner_state import load_state
from watcher.usage.learn.past_days import DayCollector
from watcher.usage.learn.use_round import use_round
from watcher.usage.rounds import PodUseRounds
from watcher.usage.sources.pods import ContainerResources, PodKey, PodTemplate, RunningPod, RunningPods
from watcher.windows.container_use import ContainerUse
from watcher.windows.past_container_use import PastContainerUse
from watcher.workload_table import ContainerTable

DAY, STEP, MEBI = 86400, 300, 2**20
NOON = 20_000 * DAY + DAY // 2
WEB = Workload("shop", "Deployment", "web")
TEMPLATE = PodTemplate(WEB, "5d4f", (ContainerResources("main", 500, 512 * MEBI),))
PODS = [f"web-{number}" for number in range(3)]
UNREQUESTED = {PodKey("shop", pod): RunningPod(PodTemplate(WEB, "", ()), 1.0, restarts=()) for pod in PODS}
RUNNING: RunningPods = {PodKey("shop", pod): RunningPod(TEMPLATE, 1.0, restarts=()) for pod in PODS}


def cores(pod: int, at: int) -> float:
    """Return the use of a pod in the five minutes before a time."""
    return (1 + pod) * (0.1 + 0.05 * (at // STEP % 7))


def memory(pod: int, at: int) -> float:
    return (100 + 50 * pod + at // STEP % 11) * MEBI


def live(at: int) -> ContainerUse:
    """Return the round of a time."""
    values = np.array([[cores(pod, at), memory(pod, at)] for pod in range(len(PODS))]).T
    return ContainerUse(at, STEP, ["shop"] * 3, PODS, ["main"] * 3, *values)


def day_mean(times: range) -> np.ndarray:
    """Return the expected use at the end of some times: the mean of CPU with a memory of a day, and that of memory."""
    weights = np.exp(np.array(times) / DAY - times[-1] / DAY)
    by_time = np.array([[sum(f(pod, at) for pod in range(3)) / 3 for at in times] for f in (cores, memory)])
    return np.array([np.average(by_time[0], weights=weights), by_time[1].mean()])


class Past:
    """Provider that knows the past of the pods, in a part for each.

    Attributes:
        read: number of parts that were read.
        fails_at: number of the part that fails; all later ones fail, too.
    """

    def __init__(self, fails_at: float = np.inf) -> None:
        self.read, self.fails_at = 0, fails_at

    def past_pod_use(self, ends: range, timeout_seconds: float) -> Iterator[tuple[tuple[str, ...], PastContainerUse]]:
        for pod, name in enumerate(PODS):
            if self.read >= self.fails_at:
                raise ProviderUnavailable("the past is not known")
            self.read += 1
            course = np.array([[cores(pod, at) for at in ends]], np.float32)
            sizes = np.array([memory(pod, at) for at in ends])
            highest = np.array([[sizes.mean()], [sizes.max()]])
            yield ("shop",), PastContainerUse(ends, ["shop"], [name], ["main"], course, highest)


def backfill(learning: LearnerService, past: Past) -> WorkloadBackfill:
    filling = WorkloadBackfill(Settings(), learning, lambda _settings: past)
    filling._running = RUNNING
    return filling


def known(table: ContainerTable) -> dict[str, object]:
    """Return what a filled learner shares with one that has learned all the time."""
    names = ("keys", "highest_memory", "first_seen", "last_seen", "pod_minutes")
    return {
        "percentiles": table.cpu_percentiles.tolist(),
        **{name: np.asarray(getattr(table, name), object).tolist() for name in names},
    }


@pytest.fixture(scope="module")
def always() -> LearnerService:
    """A learner that has learned live for all of three days."""
    learning = LearnerService(Store(None), "x")
    for at in range(20_000 * DAY - 2 * DAY + STEP, NOON + 1, STEP):
        learning.observe(live(at), RUNNING)
    return learning


def test_a_filled_learner_knows_what_a_running_one_would(always: LearnerService) -> None:
    """After the backfill percentiles, highest memory, times and minutes are those of a learner that always ran."""
    learning = LearnerService(Store(None), "x", backfill_days=3)
    learning.observe(live(NOON), RUNNING)
    assert learning.unfilled() == ([20_000, 19_999, 19_998], NOON - STEP)
    assert backfill(learning, Past()).fill_all()
    assert learning.unfilled()[0] == []
    assert known(learning.containers()) == known(always.containers())


def test_rounds_go_on_during_the_backfill(always: LearnerService) -> None:
    """Days that are filled while rounds are learned, also over midnight, are added to the right days."""
    learning = LearnerService(Store(None), "x", backfill_days=3)
    midnight = 20_001 * DAY
    learning.observe(live(midnight - STEP), RUNNING)
    past = Past(fails_at=3)
    with pytest.raises(ProviderUnavailable):
        backfill(learning, past).fill_all()
    learning.observe(live(midnight), RUNNING)
    learning.observe(live(midnight + STEP), RUNNING)
    past.fails_at = np.inf
    assert backfill(learning, past).fill_all()
    running = LearnerService(Store(None), "x")
    for at in range(19_998 * DAY + STEP, midnight + STEP + 1, STEP):
        running.observe(live(at), RUNNING)
    assert known(learning.containers()) == known(running.containers())


def test_a_restarted_backfill_adds_no_day_twice(always: LearnerService, tmp_path: Path) -> None:
    """A backfill that ends in any part goes on with the day of that part, and the result is the same."""
    store = Store(tmp_path / "store.db")
    LearnerService(store, "x", backfill_days=3).observe(live(NOON), RUNNING)
    for part in (0, 1, 2, 4):  # the last one fills a day
        learning = LearnerService(store, "x", backfill_days=3)
        with pytest.raises(ProviderUnavailable):
            backfill(learning, Past(fails_at=part)).fill_all()
    learning = LearnerService(store, "x", backfill_days=3)
    assert backfill(learning, past := Past()).fill_all()
    assert past.read == 6
    assert known(LearnerService(store, "x").containers()) == known(always.containers())
    assert backfill(learning, Past(fails_at=0)).fill_all()
    store.close()


def test_a_store_that_knows_workloads_is_not_filled(tmp_path: Path) -> None:
    """Only an empty store is filled: a learner that has a state has no unfilled days."""
    store = Store(tmp_path / "store.db")
    LearnerService(store, "x").observe(live(NOON), RUNNING)
    learning = LearnerService(store, "x", backfill_days=14)
    learning.observe(live(NOON + STEP), RUNNING)
    assert learning.unfilled()[0] == []
    store.close()


def test_a_backfill_that_fails_is_given_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """After three failures without a filled day it stops until the next start, and rounds are learned as before."""
    monkeypatch.setattr("watcher.usage.backfill._RETRY_SECONDS", 0.0)
    learning = LearnerService(Store(None), "x", backfill_days=14)
    past = Past(fails_at=4)
    filling = WorkloadBackfill(Settings(), learning, lambda _settings: past)
    learning.observe(live(NOON), RUNNING)
    with caplog.at_level("INFO"):
        filling.observe(live(NOON), RUNNING)
        wait_until(lambda: "is not read until the next start" in caplog.text, "it gives up")
    assert caplog.text.count("the past use of workloads cannot be filled") == 3
    assert len(learning.unfilled()[0]) == 13
    learning.observe(live(NOON + STEP), RUNNING)
    assert learning.table().timestamp == NOON + STEP
    filling.stop()


def test_pods_that_still_run_count_in_full(always: LearnerService) -> None:
    """A container that was measured for days is expected to use what a learner that always ran expects."""
    learning = LearnerService(Store(None), "x", backfill_days=3)
    learning.observe(live(NOON - 2 * STEP), RUNNING)
    backfill(learning, Past()).fill_all()
    for at in (NOON - STEP, NOON):
        learning.observe(live(at), RUNNING)
    for resource in range(2):
        assert learning.containers().use[resource] == pytest.approx(always.containers().use[resource], rel=0.01)


@pytest.mark.parametrize("hour", [1, 13, 23])
def test_the_past_of_a_daily_cycle_counts_the_same_at_any_hour(hour: int) -> None:
    """A filled learner expects what one that always ran expects, at each time of day at which its days are filled."""
    end, wave = 20_000 * DAY + 3600 * hour, 2 * np.pi / DAY
    times = range(end - 2 * DAY + STEP, end + 1, STEP)

    def use(at: np.ndarray | int) -> np.ndarray:
        return np.atleast_1d(1 + 0.9 * np.sin(wave * (np.asarray(at) - end)))

    always, learning = WorkloadLearner(), WorkloadLearner()
    for at in times:
        live_use = ContainerUse(at, STEP, ["shop"], [PODS[0]], ["main"], use(at), np.ones(1))
        observed = use_round(live_use, UNREQUESTED, at - STEP)
        assert observed is not None
        always.observe(observed)
        if at == times[-1]:
            learning.observe(observed)
    learning.unfilled = [20_000, 19_999, 19_998]
    for day in list(learning.unfilled):
        collector = DayCollector(day, STEP)
        ends = range(max(day * DAY, end - 2 * DAY) + STEP, min((day + 1) * DAY, end - STEP) + 1, STEP)
        course = use(np.array(ends))[None].astype(np.float32)
        past = PastContainerUse(ends, ["shop"], [PODS[0]], ["main"], course, np.ones((2, 1)))
        collector.add(past, lambda _namespace, _pod: WEB, present_pods={("shop", PODS[0])})
        learning.fill(collector.result())
    for resource in range(2):
        assert learning.containers().use[resource] == pytest.approx(always.containers().use[resource], rel=1e-6)


def test_runs_of_jobs_count_in_full() -> None:
    """Short runs of a job, one after another, count for the time in which any of them ran, also if none runs now."""
    job, one = Workload("shop", "CronJob", "nightly"), np.ones(1)
    learner = WorkloadLearner()
    first = use_round(ContainerUse(NOON, STEP, ["shop"], [PODS[0]], ["main"], one, one * MEBI), RUNNING, 0.0, ())
    assert first is not None
    learner.observe(first)
    learner.unfilled = [20_000]
    collector, ends = DayCollector(20_000, STEP), range(20_000 * DAY + STEP, 20_000 * DAY + 36 * STEP + 1, STEP)
    for run in range(12):  # two at a time, of half an hour each
        course = np.full((1, 36), np.nan, np.float32)
        course[0, 6 * (run // 2) : 6 * (run // 2 + 1)] = run % 2
        past = PastContainerUse(ends, ["shop"], [f"nightly-{run}"], ["main"], course, np.full((2, 1), MEBI))
        collector.add(past, lambda _namespace, _pod: job, present_pods=())
    learner.fill(collector.result())
    (row,) = (row for row, key in enumerate(learner.keys) if key.workload == job)
    assert learner.rows["minutes"][row].tolist() == [180, 180]
    assert learner.rows["pod_minutes"][row] == 360
    assert learner.containers().use[:, row] == pytest.approx([0.5, MEBI])
    assert learner.rows["squares"][row] / learner.rows["weights"][row] == pytest.approx([0.5, MEBI**2])


def test_pods_of_earlier_revisions_count_as_an_hour() -> None:
    """Their newest day counts once, so later measurements outweigh it."""
    learner = WorkloadLearner()
    first = use_round(live(NOON), UNREQUESTED, 0.0, ())
    assert first is not None
    learner.observe(first)
    learner.unfilled = [20_000, 19_999]
    for day in (20_000, 19_999):
        collector = DayCollector(day, STEP)
        times = range(day * DAY + STEP, min((day + 1) * DAY, NOON - STEP) + 1, STEP)
        for _, use in Past().past_pod_use(times, 1):
            collector.add(use, lambda _namespace, _pod: WEB, present_pods=())
        learner.fill(collector.result())
    times = range(20_000 * DAY + STEP, NOON - STEP + 1, STEP)
    mean = day_mean(times)
    now = np.array([np.mean([f(pod, NOON) for pod in range(3)]) for f in (cores, memory)])
    assert learner.containers().use[:, 0] == pytest.approx((60 * mean + 5 * now) / 65, rel=1e-5)


def test_a_day_has_any_number_of_containers() -> None:
    """The values of all containers are kept when their number grows; each second one is of an earlier revision."""
    collector, ends = DayCollector(20_000, DAY // 6), range(20_000 * DAY + DAY // 6, 20_001 * DAY + 1, DAY // 6)
    for first, last in ((0, 200), (200, 257), (257, 900), (900, 900)):
        numbers = np.arange(first, last)
        course = np.ones((len(numbers), 6), np.float32)
        course[numbers % 3 == 0, 0] = np.nan
        pods, names = [("old", "new")[number % 2] for number in numbers], [f"c-{number}" for number in numbers]
        past = PastContainerUse(ends, ["shop"] * len(pods), pods, names, course, np.stack([numbers + 1.0, numbers + 2]))
        collector.add(past, lambda _namespace, _pod: WEB, present_pods={("shop", "new")})
    day, numbers = collector.result(), np.arange(900)
    known, is_new = 6 - (numbers % 3 == 0), numbers % 2
    assert [key.container for key in day.keys] == [f"c-{number}" for number in numbers]
    assert day.highest_memory.tolist() == (numbers + 2).tolist()
    assert day.pod_minutes.tolist() == day.counts.sum(axis=1).tolist() == (240 * known).tolist()
    assert (day.minutes[0].tolist(), day.runs.tolist()) == ((240 * known * is_new).tolist(), (6 - known).tolist())
    assert day.seen.T.tolist() == [[ends[6 - each], ends[-1]] for each in known]
    assert day.sums[:, 3] / day.sums[:, 1] == pytest.approx(numbers + 1)
    assert day.minutes[1] == pytest.approx(day.present[:, 0], rel=1e-12)
    assert day.present.tolist() == (day.sums * is_new[:, None]).tolist()


def test_ended_workloads_begin_with_their_mean() -> None:
    """A workload that has no pods now is expected to use the mean of its newest day, and is seen last on that day."""
    learning = LearnerService(Store(None), "x", backfill_days=1)
    other = {PodKey("shop", "api"): RunningPod(PodTemplate(WEB._replace(name="api"), "", ()), 1.0)}
    learning.observe(ContainerUse(NOON, STEP, ["shop"], ["api"], ["main"], np.ones(1), np.ones(1) * MEBI), other)
    backfill(learning, Past()).fill_all()
    table = learning.table()
    place = table.workloads.index(WEB)
    times = range(20_000 * DAY + STEP, NOON - STEP + 1, STEP)
    assert table.use[:, place] == pytest.approx(day_mean(times), rel=1e-5)
    assert (table.last_seen[place], table.pods[place]) == (NOON - STEP, 0)


# -- with a real Prometheus ---------------------------------------------------------------------------------------


def rows_of(table: ContainerTable) -> dict[str, int]:
    return {f"{key.workload.kind}/{key.workload.name}": row for row, key in enumerate(table.keys)}


@pytest.mark.server
def test_days_are_read_from_prometheus(tmp_path: Path) -> None:
    """Pods of earlier revisions and ended jobs count, by their workloads, from the days on which they ran."""
    end = int(time.time()) - 5
    learning = LearnerService(Store(None), "Prometheus", backfill_days=3)
    with run_prometheus(tmp_path, past_days(end)) as url:
        settings = Settings(provider=ProviderSettings(name="Prometheus", address=url))
        filling = WorkloadBackfill(settings, learning)
        rounds = PodUseRounds(settings, [learning, filling], clock=lambda: end)
        assert rounds.run_once(), rounds.state
        wait_until(lambda: not learning.unfilled()[0], "all days are filled")
        rounds.stop()
        filling.stop()
    table = learning.containers((0.5, 0.9, 1.0))
    rows = rows_of(table)
    assert rows.keys() == {"Deployment/web", "CronJob/nightly"}
    web, job = rows["Deployment/web"], rows["CronJob/nightly"]
    assert table.cpu_percentiles[2, web] == pytest.approx(0.6, rel=0.06)  # of the pod before, 5 % wide bins
    assert table.use[0, web] == pytest.approx(0.2, rel=0.01)  # of the pod that runs
    assert table.highest_memory[web] == pytest.approx(300 * MEBI)
    first = (end // DAY - 2) * DAY
    assert table.first_seen[web] == pytest.approx(max(end - 2.5 * DAY, first), abs=2 * STEP)
    assert table.cpu_percentiles[0, job] == pytest.approx(1.5, rel=0.06)
    assert table.pod_minutes[job] == pytest.approx(144, abs=6)
    assert (table.runs[job], table.pods[job], table.pods[web]) == (1, 0, 1)


@pytest.mark.server
@pytest.mark.slow
def test_a_watcher_killed_during_the_backfill_goes_on(tmp_path: Path) -> None:
    """After kill -9 at random moments the watcher has filled each day once, as a watcher that was never killed."""
    end, dice = int(time.time()) - 5, random.Random(35)
    with run_prometheus(tmp_path, past_days(end)) as url:
        tables = [
            run_until_filled(tmp_path / f"{name}.db", url, [dice.uniform(0, 1.5) for _ in range(times)])
            for name, times in (("killed", 6), ("whole", 0))
        ]
    killed, whole = tables
    assert rows_of(killed).keys() == rows_of(whole).keys() == {"Deployment/web", "CronJob/nightly"}
    for name, row in rows_of(whole).items():
        other = rows_of(killed)[name]
        assert killed.cpu_percentiles[:, other].tolist() == whole.cpu_percentiles[:, row].tolist()
        assert killed.first_seen[other] == whole.first_seen[row]
        assert killed.runs[other] == whole.runs[row]
        assert killed.pod_minutes[other] == pytest.approx(whole.pod_minutes[row], abs=60)  # each start has a round


def run_until_filled(path: Path, url: str, kills: Sequence[float]) -> ContainerTable:
    """Run a watcher until all days are filled; kill it before, some seconds after each of its first rounds."""
    options = (*prometheus_arguments(url), "--set", "workloads.backfill_days=3")
    for seconds in kills:
        service = Service(path, path.with_suffix(".log"), *options)
        service.wait_for("/workloads")
        time.sleep(seconds)
        service.kill()
    service = Service(path, path.with_suffix(".log"), *options)
    wait_until(lambda: is_filled(path), "all days are filled", 90)
    service.terminate()
    settings = Settings(provider=ProviderSettings(name="Prometheus", address=url))
    store = Store(path, origins=origins([settings]))
    table = LearnerService(store, "Prometheus").containers()
    assert store.set_aside is None
    store.close()
    return table


def is_filled(path: Path) -> bool:
    """Return whether the store of a running watcher has a state without unfilled days."""
    if not path.exists():
        return False
    parts: list[bytes] = []
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        with contextlib.suppress(sqlite3.OperationalError):  # not created yet
            parts = [body for (body,) in connection.execute("select body from workload_state where part = 'present'")]
    return bool(parts) and not load_state({"present": parts[0]}, 100).unfilled
