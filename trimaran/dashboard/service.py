"""Service of ``trimaran dashboard``: it opens the port and serves the dashboard with gunicorn, as the watcher does."""

import logging
from typing import TYPE_CHECKING

from client.connecting import WatcherCredentials
from runtime.server import responses, serving
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from runtime.server.responses import HttpResponse
from runtime.server.service import url_of
from runtime.server.serving import Listener
from trimaran.dashboard.app import create_app
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.remote import RemoteAccess

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_THREADS = 8
_PROBES = {
    "/livez": responses.json_response({"alive": True}),
    "/readyz": responses.json_response({"ready": True}),
    "/healthz": responses.json_response({"status": "ok"}),
}
_log = logging.getLogger(__name__)


def open_access(address: str, credentials: WatcherCredentials) -> RemoteAccess:
    """Return the dashboard's access control for a watcher over HTTP.

    Raises:
        ValueError: the address is not an HTTP URL.
    """
    return RemoteAccess(address, credentials["token_file"], credentials["ca_file"], credentials["client_certificate"])


def serve(access: RemoteAccess, context: PageContext, host: str, port: int, *, secure: bool) -> None:
    """Serve the dashboard until SIGTERM or SIGINT. Does not return: gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or does not belong to this host.
    """
    listener = Listener(serving.listen(host, port))
    _log.info("serving", extra={"url": f"{url_of(listener)}/"})

    def start() -> FastPath:
        app = create_app(access, context, secure=secure)
        return FastPath(app.wsgi_app, lambda _route, _status, _seconds: None, AccessCheck(), _answer_probe)

    serving.serve(start, [listener], threads=_THREADS)


def _answer_probe(environ: "WSGIEnvironment") -> tuple[str, HttpResponse] | None:
    """Return the response to a probe; None for other requests.

    Probes need no thread of the pool, since all threads may be waiting for a hanging watcher.
    """
    route = environ["PATH_INFO"]
    response = _PROBES.get(route) if environ["REQUEST_METHOD"] in {"GET", "HEAD"} else None
    return (route, response) if response else None
