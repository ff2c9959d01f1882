"""The past of a window: recent values, since when a value stands, and a memory that stays bounded."""

import math

import pytest

from watcher.model import Metric, NodeMetrics
from watcher.quality.history import FetchHistory


def nodes(**values: float | None) -> dict[str, NodeMetrics]:
    """Return nodes of one CPU average each, None being a node without metrics."""
    return {
        name: NodeMetrics(() if value is None else (Metric("cpu", "CPU", "AVG", "5m", value),))
        for name, value in values.items()
    }


@pytest.fixture
def history() -> FetchHistory:
    """A past of 4 fetches, 30 seconds apart at least, that forgets after 10 minutes."""
    return FetchHistory(4, 30, 600)


def of(history: FetchHistory, name: str, field: str) -> float:
    """Return what is known of a node's CPU."""
    return float(history[field][history.nodes[name], history.series["cpu", "AVG"]])


def test_the_recent_values_come_oldest_first(history: FetchHistory) -> None:
    """Before the last fetch come the ones before it, with their times, as many as there is room for."""
    for number in range(6):
        history.append(60.0 * number, nodes(a=float(number)))
    values, times = history.before(0)
    assert values[0].tolist() == [2, 3, 4]
    assert times.tolist() == [120, 180, 240]
    assert of(history, "a", "value") == 5


def test_a_fetch_too_soon_takes_the_place_of_the_last(history: FetchHistory) -> None:
    """Fetches that are repeated after a failure do not push the past out."""
    for now, value in ((0.0, 1.0), (60.0, 2.0), (62.0, 3.0), (66.0, 4.0), (120.0, 5.0)):
        history.append(now, nodes(a=value))
    values, times = history.before(0)
    assert values[0].tolist() == [1, 4]
    assert times.tolist() == [0, 66]


def test_how_often_a_value_moved_before_it_stood_still(history: FetchHistory) -> None:
    """The share grows with every fetch that changes the value, and what follows a change does not count in it."""
    for fetch in range(40):
        history.append(fetch * 60.0, nodes(a=float(fetch), b=5.0, c=float(fetch // 4)))
    before = [of(history, name, "moved") for name in "abc"]
    assert before[0] > 0.8
    assert before[1] == 0
    assert 0.1 < before[2] < 0.4
    for fetch in range(40, 80):
        history.append(fetch * 60.0, nodes(a=39.0, b=5.0, c=9.0))
    assert [of(history, name, "moved") for name in "abc"] == before


def test_a_value_that_comes_back_did_not_move(history: FetchHistory) -> None:
    """The first value, and the first one after a gap, follow none that they could differ from."""
    for now, value in ((0.0, 1.0), (60.0, None), (120.0, 2.0), (180.0, None), (240.0, 3.0)):
        history.append(now, nodes(a=value))
    assert of(history, "a", "moved") == 0


def test_since_when_a_value_stands(history: FetchHistory) -> None:
    """A value that comes again keeps its beginning; a change, beyond the decimals that are kept, is a new one."""
    for now, value in ((0.0, 7.0), (60.0, 7.5), (120.0, 7.5 + 1e-11), (180.0, 7.5)):
        history.append(now, nodes(a=value))
    assert of(history, "a", "since") == 60
    history.append(240.0, nodes(a=8.0))
    assert (of(history, "a", "since"), of(history, "a", "longest")) == (240, 120)


def test_a_gap_ends_a_rest(history: FetchHistory) -> None:
    """A node that was away has no value meanwhile, and the same value after is no rest of before."""
    history.append(0.0, nodes(a=7.0, b=1.0))
    history.append(60.0, nodes(b=1.0))
    assert math.isnan(of(history, "a", "value"))
    assert of(history, "a", "seen") == 0
    history.append(120.0, nodes(a=7.0, b=1.0))
    assert of(history, "a", "since") == 120
    assert of(history, "b", "since") == 0


def test_what_was_not_seen_for_long_is_forgotten(history: FetchHistory) -> None:
    """Nodes and series that are gone for longer than the limit give their place back, and others keep theirs."""
    history.append(0.0, nodes(a=1.0, b=2.0, c=3.0) | {"d": NodeMetrics((Metric("gpu", "GPU", "AVG", "5m", 4.0),))})
    history.append(600.0, nodes(b=2.0))
    assert set(history.nodes) == {"a", "b", "c", "d"}
    history.append(601.0, nodes(b=2.0, e=5.0))
    assert set(history.nodes) == {"b", "e"}
    assert history.series == {("cpu", "AVG"): 0}
    assert (of(history, "b", "since"), of(history, "e", "value")) == (0, 5)


def test_names_that_change_all_the_time_take_no_more_memory(history: FetchHistory) -> None:
    """A provider that makes up new names every time fills no more than what the limit holds."""
    for number in range(100):
        history.append(60.0 * number, {f"n-{number}": NodeMetrics((Metric(f"m-{number}", "CPU", "AVG", "5m", 1.0),))})
    assert len(history.nodes) == len(history.series) == 11


def test_a_clock_set_back_begins_a_new_past(history: FetchHistory) -> None:
    """Nothing can be said about an order that is lost."""
    history.append(1000.0, nodes(a=1.0))
    history.append(500.0, nodes(a=1.0))
    assert of(history, "a", "since") == 500
    assert history.before(0)[1].size == 0


def test_5000_nodes_take_little_memory() -> None:
    """5,000 nodes of 8 series and 60 fetches are 12 MB at most."""
    history = FetchHistory(60, 30, 600)
    metrics = tuple(Metric(f"m{number}", "CPU", "AVG", "5m", 1.0) for number in range(8))
    history.append(0.0, {f"node-{number}": NodeMetrics(metrics) for number in range(5000)})
    assert history.size_bytes <= 12e6


def test_no_nodes_at_all(history: FetchHistory) -> None:
    """A past of nothing holds nothing, and nodes without metrics are nodes."""
    history.append(0.0, {})
    history.append(60.0, nodes(a=None))
    assert list(history.nodes) == ["a"]
    assert history["value"].shape == (1, 0)
