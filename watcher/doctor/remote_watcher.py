"""A watcher that runs: the way to it, how it does, what it serves, and what it holds to be wrong."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from runtime.http.credentials import UnusableToken, bearer, read_token
from runtime.http.failures import Trouble, describe
from runtime.http.session import BoundedSession
from watcher import wire
from watcher.doctor.address import examine_address, expects_tls
from watcher.doctor.metrics import compare, judge
from watcher.findings import Finding, Kind
from watcher.providers.base import Check
from watcher.providers.session import client_certificate
from watcher.settings import ProviderSettings

_SECONDS = 30.0
# The steps on the way to a provider name its settings; here options have that place.
_OPTIONS = {"provider.address": "--watcher", "provider.ca_file": "--ca-file"}


@dataclass(frozen=True, slots=True)
class WatcherConnection:
    """The way to a watcher.

    Attributes:
        address: such as ``http://trimaran:2020``.
        token_file: with its bearer token.
        ca_file: certificate authorities to trust.
        certificate: a PEM file with a certificate and its key.
    """

    address: str
    token_file: Path | None = None
    ca_file: Path | None = None
    certificate: Path | None = None


def examine_watcher(running: WatcherConnection, nodes: Collection[str] = ()) -> Iterator[Check]:
    """Yield every step; none follows one without which there is nothing more to tell.

    Args:
        running: where it is, and how it lets us in.
        nodes: the names of the cluster's nodes; empty where they are not known.
    """
    base = running.address.rstrip("/").removesuffix("/watcher")
    address = urlsplit(base)
    if address.scheme not in {"http", "https"} or not address.hostname:
        message = "a watcher's address looks like http://trimaran:2020"
        yield Check("watcher", ok=False, message=message, setting="--watcher")
        return
    way = ProviderSettings(ca_file=running.ca_file, client_certificate=running.certificate)
    for check in examine_address(address, way):
        yield replace(check, step=f"watcher: {check.step}", setting=_OPTIONS.get(check.setting, check.setting))
        if not check.ok:
            return
    token_file = running.token_file
    session = BoundedSession(
        bearer(lambda: "" if token_file is None else read_token(token_file)),
        verify=True if running.ca_file is None else str(running.ca_file),
        certificate=client_certificate(way),
        follow_redirects=False,
    )
    with session:
        try:
            yield from _examine(session, base, nodes)
        except (requests.RequestException, UnusableToken, OSError) as error:
            failure = describe(error)
            tls = expects_tls(address)
            message = "it speaks TLS: is it https:// instead of http://?" if tls else failure.reason
            option = "--token-file" if failure.trouble is Trouble.CREDENTIALS else "--watcher"
            yield Check("watcher", ok=False, message=message, setting=option)


def _examine(session: BoundedSession, base: str, nodes: Collection[str]) -> Iterator[Check]:
    answer = session.get(f"{base}/watcher/health", timeout=_SECONDS)
    if answer.status_code in {401, 403}:
        message = f"it refuses: {describe(requests.HTTPError(response=answer)).reason}"
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
        message = f"what is there is no watcher: {error}"
        yield Check("watcher: metrics", ok=False, message=message, setting="--watcher")
        return
    window, served = metrics.window, set(metrics.data)
    message = f"{len(served)} nodes from {metrics.source or 'a source without a name'}, window {window.duration}"
    yield Check("watcher: metrics", ok=bool(served), message=message, details=tuple(sorted(served)))
    yield from _examine_findings(session.get(f"{base}/findings", timeout=_SECONDS))
    if nodes and served:
        yield from compare(served, set(nodes))


def _examine_health(answer: requests.Response) -> Iterator[Check]:
    """Yield what the watcher says of itself; load-watcher's has no such page."""
    report = _object(answer)
    reasons, warnings = (report.get(name) for name in ("reasons", "warnings"))
    if not isinstance(reasons, list):
        yield Check("watcher: health", ok=True, message="it does not say how it does")
        return
    ages = report.get("age_seconds")
    shown = ", ".join(f"{window} {age} s" for window, age in ages.items()) if isinstance(ages, dict) else ""
    message = "; ".join(map(str, reasons)) or f"it is well; age of what it serves: {shown or 'nothing yet'}"
    yield Check("watcher: health", ok=not reasons, message=message)
    for warning in warnings if isinstance(warnings, list) else ():
        yield Check("watcher: warning", ok=False, message=str(warning))


def _examine_findings(answer: requests.Response) -> Iterator[Check]:
    """Yield a failed step for each kind of finding that is open now."""
    findings, known = _object(answer).get("findings"), set(Kind)
    found = [
        # Without the window: what is wrong in all of them is said once.
        Finding(Kind(each["kind"]), _text(each, "message"), node=_text(each, "node"), metric=_text(each, "metric"))
        for each in (findings if isinstance(findings, list) else ())
        if isinstance(each, dict) and each.get("kind") in known
    ]
    yield from judge(dict.fromkeys(found))


def _text(document: dict[str, Any], name: str) -> str:
    return str(document.get(name) or "")


def _object(answer: requests.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
