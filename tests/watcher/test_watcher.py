"""The loop, and what is served from it. The clock is set by the test; nothing sleeps."""

import logging
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bench import START, Bench, fetched
from support.not_served import not_served
from support.servers import wait_until

from watcher.findings import Finding, Kind
from watcher.model import Metric, NodeMetrics, Window
from watcher.providers.base import Fetched
from watcher.wire import MetricsCode


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench with the default settings, all in memory."""
    bench = Bench()
    yield bench
    bench.watcher.stop()


def test_a_fetch_asks_for_each_window_that_ends_now(bench: Bench) -> None:
    """Every configured window is asked for once, with its span ending at the clock's whole second."""
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
def test_the_default_falls_back_down_to_5m(bench: Bench, failing: tuple[str, ...], expected: tuple[str, str]) -> None:
    """Without a window asked for, the longest that came is served, down to 5m, with a grade when it is shorter."""
    bench.fail(*failing)
    assert bench.watcher.fetch_once() is (not failing)
    assert bench.served() == expected


def test_a_fresh_shorter_window_beats_the_last_good_one(bench: Bench) -> None:
    """When 15m fails later on, the 5m of now is served rather than the 15m of a minute ago."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m")
    bench.now += 60
    bench.watcher.fetch_once()
    assert bench.served() == ("5m", "shorter_window")
    assert bench.watcher.published().metrics.timestamp == START + 60


def test_the_last_good_one_is_served_until_it_expires(bench: Bench) -> None:
    """When everything fails, the last good snapshot is served under its own timestamp, graded, for 5 minutes."""
    bench.watcher.fetch_once()
    bench.fail("15m", "10m", "5m")
    bench.now += 300
    assert not bench.watcher.fetch_once()
    assert bench.served() == ("15m", "last_good")
    assert bench.watcher.published().metrics.timestamp == START
    assert bench.watcher.is_ready()
    bench.now += 1
    with not_served(MetricsCode.STALE, match=r"301 s old, the limit is 300 s: no route \(15m\)"):
        bench.watcher.published()
    assert not bench.watcher.is_ready()
    newest = bench.watcher.newest()
    assert newest is not None
    assert newest.timestamp == START


def test_asking_for_a_window_never_falls_back(bench: Bench) -> None:
    """?window= gets exactly that one: fresh, its last good one, stale, or none yet."""
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


def test_a_node_that_one_window_lacks_is_served_from_another(bench: Bench) -> None:
    """A node missing in 15m is served from 10m of the same fetch, then as its last good one, and gone when expired.

    Each with its own rollup and grade; what is asked for exactly takes no other window; the counters tell the grades.
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


def test_what_is_kept_on_disk_is_what_was_measured(tmp_path: Path) -> None:
    """Stand-ins are served but never stored: after a restart nothing passes for a measurement that was none."""
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


@pytest.mark.parametrize("window", ["6h", "", "900s", "x" * 10_000])
def test_an_unknown_window_names_the_known(bench: Bench, window: str) -> None:
    """A window that is not kept is refused with the list of those that are, in a bounded message."""
    bench.watcher.fetch_once()
    with not_served(MetricsCode.UNKNOWN_WINDOW, match="the windows are: 15m, 10m, 5m") as caught:
        bench.watcher.published(window)
    assert len(str(caught.value)) < 200


def test_windows_and_default_are_settings() -> None:
    """Any windows may be kept; the default is the longest, or the one that is set, and falls back to shorter only."""
    bench = Bench(windows=["6h", "30m", "90s"])
    bench.watcher.fetch_once()
    assert bench.served() == ("6h", None)
    bench.watcher.stop()
    bench = Bench(windows=["6h", "30m", "90s"], default_window="30m")
    bench.watcher.fetch_once()
    assert bench.served() == ("30m", None)
    bench.fail("30m")
    bench.now += 400
    bench.watcher.fetch_once()
    assert bench.served() == ("90s", "shorter_window")
    bench.watcher.stop()


def test_before_the_first_fetch_there_is_nothing(bench: Bench) -> None:
    """Before the first fetch: no metrics, not ready, not healthy, but alive; and newest() is None."""
    with not_served(MetricsCode.NO_METRICS, match="the first fetch has not ended"):
        bench.watcher.published()
    assert not bench.watcher.is_ready()
    assert "nothing was fetched since the start" in bench.watcher.health().reasons
    assert bench.watcher.is_alive()
    assert bench.watcher.newest() is None


