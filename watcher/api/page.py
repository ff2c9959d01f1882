"""Dashboard for browsers, served next to the REST API if the extra ``dashboard`` is installed.

The dashboard is loaded at a browser's first request. Until then it takes no memory, and it does not delay the start.
"""

import logging
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from runtime.extras import install_command
from runtime.server import responses
from runtime.server.access import AccessCheck, Verdict
from runtime.server.fast_path import LazyApplication
from runtime.server.responses import HttpResponse
from watcher.pipeline.watcher import Watcher
from watcher.settings import Settings

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ENTRY_POINT_GROUP = "trimaran.pages"
PAGE_PATH = "/dashboard"
_PAGE_ADMITS = frozenset({Verdict.ADMITTED, Verdict.NO_TOKEN, Verdict.INVALID_TOKEN})
_REDIRECT = HttpResponse(b"", 302, None, {"Location": f"{PAGE_PATH}/", "Vary": "Accept"})
_log = logging.getLogger(__name__)


def load_page(watcher: Watcher, access: AccessCheck, settings: Settings) -> "WSGIApplication | None":
    """Load the dashboard from its entry point; return None if the dashboard or a dependency cannot be loaded.

    Args:
        watcher: watcher to show.
        access: access check of HTTP requests; the dashboard asks its visitors for the token.
        settings: settings of the watcher.
    """
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            page: WSGIApplication = entry.load()(watcher, access, settings)
        except ImportError as error:
            _log.info("there is no dashboard", extra={"reason": str(error), "install": install_command("dashboard")})
        except Exception:  # noqa: BLE001  incompatible versions raise any error; the API must work without the dashboard
            _log.exception("the dashboard cannot be loaded", extra={"install": install_command("dashboard")})
        else:
            return page
    return None


def is_page_request(environ: "WSGIEnvironment") -> bool:
    """Return whether an HTTP request may be for the dashboard.

    Such a request may take long: the dashboard is slow to load and may wait for other services.
    """
    path: str = environ["PATH_INFO"]
    if path == "/":
        return "text/" in environ.get("HTTP_ACCEPT", "")  # other clients get JSON there, without waiting
    return path == PAGE_PATH or path.startswith(f"{PAGE_PATH}/")


class PageMiddleware:
    """WSGI middleware that serves the dashboard below ``/dashboard/`` and redirects browsers from ``/`` to it.

    Requests without a valid token reach the dashboard, which asks for the token. The routes answer all other requests.
    """

    def __init__(
        self, routes: "WSGIApplication", access: AccessCheck, make: "Callable[[], WSGIApplication | None]"
    ) -> None:
        """Wrap the routes; the dashboard is loaded at its first request.

        Args:
            routes: WSGI application for all other requests.
            access: access check of HTTP requests.
            make: function that loads the dashboard; returns None if it cannot be loaded.
        """
        self._routes = routes
        self._access = access
        self._page = LazyApplication(lambda: make() or routes)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request with the dashboard, a redirect to it, or the routes."""
        path = environ["PATH_INFO"]
        is_below = path.startswith(f"{PAGE_PATH}/")
        if (is_below or path == PAGE_PATH or _is_browsing(environ)) and self._is_admitted(environ):
            page = self._page.get()
            if page is not self._routes and is_below:
                environ["trimaran.route"] = PAGE_PATH
                return page(
                    {**environ, "SCRIPT_NAME": PAGE_PATH, "PATH_INFO": path.removeprefix(PAGE_PATH)}, start_response
                )
            if page is not self._routes:
                start_response(responses.status_line(_REDIRECT.status), _REDIRECT.header_fields())
                return [_REDIRECT.body]
        return self._routes(environ, start_response)

    def _is_admitted(self, environ: "WSGIEnvironment") -> bool:
        return self._access.check(PAGE_PATH, environ) in _PAGE_ADMITS


def _is_browsing(environ: "WSGIEnvironment") -> bool:
    """Return whether a browser requests ``/``; clients that accept every type equally, such as curl, get JSON."""
    if environ["PATH_INFO"] != "/" or environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
        return False
    accepted = parse_accept_header(environ.get("HTTP_ACCEPT", ""), MIMEAccept)
    return accepted.best_match([responses.JSON, "text/html"]) == "text/html"
