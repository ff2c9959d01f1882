"""Use on a saturated node is a lower bound of demand: what a pod may need on its target."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.rebalancing import CORES, NOW, World, deployment, node, pod

from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.demand import cpu_limit, demand_bounds
from trimaran.rebalancer.look import ClusterLook, plan_arrays
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.plan import MovePlan, plan_moves
from trimaran.rebalancer.rules import CapLimits, Cooldowns, MoveRules, NodeRules

UNKNOWN = 1 + 1.28 * 0.8
RULES = MoveRules(
    holdout_percent=0, caps=CapLimits(percent_per_hour=100), nodes=NodeRules(bad_looks=1, good_looks=1),
    cooldowns=Cooldowns(node=0),
)  # fmt: skip


def limited(cores: float) -> dict[str, Any]:
    """Return the specification of a pod with a limit of CPU."""
    resources = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": f"{round(1000 * cores)}m"}}
    return {"containers": [{"name": "main", "resources": resources}]}


def saturated(cores: float = 1.5, count: int = 5, **changes: Any) -> World:
    """Return a cluster with pods of one Deployment on one node, and two idle nodes."""
    return World(
        nodes=[node("node-hot"), node("node-cold"), node("node-idle")],
        pods=[pod(f"web-{n}", "node-hot", **changes) for n in range(count)],
        workloads=[deployment("web", count)],
        cores={f"web-{n}": cores for n in range(count)},
    )


def bounds(look: ClusterLook) -> dict[str, float]:
    """Return the bound of each pod by name, cores."""
    arrays = plan_arrays(look, (), 288)
    found = demand_bounds(look, arrays, arrays.problem.node_use()[0], look.measured)
    return {each.pod.name: bound for each, bound in zip(arrays.members, found.tolist(), strict=False)}


def plan(
    world: World, change: Callable[[ClusterLook], None] | None = None, records: tuple[MoveRecord, ...] = ()
) -> MovePlan:
    """Return the plan for a cluster."""
    look = world.look()
    if change is not None:
        change(look)
    return plan_moves(look, records, RULES, BadLooks(1, 1))


@pytest.mark.parametrize(
    ("cores", "measured", "waiting", "expected"),
    [
        (1.4, None, 0.0, 1.4),  # 87.5 percent
        (1.44, None, 0.0, 1.44 * UNKNOWN),  # 90 percent, by its pods
        (1.3, 89.0, 0.0, 1.3),
        (1.3, 90.0, 0.0, 1.3 * UNKNOWN),  # by its metrics: other programs need the rest
        (0.9, None, 0.09, 0.9),
        (0.9, None, 0.1, 0.9 * UNKNOWN),  # 56 percent of its capacity, but its pods wait
        (0.9, None, 0.75, 3.6),
        (1.5, None, 0.99, CORES),
    ],
)
def test_a_pod_is_held_back_by_a_full_node_or_when_it_waits(
    cores: float, measured: float | None, waiting: float, expected: float
) -> None:
    """A node at 90 percent by pods or metrics, or 10 percent of the time waiting, makes the use a lower bound."""
    world = saturated(cores)
    world.measured = {} if measured is None else {"node-hot": measured}
    world.waiting = {f"web-{n}": waiting for n in range(5)}
    assert bounds(world.look()) == pytest.approx(dict.fromkeys(world.cores, expected), rel=0.01)


def test_one_full_step_in_the_last_hour_suffices() -> None:
    """A burst of five minutes hides demand for an hour, one of two hours ago does not."""
    for step, factor in ((-3, UNKNOWN), (-30, 1.0)):
        look = saturated(0.9).look()
        look.use.cpu_cores[:, step] = 1.6
        if factor > 1:
            look.use.cpu_cores[:, :-12] = np.nan  # nothing was learned before
        used = look.use.cpu_cores[0, -12:].astype(float).mean()
        assert bounds(look)["web-0"] == pytest.approx(used * factor, rel=0.01)


def test_demand_comes_from_replicas_that_are_not_held_back() -> None:
    """The highest use of the replicas on other nodes is the demand, and at least the pod's own use."""
    world = saturated()
    world.pods += [pod("web-8", "node-cold"), pod("web-9", "node-idle")]
    world.cores |= {"web-8": 2.5, "web-9": 0.3}
    assert bounds(world.look())["web-0"] == pytest.approx(2.5, rel=0.01)
    world.waiting = {"web-8": 0.5}  # held back, too
    assert bounds(world.look()) == pytest.approx(
        {**{f"web-{n}": 1.5 for n in range(5)}, "web-8": 2.5, "web-9": 0.3}, rel=0.01
    )
    world.pods = world.pods[:-1]
    assert bounds(world.look())["web-0"] == pytest.approx(1.5 * UNKNOWN, rel=0.01)


