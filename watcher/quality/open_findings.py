"""Findings over time: since when each has been true, what is new, and what is gone."""

import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from watcher.findings import Changes, Finding, Kind

_log = logging.getLogger(__name__)

_LOGGED_OF_A_KIND = 10  # findings in one fetch; more are counted
_Key = tuple[str, str, str, str, str]
_NUMBERS = re.compile(r"[\d.]+")


class OpenFindings:
    """Remembers from fetch to fetch what is wrong. What is wrong with the same node and metric is the same finding."""

    def __init__(self) -> None:
        self._open: dict[_Key, Finding] = {}

    def update(self, now: int, findings: Iterable[Finding], unseen: Collection[str] = ()) -> Changes:
        """Take in what one fetch found.

        Args:
            now: when it was, unix seconds.
            findings: what it found.
            unseen: windows that did not come: what was wrong in them stays open.
        """
        current: list[Finding] = []
        opened: list[Finding] = []
        still: dict[_Key, Finding] = {}
        for finding in findings:
            key = _key(finding)
            known = self._open.get(key) or still.get(key)
            since = known.since if known else finding.since or now
            dated = replace(finding, since=since)
            current.append(dated)
            if known is None:
                opened.append(dated)
            still.setdefault(key, dated)
        carried = {key: finding for key, finding in self._open.items() if finding.window in unseen and key not in still}
        closed = tuple(finding for key, finding in self._open.items() if key not in still and key not in carried)
        self._open = still | carried
        return Changes((*current, *carried.values()), tuple(opened), closed)


def _key(finding: Finding) -> _Key:
    # Of several findings about no node, such as of names that cannot be matched, each is one of its own, whatever
    # numbers it gives.
    said = "" if finding.node else _NUMBERS.sub("#", finding.message)
    return (finding.kind, finding.window, finding.node, finding.metric, said)


def log_changes(changes: Changes) -> None:
    """Log what began and what is gone: of each kind a few, and how many more, as thousands of nodes may be alike.

    Failed fetches are left out: the watcher says more about them.
    """
    for findings, said, level in (
        (changes.opened, "%s", logging.WARNING),
        (changes.closed, "no longer: %s", logging.INFO),
    ):
        kinds: dict[Kind, list[Finding]] = {}
        for finding in findings:
            if finding.kind is not Kind.FETCH_FAILED:
                kinds.setdefault(finding.kind, []).append(finding)
        for kind, found in kinds.items():
            # A window that is still filling is no cause for alarm.
            at = logging.INFO if kind is Kind.LOW_COVERAGE else level
            for finding in found[:_LOGGED_OF_A_KIND]:
                _log.log(at, said, finding.message, extra=_fields(finding))
            if len(found) > _LOGGED_OF_A_KIND:
                more = {"kind": kind, "count": len(found) - _LOGGED_OF_A_KIND}
                _log.log(at, said, "there are more findings of this kind, see /findings", extra=more)


def _fields(finding: Finding) -> dict[str, str]:
    named: Iterable[tuple[str, str]] = (
        ("kind", finding.kind), ("window", finding.window), ("node", finding.node),
        ("metric", finding.metric), ("action", finding.action),
    )  # fmt: skip
    return {key: value for key, value in named if value}
