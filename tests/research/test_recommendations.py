"""The comparison of recommended requests: what each rule gives for known use, and how it is judged."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trimaran.traces.trace import PodUse, Trace

GIB, HOURS = 2**30, 4


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    """Return the script as a module."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "research"))
    try:
        return importlib.import_module("recommendations")
    finally:
        sys.path.pop(0)


def trace(cpu: list[list[float]], memory: list[list[float]] | None = None) -> Trace:
    """Return a trace of one Deployment whose pods of 1 core and 1 GiB run all the time, with their use by minute."""
    lengths = [len(each) for each in cpu]
    offsets = np.append(0, np.cumsum(lengths))
    count, ones = len(cpu), np.ones(len(cpu), np.int64)
    use = PodUse(offsets, np.concatenate(cpu), np.concatenate(memory or [[0.5] * length for length in lengths]))
    return Trace(
        name="world", nodes=("n",), cpu_capacity_milli=1000 * ones[:1], memory_capacity_bytes=GIB * ones[:1],
        pods=tuple(f"p{number}" for number in range(count)), owner_kinds=("Deployment",) * count,
        owners=("web",) * count, arrival_minute=0 * ones, end_minute=np.array(lengths), cpu_request_milli=1000 * ones,
        memory_request_bytes=GIB * ones, cpu_limit_milli=-ones, memory_limit_bytes=-ones, use=use,
        overcommit=(1.0, 1.0), warm_up_minutes=0, minutes=max(lengths),
    )  # fmt: skip


def test_steady_use_is_recommended_with_the_margin_of_each_rule(rules: ModuleType) -> None:
    """All rules recommend about the use, VPA's with 15 percent more CPU; what they free is what they request less."""
    minutes = HOURS * 60
    judged = rules.judge(trace([[0.2] * minutes]), minutes // 2)
    requested = {name: each.requested[0] - each.freed[0] for name, each in judged.items()}
    assert requested["requests as written"] == pytest.approx(1.0)
    for name in ("`vpa` of `trimaran workloads`", "VerticalPodAutoscaler"):
        assert 0.23 <= requested[name] <= 0.23 * 1.05 * 1.05
    assert requested["KRR"] == pytest.approx(0.2)
    assert all(each.hours == HOURS // 2 for each in judged.values())
    assert judged["KRR"].above == (0, 0)


def test_nothing_of_the_judged_part_is_learnt(rules: ModuleType) -> None:
    """Use that rises after the split changes no recommendation: it is above the requests in every hour."""
    low, high = [0.2] * 120, [0.9] * 120
    same, rising = (
        rules.judge(trace([low + low]), 120),
        rules.judge(trace([low + high], [[0.2] * 120 + [0.9] * 120]), 120),
    )
    for name in rules.RULES_COMPARED:
        if name != "requests as written":
            assert rising[name].freed[0] == same[name].freed[0]
            assert rising[name].above == (2, 2)
    assert rising["requests as written"].above == (0, 0)


def test_krr_takes_the_highest_percentile_of_the_pods(rules: ModuleType) -> None:
    """A short peak of one pod is not in its percentile, a busy pod decides for all, and few samples are not enough."""
    busy, idle = [0.6] * 110, [0.1] * 108 + [2.0] * 2
    cores, memory = rules.kubernetes_resource_recommender(rules.PodMinutes.of(trace([busy, idle])))
    assert (cores.tolist(), memory.tolist()) == ([pytest.approx(0.6)], [pytest.approx(1.15 * GIB / 2)])
    few = rules.PodMinutes.of(trace([[0.6] * 60]))
    assert np.isnan(rules.kubernetes_resource_recommender(few)).all()
    assert np.isinf(rules.as_written(few)).all()


def test_workloads_that_a_rule_does_not_know_are_not_judged(rules: ModuleType) -> None:
    """A workload that begins after the split has no workload-hours."""
    world = trace([[0.2] * 240, [0.2] * 60])
    late = replace(world, owners=("web", "late"), arrival_minute=np.array([0, 150]), end_minute=np.array([240, 210]))
    assert rules.judge(late, 120)["KRR"].hours == 2
