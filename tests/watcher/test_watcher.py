"""The fetch loop and the metrics served from it. The test sets the clock, and nothing sleeps."""

import logging
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bench import START, Bench, one_node_result
from support.not_served import not_served
from support.servers import wait_until

from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics, Window
from watcher.providers.base import Fetched
from watcher.wire import MetricsCode


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench with the default settings, in memory."""
    bench = Bench()
    yield bench
    bench.watcher.stop()


def test_a_fetch_requests_each_window(bench: Bench) -> None:
    """A fetch requests every configured window once, with its span ending at the clock's whole second."""
    bench.now = START + 0.9
    assert bench.watcher.fetch_once()
    end = int(START)
    assert sorted(bench.source.windows, key=lambda window: window.start) == [
        Window("15m", end - 900, end), Window("10m", end - 600, end), Window("5m", end - 300, end),
    ]  # fmt: skip
    metrics = bench.watcher.published().metrics
    assert (metrics.timestamp, metrics.source, metrics.window) == (end, "Test", Window("15m", end - 900, end))


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ((), ("15m", None)),
        (("15m",), ("10m", "shorter_window")),
        (("15m", "10m"), ("5m", "shorter_window")),
        (("10m", "5m"), ("15m", None)),
    ],
)
def test_the_default_window_falls_back_to_shorter_ones(
    bench: Bench, failing: tuple[str, ...], expected: tuple[str, str]
) -> None:
    """Without a requested window, the longest available window is served, with a grade if it is shorter."""
    bench.fail(*failing)
    assert bench.watcher.fetch_once() is (not failing)
    assert bench.served() == expected


def test_a_fresh_shorter_window_beats_the_last_good_one(bench: Bench) -> None:
    """If a later 15m fetch fails, the current 5m window is served rather than the previous 15m window."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m")
    bench.now += 60
    bench.watcher.fetch_once()
    assert bench.served() == ("5m", "shorter_window")
    assert bench.watcher.published().metrics.timestamp == START + 60


def test_the_last_good_snapshot_is_served_until_it_expires(bench: Bench) -> None:
    """If every window fails, the last good snapshot is served for 5 minutes, graded, with its own timestamp."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m", "5m")
    bench.now += 300
    assert not bench.watcher.fetch_once()
    assert bench.served() == ("15m", "last_good")
    assert bench.watcher.published().metrics.timestamp == START
    assert bench.watcher.is_ready()
    bench.now += 1
    with not_served(MetricsCode.STALE, match=r"301 s .* 300 s"):
        bench.watcher.published()
    assert not bench.watcher.is_ready()
    newest = bench.watcher.newest()
    assert newest is not None
    assert newest.timestamp == START


def test_a_requested_window_never_falls_back(bench: Bench) -> None:
    """A requested window is fresh, last good, stale or unavailable, and never replaced by another window."""
    bench.fail("15m")
    bench.watcher.fetch_once()
    with not_served(MetricsCode.NO_METRICS, match="no route"):
        bench.watcher.published("15m")
    assert bench.served("10m") == ("10m", None)
    bench.fail("10m")
    bench.now += 300
    bench.watcher.fetch_once()
    assert bench.served("10m") == ("10m", "last_good")
    bench.now += 1
    with not_served(MetricsCode.STALE):
        bench.watcher.published("10m")


def two_nodes(window: Window) -> Fetched:
    """Return two nodes."""
    return Fetched({name: NodeMetrics((Metric("cpu", "CPU", "AVG", window.duration, 50),)) for name in "ab"})


def test_a_missing_node_is_served_from_another_window(bench: Bench) -> None:
    """A node missing in 15m comes from 10m of the same fetch, then is last good, and is removed at the expiry.

    The node keeps its own rollup and grade, an exact window takes no other window's node, and telemetry counts grades.
    """
    bench.source.answers = {"10m": two_nodes}
    bench.watcher.fetch_once()
    both = bench.watcher.published().metrics.data
    assert {name: node.metadata.get("grade") for name, node in both.items()} == {"a": None, "b": "shorter_window"}
    assert {metric.rollup for metric in both["b"].metrics} == {"10m"}
    assert set(bench.watcher.published("15m").metrics.data) == {"a"}
    assert 'trimaran_served_nodes{grade="shorter_window"} 1.0' in bench.telemetry.exposition().decode()
    bench.source.answers = {}
    bench.now += 60
    bench.watcher.fetch_once()
    assert bench.watcher.published().metrics.data["b"].metadata["grade"] == "last_good"
    assert bench.watcher.published("10m").metrics.data["b"].metadata["window_end"] == START
    assert 'trimaran_served_nodes{grade="last_good"} 1.0' in bench.telemetry.exposition().decode()
    bench.now = START + 301
    assert set(bench.watcher.published().metrics.data) == {"a"}
    bench.watcher.fetch_once()
    assert 'trimaran_served_nodes{grade="last_good"} 0.0' in bench.telemetry.exposition().decode()


