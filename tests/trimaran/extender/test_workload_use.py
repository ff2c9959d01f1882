"""Learned use of workloads in the extender: reading it, its age, and scores by it."""

import logging
import time
from dataclasses import replace

import numpy as np
import orjson
import pytest
from support.extending import CONFIGURATION, SettableMetrics, StaticView, extender_args, profiles

from client import NoMetrics
from runtime.kubernetes.workloads import Workload
from scoring import Container, Pod, ResourceList
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.wire import ExtenderArgs
from trimaran.extender.workload_use import MAX_AGE_SECONDS, WorkloadUse
from watcher.workload_table import WorkloadTable

BUSY, IDLE = Workload("default", "Deployment", "busy"), Workload("default", "Deployment", "idle")
NODES = {"node-1": 40.0, "node-2": 40.0}


def table(timestamp: float, *workloads: Workload) -> WorkloadTable:
    """Return a table in which pods of busy use two cores, those of idle nothing."""
    count = len(workloads)
    cores = [2.0 if workload == BUSY else 0.001 for workload in workloads]
    use = np.array([cores, [1e6] * count])
    rest = np.full((4, count), timestamp)
    return WorkloadTable(timestamp, workloads, use, use / 10, np.ones(2), np.zeros(2), *rest)


class ScriptedWatcher:
    """Watcher client with a table that the test sets."""

    def __init__(self) -> None:
        self.current: WorkloadTable | None = None

    def workloads(self) -> WorkloadTable:
        if self.current is None:
            raise NoMetrics("the use of no workload is known: the first round is not complete")
        return self.current


def test_the_newest_table_counts_until_it_is_too_old() -> None:
    """Levels change with the table, share an index, and end an hour after the last round."""
    watcher, now = ScriptedWatcher(), [1000.0]
    use = WorkloadUse(watcher, 60, clock=lambda: now[0])  # type: ignore[arg-type]
    use.read_once()
    assert (use.levels(), use.workloads) == (None, 0)
    watcher.current = table(1000, BUSY)
    use.read_once()
    first = use.levels()
    use.read_once()
    assert use.levels() is first is not None
    watcher.current = table(1300, BUSY, IDLE)
    use.read_once()
    assert use.levels() is not first
    assert use.levels().owners is first.owners
    assert use.workloads == 2
    watcher.current, now[0] = None, 1300 + MAX_AGE_SECONDS + 1
    use.read_once()
    assert (use.levels(), use.workloads, use.age_seconds) == (None, 0, MAX_AGE_SECONDS + 1)


def test_a_missing_table_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The reason is logged when the use becomes unknown and when it is known again, not at every read."""
    caplog.set_level(logging.INFO)
    watcher = ScriptedWatcher()
    use = WorkloadUse(watcher, 60)  # type: ignore[arg-type]
    for _ in range(5):
        use.read_once()
    watcher.current = table(time.time(), BUSY)
    use.read_once()
    messages = [record.message for record in caplog.records]
    assert messages == ["the use of workloads is not known", "the use of workloads is known again"]


def test_scores_follow_the_learned_use() -> None:
    """With equal measured load the node whose pods are known to use little scores higher; without levels both tie."""
    plugins = {"score": {"enabled": [{"name": "CongestionCost", "weight": 1}]}}
    configuration = {**CONFIGURATION, "profiles": [{"schedulerName": "load-aware", "plugins": plugins}]}
    view = StaticView(*NODES)
    requests = ResourceList({"cpu": 500, "memory": 1 << 20})
    for node, workload in (("node-1", BUSY), ("node-2", IDLE)):
        pod = Pod(f"{workload.name}-1", containers=(Container(requests),), uid=workload.name, workload=workload)
        view.state.table.add(pod, node)
    request = ExtenderArgs.decode(orjson.dumps(extender_args(*NODES, cpu="1")))
    known = [None]
    options = PrioritizerOptions(deadline_seconds=20, seed=1, assume=False)
    prioritizer = Prioritizer(
        profiles(configuration), view, SettableMetrics(NODES), options, levels=lambda: known[0]
    )  # fmt: skip
    try:
        before = prioritizer.answer(request).scores
        assert before["node-1"] == before["node-2"]
        watcher = ScriptedWatcher()
        watcher.current = table(time.time(), BUSY, IDLE)
        use = WorkloadUse(watcher, 60)  # type: ignore[arg-type]
        use.read_once()
        known[0] = use.levels()
        after = prioritizer.answer(request).scores
        assert after["node-2"] > after["node-1"]
        watcher.current = replace(watcher.current, use=watcher.current.use[:, ::-1].copy())
        use.read_once()
        known[0] = use.levels()
        swapped = prioritizer.answer(request).scores
        assert swapped["node-1"] > swapped["node-2"]
    finally:
        prioritizer.close()
