"""Serving any application: gunicorn in this process, one worker of ours, which is respawned when it dies.

Knows nothing of the watcher or its settings; ``service`` is the watcher's use of it.
"""

import errno
import gc
import logging
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from runtime.errors import ServerError
from runtime.server.fast_path import FastPath
from runtime.server.tls import TlsContext
from runtime.server.worker import GRACE_SECONDS, Worker

MAX_BODY_BYTES = 8 << 20
_log = logging.getLogger(__name__)
# For a worker to end before it is killed: with its requests, then with what it does. Docker kills all after ten.
_END_SECONDS = GRACE_SECONDS + 4
# For a port to be free: a killed master's worker sees within a second that it is alone, and takes its grace to end.
_PORT_SECONDS = 2 + _END_SECONDS


@dataclass(frozen=True, slots=True)
class Listener:
    """Where connections come in, and how they are secured, if they are."""

    sock: socket.socket
    tls: TlsContext | None = None

    def secure(self, sock: socket.socket) -> socket.socket:
        """Return a connection as it is spoken to: itself, or secured."""
        return sock if self.tls is None else self.tls.wrap(sock)


def listen(host: str, port: int, host_setting: str = "server.host", port_setting: str = "server.port") -> socket.socket:
    """Listen on an address; one that is in use is waited for, as a killed service's worker needs a while to end.

    Args:
        host: a name or an address.
        port: 0 takes any free one.
        host_setting: that errors name.
        port_setting: that errors name.

    Raises:
        ServerError: the address is in use, or not ours.
    """
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
                why = "is in use; is another one running?" if taken else f"cannot be used: {error}."
                flags = " with --host and --port" if port_setting == "server.port" else ""
                raise ServerError(
                    f"{host} port {port} {why} Choose another{flags} ({host_setting}, {port_setting})"
                ) from error
        if not waiting:
            _log.info("the port is in use, waiting for it", extra={"port": port, "seconds": _PORT_SECONDS})
            waiting = True
        time.sleep(0.1)


def serve(
    start: Callable[[], FastPath],
    listeners: Sequence[Listener],
    *,
    threads: int,
    max_body_bytes: int = MAX_BODY_BYTES,
    stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Args:
        start: begins what the worker does, in the worker, and returns the application over it.
        listeners: where connections come in.
        threads: how many requests are answered at the same time, beside those whose answer is known.
        max_body_bytes: of a request; larger ones are refused.
        stop: ends in the worker what ``start`` began.
    """
    gc.freeze()  # what the worker inherits stays where it is, in memory that both have in common
    Application(start, listeners, threads, max_body_bytes, stop).run()


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


class Application(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """What gunicorn runs; ``secure`` and ``max_body_bytes`` are for the worker."""

    def __init__(
        self,
        start: Callable[[], FastPath],
        listeners: Sequence[Listener],
        threads: int,
        max_body_bytes: int,
        stop: Callable[[], None],
    ) -> None:
        self.secure = [listener.secure for listener in listeners]  # in the order of the worker's sockets
        self._binds = [f"fd://{listener.sock.detach()}" for listener in listeners]  # gunicorn makes its own of them
        self.max_body_bytes = max_body_bytes
        self._start = start
        self._stop = stop
        self._threads = threads
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn up."""
        options: dict[str, Any] = {
            "bind": self._binds,
            "workers": 1,
            "worker_class": Worker,
            "threads": self._threads,
            "graceful_timeout": _END_SECONDS,
            "logger_class": _Logger,
            "loglevel": "warning",
            "proc_name": "trimaran",
            "control_socket_disable": True,
            "worker_exit": self._worker_exit,
        }
        if Path("/dev/shm").is_dir():  # noqa: S108  the heartbeat file; works with a read-only root
            options["worker_tmp_dir"] = "/dev/shm"  # noqa: S108
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> FastPath:
        """Begin, in the worker, and return the application."""
        tune_interpreter()
        return self._start()

    def _worker_exit(self, _arbiter: Any, worker: Any) -> None:
        if hasattr(worker, "wsgi"):  # one that failed to start has none
            _log.info("stopping")
            self._stop()


class _Logger(Logger):  # type: ignore[misc]
    """gunicorn's messages, through our own handlers."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True
