"""What a second source says: what is usual between the two, and what contradicts for long."""

import numpy as np
import pytest

from watcher.quality.corroboration import Corroboration

NODES = 10
NAMES = [f"n{number}" for number in range(NODES)]


class Sources:
    """Two sources of ten nodes, whose loads wander; the second is 3 percent lower, noisy, and a fetch late."""

    def __init__(self, bound: float = 10) -> None:
        self.rng = np.random.default_rng(8)
        self.true = np.linspace(30, 80, NODES)
        self.before = self.true
        self.against = Corroboration(bound)
        self.now = 1e9

    def fetch(
        self, factor: float | np.ndarray = 1.0, jump: float = 0.0, offset: float | np.ndarray = 0.0
    ) -> np.ndarray:
        """Return who is found when ours are these times what they are; ``jump`` is what the loads all do."""
        self.now += 60
        self.before = self.true
        self.true = np.clip(self.true + self.rng.normal(0, 1, NODES) + jump, 5, 95)
        theirs = self.before * 0.97 + offset + self.rng.normal(0, 1, NODES)
        return self.against.judge(self.now, NAMES, self.true * factor, theirs).found

    def agree(self, fetches: int = 60, offset: float | np.ndarray = 0.0) -> None:
        """Fetch what is well."""
        for _ in range(fetches):
            assert not self.fetch(offset=offset).any()


def of(node: int, factor: float) -> np.ndarray:
    """Return a factor of one node."""
    return np.where(np.arange(NODES) == node, factor, 1.0)


@pytest.mark.parametrize("factor", [0.0, 0.01, 0.3, 0.75, 1.5])
def test_a_node_that_is_contradicted_for_long_is_found(factor: float) -> None:
    """It takes some fetches, and no other node is found."""
    sources = Sources()
    sources.agree()
    seen = [sources.fetch(of(8, factor)) for _ in range(15)]
    assert not seen[1].any()
    assert seen[-1].tolist() == [number == 8 for number in range(NODES)]
    for _ in range(80):
        last = sources.fetch()
    assert not last.any()


def test_what_is_usual_between_the_two_contradicts_nothing() -> None:
    """Sources that count other things, so that all differ by 8 points, agree; and then 6 more of one node do not."""
    sources = Sources()
    sources.agree(300, offset=8.0)
    for _ in range(15):
        seen = sources.fetch(offset=8.0 + np.where(np.arange(NODES) == 3, 15.0, 0.0))
    assert seen.tolist() == [number == 3 for number in range(NODES)]


def test_a_load_that_jumps_shows_late_at_one_of_them() -> None:
    """Jumps of 50 points, which the second source shows a fetch later, contradict nothing."""
    sources = Sources()
    sources.agree()
    for fetch in range(200):
        jump = (50.0 if fetch % 40 == 0 else -50.0) if fetch % 20 == 0 else 0.0
        assert not sources.fetch(jump=jump).any()


def test_what_was_found_is_told_until_both_agree_for_long() -> None:
    """An hour without a contradiction ends it: what is wrong by a factor hardly shows while a node idles."""
    sources = Sources()
    sources.agree()
    for _ in range(30):
        sources.fetch(of(8, 0.3))
    seen = [bool(sources.fetch()[8]) for _ in range(80)]
    assert all(seen[:59])
    assert not any(seen[-10:])


def test_jumping_loads_hide_no_contradiction() -> None:
    """Where every node jumps at random, so that a late source is often far off, half a load is still found."""
    rng = np.random.default_rng(9)
    against = Corroboration(10)
    true = rng.uniform(10, 90, (NODES, 240)).repeat(5, axis=1)
    theirs = np.roll(true, 2, axis=1) * 0.97 + rng.normal(0, 1, true.shape)
    ours = true.copy()
    ours[8, 900:] *= 0.4
    seen = np.array([against.judge(1e9 + 60 * at, NAMES, ours[:, at], theirs[:, at]).found for at in range(1200)])
    assert not seen[:900].any()
    assert not np.delete(seen, 8, axis=1).any()
    assert seen[1000:, 8].mean() > 0.8


