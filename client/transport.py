"""How a watcher is asked: one time limit over all tries, no redirects, and every failure in our words."""

import random
import threading
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import requests

from client.errors import AccessDenied, BadAnswer, ClientError, WatcherUnavailable
from runtime import masking
from runtime.http.credentials import UnusableToken
from runtime.http.failures import FailureKind, describe
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession

_PASSING = (429, 502, 503, 504)
_FIRST_PAUSE_SECONDS = 0.2
_PAUSE_JITTER_SECONDS = 0.1
_NOT_METRICS = {FailureKind.TOO_LARGE, FailureKind.BAD_ENCODING}


class Transport:
    """GET requests to one watcher. May be used from several threads.

    Attributes:
        where: the watcher in errors, without credentials.
    """

    def __init__(self, address: str, session: BoundedSession, *, timeout_seconds: float, retries: int) -> None:
        """Prepare; nothing is sent yet.

        Args:
            address: the watcher's.
            session: with credentials, certificates and headers; it follows no redirects.
            timeout_seconds: for a call with all its tries and pauses.
            retries: further tries when the watcher cannot be reached or is overloaded, with growing pauses.

        Raises:
            ValueError: the address is no HTTP address.
        """
        shown = masking.without_credentials(address)
        parts = _split(address)
        if parts is None:
            raise ValueError(f"a watcher's address looks like http://trimaran:2020, not {shown[:80]!r}")
        self._base = address.rstrip("/").removesuffix("/watcher")
        self._secure = parts.scheme == "https"
        self.where = f"the watcher at {shown}"
        self._timeout = timeout_seconds
        self._retries = retries
        self._closed = threading.Event()
        self._session = session

    def get(
        self,
        path: str,
        params: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        retries: int | None = None,
    ) -> requests.Response:
        """Return the answer, of any status that is no redirect, with its whole body.

        Args:
            path: behind the address.
            params: the query; those that are None are left out.
            headers: beside the session's.
            retries: other than the usual.

        Raises:
            WatcherUnavailable: it cannot be reached, or did not answer in time.
            AccessDenied: there is no token to send.
            BadAnswer: it redirects, or its body is too large or cannot be read.
        """
        retries = self._retries if retries is None else retries
        deadline = Deadline.after(self._timeout)
        tried = 0
        while True:
            try:
                response = self._try(path, params, headers, deadline)
            except WatcherUnavailable:
                if tried == retries or not self._pause(tried, deadline):
                    raise
            else:
                if tried == retries or response.status_code not in _PASSING or not self._pause(tried, deadline):
                    return self._not_elsewhere(response)
            tried += 1

    def close(self) -> None:
        """Close the connections; a call that is under way ends with WatcherUnavailable, as does a later one."""
        self._closed.set()
        self._session.close()

    def _try(
        self,
        path: str,
        params: Mapping[str, str | None] | None,
        headers: Mapping[str, str] | None,
        deadline: Deadline,
    ) -> requests.Response:
        try:
            seconds = deadline.remaining_seconds()
            return self._session.get(self._base + path, params=params, headers=headers, timeout=seconds)
        except (requests.RequestException, UnusableToken) as error:
            raise self._translated(error, deadline) from error

    def _translated(self, error: Exception, deadline: Deadline) -> ClientError:
        """Say why nothing came. Where the address may have the wrong scheme, say that too."""
        failure = describe(error)
        kind = failure.kind
        if kind is FailureKind.CANCELED:
            return WatcherUnavailable(f"{self.where} is not asked any more: this client is closed")
        if kind in {FailureKind.CREDENTIALS, FailureKind.INVALID_HEADER}:
            return AccessDenied(f"{self.where} was not asked: {failure.reason}")
        if kind in _NOT_METRICS:
            return BadAnswer(f"{self.where} answered something else than metrics: {failure.reason}")
        if kind in {FailureKind.TIMEOUT, FailureKind.HANDSHAKE_TIMEOUT} or not deadline.remaining_seconds():
            # A server that waits for a request in plain text takes the TLS handshake for the beginning of one.
            silent = kind is FailureKind.HANDSHAKE_TIMEOUT
            hint = ": not even the TLS handshake; should the address begin with http://?" if silent else ""
            return WatcherUnavailable(f"{self.where} does not answer within {self._timeout:g} s{hint}")
        if kind is FailureKind.NOT_TLS:
            return WatcherUnavailable(f"{self.where} does not speak TLS: should the address begin with http://?")
        if kind in {FailureKind.TLS_ERROR, FailureKind.UNTRUSTED_CERTIFICATE}:
            option = "client_certificate" if kind is FailureKind.TLS_ERROR and "ALERT" in failure.reason else "ca_file"
            return WatcherUnavailable(f"{self.where}: TLS failed: {failure.reason}; is {option} right?")
        hint = (
            "; should the address begin with https://?"
            if kind is FailureKind.CONNECTION_RESET and not self._secure
            else ""
        )
        return WatcherUnavailable(f"{self.where} cannot be reached: {failure.reason}{hint}")

    def _not_elsewhere(self, response: requests.Response) -> requests.Response:
        if response.is_redirect:
            target = masking.redirect_target(response.headers["Location"], response.url)
            raise BadAnswer(
                f"{self.where} redirects to {target!r}, which is not followed, as credentials are for one address: "
                "is that the watcher's?"
            )
        return response

    def _pause(self, tried: int, deadline: Deadline) -> bool:
        """Wait before the next try; return whether there is time for one."""
        jitter = random.uniform(0, _PAUSE_JITTER_SECONDS)  # noqa: S311  so that not all clients come back at once
        pause = _FIRST_PAUSE_SECONDS * 2**tried + jitter
        return pause < deadline.remaining_seconds() and not self._closed.wait(pause)


def _split(address: str) -> SplitResult | None:
    """Return the parts of a watcher's address; None when it is none."""
    try:
        parts = urlsplit(address)
        usable = parts.port != 0
    except ValueError:
        return None
    whole = not (parts.query or parts.fragment) and " " not in parts.netloc
    return parts if usable and whole and parts.scheme in {"http", "https"} and parts.hostname else None
