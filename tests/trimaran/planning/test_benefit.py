"""Expected benefit of load-aware placement: its figures and its verdicts."""

from typing import Any

import numpy as np
import pytest
from support.extending import metrics

from scoring import Container, Node, NodeTable, Pod, ResourceList
from trimaran.planning.benefit import BenefitVerdict, PlacementBenefit, placement_benefit

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
