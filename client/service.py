"""Client of a watcher's REST API over HTTP."""

import re
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

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
from runtime.errors import quoted
from runtime.http.credentials import bearer, prepare_token, read_token
from runtime.http.session import BoundedSession
from watcher import wire
from watcher.model import WatcherMetrics

if TYPE_CHECKING:
    from runtime.kubernetes.workloads import Workload
    from watcher.history import History
    from watcher.pod_use_table import PodUseTable
    from watcher.workload_table import ClusterTotals, WorkloadTable

_MAX_MESSAGE_LENGTH = 300
_WORKLOADS_PER_PAGE = 2000  # some 3 MB
_NODES_PER_REQUEST, _QUERY_LENGTH = 100, 3000  # the watcher accepts 100 nodes, and lines of 4,094 characters
_TIMES_OF_POD_HISTORY = 3
# An invalid or very long ETag may be impossible to send back. Without a valid ETag everything is read again.
_ETAG = re.compile(r'(W/)?"[!#-~]{0,200}"')
# Older watchers and the Go service answer plain JSON.
_ACCEPT = f"{wire.COLUMNS_TYPE}, application/json;q=0.9"


class ServiceClient:
    """Client of the REST API of a watcher, or of the Go load-watcher.

    Metrics that did not change since the last call are not sent again (ETag), and the same object is returned.
    Thread-safe.
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
        """Create the client; nothing is sent yet.

        Args:
            address: URL such as ``http://trimaran:2020``, without ``/watcher``.
            timeout_seconds: time limit of a whole call, with all retries and pauses, however slowly a response arrives.
                Only resolving the host name and trying a second address of the host may take longer.
            retries: number of retries when the watcher cannot be reached or is overloaded, with growing pauses.
            token: bearer token.
            token_file: file to read the token from at every request, since it may be rotated.
            ca_file: CA certificates to trust instead of the system's.
            client_certificate: PEM file with certificate and key, or a pair of files.
            headers: headers of every request.

        Raises:
            ValueError: the address is not an HTTP URL, the token cannot be sent in a header, a number is out of range,
                or the CA file does not exist.
        """
        retries = arguments.retries(retries)
        timeout_seconds = arguments.seconds("timeout_seconds", timeout_seconds)
        if ca_file is not None and not Path(ca_file).exists():
            raise ValueError(f"ca_file: {ca_file} does not exist")
        certificate = None
        if client_certificate is not None:
            pair = client_certificate if isinstance(client_certificate, tuple) else (client_certificate,)
            certificate = (str(pair[0]), str(pair[1])) if len(pair) == 2 else str(pair[0])
        fixed_token, token_path = prepare_token(token or "", "the token"), Path(token_file) if token_file else None
        session = BoundedSession(
            bearer(lambda: fixed_token if token_path is None else read_token(token_path)),
            verify=True if ca_file is None else str(ca_file),
            certificate=certificate,
            headers={"Accept": _ACCEPT, **(headers or {})},
            follow_redirects=False,
        )
        self._transport = Transport(address, session, timeout_seconds=timeout_seconds, retries=retries)
        self._cache: dict[str | None, tuple[str, WatcherMetrics]] = {}
        self._workloads: tuple[str, WorkloadTable | None] = ("", None)
        self._lock = threading.Lock()

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of all nodes; see :class:`~client.WatcherClient`."""
        with self._lock:
            etag, cached = self._cache.get(window, ("", None))
        response = self._get("/watcher", {"window": window}, {"If-None-Match": etag} if cached else {})
        if response.status_code == 304 and cached is not None:
            return cached
        metrics = self._decode(response, window)
        etag = response.headers.get("ETag", "")
        with self._lock:
            if _ETAG.fullmatch(etag):
                self._cache[window] = (etag, metrics)
            else:
                self._cache.pop(window, None)
        return metrics

    def node_metrics(self, node: str, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of one node; see :class:`~client.WatcherClient`."""
        # In the query, not the path: a node may be called "health", and the Go service supports only the query.
        arguments.check_text("node", node)
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
        """Return the use of nodes over the last hours; see :class:`~client.WatcherClient`."""
        from watcher.wire.history import decode_history  # imports numpy

        parameters: dict[str, str | None] = {"host": node, "type": type, "operator": operator}
        for name, value in (("since", since), ("step", step)):
            parameters[name] = value if value is None or isinstance(value, str) else str(int(value))
        response = self._get("/history", parameters)
        where = self._transport.where
        if response.status_code == 400:
            raise ValueError(f"{where}: {self._error_of(response)[1]}")
        if response.status_code != 200:
            raise self._refusal(response, self._transport.source_of(response), node)
        try:
            return decode_history(response.content)
        except wire.WireError as error:
            raise BadAnswer(f"{where} did not return a history: {error}") from error

    def workloads(self) -> "WorkloadTable":
        """Return the expected use of the pods of all workloads; see :class:`~client.WatcherClient`."""
        from watcher.wire.workloads import decode_workloads  # imports numpy

        with self._lock:
            etag, cached = self._workloads
        response = self._get("/workloads", headers={"If-None-Match": etag} if cached else {})
        if response.status_code == 304 and cached is not None:
            return cached
        where = self._transport.where
        if response.status_code != 200:
            raise self._refusal(response, where, None)
        try:
            table = decode_workloads(response.content)
        except wire.WireError as error:
            raise BadAnswer(f"{where} did not return workloads: {error}") from error
        etag = response.headers.get("ETag", "")
        with self._lock:
            self._workloads = (etag, table) if _ETAG.fullmatch(etag) else ("", None)
        return table

    def pod_history(self, nodes: Collection[str], pods: Collection[str] = ()) -> "PodUseTable":
        """Return the use of single pods over the last day; see :class:`~client.WatcherClient`."""
        from watcher.pod_use_table import PodUseTable  # imports numpy

        arguments.check_names("nodes", nodes)
        arguments.check_names("pods", pods)
        for _ in range(_TIMES_OF_POD_HISTORY):
            parts = [self._pod_history(query) for query in _chunks(nodes, pods)]
            if len({part.timestamp for part in parts}) <= 1:  # else the watcher has measured in between
                return PodUseTable.joined(parts)
        raise WatcherUnavailable(
            f"{self._transport.where} published new use of pods during each attempt to read it: retry"
        )

    def _pod_history(self, query: str) -> "PodUseTable":
        from watcher.wire.pod_use import decode_pod_use  # imports numpy

        response, where = self._get(f"/pods/history?{query}"), self._transport.where
        if response.status_code != 200:
            raise self._refusal(response, where, None)
        try:
            return decode_pod_use(response.content)
        except wire.WireError as error:
            raise BadAnswer(f"{where} did not return the use of pods: {error}") from error

    def workload_document(self, namespace: str | None = None) -> dict[str, Any]:
        """Return all pages of the JSON of ``GET /workloads`` as one document, with containers and recommended requests.

        Args:
            namespace: namespace of the workloads; None for all.

        Raises:
            NoMetrics: the watcher has no workload's use, perhaps not yet; the message has the reason.
        """
        workloads: list[dict[str, Any]] = []
        after, where = "", self._transport.where
        while True:
            query = {"namespace": namespace, "limit": str(_WORKLOADS_PER_PAGE), "continue": after or None}
            response = self._get("/workloads", query, {"Accept": "application/json"})
            if response.status_code != 200:
                raise self._refusal(response, where, None)
            try:
                page: dict[str, Any] = orjson.loads(response.content)
                workloads += page["workloads"]
                following = str(page.pop("next", ""))
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                raise BadAnswer(f"{where} did not return workloads: {type(error).__name__}: {error}") from error
            if not following:
                return {**page, "workloads": workloads}
            if following == after or not page["workloads"]:  # the loop would never end
                raise BadAnswer(f"{where} did not return workloads: a page is empty, or names itself as the next page")
            after = following

    def workload_detail(self, workload: "Workload") -> dict[str, Any]:
        """Return the JSON of ``GET /workloads/<namespace>/<kind>/<name>``; empty if the watcher has no such workload.

        Raises:
            NoMetrics: the watcher has no workload's use, perhaps not yet; the message has the reason.
        """
        if not isinstance(workload, tuple):
            raise TypeError(f"workload: must be a scoring.Workload, got {quoted(workload)}")
        path = "/".join(quote(part.encode("utf-8", "replace"), safe="") for part in workload)
        response, where = self._get(f"/workloads/{path}"), self._transport.where
        if response.status_code == 404 and self._error_of(response)[0] == wire.MetricsCode.UNKNOWN_WORKLOAD:
            return {}
        if response.status_code != 200:
            raise self._refusal(response, where, None)
        try:
            item: dict[str, Any] = dict(orjson.loads(response.content))
        except (orjson.JSONDecodeError, TypeError, ValueError) as error:
            raise BadAnswer(f"{where} did not return a workload: {type(error).__name__}: {error}") from error
        return item

    def workload_totals(self) -> "ClusterTotals":
        """Return the sums of capacity, requests and use over all pods, by round of measurements of the last day.

        Raises:
            NoMetrics: the watcher has completed no round of measurements yet; the message has the reason.
        """
        from watcher.wire.workloads import decode_totals  # imports numpy

        response = self._get("/workloads/totals")
        where = self._transport.where
        if response.status_code != 200:
            raise self._refusal(response, where, None)
        try:
            return decode_totals(response.content)
        except wire.WireError as error:
            raise BadAnswer(f"{where} did not return the totals of the pods: {error}") from error

    def findings(self) -> list[dict[str, Any]]:
        """Return the findings of ``GET /findings``; empty for an older watcher, which has none.

        Raises:
            WatcherUnavailable, AccessDenied: the request failed, or the watcher requires another token.
        """
        response = self._get("/findings")
        try:
            findings = orjson.loads(response.content)["findings"]
            return [
                {key: masking.to_line(value) if isinstance(value, str) else value for key, value in finding.items()}
                for finding in findings
            ]
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            return []

    def check_access(self) -> bool:
        """Return whether the watcher answers.

        Raises:
            AccessDenied: the watcher requires another token.
        """
        try:
            self._get("/findings", retries=0)
        except AccessDenied:
            raise
        except ClientError:
            return False
        return True

    def windows(self) -> tuple[str, ...]:
        """Return the windows that the watcher has metrics of; see :class:`~client.WatcherClient`."""
        try:
            # An unhealthy watcher answers 503 with the same fields, so there are no retries.
            windows = tuple(map(str, orjson.loads(self._get("/watcher/health", retries=0).content)["age_seconds"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, WatcherUnavailable):
            windows = ()
        return windows or (self.metrics().window.duration,)  # load-watcher in Go and /compat list no windows

    def health(self) -> tuple[str, ...]:
        """Return the reasons why the watcher is not healthy or does not answer; empty if it is healthy."""
        try:
            # No retries: status 503 means unhealthy here, and is a valid response.
            response = self._get("/watcher/health", retries=0)
        except ClientError as error:
            return (str(error),)
        if response.status_code == 200:
            return ()
        try:
            reasons = orjson.loads(response.content)["reasons"]
            return tuple(map(masking.to_line, reasons))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            where = self._transport.source_of(response)
            return (masking.to_line(f"{where} answered {response.status_code} {response.reason}"),)

    def close(self) -> None:
        """Close the connections. Current and later calls raise WatcherUnavailable."""
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
        arguments.check_texts(**(params or {}))
        # Text that is not valid Unicode is sent with replacement characters; the watcher answers that it is unknown.
        query = {key: value and value.encode("utf-8", "replace").decode() for key, value in (params or {}).items()}
        response = self._transport.get(path, query, headers, retries=retries)
        if response.status_code in {401, 403}:
            _, message = self._error_of(response)
            where = self._transport.source_of(response)
            raise AccessDenied(
                f"{where} refuses the credentials: {response.status_code} {response.reason}"
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
            raise BadAnswer(f"{where} did not return metrics: {error}") from error
        if window is not None and metrics.window.duration != window:
            raise UnknownWindow(f"{where} does not have window {window!r}: it returned {metrics.window.duration!r}")
        return metrics

    def _refusal(self, response: requests.Response, where: str, node: str | None) -> ClientError:
        code, message = self._error_of(response)
        if code in BY_CODE:
            return BY_CODE[code](f"{where}: {message}")
        message = message or f"{response.status_code} {response.reason}"
        if response.status_code == 404:  # the Go service has no error codes
            return (
                UnknownNode(f"{where}: no node {node[:80]!r}") if node is not None else NoMetrics(f"{where}: {message}")
            )
        return (WatcherUnavailable if response.status_code >= 500 else BadAnswer)(f"{where}: {message}")

    def _error_of(self, response: requests.Response) -> tuple[str, str]:
        """Return the error code and message of a response; empty if it has none."""
        try:
            error: Any = orjson.loads(response.content)["error"]
            code, message = str(error["code"]), str(error["message"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return "", ""
        return code, masking.to_line(message, _MAX_MESSAGE_LENGTH)  # limited, since a gateway may repeat the request


def _chunks(nodes: Collection[str], pods: Collection[str]) -> Iterator[str]:
    """Yield queries that together select the use of the pods on the given nodes, and of further pods."""
    parts: list[str] = []
    for part in [*(urlencode({"node": node}) for node in nodes), *(urlencode({"pod": uid}) for uid in pods)]:
        if len(parts) == _NODES_PER_REQUEST or sum(map(len, parts)) + len(parts) + len(part) > _QUERY_LENGTH:
            yield "&".join(parts)
            parts = []
        parts.append(part)
    yield "&".join(parts)
