"""Registry of open findings: records when each finding began, and reports which findings are new or have ended."""

import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from watcher.findings import Changes, Finding, Kind

_log = logging.getLogger(__name__)

_MAX_LOGGED = 10  # findings of one kind in one fetch; further findings are only counted
_Key = tuple[str, str, str, str, str]
_NUMBERS = re.compile(r"[\d.]+")


class OpenFindings:
    """Registry of open findings. Findings of one kind about the same window, node and metric are the same finding."""

    def __init__(self) -> None:
        self._open: dict[_Key, Finding] = {}

    def update(self, now: int, findings: Iterable[Finding], unseen: Collection[str] = ()) -> Changes:
        """Update the registry with the findings of a fetch.

        Args:
            now: time of the fetch, Unix seconds.
            findings: the findings of the fetch.
            unseen: windows that were not fetched: their findings stay open.

        Returns:
            The findings that are now open with the time of their start, and those opened and closed by this fetch.
        """
        current: list[Finding] = []
        opened: list[Finding] = []
        still_open: dict[_Key, Finding] = {}
        for finding in findings:
            key = _key(finding)
            known = self._open.get(key) or still_open.get(key)
            since = known.since if known else finding.since or now
            dated = replace(finding, since=since)
            current.append(dated)
            if known is None:
                opened.append(dated)
            still_open.setdefault(key, dated)
        carried = {
            key: finding for key, finding in self._open.items() if finding.window in unseen and key not in still_open
        }
        closed = tuple(finding for key, finding in self._open.items() if key not in still_open and key not in carried)
        self._open = still_open | carried
        return Changes((*current, *carried.values()), tuple(opened), closed)


def _key(finding: Finding) -> _Key:
    # Findings without a node, such as of names that cannot be matched, are distinguished by their text without numbers.
    text = "" if finding.node else _NUMBERS.sub("#", finding.message)
    return (finding.kind, finding.window, finding.node, finding.metric, text)


def log_changes(changes: Changes) -> None:
    """Log new and ended findings: at most 10 of each kind, and the number of the others.

    The limit keeps the log short if thousands of nodes have the same problem. Failed fetches are left out, because the
    watcher logs them in more detail.
    """
    for findings, template, level in (
        (changes.opened, "%s", logging.WARNING),
        (changes.closed, "no longer: %s", logging.INFO),
    ):
        kinds: dict[Kind, list[Finding]] = {}
        for finding in findings:
            if finding.kind is not Kind.FETCH_FAILED:
                kinds.setdefault(finding.kind, []).append(finding)
        for kind, of_kind in kinds.items():
            # Low coverage is normal while a window is filling, so it is not a warning.
            kind_level = logging.INFO if kind is Kind.LOW_COVERAGE else level
            for finding in of_kind[:_MAX_LOGGED]:
                _log.log(kind_level, template, finding.message, extra=_fields(finding))
            if len(of_kind) > _MAX_LOGGED:
                more = {"kind": kind, "count": len(of_kind) - _MAX_LOGGED}
                _log.log(kind_level, template, "there are more findings of this kind, see /findings", extra=more)


def _fields(finding: Finding) -> dict[str, str]:
    fields: Iterable[tuple[str, str]] = (
        ("kind", finding.kind), ("window", finding.window), ("node", finding.node),
        ("metric", finding.metric), ("action", finding.action),
    )  # fmt: skip
    return {key: value for key, value in fields if value}
