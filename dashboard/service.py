"""The page behind the watcher's server: slow readers hold nobody up, and a worker that dies is replaced."""

import logging

from client.options import Access
from dashboard.app import create_app
from dashboard.beside import Beside
from dashboard.outside import OutsideReaders
from watcher.server import serving
from watcher.server.front import Front
from watcher.server.serving import Listener

_THREADS = 8
_log = logging.getLogger(__name__)


def open_readers(address: str, access: Access) -> OutsideReaders:
    """Return the way to the watcher.

    Raises:
        ValueError: the address is no HTTP address.
    """
    return OutsideReaders(address, access["token_file"], access["ca_file"], access["client_certificate"])


def serve(readers: OutsideReaders, beside: Beside, host: str, port: int, *, secure: bool) -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or not ours.
    """
    sock = serving.listen(host, port)
    shown, bound = sock.getsockname()[:2]
    _log.info("serving", extra={"url": f"http://{f'[{shown}]' if ':' in shown else shown}:{bound}/"})

    def start() -> Front:
        app = create_app(readers, beside, secure=secure)
        return Front(app.wsgi_app, lambda _route, _status, _seconds: None)

    serving.serve(start, [Listener(sock)], threads=_THREADS)
