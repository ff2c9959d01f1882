"""gunicorn worker that slow clients cannot block: threads get complete requests, and return complete responses.

gunicorn's own threaded worker occupies a thread from a connection's first byte until the client received the response.
Here one event loop serves all clients (``connections``), sends cached responses itself, and passes other requests to
threads. The master process, signals, the heartbeat, the parser of heads and the encoding of an application's responses
are gunicorn's.
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

from runtime.server import connections, responses
from runtime.server.access import certificate_expiry
from runtime.server.connection import Connection, EncodedResponse
from runtime.server.connections import Connections, ListeningSocket
from runtime.server.errors import ErrorCode
from runtime.server.fast_path import FinishedResponse
from runtime.server.requests import RejectedRequest, RequestHead, make_environ

_log = logging.getLogger(__name__)

GRACE_SECONDS = 5  # time to finish current requests after a signal to stop
_TICK_SECONDS = 1.0
_BACKGROUND_NICENESS = 19


class Worker(BaseWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn worker for a ``FastPath``. ``serving`` sets ``secure`` and ``max_body_bytes`` of its gunicorn app."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._responses: deque[tuple[Connection, EncodedResponse]] = deque()
        self._date = (0, "")
        self._pool = ThreadPoolExecutor(self.cfg.threads)  # starts threads on demand
        self._background = ThreadPoolExecutor(self.cfg.threads, initializer=_lower_priority)
        self.alive: bool = True
        self._grace_seconds = GRACE_SECONDS

    def run(self) -> None:
        """Serve until a signal to stop."""
        self._poller = selectors.DefaultSelector()
        self._poller.register(self.PIPE[0], selectors.EVENT_READ)
        listeners = map(ListeningSocket, self.sockets, self.app.secure)
        self._connections = Connections(self._poller, listeners, self._connect, connections.connection_limit())
        next_tick = 0.0
        while self.alive:
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_SECONDS
                self.notify()
                if self.ppid != os.getppid():
                    self.log.info("Parent changed, shutting down: %s", self)
                    break
            self._poll_once()
        self.alive = False
        self._connections.stop(time.monotonic())
        begin = time.monotonic()
        while len(self._connections) and time.monotonic() < begin + self._grace_seconds:
            self.notify()
            self._poll_once()
        self._connections.close()
        for pool in (self._pool, self._background):
            pool.shutdown(wait=False, cancel_futures=True)
        self._poller.close()

    def handle_quit(self, _signal: int, _frame: Any) -> None:
        """Stop without finishing requests: make ``run`` end, since an exception here could interrupt any of its steps.

        Shutting down the pools here would block forever if the signal arrives while a pool accepts a request.
        """
        self.alive = False
        self._grace_seconds = 0

    def _poll_once(self) -> None:
        """Wait for events of clients, threads and signals once, and handle them."""
        events = self._poller.select(self._connections.poll_timeout)
        now = time.monotonic()
        self._connections.resume_backlog(now)
        for key, mask in events:
            target = key.data
            if isinstance(target, Connection):
                self._connections.handle_events(target, mask, now)
            elif target is not None:
                self._connections.accept(target, now)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.PIPE[0], 4096)
        while self._responses:
            self._connections.respond(*self._responses.popleft(), now)
        self._connections.enforce_limits(now)

    def _connect(self, sock: Any, client: Any, server: Any, now: float) -> Connection:
        return Connection(sock, client, server, self.app.max_body_bytes, self._handle, self._reject, now)

    def _handle(self, connection: Connection, head: RequestHead, body: bytes) -> EncodedResponse | None:
        """Return the response if it is cached; otherwise pass the request to a thread and return None."""
        keep_alive = head.keep_alive and self.alive
        if connection.is_secure:
            until = certificate_expiry(connection.sock)
            # After expiry the client must connect again, as only a handshake can verify a renewed certificate.
            keep_alive = keep_alive and (until is None or time.time() < until)
        environ = make_environ(head, body, connection.client, connection.server, connection.sock)
        finished = self.wsgi.cached(environ)
        if finished is None:
            if self.wsgi.is_background(environ):
                self._background.submit(self._process_if_awaited, connection, head, environ, keep_alive)
            else:
                self._pool.submit(self._process, connection, head, environ, keep_alive)
            return None
        return self._encode(finished, head, keep_alive)

    def _process_if_awaited(
        self, connection: Connection, head: RequestHead, environ: dict[str, Any], keep_alive: bool
    ) -> None:
        """Process a request if its client still waits: requests of clients that gave up would delay later requests."""
        if connection.has_left():
            self._responses.append((connection, EncodedResponse((), keep_alive=False)))
            self._wake()
        else:
            self._process(connection, head, environ, keep_alive)

    def _process(self, connection: Connection, head: RequestHead, environ: dict[str, Any], keep_alive: bool) -> None:
        """Compute a response in a thread, by the fast path's handler or by the application, and send it."""
        try:
            finished = self.wsgi.handler(environ)
            if finished is None:
                encoded = self._route(head, environ, keep_alive)
            else:
                encoded = self._encode(finished, head, keep_alive)
        except Exception:  # noqa: BLE001  a failed request must not end the thread
            _log.exception("a request failed", extra={"path": head.request.path[:200]})
            message = "the service failed to answer; its log says why"
            encoded = self._error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, ErrorCode.INTERNAL, message, head_only=False
            )
        self._responses.append((connection, connection.send_early(encoded)))
        self._wake()

    def _wake(self) -> None:
        """Wake the event loop."""
        with contextlib.suppress(OSError):  # if the pipe is full, its content wakes the loop anyway
            os.write(self.PIPE[1], b".")

    def _encode(self, finished: FinishedResponse, head: RequestHead, keep_alive: bool) -> EncodedResponse:
        version = head.request.version
        encoded = responses.encode_head(
            finished.status, finished.fields, date=self._now(), keep_alive=keep_alive, version=version
        )
        return EncodedResponse((encoded, finished.body), keep_alive)

    def _route(self, head: RequestHead, environ: dict[str, Any], keep_alive: bool) -> EncodedResponse:
        """Return the response of the WSGI application, which routes the request."""
        sent = _SendBuffer()
        response = Response(head.request, sent, self.cfg)
        if not keep_alive:
            response.force_close()
        body = self.wsgi(environ, response.start_response)
        try:
            for piece in body:
                response.write(piece)
            response.close()
        finally:
            if hasattr(body, "close"):
                body.close()
        return EncodedResponse(sent.pieces, not response.should_close())

    def _reject(self, rejected: RejectedRequest) -> EncodedResponse:
        """Return the error response to a malformed or too large request."""
        code, message = ErrorCode.BAD_REQUEST, f"the request cannot be read: {rejected.status.phrase}"
        if rejected.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            code = ErrorCode.TOO_LARGE
            message = f"the request's body is too large: at most {self.app.max_body_bytes} bytes are read"
        return self._error_response(rejected.status, code, message, head_only=rejected.head_only)

    def _error_response(self, status: HTTPStatus, code: str, message: str, *, head_only: bool) -> EncodedResponse:
        response = responses.error_response(status, code, message)
        fields = response.header_fields()
        responses.add_common_headers(fields, private=False)
        head = responses.encode_head(status, fields, date=self._now(), keep_alive=False)
        return EncodedResponse((head,) if head_only else (head, response.body), keep_alive=False)

    def _now(self) -> str:
        second = int(time.time())
        if second != self._date[0]:
            self._date = second, formatdate(second, usegmt=True)
        return self._date[1]


def _lower_priority() -> None:
    """Give the calling thread the lowest priority; on Linux only, where threads have priorities of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BACKGROUND_NICENESS)


class _SendBuffer:
    """Stand-in for the socket in gunicorn's ``Response``: collects the bytes of a response."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.pieces.append(data)
