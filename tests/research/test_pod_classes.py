"""Hot pod-minutes by class of pod."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from support.scripts import imported

from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.replay import Replay, ReplayOutcome
from trimaran.traces.history import STEPS_A_DAY, TraceHistory
from trimaran.traces.trace import JOB, NO_LIMIT, PodUse, Trace

SERVICE = "Deployment"
NODE_MILLI = 1000


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("pod_classes") as module:
        yield module


def world(pods: list[tuple[str, str, int, int, int]], minutes: int = 60, warm_up: int = 10) -> Trace:
    """Return a world of one node; a pod has kind, owner, arrival, end, and its request, which it uses in full."""
    kinds, owners, arrivals, ends, requests = zip(*pods, strict=True)
    lives = np.subtract(ends, arrivals)
    ones, none = np.ones(len(pods), np.int64), np.full(len(pods), NO_LIMIT, np.int64)
    return Trace(
        name="classes", nodes=("node",), cpu_capacity_milli=np.array([NODE_MILLI]),
        memory_capacity_bytes=np.array([2**30]), pods=tuple(f"pod-{number}" for number in range(len(pods))),
        owner_kinds=kinds, owners=owners, arrival_minute=np.array(arrivals), end_minute=np.array(ends),
        cpu_request_milli=np.array(requests), memory_request_bytes=ones, cpu_limit_milli=none, memory_limit_bytes=none,
        use=PodUse(np.concatenate([[0], np.cumsum(lives)]), *np.ones((2, lives.sum()), np.float16)),
        overcommit=(1.0, 1.0), warm_up_minutes=warm_up, minutes=minutes,
    )  # fmt: skip


def replayed(trace: Trace) -> ReplayOutcome:
    return Replay(trace, policies(trace)[DEFAULT]).run()


def history(kind: str, owner: str) -> TraceHistory:
    values = np.ones((1, STEPS_A_DAY), np.float16)
    return TraceHistory((kind,), (owner,), ("",), np.array([-3]), values, values)


def test_minutes_are_divided_by_class(script: ModuleType) -> None:
    """A large old service makes the node hot while a small new job runs; both have the same hot minutes."""
    trace = world([(SERVICE, "shop", 0, 60, 790), (JOB, "batch", 30, 55, 20), (JOB, "batch", 52, 58, 20)])
    classes = script.by_class(replayed(trace), history(SERVICE, "shop"))
    hot = 28  # minutes 30 to 57
    of_jobs = 25 + 6
    assert classes["hot_large"] == classes["hot_service"] == classes["hot_recurring"] == hot
    assert classes["hot_small"] == classes["hot_job"] == classes["hot_new"] == of_jobs
    assert (classes["all_service"], classes["all_job"]) == (50, of_jobs)
    # The service began in the warm-up. The first 20 minutes of the jobs' owner are 30 to 49.
    assert (classes["hot_first_20"], classes["all_first_20"]) == (20, 20 + 10)
    assert (classes["hot_placed_first"], classes["hot_placed_later"]) == (hot + 25, 6)
    assert classes["hot_later"] == hot + of_jobs - 20


def test_only_the_highest_use_makes_a_pod_large(script: ModuleType) -> None:
    """A pod that uses a tenth of a node in a tenth of its time is large, in a twentieth it is not."""
    trace = world([(SERVICE, "shop", 0, 60, 100), (SERVICE, "shop", 0, 60, 100)])
    cpu = np.full(120, 0.5, np.float16)
    cpu[:6] = cpu[60:62] = 1
    trace = replace(trace, use=replace(trace.use, cpu=cpu))
    assert script.high_use(trace).round().tolist() == [100, 50]
    classes = script.by_class(replayed(trace), None)
    assert classes["all_large"] == classes["all_small"] == 50


def test_sums_are_those_of_the_measures(script: ModuleType) -> None:
    """The classes of each pair add up to the measures of the replay."""
    pods = [(SERVICE, f"s-{n}", n, 50, 150) for n in range(5)] + [
        (JOB, f"j-{n % 3}", 5 * n, 5 * n + 9, 90) for n in range(9)
    ]
    outcome = replayed(world(pods))
    classes, measured = script.by_class(outcome, None), measures(outcome)
    assert classes["hot_job"] == measured["job_hot_pod_minutes"] > 0
    assert classes["hot_service"] == measured["service_hot_pod_minutes"] > 0
    pairs = [script.NAMES[place : place + 2] for place in range(1, len(script.NAMES), 2)]
    for kind in ("hot", "all"):
        total = {sum(classes[f"{kind}_{name}"] for name in pair) for pair in pairs}
        assert total == {classes[f"{kind}_total"]}
