"""Fast path of a WSGI application: responses from a cache or a direct handler, before Flask routes the request.

All responses, also those of the routes, get the common headers and are counted here. A fast path works on any WSGI
server. The project's own worker (``worker``) calls its parts separately: ``cached`` in the main loop, without a thread,
and ``handler`` in a thread.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.server import responses
from runtime.server.access import AccessCheck, Verdict
from runtime.server.responses import HttpResponse

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


RoutedResponse = tuple[str, HttpResponse] | None
"""A route's rule, not the path, and its response; None for requests that the application must route."""


class FinishedResponse(NamedTuple):
    """A response with all header fields."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes


def _no_response(_environ: "WSGIEnvironment") -> None:
    """Return None: the default without a cache or handler."""


class FastPath:
    """WSGI application that tries a cache and direct handlers, and passes other requests to the wrapped application.

    The fast path checks the access of the requests that it answers itself. All other and all refused requests reach the
    wrapped application, which checks them itself. It is Flask's, or sets ``environ["trimaran.route"]`` to the rule.
    """

    def __init__(
        self,
        application: "WSGIApplication",
        count: Callable[[str, int, float], None],
        access: AccessCheck,
        cached: Callable[["WSGIEnvironment"], RoutedResponse] = _no_response,
        *,
        handlers: Mapping[str, Callable[["WSGIEnvironment"], HttpResponse]] = MappingProxyType({}),
        is_background: Callable[["WSGIEnvironment"], bool] = lambda _environ: False,
    ) -> None:
        """Wrap an application.

        Args:
            application: the wrapped application, which routes and answers the other requests.
            count: callback for each response, with the rule of its route, its status and the seconds it took.
            access: access check of the requests.
            cached: returns a response at once, without waiting for anything.
            handlers: by path, functions whose responses take longer to compute, but need no routing.
            is_background: returns True for requests that may take long, which run in threads of low priority.
        """
        self.is_background = is_background
        self._application = application
        self._count = count
        self._access = access
        self._cached = cached
        self._handlers = handlers
        self._private = access.requires_credentials  # shared caches must not keep such responses

    def cached(self, environ: "WSGIEnvironment") -> FinishedResponse | None:
        """Return the response if it is cached and the request is admitted, else None."""
        started_at = time.perf_counter()
        routed = self._cached(environ)
        if routed is None or not self._admits(routed[0], environ):
            return None
        return self._finish(*routed, environ, started_at)

    def handler(self, environ: "WSGIEnvironment") -> FinishedResponse | None:
        """Return the response of a direct handler, or None for requests that need routing. May take long."""
        started_at, path = time.perf_counter(), environ["PATH_INFO"]
        handle = self._handlers.get(path)
        if handle is None or not self._admits(path, environ):
            return None
        return self._finish(path, handle(environ), environ, started_at)

    def _admits(self, route: str, environ: "WSGIEnvironment") -> bool:
        return not self._access.may_refuse or self._access.check(route, environ) in {Verdict.ADMITTED, Verdict.OPEN}

    def _finish(
        self, route: str, response: HttpResponse, environ: "WSGIEnvironment", started_at: float
    ) -> FinishedResponse:
        fields = response.header_fields()
        responses.add_common_headers(fields, private=self._private)
        self._count(route, response.status, time.perf_counter() - started_at)
        body = b"" if environ["REQUEST_METHOD"] == "HEAD" else response.body
        return FinishedResponse(response.status, fields, body)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request as a WSGI application."""
        finished = self.cached(environ) or self.handler(environ)
        if finished is not None:
            start_response(responses.status_line(finished.status), finished.fields)
            return [finished.body]
        started_at = time.perf_counter()

        def start(status: str, headers: list[tuple[str, str]], *failure: Any) -> Any:
            responses.add_common_headers(headers, private=self._private)
            self._count(_route(environ), int(status[:3]), time.perf_counter() - started_at)
            return start_response(status, headers, *failure)

        return self._application(environ, start)


class LazyApplication:
    """WSGI application that is created by its first request or by ``get``, so that the server starts sooner."""

    def __init__(self, make: Callable[[], "WSGIApplication"]) -> None:
        self._make = make
        self._made: WSGIApplication | None = None
        self._lock = threading.Lock()

    def get(self) -> "WSGIApplication":
        """Return the application. The first call creates it, and concurrent calls wait."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request as a WSGI application."""
        return self.get()(environ, start_response)


def _route(environ: "WSGIEnvironment") -> str:
    request = environ.get("werkzeug.request")  # a Flask hook would double the time of a response
    rule = getattr(request, "url_rule", None)
    return rule.rule if rule else str(environ.get("trimaran.route", "none"))
