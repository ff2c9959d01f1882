"""What values give away: each detector against what is well, and against the fault that it is for."""

import math

import numpy as np
import pytest

from watcher.quality import detectors

AGES = np.arange(60, 0, -1) * 60.0  # of 60 fetches, a minute apart, oldest first
NAN = math.nan


def noise(seed: int, level: float, deviation: float, shape: tuple[int, ...] = (1, 60)) -> np.ndarray:
    """Return values around a level."""
    return np.random.default_rng(seed).normal(level, deviation, shape)


# -- frozen -------------------------------------------------------------------------------------------------------


SHORT, LONG = 900.0, 21600.0


@pytest.mark.parametrize(
    ("average", "deviation", "moved", "longest", "allowed"),
    [
        (41.37, 2.5, 0.9, 0, SHORT),  # it used to move
        (41.37, 2.5, 0.5, 0, SHORT),
        (41.37, 2.5, 0.4, 0, LONG),  # it often stood still: it is counted in coarse steps
        (41.37, 2.5, 0.0, 0, SHORT),  # it was never seen to move
        (41.37, 2.5, 0.9, 400, SHORT),
        (41.37, 2.5, 0.9, 600, 1200),  # it stood still nearly as long before
        (41.37, 2.5, 0.9, 20000, 40000),
        (41.37, 0.0, 0.9, 0, SHORT),  # the source itself stands still
        (41.0, 2.5, 0.9, 0, SHORT),  # the deviation says that nothing was rounded
        (41.0, 0.0, 0.9, 0, LONG),  # whole numbers may be rounded
        (41.0, NAN, 0.9, 0, LONG),
        (0.0, 0.0, 0.9, 0, LONG),
    ],
)
def test_may_rest(average: float, deviation: float, moved: float, longest: float, allowed: float) -> None:
    """The short span is for what tells something by standing still, and all may rest for twice as long as before."""
    values = np.array([[average, deviation]])
    rested = detectors.may_rest(values, np.array([moved]), np.array([longest]), np.array([SHORT, LONG]))
    assert rested.tolist() == [allowed]


# -- spikes -------------------------------------------------------------------------------------------------------


def spikes(value: float, past: np.ndarray, window: float = 300, factor: float = 1.5) -> bool:
    """Tell about one value."""
    found = detectors.spikes(np.array([value]), past, AGES[-past.shape[1] :], window, factor)
    return bool(found[0])


def test_a_jump_that_no_window_can_make_is_a_spike() -> None:
    """In a minute an average over five moves by 20 points at most, by 30 with the factor: 35 is too far."""
    past = noise(1, 40, 1)
    assert spikes(76, past)
    assert spikes(4, past)
    assert not spikes(64, past)


def test_a_load_that_steps_is_none() -> None:
    """From idle to full within a minute, the average takes five fetches: none of them is a spike."""
    past = noise(2, 5, 0.5)
    for value in (24.0, 43.0, 62.0, 81.0, 100.0, 100.0):
        assert not spikes(value, past)
        past = np.append(past[:, 1:], [[value]], axis=1)


def test_a_spike_lasts_while_it_is_too_far_and_its_end_is_none() -> None:
    """The next fetch at the same height is still one; the way back to where the node always was is none."""
    past = np.append(noise(3, 20, 1)[:, 1:], [[90.0]], axis=1)
    assert spikes(90, past)
    assert not spikes(20, past)


def test_without_a_past_nothing_is_a_spike() -> None:
    """Fewer than ten fetches, gaps not counted, say nothing."""
    past = np.full((1, 60), NAN)
    assert not spikes(90, past)
    past[0, -9:] = 20
    assert not spikes(90, past)
    past[0, -10:] = 20
    assert spikes(90, past)


def test_a_window_no_longer_than_the_interval_can_do_anything() -> None:
    """Where windows follow each other without overlap, any step is possible."""
    assert not spikes(100, noise(4, 1, 0.1), window=60)


