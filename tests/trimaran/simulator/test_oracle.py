"""Offline search for placements, and the oracle policy that follows its plan."""

import itertools
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import pytest

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.measures import measures
from trimaran.simulator.moving.base import MovePolicy
from trimaran.simulator.policies.clairvoyant import Clairvoyant
from trimaran.simulator.policies.offline import OfflineSearch
from trimaran.simulator.policies.oracle import Oracle, OracleChooser
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.traces.events import EventKind, NodeEvent
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import PodUse, Trace

GREEDY = Clairvoyant()


@dataclass(frozen=True)
class Planned:
    """Policy with a fixed plan, carried out like the oracle's."""

    plan: tuple[tuple[int, ...], ...]
    name: str = "planned"
    move_policy: MovePolicy | None = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> OracleChooser:
        """Return a chooser for one replay."""
        plan = {pod: deque(nodes) for pod, nodes in enumerate(self.plan)}
        return OracleChooser(plan, GREEDY, cluster)


def roomy() -> Trace:
    """Return a world in which no pod waits, so that every plan can be followed."""
    return Synthetic(seed=5, nodes=4, minutes=400, warm_up_minutes=60, requested=0.6, mean_use=0.65).trace()


def searched(outcome: ReplayOutcome) -> OfflineSearch:
    return OfflineSearch(outcome.cluster, GREEDY.targets, GREEDY.powers)


def tiny(seed: int) -> Trace:
    """Return six pods on three nodes, whose lives partly overlap."""
    rng = np.random.default_rng(seed)
    lives = rng.integers(5, 30, 6)
    arrival = np.sort(rng.integers(0, 20, 6))
    return Trace(
        name="tiny",
        nodes=("a", "b", "c"),
        cpu_capacity_milli=np.array([1000, 1000, 1500]),
        memory_capacity_bytes=np.full(3, 1000),
        pods=tuple(f"pod-{number}" for number in range(6)),
        owner_kinds=("Deployment",) * 6,
        owners=tuple(f"owner-{number}" for number in range(6)),
        arrival_minute=arrival,
        end_minute=arrival + lives,
        cpu_request_milli=rng.integers(300, 500, 6),
        memory_request_bytes=rng.integers(200, 400, 6),
        cpu_limit_milli=np.full(6, -1),
        memory_limit_bytes=np.full(6, -1),
        use=PodUse(np.append(0, lives.cumsum()), rng.uniform(0, 2, lives.sum()), rng.uniform(0, 1, lives.sum())),
        overcommit=(1.0, 1.0),
        warm_up_minutes=0,
        minutes=60,
    )


def cost(trace: Trace, nodes: np.ndarray) -> float:
    """Return a plan's cost by the clairvoyant greedy's formula, or infinity if a node is overfull."""
    use, requests = np.zeros((2, 2, 3, trace.minutes))
    capacity = np.array([trace.cpu_capacity_milli, trace.memory_capacity_bytes], float)
    for pod, node in enumerate(nodes):
        minutes = slice(trace.arrival_minute[pod], trace.end_minute[pod])
        use[:, node, minutes] += trace.usage(pod)
        requests[:, node, minutes] += [[trace.cpu_request_milli[pod]], [trace.memory_request_bytes[pod]]]
    if (requests > capacity[:, :, None]).any():
        return np.inf
    return float(((use[0] / (0.8 * capacity[0][:, None])) ** 8 + (use[1] / (0.95 * capacity[1][:, None])) ** 16).sum())


@pytest.mark.parametrize("seed", range(4))
def test_a_tiny_world_is_placed_optimally(seed: int) -> None:
    """The search reaches the lowest cost of all assignments of six pods to three nodes."""
    trace = tiny(seed)
    search = searched(Replay(trace, GREEDY, ReplayOptions(ceiling=False)).run())
    assert len(search.pod_runs) == 6
    search.improve(np.random.default_rng(0), 60)
    nodes = search.nodes[np.argsort([run.pod for run in search.pod_runs])]
    assert search.cost() == pytest.approx(cost(trace, nodes))
    best = min(cost(trace, np.array(nodes)) for nodes in itertools.product(range(3), repeat=6))
    assert search.cost() == pytest.approx(best, rel=1e-6)


