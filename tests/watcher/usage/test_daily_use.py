"""Use of containers by day: quantiles and peaks are those of each day's own measurements."""

import numpy as np
import pytest

from runtime.kubernetes.workloads import Workload
from watcher.usage.learn.cpu_histograms import BIN_ENDS, bins_of
from watcher.usage.learn.daily_use import daily_use
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.learn.use_round import UseRound
from watcher.usage.sources.pods import DAYS
from watcher.workload_table import ContainerKey

DAY, GIB = 86400, 2.0**30
NOON = 20_000 * DAY + DAY / 2
WEB = Workload("default", "Deployment", "web")
MAIN, PROXY = ContainerKey(WEB, "main"), ContainerKey(WEB, "proxy")


def use_round(time: float, *measured: tuple[ContainerKey, float, float]) -> UseRound:
    """Return a round of five minutes: containers with their use, cores and bytes, in one pod each."""
    size = len(measured)
    keys, cores, memory = zip(*measured, strict=True)
    return UseRound(
        time, 300.0, list(keys), np.arange(size), np.ones(size, np.int64), np.ones(size), np.full(size, 300.0),
        np.array([cores, memory]), np.ones((2, size)),
    )  # fmt: skip


def test_each_day_has_its_own_values() -> None:
    """The present day comes first; a day without a container, and days before the first, are unknown."""
    learner = WorkloadLearner()
    for day, (cores, memory) in enumerate([(0.2, 1.0), (0.8, 3.0), (0.4, 2.0)]):
        rows = [(MAIN, cores, memory * GIB)] + ([(PROXY, 0.1, GIB)] if day == 1 else [])
        for number in range(4):
            learner.observe(use_round(NOON + day * DAY + 300.0 * number, *rows))
    use = daily_use(learner, WEB)
    assert use.keys == (MAIN, PROXY)
    assert use.cpu.shape == (2, 2, DAYS)
    ends = BIN_ENDS[bins_of(np.array([0.4, 0.8, 0.2]))].tolist()
    assert use.cpu[:, 0, :3].tolist() == [ends, ends]
    assert (use.highest_memory[0, :3] / GIB).tolist() == [2.0, 3.0, 1.0]
    assert np.isnan(use.cpu[:, 0, 3:]).all()
    assert np.isnan(use.highest_memory[0, 3:]).all()
    assert np.isfinite(use.cpu[0, 1]).tolist() == [day == 1 for day in range(DAYS)]


def test_quantiles_weigh_by_time() -> None:
    """One high measurement of twenty moves the highest quantile of the day, and not its median."""
    learner = WorkloadLearner()
    for number in range(20):
        learner.observe(use_round(NOON + 300.0 * number, (MAIN, 2.0 if number == 7 else 0.5, GIB)))
    low, high = daily_use(learner, WEB, (0.5, 0.99)).cpu[:, 0, 0]
    assert low == pytest.approx(BIN_ENDS[bins_of(np.array([0.5]))][0])
    assert high == pytest.approx(BIN_ENDS[bins_of(np.array([2.0]))][0])


def test_an_unknown_workload_has_no_containers() -> None:
    """Neither an empty learner nor an unknown name is an error."""
    assert daily_use(WorkloadLearner(), Workload("a", "b", "c")).keys == ()