# -- scale --------------------------------------------------------------------------------------------------------


def fell(value: float, past: np.ndarray) -> bool:
    """Tell about one value."""
    return bool(detectors.fell_to_a_hundredth(np.array([value]), past)[0])


def test_percents_that_turn_into_ratios() -> None:
    """40 percent that become 0.4 at once, and stay there, fell to a hundredth."""
    past = noise(5, 40, 3)
    assert fell(0.4, past)
    past[0, -40:] = noise(6, 0.4, 0.03, (40,))
    assert fell(0.41, past)


def test_a_load_that_ends_is_no_change_of_scale() -> None:
    """A node that is drained passes through what lies between; one at a tenth or at zero is something else."""
    past = noise(7, 40, 3)
    past[0, -4:] = 32, 24, 16, 8
    assert not fell(0.4, past)
    assert not fell(4, noise(8, 40, 3))
    assert not fell(0, noise(8, 40, 3))
    assert not fell(0.004, noise(8, 40, 3))
    assert not fell(NAN, noise(8, 40, 3))


def test_a_whole_fetch_of_ratios() -> None:
    """Memory of no node above 1 is a ratio at once; CPU is after ten fetches, when nodes are not all alike."""
    values = np.random.default_rng(9).uniform(0.05, 0.95, 20)
    past = np.tile(values[:, None], 10)
    none = past[:, :0]
    assert detectors.are_ratios(values, none, may_idle=False)
    assert not detectors.are_ratios(values, none, may_idle=True)
    assert detectors.are_ratios(values, past, may_idle=True)


def test_idle_nodes_are_no_ratios() -> None:
    """Nodes of one kind that idle, nodes that idle now and did not before, zeros, and a few nodes are no proof."""
    rng = np.random.default_rng(10)
    alike = rng.uniform(0.4, 0.5, 20)
    assert not detectors.are_ratios(alike, np.tile(alike[:, None], 10), may_idle=True)
    spread = rng.uniform(0.05, 0.95, 20)
    before = np.tile(spread[:, None], 10)
    before[3, 4] = 1.7
    assert not detectors.are_ratios(spread, before, may_idle=True)
    assert not detectors.are_ratios(np.zeros(20), np.zeros((20, 10)), may_idle=False)
    assert not detectors.are_ratios(spread[:4], before[:4, :0], may_idle=False)
    assert not detectors.are_ratios(np.append(spread, 12.0), before, may_idle=False)
    assert not detectors.are_ratios(np.full(20, NAN), before, may_idle=False)


# -- smoothing ----------------------------------------------------------------------------------------------------


def ratio(samples: np.ndarray, window: int = 10) -> float:
    """Compute windows, one every second sample, and tell how they differ."""
    windows = np.lib.stride_tricks.sliding_window_view(samples, window, axis=1)[:, ::2]
    return detectors.smoothing_ratio(windows.mean(axis=2), windows.std(axis=2), window // 2)


def test_samples_that_are_averages_already() -> None:
    """Noise is far below 4, a random walk at about 4, and either is above once it is averaged over two windows."""
    steps = np.random.default_rng(11).normal(0, 1, (30, 400))
    walk = steps.cumsum(axis=1)
    assert ratio(steps) < 0.5
    assert 3 < ratio(walk) < 5
    smooth = np.apply_along_axis(lambda row: np.convolve(row, np.ones(20) / 20, "valid"), 1, walk)
    assert ratio(smooth) > 8


def test_too_little_says_nothing_about_smoothing() -> None:
    """Fewer than five nodes, a short past, or windows that a lag cannot tell apart: NaN."""
    steps = np.random.default_rng(12).normal(0, 1, (30, 400))
    assert math.isnan(ratio(steps[:4]))
    assert math.isnan(ratio(steps[:, :30]))
    assert math.isnan(detectors.smoothing_ratio(steps, steps, 0))
