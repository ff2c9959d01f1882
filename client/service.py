"""The watcher as a service: its REST API over HTTP."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import orjson
import requests

from client import arguments
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
from client.transport import Transport
from runtime import masking
from runtime.http.credentials import bearer, prepare_token, read_token
from runtime.http.session import BoundedSession
from watcher import wire
from watcher.model import WatcherMetrics

if TYPE_CHECKING:
    from watcher.history import History

_LONGEST_MESSAGE = 300
# What is no such tag, or very long, need not be possible to send back: without it everything is read anew.
_ETAG = re.compile(r'(W/)?"[!#-~]{0,200}"')
# Older watchers and the Go service answer plain JSON.
_ACCEPT = f"{wire.COLUMNS_TYPE}, application/json;q=0.9"


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
            timeout_seconds: for a whole call, with all its tries and pauses; however slowly an answer comes. Only to
                resolve the host's name, and to try another address of it, may take longer.
            retries: further tries when the watcher cannot be reached or is overloaded, with growing pauses.
            token: sent as a bearer token.
            token_file: where to read the token instead, at every request, as it may be rotated.
            ca_file: certificate authorities to trust instead of the system's.
            client_certificate: a PEM file with certificate and key, or one of each.
            headers: sent with every request.

        Raises:
            ValueError: the address is no HTTP address, the token cannot be sent in a header, or a number is out of its
                range.
        """
        retries = arguments.retries(retries)
        timeout_seconds = arguments.seconds("timeout_seconds", timeout_seconds)
        certificate = None
        if client_certificate is not None:
            pair = client_certificate if isinstance(client_certificate, tuple) else (client_certificate,)
            certificate = (str(pair[0]), str(pair[1])) if len(pair) == 2 else str(pair[0])
        given, file = prepare_token(token or "", "the token"), Path(token_file) if token_file else None
        session = BoundedSession(
            bearer(lambda: given if file is None else read_token(file)),
            verify=True if ca_file is None else str(ca_file),
            certificate=certificate,
            headers={"Accept": _ACCEPT, **(headers or {})},
            follow_redirects=False,
        )
        self._transport = Transport(address, session, timeout_seconds=timeout_seconds, retries=retries)
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
        etag = response.headers.get("ETag", "")
        with self._lock:
            if _ETAG.fullmatch(etag):
                self._seen[window] = (etag, metrics)
            else:
                self._seen.pop(window, None)
        return metrics

    def node_metrics(self, node: str, window: str | None = None) -> WatcherMetrics:
        """Return one node's metrics; see :class:`~client.WatcherClient`."""
        # As a query: a node may be called "health", and the Go service knows no other way.
        metrics = self._decode(self._get("/watcher", {"host": node, "window": window}), window, node)
        if node not in metrics.data:
            raise UnknownNode(f"{self._transport.where} has no metrics for node {node[:80]!r}")
        return metrics

    def history(
        self,
        node: str | None = None,
        *,
        type: str | None = None,  # noqa: A002  the word of the contract
        operator: str | None = None,
        since: float | str | None = None,
        step: int | str | None = None,
    ) -> "History":
        """Return what nodes used over the last hours; see :class:`~client.WatcherClient`."""
        from watcher.wire.history import decode_history  # numpy is behind it

        asked: dict[str, str | None] = {"host": node, "type": type, "operator": operator}
        for name, value in (("since", since), ("step", step)):
            asked[name] = value if value is None or isinstance(value, str) else str(int(value))
        response = self._get("/history", asked)
        where = self._transport.where
        if response.status_code == 400:
            raise ValueError(f"{where}: {self._said(response)[1]}")
        if response.status_code != 200:
            raise self._refusal(response, where, node)
        try:
            return decode_history(response.content)
        except wire.WireError as error:
            raise BadAnswer(f"{where} answered something else than a history: {error}") from error

    def findings(self) -> list[dict[str, Any]]:
        """Return what the watcher finds wrong with its metrics, as ``GET /findings`` says it; nothing of an older one.

        Raises:
            WatcherUnavailable, AccessDenied: it cannot be asked, or wants another token.
        """
        response = self._get("/findings")
        try:
            found = orjson.loads(response.content)["findings"]
            return [
                {key: masking.to_line(each) if isinstance(each, str) else each for key, each in one.items()}
                for one in found
            ]
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            return []

    def check_access(self) -> bool:
        """Return whether the watcher can be asked.

        Raises:
            AccessDenied: it wants another token.
        """
        try:
            self._get("/findings", retries=0)
        except AccessDenied:
            raise
        except ClientError:
            return False
        return True

    def health(self) -> tuple[str, ...]:
        """Return why the watcher is not healthy, or cannot be asked; empty when it is."""
        try:
            # Unhealthy is said with 503: an answer, not a failure to try again.
            response = self._get("/watcher/health", retries=0)
        except ClientError as error:
            return (str(error),)
        if response.status_code == 200:
            return ()
        try:
            reasons = orjson.loads(response.content)["reasons"]
            return tuple(map(masking.to_line, reasons))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return (masking.to_line(f"{self._transport.where} answered {response.status_code} {response.reason}"),)

    def close(self) -> None:
        """Close the connections. A call that is under way ends; it and later ones raise WatcherUnavailable."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(
        self,
        path: str,
        params: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        retries: int | None = None,
    ) -> requests.Response:
        # What is not valid Unicode is nobody's name: sent with a mark in its place, it is answered as unknown.
        sent = {key: value and value.encode("utf-8", "replace").decode() for key, value in (params or {}).items()}
        response = self._transport.get(path, sent, headers, retries=retries)
        if response.status_code in {401, 403}:
            _, message = self._said(response)
            raise AccessDenied(
                f"{self._transport.where} refuses the credentials: {response.status_code} {response.reason}"
                f"{f': {message}' if message else ''}"
            )
        return response

    def _decode(self, response: requests.Response, window: str | None, node: str | None = None) -> WatcherMetrics:
        where = self._transport.where
        if response.status_code != 200:
            raise self._refusal(response, where, node)
        try:
            metrics = wire.decode(response.content)
        except wire.WireError as error:
            raise BadAnswer(f"{where} answered something else than metrics: {error}") from error
        if window is not None and metrics.window.duration != window:
            raise UnknownWindow(f"{where} answered window {metrics.window.duration}: it cannot be asked for {window!r}")
        return metrics

    def _refusal(self, response: requests.Response, where: str, node: str | None) -> ClientError:
        code, message = self._said(response)
        if code in BY_CODE:
            return BY_CODE[code](f"{where}: {message}")
        message = message or f"{response.status_code} {response.reason}"
        if response.status_code == 404:  # the Go service says no more
            return (
                UnknownNode(f"{where}: no node {node[:80]!r}") if node is not None else NoMetrics(f"{where}: {message}")
            )
        return (WatcherUnavailable if response.status_code >= 500 else BadAnswer)(f"{where}: {message}")

    def _said(self, response: requests.Response) -> tuple[str, str]:
        """Return code and message of an error, as the contract has it; empty when it has none."""
        try:
            error: Any = orjson.loads(response.content)["error"]
            code, message = str(error["code"]), str(error["message"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return "", ""
        return code, masking.to_line(message, _LONGEST_MESSAGE)  # a gateway may repeat what it was sent
