"""Responses with the load of nodes, for the Flask routes in ``app`` and, from the cache, before Flask is called."""

import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from werkzeug.datastructures import Accept, MIMEAccept
from werkzeug.http import parse_accept_header, parse_etags

from runtime.server import responses
from runtime.server.responses import HttpResponse
from watcher import wire
from watcher.errors import NotServed
from watcher.model import WatcherMetrics, Window
from watcher.pipeline.watcher import Watcher
from watcher.publishing.cache import Body, Published
from watcher.wire import Dialect, MetricsCode

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_READ = frozenset({"GET", "HEAD"})
_GO_REQUEST = {"HTTP_ACCEPT_ENCODING": "gzip"}  # header fields that Go's HTTP client sends

_GZIP_LEVEL = 1
_GZIP_WBITS = 31  # gzip header, and the largest window


class UnknownParameter(Exception):  # not in watcher.errors: only requests have parameters
    """Unknown query parameter; the message lists the known ones."""


class NodeViews:
    """Responses with the load of nodes, in all JSON dialects, plain or compressed. Safe to use from any thread."""

    def __init__(self, watcher: Watcher, dialect: Dialect) -> None:
        """Prepare the views of a watcher.

        Args:
            watcher: watcher to read from.
            dialect: JSON dialect of ``/watcher``; ``/compat/watcher`` always uses ``Dialect.GO``.
        """
        self._watcher = watcher
        self._all_histories = threading.Lock()
        self._dialects = {"/watcher": dialect, "/compat/watcher": Dialect.GO}
        self._windows = {"": None} | {f"window={window}": window for window in watcher.windows}

    def cached_response(self, environ: "WSGIEnvironment") -> tuple[str, HttpResponse] | None:
        """Return the route of an HTTP request and its response if the response is in the cache. Never waits.

        Return None for all other requests, which the Flask routes answer: unknown nodes and windows, unusual
        parameters, and bodies that are not built yet.
        """
        query, route = environ["QUERY_STRING"], environ["PATH_INFO"]
        host = query[5:] if query.startswith("host=") and query[5:].replace("-", "").replace(".", "").isalnum() else ""
        window = self._windows.get("" if host else query, "")
        if window == "" or environ["REQUEST_METHOD"] not in _READ or not (query.isascii() and route.isascii()):
            return None
        dialect = self._dialects.get(route)
        if dialect is None:
            path, _, name = route.rpartition("/")
            dialect = self._dialects.get(path)
            if dialect is None or host or name in {"", "health"}:
                return None
            route, host = f"{path}/<host>", name
        published = self._watcher.ready(window)
        if published is None:
            return None
        if host:
            one = published.node_body(host, dialect)
            return None if one is None else (route, HttpResponse(one))
        response = _cached_body(published, dialect, environ)
        return None if response is None else (route, response)

    def is_ready(self) -> bool:
        """Return whether the cache has a response of ``/watcher`` with fresh metrics.

        The response is the one for Go's HTTP client, which accepts gzip.
        """
        try:
            published = self._watcher.published()
        except NotServed:
            return False
        return _cached_body(published, self._dialects["/watcher"], _GO_REQUEST) is not None

    def all_nodes(
        self, route: str, window: str | None, *, if_none_match: str | None, accepted: str, encodings: str
    ) -> HttpResponse:
        """Return the response with the metrics of all nodes.

        Args:
            route: ``/watcher`` or ``/compat/watcher``, which determines the JSON dialect.
            window: the window to return, such as ``15m``; None for the default window.
            if_none_match: value of the header If-None-Match.
            accepted: value of the header Accept.
            encodings: value of the header Accept-Encoding.

        Raises:
            NotServed: there are no metrics to serve.
        """
        dialect, columnar = self._dialects[route], _prefers_columns(accepted)
        try:
            body = self._watcher.published(window).body(None if columnar else dialect)
        except NotServed as error:
            if dialect is not Dialect.GO or not error.lacks_metrics:
                raise
            # The Go plugins keep their last data forever on any status but 200; with an empty map all nodes score
            # alike.
            head = self._watcher.newest() or WatcherMetrics(int(time.time()), Window("15m", 0, 0), "", {})
            return HttpResponse(wire.assemble(head, (), dialect))
        not_modified = _matches_etag(if_none_match, body.etag)
        return _body_response(body, columnar=columnar, not_modified=not_modified, encodings=encodings)

    def one_node(self, route: str, host: str, window: str | None) -> HttpResponse:
        """Return the response with the metrics of one node.

        Args:
            route: ``/watcher`` or ``/compat/watcher``, which determines the JSON dialect.
            host: the node's name.
            window: the window to return, such as ``15m``; None for the default window.

        Raises:
            NotServed: there are no metrics to serve, or the node is unknown.
        """
        body = self._watcher.published(window).node_body(host, self._dialects[route])
        if body is None:
            why = (each.message for each in self._watcher.findings() if each.node == host and not each.metric)
            raise NotServed(MetricsCode.UNKNOWN_NODE, f"there are no metrics for node {host[:80]!r}", next(why, ""))
        return HttpResponse(body)

    def history(
        self, host: str | None, type_: str | None, operator: str | None, since: str | None, step: str | None,
        *, encodings: str,
    ) -> HttpResponse:  # fmt: skip
        """Return the response with the history of the nodes' load over the last hours.

        Args:
            host: only this node; None for all nodes. Responses for all nodes are built one at a time, since each takes
                much CPU time and memory.
            type_: only this resource; None for all resources of one node, or for CPU of all nodes.
            operator: only this operator; None for all operators of one node, or for AVG of all nodes.
            since: start, Unix seconds or a duration before now; None for one day before now.
            step: length of a step, seconds or a duration; None for the shortest possible length.
            encodings: value of the header Accept-Encoding.

        Raises:
            BadHistoryQuery: ``since`` or ``step`` is invalid, or there would be too many steps.
            NotServed: the store has no history of the node with this resource and operator.
        """
        with nullcontext() if host else self._all_histories:
            history = self._watcher.history(host, type_, operator, since=since, step=step)
            if host and not history.nodes:
                raise NotServed(MetricsCode.UNKNOWN_NODE, f"node {host[:80]!r} has no history of this metric")
            from watcher.wire.history import encode_history  # imports numpy, which is slow

            pieces, headers = encode_history(history), {"Vary": "Accept-Encoding"}
            if _accepts_gzip(encodings):
                return HttpResponse(b"".join(_compress(pieces)), headers={**headers, "Content-Encoding": "gzip"})
            return HttpResponse(b"".join(pieces), headers=headers)


