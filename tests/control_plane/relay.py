"""The API server by another way, which holds back what watches tell, and whose certificate may be anything."""

import contextlib
import queue
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import requests
from control_plane.cluster import ControlPlane

_PASSED_ON = ("Authorization", "Content-Type", "Accept")
_END = None


class Relay:
    """A TLS server that passes requests on to the API server. Use it as a context manager.

    Events of a watch are passed on in their order, as an API server sends them, so one that is held back holds back
    those behind it.

    Args:
        cluster: whose API server.
        certificate: what it serves with, read anew for each connection; one that is valid by default.
        seed: of which events are held back.

    Attributes:
        url: where it is.
        share: of the events are held back, 0 to 1.
        seconds: for so long.
    """

    def __init__(self, cluster: ControlPlane, certificate: Path | None = None, seed: int = 1) -> None:
        self.share, self.seconds = 0.0, 0.0
        self._dice = random.Random(seed)
        self._api, self._authority = cluster.url, str(cluster.certificates.certificate)
        self._certificate = certificate or cluster.serving_certificate
        self._open: set[socket.socket] = set()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                relay._pass_on(self)

            do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815  names that http.server asks for

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def finish_request(self, request: Any, address: Any) -> None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(relay._certificate)
                with contextlib.suppress(OSError), context.wrap_socket(request, server_side=True) as secure:
                    relay._open.add(secure)
                    try:
                        super().finish_request(secure, address)
                    finally:
                        relay._open.discard(secure)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"https://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def cut(self) -> None:
        """Cut every connection."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name: handler.headers[name] for name in _PASSED_ON if name in handler.headers}
        headers["Accept-Encoding"] = "identity"
        handler.close_connection = True  # unless all of it was passed on
        with (
            contextlib.suppress(requests.RequestException, OSError),
            requests.request(
                handler.command, self._api + handler.path, headers=headers, data=body, stream=True, timeout=60,
                verify=self._authority,
            ) as answer,
        ):  # fmt: skip
            handler.send_response(answer.status_code)
            handler.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            watched = "watch=1" in handler.path
            for part in self._held_back(answer) if watched else answer.iter_content(1 << 16):
                handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            handler.wfile.write(b"0\r\n\r\n")
            handler.close_connection = False

    def _held_back(self, answer: requests.Response) -> Iterator[bytes]:
        """Yield a watch's lines, each when it is due."""
        lines: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()

        def read() -> None:
            with contextlib.suppress(requests.RequestException, OSError, AttributeError):  # it is closed meanwhile
                for line in answer.iter_lines(chunk_size=None):
                    late = self.seconds if self._dice.random() < self.share else 0.0
                    lines.put((time.monotonic() + late, line + b"\n"))
            lines.put(_END)

        threading.Thread(target=read, daemon=True).start()
        while (due := lines.get()) is not _END:
            time.sleep(max(0.0, due[0] - time.monotonic()))
            yield due[1]
