"""The service: gunicorn in this process, one worker that watches and answers, respawned when it dies."""

import errno
import gc
import logging
import socket
import sys
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from watcher.doctor import Doctor
from watcher.errors import WatcherError
from watcher.pipeline.factory import open_watcher
from watcher.server import worker
from watcher.server.access import Access
from watcher.server.app import create_app
from watcher.server.tls import TlsContext
from watcher.settings import Settings
from watcher.telemetry import Telemetry

_log = logging.getLogger(__name__)
_GRACE_SECONDS = 5
# For a port to be free: a killed master's worker sees within a second that it is alone, and takes its grace to end.
_PORT_SECONDS = 2 + _GRACE_SECONDS


class ServerError(WatcherError):
    """The address cannot be listened on."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or not ours.
        SettingsError: the tokens or certificates cannot be used.
    """
    server = settings.server
    access = Access(server)
    tls = TlsContext(server) if server.certificate is not None else None
    listeners = []
    if server.compat_port is not None:
        listeners.append(_listen("compat_host", server.compat_host, "compat_port", server.compat_port))
    listeners.append(_listen("host", server.host, "port", server.port))
    host, port = listeners[-1].getsockname()[:2]
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
    _Application(settings, listeners, access, {port: tls} if tls else {}).run()


def tune_interpreter() -> None:
    """Keep large fetches from holding up the requests that are answered meanwhile.

    What 5,000 nodes bring is half a million objects without cycles; by default the garbage collector looks at them all
    again and again while they are read, for a fifth of the time. And a request has to wait for the interpreter, several
    times, while a snapshot is read or encoded: ten times less than by default.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    sys.setswitchinterval(0.0005)


class _Application(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    def __init__(
        self, settings: Settings, listeners: list[socket.socket], access: Access, tls_by_port: dict[int, TlsContext]
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._access = access
        self.tls_by_port = tls_by_port  # for the worker
        super().__init__()

    def load_config(self) -> None:
        options: dict[str, Any] = {
            **worker.OPTIONS,
            "bind": [f"fd://{listener.fileno()}" for listener in self._listeners],
            "workers": 1,
            "worker_class": worker.Worker,
            "threads": self._settings.server.threads,
            "graceful_timeout": _GRACE_SECONDS,
            "logger_class": _Logger,
            "loglevel": "warning",
            "proc_name": "trimaran",
            "control_socket_disable": True,
            "worker_exit": _worker_exit,
        }
        if Path("/dev/shm").is_dir():  # noqa: S108  the heartbeat file; works with a read-only root
            options["worker_tmp_dir"] = "/dev/shm"  # noqa: S108
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Start watching, in the worker, and return the application over it."""
        tune_interpreter()
        telemetry = Telemetry()
        watcher = open_watcher(self._settings, self._settings.store.path, telemetry)
        watcher.start()
        doctor = Doctor(self._settings)
        doctor.start()
        app = create_app(watcher, self._settings.server, telemetry, doctor, self._access)
        app.extensions["trimaran.watcher"] = watcher
        app.extensions["trimaran.doctor"] = doctor
        return app


class _Logger(Logger):  # type: ignore[misc]
    """gunicorn's messages, through our own handlers."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


def _worker_exit(_arbiter: Any, worker: Any) -> None:
    app = getattr(worker, "wsgi", None)  # one that failed to start has none
    if app is not None:
        _log.info("stopping")
        app.extensions["trimaran.doctor"].stop()
        app.extensions["trimaran.watcher"].stop()


def _listen(host_key: str, host: str, port_key: str, port: int) -> socket.socket:
    until = time.monotonic() + _PORT_SECONDS
    waiting = False
    while True:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            both = host == "::" and socket.has_dualstack_ipv6()
            return socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=both)
        except (OSError, OverflowError) as error:
            taken = getattr(error, "errno", None) == errno.EADDRINUSE
            if not taken or time.monotonic() > until:
                why = "is in use; is another watcher running?" if taken else f"cannot be used: {error}."
                flags = " with --host and --port" if port_key == "port" else ""
                names = f"server.{host_key}, server.{port_key}"
                raise ServerError(f"{host} port {port} {why} Choose another{flags} ({names})") from error
        if not waiting:
            _log.info("the port is in use, waiting for it", extra={"port": port, "seconds": _PORT_SECONDS})
            waiting = True
        time.sleep(0.1)
