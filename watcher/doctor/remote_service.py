"""Checks of the connection to a running service over HTTP: address, port, certificate and access."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from runtime import masking
from runtime.http.credentials import UnusableToken, bearer, read_token
from runtime.http.failures import FailureKind, describe
from runtime.http.session import BoundedSession
from watcher.doctor.address import examine_address, expects_tls
from watcher.providers.base import Check
from watcher.providers.session import client_certificate
from watcher.settings import ProviderSettings

REQUEST_SECONDS = 30.0
_OLD_VIEW_SECONDS = 60.0  # a current view is younger: the API server ends each watch after 15 seconds


@dataclass(frozen=True, slots=True)
class ServiceConnection:
    """Address and credentials of a running service.

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


def examine_service(
    connection: ServiceConnection, service: str, example: str, examine: Callable[[BoundedSession, str], Iterator[Check]]
) -> Iterator[Check]:
    """Yield the steps of the connection, then those of the service; stop after a failed step that rules out the next.

    Args:
        connection: address and credentials.
        service: name of the service, with which the steps begin, and of the option ``--NAME`` for its address.
        example: an address, to show to the user.
        examine: yields the steps of the service; takes a session and the base URL.
    """
    option = f"--{service}"
    base = connection.address.rstrip("/").removesuffix(f"/{service}")
    address = urlsplit(base)
    if address.scheme not in {"http", "https"} or not address.hostname:
        message = f"the address of {_article(service)} {service} looks like {example}"
        yield Check(service, ok=False, message=message, setting=option)
        return
    tls_settings = ProviderSettings(ca_file=connection.ca_file, client_certificate=connection.certificate)
    # The steps of the connection name a provider's settings, which options replace here.
    options = {"provider.address": option, "provider.ca_file": "--ca-file"}
    for check in examine_address(address, tls_settings):
        yield replace(check, step=f"{service}: {check.step}", setting=options.get(check.setting, check.setting))
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
            yield from examine(session, base)
        except (requests.RequestException, UnusableToken, OSError) as error:
            failure = describe(error)
            tls = expects_tls(address)
            message = "it speaks TLS: should the address begin with https:// instead?" if tls else failure.reason
            credentials = failure.kind is FailureKind.CREDENTIALS
            yield Check(service, ok=False, message=message, setting="--token-file" if credentials else option)


def examine_access(service: str, response: requests.Response) -> Iterator[Check]:
    """Yield a failed step if the service refuses the credentials."""
    if response.status_code in {401, 403}:
        message = f"access denied: {describe(requests.HTTPError(response=response)).reason}"
        option = "--token-file" if response.status_code == requests.codes.unauthorized else "--client-certificate"
        yield Check(f"{service}: access", ok=False, message=message, setting=option)


def examine_states(
    connection: ServiceConnection,
    service: str,
    example: str,
    states: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Check]]],
) -> Iterator[Check]:
    """Yield the steps of :func:`examine_service`, then steps about the states that the service reports by HTTP.

    Args:
        connection: address and credentials.
        service: name of the service.
        example: an address, to show to the user.
        states: path of a state to a function that takes the JSON object at this path and yields steps. If the object
            has another form, the function may raise errors such as KeyError.
    """

    def examine(session: BoundedSession, base: str) -> Iterator[Check]:
        for path, steps in states.items():
            response = session.get(base + path, timeout=REQUEST_SECONDS)
            found = list(examine_access(service, response))
            message = ""
            if not found and not response.ok:
                reason = describe(requests.HTTPError(response=response)).reason
                message = f"{path} answers {reason}: another service, or an older {service}"
            elif not found:
                try:
                    found = list(steps(response.json()))
                except (ValueError, KeyError, TypeError, AttributeError):
                    message = f"the response of {path} is not {_article(service)} {service}'s"
            yield from [Check(service, ok=False, message=message, setting=f"--{service}")] if message else found

    return examine_service(connection, service, example, examine)


def step(service: str, name: str, problem: object, message: str, setting: str = "") -> Check:
    """Return a step about a service's state, which fails if there is a problem."""
    text = masking.to_line(problem or message)
    return Check(f"{service}: {name}", ok=not problem, message=text, setting=setting if problem else "")


def cluster_step(service: str, message: str, failures: Sequence[object], age_seconds: float, setting: str) -> Check:
    """Return the step about a service's view of the cluster.

    Args:
        service: name of the service.
        message: text about the view, such as the number of nodes.
        failures: reasons why the API server cannot be read now.
        age_seconds: time since the last message from the API server.
        setting: setting of the access to the API server.
    """
    problems = [str(each) for each in failures]
    if not problems and age_seconds > _OLD_VIEW_SECONDS:
        problems = [f"the API server has sent nothing for {age_seconds:.0f} s"]
    return step(service, "cluster", f"{message}: {'; '.join(problems)}" if problems else "", message, setting)


def lease_step(service: str, status: Mapping[str, Any], task: str) -> Check:
    """Return the step about the Lease of a replica that does not lead; it fails if no replica is known to lead.

    Args:
        service: name of the service.
        status: state of the service; an older service does not report ``lease_holder`` and ``lease_problem``.
        task: what the leading replica does.
    """
    holder, problem = status.get("lease_holder"), status.get("lease_problem")
    if not problem and holder == "":
        problem = "no replica holds the Lease"
    return step(service, "Lease", problem, f"another replica{f' ({holder})' if holder else ''} {task}")


def unreadable_steps(service: str, unreadable: Mapping[str, object]) -> Iterator[Check]:
    """Yield a failed step if a service cannot read some objects; ``unreadable`` maps their names to reasons."""
    if unreadable:
        details = tuple(masking.to_line(f"{name}: {why}") for name, why in unreadable.items())
        message = f"{len(unreadable)} nodes or pods cannot be read, and are not counted: {details[0]}"
        yield Check(f"{service}: objects", ok=False, message=message, details=details)


def unknown_node_steps(service: str, unknown: Mapping[str, object]) -> Iterator[Check]:
    """Yield a failed step if a service does not know what is free on nodes; ``unknown`` maps their names to reasons."""
    if unknown:
        details = tuple(masking.to_line(f"{name}: {why}") for name, why in unknown.items())
        message = f"the free CPU and memory of {len(unknown)} nodes are not known: {details[0]}"
        yield Check(f"{service}: free CPU and memory", ok=False, message=message, details=details)


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"
