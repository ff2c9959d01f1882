"""Parts of the live replay that need no cluster: cuts of worlds, and the use and outcome of real placements."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trimaran.simulator.measures import measures
from trimaran.simulator.moving.by_cost import CostMovePolicy
from trimaran.simulator.moving.low_node_utilization import LowNodeUtilization
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay, ReplayOutcome
from trimaran.simulator.windows import Windows
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

FOLDER = Path(__file__).parents[2] / "research/live_replay"
OWN = ("cut", "live", "outcomes", "placements")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield {name: importlib.import_module(name) for name in OWN}
        for name in OWN:
            del sys.modules[name]


@pytest.fixture(scope="module")
def world() -> Trace:
    return Synthetic(seed=3, nodes=6, minutes=180, warm_up_minutes=30).trace()


@pytest.fixture(scope="module")
def replayed(world: Trace) -> ReplayOutcome:
    return Replay(world, policies(world)["default"]).run()


def live(scripts: dict[str, ModuleType], replayed: ReplayOutcome, until: float = float("inf")):
    """Return the placements as if the API server had reported those of a replay, some seconds late."""
    placements = scripts["placements"].Placements(replayed.cluster.trace)
    runs = [(number, run) for number, run in enumerate(replayed.cluster.pod_runs) if run.start <= until]
    events = [(run.start, 1, number, run) for number, run in runs]
    events += [(run.end, 0, number, run) for number, run in runs if run.end <= until]
    for _, begins, number, run in sorted(events, key=lambda event: event[:3]):
        if begins:
            placements.bound(str(number), f"pod-{number}", run.pod, replayed.cluster.trace.nodes[run.node], run.start)
        else:
            placements.gone(str(number), run.end)
    return placements


def test_outcome_of_real_placements_has_the_simulators_measures(
    scripts: dict[str, ModuleType], replayed: ReplayOutcome
) -> None:
    """Pods that ran in the same minutes on the same nodes as in a replay give all measures of the replay."""
    assert measures(live(scripts, replayed).outcome("default")) == pytest.approx(measures(replayed))


@pytest.mark.parametrize("minute", [5, 47, 180])
def test_metrics_of_real_placements_are_the_simulators_windows(
    scripts: dict[str, ModuleType], replayed: ReplayOutcome, minute: int
) -> None:
    """The metrics that a live run serves in a minute are those of the replay's ledger, throttled at capacity."""
    ledger, names = replayed.cluster.ledger, replayed.cluster.trace.nodes
    expected = Windows().snapshot(names, ledger, np.arange(len(names)), minute)
    served = live(scripts, replayed, minute).metrics_at(minute, Windows())
    for name in names:
        for one, other in zip(served[name].metrics, expected[name].metrics, strict=True):
            assert one.value == pytest.approx(other.value, abs=1e-9)


def test_a_pod_counts_for_the_part_of_a_minute_that_it_ran(scripts: dict[str, ModuleType], world: Trace) -> None:
    """A pod that was bound late in a minute adds only its share of that minute to its node's use."""
    placements = scripts["placements"].Placements(world)
    number = 0
    arrival = int(world.arrival_minute[number])
    placements.bound("a", "pod-a", number, world.nodes[2], arrival + 0.75)
    served = placements.metrics_at(arrival + 1, Windows(window_minutes=1, smoothing_minutes=1))
    used = world.usage(number)[0, 0] / world.cpu_capacity_milli[2]
    assert served[world.nodes[2]].metrics[0].value == pytest.approx(25 * used)


def test_use_of_pods_is_their_mean_cpu_and_highest_memory(scripts: dict[str, ModuleType], world: Trace) -> None:
    """A service that was bound late continues by the clock, and a pod younger than a minute is unknown."""
    placements = scripts["placements"].Placements(world)
    lives = world.end_minute - world.arrival_minute
    service = next(n for n in np.argsort(-lives).tolist() if world.owner_kinds[n] != "Job")
    arrival = int(world.arrival_minute[service])
    placements.bound("a", "pod-a", service, world.nodes[0], arrival + 4.2)
    assert placements.pod_use(arrival + 4.9, 5) == []
    ((name, cores, memory),) = placements.pod_use(arrival + 9.5, 5)
    used = world.usage(service, 4, 9)
    assert name == "pod-a"
    assert (cores, memory) == (pytest.approx(used[0].mean() / 1000), pytest.approx(used[1].max()))


