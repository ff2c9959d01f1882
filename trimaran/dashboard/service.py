"""The page behind the watcher's server: slow readers hold nobody up, and a worker that dies is replaced."""

import logging
from typing import TYPE_CHECKING

from client.connecting import WatcherCredentials
from runtime.server import responses, serving
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


def open_readers(address: str, access: WatcherCredentials) -> RemoteAccess:
    """Return the way to the watcher.

    Raises:
        ValueError: the address is no HTTP address.
    """
    return RemoteAccess(address, access["token_file"], access["ca_file"], access["client_certificate"])


def serve(readers: RemoteAccess, context: PageContext, host: str, port: int, *, secure: bool) -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or not ours.
    """
    listener = Listener(serving.listen(host, port))
    _log.info("serving", extra={"url": f"{url_of(listener)}/"})

    def start() -> FastPath:
        app = create_app(readers, context, secure=secure)
        return FastPath(app.wsgi_app, lambda _route, _status, _seconds: None, _probed)

    serving.serve(start, [listener], threads=_THREADS)


def _probed(environ: "WSGIEnvironment") -> tuple[str, HttpResponse] | None:
    """Answer a probe without a thread: all of them may wait for a watcher that hangs."""
    route = environ["PATH_INFO"]
    found = _PROBES.get(route) if environ["REQUEST_METHOD"] in {"GET", "HEAD"} else None
    return (route, found) if found else None
