"""HTTP for whoever asks somebody else: providers, the client, and what watches a cluster."""

import base64
import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import requests

from runtime import masking
from runtime.http import budget
from runtime.http.adapter import BoundedAdapter, Call
from runtime.http.credentials import Authenticate, Authentication
from runtime.http.errors import too_large

_MAX_BYTES = 256 * 1024 * 1024  # 5,000 nodes with three windows are some 5 MiB
_MAX_LINE_BYTES = 4 * 1024 * 1024  # etcd keeps no object of more than 1.5 MiB
_TIMEOUT_SECONDS = 60.0
_PUBLIC_HEADERS = {
    "accept", "accept-encoding", "connection", "content-length", "content-type", "host", "if-none-match",
    "thanos-tenant", "user-agent", "x-scope-orgid",
}  # fmt: skip
_CREDENTIALS = re.compile("auth|cookie|credential|key|passw|secret|token", re.IGNORECASE)
_LEAST_CHARACTERS = 8  # of a secret in a header that is not called one: shorter ones, such as a tenant, are words


class CrossHostRedirect(requests.RequestException):
    """The answer is a redirect to another host, as that of a login page is."""


class UnexpectedResponse(requests.RequestException):
    """The answer is not what is answered there."""


class BoundedSession(requests.Session):
    """A session that holds its bounds whatever the server does. Safe to use from several threads.

    A call ends by its ``timeout``, which is for all of it: connecting, redirects, the last byte of the body. Only to
    resolve the host's name, and to try another address of it, may take longer. Bodies are bounded in size.
    :meth:`abort` ends calls from another thread. A redirect that leaves the host is not followed: credentials and
    headers are for one. Neither ``.netrc`` nor REQUESTS_CA_BUNDLE overrides what is given here.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        *,
        verify: bool | str = True,
        certificate: str | tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        follow_redirects: bool = True,
        max_bytes: int | None = None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            authenticate: sets the credentials of each request.
            verify: whether to verify the server's certificate, or the file of the authorities to trust.
            certificate: a PEM file that proves who we are, or its certificate and its key.
            headers: sent with every request.
            follow_redirects: whether those that stay on the host are followed.
            max_bytes: how large an answer may be, as sent, and where there is no :mod:`~runtime.http.budget` of a
                fetch, as read into memory; 256 MiB when None.
        """
        super().__init__()
        self._adapter = BoundedAdapter()
        self._follow_redirects = follow_redirects
        self._max_bytes = _MAX_BYTES if max_bytes is None else max_bytes
        self.auth = Authentication(authenticate)
        self.verify = verify
        self.cert = certificate
        self.headers["Accept-Encoding"] = "gzip"
        self.headers.update(headers or {})

    def get_adapter(self, url: str) -> BoundedAdapter:
        """Return our adapter, also after a library has mounted its own.

        Raises:
            requests.exceptions.InvalidSchema: the URL is not of HTTP.
        """
        super().get_adapter(url)
        return self._adapter

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **options: Any) -> requests.Response:
        """Send a request; return the answer, of any status, with its whole body."""
        call = self._call(options.pop("timeout", None))
        return self._request(call, method, url, *args, **options)

    def lines(self, url: str, *, idle_seconds: float, timeout: float, **options: Any) -> Iterator[bytes]:
        """Yield the lines of a chunked answer as they come, without their ends and without empty ones.

        Args:
            url: what to get.
            idle_seconds: how long nothing may come.
            timeout: how long the head of the answer may take.
            options: as of :meth:`request`.

        Raises:
            requests.HTTPError: the status is 400 or above.
            TooLarge: a line is longer than 4 MiB.
            Ended: by :meth:`abort` or :meth:`close`.
            requests.RequestException: it broke, or nothing came for too long.
        """
        call = Call(time.monotonic() + timeout, _MAX_LINE_BYTES, budget.Budget(_MAX_LINE_BYTES), idle_seconds)
        response = self._request(call, "GET", url, stream=True, **options)
        response.raise_for_status()
        pending = bytearray()
        with response:
            for chunk in self._adapter.chunks(call, response):
                pending += chunk
                if b"\n" in chunk:
                    *whole, rest = pending.split(b"\n")
                    pending = rest
                    yield from (bytes(line) for line in whole if line)
                if len(pending) > _MAX_LINE_BYTES:
                    raise too_large(_MAX_LINE_BYTES)
        if pending:
            yield bytes(pending)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a prepared request."""
        if not isinstance(options.get("timeout"), Call):  # not by way of request()
            options["timeout"] = self._call(options.get("timeout"))
        _keep_secrets_of(request)
        response = super().send(request, **options)
        response.__class__ = _Answer  # requests offers no other way to choose it
        return response

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where to go on, if anywhere."""
        return super().get_redirect_target(resp) if self._follow_redirects else None

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Refuse to follow a redirect to another host.

        Raises:
            LeavesHost: it is one.
        """
        here, there = response.request.url or "", prepared_request.url or ""
        leaves: bool = self.should_strip_auth(here, there)  # type: ignore[no-untyped-call]
        if leaves:
            shown = masking.without_credentials(here)
            raise CrossHostRedirect(f"{shown} redirects to {masking.redirect_target(there, here)}", response=response)

    def abort(self) -> None:
        """End every call that is under way, at once: it raises Ended."""
        self._adapter.end()

    def reconnect(self) -> None:
        """Have later calls make new connections, each with the certificate that its file has then."""
        self._adapter.poolmanager.clear()

    def close(self) -> None:
        """End every call that is under way, close the connections, and refuse later calls: they raise Ended."""
        self._adapter.close()
        super().close()

    def _call(self, timeout: Any) -> Call:
        mine = budget.current() or budget.Budget(self._max_bytes)
        return Call(time.monotonic() + _seconds(timeout), self._max_bytes, mine)

    def _request(
        self, call: Call, method: str | bytes, url: str | bytes, *args: Any, **options: Any
    ) -> requests.Response:
        options |= {"verify": self.verify, "timeout": call}
        return super().request(method, url, *args, **options)


def _seconds(timeout: Any) -> float:
    """Return the seconds that a timeout of requests is, of two those of both."""
    if timeout is None:
        return _TIMEOUT_SECONDS
    return float(sum(filter(None, timeout)) if isinstance(timeout, tuple) else timeout)


def _keep_secrets_of(request: requests.PreparedRequest) -> None:
    """Have whatever proves who we are masked from now on, as whoever is asked may repeat it."""
    for name, value in request.headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            text = str(value)
            secret = text.rpartition(" ")[2]
            if len(secret) >= _LEAST_CHARACTERS or _CREDENTIALS.search(name):
                masking.register_secret(secret)
            if text.startswith("Basic "):
                with contextlib.suppress(ValueError):
                    password = base64.b64decode(text.removeprefix("Basic ")).partition(b":")[2]
                    masking.register_secret(password.decode())
    masking.register_url_secrets(request.url or "")


class _Answer(requests.Response):
    """An answer whose JSON is read by orjson, several times as fast, and by the more tolerant json if that fails."""

    def json(self, **options: Any) -> Any:
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError:  # NaN, say, which is no JSON: whoever judges the values drops it
            return super().json(**options)
