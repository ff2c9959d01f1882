"""Findings in the watcher: their start, log lines, counters, and persistence across restarts."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bench import START, Bench, one_node_result

from watcher.findings import Finding, Kind
from watcher.model import Window
from watcher.providers.base import Fetched
from watcher.quality.anomalies import AnomalyDetector

WINDOWS = ("15m", "10m", "5m")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench with the default settings, in memory."""
    bench = Bench()
    yield bench
    bench.watcher.stop()


def partial(window: Window) -> Fetched:
    """Answer with a finding."""
    return one_node_result(window, 50, Finding(Kind.PARTIAL_ANSWER, "half of it", window.duration))


def test_a_finding_is_logged_when_it_begins_and_ends(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A lasting finding keeps its start time, is logged when it begins and ends, and is counted by kind."""
    caplog.set_level(logging.INFO)
    bench.source.answers = {"5m": partial}
    for _ in range(3):
        bench.watcher.fetch_once()
        bench.now += 60
    assert [(finding.kind, finding.since) for finding in bench.watcher.findings()] == [(Kind.PARTIAL_ANSWER, START)]
    text = bench.telemetry.exposition().decode()
    assert 'trimaran_findings{kind="partial_answer"} 1.0' in text
    assert 'trimaran_findings_opened_total{kind="partial_answer"} 1.0' in text
    assert 'trimaran_findings{kind="frozen"} 0.0' in text
    bench.source.answers = {}
    bench.watcher.fetch_once()
    logged = [record.message for record in caplog.records if "half" in record.message]
    assert logged == ["half of it", "no longer: half of it"]
    assert 'trimaran_findings{kind="partial_answer"} 0.0' in bench.telemetry.exposition().decode()


def test_findings_of_a_window_that_fails_stay(bench: Bench) -> None:
    """Findings of a window stay open while the window cannot be fetched."""
    bench.source.answers = {"5m": partial}
    bench.watcher.fetch_once()
    bench.fail("5m")
    bench.now += 60
    bench.watcher.fetch_once()
    assert {(finding.kind, finding.since) for finding in bench.watcher.findings()} == {
        (Kind.PARTIAL_ANSWER, START),
        (Kind.FETCH_FAILED, START + 60),
    }


def test_samples_that_are_old_are_stale_in_all_windows(bench: Bench) -> None:
    """The newest sample that the provider reports in any window counts for all windows, and marks the node as stale."""
    bench.source.answers = {
        "15m": lambda window: Fetched(one_node_result(window).nodes, newest={"a": START - 400}),
        "5m": lambda window: Fetched(one_node_result(window).nodes, newest={"a": START - 301}),
    }
    bench.watcher.fetch_once()
    assert [(finding.kind, finding.node, finding.since) for finding in bench.watcher.findings()] == [
        (Kind.STALE, "a", int(START) - 301)
    ]
    for window in WINDOWS:
        assert bench.watcher.published(window).metrics.data["a"].metadata == {"suspect": "stale"}


def test_findings_survive_a_restart(tmp_path: Path) -> None:
    """A node that was frozen before a restart is frozen after it, since the same time, from the store's history."""
    now, answers = START, dict.fromkeys(WINDOWS, lambda window: one_node_result(window, 41.37))
    for fetches in (25, 1):
        bench = Bench(tmp_path / "store.sqlite", now=now)
        bench.source.answers = answers
        for _ in range(fetches):
            bench.now = now
            bench.watcher.fetch_once()
            now += 60
        assert [(finding.kind, finding.node, finding.since) for finding in bench.watcher.findings()] == [
            (Kind.FROZEN, "a", START)
        ]
        bench.watcher.stop()


def test_metrics_are_served_when_a_detector_fails(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in a detector is logged, and the metrics are served without its judgment."""
    monkeypatch.setattr(AnomalyDetector, "judge", lambda *arguments: 1 / 0)
    assert bench.watcher.fetch_once()
    assert bench.watcher.published("15m").metrics.data.keys() == {"a"}
    assert "cannot be judged" in caplog.text