def test_the_search_never_raises_the_cost_and_always_fits() -> None:
    """The cost falls sweep by sweep, and no node is overfull in any minute."""
    trace = roomy()
    outcome = Replay(trace, GREEDY).run()
    search = searched(outcome)
    costs = [search.cost()]
    for sweep in range(3):
        search.improve(np.random.default_rng(sweep), 1)
        costs.append(search.cost())
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.95 * costs[0]
    requests = np.zeros((2, 4, trace.minutes))
    for run, node in zip(search.pod_runs, search.nodes, strict=True):
        requests[:, node, run.start : run.end] += np.array(outcome.cluster.requests(run.pod))[:, None]
    assert (requests <= outcome.cluster.ledger.capacity[:, :, None]).all()


def test_the_policy_follows_the_plan() -> None:
    """Every pod runs on its planned node, with fewer hot minutes than under the greedy."""
    trace = roomy()
    greedy = Replay(trace, GREEDY).run()
    search = searched(greedy)
    search.improve(np.random.default_rng(0), 2)
    outcome = Replay(trace, Oracle(sweeps=2), ReplayOptions(seed=0)).run()
    assert {run.pod: run.node for run in outcome.cluster.pod_runs} == dict(
        zip([run.pod for run in search.pod_runs], search.nodes.tolist(), strict=True)
    )
    assert searched(outcome).cost() == pytest.approx(search.cost())
    assert measures(outcome)["hot_minutes_80"] < measures(greedy)["hot_minutes_80"]


def test_runs_cut_short_by_a_failure_keep_their_node() -> None:
    """The search does not move runs that a node's failure ends, so the same pods are displaced."""
    whole = roomy()
    events = (NodeEvent(200, EventKind.FAIL, whole.nodes[0]), NodeEvent(300, EventKind.JOIN, whole.nodes[0]))
    trace = replace(whole, events=events)
    greedy, outcome = Replay(trace, GREEDY).run(), Replay(trace, Oracle(sweeps=2)).run()
    search, start = searched(greedy), searched(greedy).nodes
    search.improve(np.random.default_rng(0), 2)
    cut = [number for number, run in enumerate(search.pod_runs) if run.node == 0 and run.end == 200]
    assert cut
    assert (search.nodes[cut] == start[cut]).all()
    assert measures(outcome)["displaced_pods"] == measures(greedy)["displaced_pods"]


def test_the_greedy_replaces_an_impossible_plan() -> None:
    """The greedy places a pod without a plan, or without room on its planned node."""
    trace = replace(
        tiny(0),
        cpu_capacity_milli=np.array([1000, 1000, 1000]),
        arrival_minute=np.arange(6),
        end_minute=np.full(6, 10),
        cpu_request_milli=np.array([600, 600, 600, 300, 300, 100]),
        memory_request_bytes=np.full(6, 100),
        use=PodUse(
            np.array([0, 10, 19, 27, 34, 40, 45]),
            np.repeat([1.0, 0.8, 0.5, 0.1, 0.1, 0.1], [10, 9, 8, 7, 6, 5]),
            np.zeros(45),
        ),
    )
    outcome = Replay(trace, Planned(((0,), (0,), (0,), (0,), (), (1,)))).run()
    # 1 and 2 have no room where they are planned, and 4 has no plan: node 2 costs least, and 1 is the first with room.
    assert {run.pod: run.node for run in outcome.cluster.pod_runs} == {0: 0, 1: 1, 2: 2, 3: 0, 4: 2, 5: 1}


def test_a_crowded_world_follows_most_of_the_plan() -> None:
    """Pods that waited may go to other nodes than planned, and no node is ever overfull."""
    trace = Synthetic(seed=5, nodes=4, minutes=400, warm_up_minutes=60, requested=0.9, mean_use=0.65).trace()
    search = searched(Replay(trace, GREEDY).run())
    search.improve(np.random.default_rng(0), 1)
    planned = dict(zip([run.pod for run in search.pod_runs], search.nodes.tolist(), strict=True))
    cluster = Replay(trace, Oracle(sweeps=1)).run().cluster
    elsewhere = [run for run in cluster.pod_runs if planned.get(run.pod) != run.node]
    assert 0 < len(elsewhere) < len(cluster.pod_runs) / 2
    requests = np.zeros((2, 4, trace.minutes))
    for run in cluster.pod_runs:
        requests[:, run.node, run.start : run.end] += np.array(cluster.requests(run.pod))[:, None]
    assert (requests <= cluster.ledger.capacity[:, :, None]).all()
