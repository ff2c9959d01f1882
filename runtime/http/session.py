"""HTTP sessions with limits on time, size and redirects, for providers, the client and the Kubernetes API."""

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
from runtime.parsing import check_json_depth

_MAX_BYTES = 256 * 1024 * 1024  # 5,000 nodes with three windows take about 5 MiB
_MAX_LINE_BYTES = 4 * 1024 * 1024  # etcd limits objects to 1.5 MiB
_TIMEOUT_SECONDS = 60.0
_PUBLIC_HEADERS = {
    "accept", "accept-encoding", "connection", "content-length", "content-type", "host", "if-none-match",
    "thanos-tenant", "user-agent", "x-scope-orgid",
}  # fmt: skip
_CREDENTIALS = re.compile("auth|cookie|credential|key|passw|secret|token", re.IGNORECASE)
_MIN_SECRET_LENGTH = 8  # in headers not named like a secret: shorter values there, such as a tenant, are ordinary words


class CrossHostRedirect(requests.RequestException):
    """The response is a redirect to another host, for example to a login page."""


class UnexpectedResponse(requests.RequestException):
    """The response does not have the form that the API documents."""


class BoundedSession(requests.Session):
    """HTTP session with limits that hold whatever the server does. Thread-safe.

    The ``timeout`` of a call covers all of it: connecting, redirects, and the whole body. Only resolving the host name
    and trying a second address of the host may take longer. The size of bodies is limited. :meth:`abort` cancels calls
    from another thread. Redirects to another host are not followed, since the credentials and headers are for one host
    only. Neither ``.netrc`` nor REQUESTS_CA_BUNDLE overrides the arguments.
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
        """Create the session; nothing is sent yet.

        Args:
            authenticate: sets the credentials of a request.
            verify: True to verify the server's certificate, False not to, or a file with trusted CA certificates.
            certificate: PEM file of the client certificate and its key, or both files.
            headers: headers of every request.
            follow_redirects: whether to follow redirects that stay on the host.
            max_bytes: maximum size of a response as sent and, outside of a fetch with a
                :mod:`~runtime.http.budget`, in memory; 256 MiB when None.
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
        """Return the bounded adapter, even if a library has mounted another adapter.

        Raises:
            requests.exceptions.InvalidSchema: the URL is not an HTTP URL.
        """
        super().get_adapter(url)
        return self._adapter

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **options: Any) -> requests.Response:
        """Send a request; return the response, of any status, with its whole body."""
        call = self._call(options.pop("timeout", None))
        return self._request(call, method, url, *args, **options)

    def lines(self, url: str, *, idle_seconds: float, timeout: float, **options: Any) -> Iterator[bytes]:
        """Yield the lines of a streamed response as they arrive, without line ends and without empty lines.

        Args:
            url: the URL to get.
            idle_seconds: maximum time without data.
            timeout: maximum seconds until the head of the response is complete.
            options: options of :meth:`request`.

        Raises:
            requests.HTTPError: the status is 400 or above.
            TooLarge: a line is longer than 4 MiB.
            Canceled: :meth:`abort` or :meth:`close` was called.
            requests.RequestException: the connection broke, or no data arrived for too long.
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
        """Send a prepared request; return the response with its whole body."""
        if not isinstance(options.get("timeout"), Call):  # the caller did not use request()
            options["timeout"] = self._call(options.get("timeout"))
        _register_secrets(request)
        proxy = _proxy(request, options)
        try:
            response = super().send(request, **options)
        except requests.RequestException as error:
            if proxy and not hasattr(error, "__notes__"):  # the nested send() of a redirect adds it first
                error.add_note(proxy)
            raise
        response.__class__ = _Response  # requests has no option for the class
        if proxy:
            response.__dict__.setdefault("proxy", proxy)
        return response

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the URL of a redirect to follow, or None."""
        return super().get_redirect_target(resp) if self._follow_redirects else None

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Refuse to follow a redirect to another host.

        Raises:
            CrossHostRedirect: the redirect leaves the host.
        """
        here, there = response.request.url or "", prepared_request.url or ""
        leaves: bool = self.should_strip_auth(here, there)  # type: ignore[no-untyped-call]
        if leaves:
            shown = masking.without_credentials(here)
            raise CrossHostRedirect(f"{shown} redirects to {masking.redirect_target(there, here)}", response=response)

    def abort(self) -> None:
        """Cancel all current calls at once; they raise Canceled."""
        self._adapter.cancel_all()

    def reconnect(self) -> None:
        """Use new connections for later calls, so that each reads the client certificate's file again."""
        self._adapter.poolmanager.clear()

    def close(self) -> None:
        """Close the connections and refuse later calls. Current and later calls raise Canceled."""
        self._adapter.close()
        super().close()

    def _call(self, timeout: Any) -> Call:
        memory = budget.current() or budget.Budget(self._max_bytes)
        return Call(time.monotonic() + _seconds(timeout), self._max_bytes, memory)

    def _request(
        self, call: Call, method: str | bytes, url: str | bytes, *args: Any, **options: Any
    ) -> requests.Response:
        options |= {"verify": self.verify, "timeout": call}
        return super().request(method, url, *args, **options)


def _seconds(timeout: Any) -> float:
    """Return the seconds of a timeout in the form of requests; a pair counts as its sum."""
    if timeout is None:
        return _TIMEOUT_SECONDS
    return float(sum(filter(None, timeout)) if isinstance(timeout, tuple) else timeout)


def _proxy(request: requests.PreparedRequest, options: Mapping[str, Any]) -> str:
    """Return text that names the proxy of a request, without credentials; empty if there is no proxy."""
    proxy = requests.utils.select_proxy(request.url or "", options.get("proxies"))
    if not proxy:
        return ""
    masking.register_url_secrets(proxy)
    return f"through the proxy {masking.without_credentials(proxy if '://' in proxy else f'http://{proxy}')}"


def _register_secrets(request: requests.PreparedRequest) -> None:
    """Register the credentials of a request as secrets, because the server may repeat them."""
    for name, value in request.headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            text = str(value)
            secret = text.rpartition(" ")[2]
            if len(secret) >= _MIN_SECRET_LENGTH or _CREDENTIALS.search(name):
                masking.register_secret(secret)
            if text.startswith("Basic "):
                with contextlib.suppress(ValueError):
                    password = base64.b64decode(text.removeprefix("Basic ")).partition(b":")[2]
                    masking.register_secret(password.decode())
    masking.register_url_secrets(request.url or "")


class _Response(requests.Response):
    """Response that parses JSON with orjson, for speed, and with the standard library if orjson fails.

    Attributes:
        proxy: text that names the proxy that the response came through; empty without a proxy.
    """

    proxy = ""

    def json(self, **options: Any) -> Any:
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError:  # for example NaN, which is not JSON; callers discard such values
            try:
                check_json_depth(self.content)
            except ValueError as error:
                raise requests.exceptions.JSONDecodeError(str(error), "", 0) from None
            return super().json(**options)