def test_substitutes_are_not_stored(tmp_path: Path) -> None:
    """Substituted values are served and never stored, so that after a restart they do not pass for measurements."""
    bench = Bench(tmp_path / "store.sqlite")
    bench.source.answers = {"15m": two_nodes}
    bench.watcher.fetch_once()
    bench.now += 60
    bench.source.answers = {}
    bench.watcher.fetch_once()
    assert set(bench.watcher.published("15m").metrics.data) == {"a", "b"}
    bench.watcher.stop()
    again = Bench(tmp_path / "store.sqlite", now=bench.now)
    assert set(again.watcher.published("15m").metrics.data) == {"a"}
    again.watcher.stop()


def test_windows_and_default_are_settings() -> None:
    """Windows are configurable; 6h is the default only if it is set, and falls back to shorter windows only."""
    bench = Bench(windows=["6h", "30m", "90s"], default_window="6h")
    bench.watcher.fetch_once()
    assert bench.served() == ("6h", None)
    bench.watcher.stop()
    bench = Bench(windows=["6h", "30m", "90s"])
    bench.watcher.fetch_once()
    assert bench.served() == ("30m", None)
    bench.fail("30m")
    bench.now += 400
    bench.watcher.fetch_once()
    assert bench.served() == ("90s", "shorter_window")
    bench.watcher.stop()


def metrics_of(value: float) -> NodeMetrics:
    """Return a node with one value."""
    return NodeMetrics((Metric("c", "CPU", "AVG", "15m", value),))


@pytest.mark.parametrize(
    "nodes", [{}, {"": metrics_of(1)}, {"a": NodeMetrics(())}, {"a": metrics_of(math.nan)}, {"a": metrics_of(5000)}]
)
def test_an_empty_result_is_never_published(bench: Bench, nodes: dict[str, NodeMetrics]) -> None:
    """A window without usable nodes is a failed window, and the previous good snapshot stays."""
    bench.watcher.fetch_once()
    bench.source.answers = dict.fromkeys(("15m", "10m", "5m"), lambda window: Fetched(nodes))
    bench.now += 60
    assert not bench.watcher.fetch_once()
    assert bench.served() == ("15m", "last_good")
    assert "no node with usable metrics" in bench.watcher.health().reasons[0]


@pytest.mark.parametrize(
    "answer",
    [
        lambda window: 1 / 0,
        lambda window: None,
        lambda window: Fetched(None),  # type: ignore[arg-type]
        lambda window: Fetched({"a": None}),  # type: ignore[dict-item]
        lambda window: Fetched({"a": NodeMetrics((Metric("c", "CPU", "AVG", "15m", None),))}),  # type: ignore[arg-type]
        lambda window: Fetched({"a": NodeMetrics((Metric("\ud800", "CPU", "AVG", "15m", 1.0),))}),
        lambda window: Fetched({"a": NodeMetrics((Metric([], "CPU", "AVG", "15m", 1.0),))}),  # type: ignore[arg-type]
    ],
)
def test_a_failing_window_does_not_affect_the_others(bench: Bench, answer: Callable[[Window], Any]) -> None:
    """An exception or an invalid result for one window makes only that window fail."""
    bench.source.answers = {"15m": answer}
    assert not bench.watcher.fetch_once()
    assert bench.served() == ("10m", "shorter_window")
    assert [reason for reason in bench.watcher.health().reasons if "window 15m" in reason]
    assert Kind.FETCH_FAILED in {finding.kind for finding in bench.watcher.findings()}


