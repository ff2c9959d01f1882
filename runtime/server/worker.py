"""A gunicorn worker that no client can hold up: threads have whole requests only, and hand whole answers back.

gunicorn's own threaded worker gives a connection a thread from its first byte until its answer is taken. Here one loop
waits for all clients (``connections``), answers by itself what is known, and gives the rest to the threads. What is
gunicorn's: the master, signals, the heartbeat, the parser of heads, and how an application's answer is written.
"""

import contextlib
import logging
import os
import selectors
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from gunicorn.http.wsgi import Response
from gunicorn.workers.base import Worker as BaseWorker

from runtime.server import connections
from runtime.server import responses as answers
from runtime.server.access import certified_until
from runtime.server.connection import Connection, Reply
from runtime.server.connections import Connections, Listener
from runtime.server.errors import ErrorCode
from runtime.server.fast_path import Finished
from runtime.server.requests import Head, Refused, environ

_log = logging.getLogger(__name__)

GRACE_SECONDS = 5  # for requests that are under way when it is to stop
_TICK_SECONDS = 1.0
_APART_NICENESS = 19


class Worker(BaseWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's worker; its application is a ``Front``, with ``listeners`` and ``max_body_bytes`` from ``serving``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._answered: deque[tuple[Connection, Reply]] = deque()
        self._date = (0, "")
        self._pool = ThreadPoolExecutor(self.cfg.threads)  # which begins no thread before there is work
        self._apart = ThreadPoolExecutor(self.cfg.threads, initializer=_give_way)
        self.alive: bool = True

    def run(self) -> None:
        """Serve until told to stop."""
        self._poller = selectors.DefaultSelector()
        self._poller.register(self.PIPE[0], selectors.EVENT_READ)
        listeners = map(Listener, self.sockets, self.app.secure)
        self._connections = Connections(self._poller, listeners, self._connect, connections.limit())
        next_tick = 0.0
        while self.alive:
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_SECONDS
                self.notify()
                if self.ppid != os.getppid():
                    self.log.info("Parent changed, shutting down: %s", self)
                    break
            self._turn()
        self.alive = False
        self._connections.stop(time.monotonic())
        end = time.monotonic() + GRACE_SECONDS
        while len(self._connections) and time.monotonic() < end:
            self.notify()
            self._turn()
        self._connections.close()
        self._dismiss()
        self._poller.close()

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Stop at once."""
        self._dismiss()
        super().handle_quit(sig, frame)

    def _dismiss(self) -> None:
        """Have the threads begin nothing more."""
        for pool in (self._pool, self._apart):
            pool.shutdown(wait=False, cancel_futures=True)

    def _turn(self) -> None:
        """Do what clients, threads and signals bring."""
        events = self._poller.select(self._connections.patience_seconds)
        now = time.monotonic()
        self._connections.catch_up(now)
        for key, mask in events:
            found = key.data
            if isinstance(found, Connection):
                self._connections.ready(found, mask, now)
            elif found is not None:
                self._connections.accept(found, now)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.PIPE[0], 4096)
        while self._answered:
            self._connections.answered(*self._answered.popleft(), now)
        self._connections.look_after(now)

    def _connect(self, sock: Any, client: Any, server: Any, now: float) -> Connection:
        return Connection(sock, client, server, self.app.max_body_bytes, self._answer, self._refuse, now)

    def _answer(self, connection: Connection, head: Head, body: bytes) -> Reply | None:
        """Return what is known; give what is not to a thread."""
        keep = head.keep and self.alive
        if connection.is_secure:
            until = certified_until(connection.sock)
            keep = keep and (until is None or time.time() < until)  # a renewed one comes with another handshake
        asked = environ(head, body, connection.client, connection.server, connection.sock)
        found = self.wsgi.known(asked)
        if found is None:
            pool = self._apart if self.wsgi.is_apart(asked) else self._pool
            pool.submit(self._work, connection, head, asked, keep)
            return None
        return self._reply(found, head, keep)

    def _work(self, connection: Connection, head: Head, asked: dict[str, Any], keep: bool) -> None:
        """Have it computed, or the application answer, in a thread."""
        found = None
        try:
            found = self.wsgi.computed(asked)
            reply = self._routed(head, asked, keep) if found is None else self._reply(found, head, keep)
        except Exception:  # noqa: BLE001  it costs one answer
            _log.exception("a request failed", extra={"path": head.request.path[:200]})
            message = "the service failed to answer; its log says why"
            reply = self._error(HTTPStatus.INTERNAL_SERVER_ERROR, ErrorCode.INTERNAL, message, head_only=False)
        try:
            self._answered.append((connection, connection.send_early(reply)))
            with contextlib.suppress(OSError):  # full: it wakes the loop all the same
                os.write(self.PIPE[1], b".")
        finally:
            if found is not None and found.afterwards is not None:
                found.afterwards()

    def _reply(self, found: Finished, head: Head, keep: bool) -> Reply:
        version = head.request.version
        encoded = answers.encode(found.status, found.fields, date=self._now(), keep=keep, version=version)
        return Reply((encoded, found.body), keep)

    def _routed(self, head: Head, asked: dict[str, Any], keep: bool) -> Reply:
        """Return what the application answers."""
        sent = _Sent()
        response = Response(head.request, sent, self.cfg)
        if not keep:
            response.force_close()
        found = self.wsgi(asked, response.start_response)
        try:
            for piece in found:
                response.write(piece)
            response.close()
        finally:
            if hasattr(found, "close"):
                found.close()
        return Reply(sent.pieces, not response.should_close())

    def _refuse(self, refused: Refused) -> Reply:
        """Answer what is no request in our shape of errors."""
        code, message = ErrorCode.BAD_REQUEST, f"the request cannot be read: {refused.status.phrase}"
        if refused.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            code = ErrorCode.TOO_LARGE
            message = f"the request's body is too large: at most {self.app.max_body_bytes} bytes are read"
        return self._error(refused.status, code, message, head_only=refused.head_only)

    def _error(self, status: HTTPStatus, code: str, message: str, *, head_only: bool) -> Reply:
        answer = answers.error(status, code, message)
        fields = answer.head()
        answers.finish(fields, locked=False)
        head = answers.encode(status, fields, date=self._now(), keep=False)
        return Reply((head,) if head_only else (head, answer.body), keep=False)

    def _now(self) -> str:
        second = int(time.time())
        if second != self._date[0]:
            self._date = second, formatdate(second, usegmt=True)
        return self._date[1]


def _give_way() -> None:
    """Have this thread run when no other one wants to; where threads have priorities of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _APART_NICENESS)


class _Sent:
    """What gunicorn takes for a connection: keeps what is sent."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.pieces.append(data)
