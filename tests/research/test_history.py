"""Research on the worth of a history: weights of past days, and the mix with requests."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from support.scripts import imported

from scoring import UseLevels
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.history import STEPS_A_DAY, TraceHistory
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("history") as module:
        yield module


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Return a world in which the first owner used half of its request on the last day, and a quarter before."""
    world = Synthetic(seed=3, nodes=4, minutes=120, warm_up_minutes=20).trace()
    names = (world.owner_kinds[0],) * 2, (world.owners[0],) * 2, ("", "-1")
    values = np.float16([[0.5], [0.25]]) * np.ones((2, STEPS_A_DAY))
    return replace(world, history=TraceHistory(*names, np.array([-1, -2]), values, values))


def share(script: ModuleType, trace: Trace, formula: str) -> tuple[float, UseLevels]:
    """Return the first pod's expected use of CPU at the start, as a share of the request, and the levels."""
    cluster = Cluster(trace, trace.overcommit)
    history = script.WeighedHistory(cluster, SimulatedWatcher(Windows(), cluster), formula)
    of_owner = np.array(trace.owners) == trace.owners[0]
    levels = history.levels()
    place = levels.owners.of(cluster.pod(0).kin)
    return float(levels.uses["cpu"][place] / trace.cpu_request_milli[of_owner].mean()), levels


def test_days_weigh_by_their_age(script: ModuleType, trace: Trace) -> None:
    """A day weighs 1/e of the next one; as shipped only days of the present revision count in full."""
    assert share(script, trace, "shipped")[0] == pytest.approx(0.5, rel=1e-3)
    older = np.exp(-1)
    assert share(script, trace, "days")[0] == pytest.approx((0.5 + 0.25 * older) / (1 + older), rel=1e-3)


def test_another_revision_weighs_a_quarter(script: ModuleType, trace: Trace) -> None:
    """A day of another revision changes the expected use less."""
    older = 0.25 * np.exp(-1)
    used, levels = share(script, trace, "revision")
    learned = used / (1 - levels.levels["cpu"][0])
    assert learned == pytest.approx((0.5 + 0.25 * older) / (1 + older), rel=1e-3)


def test_without_a_past_pods_count_by_their_requests(script: ModuleType, trace: Trace) -> None:
    """The mix gives unknown pods their requests, known ones mostly what was learned."""
    _, levels = share(script, trace, "auto")
    assert levels.levels["cpu"][-1] == 1
    assert levels.deviations["cpu"][-1] == 0
    assert 0 < levels.levels["cpu"][0] < 0.5
    empty = script.last_days(trace.history, 0)
    cluster = Cluster(replace(trace, history=empty), trace.overcommit)
    levels = script.WeighedHistory(cluster, SimulatedWatcher(Windows(), cluster), "auto").levels()
    assert levels.expected_use(cluster.pod(0), "cpu") == cluster.requests(0)[0]
