"""The watcher's service: its settings, as what ``serving`` and ``access`` understand."""

import logging
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import cast

from watcher.server import serving
from watcher.server.access import Access
from watcher.server.front import Front
from watcher.server.serving import Listener
from watcher.server.tls import TlsContext
from watcher.settings import ServerSettings, Settings

_log = logging.getLogger(__name__)
_MAX_BODY_BYTES = 65536  # nothing here reads one


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or not ours.
        SettingsError: the tokens or certificates cannot be used.
    """
    server = settings.server
    access = open_access(server)
    tls = open_tls(server)
    listeners = []
    if server.compat_port is not None:
        compat = serving.listen(server.compat_host, server.compat_port, "server.compat_host", "server.compat_port")
        listeners.append(Listener(compat))
    listeners.append(Listener(serving.listen(server.host, server.port), tls))
    host, port = listeners[-1].sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{shown}:{port}/watcher"
    if access.is_locked and not server.compat_open and server.compat_port is None:
        _log.info(
            "a stock kube-scheduler is refused: it can send no token and no client certificate "
            "(server.compat_port, server.compat_open)"
        )
    if not (access.is_locked or ip_address(host.partition("%")[0]).is_loopback):
        _log.warning(
            "whoever reaches the port reads everything: no token is asked for (server.token, server.tokens_file)",
            extra={"host": host},
        )
    _log.info("serving", extra={"url": url, "provider": settings.provider.name})
    service = Service(settings, access)
    serving.serve(service.start, listeners, threads=server.threads, max_body_bytes=_MAX_BODY_BYTES, stop=service.stop)


def open_access(server: ServerSettings, clock: Callable[[], float] = time.time) -> Access:
    """Return who may read what.

    Args:
        server: tokens, certificates and what is open.
        clock: unix time.

    Raises:
        SettingsError: the tokens cannot be used.
    """
    opened = [("/metrics", server.metrics_open), ("/compat/", server.compat_open)]
    return Access(
        token=server.token.get_secret_value() if server.token else None,
        tokens_file=server.tokens_file,
        certificates=server.client_ca_file is not None,
        open_routes=[route for route, is_open in opened if is_open],
        ports={} if server.compat_port is None else {server.compat_port: "/compat/"},
        clock=clock,
    )


def open_tls(server: ServerSettings) -> TlsContext | None:
    """Return how connections are secured; None when they are not.

    Raises:
        SettingsError: the certificates cannot be used.
    """
    if server.certificate is None:
        return None
    return TlsContext(server.certificate, server.key, server.client_ca_file)


class Service:
    """What the worker does: watch, and answer."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access

    def start(self) -> Front:
        """Begin to watch, and return the application over the watcher."""
        from watcher.doctor import Doctor  # noqa: PLC0415  the master, which only looks after the worker, needs none
        from watcher.pipeline.factory import open_watcher  # noqa: PLC0415
        from watcher.server.app import create_app  # noqa: PLC0415
        from watcher.telemetry import Telemetry  # noqa: PLC0415

        telemetry = Telemetry()
        self._watcher = open_watcher(self._settings, self._settings.store.path, telemetry)
        self._watcher.start()
        self._doctor = Doctor(self._settings)
        self._doctor.start()
        app = create_app(self._watcher, telemetry, self._access, self._settings.server.dialect, self._doctor)
        return cast("Front", app.wsgi_app)

    def stop(self) -> None:
        """Stop watching."""
        self._doctor.stop()
        self._watcher.stop()
