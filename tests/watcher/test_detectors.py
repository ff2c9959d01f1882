"""Tests of each detector, with normal values and with the fault that it detects."""

import math

import numpy as np
import pytest

from watcher.quality import detectors

AGES = np.arange(60, 0, -1) * 60.0  # of 60 fetches, a minute apart, oldest first
NAN = math.nan


def noise(seed: int, level: float, deviation: float, shape: tuple[int, ...] = (1, 60)) -> np.ndarray:
    """Return noise around a load."""
    return np.random.default_rng(seed).normal(level, deviation, shape)


# -- frozen -------------------------------------------------------------------------------------------------------


SHORT, LONG = 900.0, 21600.0


@pytest.mark.parametrize(
    ("average", "deviation", "moved", "longest", "allowed"),
    [
        (41.37, 2.5, 0.9, 0, SHORT),  # it used to change in every fetch
        (41.37, 2.5, 0.5, 0, SHORT),
        (41.37, 2.5, 0.4, 0, LONG),  # it was often constant: coarse steps
        (41.37, 2.5, 0.0, 0, SHORT),  # it never changed
        (41.37, 2.5, 0.9, 400, SHORT),
        (41.37, 2.5, 0.9, 600, 1200),  # it was constant for nearly as long before
        (41.37, 2.5, 0.9, 20000, 40000),
        (41.37, 0.0, 0.9, 0, SHORT),  # constant samples at the source
        (41.0, 2.5, 0.9, 0, SHORT),  # the deviation is not a whole number
        (41.0, 0.0, 0.9, 0, LONG),  # whole numbers may be rounded
        (41.0, NAN, 0.9, 0, LONG),
        (0.0, 0.0, 0.9, 0, LONG),
    ],
)
def test_may_rest(average: float, deviation: float, moved: float, longest: float, allowed: float) -> None:
    """The short time applies to precise live values; any value may be constant for twice as long as before."""
    values = np.array([[average, deviation]])
    rested = detectors.may_rest(values, np.array([moved]), np.array([longest]), np.array([SHORT, LONG]))
    assert rested.tolist() == [allowed]


# -- spikes -------------------------------------------------------------------------------------------------------


def spikes(value: float, past: np.ndarray, window: float = 300, factor: float = 1.5) -> bool:
    """Detect spikes for one value."""
    found = detectors.spikes(np.array([value]), past, AGES[-past.shape[1] :], window, factor)
    return bool(found[0])


def test_impossible_jump_is_a_spike() -> None:
    """An average over five minutes moves by at most 20 points in a minute, 30 with the factor: 35 is a spike."""
    past = noise(1, 40, 1)
    assert spikes(76, past)
    assert spikes(4, past)
    assert not spikes(64, past)


def test_step_of_the_load_is_not_a_spike() -> None:
    """A step of the load from idle to full takes five fetches in the average, without a spike."""
    past = noise(2, 5, 0.5)
    for value in (24.0, 43.0, 62.0, 81.0, 100.0, 100.0):
        assert not spikes(value, past)
        past = np.append(past[:, 1:], [[value]], axis=1)


def test_end_of_a_spike_is_not_a_spike() -> None:
    """The next fetch at the same value is a spike, too; the return to the usual value is not."""
    past = np.append(noise(3, 20, 1)[:, 1:], [[90.0]], axis=1)
    assert spikes(90, past)
    assert not spikes(20, past)


def test_spikes_need_ten_fetches() -> None:
    """With fewer than ten fetches, without gaps, there are no spikes."""
    past = np.full((1, 60), NAN)
    assert not spikes(90, past)
    past[0, -9:] = 20
    assert not spikes(90, past)
    past[0, -10:] = 20
    assert spikes(90, past)
    several = np.vstack([past, past, past])
    several[2, -2] = NAN
    assert detectors.spikes(np.array([90.0, 20, 90]), several, AGES, 300, 1.5).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("value", "window", "is_spike"),
    [(70.0, 300, False), (70.01, 300, True), (9.99, 300, True), (46.0, 3000, False), (46.01, 3000, True)],
)
def test_limits_of_spikes(value: float, window: float, is_spike: bool) -> None:
    """From constant values a change by the possible 30 points in a minute, or by 6 percent, is not a spike."""
    assert spikes(value, np.full((1, 60), 40.0), window) == is_spike


