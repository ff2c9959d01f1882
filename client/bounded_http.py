"""requests with what it lacks against a server that misbehaves: one deadline for a call, bounded bodies, an end.

A read timeout does not end a server that sends one byte a second: each byte starts it anew.
"""

import contextlib
import http.client
import io
import socket
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

MAX_BODY_BYTES = 256 * 1024 * 1024  # after decompression; 5,000 nodes with three windows are some 5 MiB
_CHUNK_BYTES = 64 * 1024


class TooLarge(requests.RequestException):
    """The body does not end where a body should."""


class BoundedSession(requests.Session):
    """A session that follows no redirect: credentials and headers are for one host."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return that there is none; whoever asked looks at the status."""


class _Call(threading.local):
    deadline = float("inf")
    connecting = False


class BoundedAdapter(HTTPAdapter):
    """Reads whole bodies, within bounds. May be used from several threads; each has a deadline of its own."""

    def __init__(self, **options: Any) -> None:
        self._call = _Call()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._ended = False
        super().__init__(**options)

    def allow(self, seconds: float) -> None:
        """Give this thread's next requests so long, all of them together."""
        self._call.deadline = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """Return how much of that is left; never quite nothing, which would mean no limit or an error."""
        return max(self._call.deadline - time.monotonic(), 0.001)

    @property
    def overdue(self) -> bool:
        """Whether nothing is left of it."""
        return time.monotonic() >= self._call.deadline

    @property
    def connecting(self) -> bool:
        """Whether this thread's last request did not come further than to connect, TLS included."""
        return self._call.connecting

    def end(self) -> None:
        """End the requests that are under way, in every thread, and those to come."""
        with self._lock:
            self._ended = True
            sockets = list(self._sockets)
        for each in sockets:
            _hang_up(each)

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request, and return the answer with its whole body.

        Raises:
            TooLarge: the body is larger than :data:`MAX_BODY_BYTES`.
            requests.RequestException: as of requests.
        """
        self._call.connecting = False
        response = super().send(request, *args, **{**options, "stream": True})
        try:
            # As if requests had read it; it would read without bounds.
            response._content = _read_bounded(response)  # noqa: SLF001
        finally:
            response.close()
        return response

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the connections to the host ours."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """Make the connections through a proxy ours."""
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def _pools(self) -> dict[str, type[HTTPConnectionPool]]:
        answer = partial(_Answer, self.remaining_seconds, lambda: self.overdue)
        connected, remaining, call = self._connected, self.remaining_seconds, self._call

        class Timed:
            response_class = staticmethod(answer)  # a class calls its functions with itself

            def _new_conn(self) -> socket.socket:
                sock: socket.socket = super()._new_conn()  # type: ignore[misc]
                sock.settimeout(remaining())  # what connecting took, the TLS handshake has not
                return sock

            def connect(self) -> None:
                call.connecting = True
                super().connect()  # type: ignore[misc]
                call.connecting = False
                connected(self.sock)  # type: ignore[attr-defined]

        plain = type("Connection", (Timed, HTTPConnection), {})
        secure = type("SecureConnection", (Timed, HTTPSConnection), {})
        return {
            "http": type("Pool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
            "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
        }

    def _connected(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.add(sock)
            ended = self._ended
        if ended:  # while it connected
            _hang_up(sock)


class _Answer(http.client.HTTPResponse):
    """An answer that is read, head and body, by the deadline."""

    def __init__(
        self,
        remaining: Callable[[], float],
        overdue: Callable[[], bool],
        sock: socket.socket,
        *arguments: Any,
        **options: Any,
    ) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_TimedReads(self.fp.detach(), sock, remaining, overdue))


class _TimedReads(io.RawIOBase):
    def __init__(
        self, raw: io.RawIOBase, sock: socket.socket, remaining: Callable[[], float], overdue: Callable[[], bool]
    ) -> None:
        self._raw, self._sock, self._remaining, self._overdue = raw, sock, remaining, overdue

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._overdue():
            raise TimeoutError("the call's time is over")
        self._sock.settimeout(self._remaining())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _read_bounded(response: requests.Response) -> bytes:
    chunks, size = [], 0
    for chunk in response.iter_content(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise TooLarge(f"it is larger than {MAX_BODY_BYTES // 1024**2} MiB")
    return b"".join(chunks)


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not SSLSocket's own: it takes TLS away under the reader
