"""Checks of a running watcher over HTTP: connection, health, metrics and findings."""

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.session import BoundedSession
from watcher import wire
from watcher.doctor.metrics import compare_nodes, summarize
from watcher.doctor.remote_service import REQUEST_SECONDS, ServiceConnection, examine_access, examine_service
from watcher.findings import Finding, Kind
from watcher.providers.base import Check


def examine_watcher(connection: ServiceConnection, nodes: Collection[str] = ()) -> Iterator[Check]:
    """Yield the steps in order; stop after a failed step that rules out the next.

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
    yield from _examine_health(answer)
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
    yield from _examine_findings(session.get(f"{base}/findings", timeout=REQUEST_SECONDS))
    if nodes and served:
        yield from compare_nodes(served, set(nodes))


def _examine_health(answer: requests.Response) -> Iterator[Check]:
    """Yield the watcher's own health report, if there is one: load-watcher has none."""
    report = _json_object(answer)
    reasons, warnings = (report.get(name) for name in ("reasons", "warnings"))
    if not isinstance(reasons, list):
        yield Check("watcher: health", ok=True, message="there is no health report")
        return
    ages = report.get("age_seconds")
    shown = ", ".join(f"{window} {age} s" for window, age in ages.items()) if isinstance(ages, dict) else ""
    message = "; ".join(map(str, reasons)) or f"healthy; age of the served metrics: {shown or 'none yet'}"
    yield Check("watcher: health", ok=not reasons, message=message)
    for warning in warnings if isinstance(warnings, list) else ():
        yield Check("watcher: warning", ok=False, message=str(warning))


def _examine_findings(answer: requests.Response) -> Iterator[Check]:
    """Yield a failed step for each kind of open finding."""
    findings, known = _json_object(answer).get("findings"), set(Kind)
    parsed = [
        Finding(
            Kind(entry["kind"]),
            _field(entry, "message"),
            _field(entry, "window"),
            _field(entry, "node"),
            _field(entry, "metric"),
        )
        for entry in (findings if isinstance(findings, list) else ())
        if isinstance(entry, dict) and entry.get("kind") in known
    ]
    yield from summarize(parsed)


def _field(document: dict[str, Any], name: str) -> str:
    return str(document.get(name) or "")


def _json_object(answer: requests.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
