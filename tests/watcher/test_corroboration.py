"""Tests of the comparison with a second source: its usual relation, and lasting contradictions."""

import numpy as np
import pytest

from watcher.quality.corroboration import Corroboration

NODES = 10
NAMES = [f"n{number}" for number in range(NODES)]


class Sources:
    """Two sources for ten nodes with random walks; the second is 3 percent lower, noisy, and one fetch late."""

    def __init__(self, bound: float = 10) -> None:
        self.rng = np.random.default_rng(8)
        self.true = np.linspace(30, 80, NODES)
        self.before = self.true
        self.corroboration = Corroboration(bound)
        self.now = 1e9

    def fetch(
        self, factor: float | np.ndarray = 1.0, jump: float = 0.0, offset: float | np.ndarray = 0.0
    ) -> np.ndarray:
        """Return the nodes with findings.

        Args:
            factor: the first source's values as a multiple of the true loads.
            jump: a change of all loads.
            offset: a constant difference of the second source.
        """
        self.now += 60
        self.before = self.true
        self.true = np.clip(self.true + self.rng.normal(0, 1, NODES) + jump, 5, 95)
        second = self.before * 0.97 + offset + self.rng.normal(0, 1, NODES)
        self.last = self.corroboration.judge(self.now, NAMES, self.true * factor, second)
        return self.last.found

    def agree(self, fetches: int = 60, offset: float | np.ndarray = 0.0) -> None:
        """Fetch values without contradictions."""
        for _ in range(fetches):
            assert not self.fetch(offset=offset).any()


def of(node: int, factor: float) -> np.ndarray:
    """Return factors with another value for one node."""
    return np.where(np.arange(NODES) == node, factor, 1.0)


@pytest.mark.parametrize("factor", [0.0, 0.01, 0.3, 0.75, 1.5])
def test_contradicted_node_is_found(factor: float) -> None:
    """A contradicted node is found after some fetches, and no other node."""
    sources = Sources()
    sources.agree()
    seen = [sources.fetch(of(8, factor)) for _ in range(15)]
    assert not seen[1].any()
    assert seen[-1].tolist() == [number == 8 for number in range(NODES)]
    for _ in range(80):
        last = sources.fetch()
    assert not last.any()


def test_usual_difference_is_not_a_contradiction() -> None:
    """A constant difference of 8 points is no finding, but 15 more points at one node are; they show in its load."""
    sources = Sources()
    sources.agree(300, offset=8.0)
    for _ in range(15):
        seen = sources.fetch(offset=8.0 + np.where(np.arange(NODES) == 3, 15.0, 0.0))
    assert seen.tolist() == [number == 3 for number in range(NODES)]
    wrong = sources.last.expected - sources.true
    assert abs(wrong[3] - 15) < 5
    assert np.abs(np.delete(wrong, 3)).max() < 5


def test_late_jumps_are_not_contradictions() -> None:
    """Jumps of 50 points that the second source shows one fetch later are no findings."""
    sources = Sources()
    sources.agree()
    for fetch in range(200):
        jump = (50.0 if fetch % 40 == 0 else -50.0) if fetch % 20 == 0 else 0.0
        assert not sources.fetch(jump=jump).any()


def test_finding_ends_after_an_hour_of_agreement() -> None:
    """A finding ends after an hour of agreement, as a wrong factor hardly shows while a node idles."""
    sources = Sources()
    sources.agree()
    for _ in range(30):
        sources.fetch(of(8, 0.3))
    seen = [bool(sources.fetch()[8]) for _ in range(80)]
    assert all(seen[:59])
    assert not any(seen[-10:])


def test_contradiction_is_found_among_jumping_loads() -> None:
    """With random jumps at every node, half of a load is still found."""
    rng = np.random.default_rng(9)
    corroboration = Corroboration(10)
    true = rng.uniform(10, 90, (NODES, 240)).repeat(5, axis=1)
    second = np.roll(true, 2, axis=1) * 0.97 + rng.normal(0, 1, true.shape)
    first = true.copy()
    first[8, 900:] *= 0.4
    seen = np.array(
        [corroboration.judge(1e9 + 60 * at, NAMES, first[:, at], second[:, at]).found for at in range(1200)]
    )
    assert not seen[:900].any()
    assert not np.delete(seen, 8, axis=1).any()
    assert seen[1000:, 8].mean() > 0.8


def test_wrong_source_is_contradicted_at_all_nodes() -> None:
    """If the first source falls to a hundredth, all nodes are found."""
    sources = Sources()
    sources.agree()
    for _ in range(15):
        seen = sources.fetch(0.01)
    assert seen.all()


def test_missing_values_change_nothing() -> None:
    """A missing value at one source neither begins nor ends a finding."""
    corroboration = Corroboration(10)
    first, second = np.full(NODES, 50.0), np.full(NODES, 50.0)
    second[0], second[1] = np.nan, 90.0
    for fetch in range(3):
        last = corroboration.judge(1e9 + 60 * fetch, NAMES, first, second)
    assert np.flatnonzero(last.found).tolist() == [1]
    assert last.since[1] == 1e9
    for value in (50.0, np.nan):  # one agreement is not enough either
        second[1] = value
        assert corroboration.judge(2e9, NAMES, first, second).found[1]


