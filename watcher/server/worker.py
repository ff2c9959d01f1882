"""Connections: gunicorn's threaded worker, made safe against clients that are slow, on purpose or not.

gunicorn gives a connection a thread as soon as it is there, and waits in it for the request and until the answer is
taken; as many clients as there are threads then keep everyone else out by sending a byte now and then, by taking
nothing, or by not closing. Here a connection waits for its client in the worker's poller, also while TLS is set up, and
has a thread only while there is something to do. And where there are many connections gunicorn takes no more; here the
one that has been waited for longest makes room.
"""

import contextlib
import selectors
import socket
import time
from functools import partial
from typing import Any

from gunicorn import http
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine
from gunicorn.workers import gthread

from watcher import wire
from watcher.server.access import certified_until
from watcher.server.sockets import NOT_YET, BufferedSocket

HEAD_SECONDS = 5.0  # from the beginning of a connection, or of a later request, to the end of the request's head
ANSWER_SECONDS = 60.0  # to take an answer
_MAX_SENDING = 64  # answers that wait for their clients: each may be megabytes that nobody else holds
_LINGER_SECONDS = 2.0  # for a client to close, so that it gets the end of the answer
_MAX_HEAD_BYTES = 65536
_END_OF_HEAD = b"\r\n\r\n"
_WAIT = gthread._DEFER  # noqa: SLF001  what a worker's handle() returns to have the poller watch for what comes
_SENDING = object()  # the same for what goes

#: gunicorn's settings that go with this worker.
OPTIONS: dict[str, Any] = {
    "keepalive": 30,
    "worker_connections": 900,  # with the rest below 1024 files, the usual limit
    "limit_request_line": 4094,
    "limit_request_fields": 64,
    "limit_request_field_size": 8190,
}