def test_demand_comes_from_learned_use_without_such_replicas() -> None:
    """The pod's own hours on a node that was not full count, and a course of the workload above its use."""
    look = saturated().look()
    look.use.cpu_cores[:, 100:180] = 0.5
    assert bounds(look)["web-0"] == pytest.approx(1.5, rel=0.01)
    look = saturated(1.3, 6).look()
    look.use.cpu_cores[:, :-12] = np.nan
    look.use.cpu_cores[0, -36:-24] = 3.0  # alone on the node, so it was not full
    assert bounds(look)["web-0"] == pytest.approx(3.0, rel=0.01)
    look = saturated().look()
    look.use.courses[0] = 1.6
    assert bounds(look)["web-0"] == pytest.approx(1.5 * UNKNOWN, rel=0.01)  # learned while held back, perhaps
    look.use.courses[0] = 1.8
    assert bounds(look)["web-0"] == pytest.approx(1.8, rel=0.01)


@pytest.mark.parametrize(("limit", "expected"), [(1.5, 1.5), (2.0, 2.0), (9.0, 1.5 * UNKNOWN), (1.0, 1.5)])
def test_a_limit_bounds_the_demand(limit: float, expected: float) -> None:
    """A pod cannot need more than its limit: one that its own limit throttles has no hidden demand."""
    world = saturated(spec=limited(limit))
    assert bounds(world.look())["web-0"] == pytest.approx(expected, rel=0.01)
    world.pods += [pod("web-9", "node-idle")]
    world.cores["web-9"] = 7.0
    assert bounds(world.look())["web-0"] == pytest.approx(max(1.5, min(limit, 7.0)), rel=0.01)


def test_the_limit_of_a_pod_is_that_of_all_its_containers() -> None:
    """A container without a limit may use any CPU; sidecars count, other init containers do not."""
    look = saturated(spec={
        "containers": [{"name": "a", "resources": {"limits": {"cpu": "500m"}}}],
        "initContainers": [
            {"name": "b", "restartPolicy": "Always", "resources": {"limits": {"cpu": "250m"}}}, {"name": "c"},
        ],
    }).look()  # fmt: skip
    assert cpu_limit(look.running[0][1].pod) == 0.75
    both = {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}, {"name": "b"}]}
    assert cpu_limit(saturated(spec=both).look().running[0][1].pod) is None
    whole = {**both, "resources": {"limits": {"cpu": "1500m"}}}
    assert cpu_limit(saturated(spec=whole).look().running[0][1].pod) == 1.5


UIDS = [f"uid-of-default-web-{number}" for number in range(5)]
MEAN = 1.5 + 2**-11  # of unevenly used CPU; it is no number of 16 bits


def unevenly(look: ClusterLook) -> None:
    """Let the CPU use of the hot pods be 1.5 cores in one step and the next larger number in the other."""
    look.use.cpu_cores[:5, ::2] = 1.5 + 2**-10


def test_no_target_comes_above_its_level_by_hidden_demand() -> None:
    """A target must have room for what the pod may need, not for what it got on a full node."""
    world = saturated()
    world.pods += [pod(f"busy-{n}", name, of="busy") for n, name in enumerate(("node-cold", "node-idle"))]
    for cores, moves in ((2.5, 1), (3.0, 0)):  # with 1.5 they would be at 50 and 56 percent, with 3.0 at 69 and 76
        world.cores |= {"busy-0": cores, "busy-1": cores}
        assert len(plan(world).moves) == moves
    world.pods = [pod(f"web-{n}", "node-hot", spec=limited(1.5)) for n in range(5)] + world.pods[5:]
    (move,) = plan(world).moves
    assert move.record.hidden == 0.0


def test_the_hidden_demand_of_a_move_counts_until_metrics_show_it() -> None:
    """While the window of the metrics begins before a move, its target has what the pod may need in addition."""
    world = saturated()
    world.nodes[1] = node("node-cold", spec={"unschedulable": True})
    found = plan(world, unevenly)
    assert found.hidden == pytest.approx(dict.fromkeys(UIDS, (UNKNOWN - 1) * MEAN), abs=1e-6)
    (move,) = found.moves
    assert move.record.hidden == found.hidden[move.record.uid]
    before = MoveRecord(
        "uid-of-default-old", "default", "old", "Deployment", "other", "5d8f7c9b64", "old", "node-cold", "node-idle",
        state=MoveState.LANDED, planned_at=NOW - 120, evicted_at=NOW - 120, ready_at=NOW - 100,
        landed_on="node-idle", cores=0.0, hidden=3.0,
    )  # fmt: skip
    assert plan(world, records=(before,)).moves == ()
    assert plan(world, records=(before.changed(planned_at=NOW - 960, evicted_at=NOW - 960),)).moves == ()
    for other in (
        before.changed(planned_at=NOW - 1200, evicted_at=NOW - 1200),
        before.changed(state=MoveState.REFUSED),
        before.changed(landed_on="node-gone"),
        before.changed(hidden=0.5),
    ):
        assert len(plan(world, records=(other,)).moves) == 1