def test_a_source_that_is_wrong_about_all_is_contradicted_everywhere() -> None:
    """When ours are a hundredth of what they were, all nodes are contradicted."""
    sources = Sources()
    sources.agree()
    for _ in range(15):
        seen = sources.fetch(0.01)
    assert seen.all()


def test_what_one_of_them_does_not_have_is_neither_for_nor_against() -> None:
    """A node without a value at one source is not found, and one that was stays so."""
    against = Corroboration(10)
    ours, theirs = np.full(NODES, 50.0), np.full(NODES, 50.0)
    theirs[0], theirs[1] = np.nan, 90.0
    for fetch in range(5):
        seen = against.judge(1e9 + 60 * fetch, NAMES, ours, theirs).found
    assert np.flatnonzero(seen).tolist() == [1]
    theirs[1] = np.nan
    assert against.judge(2e9, NAMES, ours, theirs).found[1]


def smooth_and_late(true: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return what a second source says that averages over five fetches and is a fetch late; (nodes, times)."""
    padded = np.concatenate([true[:, :1].repeat(5, axis=1), true], axis=1)
    means = np.lib.stride_tricks.sliding_window_view(padded[:, :-1], 5, axis=1).mean(axis=2)
    noisy: np.ndarray = means * 0.97 + rng.normal(0, 1, true.shape)
    return noisy


def test_what_a_second_source_makes_of_jumps_is_learned() -> None:
    """Where it averages over what the first shows at once, a jump is no contradiction; what is one shows soon."""
    rng = np.random.default_rng(10)
    true = rng.uniform(5, 95, (NODES, 240)).repeat(5, axis=1)
    theirs = smooth_and_late(true, rng)
    ours = true.copy()
    ours[8, 1100:] = np.roll(true[8], 45)[1100:]  # another's values, as high on the whole
    against = Corroboration(10)
    seen = np.array([against.judge(1e9 + 60 * at, NAMES, ours[:, at], theirs[:, at]).found for at in range(1200)])
    assert not seen[:1100].any()
    assert not np.delete(seen, 8, axis=1).any()
    assert seen[1112:, 8].all()


def test_loads_that_never_moved_leave_all_the_room() -> None:
    """The first jump after a quiet day, seen late, contradicts nothing: nobody knows how late that source is."""
    rng = np.random.default_rng(11)
    true = np.linspace(20, 40, NODES)[:, None].repeat(1500, axis=1)
    true[3, 1440:] += 50
    theirs = np.concatenate([true[:, :6], true[:, :-6]], axis=1) + rng.normal(0, 1, true.shape)
    against = Corroboration(10)
    for at in range(1500):
        assert not against.judge(1e9 + 60 * at, NAMES, true[:, at], theirs[:, at]).found.any()


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_scale_that_is_a_little_wrong_shows_in_all_nodes_together(factor: float) -> None:
    """Where no node differs by enough for itself, a fifth less or more of all of them does."""
    sources = Sources(bound=20)
    sources.agree(120)
    for _ in range(12):
        seen = sources.fetch(factor)
    assert seen.all()
    for _ in range(80):
        seen = sources.fetch()
    assert not seen.any()


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_missing_is_not_guessed(gone: bool) -> None:
    """A node that falls while ours are missing, which a second source that averages shows late, is not contradicted."""
    rng = np.random.default_rng(12)
    true = rng.uniform(5, 95, (NODES, 60)).repeat(20, axis=1)
    true[2, 1000:1030], true[2, 1030:] = 95, 5
    theirs = smooth_and_late(true, rng)
    ours = true.copy()
    ours[2, 1000:1030] = np.nan
    against = Corroboration(10)
    for at in range(1200):
        there = [node for node in range(NODES) if not (gone and np.isnan(ours[node, at]))]
        names = [NAMES[node] for node in there]
        assert not against.judge(1e9 + 60 * at, names, ours[there, at], theirs[there, at]).found.any()
