"""Tests of findings over time."""

import logging
import re
from pathlib import Path

import pytest

from watcher.findings import Action, Changes, Finding, Kind
from watcher.quality.open_findings import OpenFindings, log_changes


def test_finding_keeps_its_start() -> None:
    """A finding opens once, keeps its start while its message changes, closes once, and may open again."""
    findings = OpenFindings()
    first = findings.update(100, [Finding(Kind.STALE, "200 s old", "5m", "a")])
    assert [(each.since, each.message) for each in first.opened] == [(100, "200 s old")]
    second = findings.update(160, [Finding(Kind.STALE, "260 s old", "5m", "a")])
    assert [(each.since, each.message) for each in second.current] == [(100, "260 s old")]
    assert (second.opened, second.closed) == ((), ())
    third = findings.update(220, [])
    assert [each.message for each in third.closed] == ["260 s old"]
    assert third.current == ()
    assert findings.update(280, [Finding(Kind.STALE, "1 s old", "5m", "a")]).opened[0].since == 280


def test_finding_with_a_start_keeps_it() -> None:
    """A finding with a start time keeps it."""
    changes = OpenFindings().update(100, [Finding(Kind.FROZEN, "still", "5m", "a", since=40)])
    assert changes.current[0].since == 40


def test_findings_differ_by_kind_window_node_and_metric() -> None:
    """A different kind, window, node or metric is another finding."""
    findings = OpenFindings()
    findings.update(100, [Finding(Kind.SPIKE, "x", "5m", "a", "cpu")])
    others = [
        Finding(Kind.FROZEN, "x", "5m", "a", "cpu"),
        Finding(Kind.SPIKE, "x", "10m", "a", "cpu"),
        Finding(Kind.SPIKE, "x", "5m", "b", "cpu"),
        Finding(Kind.SPIKE, "x", "5m", "a", "memory"),
    ]
    assert len(findings.update(160, others).opened) == 4


def test_findings_without_a_node_differ_by_message() -> None:
    """Two invalid names are two findings; the same message with other numbers is the same finding."""
    findings = OpenFindings()
    names = [Finding(Kind.BAD_NODE_NAME, f"'{name}' is not a valid node name", "5m") for name in ("a b", "c d")]
    assert len(findings.update(100, names).opened) == 2
    findings.update(160, [Finding(Kind.FROZEN, "7 of 10 nodes, for example: 41.5", "5m")])
    assert findings.update(220, [Finding(Kind.FROZEN, "8 of 10 nodes, for example: 3", "5m")]).opened == ()


def test_repeated_finding_opens_once() -> None:
    """Of two equal findings in a fetch both are current, and one is opened."""
    twice = [Finding(Kind.NOT_FINITE, f"{operator} is nan", "5m", "a", "cpu") for operator in ("AVG", "STD")]
    changes = OpenFindings().update(100, twice)
    assert (len(changes.current), len(changes.opened)) == (2, 1)


def test_findings_of_unfetched_windows_stay_open() -> None:
    """The findings of a window that was not fetched stay open."""
    findings = OpenFindings()
    findings.update(100, [Finding(Kind.FROZEN, "still", window, "a") for window in ("5m", "15m")])
    changes = findings.update(160, [], unseen={"15m"})
    assert [(each.window, each.since) for each in changes.current] == [("15m", 100)]
    assert [each.window for each in changes.closed] == ["5m"]
    assert findings.update(220, []) == Changes(closed=changes.current)


def test_every_kind_is_documented() -> None:
    """docs/quality.md has exactly the kinds of findings in its table."""
    page = (Path(__file__).parents[2] / "docs" / "quality.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = {kind for row in rows for kind in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert named == set(Kind)


def test_log_of_changes(caplog: pytest.LogCaptureFixture) -> None:
    """New findings are warnings, except low coverage; failed fetches are left out; ten of a kind have a line each."""
    caplog.set_level(logging.INFO)
    stale = [Finding(Kind.STALE, f"old {number}", "5m", f"n{number}", "cpu", Action.MARKED) for number in range(12)]
    others = (Finding(Kind.FETCH_FAILED, "refused", "5m"), Finding(Kind.LOW_COVERAGE, "half", "5m"))
    log_changes(Changes(opened=(*stale, *others), closed=others))
    assert [(each.levelname, each.message) for each in caplog.records] == [
        *(("WARNING", each.message) for each in stale[:10]),
        ("WARNING", "there are more findings of this kind, see /findings"),
        ("INFO", "half"),
        ("INFO", "no longer: half"),
    ]
    first, more, half = (vars(caplog.records[line]) for line in (0, 10, 11))
    fields = {"kind": "stale", "window": "5m", "node": "n0", "metric": "cpu", "action": "marked"}
    assert fields.items() <= first.items()
    assert more["count"] == 2
    assert "node" not in half
