"""Tests of the recent values, the time since their last change, and the bounded memory."""

import math

import pytest

from watcher.model import Metric, NodeMetrics
from watcher.quality.history import FetchHistory


def nodes(**values: float | None) -> dict[str, NodeMetrics]:
    """Return nodes with one CPU average each; None is a node without metrics."""
    return {
        name: NodeMetrics(() if value is None else (Metric("cpu", "CPU", "AVG", "5m", value),))
        for name, value in values.items()
    }


@pytest.fixture
def history() -> FetchHistory:
    """History of 4 fetches with a spacing of 30 seconds that forgets after 10 minutes."""
    return FetchHistory(4, 30, 600)


def of(history: FetchHistory, name: str, field: str) -> float:
    """Return a property of a node's CPU."""
    return float(history[field][history.nodes[name], history.series["cpu", "AVG"]])


def test_recent_values_are_oldest_first(history: FetchHistory) -> None:
    """The values before the last fetch are returned with their times, oldest first, up to the depth."""
    for number in range(6):
        history.append(60.0 * number, nodes(a=float(number)))
    values, times = history.before(0)
    assert values[0].tolist() == [2, 3, 4]
    assert times.tolist() == [120, 180, 240]
    assert of(history, "a", "value") == 5


def test_early_fetch_replaces_the_last_one(history: FetchHistory) -> None:
    """Fetches repeated after a failure do not push out older values."""
    for now, value in ((0.0, 1.0), (60.0, 2.0), (62.0, 3.0), (66.0, 4.0), (120.0, 5.0), (150.0, 6.0)):
        history.append(now, nodes(a=value))
    values, times = history.before(0)
    assert values[0].tolist() == [1, 4, 5]
    assert times.tolist() == [0, 66, 120]


def test_share_of_changes_before_a_rest(history: FetchHistory) -> None:
    """The share of changes is an average, used from the tenth fetch on; fetches after the last change do not count."""
    for fetch in range(40):
        assert history.moving().size == (2 if fetch >= 10 else 0)
        history.append(fetch * 60.0, nodes(a=float(fetch), b=5.0, c=float(fetch // 4)))
    before = [of(history, name, "moved") for name in "abc"]
    assert before == pytest.approx([1, 0, 0.261], abs=0.001)
    for fetch in range(40, 80):
        history.append(fetch * 60.0, nodes(a=39.0, b=5.0, c=9.0))
    assert [of(history, name, "moved") for name in "abc"] == before


def test_first_value_is_not_a_change(history: FetchHistory) -> None:
    """The first value, and the first after a gap, do not count as changes."""
    for now, value in ((0.0, 1.0), (60.0, None), (120.0, 2.0), (180.0, None), (240.0, 3.0)):
        history.append(now, nodes(a=value))
    assert of(history, "a", "moved") == 0


def test_since_is_the_last_change(history: FetchHistory) -> None:
    """A repeated value keeps its time; a change beyond the stored decimals sets a new one."""
    for now, value in ((0.0, 7.0), (60.0, 7.5), (120.0, 7.5 + 1e-11), (180.0, 7.5)):
        history.append(now, nodes(a=value))
    assert of(history, "a", "since") == 60
    history.append(240.0, nodes(a=8.0))
    assert (of(history, "a", "since"), of(history, "a", "longest")) == (240, 120)


def test_gap_ends_a_rest(history: FetchHistory) -> None:
    """The same value after a gap starts a new rest."""
    history.append(0.0, nodes(a=7.0, b=1.0))
    history.append(60.0, nodes(b=1.0))
    assert math.isnan(of(history, "a", "value"))
    assert of(history, "a", "seen") == 0
    history.append(120.0, nodes(a=7.0, b=1.0))
    assert of(history, "a", "since") == 120
    assert of(history, "b", "since") == 0


def test_absent_nodes_and_series_are_forgotten(history: FetchHistory) -> None:
    """Nodes and series absent for longer than the limit are deleted, and others are kept."""
    history.append(0.0, nodes(a=1.0, b=2.0, c=3.0) | {"d": NodeMetrics((Metric("gpu", "GPU", "AVG", "5m", 4.0),))})
    history.append(600.0, nodes(b=2.0))
    assert set(history.nodes) == {"a", "b", "c", "d"}
    history.append(601.0, nodes(b=2.0, e=5.0))
    assert set(history.nodes) == {"b", "e"}
    assert history.series == {("cpu", "AVG"): 0}
    assert (of(history, "b", "since"), of(history, "e", "value")) == (0, 5)


def test_memory_is_bounded_with_changing_names(history: FetchHistory) -> None:
    """A provider with new names in every fetch uses no more memory than the limit allows."""
    for number in range(100):
        history.append(60.0 * number, {f"n-{number}": NodeMetrics((Metric(f"m-{number}", "CPU", "AVG", "5m", 1.0),))})
    assert len(history.nodes) == len(history.series) == 11


@pytest.mark.parametrize("now", [500.0, 1000.0])
def test_clock_set_back_starts_a_new_history(history: FetchHistory, now: float) -> None:
    """A fetch that is not later than the last one deletes the history."""
    for earlier in (940.0, 1000.0):
        history.append(earlier, nodes(a=1.0))
    history.append(now, nodes(a=1.0))
    assert of(history, "a", "since") == now
    assert history.before(0)[1].size == 0


def test_memory_of_5000_nodes() -> None:
    """5,000 nodes with 8 series and 60 fetches take at most 12 MB."""
    history = FetchHistory(60, 30, 600)
    metrics = tuple(Metric(f"m{number}", "CPU", "AVG", "5m", 1.0) for number in range(8))
    history.append(0.0, {f"node-{number}": NodeMetrics(metrics) for number in range(5000)})
    assert history.size_bytes <= 12e6


def test_no_nodes(history: FetchHistory) -> None:
    """An empty fetch is empty, and nodes without metrics are present."""
    history.append(0.0, {})
    history.append(60.0, nodes(a=None))
    assert list(history.nodes) == ["a"]
    assert history["value"].shape == (1, 0)