def test_an_unexpected_failure_is_logged_with_its_traceback(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """An exception other than ProviderError is a bug in the provider, and its traceback is logged."""
    bench.source.answers = {"15m": lambda window: 1 / 0}
    bench.watcher.fetch_once()
    assert "ZeroDivisionError" in "".join(str(record.exc_info) for record in caplog.records)


def test_a_hanging_window_does_not_delay_the_others() -> None:
    """At the deadline the finished windows are published, and hanging calls are not repeated without limit."""
    bench = Bench(fetch_timeout_seconds=0.5)
    release = threading.Event()
    hanging = []

    def hang(window: Window) -> Fetched:
        hanging.append(window)
        release.wait(60)
        return one_node_result(window)

    bench.source.answers = {"15m": hang}
    for number in range(5):
        bench.now = START + number
        assert not bench.watcher.fetch_once()
        assert bench.watcher.published("5m").metrics.timestamp == START + number
    assert len(hanging) == 3
    assert "3 earlier calls" in bench.watcher.health().reasons[0]
    release.set()
    bench.source.answers = {}
    wait_until(bench.watcher.fetch_once, "the window is fetched again once the calls have ended")
    bench.watcher.stop()


def test_health_reasons_and_ages(bench: Bench) -> None:
    """Health has no reasons exactly when every window was fetched and is fresh, and reports the snapshots' ages."""
    bench.watcher.fetch_once()
    bench.now += 10
    assert bench.watcher.health().reasons == ()
    assert bench.watcher.health().ages_seconds == {"15m": 10, "10m": 10, "5m": 10}
    bench.fail("10m")
    bench.watcher.fetch_once()
    assert bench.watcher.health().reasons == ("window 10m: no route (10m)",)
    bench.now += 301
    assert "windows 15m, 5m: the last metrics are 301 s old" in bench.watcher.health().reasons
    bench.source.answers = {}
    bench.watcher.fetch_once()
    assert bench.watcher.health().reasons == ()


def test_findings_are_those_of_the_last_fetch(bench: Bench) -> None:
    """Findings of the provider and the analyzer are reported, also as health warnings, until a fetch without them."""
    note = Finding(Kind.QUERY_FAILED, "one query failed", "15m", metric="m")
    bench.source.answers = {
        "15m": lambda window: one_node_result(window, 104, note),
        "5m": lambda w: one_node_result(w, 5000),
    }
    bench.watcher.fetch_once()
    assert {finding.kind for finding in bench.watcher.findings()} == {
        Kind.QUERY_FAILED, Kind.OUT_OF_RANGE, Kind.FETCH_FAILED,
    }  # fmt: skip
    assert "query_failed: one query failed (15m)" in bench.watcher.health().warnings
    assert "is the query's scale right?" in bench.watcher.health().reasons[0]
    bench.source.answers = {}
    bench.watcher.fetch_once()
    assert bench.watcher.findings() == ()
    assert bench.watcher.health().warnings == ()


def test_a_finding_with_another_value_is_not_logged_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A lasting finding is logged once, although its message quotes a new value at each fetch."""
    for value in (5000, 6000, 7000):
        bad = NodeMetrics((Metric("c", "CPU", "AVG", "15m", value),))
        bench.source.answers = {"15m": lambda window, bad=bad: Fetched({**one_node_result(window).nodes, "bad": bad})}
        bench.watcher.fetch_once()
    assert caplog.text.count("percent of capacity") == 1
    assert "is 7000 percent" in bench.watcher.findings()[0].message


def test_thousands_of_findings_are_a_few_lines(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """For a fault of all nodes the log has a few lines with names and one line with the number of others."""
    bad = dict.fromkeys((f"node-{number}" for number in range(1000)), metrics_of(5000))
    bench.source.answers = {"15m": lambda window: Fetched({**one_node_result(window).nodes, **bad})}
    bench.watcher.fetch_once()
    assert len(caplog.records) == 11
    assert vars(caplog.records[-1])["count"] == 990
    assert len(bench.watcher.findings()) == 1000


def test_only_changes_are_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A provider that stays down is logged once per window, and once more when it is back."""
    caplog.set_level(logging.INFO)
    bench.fail("15m")
    for _ in range(3):
        bench.watcher.fetch_once()
    bench.source.answers = {}
    bench.watcher.fetch_once()
    bench.watcher.fetch_once()
    assert caplog.text.count("a window cannot be fetched") == 1
    assert caplog.text.count("a window can be fetched again") == 1
