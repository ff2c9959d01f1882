"""Findings over time."""

import re
from pathlib import Path

from watcher.findings import Finding, Kind
from watcher.quality.open_findings import OpenFindings


def test_a_finding_has_its_beginning_until_it_is_gone() -> None:
    """It opens once, keeps the time it began while its words change, closes once, and then begins anew."""
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


def test_a_finding_may_know_when_it_began() -> None:
    """What says since when keeps it."""
    changes = OpenFindings().update(100, [Finding(Kind.FROZEN, "still", "5m", "a", since=40)])
    assert changes.current[0].since == 40


def test_findings_differ_by_kind_window_node_and_metric() -> None:
    """Each of these makes another finding."""
    findings = OpenFindings()
    findings.update(100, [Finding(Kind.SPIKE, "x", "5m", "a", "cpu")])
    others = [
        Finding(Kind.FROZEN, "x", "5m", "a", "cpu"),
        Finding(Kind.SPIKE, "x", "10m", "a", "cpu"),
        Finding(Kind.SPIKE, "x", "5m", "b", "cpu"),
        Finding(Kind.SPIKE, "x", "5m", "a", "memory"),
    ]
    assert len(findings.update(160, others).opened) == 4


def test_findings_about_no_node_differ_by_what_they_say() -> None:
    """Two names that cannot be read are two; the same one with other numbers is the same."""
    findings = OpenFindings()
    names = [Finding(Kind.BAD_NODE_NAME, f"'{name}' is not a valid node name", "5m") for name in ("a b", "c d")]
    assert len(findings.update(100, names).opened) == 2
    findings.update(160, [Finding(Kind.FROZEN, "7 of 10 nodes, for one: 41.5", "5m")])
    assert findings.update(220, [Finding(Kind.FROZEN, "8 of 10 nodes, for one: 3", "5m")]).opened == ()


def test_the_same_thing_twice_in_a_fetch_opens_once() -> None:
    """Both are current, and one is new."""
    twice = [Finding(Kind.NOT_FINITE, f"{operator} is nan", "5m", "a", "cpu") for operator in ("AVG", "STD")]
    changes = OpenFindings().update(100, twice)
    assert (len(changes.current), len(changes.opened)) == (2, 1)


def test_what_was_not_looked_at_stays_open() -> None:
    """A window that did not come says nothing about what was wrong in it."""
    findings = OpenFindings()
    findings.update(100, [Finding(Kind.FROZEN, "still", window, "a") for window in ("5m", "15m")])
    changes = findings.update(160, [], unseen={"15m"})
    assert [(each.window, each.since) for each in changes.current] == [("15m", 100)]
    assert [each.window for each in changes.closed] == ["5m"]


def test_every_kind_of_finding_is_documented() -> None:
    """docs/quality.md has each kind in its table, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "quality.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = {kind for row in rows for kind in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert named == set(Kind)
