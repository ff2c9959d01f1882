"""Checks of a running watcher over HTTP: connection, health, metrics and findings."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import requests

from runtime import duration
from runtime.http.failures import describe
from runtime.http.session import BoundedSession
from watcher import wire
from watcher.doctor.metrics import compare_nodes, summarize
from watcher.doctor.remote_service import REQUEST_SECONDS, ServiceConnection, examine_access, examine_service
from watcher.findings import Finding, Kind
from watcher.providers.base import Check

_NOT_YET = "no metrics yet"  # end of the reason for a window before its first fetch; failed fetches have other reasons
_STARTING = "starting: "


def examine_watcher(connection: ServiceConnection, nodes: Collection[str] = ()) -> Iterator[Check]:
    """Yield the steps about a running watcher; stop after a failed step that rules out the next.

    Args:
        connection: address and credentials.
        nodes: names of the cluster's nodes; empty if unknown.
    """
    return examine_service(connection, "watcher", "http://trimaran:2020", partial(_examine, nodes=nodes))


def _examine(session: BoundedSession, base: str, nodes: Collection[str]) -> Iterator[Check]:
    answer = session.get(f"{base}/watcher/health", timeout=REQUEST_SECONDS)
    refusals = list(examine_access("watcher", answer))
    if refusals:
        yield from refusals
        return
    health = list(_examine_health(answer))
    yield from health
    if health[0].ok and health[0].message.startswith(_STARTING):
        return
    answer = session.get(f"{base}/watcher", timeout=REQUEST_SECONDS)
    if not answer.ok:
        message = describe(requests.HTTPError(response=answer)).reason
        yield Check("watcher: metrics", ok=False, message=message)
        return
    try:
        metrics = wire.decode(answer.content)
    except wire.WireError as error:
        message = f"the response is not a watcher's: {error}"
        yield Check("watcher: metrics", ok=False, message=message, setting="--watcher")
        return
    window, served = metrics.window, set(metrics.data)
    message = f"{len(served)} nodes from {metrics.source or 'a source without a name'}, window {window.duration}"
    yield Check("watcher: metrics", ok=bool(served), message=message, details=tuple(sorted(served)))
    yield from _examine_findings(session.get(f"{base}/findings", timeout=REQUEST_SECONDS), metrics.timestamp)
    if nodes and served:
        yield from compare_nodes(served, set(nodes))


def _examine_health(answer: requests.Response) -> Iterator[Check]:
    """Yield steps about the health report of the watcher and its warnings. load-watcher has no health report."""
    report = _json_object(answer)
    reasons, warnings = (report.get(name) for name in ("reasons", "warnings"))
    if not isinstance(reasons, list):
        yield Check("watcher: health", ok=True, message="there is no health report")
        return
    ages = report.get("age_seconds")
    shown = ", ".join(f"{window} {age} s" for window, age in ages.items()) if isinstance(ages, dict) else ""
    message = "; ".join(map(str, reasons)) or f"healthy; age of the served metrics: {shown or 'none yet'}"
    starts = bool(reasons) and all(str(reason).endswith(_NOT_YET) for reason in reasons)
    yield Check("watcher: health", ok=starts or not reasons, message=f"{_STARTING}{message}" if starts else message)
    for warning in warnings if isinstance(warnings, list) else ():
        if str(warning).partition(":")[0] not in set(Kind):  # the findings have steps of their own
            yield Check("watcher: warning", ok=False, message=str(warning))


def _examine_findings(answer: requests.Response, now: float) -> Iterator[Check]:
    """Yield a failed step for each kind of open finding, and a step about the windows that are filling.

    Args:
        answer: the response of ``/findings``.
        now: time of the newest metrics, Unix seconds.
    """
    findings, known = _json_object(answer).get("findings"), set(Kind)
    parsed = [
        Finding(
            Kind(entry["kind"]),
            _field(entry, "message"),
            _field(entry, "window"),
            _field(entry, "node"),
            _field(entry, "metric"),
            since=since if isinstance(since := entry.get("since"), int) else 0,
        )
        for entry in (findings if isinstance(findings, list) else ())
        if isinstance(entry, dict) and entry.get("kind") in known
    ]
    filling = [finding for finding in parsed if _is_filling(finding, now)]
    if filling:
        yield _name_filling(filling)
    yield from summarize(finding for finding in parsed if finding not in filling)


def _is_filling(finding: Finding, now: float) -> bool:
    """Return whether a window may have too few samples only because sampling began within the window."""
    if finding.kind is not Kind.LOW_COVERAGE or not finding.since:
        return False
    try:
        return now - finding.since < duration.seconds(finding.window)
    except ValueError:
        return False


def _name_filling(findings: Sequence[Finding]) -> Check:
    """Return the step about windows that are filling. It never fails: each window is full after its own length."""
    by_window = sorted(findings, key=lambda finding: finding.window)
    texts = [
        f"{window}: {next(iter(of)).message}" for window, of in groupby(by_window, key=lambda finding: finding.window)
    ]
    details = tuple(f"{each.node or 'all nodes'}, {each.window}: {each.message}" for each in by_window)
    message = f"{_STARTING}{'; '.join(texts)}; each is full once it has been sampled for its length"
    return Check("watcher: windows", ok=True, message=message, details=details)


def _field(document: dict[str, Any], name: str) -> str:
    return str(document.get(name) or "")


def _json_object(answer: requests.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
