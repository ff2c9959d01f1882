"""Connections: gunicorn's threaded worker, made safe against clients that are slow, on purpose or not.

gunicorn gives a connection a thread as soon as it is there, and waits in it for the request; as many clients as there
are threads then keep everyone else out by sending a byte now and then, or by not closing. Here a connection, also while
TLS is set up, waits in the worker's poller until the head of a request is whole, and has a thread only while it is
answered.
"""

import contextlib
import math
import socket
import ssl
import time
from typing import Any

from gunicorn import http
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine
from gunicorn.workers import gthread

from watcher import wire
from watcher.access import certified_until
from watcher.errors import SettingsError
from watcher.rereading import Reread
from watcher.settings import ServerSettings

HEAD_SECONDS = 10.0  # from a request's first byte to the end of its head
ANSWER_SECONDS = 15.0  # to take an answer
_LINGER_SECONDS = 2.0  # for a client to close, so that it gets the end of the answer
_MAX_HEAD_BYTES = 65536
_END_OF_HEAD = b"\r\n\r\n"
_WAIT = gthread._DEFER  # noqa: SLF001  what a worker's handle() returns to have the connection watched by the poller
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError)

#: gunicorn's settings that go with this worker.
OPTIONS: dict[str, Any] = {
    "keepalive": 30,
    "worker_connections": 900,  # with the rest below 1024 files, the usual limit
    "limit_request_line": 4094,
    "limit_request_fields": 64,
    "limit_request_field_size": 8190,
}


class TlsContext:
    """How connections are secured; certificates are read anew when their files change."""

    def __init__(self, settings: ServerSettings) -> None:
        """Read the certificates.

        Raises:
            SettingsError: they cannot be used.
        """
        self._certificate = settings.certificate
        self._key = settings.key
        self._client_ca_file = settings.client_ca_file
        files = [file for file in (self._certificate, self._key, self._client_ca_file) if file is not None]
        try:
            self._context = Reread(files, self._make)
        except ValueError as error:
            raise SettingsError([str(error)]) from error

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Return a secured socket; its handshake happens as bytes come."""
        return self._context.get().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _make(self) -> ssl.SSLContext:
        assert self._certificate is not None  # noqa: S101  who has none does not come here
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
        except OSError as error:
            raise ValueError(f"server.certificate = {str(self._certificate)!r} with server.key: {error}") from error
        if self._client_ca_file is not None:
            try:
                context.load_verify_locations(self._client_ca_file)
            except OSError as error:
                raise ValueError(f"server.client_ca_file = {str(self._client_ca_file)!r}: {error}") from error
            # Probes have none. Whatever is not open is refused to them with a status.
            context.verify_mode = ssl.CERT_OPTIONAL
            # A session that is taken up again is not verified again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context


class Worker(gthread.ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's threaded worker, which waits for clients without a thread, and not for ever."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._answering: dict[Any, float] = {}

    def handle(self, conn: Any) -> Any:
        """Go on with a connection: answer when the head of a request is there, else let the poller watch it."""
        if vars(conn).get("closing_at"):
            return self._linger(conn)
        try:
            self._receive(conn)
        except _NOT_YET:
            late = time.monotonic() > vars(conn).get("head_until", math.inf)
            return _hang_up(conn) if late else _WAIT
        except LimitRequestHeaders as error:
            self.handle_error(None, conn.sock, conn.client, error)
            return self._finish(conn)
        except OSError:  # it closed, or does not speak TLS
            return _hang_up(conn)
        self._answering[conn] = time.monotonic() + ANSWER_SECONDS
        try:
            return super().handle(conn) or self._finish(conn)
        finally:
            del self._answering[conn]

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer, and close the connection after a body, which nothing here reads, and after a certificate's expiry."""
        headers = dict(req.headers)
        if headers.get("CONTENT-LENGTH", "0") != "0" or "TRANSFER-ENCODING" in headers:
            req.force_close()
        until = certified_until(conn.sock)
        if until is not None and time.time() >= until:
            req.force_close()  # a renewed one comes with another handshake
        return super().handle_request(req, conn)

    def murder_pending(self) -> None:
        """Close connections that wait for too long; the worker calls this every second."""
        super().murder_pending()
        now = time.monotonic()
        for conn, until in list(self._answering.items()):
            if now > until:
                _hang_up(conn)

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
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
            client.sendall(head.encode() + body)

    def _receive(self, conn: Any) -> None:
        """Read what has come, until the head of a request is whole, and hand that to gunicorn's parser.

        Raises:
            BlockingIOError, ssl.SSLWantReadError: it is not whole yet.
            OSError: the client has gone.
            LimitRequestHeaders: it is too long.
        """
        if conn.sock.gettimeout() != 0:  # is a system call less for most
            conn.sock.setblocking(False)
        if "head" not in vars(conn):
            if conn.parser is None and not conn.sock.recv(1, socket.MSG_PEEK):
                raise ConnectionError
            conn.head, conn.head_until = b"", time.monotonic() + HEAD_SECONDS
            if conn.parser is not None:
                conn.head = conn.parser.unreader.take_buffered()
            elif (tls := self._tls(conn)) is not None:
                conn.sock = tls.wrap(conn.sock)
        while _END_OF_HEAD not in conn.head:
            if len(conn.head) > _MAX_HEAD_BYTES:
                raise LimitRequestHeaders("limit request headers total size")
            arrived = conn.sock.recv(16384)
            if not arrived:
                raise ConnectionError
            conn.head = (conn.head + arrived).lstrip(b"\r\n")  # empty lines before a request are none of its
        if conn.parser is None:
            conn.parser, conn.initialized = http.get_parser(self.cfg, conn.sock, conn.client), True
        conn.parser.unreader.unread(conn.head)
        del conn.head, conn.head_until

    def _tls(self, conn: Any) -> TlsContext | None:
        tls: TlsContext | None = self.app.tls_by_port.get(conn.server[1])
        return tls

    def _finish(self, conn: Any) -> Any:
        """Close our side, and wait in the poller for the client to close its own; gunicorn does it in its main loop."""
        try:
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return _hang_up(conn)
        conn.closing_at = time.monotonic() + _LINGER_SECONDS
        return self._linger(conn)

    def _linger(self, conn: Any) -> Any:
        try:
            conn.sock.setblocking(False)
            while time.monotonic() < conn.closing_at and conn.sock.recv(65536):
                pass
        except _NOT_YET:
            if self.alive:
                return _WAIT
        except OSError:
            pass
        return _hang_up(conn)


def _hang_up(conn: Any) -> bool:
    """End a connection, so that gunicorn, which closes it, need not wait for the client."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(conn.sock, socket.SHUT_RDWR)  # TCP's, not TLS's: also while another thread sends
    return False
