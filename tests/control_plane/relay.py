"""A relay to the API server that can delay watch events and serve any certificate."""

import contextlib
import queue
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import requests
from control_plane.cluster import ControlPlane
from support.servers import run_server

_FORWARDED_HEADERS = ("Authorization", "Content-Type", "Accept")
_END = None


class Relay:
    """A TLS server that forwards requests to the API server. Use it as a context manager.

    Events of a watch are forwarded in order, as an API server sends them, so a delayed event delays all later events.

    Args:
        cluster: cluster with the API server.
        certificate: serving certificate, read again for each connection; a valid one by default.
        seed: seed for the random choice of delayed events.

    Attributes:
        url: address of the relay.
        delayed_share: share of watch events that are delayed, 0 to 1.
        delay_seconds: delay of these events.
        on_request: called with method and path before a request is forwarded, and with ``answered`` True when the API
            server has answered it, before the answer is forwarded.
    """

    def __init__(self, cluster: ControlPlane, certificate: Path | None = None, seed: int = 1) -> None:
        self.delayed_share, self.delay_seconds = 0.0, 0.0
        self.on_request: Callable[..., None] = lambda _method, _path, *, answered: None
        self._dice = random.Random(seed)
        self._api, self._authority = cluster.url, str(cluster.certificates.certificate)
        self._certificate = certificate or cluster.serving_certificate
        self._connections: set[socket.socket] = set()
        self._answers: set[requests.Response] = set()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                relay._forward(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  names that http.server requires

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def finish_request(self, request: Any, address: Any) -> None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(relay._certificate)
                with contextlib.suppress(OSError), context.wrap_socket(request, server_side=True) as secure:
                    relay._connections.add(secure)
                    try:
                        super().finish_request(secure, address)
                    finally:
                        relay._connections.discard(secure)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"https://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._running = run_server(self._server)
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)
        self.cut()

    def cut(self) -> None:
        """Close every open connection, also those to the API server: a watch there may be silent for minutes."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for answer in list(self._answers):
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # read to its end meanwhile
                answer.raw.shutdown()

    def _forward(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name: handler.headers[name] for name in _FORWARDED_HEADERS if name in handler.headers}
        headers["Accept-Encoding"] = "identity"
        self.on_request(handler.command, handler.path, answered=False)
        handler.close_connection = True  # unless the whole response is forwarded
        with (
            contextlib.suppress(requests.RequestException, OSError),
            requests.request(
                handler.command, self._api + handler.path, headers=headers, data=body, stream=True, timeout=60,
                verify=self._authority,
            ) as answer,
        ):  # fmt: skip
            self.on_request(handler.command, handler.path, answered=True)
            handler.send_response(answer.status_code)
            handler.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            watched = "watch=1" in handler.path
            self._answers.add(answer)
            try:
                for part in self._delayed_lines(answer) if watched else answer.iter_content(1 << 16):
                    handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            finally:
                self._answers.discard(answer)
            handler.wfile.write(b"0\r\n\r\n")
            handler.close_connection = False

    def _delayed_lines(self, answer: requests.Response) -> Iterator[bytes]:
        """Yield the lines of a watch, each when its delay is over."""
        lines: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()

        def read() -> None:
            with contextlib.suppress(
                requests.RequestException, OSError, AttributeError
            ):  # the response may be closed meanwhile
                for line in answer.iter_lines(chunk_size=None):
                    delay = self.delay_seconds if self._dice.random() < self.delayed_share else 0.0
                    lines.put((time.monotonic() + delay, line + b"\n"))
            lines.put(_END)

        threading.Thread(target=read, daemon=True).start()
        while (due := lines.get()) is not _END:
            time.sleep(max(0.0, due[0] - time.monotonic()))
            yield due[1]
