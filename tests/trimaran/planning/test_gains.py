"""Rule for predicted gains that are worth a move: bursts, uncertainty and the time of a start-up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.planning.moves import GainRule, MoveCosts, MovePlanner, MoveProblem
from trimaran.planning.moves.gains import block_count
from trimaran.planning.moves.past import expected_cpu

COSTS = MoveCosts()


def plan(cpu, rule=None, *, rows=(0, 0, 0, 1)):
    """Return the plan of moves of pods on two nodes of 8 cores, by their CPU use as it was measured."""
    rule, rows = rule or GainRule(), np.array(rows)
    pods = rows.size
    expected = expected_cpu(cpu, np.zeros(pods, bool), 12, 0.75, rule.burst_steps)
    one = MoveProblem(
        np.array([[8.0] * 2, [32.0] * 2]), np.full((2, 2), 4.0), rows, np.full((2, pods), 0.5), expected,
        np.ones((pods, cpu.shape[1] // 3)), movable=np.ones(pods, bool),
    )  # fmt: skip
    return MovePlanner(one, COSTS, 0.01, rule=rule).best(3)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([30.0, 120.0, 600.0]))
def test_a_short_burst_moves_nothing(seed, startup):
    """A burst that is not longer than the window and a start-up moves nothing, wherever it is and however high."""
    dice = np.random.default_rng(seed)
    rule = GainRule(startup_seconds=startup)
    steps = 12 * int(dice.integers(4, 25))
    cpu = dice.uniform(0.2, 1.2, (4, 1)) * dice.uniform(0.9, 1.1, (4, steps))
    length = int(dice.integers(1, rule.burst_steps + 1))
    begin = steps - length if dice.random() < 0.5 else int(dice.integers(steps - length + 1))
    cpu[:3, begin : begin + length] += dice.uniform(0.5, 8)
    assert plan(cpu, rule) == []


def test_a_level_that_stays_high_moves_a_pod():
    """Use that has been high for an hour moves a pod, although most of the past was cool."""
    cpu = np.full((4, 288), 0.5)
    cpu[:3, -12:] = 2.6
    (move, *_) = plan(cpu)
    assert (move.source, move.target) == (0, 1)
    assert move.low > 0


def test_a_burst_that_recurs_moves_a_pod():
    """Bursts in every hour move a pod, as they will recur."""
    cpu = np.full((4, 288), 0.5)
    cpu[:3].reshape(3, 24, 12)[:, :, 4:6] = 2.7
    assert len(plan(cpu)) >= 1


def test_a_gain_that_is_lost_at_the_start_moves_nothing():
    """A gain that is smaller than what the start-up costs moves nothing; with a faster start it moves the pod."""
    gains, share = np.full((1, 12), 0.01), np.array([0.5])
    assert GainRule(startup_seconds=30).lower_end(gains, share)[0] == pytest.approx(0.01 * 119.5 - 0.25)
    assert GainRule(startup_seconds=600).lower_end(gains, share)[0] < 0


def test_the_interval_holds_the_mean_with_its_probability():
    """Of samples of a known mean the lower end of an 80 percent interval is below it in nine of ten or more.

    The blocks that are left out have the highest gains, which makes the interval careful.
    """
    dice, rule = np.random.default_rng(7), GainRule(startup_seconds=0)
    low = rule.lower_end(dice.normal(1.0, 0.5, (4000, 24)), np.zeros(4000)) / 120
    assert 0.9 <= (low < 1.0).mean() <= 0.99


def test_too_short_a_past_predicts_nothing():
    """One block of a quarter of an hour has no interval, so that nothing moves."""
    assert GainRule().lower_end(np.ones((2, 1)), np.zeros(2)).tolist() == [-np.inf] * 2


@pytest.mark.parametrize(("steps", "blocks"), [(288, 24), (48, 4), (36, 12), (12, 4), (9, 3), (3, 1), (1, 1), (37, 1)])
def test_blocks(steps, blocks):
    """The past is divided into hours, or into quarters of an hour while it is short."""
    assert block_count(steps) == blocks


@pytest.mark.parametrize(
    ("change", "message"), [({"startup_seconds": 7200}, "startup_seconds"), ({"confidence": 1}, "confidence")]
)
def test_impossible_rules_are_refused(change, message):
    """A start-up that takes all the time, or certainty, is refused with the name of the field."""
    with pytest.raises(ValueError, match=message):
        GainRule(**change)