def smooth_and_late(true: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the values of a second source that averages five fetches and is one fetch late."""
    padded = np.concatenate([true[:, :1].repeat(5, axis=1), true], axis=1)
    means = np.lib.stride_tricks.sliding_window_view(padded[:, :-1], 5, axis=1).mean(axis=2)
    noisy: np.ndarray = means * 0.97 + rng.normal(0, 1, true.shape)
    return noisy


def test_smoothing_of_the_second_source_is_learned() -> None:
    """With a second source that averages, a jump is no finding, and a contradiction is soon found."""
    rng = np.random.default_rng(10)
    true = rng.uniform(5, 95, (NODES, 240)).repeat(5, axis=1)
    second = smooth_and_late(true, rng)
    first = true.copy()
    first[8, 1100:] = np.roll(true[8], 45)[1100:]  # other values with the same average
    corroboration = Corroboration(10)
    seen = np.array(
        [corroboration.judge(1e9 + 60 * at, NAMES, first[:, at], second[:, at]).found for at in range(1200)]
    )
    assert not seen[:1100].any()
    assert not np.delete(seen, 8, axis=1).any()
    assert seen[1112:, 8].all()


def test_lag_is_unknown_while_loads_are_constant() -> None:
    """The first late jump after a constant day is no finding, as the lag is unknown."""
    rng = np.random.default_rng(11)
    true = np.linspace(20, 40, NODES)[:, None].repeat(1500, axis=1)
    true[3, 1440:] += 50
    second = np.concatenate([true[:, :6], true[:, :-6]], axis=1) + rng.normal(0, 1, true.shape)
    corroboration = Corroboration(10)
    for at in range(1500):
        assert not corroboration.judge(1e9 + 60 * at, NAMES, true[:, at], second[:, at]).found.any()


@pytest.mark.parametrize(("factor", "is_found"), [(0.8, True), (1.25, True), (0.9, False)])
def test_small_common_factor_is_found(factor: float, is_found: bool) -> None:
    """A common factor of a fifth is found although no single node differs enough; one of a tenth is not."""
    sources = Sources(bound=20)
    sources.agree(120)
    for _ in range(12):
        seen = sources.fetch(factor)
    assert set(seen) == {is_found}
    for _ in range(80):
        seen = sources.fetch()
    assert not seen.any()


@pytest.mark.parametrize("gone", [False, True])
def test_missing_values_are_not_guessed(gone: bool) -> None:
    """A node that falls while the first source has no values is not found with a late second source."""
    rng = np.random.default_rng(12)
    true = rng.uniform(5, 95, (NODES, 60)).repeat(20, axis=1)
    true[2, 1000:1030], true[2, 1030:] = 95, 5
    second = smooth_and_late(true, rng)
    first = true.copy()
    first[2, 1000:1030] = np.nan
    corroboration = Corroboration(10)
    for at in range(1200):
        there = [node for node in range(NODES) if not (gone and np.isnan(first[node, at]))]
        names = [NAMES[node] for node in there]
        assert not corroboration.judge(1e9 + 60 * at, names, first[there, at], second[there, at]).found.any()


@pytest.mark.parametrize("lead", [-4, 4])
def test_source_may_lead_or_lag(lead: int) -> None:
    """A jump that one source shows four fetches before the other is no disagreement."""
    corroboration = Corroboration(10)
    for at in range(40):
        first, second = (np.full(NODES, 80.0 if at >= jump else 30.0) for jump in (20, 20 - lead))
        assert np.isnan(corroboration.judge(1e9 + 60 * at, NAMES, first, second).since).all()


def test_old_relation_is_forgotten() -> None:
    """After a day without fetches, the relation of the sources in the last fetch has half the weight of all."""
    corroboration = Corroboration(10)
    first = np.linspace(30, 80, NODES)
    for minutes in range(0, 72 * 60, 60):
        corroboration.judge(1e9 + 60 * minutes, NAMES, first, first)
    for minutes in (71 * 60 + 1440, 71 * 60 + 1441):
        last = corroboration.judge(1e9 + 60 * minutes, NAMES, first, first + 4)
    assert (last.expected - first).mean() == pytest.approx(2, abs=0.1)


def test_lag_of_half_of_the_nodes_is_learned() -> None:
    """If the second source shows half of the nodes four fetches late, a contradiction is found after that lag only."""
    corroboration = Corroboration(10)
    base = np.linspace(20, 40, NODES)
    late = np.where(np.arange(NODES) % 2, 4, 0)
    found = []
    for at in range(125):
        first = base + 50 * (at // 20 % 2)
        second = base + 50 * (np.maximum(at - late, 0) // 20 % 2)
        if at >= 110:
            first[8] = base[8] + 50 * (1 - at // 20 % 2)
        found.append(np.flatnonzero(corroboration.judge(1e9 + 60 * at, NAMES, first, second).found).tolist())
    assert found == [[]] * 116 + [[8]] * 9


@pytest.mark.parametrize(("swing", "is_found"), [(0.0, True), (0.15, False)])
def test_usual_swings_of_all_values_are_no_common_factor(swing: float, is_found: bool) -> None:
    """A common factor is found unless the second source often swings against the first."""
    corroboration = Corroboration(20)
    first = np.linspace(40, 60, NODES)
    for at in range(110):
        factor = 0.7 if at >= 100 else 1 + swing * (-1) ** at
        last = corroboration.judge(1e9 + 60 * at, NAMES, first, first * factor)
    assert set(last.found) == {is_found}
