"""A page for browsers beside the API, where one is installed.

It is made when a browser first asks, so that until then it costs nothing, neither memory nor time to start.
"""

import logging
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from runtime.server import responses
from runtime.server.access import AccessCheck, Verdict
from runtime.server.fast_path import LazyApplication
from runtime.server.responses import HttpResponse
from watcher.pipeline.watcher import Watcher
from watcher.settings import Settings

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ENTRY_POINT_GROUP = "trimaran.pages"
PLACE = "/dashboard"
_ASKS_ITSELF = frozenset({Verdict.ADMITTED, Verdict.NO_TOKEN, Verdict.INVALID_TOKEN})
_TO_IT = HttpResponse(b"", 302, None, {"Location": f"{PLACE}/", "Vary": "Accept"})
_log = logging.getLogger(__name__)


def installed(watcher: Watcher, access: AccessCheck, settings: Settings) -> "WSGIApplication | None":
    """Return the page of the package that has one; None where that, or what it needs, is not installed or broken.

    Args:
        watcher: what it shows.
        access: judges who may look; it asks them for the token.
        settings: what else it is told.
    """
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            made: WSGIApplication = entry.load()(watcher, access, settings)
        except ImportError as error:
            _log.info("browsers get no page", extra={"reason": str(error), "install": "trimaran[dashboard]"})
        except Exception:  # noqa: BLE001  versions that do not fit fail in any way; all else is answered
            _log.exception("browsers get no page: what it needs is broken", extra={"install": "trimaran[dashboard]"})
        else:
            return made
    return None


def is_of_page(environ: "WSGIEnvironment") -> bool:
    """Return whether a request may be for the page, which is long in the making and may wait for others."""
    path: str = environ["PATH_INFO"]
    if path == "/":
        return "text/" in environ.get("HTTP_ACCEPT", "")  # others get JSON there, which waits for nothing
    return path == PLACE or path.startswith(f"{PLACE}/")


class WithPage:
    """A WSGI application with a page below ``/dashboard/``, to which browsers that ask for ``/`` are sent.

    Who has no token is not refused here: the page asks for it. All others are, by the routes.
    """

    def __init__(
        self, routes: "WSGIApplication", access: AccessCheck, make: "Callable[[], WSGIApplication | None]"
    ) -> None:
        """Make nothing yet.

        Args:
            routes: all else.
            access: judges requests.
            make: returns the page, or None where there is none.
        """
        self._routes = routes
        self._access = access
        self._page = LazyApplication(lambda: make() or routes)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """HttpResponse, as WSGI has it."""
        path = environ["PATH_INFO"]
        at_it = path.startswith(f"{PLACE}/")
        if (at_it or path == PLACE or _is_browsing(environ)) and self._may_ask(environ):
            page = self._page.get()
            if page is not self._routes and at_it:
                environ["trimaran.route"] = PLACE
                return page({**environ, "SCRIPT_NAME": PLACE, "PATH_INFO": path.removeprefix(PLACE)}, start_response)
            if page is not self._routes:
                start_response(responses.status_line(_TO_IT.status), _TO_IT.header_fields())
                return [_TO_IT.body]
        return self._routes(environ, start_response)

    def _may_ask(self, environ: "WSGIEnvironment") -> bool:
        return self._access.check(PLACE, environ) in _ASKS_ITSELF


def _is_browsing(environ: "WSGIEnvironment") -> bool:
    """Return whether a browser asks for ``/``: what takes everything alike, as curl does, gets JSON."""
    if environ["PATH_INFO"] != "/" or environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
        return False
    from werkzeug.datastructures import MIMEAccept  # where routes are used, which brought it
    from werkzeug.http import parse_accept_header

    accepted = parse_accept_header(environ.get("HTTP_ACCEPT", ""), MIMEAccept)
    return accepted.best_match([responses.JSON, "text/html"]) == "text/html"
