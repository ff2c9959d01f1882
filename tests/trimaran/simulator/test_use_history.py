"""What a replay learns of owners from its past: levels, and how far use strays from them."""

import numpy as np
import pytest

from runtime.kubernetes.objects import Owner
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.trace import PodUse, Trace

GIB = 2**30
MINUTES = 600
STEADY, WAVING = Owner("Deployment", "steady"), Owner("Deployment", "waving")


@pytest.fixture
def cluster() -> Cluster:
    """Two pods of two owners that ask for 2 cores: one uses half of it, the other .2 and .8 in turns of an hour."""
    waves = np.where(np.arange(MINUTES) // 60 % 2, 0.8, 0.2)
    trace = Trace(
        name="two",
        nodes=("a", "b"),
        cpu_capacity_milli=np.full(2, 10_000),
        memory_capacity_bytes=np.full(2, 64 * GIB),
        pods=("one", "two"),
        owner_kinds=("Deployment",) * 2,
        owners=("steady", "waving"),
        arrival_minute=np.zeros(2, np.int64),
        end_minute=np.full(2, MINUTES),
        cpu_request_milli=np.full(2, 2000),
        memory_request_bytes=np.full(2, GIB),
        cpu_limit_milli=np.full(2, -1),
        memory_limit_bytes=np.full(2, -1),
        use=PodUse(
            np.arange(3) * MINUTES,
            np.concatenate([np.full(MINUTES, 0.5), waves]).astype(np.float16),
            np.full(2 * MINUTES, 0.75, np.float16),
        ),
        overcommit=(2.0, 1.0),
        warm_up_minutes=0,
        minutes=MINUTES,
    )
    cluster = Cluster(trace, trace.overcommit)
    for number in (0, 1):
        cluster.place(number, cluster.pod(number), number)
    return cluster


def learnt(cluster: Cluster, until: int) -> UseHistory:
    history = UseHistory(cluster, SimulatedWatcher(Windows(delay_minutes=0), cluster))
    for minute in range(0, until + 1, 5):
        cluster.minute = minute
        history.levels()
    return history


def test_levels_are_of_requests_after_overcommit(cluster: Cluster) -> None:
    """Requests were halved, so half of what the user wrote is all of it; memory stays."""
    levels = learnt(cluster, 480).levels()
    assert levels.level(STEADY, "cpu") == pytest.approx(1.0, rel=0.05)
    assert levels.level(WAVING, "memory") == pytest.approx(0.75, rel=0.02)


def test_what_waves_strays_more(cluster: Cluster) -> None:
    """An owner that rises and falls by .3 of what was written strays by .6 of the halved request, and more."""
    levels = learnt(cluster, 480).levels()
    unknown = 0.8**2 / (1 + 480 / 120)
    assert levels.deviation(STEADY, "cpu") == pytest.approx(unknown**0.5, rel=0.05)
    assert levels.deviation(WAVING, "cpu") == pytest.approx((0.6**2 + unknown) ** 0.5, rel=0.05)


def test_memory_strays_less(cluster: Cluster) -> None:
    """What is steady strays by what nobody knows of it alone, which of memory is less than of CPU."""
    levels = learnt(cluster, 480).levels()
    unknown = 0.3**2 / (1 + 480 / 120)
    memory = levels.level(STEADY, "memory")
    assert levels.deviation(STEADY, "memory") == pytest.approx(memory * unknown**0.5, rel=0.05)
    assert levels.deviation(None, "memory") == pytest.approx(0.3 * levels.level(None, "memory"))


def test_memory_strays_as_far_as_it_was_seen(cluster: Cluster) -> None:
    """Five minutes of half as much again are hardly a variance, but what the node must have room for."""
    cluster.trace.use.memory[100:105] = 1.125  # of the steady one
    levels = learnt(cluster, 480).levels()
    mean = levels.level(STEADY, "memory")
    unknown = 0.3**2 * mean**2 / (1 + 480 / 120)
    expected = ((1.125 - mean) ** 2 + unknown) ** 0.5
    assert levels.deviation(STEADY, "memory") == pytest.approx(expected, rel=0.05)


def test_deviations_fade_as_owners_are_watched(cluster: Cluster) -> None:
    """Of a new owner less is known than of one that was watched for hours; of one that nobody saw, least."""
    early = learnt(cluster, 20).levels().deviation(STEADY, "cpu")
    late = learnt(cluster, 480).levels()
    assert late.deviation(STEADY, "cpu") < early < late.deviation(None, "cpu") * 1.2
    assert late.deviation(None, "cpu") == pytest.approx(0.8 * late.level(None, "cpu"))
