"""What is answered about nodes: to the routes of ``app``, and, before any routing, to requests that only look up."""

import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from runtime.server import responses
from runtime.server.access import AccessCheck, Verdict
from runtime.server.responses import HttpResponse
from watcher import wire
from watcher.errors import NotServed
from watcher.model import WatcherMetrics, Window
from watcher.pipeline.watcher import Watcher
from watcher.publishing.cache import Body
from watcher.wire import Dialect, MetricsCode

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_READ = frozenset({"GET", "HEAD"})


_GZIP_LEVEL = 1
_GZIP_WBITS = 31  # a gzip head, and the largest window


class UnknownParameter(Exception):  # not watcher.errors': only a request has parameters
    """A query parameter that there is not; the message names those there are."""


class Reading:
    """Answers about nodes. Safe from any thread."""

    def __init__(self, watcher: Watcher, dialect: Dialect, access: AccessCheck) -> None:
        """Answer over a watcher.

        Args:
            watcher: what is read.
            dialect: of ``/watcher``; ``/compat/watcher`` speaks Go's.
            access: judges what is answered before routing.
        """
        self._watcher = watcher
        self._access = access
        self._all_histories = threading.Lock()
        self._dialects = {"/watcher": dialect, "/compat/watcher": Dialect.GO}
        self._windows = {"": None} | {f"window={window}": window for window in watcher.windows}

    def known(self, environ: "WSGIEnvironment") -> tuple[str, HttpResponse] | None:
        """Return route and answer of a request for what is published, without waiting for anything.

        None for all else, which the routes answer: what is refused, what is not there, what is asked for in an unusual
        way, and what is not ready.
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
        if self._access.may_refuse and self._access.check(route, environ) not in {Verdict.ADMITTED, Verdict.OPEN}:
            return None
        published = self._watcher.ready(window)
        if published is None:
            return None
        if host:
            one = published.node_body(host, dialect)
            return None if one is None else (route, HttpResponse(one))
        columnar = _prefers_columns(environ.get("HTTP_ACCEPT", ""))
        all_ = published.built(None if columnar else dialect)
        tag = environ.get("HTTP_IF_NONE_MATCH")
        if all_ is None or (tag is not None and tag != all_.etag):
            return None
        encodings = environ.get("HTTP_ACCEPT_ENCODING", "")
        return route, _of_body(all_, columnar=columnar, known=tag is not None, encodings=encodings)

    def all_nodes(
        self, route: str, window: str | None, *, if_none_match: str | None, accepted: str, encodings: str
    ) -> HttpResponse:
        """Return all nodes.

        Args:
            route: ``/watcher`` or ``/compat/watcher``.
            window: exactly this one; None for the default.
            if_none_match: the header of that name.
            accepted: the header Accept.
            encodings: the header Accept-Encoding.

        Raises:
            NotServed: there is nothing to answer.
        """
        dialect, columnar = self._dialects[route], _prefers_columns(accepted)
        try:
            body = self._watcher.published(window).body(None if columnar else dialect)
        except NotServed as error:
            if dialect is not Dialect.GO or not error.lacks_metrics:
                raise
            # The Go plugins keep their last data for ever on anything but 200; with an empty map all nodes score alike.
            head = self._watcher.newest() or WatcherMetrics(int(time.time()), Window("15m", 0, 0), "", {})
            return HttpResponse(wire.assemble(head, (), dialect))
        return _of_body(body, columnar=columnar, known=_names(if_none_match, body.etag), encodings=encodings)

    def one_node(self, route: str, host: str, window: str | None) -> HttpResponse:
        """Return one node; the arguments are those of ``all_nodes``.

        Raises:
            NotServed: there is nothing to answer.
        """
        body = self._watcher.published(window).node_body(host, self._dialects[route])
        if body is None:
            raise NotServed(MetricsCode.UNKNOWN_NODE, f"there are no metrics for a node {host[:80]!r}")
        return HttpResponse(body)

    def history(
        self, host: str | None, type_: str | None, operator: str | None, since: str | None, step: str | None,
        *, encodings: str,
    ) -> HttpResponse:  # fmt: skip
        """Return what nodes used over the last hours.

        Args:
            host: this node; all of them when None, for whom it is made one after the other, so that it never takes
                more than a part of the processor and of memory.
            type_: only this resource.
            operator: only this one.
            since: unix seconds, or how long ago.
            step: seconds, or a duration.
            encodings: the header Accept-Encoding.

        Raises:
            BadHistoryQuery: there is no such time or step, or it would be too much.
            NotServed: there is nothing to answer.
        """
        with nullcontext() if host else self._all_histories:
            found = self._watcher.history(host, type_, operator, since=since, step=step)
            if host and not found.nodes:
                raise NotServed(MetricsCode.UNKNOWN_NODE, f"there is no such history of a node {host[:80]!r}")
            from watcher.wire.history import encode_history  # numpy is behind it

            pieces, headers = encode_history(found), {"Vary": "Accept-Encoding"}
            if _accepts_gzip(encodings):
                return HttpResponse(b"".join(_compressed(pieces)), headers={**headers, "Content-Encoding": "gzip"})
            return HttpResponse(b"".join(pieces), headers=headers)


def check_parameters(given: "tuple[str, ...]", there: tuple[str, ...]) -> None:
    """Refuse query parameters that there are not.

    Raises:
        UnknownParameter: the first of them.
    """
    for name in given:
        if name not in there:
            near = get_close_matches(name[:40], there, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise UnknownParameter(f"there is no parameter {name[:40]!r}{hint} There are: {', '.join(there)}")


def _of_body(body: Body, *, columnar: bool, known: bool, encodings: str) -> HttpResponse:
    headers = {"ETag": body.etag, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-cache"}
    if known:
        return HttpResponse(b"", 304, None, headers)
    content_type = wire.COLUMNS_TYPE if columnar else responses.JSON
    if _accepts_gzip(encodings):
        return HttpResponse(body.gzip, 200, content_type, {**headers, "Content-Encoding": "gzip"})
    return HttpResponse(body.identity, 200, content_type, headers)


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress piece by piece: others have their turn between them, and the whole is never there."""
    compressor = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WBITS)
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def _names(if_none_match: str | None, etag: str) -> bool:
    """Return whether the header names the tag, or any."""
    from werkzeug.http import parse_etags  # where routes are used, which brought it

    return parse_etags(if_none_match).contains_weak(etag.removeprefix("W/").strip('"'))


@lru_cache(maxsize=256)
def _prefers_columns(accepted: str) -> bool:
    if wire.COLUMNS_TYPE not in accepted.lower():
        return False
    from werkzeug.datastructures import MIMEAccept  # as above
    from werkzeug.http import parse_accept_header

    found = parse_accept_header(accepted, MIMEAccept)
    return found.best_match([responses.JSON, wire.COLUMNS_TYPE]) == wire.COLUMNS_TYPE


@lru_cache(maxsize=256)
def _accepts_gzip(encodings: str) -> bool:
    if not encodings:
        return False
    from werkzeug.datastructures import Accept  # as above
    from werkzeug.http import parse_accept_header

    return parse_accept_header(encodings, Accept).quality("gzip") > 0
