"""Checks of a running watcher over HTTP: connection, health, metrics and findings."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from runtime.http.credentials import UnusableToken, bearer, read_token
from runtime.http.failures import FailureKind, describe
from runtime.http.session import BoundedSession
from watcher import wire
from watcher.doctor.address import examine_address, expects_tls
from watcher.doctor.metrics import compare_nodes, summarize
from watcher.findings import Finding, Kind
from watcher.providers.base import Check
from watcher.providers.session import client_certificate
from watcher.settings import ProviderSettings

_SECONDS = 30.0
# The steps of the connection name a provider's settings; for a watcher, options replace them.
_OPTIONS = {"provider.address": "--watcher", "provider.ca_file": "--ca-file"}


@dataclass(frozen=True, slots=True)
class WatcherConnection:
    """Address and credentials of a watcher.

    Attributes:
        address: the base URL, such as ``http://trimaran:2020``.
        token_file: a file with the bearer token.
        ca_file: certificate authorities to trust.
        certificate: a PEM file with the client certificate and its key.
    """

    address: str
    token_file: Path | None = None
    ca_file: Path | None = None
    certificate: Path | None = None


def examine_watcher(connection: WatcherConnection, nodes: Collection[str] = ()) -> Iterator[Check]:
    """Yield the steps in order; stop after a failed step that rules out the next.

    Args:
        connection: address and credentials.
        nodes: names of the cluster's nodes; empty if unknown.
    """
    base = connection.address.rstrip("/").removesuffix("/watcher")
    address = urlsplit(base)
    if address.scheme not in {"http", "https"} or not address.hostname:
        message = "a watcher's address looks like http://trimaran:2020"
        yield Check("watcher", ok=False, message=message, setting="--watcher")
        return
    tls_settings = ProviderSettings(ca_file=connection.ca_file, client_certificate=connection.certificate)
    for check in examine_address(address, tls_settings):
        yield replace(check, step=f"watcher: {check.step}", setting=_OPTIONS.get(check.setting, check.setting))
        if not check.ok:
            return
    token_file = connection.token_file
    session = BoundedSession(
        bearer(lambda: "" if token_file is None else read_token(token_file)),
        verify=True if connection.ca_file is None else str(connection.ca_file),
        certificate=client_certificate(tls_settings),
        follow_redirects=False,
    )
    with session:
        try:
            yield from _examine(session, base, nodes)
        except (requests.RequestException, UnusableToken, OSError) as error:
            failure = describe(error)
            tls = expects_tls(address)
            message = "it speaks TLS: should the address begin with https:// instead?" if tls else failure.reason
            option = "--token-file" if failure.kind is FailureKind.CREDENTIALS else "--watcher"
            yield Check("watcher", ok=False, message=message, setting=option)


def _examine(session: BoundedSession, base: str, nodes: Collection[str]) -> Iterator[Check]:
    answer = session.get(f"{base}/watcher/health", timeout=_SECONDS)
    if answer.status_code in {401, 403}:
        message = f"access denied: {describe(requests.HTTPError(response=answer)).reason}"
        yield Check("watcher: access", ok=False, message=message, setting="--token-file")
        return
    yield from _examine_health(answer)
    answer = session.get(f"{base}/watcher", timeout=_SECONDS)
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
    yield from _examine_findings(session.get(f"{base}/findings", timeout=_SECONDS))
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
        # Leave out the window, so that a problem in all windows is reported once.
        Finding(
            Kind(entry["kind"]), _field(entry, "message"), node=_field(entry, "node"), metric=_field(entry, "metric")
        )
        for entry in (findings if isinstance(findings, list) else ())
        if isinstance(entry, dict) and entry.get("kind") in known
    ]
    yield from summarize(dict.fromkeys(parsed))


def _field(document: dict[str, Any], name: str) -> str:
    return str(document.get(name) or "")


def _json_object(answer: requests.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
