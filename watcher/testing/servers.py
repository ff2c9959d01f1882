"""Configurable HTTP servers for fake sources."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any


@dataclass
class FakeServer:
    """HTTP server on loopback with one handler; ``requests`` has the path and the headers of each request."""

    server: ThreadingHTTPServer
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Base URL of the server."""
        return f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def run_server(server: BaseServer) -> Iterator[None]:
    """Run a server in a thread until the block ends, then close it and its connections, and wait for its thread.

    A connection on which no whole request arrives would keep a thread of the server. It may come from any process that
    knows the port from an earlier server.
    """
    connections: set[Any] = set()
    process, close = server.process_request, server.shutdown_request

    def process_request(request: Any, address: Any) -> None:
        connections.add(request)
        process(request, address)

    def shutdown_request(request: Any) -> None:
        connections.discard(request)
        close(request)

    server.process_request, server.shutdown_request = process_request, shutdown_request  # type: ignore[assignment,method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        for connection in list(connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()


@contextmanager
def serving(
    answer: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None
) -> Iterator[FakeServer]:
    """Run a server that calls ``answer`` for each GET and POST request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.requests.append((self.path, dict(self.headers)))
            try:
                answer(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_POST = do_GET  # noqa: N815  the name that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # such as a client that refuses the certificate and closes the connection

    server = Server(("127.0.0.1", 0), Handler)
    fake = FakeServer(server)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with run_server(server):
        yield fake


def reply(
    handler: BaseHTTPRequestHandler, body: bytes | str | Mapping[str, Any], status: int = 200, **headers: str
) -> None:
    """Send a response. A mapping is sent as JSON; underscores in header names become hyphens."""
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def trickling() -> Iterator[str]:
    """Run a server that sends one byte every 50 ms without end; yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def send_slowly(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not stopped.wait(0.05):
                    connection.sendall(b" ")
            except OSError:
                pass  # the client has closed the connection, as it should

    def accept() -> None:
        while not stopped.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=send_slowly, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