class Worker(gthread.ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's threaded worker, which waits for clients without a thread, and not for ever.

    Of a connection it keeps ``step``, what to do when its client has done something, ``since``, when waiting for that
    began, and ``until``, when it ends.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._next_look = 0.0

    # -- in the main loop ------------------------------------------------------------------------------------------

    def accept(self, listener: Any) -> None:
        """Take a connection; where there are many, in place of the one that has been waited for longest."""
        if self.nr_conns >= self.worker_connections - 1:  # at the limit gunicorn takes none
            self._close_longest([*self.pending_conns, *self.keepalived_conns])
        super().accept(listener)

    def finish_request(self, conn: Any, fs: Any) -> None:
        """Have the poller watch a connection for what is waited for."""
        outcome = False
        with contextlib.suppress(Exception):  # the client has gone
            outcome = fs.result()
        if outcome is _SENDING:
            sending = [each for each in self.pending_conns if vars(each).get("step") == self._send]
            if len(sending) >= _MAX_SENDING:
                self._close_longest(sending)
            self.poller.register(conn.sock, selectors.EVENT_WRITE, partial(self.on_pending_socket_readable, conn))
            self.pending_conns.append(conn)
        elif outcome:
            super().finish_request(conn, fs)
        else:
            self.nr_conns -= 1
            conn.close()  # at once: gunicorn would wait here for the client to close, and everyone with it

    def murder_pending(self) -> None:
        """Close connections that have been waited for too long; the worker calls this every second or more often."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 1
        for conn in [each for each in self.pending_conns if now > each.until]:
            self._close(conn)

    def _close_longest(self, waiting: list[Any]) -> None:
        if waiting:
            self._close(min(waiting, key=lambda conn: conn.since))

    def _close(self, conn: Any) -> None:
        (self.pending_conns if conn in self.pending_conns else self.keepalived_conns).remove(conn)
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    # -- in a thread -----------------------------------------------------------------------------------------------

    def handle(self, conn: Any) -> Any:
        """Go on with a connection as far as its client lets us, then let the poller watch it."""
        try:
            return vars(conn).get("step", self._read)(conn)
        except OSError:  # it closed, or does not speak TLS as we do, which is told to it
            return self._finish(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer, and close the connection after a body, which nothing here reads, and after a certificate's expiry."""
        headers = dict(req.headers)
        if headers.get("CONTENT-LENGTH", "0") != "0" or "TRANSFER-ENCODING" in headers:
            req.force_close()
        until = certified_until(conn.sock)
        if until is not None and time.time() >= until:
            req.force_close()  # a renewed one comes with another handshake
        return super().handle_request(req, conn)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what gunicorn refuses itself in our shape of errors."""
        status = {LimitRequestLine: "414 URI Too Long", LimitRequestHeaders: "431 Request Header Fields Too Large"}
        if isinstance(exc, OSError):
            super().handle_error(req, client, addr, exc)
            return
        line = status.get(type(exc), "400 Bad Request")
        body = wire.encode_error(wire.ErrorCode.BAD_REQUEST, f"the request cannot be read: {line.partition(' ')[2]}")
        head = (
            f"HTTP/1.1 {line}\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"X-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            client.sendall(head.encode() + (b"" if client.head_only else body))

    def _read(self, conn: Any) -> Any:
        """Read a request's head, and answer when it is whole."""
        keep = False
        try:
            self._receive(conn)
        except NOT_YET:
            return _WAIT if time.monotonic() < conn.until else False
        except LimitRequestHeaders as error:
            self.handle_error(None, conn.sock, conn.client, error)
        else:
            keep = super().handle(conn)
        conn.keep, conn.step = keep, self._send
        _wait(conn, ANSWER_SECONDS)
        return self._send(conn)

    def _receive(self, conn: Any) -> None:
        """Read what has come, until the head of a request is whole, and hand that to gunicorn's parser.

        Raises:
            BlockingIOError, ssl.SSLWantReadError: it is not whole yet.
            OSError: the client has gone.
            LimitRequestHeaders: it is too long.
        """
        if "head" not in vars(conn):
            _wait(conn, HEAD_SECONDS)
            if conn.parser is None:
                tls = self.app.tls_by_port.get(conn.server[1])
                conn.sock = tls.wrap(conn.sock) if tls else BufferedSocket(fileno=conn.sock.detach())
                conn.sock.setblocking(False)
                conn.head = b""
            else:
                conn.head = conn.parser.unreader.take_buffered()
        while True:
            conn.sock.head_only = conn.head.startswith(b"HEAD ")
            if _END_OF_HEAD in conn.head:
                break
            if len(conn.head) > _MAX_HEAD_BYTES:
                raise LimitRequestHeaders("limit request headers total size")
            arrived = conn.sock.recv(16384)
            if not arrived:
                raise ConnectionError
            conn.head = (conn.head + arrived).lstrip(b"\r\n")  # empty lines before a request are none of its
        if conn.parser is None:
            conn.parser, conn.initialized = http.get_parser(self.cfg, conn.sock, conn.client), True
        conn.parser.unreader.unread(conn.head)
        del conn.head

    def _send(self, conn: Any) -> Any:
        """Send what the client takes of the answer; then go on to the next request, or close."""
        if conn.sock.unsent and conn.sock.flush():
            conn.since = time.monotonic()
        if conn.sock.unsent:
            return _SENDING if time.monotonic() < conn.until else False
        conn.step = self._read
        return conn.keep or self._finish(conn)

    def _finish(self, conn: Any) -> Any:
        """Close our side, and wait in the poller for the client to close its own, so that it gets the answer's end."""
        conn.sock.shutdown(socket.SHUT_WR)
        conn.step = self._linger
        _wait(conn, _LINGER_SECONDS)
        return self._linger(conn)

    def _linger(self, conn: Any) -> Any:
        try:
            while time.monotonic() < conn.until and conn.sock.recv(65536):
                pass
        except NOT_YET:
            if self.alive:
                return _WAIT
        return False


def _wait(conn: Any, seconds: float) -> None:
    conn.since = time.monotonic()
    conn.until = conn.since + seconds
