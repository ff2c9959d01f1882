"""How a watcher is asked: one time limit over all tries, no redirects, and every failure in our words."""

import http.client
import random
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import requests
from urllib3.exceptions import HTTPError as TransportError
from urllib3.exceptions import TimeoutError as TransportTimeout

from client.bounded_http import BoundedAdapter, BoundedSession, TooLarge
from client.credentials import UnusableToken
from client.errors import AccessDenied, BadAnswer, WatcherUnavailable

_PASSING = (429, 502, 503, 504)
_FIRST_PAUSE_SECONDS = 0.2
_PAUSE_JITTER_SECONDS = 0.1
# What OpenSSL calls an answer that is not TLS, in its several versions.
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
_TLS_ALERT = "\x15\x03"  # what a TLS server says to somebody who does not speak it


class Transport:
    """GET requests to one watcher. May be used from several threads.

    Attributes:
        where: the watcher in errors, without credentials.
    """

    def __init__(self, address: str, session: BoundedSession, *, timeout_seconds: float, retries: int) -> None:
        """Prepare; nothing is sent yet.

        Args:
            address: the watcher's.
            session: with credentials, certificates and headers.
            timeout_seconds: for a call with all its tries and pauses.
            retries: further tries when the watcher cannot be reached or is overloaded, with growing pauses.

        Raises:
            ValueError: the address is no HTTP address.
        """
        parts = _split(address)
        if parts is None:
            raise ValueError(f"a watcher's address looks like http://trimaran:2020, not {_shown(address)[:80]!r}")
        self._base = address.rstrip("/").removesuffix("/watcher")
        self._secure = parts.scheme == "https"
        self.where = f"the watcher at {_shown(address)}"
        self._timeout = timeout_seconds
        self._retries = retries
        self._closed = threading.Event()
        self._verify = session.verify
        self._session = session
        self._adapter = BoundedAdapter()
        session.mount(self._base, self._adapter)

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
        self._adapter.allow(self._timeout)
        tried = 0
        while True:
            try:
                response = self._try(path, params, headers)
            except WatcherUnavailable:
                if tried == retries or not self._pause(tried):
                    raise
            else:
                if tried == retries or response.status_code not in _PASSING or not self._pause(tried):
                    return self._not_elsewhere(response)
            tried += 1

    def close(self) -> None:
        """Close the connections; a call that is under way ends with WatcherUnavailable, as does a later one."""
        self._closed.set()
        self._adapter.end()
        self._session.close()

    def _try(
        self, path: str, params: Mapping[str, str | None] | None, headers: Mapping[str, str] | None
    ) -> requests.Response:
        try:
            if not self._closed.is_set():
                response = self._session.get(
                    self._base + path,
                    params=params,
                    headers=headers,
                    timeout=self._adapter.remaining_seconds(),
                    verify=self._verify,
                )
                if not self._closed.is_set():  # else its end may be the one that we made
                    return response
        except UnusableToken as error:
            raise AccessDenied(f"{self.where} was not asked: {error}") from error
        except TooLarge as error:
            raise BadAnswer(f"{self.where} answered something else than metrics: {error}") from error
        except requests.exceptions.ContentDecodingError as error:
            raise BadAnswer(
                f"{self.where} answered something else than metrics: it is not compressed as it says"
            ) from error
        except (requests.RequestException, TransportError, OSError) as error:
            if not self._closed.is_set():
                raise self._unavailable(error) from error
        raise WatcherUnavailable(f"{self.where} is not asked any more: this client is closed")

    def _unavailable(self, error: Exception) -> WatcherUnavailable:
        """Say why nothing came. Where the address may have the wrong scheme, say that too."""
        root = _root(error)
        if isinstance(root, TransportTimeout | TimeoutError | requests.Timeout) or self._adapter.overdue:
            # A server that waits for a request in plain text takes the TLS handshake for the beginning of one.
            silent = self._secure and self._adapter.connecting and isinstance(error, requests.ReadTimeout)
            hint = ": not even the TLS handshake; should the address begin with http://?" if silent else ""
            return WatcherUnavailable(f"{self.where} does not answer within {self._timeout:g} s{hint}")
        if isinstance(root, ssl.SSLError):
            if root.reason in _NOT_TLS:
                return WatcherUnavailable(f"{self.where} does not speak TLS: should the address begin with http://?")
            option = "client_certificate" if "ALERT" in (root.reason or "") else "ca_file"
            return WatcherUnavailable(f"{self.where}: TLS failed: {root}; is {option} right?")
        hung_up = isinstance(root, ConnectionResetError) or _TLS_ALERT in str(root)
        hint = "; should the address begin with https://?" if hung_up and not self._secure else ""
        reason = getattr(root, "strerror", None) or str(root)
        if isinstance(root, http.client.BadStatusLine) and not isinstance(root, ConnectionResetError):
            reason = "its answer is not HTTP"
        return WatcherUnavailable(f"{self.where} cannot be reached: {reason}{hint}")

    def _not_elsewhere(self, response: requests.Response) -> requests.Response:
        if response.is_redirect:
            target = _shown(response.headers["Location"], response.url)[:200]
            raise BadAnswer(
                f"{self.where} redirects to {target!r}, which is not followed, as credentials are for one address: "
                "is that the watcher's?"
            )
        return response

    def _pause(self, tried: int) -> bool:
        """Wait before the next try; return whether there is time for one."""
        jitter = random.uniform(0, _PAUSE_JITTER_SECONDS)  # noqa: S311  so that not all clients come back at once
        pause = _FIRST_PAUSE_SECONDS * 2**tried + jitter
        return pause < self._adapter.remaining_seconds() and not self._closed.wait(pause)


def _split(address: str) -> SplitResult | None:
    """Return the parts of a watcher's address; None when it is none."""
    try:
        parts = urlsplit(address)
        usable = parts.port != 0
    except ValueError:
        return None
    whole = not (parts.query or parts.fragment) and " " not in parts.netloc
    return parts if usable and whole and parts.scheme in {"http", "https"} and parts.hostname else None


def _shown(address: str, base: str = "") -> str:
    """Return an address, which may be relative to a base, without what may be secret in it."""
    try:
        parts = urlsplit(urljoin(base, address))
    except ValueError:
        return "no address"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _root(error: BaseException) -> BaseException:
    """Return the innermost reason: requests wraps urllib3's errors, which wrap the system's."""
    while True:
        reason = getattr(error, "reason", None)
        inner = (
            reason
            if isinstance(reason, BaseException)
            else next((each for each in error.args if isinstance(each, BaseException)), None)
        )
        if inner is None and isinstance(error.__cause__, OSError):
            inner = error.__cause__  # urllib3 has put the system's words into its own
        if inner is None:
            return error
        error = inner