def metrics_of(value: float) -> NodeMetrics:
    """Return a node with one value."""
    return NodeMetrics((Metric("c", "CPU", "AVG", "15m", value),))


@pytest.mark.parametrize(
    "nodes", [{}, {"": metrics_of(1)}, {"a": NodeMetrics(())}, {"a": metrics_of(math.nan)}, {"a": metrics_of(5000)}]
)
def test_an_empty_result_is_never_published(bench: Bench, nodes: dict[str, NodeMetrics]) -> None:
    """Nothing usable is a failure of that window: the good snapshot before it stays."""
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
def test_whatever_one_window_does_the_others_come(bench: Bench, answer: Callable[[Window], Any]) -> None:
    """A provider that raises or returns anything for one window costs that window alone."""
    bench.source.answers = {"15m": answer}
    assert not bench.watcher.fetch_once()
    assert bench.served() == ("10m", "shorter_window")
    assert [reason for reason in bench.watcher.health().reasons if "window 15m" in reason]
    assert Kind.FETCH_FAILED in {finding.kind for finding in bench.watcher.findings()}


def test_an_unexpected_failure_is_logged_with_its_traceback(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """What is not a ProviderError is a defect of the provider: its traceback is in the log."""
    bench.source.answers = {"15m": lambda window: 1 / 0}
    bench.watcher.fetch_once()
    assert "ZeroDivisionError" in "".join(str(record.exc_info) for record in caplog.records)


def test_a_window_that_hangs_does_not_hold_up_the_others() -> None:
    """At the deadline the windows that came are published; calls that never end are not repeated without bound."""
    bench = Bench(fetch_timeout_seconds=0.1)
    release = threading.Event()
    hanging = []

    def hang(window: Window) -> Fetched:
        hanging.append(window)
        release.wait(60)
        return fetched(window)

    bench.source.answers = {"15m": hang}
    for number in range(5):
        bench.now = START + number
        assert not bench.watcher.fetch_once()
        assert bench.watcher.published("5m").metrics.timestamp == START + number
    assert len(hanging) == 3
    assert "has not answered 3 earlier calls yet" in bench.watcher.health().reasons[0]
    release.set()
    bench.source.answers = {}
    wait_until(bench.watcher.fetch_once, "the window is fetched again once the calls have ended")
    bench.watcher.stop()


def test_health_tells_the_truth(bench: Bench) -> None:
    """Health is without reasons exactly when every window was fetched and is fresh; ages are the snapshots'."""
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
    """What the provider and the analyzer found is reported, also as a warning of health, until it is gone."""
    note = Finding(Kind.QUERY_FAILED, "one query failed", "15m", metric="m")
    bench.source.answers = {"15m": lambda window: fetched(window, 104, note), "5m": lambda w: fetched(w, 5000)}
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


def test_a_finding_that_only_quotes_another_value_is_not_logged_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """What stays wrong with a node is one line, though its words change with the value from fetch to fetch."""
    for value in (5000, 6000, 7000):
        bad = NodeMetrics((Metric("c", "CPU", "AVG", "15m", value),))
        bench.source.answers = {"15m": lambda window, bad=bad: Fetched({**fetched(window).nodes, "bad": bad})}
        bench.watcher.fetch_once()
    assert caplog.text.count("percent of capacity") == 1
    assert "is 7000 percent" in bench.watcher.findings()[0].message


def test_thousands_of_findings_are_a_few_lines(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of all nodes does not fill the log: some are named, the others counted."""
    bad = dict.fromkeys((f"node-{number}" for number in range(1000)), metrics_of(5000))
    bench.source.answers = {"15m": lambda window: Fetched({**fetched(window).nodes, **bad})}
    bench.watcher.fetch_once()
    assert len(caplog.records) == 11
    assert vars(caplog.records[-1])["count"] == 990
    assert len(bench.watcher.findings()) == 1000


def test_only_changes_are_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A provider that stays down is logged once a window, and once more when it is back."""
    caplog.set_level(logging.INFO)
    bench.fail("15m")
    for _ in range(3):
        bench.watcher.fetch_once()
    bench.source.answers = {}
    bench.watcher.fetch_once()
    bench.watcher.fetch_once()
    assert caplog.text.count("a window cannot be fetched") == 1
    assert caplog.text.count("a window is fetched again") == 1
