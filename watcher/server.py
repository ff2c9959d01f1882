"""The service: gunicorn in this process, one worker that watches and answers, respawned when it dies."""

import contextlib
import errno
import gc
import logging
import socket
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine
from gunicorn.workers.gthread import ThreadWorker

from watcher import wire
from watcher.app import create_app
from watcher.assembly import open_watcher
from watcher.doctor import Doctor
from watcher.errors import WatcherError
from watcher.settings import Settings
from watcher.telemetry import Telemetry

_log = logging.getLogger(__name__)
_GRACE_SECONDS = 5


class ServerError(WatcherError):
    """The address cannot be listened on."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or not ours.
    """
    listener = _listen(settings.server.host, settings.server.port)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _log.info("serving", extra={"url": f"http://{shown}:{port}/watcher", "provider": settings.provider.name})
    _Application(settings, listener).run()


def collect_garbage_less_often() -> None:
    """Tune the garbage collector for large fetches: what 5,000 nodes bring is half a million objects without cycles.

    By default it looks at them all again and again while they are read, for a fifth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


class _Application(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        super().__init__()

    def load_config(self) -> None:
        options: dict[str, Any] = {
            "bind": [f"fd://{self._listener.fileno()}"],
            "workers": 1,
            "worker_class": _Worker,
            "threads": self._settings.server.threads,
            "graceful_timeout": _GRACE_SECONDS,
            "keepalive": 30,
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
        collect_garbage_less_often()
        telemetry = Telemetry()
        watcher = open_watcher(self._settings, self._settings.store.path, telemetry)
        watcher.start()
        doctor = Doctor(self._settings)
        doctor.start()
        app = create_app(watcher, self._settings.server, telemetry, doctor)
        app.extensions["trimaran.watcher"] = watcher
        app.extensions["trimaran.doctor"] = doctor
        return app


class _Worker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, with our error body for requests that it refuses itself."""

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        status = {LimitRequestLine: "414 URI Too Long", LimitRequestHeaders: "431 Request Header Fields Too Large"}
        if isinstance(exc, OSError):
            super().handle_error(req, client, addr, exc)
            return
        line = status.get(type(exc), "400 Bad Request")
        body = wire.encode_error(wire.ErrorCode.BAD_REQUEST, f"the request cannot be read: {line.partition(' ')[2]}")
        head = f"HTTP/1.1 {line}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        with contextlib.suppress(OSError):
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


class _Logger(Logger):  # type: ignore[misc]
    """gunicorn's messages, through our own handlers."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


def _worker_exit(_arbiter: Any, worker: Any) -> None:
    app = getattr(worker, "wsgi", None)  # one that failed to start has none
    if app is not None:
        app.extensions["trimaran.doctor"].stop()
        app.extensions["trimaran.watcher"].stop()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        why = "is in use; is another watcher running?" if number == errno.EADDRINUSE else f"cannot be used: {error}."
        raise ServerError(
            f"{host} port {port} {why} Choose with --host and --port (TRIMARAN_SERVER__HOST, TRIMARAN_SERVER__PORT)"
        ) from error
