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
from scoring.load.pod_expectation import expectation_line
from trimaran.cluster.workload_use import MAX_AGE_SECONDS, WorkloadUse
from trimaran.extender.decisions.record import DecisionRecord
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.wire import ExtenderArgs
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


PLUGINS = {"score": {"enabled": [{"name": "CongestionCost", "weight": 1}]}}
CONGESTION = {**CONFIGURATION, "profiles": [{"schedulerName": "load-aware", "plugins": PLUGINS}]}


def explained(use: WorkloadUse, configuration: dict[str, object], request: dict[str, object]) -> dict[str, object]:
    """Return the expected use in the explanation of a pod that was scored just now."""
    view, metrics = StaticView(*NODES), SettableMetrics(NODES)
    record = DecisionRecord(view, metrics, ExtenderTelemetry(), why_by_requests=lambda: use.why_unknown or "off")
    prioritizer = Prioritizer(
        profiles(configuration), view, metrics, PrioritizerOptions(deadline_seconds=20, assume=False),
        levels=use.levels, record=record.add,
    )  # fmt: skip
    try:
        prioritizer.answer(ExtenderArgs.decode(orjson.dumps(request)))
    finally:
        prioritizer.close()
    document = record.explain("default/pod-1")
    assert document is not None
    assert record.recent(1)[0]["expected"] == document["expected"]
    return document["expected"]


@pytest.mark.parametrize("case", ["known", "unknown", "absent", "old", "other plugin"])
def test_an_explanation_names_the_levels_that_counted(case: str) -> None:
    """Workload, revision, use, deviation and age of a known workload; else the reason why requests count."""
    watcher, now = ScriptedWatcher(), time.time()
    if case != "absent":
        watcher.current = table(now - 42, BUSY)
    use = WorkloadUse(watcher, 60, clock=lambda: now)  # type: ignore[arg-type]
    use.read_once()
    if case == "old":
        use = WorkloadUse(watcher, 60, clock=lambda: now + 2 * MAX_AGE_SECONDS)  # type: ignore[arg-type]
        use.read_once()
    request = extender_args(*NODES, cpu="1")
    labels = {"pod-template-hash": "5d4f"}
    owner = {"kind": "ReplicaSet", "name": "busy-5d4f" if case == "known" else "other-5d4f", "controller": True}
    request["Pod"]["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    expected = explained(use, CONFIGURATION if case == "other plugin" else CONGESTION, request)
    line = expectation_line(expected)
    if case == "known":
        assert (expected["basis"], expected["workload"]) == ("workload", "default/Deployment/busy")
        assert (expected["revision"], expected["use"]["cpu_cores"], expected["deviation"]["cpu_cores"]) == (
            "5d4f",
            2.0,
            0.2,
        )
        assert 42 <= expected["age_seconds"] < 120  # by the clock of this machine
        assert "2 ± 0.2 CPUs" in line
        assert f"learned of default/Deployment/busy (revision 5d4f), {expected['age_seconds']:.0f}" in line
    elif case == "unknown":
        assert expected["basis"] == "all_pods"
        assert line.startswith("by requests: unknown workload default/Deployment/other; 1 ± 0 CPUs")
    else:
        assert expected["basis"] == "requests"
        assert expected["use"]["cpu_cores"] == 1.0
        reason = {"absent": "the first round is not complete", "old": "is 7242 s old", "other plugin": "off"}[case]
        assert line.startswith("by requests: ")
        assert line.endswith(reason)


def test_scores_follow_the_learned_use() -> None:
    """With equal measured load the node whose pods are known to use little scores higher; without levels both tie."""
    view = StaticView(*NODES)
    requests = ResourceList({"cpu": 500, "memory": 1 << 20})
    for node, workload in (("node-1", BUSY), ("node-2", IDLE)):
        pod = Pod(f"{workload.name}-1", containers=(Container(requests),), uid=workload.name, workload=workload)
        view.state.table.add(pod, node)
    request = ExtenderArgs.decode(orjson.dumps(extender_args(*NODES, cpu="1")))
    known = [None]
    options = PrioritizerOptions(deadline_seconds=20, seed=1, assume=False)
    prioritizer = Prioritizer(
        profiles(CONGESTION), view, SettableMetrics(NODES), options, levels=lambda: known[0]
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
