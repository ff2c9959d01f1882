"""Expected use of workloads, learned from the past of a replay by the watcher's learner."""

import numpy as np
import pytest

from runtime.kubernetes.workloads import Workload
from scoring import Container, Pod, ResourceList, UseLevels
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.trace import PodUse, Trace
from watcher.usage.recommend.recommendation import RecommendationRule, recommend

GIB = 2**30
MINUTES = 600
STEADY, WAVING = (Workload("default", "Deployment", name) for name in ("steady", "waving"))
REQUESTS = {"cpu": 1000, "memory": GIB}  # after overcommit


@pytest.fixture
def cluster() -> Cluster:
    """Return two pods of two owners with 2 requested cores: one uses half, the other .2 and .8 in turns of an hour."""
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


def learned(cluster: Cluster, until: int) -> UseHistory:
    history = UseHistory(cluster, SimulatedWatcher(Windows(delay_minutes=0), cluster))
    for minute in range(0, until + 1, 5):
        cluster.minute = minute
        history.levels()
    return history


def level(levels: UseLevels, workload: Workload | None, resource: str) -> float:
    """Return the expected use of a pod of a workload, as a share of its request."""
    request = REQUESTS[resource]
    pod = Pod(workload=workload, containers=(Container(ResourceList({resource: request})),))
    return levels.expected_use(pod, resource) / request


def deviation(levels: UseLevels, workload: Workload | None, resource: str) -> float:
    """Return the deviation of this share."""
    return levels.deviation(workload, resource, 1, REQUESTS[resource]) / REQUESTS[resource]


def test_levels_are_of_requests_after_overcommit(cluster: Cluster) -> None:
    """Half of the original request is all of the halved request; memory is not overcommitted."""
    levels = learned(cluster, 480).levels()
    assert level(levels, STEADY, "cpu") == pytest.approx(1.0, rel=0.05)
    assert level(levels, WAVING, "memory") == pytest.approx(0.75, rel=0.02)


def test_varying_use_has_a_larger_deviation(cluster: Cluster) -> None:
    """Use that varies by .3 of the original request has a deviation of .6 of the halved one, plus the uncertainty."""
    levels = learned(cluster, 480).levels()
    unknown = 0.8**2 / (1 + 480 / 120)
    assert deviation(levels, STEADY, "cpu") == pytest.approx(unknown**0.5, rel=0.05)
    assert deviation(levels, WAVING, "cpu") == pytest.approx((0.6**2 + unknown) ** 0.5, rel=0.05)


def test_memory_has_a_smaller_uncertainty(cluster: Cluster) -> None:
    """Constant use has only the uncertainty as deviation, which is smaller for memory than for CPU."""
    levels = learned(cluster, 480).levels()
    unknown = 0.3**2 / (1 + 480 / 120)
    memory = level(levels, STEADY, "memory")
    assert deviation(levels, STEADY, "memory") == pytest.approx(memory * unknown**0.5, rel=0.05)
    assert deviation(levels, None, "memory") == pytest.approx(0.3 * level(levels, None, "memory"))


def test_memory_deviates_up_to_its_peak(cluster: Cluster) -> None:
    """A memory peak of five minutes raises the deviation up to the peak's distance from the mean."""
    cluster.trace.use.memory[100:105] = 1.125  # of the pod with steady use
    levels = learned(cluster, 480).levels()
    mean = level(levels, STEADY, "memory")
    unknown = 0.3**2 * mean**2 / (1 + 480 / 120)
    expected = ((1.125 - mean) ** 2 + unknown) ** 0.5
    assert deviation(levels, STEADY, "memory") == pytest.approx(expected, rel=0.05)


def test_the_uncertainty_falls_with_observation(cluster: Cluster) -> None:
    """A new owner has a larger deviation than one observed for hours; an unknown owner has the largest."""
    early = deviation(learned(cluster, 20).levels(), STEADY, "cpu")
    late = learned(cluster, 480).levels()
    assert deviation(late, STEADY, "cpu") < early < deviation(late, None, "cpu") * 1.2
    assert deviation(late, None, "cpu") == pytest.approx(0.8 * level(late, None, "cpu"))


def test_right_sizes_are_the_watchers_recommendations(cluster: Cluster) -> None:
    """After ten minutes of history a pod gets the amounts that the watcher recommends for its workload."""
    history = learned(cluster, 300)
    assert history.right_sized(1) != cluster.requests(1)
    table = history.learner.containers((0.9,))
    advised = recommend(table, RecommendationRule(min_days=10 / 1440))
    for number, workload in enumerate((STEADY, WAVING)):
        row = [key.workload for key in table.keys].index(workload)
        cpu_cores, memory_bytes = advised.requests[:, row]
        assert history.right_sized(number) == (round(1000 * cpu_cores), round(memory_bytes))


def test_pods_without_a_recommendation_keep_their_requests(cluster: Cluster) -> None:
    """Before ten minutes are known no request is lowered, as that of memory; CPU may be raised after one round."""
    history = learned(cluster, 5)
    cpu_milli, memory_bytes = history.right_sized(0)
    assert memory_bytes == cluster.requests(0)[1]
    assert cpu_milli > cluster.requests(0)[0]
    assert learned(cluster, 0).right_sized(0) == cluster.requests(0)
