"""The front of an application: what is cached is answered before any routing, and every answer is finished and counted.

So is what is handler for whoever asks, where routing would take as long. Both go the same way whoever asks: a worker
of ours (``worker``), what is cached in its main loop, without a thread; any other WSGI server, by calling this as it
calls every application.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.server import responses
from runtime.server.responses import HttpResponse

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


RoutedResponse = tuple[str, HttpResponse] | None
"""A route, which is not a path, and its answer; None for what is to be routed."""


class FinishedResponse(NamedTuple):
    """An answer as it is sent, and what follows when it is."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes
    on_sent: Callable[[], None] | None


def _no_response(_environ: "WSGIEnvironment") -> None:
    """HttpResponse nothing before routing."""


class FastPath:
    """A WSGI application around another one, which is Flask's or says its route as ``environ["trimaran.route"]``."""

    def __init__(
        self,
        application: "WSGIApplication",
        count: Callable[[str, int, float], None],
        cached: Callable[["WSGIEnvironment"], RoutedResponse] = _no_response,
        *,
        handler: Callable[["WSGIEnvironment"], RoutedResponse] = _no_response,
        private: bool = False,
        is_background: Callable[["WSGIEnvironment"], bool] = lambda _environ: False,
    ) -> None:
        """Put a front before an application.

        Args:
            application: answers what is not cached.
            count: is told of each answer: its route, which is not its path, its status, and the seconds it took.
            cached: returns what is answered without waiting for anything. It has judged whether the request may be
                answered at all.
            handler: returns what takes a while, and needs no routing; it has judged so, too.
            private: whether answers are for those alone who may read them.
            is_background: whether a request may take long, so that no other one waits for its thread.
        """
        self.is_background = is_background
        self._application = application
        self._count = count
        self._cached = cached
        self._handler = handler
        self._private = private

    def cached(self, environ: "WSGIEnvironment") -> FinishedResponse | None:
        """Return what is cached; None for what is not."""
        return self._finished(self._cached, environ)

    def handler(self, environ: "WSGIEnvironment") -> FinishedResponse | None:
        """Return what needs no routing; None for what the application answers. It may take long."""
        return self._finished(self._handler, environ)

    def _finished(
        self, find: Callable[["WSGIEnvironment"], RoutedResponse], environ: "WSGIEnvironment"
    ) -> FinishedResponse | None:
        began = time.perf_counter()
        found = find(environ)
        if found is None:
            return None
        route, answer = found
        fields = answer.header_fields()
        responses.add_common_headers(fields, private=self._private)
        self._count(route, answer.status, time.perf_counter() - began)
        body = b"" if environ["REQUEST_METHOD"] == "HEAD" else answer.body
        return FinishedResponse(answer.status, fields, body, answer.on_sent)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """HttpResponse, as WSGI has it."""
        found = self.cached(environ) or self.handler(environ)
        if found is not None:
            body = _Body(found)
            try:
                start_response(responses.status_line(found.status), found.fields)
            except BaseException:  # then no server closes what it was not given
                body.close()
                raise
            return body
        began = time.perf_counter()

        def start(status: str, headers: list[tuple[str, str]], *failure: Any) -> Any:
            responses.add_common_headers(headers, private=self._private)
            self._count(_route(environ), int(status[:3]), time.perf_counter() - began)
            return start_response(status, headers, *failure)

        return self._application(environ, start)


class _Body:
    """What WSGI takes for a body: it is closed when it is sent, by some servers and middlewares more than once."""

    def __init__(self, found: FinishedResponse) -> None:
        self._body, self._on_sent = found.body, found.on_sent

    def __iter__(self) -> Iterator[bytes]:
        return iter([self._body])

    def close(self) -> None:
        on_sent, self._on_sent = self._on_sent, None
        if on_sent is not None:
            on_sent()


class LazyApplication:
    """A WSGI application that is made when it is wanted, by whoever wants it first: what is cached is there sooner."""

    def __init__(self, make: Callable[[], "WSGIApplication"]) -> None:
        self._make = make
        self._made: WSGIApplication | None = None
        self._lock = threading.Lock()

    def get(self) -> "WSGIApplication":
        """Return the application; the first call makes it, and others wait for that."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """HttpResponse, as WSGI has it."""
        return self.get()(environ, start_response)


def _route(environ: "WSGIEnvironment") -> str:
    request = environ.get("werkzeug.request")  # not Flask's hooks, which take as long as all the rest of an answer
    rule = getattr(request, "url_rule", None)
    return rule.rule if rule else str(environ.get("trimaran.route", "none"))
