"""Substitutes for a node's missing measurements, and their expiry."""

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
    """Return the default snapshot and the snapshots of exact windows."""
    fresh = Freshness(now, EXPIRY)
    exact = {
        name: substituted
        for name in ORDER
        if (substituted := substitution.of_window(fetched.get(name), before.get(name), fresh)) is not None
    }
    return substitution.of_default(ORDER, fetched, exact, fresh), exact


def test_a_complete_snapshot_is_served_unchanged() -> None:
    """A snapshot without missing values is served as the same object."""
    fetched = {name: snapshot(name, a=node(name)) for name in ORDER}
    default, exact = served(fetched, {"15m": snapshot("15m", NOW - 60, a=node("15m"))})
    assert default is fetched["15m"]
    assert exact == fetched


def test_another_provider_does_not_stand_in() -> None:
    """Measurements of another source fill no gap, neither from an earlier fetch nor from another window."""
    other = {name: replace(snapshot(name, b=node(name)), source="Other") for name in ORDER}
    before = {name: replace(metrics, window=Window(name, NOW - 60, NOW)) for name, metrics in other.items()}
    for fetched in (
        {name: snapshot(name, a=node(name)) for name in ORDER},
        {**other, "15m": snapshot("15m", a=node("15m", types=("CPU",)))},
    ):
        default, exact = served(fetched, before)
        assert default is fetched["15m"]
        assert exact == fetched


def test_a_missing_node_comes_from_a_shorter_window() -> None:
    """A missing node comes from the longest other window that has it, with its rollup, grade and time span."""
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


def test_a_node_in_no_window_is_last_good_until_it_expires() -> None:
    """A node in no window is served as last good, with its own time span, until it is 300 seconds old."""
    exact: Mapping[str, WatcherMetrics] = {"15m": snapshot("15m", NOW, a=node("15m"), b=node("15m", 70))}
    for now in range(NOW + 60, NOW + 301, 60):
        default, exact = served({"15m": snapshot("15m", now, a=node("15m"))}, exact, now)
        span = {"window_start": NOW - 900, "window_end": NOW}
        assert default.data["b"] == exact["15m"].data["b"] == node("15m", 70, grade="last_good", **span)
        assert default.data["a"] == node("15m")
    default, exact = served({"15m": snapshot("15m", NOW + 360, a=node("15m"))}, exact, NOW + 360)
    assert set(default.data) == set(exact["15m"].data) == {"a"}


def test_a_failed_fetch_does_not_prolong_a_node() -> None:
    """While every fetch fails, a node that was missing earlier expires earlier than the others."""
    before = {"15m": snapshot("15m", NOW, a=node("15m"), b=node("15m"))}
    _, exact = served({"15m": snapshot("15m", NOW + 200, a=node("15m"))}, before, NOW + 200)
    default, exact = served({}, exact, NOW + 300)
    assert {name: node_metrics.metadata["grade"] for name, node_metrics in default.data.items()} == {
        "a": "last_good",
        "b": "last_good",
    }
    default, exact = served({}, exact, NOW + 301)
    assert set(default.data) == {"a"}
    assert served({}, exact, NOW + 501)[0] is None


def test_only_missing_values_are_replaced() -> None:
    """A node without Memory keeps its current CPU; a missing optional metric is not replaced."""
    before = {"15m": snapshot("15m", NOW - 60, a=node("15m", 70, ("CPU", "Memory", "GPU")))}
    default, _ = served({"15m": snapshot("15m", a=node("15m", 20, ("CPU",)))}, before)
    assert [(m.type, m.value) for m in default.data["a"].metrics] == [("CPU", 20), ("Memory", 70)]
    assert default.data["a"].metadata == {"grade": "last_good", "window_start": NOW - 960, "window_end": NOW - 60}
    complete = {"15m": snapshot("15m", a=node("15m", 20))}
    assert served(complete, before)[0] is complete["15m"], "a GPU that is not there any more is no gap"


def test_a_source_without_memory_has_no_gaps() -> None:
    """A metric type that no window and no earlier snapshot has is not a gap."""
    fetched = {name: snapshot(name, a=node(name, types=("CPU",))) for name in ORDER}
    assert served(fetched, {})[0] is fetched["15m"]


def test_the_older_of_two_substitutes_sets_the_grade() -> None:
    """A node made of a shorter window and a last good one has the latter's grade and time span."""
    fetched = {"15m": snapshot("15m"), "5m": snapshot("5m", a=node("5m", types=("CPU",)))}
    before = {"15m": snapshot("15m", NOW - 60, a=node("15m", types=("Memory",)))}
    default, _ = served(fetched, before)
    assert {m.type: m.rollup for m in default.data["a"].metrics} == {"CPU": "5m", "Memory": "15m"}
    assert default.data["a"].metadata == {"grade": "last_good", "window_start": NOW - 960, "window_end": NOW - 60}


def test_a_whole_shorter_window_grades_each_node() -> None:
    """If the default window failed, every node of the shorter window is graded.

    Nodes that only the default window had are last good.
    """
    before = {"15m": snapshot("15m", NOW - 60, a=node("15m"), b=node("15m", 70))}
    default, exact = served({"5m": snapshot("5m", a=node("5m"))}, before)
    assert default.window.duration == "5m"
    assert default.data["a"].metadata == {"grade": "shorter_window"}
    assert default.data["b"].metadata["grade"] == "last_good"
    assert {node_metrics.metadata["grade"] for node_metrics in exact["15m"].data.values()} == {"last_good"}


@pytest.mark.parametrize(("seconds", "is_substituted"), [(-301, False), (-300, True), (5, True), (6, False)])
def test_expired_and_future_snapshots_fill_no_gap(seconds: int, is_substituted: bool) -> None:
    """Snapshots older than the expiry, or in the future by more than a clock correction, fill no gap."""
    before = {"15m": snapshot("15m", NOW + seconds, b=node("15m"))}
    default, _ = served({"15m": snapshot("15m", a=node("15m"))}, before)
    assert ("b" in default.data) is is_substituted


def test_inputs_are_not_changed() -> None:
    """Completing a snapshot does not change its inputs."""
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
def test_substitution_over_any_rounds_of_fetches(rounds: Any) -> None:
    """Over any rounds of fetches, served values were measured, are fresh, graded unless current, and never worse.

    Every value is the time of its measurement, so that the test can check grades and times.
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
                for name, node_metrics in view.data.items():
                    check_node(node_metrics, view, now)
                    assert {metric.rollup for metric in node_metrics.metrics} == {window}
                    assert all(metric.value == measured[window, name, metric.type] for metric in node_metrics.metrics)
        names = {n for (_, n, t), at in measured.items() if at == now and t in substitution.REQUIRED}
        assert names <= set(default.data if default else ()), "what came now is served"
        for name, node_metrics in (default.data if default else {}).items():
            check_node(node_metrics, default, now)
            for metric in node_metrics.metrics:
                if metric.type in substitution.REQUIRED and "grade" in node_metrics.metadata:
                    windows_now = [w for w in ORDER if measured.get((w, name, metric.type)) == now]
                    assert not windows_now or metric.value == now, "a measurement of now beats an older one"


def check_node(node_metrics: NodeMetrics, view: WatcherMetrics, now: int) -> None:
    """Check that a node's grade and time span match its values."""
    oldest = min(metric.value for metric in node_metrics.metrics)
    end = node_metrics.metadata.get("window_end", view.window.end)
    assert end <= oldest, "its time is never younger than its values"
    assert now - int(end) <= EXPIRY
    if oldest < now:
        assert node_metrics.metadata["grade"] == Grade.LAST_GOOD
