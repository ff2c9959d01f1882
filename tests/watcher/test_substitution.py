"""What stands in for a node's missing measurements, and for how long."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcher.freshness import Freshness
from watcher.model import Grade, Metric, NodeMetrics, WatcherMetrics, Window
from watcher.publishing import substitution

SECONDS = {"15m": 900, "10m": 600, "5m": 300}
ORDER = list(SECONDS)
EXPIRY = 300
NOW = 10_000


def node(window: str, value: float = 50.0, types: tuple[str, ...] = ("CPU", "Memory"), **metadata: Any) -> NodeMetrics:
    """Return a node with a value of each type."""
    return NodeMetrics(tuple(Metric(t.lower(), t, "AVG", window, value) for t in types), {}, metadata)


def snapshot(window: str, end: int = NOW, **nodes: NodeMetrics) -> WatcherMetrics:
    """Return a snapshot of one window."""
    return WatcherMetrics(end, Window(window, end - SECONDS[window], end), "Test", nodes)


def served(fetched: Mapping[str, WatcherMetrics], before: Mapping[str, WatcherMetrics], now: int = NOW) -> Any:
    """Return the default snapshot and the exact ones."""
    fresh = Freshness(now, EXPIRY)
    exact = {
        name: found
        for name in ORDER
        if (found := substitution.of_window(fetched.get(name), before.get(name), fresh)) is not None
    }
    return substitution.of_default(ORDER, fetched, exact, fresh), exact


def test_a_snapshot_without_gaps_is_served_as_it_is() -> None:
    """Where nothing is missing, the very same snapshot is served."""
    fetched = {name: snapshot(name, a=node(name)) for name in ORDER}
    default, exact = served(fetched, {"15m": snapshot("15m", NOW - 60, a=node("15m"))})
    assert default is fetched["15m"]
    assert exact == fetched


def test_another_provider_does_not_stand_in() -> None:
    """What another source measured fills no gap, neither from before it took over nor from a window it answered."""
    other = {name: replace(snapshot(name, b=node(name)), source="Other") for name in ORDER}
    before = {name: replace(each, window=Window(name, NOW - 60, NOW)) for name, each in other.items()}
    for fetched in (
        {name: snapshot(name, a=node(name)) for name in ORDER},
        {**other, "15m": snapshot("15m", a=node("15m", types=("CPU",)))},
    ):
        default, exact = served(fetched, before)
        assert default is fetched["15m"]
        assert exact == fetched


def test_a_missing_node_comes_from_a_shorter_window() -> None:
    """It keeps its rollup, and says how it was obtained and which time it covers; the longest one that has it wins."""
    fetched = {
        "15m": snapshot("15m", a=node("15m")),
        "10m": snapshot("10m", a=node("10m"), b=node("10m", 30)),
        "5m": snapshot("5m", a=node("5m"), b=node("5m", 90)),
    }
    default, exact = served(fetched, {"15m": snapshot("15m", NOW - 60, b=node("15m", 70))})
    expected = {"grade": "shorter_window", "window_start": NOW - 600, "window_end": NOW}
    assert default.data == {"a": node("15m"), "b": node("10m", 30, **expected)}
    assert default.window == fetched["15m"].window
    last_good = {"grade": "last_good", "window_start": NOW - 960, "window_end": NOW - 60}
    assert exact["15m"].data["b"] == node("15m", 70, **last_good), "exactly one window never takes another's"


def test_a_node_that_is_in_no_window_is_its_last_good_one_until_it_expires() -> None:
    """It stays under its own time, fetch after fetch, for 300 seconds: then it is gone, as a removed node must be."""
    exact: Mapping[str, WatcherMetrics] = {"15m": snapshot("15m", NOW, a=node("15m"), b=node("15m", 70))}
    for now in range(NOW + 60, NOW + 301, 60):
        default, exact = served({"15m": snapshot("15m", now, a=node("15m"))}, exact, now)
        span = {"window_start": NOW - 900, "window_end": NOW}
        assert default.data["b"] == exact["15m"].data["b"] == node("15m", 70, grade="last_good", **span)
        assert default.data["a"] == node("15m")
    default, exact = served({"15m": snapshot("15m", NOW + 360, a=node("15m"))}, exact, NOW + 360)
    assert set(default.data) == set(exact["15m"].data) == {"a"}


def test_a_failed_fetch_does_not_prolong_a_node() -> None:
    """While every fetch fails, a node that was missing before goes at its own time, earlier than the others."""
    before = {"15m": snapshot("15m", NOW, a=node("15m"), b=node("15m"))}
    _, exact = served({"15m": snapshot("15m", NOW + 200, a=node("15m"))}, before, NOW + 200)
    default, exact = served({}, exact, NOW + 300)
    assert {name: each.metadata["grade"] for name, each in default.data.items()} == {"a": "last_good", "b": "last_good"}
    default, exact = served({}, exact, NOW + 301)
    assert set(default.data) == {"a"}
    assert served({}, exact, NOW + 501)[0] is None


def test_only_what_is_missing_is_replaced() -> None:
    """A node that lost its Memory keeps the CPU of now; what is optional and absent stays absent."""
    before = {"15m": snapshot("15m", NOW - 60, a=node("15m", 70, ("CPU", "Memory", "GPU")))}
    default, _ = served({"15m": snapshot("15m", a=node("15m", 20, ("CPU",)))}, before)
    assert [(m.type, m.value) for m in default.data["a"].metrics] == [("CPU", 20), ("Memory", 70)]
    assert default.data["a"].metadata == {"grade": "last_good", "window_start": NOW - 960, "window_end": NOW - 60}
    complete = {"15m": snapshot("15m", a=node("15m", 20))}
    assert served(complete, before)[0] is complete["15m"], "a GPU that is not there any more is no gap"


def test_a_source_without_memory_has_no_gaps() -> None:
    """What no window and no earlier snapshot has is not waited for."""
    fetched = {name: snapshot(name, a=node(name, types=("CPU",))) for name in ORDER}
    assert served(fetched, {})[0] is fetched["15m"]


def test_of_two_stand_ins_the_older_one_tells() -> None:
    """A node made of a shorter window and a last good one has the grade and the time of the latter."""
    fetched = {"15m": snapshot("15m"), "5m": snapshot("5m", a=node("5m", types=("CPU",)))}
    before = {"15m": snapshot("15m", NOW - 60, a=node("15m", types=("Memory",)))}
    default, _ = served(fetched, before)
    assert {m.type: m.rollup for m in default.data["a"].metrics} == {"CPU": "5m", "Memory": "15m"}
    assert default.data["a"].metadata == {"grade": "last_good", "window_start": NOW - 960, "window_end": NOW - 60}


def test_a_whole_shorter_window_grades_each_node() -> None:
    """When the default window failed, every node says so; one that only the failed window had is its last good one."""
    before = {"15m": snapshot("15m", NOW - 60, a=node("15m"), b=node("15m", 70))}
    default, exact = served({"5m": snapshot("5m", a=node("5m"))}, before)
    assert default.window.duration == "5m"
    assert default.data["a"].metadata == {"grade": "shorter_window"}
    assert default.data["b"].metadata["grade"] == "last_good"
    assert {each.metadata["grade"] for each in exact["15m"].data.values()} == {"last_good"}


@pytest.mark.parametrize(("seconds", "found"), [(-301, False), (-300, True), (5, True), (6, False)])
def test_a_clock_that_was_set_does_not_make_fresh(seconds: int, found: bool) -> None:
    """What is older than the expiry, or of the future by more than clocks are corrected, stands in for nothing."""
    before = {"15m": snapshot("15m", NOW + seconds, b=node("15m"))}
    default, _ = served({"15m": snapshot("15m", a=node("15m"))}, before)
    assert ("b" in default.data) is found


def test_inputs_are_not_changed() -> None:
    """Completing a snapshot leaves the ones it was made from alone."""
    fetched = {"15m": snapshot("15m", a=node("15m", types=("CPU",)))}
    before = {"15m": snapshot("15m", NOW - 60, a=node("15m"), b=node("15m"))}
    served(fetched, before)
    assert fetched == {"15m": snapshot("15m", a=node("15m", types=("CPU",)))}
    assert before == {"15m": snapshot("15m", NOW - 60, a=node("15m"), b=node("15m"))}


NODES = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from([("CPU",), ("Memory",), ("CPU", "Memory"), ("CPU", "GPU")])
)
ROUNDS = st.lists(
    st.tuples(st.integers(1, 200), st.dictionaries(st.sampled_from(ORDER), NODES, max_size=3)), min_size=1, max_size=8
)


@given(ROUNDS)
def test_whatever_fails_nothing_stale_is_served_and_nothing_fresh_is_lost(rounds: Any) -> None:
    """Over any rounds of fetches: what is served was measured, is fresh, graded unless of now, and never worse.

    Every value carries the moment it was measured at, so the test can look behind grades and times.
    """
    exact: Mapping[str, WatcherMetrics] = {}
    measured: dict[tuple[str, str, str], int] = {}
    now = NOW
    for pause, windows in rounds:
        now += pause
        fetched = {
            w: snapshot(w, now, **{n: node(w, float(now), types) for n, types in nodes.items()})
            for w, nodes in windows.items()
        }
        measured |= {(w, n, t): now for w, nodes in windows.items() for n, types in nodes.items() for t in types}
        default, exact = served(fetched, exact, now)
        for window, view in exact.items():
            if now - view.window.end <= EXPIRY:
                for name, each in view.data.items():
                    check(each, view, now)
                    assert {metric.rollup for metric in each.metrics} == {window}
                    assert all(metric.value == measured[window, name, metric.type] for metric in each.metrics)
        names = {n for (_, n, t), at in measured.items() if at == now and t in substitution.REQUIRED}
        assert names <= set(default.data if default else ()), "what came now is served"
        for name, each in (default.data if default else {}).items():
            check(each, default, now)
            for metric in each.metrics:
                if metric.type in substitution.REQUIRED and "grade" in each.metadata:
                    came = [w for w in ORDER if measured.get((w, name, metric.type)) == now]
                    assert not came or metric.value == now, "a measurement of now beats an older one"


def check(each: NodeMetrics, view: WatcherMetrics, now: int) -> None:
    """Check that a node says the truth about itself."""
    oldest = min(metric.value for metric in each.metrics)
    end = each.metadata.get("window_end", view.window.end)
    assert end <= oldest, "its time is never younger than its values"
    assert now - int(end) <= EXPIRY
    if oldest < now:
        assert each.metadata["grade"] == Grade.LAST_GOOD
