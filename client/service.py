"""The watcher as a service: its REST API over HTTP."""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit, urlunsplit

import orjson
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ReadTimeoutError
from urllib3.util.retry import Retry

from client.errors import (
    BY_CODE,
    AccessDenied,
    BadAnswer,
    ClientError,
    NoMetrics,
    UnknownNode,
    UnknownWindow,
    WatcherUnavailable,
)
from watcher import wire
from watcher.model import WatcherMetrics

_PASSING = (429, 502, 503, 504)


class ServiceClient:
    """Reads a watcher's REST API, ours or the Go load-watcher's.

    What did not change since the last call is not sent again (ETag), and the same object is returned. May be used from
    several threads.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float = 10,
        retries: int = 2,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        client_certificate: str | Path | tuple[str | Path, str | Path] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            address: such as ``http://trimaran:2020``, without ``/watcher``.
            timeout_seconds: to connect, and between bytes of an answer, each try.
            retries: further tries when the watcher cannot be reached or is overloaded, with growing pauses.
            token: sent as a bearer token.
            token_file: where to read the token instead, at every request, as it may be rotated.
            ca_file: certificate authorities to trust instead of the system's.
            client_certificate: a PEM file with certificate and key, or one of each.
            headers: sent with every request.

        Raises:
            ValueError: the address is no HTTP address, or the token cannot be sent in a header.
        """
        parts = urlsplit(address)
        if not _is_address(parts):
            shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
            raise ValueError(f"a watcher's address looks like http://trimaran:2020, not {shown[:80]!r}")
        self._base = address.rstrip("/").removesuffix("/watcher")
        self._shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._timeout = timeout_seconds
        self._verify = True if ca_file is None else str(ca_file)
        self._session = requests.Session()
        self._session.auth = _Bearer(token, Path(token_file) if token_file else None)
        self._session.headers.update({"Accept": "application/json", "Accept-Encoding": "gzip", **(headers or {})})
        if client_certificate is not None:
            pair = client_certificate if isinstance(client_certificate, tuple) else (client_certificate,)
            self._session.cert = (str(pair[0]), str(pair[1])) if len(pair) == 2 else str(pair[0])
        retry = Retry(
            total=retries,
            backoff_factor=0.2,
            backoff_jitter=0.1,
            status_forcelist=_PASSING,
            allowed_methods={"GET"},
            raise_on_status=False,
            respect_retry_after_header=False,  # a scheduler does not wait for as long as a server likes
        )
        self._session.mount(self._base, HTTPAdapter(max_retries=retry))
        # Unhealthy is said with 503: an answer, not a failure to try again.
        self._session.mount(f"{self._base}/watcher/health", HTTPAdapter(max_retries=0))
        self._seen: dict[str | None, tuple[str, WatcherMetrics]] = {}
        self._lock = threading.Lock()

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return all nodes' metrics; see :class:`~client.WatcherClient`."""
        with self._lock:
            etag, known = self._seen.get(window, ("", None))
        response = self._get("/watcher", {"window": window}, {"If-None-Match": etag} if known else {})
        if response.status_code == 304 and known is not None:
            return known
        metrics = self._decode(response, window)
        if "ETag" in response.headers:
            with self._lock:
                self._seen[window] = (response.headers["ETag"], metrics)
        return metrics

    def node_metrics(self, node: str, window: str | None = None) -> WatcherMetrics:
        """Return one node's metrics; see :class:`~client.WatcherClient`."""
        # As a query: a node may be called "health", and the Go service knows no other way.
        metrics = self._decode(self._get("/watcher", {"host": node, "window": window}), window, node)
        if node not in metrics.data:
            raise UnknownNode(f"the watcher at {self._shown} has no metrics for node {node[:80]!r}")
        return metrics

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy, or cannot be asked; empty when it is."""
        try:
            response = self._get("/watcher/health")
        except ClientError as error:
            return (str(error),)
        if response.status_code == 200:
            return ()
        try:
            reasons = orjson.loads(response.content)["reasons"]
            return tuple(map(str, reasons))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return (f"the watcher at {self._shown} answered {response.status_code} {response.reason}",)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(
        self, path: str, params: Mapping[str, str | None] | None = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        where = f"the watcher at {self._shown}"
        try:
            response = self._session.get(
                self._base + path, params=params, headers=headers, timeout=self._timeout, verify=self._verify
            )
        except _UnusableToken as error:
            raise AccessDenied(f"{where} was not asked: {error}") from error
        except requests.exceptions.ContentDecodingError as error:
            raise BadAnswer(f"{where} answered something else than metrics: it is not compressed as it says") from error
        except requests.exceptions.SSLError as error:
            raise WatcherUnavailable(f"{where}: TLS failed: {error}; is ca_file right?") from error
        except (requests.RequestException, OSError) as error:
            # After its retries, urllib3's reason stands inside of an error of an error.
            reason = getattr(error.args[0], "reason", error) if error.args else error
            if isinstance(reason, requests.Timeout | ConnectTimeoutError | ReadTimeoutError) and not isinstance(
                reason,
                NewConnectionError,  # a kind of time-out to urllib3, but it says more
            ):
                raise WatcherUnavailable(f"{where} does not answer within {self._timeout:g} s") from error
            raise WatcherUnavailable(f"{where} cannot be reached: {reason}") from error
        if response.status_code in {401, 403}:
            raise AccessDenied(f"{where} refuses the credentials: {response.status_code} {response.reason}")
        return response

    def _decode(self, response: requests.Response, window: str | None, node: str | None = None) -> WatcherMetrics:
        where = f"the watcher at {self._shown}"
        if response.status_code != 200:
            raise self._refusal(response, where, node)
        try:
            metrics = wire.decode(response.content)
        except wire.WireError as error:
            raise BadAnswer(f"{where} answered something else than metrics: {error}") from error
        if window is not None and metrics.window.duration != window:
            raise UnknownWindow(f"{where} answered window {metrics.window.duration}: it cannot be asked for {window!r}")
        return metrics

    @staticmethod
    def _refusal(response: requests.Response, where: str, node: str | None) -> ClientError:
        try:
            error: Any = orjson.loads(response.content)["error"]
            code, message = str(error["code"]), str(error["message"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            code, message = "", f"{response.status_code} {response.reason}"
        if code in BY_CODE:
            return BY_CODE[code](f"{where}: {message}")
        if response.status_code == 404:  # the Go service says no more
            return (
                UnknownNode(f"{where}: no node {node[:80]!r}") if node is not None else NoMetrics(f"{where}: {message}")
            )
        return (WatcherUnavailable if response.status_code >= 500 else BadAnswer)(f"{where}: {message}")


class _UnusableToken(ValueError):
    """The token cannot be read, or cannot be sent; the message does not quote it."""


class _Bearer(requests.auth.AuthBase):
    """Sets the token, or else the user and password of the address.

    Always there, even to do nothing: requests would otherwise look into .netrc.
    """

    def __init__(self, token: str | None, file: Path | None) -> None:
        self._token = _sendable(token or "", "the token")
        self._file = file

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self._read() if self._file else self._token
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
            return request
        user, password = requests.utils.get_auth_from_url(request.url or "")
        return requests.auth.HTTPBasicAuth(user, password)(request) if user else request

    def _read(self) -> str:
        assert self._file is not None  # noqa: S101
        try:
            return _sendable(self._file.read_text(encoding="utf-8"), f"the token in {self._file}")
        except OSError as error:
            raise _UnusableToken(f"the token file {self._file} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise _UnusableToken(f"the token file {self._file} is not text") from error


def _sendable(token: str, what: str) -> str:
    token = token.strip()  # files end with a newline
    if not (token.isascii() and token.isprintable()):
        raise _UnusableToken(f"{what} must be printable ASCII, as it is sent in a header")
    return token


def _is_address(parts: SplitResult) -> bool:
    try:
        usable = parts.port != 0
    except ValueError:
        return False
    whole = not (parts.query or parts.fragment) and " " not in parts.netloc
    return usable and whole and parts.scheme in {"http", "https"} and bool(parts.hostname)