def check_parameters(given: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Check that all query parameters of a request are known.

    Args:
        given: names of the request's parameters.
        known: names of the parameters that the route supports.

    Raises:
        UnknownParameter: a parameter is unknown; the message names the first one.
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name[:40], known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise UnknownParameter(f"unknown parameter {name[:40]!r}{hint} The parameters are: {', '.join(known)}")


def _cached_body(published: Published, dialect: Dialect, environ: "WSGIEnvironment") -> HttpResponse | None:
    """Return the response with all nodes; None if its body is not built, or If-None-Match is not its entity tag."""
    columnar = _prefers_columns(environ.get("HTTP_ACCEPT", ""))
    body = published.built(None if columnar else dialect)
    tag = environ.get("HTTP_IF_NONE_MATCH")
    if body is None or (tag is not None and tag != body.etag):
        return None
    encodings = environ.get("HTTP_ACCEPT_ENCODING", "")
    return _body_response(body, columnar=columnar, not_modified=tag is not None, encodings=encodings)


def _body_response(body: Body, *, columnar: bool, not_modified: bool, encodings: str) -> HttpResponse:
    headers = {"ETag": body.etag, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-cache"}
    if not_modified:
        return HttpResponse(b"", 304, None, headers)
    content_type = wire.COLUMNS_TYPE if columnar else responses.JSON
    if _accepts_gzip(encodings):
        return HttpResponse(body.gzip, 200, content_type, {**headers, "Content-Encoding": "gzip"})
    return HttpResponse(body.identity, 200, content_type, headers)


def _compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield gzip data of the pieces, compressed one by one.

    Other threads can run in between, and memory never holds the whole input.
    """
    compressor = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WBITS)
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def _matches_etag(if_none_match: str | None, etag: str) -> bool:
    """Return whether the value of the header If-None-Match contains the entity tag."""
    return parse_etags(if_none_match).contains_weak(etag.removeprefix("W/").strip('"'))


@lru_cache(maxsize=256)
def _prefers_columns(accepted: str) -> bool:
    if wire.COLUMNS_TYPE not in accepted.lower():
        return False
    found = parse_accept_header(accepted, MIMEAccept)
    return found.best_match([responses.JSON, wire.COLUMNS_TYPE]) == wire.COLUMNS_TYPE


@lru_cache(maxsize=256)
def _accepts_gzip(encodings: str) -> bool:
    if not encodings:
        return False
    return parse_accept_header(encodings, Accept).quality("gzip") > 0
