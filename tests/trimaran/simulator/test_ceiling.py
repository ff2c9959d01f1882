"""The ceiling of nodes in replays: who gets how much of a full node's CPU, and what becomes of the rest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rebalancing import WIDE_RULES
from support.worlds import one_node_world

from trimaran.simulator.ceiling import fair_shares
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.measures import measures
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay, ReplayOptions, ReplayOutcome
from trimaran.simulator.use_rounds import UseRounds
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

AMOUNTS = st.floats(1, 1e6)


def replayed(trace: Trace, **options: object) -> ReplayOutcome:
    return Replay(trace, policies(trace)["default"], ReplayOptions(**options)).run()


def cpu(outcome: ReplayOutcome) -> list[float]:
    """Return the CPU use of the only node in each minute, millicores."""
    return outcome.cluster.ledger.cpu_milli[0].round(3).tolist()


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=30), st.floats(0.01, 1))
def test_shares_are_fair(pods: list[tuple[float, float]], part: float) -> None:
    """All is used; nobody gets more than it demands, and who gets less has the same share of its weight as others."""
    demands, weights = np.array(pods).T
    capacity = part * demands.sum()
    got = fair_shares(demands, weights, capacity)
    assert got.sum() == pytest.approx(capacity)
    assert (got <= demands).all()
    throttled = got < demands * (1 - 1e-9)
    levels = got / weights
    if throttled.any():
        assert levels[throttled] == pytest.approx(levels[throttled].max())
        assert (levels <= levels[throttled].max() * (1 + 1e-9)).all()


def test_a_small_demand_is_met_and_the_rest_goes_by_weight() -> None:
    """Of 1,000 a pod gets its 100; of the 900 left, weights of 1 and 2 give 300 and 600."""
    got = fair_shares(np.array([100.0, 800.0, 900.0]), np.array([500.0, 100.0, 200.0]), 1000)
    assert got == pytest.approx([100, 300, 600])


def test_a_service_loses_what_it_does_not_get() -> None:
    """A full node's use is its capacity, and a service's use afterwards is as recorded."""
    trace = one_node_world(("Deployment", 0, 20, 500, 1.6, 1), ("Deployment", 8, 12, 500, 0.8, 1))
    assert cpu(replayed(trace)) == [800] * 8 + [1000] * 4 + [800] * 8
    assert cpu(replayed(trace, ceiling=False)) == [800] * 8 + [1200] * 4 + [800] * 8
    measured = measures(replayed(trace))
    # Equal weights: 400 for the pod that demands 400, 600 for the one that demands 800; 200 are short for 4 minutes.
    assert measured["throttled_core_seconds"] == measured["service_throttled_core_seconds"] == pytest.approx(48)
    assert measured["p99_node_cpu_percent"] == 100
    assert measured["cpu_short_percent"] == 100


def test_a_job_has_its_work_done_later() -> None:
    """A job that gets half of its demand takes twice as long, and its pod ends when the work is done."""
    trace = one_node_world(("Deployment", 0, 30, 500, 1.4, 1), ("Job", 10, 14, 500, 1.2, 1), minutes=30)
    outcome = replayed(trace)
    (job,) = (run for run in outcome.cluster.pod_runs if outcome.cluster.is_job(run.pod))
    # 500 of 600 for each minute: after 6 minutes one of them is missing, so the job of 4 minutes ends in time.
    assert (job.start, job.end) == (10, 14)
    longer = replace(trace, end_minute=np.array([30, 25]), use=replace_use(trace, 15))
    outcome = replayed(longer)
    (job,) = (run for run in outcome.cluster.pod_runs if outcome.cluster.is_job(run.pod))
    assert (job.start, job.end) == (10, 27)
    assert job.use is not None
    assert job.use[0].sum() == pytest.approx(15 * 600, abs=600)  # all work but for less than a minute
    assert cpu(outcome) == [700] * 10 + [1000] * 17 + [700] * 3


def replace_use(trace: Trace, minutes: int):
    """Return the use of a trace whose second pod has this number of minutes."""
    first = int(trace.use.offsets[1])
    offsets = np.array([0, first, first + minutes])
    cpu_use = np.concatenate([trace.use.cpu[:first], np.full(minutes, trace.use.cpu[first])])
    memory = np.concatenate([trace.use.memory[:first], np.full(minutes, trace.use.memory[first])])
    return replace(trace.use, offsets=offsets, cpu=cpu_use, memory=memory)


def test_rounds_measure_what_pods_got() -> None:
    """The measured use of a pod on a full node is its share, not its demand."""
    trace = one_node_world(("Deployment", 0, 20, 500, 1.6, 1), ("Deployment", 0, 20, 500, 0.8, 1))
    rounds = list(UseRounds(replayed(trace).cluster).known(15))
    assert [measured.until for measured in rounds] == [5, 10, 15]
    for measured in rounds:
        assert measured.cores == pytest.approx([0.6, 0.4])
        assert measured.memory_bytes.tolist() == [400, 400]


def run_sums(cluster: Cluster) -> np.ndarray:
    """Return the sum of all runs' use on each node, shape (2, nodes, minutes)."""
    total = np.zeros_like(cluster.ledger.use)
    for run in cluster.pod_runs:
        total[:, run.node, run.start : run.end] += cluster.run_use(run)[:, : run.end - run.start]
    return total


@pytest.mark.parametrize("ceiling", [True, False])
def test_the_ledger_is_the_sum_of_the_runs(*, ceiling: bool) -> None:
    """With throttled and delayed pods that are moved and end early, each node's use is that of its runs."""
    trace = replace(Synthetic(5, nodes=6, minutes=600, warm_up_minutes=60).trace(), overcommit=(3.0, 2.0))
    policy = replace(
        policies(trace)["most-allocated"], spread=0, move_policy=CostMovePolicy(50, 10, 30, rules=WIDE_RULES)
    )
    outcome = Replay(trace, policy, ReplayOptions(ceiling=ceiling, startup_seconds=120)).run()
    ledger, cluster = outcome.cluster.ledger, outcome.cluster
    assert outcome.moves > 3
    assert run_sums(cluster) == pytest.approx(ledger.use, rel=1e-6, abs=1)
    assert ledger.short_milli.sum() > 0
    assert (ledger.cpu_milli.max() <= ledger.capacity[0].max() * (1 + 1e-9)) == ceiling
    late = [run for run in cluster.pod_runs if cluster.is_job(run.pod) and run.use is not None]
    assert bool(late) == ceiling
    kinds = sum(measures(outcome)[f"{kind}_throttled_core_seconds"] for kind in ("service", "job"))
    assert kinds == pytest.approx(measures(outcome)["throttled_core_seconds"], rel=1e-6)
