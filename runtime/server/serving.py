"""gunicorn in this process, for any WSGI application: one worker process, which is restarted when it dies.

Does not depend on settings; ``service`` starts it for a service's settings.
"""

import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from runtime.errors import ServerError
from runtime.server.fast_path import FastPath
from runtime.server.tls import TlsContext
from runtime.server.worker import GRACE_SECONDS, Worker

MAX_BODY_BYTES = 8 << 20
_log = logging.getLogger(__name__)
# Time for a worker to stop before it is killed: for its requests, then for its own work. Docker kills all after 10 s.
_END_SECONDS = GRACE_SECONDS + 4
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
# Time to wait for a port. The worker of a killed master notices within 1 s and then stops within its grace period.
_PORT_SECONDS = 2 + _END_SECONDS


@dataclass(frozen=True, slots=True)
class Listener:
    """Listening socket, with its TLS settings for HTTPS."""

    sock: socket.socket
    tls: TlsContext | None = None

    def secure(self, sock: socket.socket) -> socket.socket:
        """Return the socket to use for an accepted socket: a TLS socket, or the same socket for plain HTTP."""
        return sock if self.tls is None else self.tls.wrap(sock)


def listen(host: str, port: int, host_setting: str = "server.host", port_setting: str = "server.port") -> socket.socket:
    """Listen on an address. If it is in use, retry for a while, as the worker of a killed service needs time to stop.

    Args:
        host: a host name or an IP address; an IPv6 address may be in brackets, as in a URL. ``::`` stands for all
            addresses; on a machine without IPv6, for all IPv4 addresses.
        port: the port; 0 selects any free port.
        host_setting: setting of the host that errors name.
        port_setting: setting of the port that errors name.

    Raises:
        ServerError: the address is in use, or does not belong to this machine.
    """
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    both = host == "::" and socket.has_dualstack_ipv6()
    if host == "::" and not both:
        host = "0.0.0.0"  # noqa: S104  asked for by "::"
    until = time.monotonic() + _PORT_SECONDS
    waiting = False
    while True:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=both)
        except (OSError, OverflowError) as error:
            in_use = getattr(error, "errno", None) == errno.EADDRINUSE
            if not in_use or time.monotonic() > until:
                why = "is in use; is another service running?" if in_use else f"cannot be used: {error}."
                flags = " with --host and --port" if port_setting == "server.port" else ""
                raise ServerError(
                    f"{host} port {port} {why} Choose another address{flags} ({host_setting}, {port_setting})"
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
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Args:
        start: called in the worker process; starts the service's work and returns its application.
        listeners: sockets to accept connections from.
        threads: number of requests that are processed at the same time, not counting cached responses.
        max_body_bytes: size limit of a request's body.
        stop: called in the worker process when it exits; stops the work that ``start`` began.
    """
    gc.freeze()  # keeps the garbage collector away from memory that master and worker share after the fork
    os.register_at_fork(after_in_parent=_unblock)
    _block()  # until the first fork: the caller's handlers may raise, which gunicorn does not expect while it starts
    Application(start, listeners, threads, max_body_bytes, stop).run()


def _block() -> None:
    """Hold stop signals back; they arrive after :func:`_unblock`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)


def _unblock() -> None:
    """Let stop signals through again, in the master and in its worker."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)


def tune_interpreter() -> None:
    """Tune Python so that requests are answered quickly while a large fetch is processed.

    A fetch of 5,000 nodes creates half a million objects without reference cycles. By default the garbage collector
    traverses them repeatedly, which takes a fifth of the time. A request waits for the GIL several times while a
    snapshot is decoded or encoded; a shorter switch interval makes these waits ten times shorter.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    sys.setswitchinterval(0.0005)


class Application(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn application. The worker reads ``secure`` and ``max_body_bytes``."""

    def __init__(
        self,
        start: Callable[[], FastPath],
        listeners: Sequence[Listener],
        threads: int,
        max_body_bytes: int,
        stop: Callable[[], None],
    ) -> None:
        self.secure = [listener.secure for listener in listeners]  # in the order of the worker's sockets
        self._binds = [f"fd://{listener.sock.detach()}" for listener in listeners]  # gunicorn opens them by number
        self.max_body_bytes = max_body_bytes
        self._start = start
        self._stop = stop
        self._threads = threads
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn's options."""
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
            "pre_fork": self._pre_fork,
            "post_fork": self._post_fork,
            "worker_exit": self._worker_exit,
        }
        if Path("/dev/shm").is_dir():  # noqa: S108  for the heartbeat file, which works with a read-only root
            options["worker_tmp_dir"] = "/dev/shm"  # noqa: S108
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> FastPath:
        """Start the service's work and return its application. Runs in the worker process."""
        tune_interpreter()
        return self._start()

    def _pre_fork(self, _arbiter: Any, _worker: Any) -> None:
        """Hold signals back from a new worker until it has handlers; its master unblocks its own after the fork.

        A signal that reaches a process before Python has finished the fork is forgotten: ``os.fork`` clears pending
        signals in the child. The master would then wait for the worker until the end of the graceful timeout.
        """
        _block()

    def _post_fork(self, _arbiter: Any, _worker: Any) -> None:
        """End a new worker that is to stop before it has its own signal handlers.

        Right after the fork it has those of the master, which put signals into a queue that nobody reads here.
        """
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda *_: sys.exit(0))
        _unblock()

    def _worker_exit(self, _arbiter: Any, worker: Any) -> None:
        if hasattr(worker, "wsgi"):  # False for a worker that failed to start
            _log.info("stopping")
            self._stop()


class _Logger(Logger):  # type: ignore[misc]
    """gunicorn's logger, with its messages passed to the handlers of the root logger."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True