def test_placements_are_the_same_after_a_file(
    scripts: dict[str, ModuleType], replayed: ReplayOutcome, tmp_path: Path
) -> None:
    """Written and read placements have the same outcome and the same metrics."""
    before, trace = live(scripts, replayed), replayed.cluster.trace
    before.write(tmp_path / "placements.jsonl")
    after = scripts["placements"].Placements.read(trace, tmp_path / "placements.jsonl")
    assert measures(after.outcome("default")) == measures(before.outcome("default"))
    assert after.metrics_at(90, Windows()).data == live(scripts, replayed).metrics_at(90, Windows()).data


def test_a_cut_has_the_use_of_its_time(scripts: dict[str, ModuleType], world: Trace) -> None:
    """In a cut each pod uses in each minute what it uses then in the world, also if it arrives in the ramp."""
    start = 60
    cut = scripts["cut"].cut(world, start, 90, 20)
    number_of = {name: number for number, name in enumerate(world.pods)}
    assert (cut.minutes, cut.warm_up_minutes) == (90, 20)
    assert (np.diff(cut.arrival_minute) >= 0).all()
    present = {world.pods[n] for n in np.flatnonzero((world.arrival_minute < start) & (world.end_minute > start + 10))}
    assert present <= set(cut.pods)
    for number, name in enumerate(cut.pods):
        of_world, arrival = number_of[name], int(cut.arrival_minute[number])
        shift = start + arrival - int(world.arrival_minute[of_world])
        life = int(cut.end_minute[number]) - arrival
        assert cut.usage(number) == pytest.approx(world.usage(of_world, shift, shift + life))
        if name in present:
            assert arrival < 10


def test_outcomes_are_compared_with_the_simulator_and_with_default(scripts: dict[str, ModuleType]) -> None:
    """Ratios, differences from default and their intervals are those of a hand calculation; noise widens them."""
    outcome = scripts["outcomes"].LiveOutcome
    runs = [
        *(outcome("a", "default", live, (190.0, 210.0)) for live in (190.0, 210.0)),
        *(outcome("a", "congestion-cost", live, (100.0, 100.0)) for live in (95.0, 105.0)),
    ]
    result = scripts["outcomes"].summary(runs)
    half = 12.706 * 0.05  # Student's t of one degree of freedom, times the standard error of 0.95 and 1.05
    assert result["congestion-cost"]["ratio"] == pytest.approx((1, 1 - half, 1 + half), abs=1e-3)
    assert result["congestion-cost"]["percent_from_default"][0] == pytest.approx(-50)
    assert not result["congestion-cost"]["passes"]
    assert result["congestion-cost"]["better_than_default"]  # 32 points on each side of -50
    steady = scripts["outcomes"].summary([*runs[:2], *(outcome("a", "congestion-cost", 100.0, (100.0,)),) * 3])
    assert steady["congestion-cost"]["passes"]
    assert steady["congestion-cost"]["better_than_default"]


def test_live_moves_have_their_policy_in_the_simulator(scripts: dict[str, ModuleType], world: Trace) -> None:
    """The suffix of a live policy adds its mover, and its budget, to the placement without it."""
    simulated = {name: scripts["outcomes"].simulated_policy(world, name) for name in scripts["live"].POLICIES}
    by_requests = simulated["congestion-cost-by-requests"]
    assert by_requests.move_policy is None
    moves = simulated["congestion-cost-by-requests+more-moves"]
    assert (moves.profile, moves.learns) == (by_requests.profile, by_requests.learns)
    assert (type(moves.move_policy), moves.move_policy.percent_per_hour) == (CostMovePolicy, 1.0)
    assert type(simulated["default+low-node-utilization"].move_policy) is LowNodeUtilization


def test_a_divided_process_counts_past_use_in_shorter_steps() -> None:
    """At 20 times the speed a step takes 15 seconds, an hour of caps 3 minutes, and an hour has twelve steps still."""
    lines = [
        "import divided",
        "divided.divide_constants(20, 'rebalance')",
        "from trimaran.rebalancer import controller, look, outcomes",
        "from watcher.usage.history import pod_day",
        "steps = {each.STEP_SECONDS for each in (look, outcomes, pod_day)}",
        "print(steps, look.HOUR_STEPS, pod_day.HOUR_STEPS, controller.HOUR)",
    ]
    printed = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    assert printed.stdout.split() == ["{15}", "12", "12", "180.0"]
