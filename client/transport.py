"""GET requests with one time limit for all retries, without redirects, and with the client's own exceptions."""

import random
import threading
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import requests

from client import arguments
from client.errors import AccessDenied, BadAnswer, ClientError, WatcherUnavailable
from runtime import masking
from runtime.http.credentials import UnusableToken
from runtime.http.failures import FailureKind, describe
from runtime.http.gather import Deadline
from runtime.http.session import BoundedSession

_RETRYABLE = (429, 502, 503, 504)
_FIRST_PAUSE_SECONDS = 0.2
_PAUSE_JITTER_SECONDS = 0.1
_NOT_METRICS = {FailureKind.TOO_LARGE, FailureKind.BAD_ENCODING}


class Transport:
    """GET requests to one watcher. Thread-safe.

    Attributes:
        where: the watcher's name in errors, without credentials.
    """

    def __init__(self, address: str, session: BoundedSession, *, timeout_seconds: float, retries: int) -> None:
        """Create the transport; nothing is sent yet.

        Args:
            address: URL of the watcher.
            session: session with credentials, certificates and headers; it must not follow redirects.
            timeout_seconds: time limit of a call, with all retries and pauses.
            retries: number of retries when the watcher cannot be reached or is overloaded, with growing pauses.

        Raises:
            ValueError: the address is not an HTTP URL.
        """
        arguments.check_text("address", address)
        shown = masking.without_credentials(address)
        parts = _split(address)
        if parts is None:
            raise ValueError(f"the watcher's address must be a URL such as http://trimaran:2020, got {shown[:80]!r}")
        masking.register_address_secrets(address)
        self._base = address.rstrip("/").removesuffix("/watcher")
        self._secure = parts.scheme == "https"
        self.where = f"the watcher at {shown}"
        self._timeout = timeout_seconds
        self._retries = retries
        self._closed = threading.Event()
        self._random = random.SystemRandom()  # keeps no state: forked clients must not retry in step
        self._session = session

    def get(
        self,
        path: str,
        params: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        retries: int | None = None,
    ) -> requests.Response:
        """Return the response, of any status except a redirect, with its whole body.

        Args:
            path: path below the address.
            params: parameters of the query; those that are None are left out.
            headers: headers in addition to the session's.
            retries: number of retries; None for the default.

        Raises:
            WatcherUnavailable: the watcher cannot be reached, or did not answer in time.
            AccessDenied: the token cannot be read or sent.
            BadAnswer: the response is a redirect, or its body is too large or invalid.
        """
        retries = self._retries if retries is None else retries
        deadline = Deadline.after(self._timeout)
        tries = 0
        while True:
            try:
                response = self._try(path, params, headers, deadline)
            except WatcherUnavailable:
                if tries == retries or not self._pause(tries, deadline):
                    raise
            else:
                if tries == retries or response.status_code not in _RETRYABLE or not self._pause(tries, deadline):
                    return self._check_redirect(response)
            tries += 1

    def close(self) -> None:
        """Close the connections. Current and later calls raise WatcherUnavailable."""
        self._closed.set()
        self._session.close()

    def _try(
        self, path: str, params: Mapping[str, str | None] | None, headers: Mapping[str, str] | None, deadline: Deadline
    ) -> requests.Response:
        try:
            seconds = deadline.remaining_seconds()
            return self._session.get(self._base + path, params=params, headers=headers, timeout=seconds)
        except (requests.RequestException, UnusableToken) as error:
            raise self._to_client_error(error, deadline) from error

    def _to_client_error(self, error: Exception, deadline: Deadline) -> ClientError:
        """Return the exception for a failure, with a hint if the URL's scheme may be wrong."""
        failure = describe(error)
        kind = failure.kind
        where = f"{self.where} {failure.proxy}".rstrip()
        if kind is FailureKind.CANCELED:
            return WatcherUnavailable(f"the client of {self.where} is closed")
        if kind in {FailureKind.CREDENTIALS, FailureKind.INVALID_HEADER}:
            return AccessDenied(f"{self.where} was not asked: {failure.reason}")
        if kind in _NOT_METRICS:
            return BadAnswer(f"{self.where} did not return metrics: {failure.reason}")
        if kind in {FailureKind.TIMEOUT, FailureKind.HANDSHAKE_TIMEOUT} or not deadline.remaining_seconds():
            # A plain HTTP server takes a TLS handshake for the beginning of a request, and waits for the rest.
            no_handshake = kind is FailureKind.HANDSHAKE_TIMEOUT
            hint = ": not even the TLS handshake; should the address begin with http://?" if no_handshake else ""
            return WatcherUnavailable(f"{where} does not answer within {self._timeout:g} s{hint}")
        if kind is FailureKind.NOT_TLS:
            return WatcherUnavailable(f"{where} does not speak TLS: should the address begin with http://?")
        if kind in {FailureKind.TLS_ERROR, FailureKind.UNTRUSTED_CERTIFICATE}:
            option = "client_certificate" if kind is FailureKind.TLS_ERROR and "ALERT" in failure.reason else "ca_file"
            return WatcherUnavailable(f"{self.where}: TLS failed: {failure.reason}; is {option} right?")
        hint = (
            "; should the address begin with https://?"
            if kind is FailureKind.CONNECTION_RESET and not self._secure
            else ""
        )
        return WatcherUnavailable(f"{self.where} cannot be reached: {failure.reason}{hint}")

    def source_of(self, response: requests.Response) -> str:
        """Return the watcher's address, and the proxy that a response came through, if there is one."""
        return f"{self.where} {getattr(response, 'proxy', '')}".rstrip()

    def _check_redirect(self, response: requests.Response) -> requests.Response:
        if response.is_redirect:
            target = masking.redirect_target(response.headers["Location"], response.url)
            raise BadAnswer(
                f"{self.where} redirects to {target!r}, which is not followed: credentials are sent only to "
                "the given address; is the target the watcher's address?"
            )
        return response

    def _pause(self, tries: int, deadline: Deadline) -> bool:
        """Wait before the next try; return False if there is no time for it."""
        jitter = self._random.uniform(0, _PAUSE_JITTER_SECONDS)
        pause = _FIRST_PAUSE_SECONDS * 2**tries + jitter
        return pause < deadline.remaining_seconds() and not self._closed.wait(pause)


def _split(address: str) -> SplitResult | None:
    """Return the parts of a watcher's URL; None if the URL is invalid."""
    try:
        parts = urlsplit(address)
        usable = parts.port != 0
    except ValueError:
        return None
    complete = not (parts.query or parts.fragment) and " " not in parts.netloc
    return parts if usable and complete and parts.scheme in {"http", "https"} and parts.hostname else None