def test_windows_without_overlap_have_no_spikes() -> None:
    """If windows do not overlap, any jump is possible."""
    assert not spikes(100, noise(4, 1, 0.1), window=60)


# -- scale --------------------------------------------------------------------------------------------------------


def fell(value: float, past: np.ndarray) -> bool:
    """Detect a fall to a hundredth for one value."""
    return bool(detectors.fell_to_a_hundredth(np.array([value]), past)[0])


def test_percents_that_become_ratios() -> None:
    """40 percent that become 0.4 at once fell to a hundredth."""
    past = noise(5, 40, 3)
    assert fell(0.4, past)
    past[0, -40:] = noise(6, 0.4, 0.03, (40,))
    assert fell(0.41, past)


def test_end_of_a_load_is_not_a_change_of_scale() -> None:
    """A drained node passes through values in between; a tenth and zero are not a hundredth."""
    past = noise(7, 40, 3)
    past[0, -4:] = 32, 24, 16, 8
    assert not fell(0.4, past)
    assert not fell(4, noise(8, 40, 3))
    assert not fell(0, noise(8, 40, 3))
    assert not fell(0.004, noise(8, 40, 3))
    assert not fell(NAN, noise(8, 40, 3))


@pytest.mark.parametrize(
    ("past", "is_found"),
    [
        ([50.0] * 59 + [15.0], False),  # 30 times the value is still between
        ([50.0] * 59 + [1.5], True),  # 3 times the value is no longer between
        ([50.0] * 10 + [NAN] * 50, True),
        ([50.0] * 9 + [0.5] * 51, False),
        ([25.0] * 60, False),  # the factor is 50
        ([100.0] * 60, False),  # the factor is 200
    ],
)
def test_limits_of_a_fall_to_a_hundredth(past: list[float], is_found: bool) -> None:
    """Ten values are 50 to 200 times as high, and none is 3 to 30 times as high, whatever other nodes have."""
    found = detectors.fell_to_a_hundredth(np.array([0.5, 0.5]), np.array([past, [50.0] * 60]))
    assert found.tolist() == [is_found, True]


def test_fetch_of_ratios() -> None:
    """Memory with no value above 1 is a ratio at once; CPU after ten fetches, if nodes differ."""
    values = np.random.default_rng(9).uniform(0.05, 0.95, 20)
    past = np.tile(values[:, None], 10)
    none = past[:, :0]
    assert detectors.are_ratios(values, none, may_idle=False)
    assert not detectors.are_ratios(values, none, may_idle=True)
    assert detectors.are_ratios(values, past, may_idle=True)
    assert detectors.are_ratios(np.append(values, [0.0, 1.0]), none, may_idle=False)


def test_idle_nodes_are_not_ratios() -> None:
    """Nodes that idle alike, that idle only now, that are at zero, or that are few are not ratios."""
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
    """Return the smoothing ratio of windows that begin at every second sample."""
    windows = np.lib.stride_tricks.sliding_window_view(samples, window, axis=1)[:, ::2]
    return detectors.smoothing_ratio(windows.mean(axis=2), windows.std(axis=2), window // 2)


def test_ratio_of_averaged_samples() -> None:
    """Noise is far below 4, a random walk at about 4, and both are above 4 once averaged over two windows."""
    steps = np.random.default_rng(11).normal(0, 1, (30, 400))
    walk = steps.cumsum(axis=1)
    assert ratio(steps) < 0.5
    assert 3 < ratio(walk) < 5
    smooth = np.apply_along_axis(lambda row: np.convolve(row, np.ones(20) / 20, "valid"), 1, walk)
    assert ratio(smooth) > 8


def test_ratio_needs_enough_data() -> None:
    """With fewer than five nodes, a short past, or an impossible lag the ratio is NaN."""
    steps = np.random.default_rng(12).normal(0, 1, (30, 400))
    assert math.isnan(ratio(steps[:4]))
    assert math.isnan(ratio(steps[:, :30]))
    assert math.isnan(detectors.smoothing_ratio(steps, steps, 0))
    steps[4:] = 0
    assert math.isnan(ratio(steps)), "nodes without deviations do not count"


def test_correction_for_few_samples() -> None:
    """The ratio of a random walk with few samples is raised; one sample has no deviation."""
    assert [detectors.walk_correction(samples) for samples in (0.5, 1, 2, 3)] == [math.inf, math.inf, 1.5, 19 / 16]
