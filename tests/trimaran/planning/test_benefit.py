"""Expected benefit of load-aware placement: its figures, its verdicts, and whether they agree with replays."""

from typing import Any

import numpy as np
import pytest
from support.extending import metrics

from scoring import Container, Node, NodeTable, Pod, ResourceList
from scoring.arrays import Int64s
from trimaran.planning.benefit import BenefitVerdict, PlacementBenefit, placement_benefit
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.measures import hot_minutes
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.policy import Chooser, Policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

GIB = 1 << 30
SPREAD = [10.0, 20.0, 40.0, 90.0]


def nodes_of(count: int, milli: int, *, cordoned: int = 0, limit: int = 2000) -> NodeTable:
    """Return nodes of four cores with two pods each, and further cordoned nodes without pods."""
    amounts = ResourceList({"cpu": 4000, "memory": 16 * GIB, "pods": 110})
    nodes = [Node(f"node-{n}", amounts, amounts, unschedulable=n >= count) for n in range(count + cordoned)]
    requests, limits = (ResourceList({"cpu": cpu, "memory": GIB}) for cpu in (milli, limit))
    containers = (Container(requests=requests, limits=limits),)
    pods = [Pod(f"pod-{n}", uid=str(n), containers=containers, node_name=f"node-{n // 2}") for n in range(2 * count)]
    return NodeTable(nodes, pods)


def judged(loads: list[float], milli: int, **options: Any) -> PlacementBenefit:
    return placement_benefit(
        nodes_of(len(loads), milli, **options), metrics({f"node-{n}": load for n, load in enumerate(loads)})
    )


def test_figures_are_those_of_the_nodes_that_accept_pods() -> None:
    """Every figure matches a recomputation by hand, without the cordoned nodes."""
    figures = judged(SPREAD, 1000, cordoned=3).figures
    assert (figures.nodes, figures.measured, figures.full) == (4, 1.0, 0.0)
    assert (figures.hot, figures.cool, figures.spread) == (0.25, 0.75, pytest.approx(np.std(SPREAD)))
    assert (figures.cpu.requested, figures.cpu.limits, figures.cpu.use) == (0.5, 1.0, pytest.approx(0.4))
    assert figures.cpu.over_use == pytest.approx(0.5 / 0.4)
    assert (figures.memory.requested, figures.memory.use) == (0.125, pytest.approx(0.4))


@pytest.mark.parametrize(
    ("loads", "milli", "verdict"),
    [
        (SPREAD, 1000, BenefitVerdict.GAIN),
        (SPREAD, 1400, BenefitVerdict.HARM),  # 1,200m are free, and a pod requests 1,400m
        ([10.0, 12.0, 14.0, 16.0], 1000, BenefitVerdict.NONE),
        ([90.0], 1000, BenefitVerdict.UNKNOWN),
    ],
)  # fmt: skip
def test_verdicts_follow_from_room_and_load(loads: list[float], milli: int, verdict: BenefitVerdict) -> None:
    """Hot and cool nodes with room: gain; no room: harm; no hot node: none; one node: unknown. Reasons have numbers."""
    benefit = judged(loads, milli)
    assert benefit.verdict is verdict
    assert any(character.isdigit() for character in benefit.reason)


@pytest.mark.parametrize("known", [0, 3])
def test_unmeasured_nodes_have_no_verdict(known: int) -> None:
    """Without metrics of at least 80 percent of the nodes the verdict is unknown."""
    snapshot = metrics({f"node-{n}": 50.0 for n in range(known)}) if known else None
    benefit = placement_benefit(nodes_of(4, 1000), snapshot)
    assert benefit.verdict is BenefitVerdict.UNKNOWN
    assert benefit.figures.measured == known / 4


class Judging:
    """A policy that judges the cluster each hour, and chooses like another policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self.name, self.move_policy = policy, policy.name, policy.move_policy
        self.benefits: list[PlacementBenefit] = []

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> Chooser:
        self._cluster, self._watcher, self._hour = cluster, watcher, -1
        self._chooser = self._policy.begin(cluster, watcher, rng)
        return self

    def admit(self, number: int) -> Pod:
        return self._chooser.admit(number)

    def choose(self, number: int, pod: Pod, candidates: Int64s) -> int:
        cluster = self._cluster
        if cluster.minute >= cluster.trace.warm_up_minutes and cluster.minute // 60 != self._hour:
            self._hour = cluster.minute // 60
            self.benefits.append(placement_benefit(cluster.nodes, self._watcher.snapshot()))
        return self._chooser.choose(number, pod, candidates)

    @property
    def at_peak(self) -> PlacementBenefit:
        """The benefit in the hour with the highest CPU use."""
        return max(self.benefits, key=lambda benefit: benefit.figures.cpu.use or 0)


def world(seed: int, mean_use: float, requested: float, level: float) -> Trace:
    return Synthetic(
        seed, nodes=20, minutes=1080, warm_up_minutes=360, mean_use=mean_use, requested=requested, cpu_level=level
    ).trace()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "overcommit", "verdict"),
    [
        (world(1, 0.6, 0.8, 0.29), None, BenefitVerdict.GAIN),
        (world(1, 0.8, 0.88, 0.5), (1.0, 1.0), BenefitVerdict.HARM),
        (world(3, 0.2, 0.6, 0.29), None, BenefitVerdict.NONE),
    ],
    ids=["overcommitted", "full by requests", "idle"],
)
def test_verdicts_agree_with_replays(
    trace: Trace, overcommit: tuple[float, float] | None, verdict: BenefitVerdict
) -> None:
    """In generated worlds the verdict of the busiest hour agrees with what load-aware placement changes in a replay."""
    known, options = policies(trace), ReplayOptions(overcommit=overcommit)
    judging = Judging(known["default"])
    before = hot_minutes(Replay(trace, judging, options).run(), 80)
    after = hot_minutes(Replay(trace, known["congestion-cost-by-requests"], options).run(), 80)
    assert judging.at_peak.verdict is verdict
    if verdict is BenefitVerdict.GAIN:
        assert after < 0.8 * before
    elif verdict is BenefitVerdict.HARM:
        assert after > before
    else:
        assert before == after == 0
