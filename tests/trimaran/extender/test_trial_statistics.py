"""Schedule, intervals and stopping rules of the field trial, as pure functions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.arrays import Float64s
from trimaran.extender.trial.effects import MIN_PAIRS, differences, effect, paired, swap_interval
from trimaran.extender.trial.harm import FALSE_STOPS, evidence_of_harm, harm
from trimaran.extender.trial.outcomes import HOT, PENDING, PLACED_HOT, BlockRecord
from trimaran.extender.trial.schedule import TrialSchedule

NUMBERS = st.integers(0, 10**9)


def blocks(
    values: Float64s, name: str = "trial", load: Float64s | None = None, outcome: str = HOT, pods: int = 5
) -> list[BlockRecord]:
    """Return a block with each value, in the order of a trial's schedule."""
    schedule = TrialSchedule(name)
    loads = np.zeros(len(values)) if load is None else load
    return [
        BlockRecord(number, schedule.block(number).active, 10.0, pods, float(loads[number]), {outcome: float(value)})
        for number, value in enumerate(values)
    ]


def walk(rng: np.random.Generator, count: int) -> Float64s:
    """Return strongly autocorrelated values with jumps, none of which depends on a schedule."""
    return np.abs(np.cumsum(rng.standard_t(2, count))) + 5


@given(st.text(max_size=20).filter(str.isprintable), NUMBERS, st.integers(10, 86400))
def test_one_block_of_each_pair_is_active(name: str, pair: int, seconds: int) -> None:
    """The two blocks of a pair follow one another, and exactly one of them is active."""
    schedule = TrialSchedule(name, seconds)
    first, second = schedule.block(2 * pair), schedule.block(2 * pair + 1)
    assert first.active != second.active
    assert (first.pair, second.pair, second.start) == (pair, pair, first.end)
    assert schedule.block_at(first.start) == first
    assert schedule.block_at(second.end - 1) == second
    assert schedule.pair_after(first.start) == pair
    assert schedule.pair_after(first.start + 1) == pair + 1


def test_the_order_within_pairs_is_random_and_the_same_for_all_replicas() -> None:
    """Half of the pairs begin with the active block; another name gives another order, the same name the same one."""

    def order(name: str) -> list[bool]:
        return [TrialSchedule(name).block(2 * pair).active for pair in range(4000)]

    assert order("one") == order("one")
    agreement = np.mean(np.array(order("one")) == order("two"))
    runs = np.mean([one == other for one, other in itertools.pairwise(order("one"))])
    for share in (np.mean(order("one")), agreement, runs):
        assert abs(share - 0.5) < 0.03


def test_incomplete_pairs_do_not_count() -> None:
    """A block without its pair is ignored, and pairs are in the order of time."""
    records = blocks(np.arange(8.0))
    assert len(paired(records[1:][::-1])) == 3
    found = effect(records[:7], HOT)
    assert found is not None
    assert (found.pairs, found.low) == (3, None)
    assert effect(records, PENDING) is None


@pytest.mark.parametrize("pairs", [MIN_PAIRS, 12, 13, 40])
def test_the_interval_contains_no_effect_in_95_percent_of_a_a_trials(pairs: int) -> None:
    """Blocks that depend on those before, with heavy tails and a load to adjust for, give valid intervals."""
    rng, contained, trials = np.random.default_rng(1), 0, 400
    for number in range(trials):
        load = walk(rng, 2 * pairs)
        found = effect(blocks(walk(rng, 2 * pairs) + load, f"trial-{number}", load), HOT)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        contained += found.low <= 0 <= found.high
    assert contained / trials > 0.95 - 3 * (0.05 * 0.95 / trials) ** 0.5


@given(st.lists(st.floats(-100, 100), min_size=MIN_PAIRS, max_size=20), st.floats(-50, 50))
def test_an_interval_moves_with_the_effect_and_contains_the_mean(observed: list[float], moved: float) -> None:
    """Adding a constant to all differences moves both ends by it."""
    values = np.array(observed)
    low, high = swap_interval(values)
    assert low is not None
    assert high is not None
    assert low - 1e-9 <= values.mean() <= high + 1e-9
    assert np.array(swap_interval(values + moved)) == pytest.approx(np.array([low, high]) + moved, abs=1e-9)


def test_the_adjustment_takes_out_the_load_and_keeps_the_effect() -> None:
    """Outcomes that follow the load of all nodes get an interval many times narrower, around the same effect."""
    rng = np.random.default_rng(2)
    load = 50 + 10 * rng.standard_normal(80)
    active = np.array([block.active for block in blocks(load)])
    records = blocks(0.5 * load + rng.standard_normal(80) - 3 * active, load=load)
    raw, adjusted = differences(records, HOT, adjusted=False), differences(records, HOT)
    assert adjusted.std() < raw.std() / 3
    assert adjusted.mean() == pytest.approx(-3, abs=1)
    swapped = [
        BlockRecord(each.number, not each.active, each.nodes, each.pods, each.load, each.outcomes) for each in records
    ]
    assert differences(swapped, HOT) == pytest.approx(-adjusted)


def test_lasting_harm_is_rarely_found_in_a_a_trials_however_often_the_rule_looks() -> None:
    """In at most 5 of 100 trials the evidence of harm ever exceeds 20, looking after each of 60 pairs."""
    rng, found, trials = np.random.default_rng(3), 0, 400
    for number in range(trials):
        observed = differences(blocks(walk(rng, 120), f"trial-{number}"), HOT, adjusted=False)
        found += any(evidence_of_harm(observed[:count]) >= 1 / FALSE_STOPS for count in range(1, 61))
    assert found / trials <= FALSE_STOPS


def test_lasting_harm_stops_a_trial_after_some_pairs() -> None:
    """Harm below the margin, of the size of the noise, stops the trial; the same gain does not."""
    rng = np.random.default_rng(4)
    noise = 20 + rng.standard_normal(200)
    active = np.array([block.active for block in blocks(noise)])
    worse, better = blocks(noise + 2 * active), blocks(noise - 2 * active)
    stopped = next(count for count in range(2, 200, 2) if harm(worse[:count], 10))
    assert 8 <= stopped <= 40
    assert "hot_percent is higher by" in harm(worse[:stopped], 10)
    assert not any(harm(better[:count], 10) for count in range(2, 200, 2))


def test_gross_harm_stops_a_trial_after_one_pair() -> None:
    """One pair suffices if the active block has more hot node-minutes by the margin, or if pods wait much longer."""
    schedule = TrialSchedule()
    for outcome, shadow, active, is_harm in (
        (HOT, 20.0, 31.0, True), (HOT, 20.0, 29.0, False), (HOT, 31.0, 20.0, False),
        (PENDING, 5.0, 60.0, True), (PENDING, 100.0, 150.0, False),
    ):  # fmt: skip
        values = np.array([active if schedule.block(number).active else shadow for number in (0, 1)])
        assert bool(harm(blocks(values, outcome=outcome), 10)) == is_harm, (outcome, shadow, active)
        values = values if outcome == HOT else np.array([0.0, 0.0])
        for pods in (99, 100):
            placed = blocks(values, outcome=PLACED_HOT, pods=pods)
            assert bool(harm(placed, 10)) == (is_harm and outcome == HOT and pods == 100)
    assert harm([], 10) == ""
    assert harm(blocks(np.array([100.0])), 10) == ""
