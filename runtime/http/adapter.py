"""Transport adapter for the library ``requests`` that limits each call: deadline, size of the response, cancellation.

The library's own read timeout is not enough: it restarts with each byte, so a server can send a byte a second forever.
"""

import contextlib
import http.client
import io
import math
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError as TransportError

from runtime.http.budget import Budget
from runtime.http.errors import Canceled, HandshakeTimeout, too_large

_CHUNK_BYTES = 64 * 1024
_MAX_IDLE_CONNECTIONS = 256  # enough for a fetch; urllib3 closes connections above it, and logs a line for each


@dataclass(slots=True)
class Call:
    """Limits of one call, which ``requests`` passes to the adapter in place of a timeout.

    Attributes:
        ends_at: deadline for the whole response, on the monotonic clock.
        max_bytes: maximum size of the response as sent.
        budget: memory budget for the unpacked response.
        idle_seconds: maximum time without data, the only limit of a stream once its head was received; None if the
            response is not a stream.
        received_bytes: bytes received so far.
        cancel_count: the adapter's number of cancellations at the start; the call is canceled once the number differs.
    """

    ends_at: float
    max_bytes: float
    budget: Budget
    idle_seconds: float | None = None
    received_bytes: int = 0
    cancel_count: int = 0

    def begin(self, cancel_count: int) -> None:
        """Reset the counters for a new request; each redirect is a new request."""
        self.received_bytes = 0
        self.cancel_count = cancel_count

    def begin_stream(self) -> None:
        """Remove all limits except for the idle time."""
        self.ends_at = self.max_bytes = math.inf
        self.budget = Budget(math.inf)

    def seconds_to_wait(self) -> float:
        """Return the timeout of the next step in seconds.

        Raises:
            TimeoutError: the deadline has passed.
        """
        seconds = self.ends_at - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the deadline of the call has passed")
        return seconds if self.idle_seconds is None else min(seconds, self.idle_seconds)

    def received(self, count: int) -> None:
        """Count bytes received from the network.

        Raises:
            TooLarge: the response exceeds its maximum size.
        """
        self.received_bytes += count
        if self.received_bytes > self.max_bytes:
            raise too_large(self.max_bytes)


class BoundedAdapter(HTTPAdapter):
    """Transport adapter that keeps each request within the limits of its :class:`Call`. Thread-safe."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._cancel_count = 0
        self._closed = False
        self._current = threading.local()
        super().__init__(pool_maxsize=_MAX_IDLE_CONNECTIONS)

    def cancel_all(self) -> None:
        """Cancel all current calls in all threads."""
        with self._lock:
            self._cancel_count += 1
            sockets = list(self._sockets)
        for sock in sockets:
            _shut_down(sock)

    def close(self) -> None:
        """Cancel all current calls, close the idle connections, and refuse later calls."""
        self._closed = True
        self.cancel_all()
        # urllib3 leaves idle connections to the garbage collector, and a stored exception keeps their pool alive.
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118  its container cannot be iterated
                with contextlib.suppress(KeyError):
                    manager.pools[key].close()
        super().close()

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request; return the response with its whole body, or the head of a stream.

        Args:
            request: the request.
            args: unused; the session passes all options by name.
            options: options of requests; the timeout is the :class:`Call`.

        Raises:
            Canceled: :meth:`cancel_all` or :meth:`close` was called.
            TooLarge: the response exceeds its maximum size or the memory budget.
            requests.RequestException: any other failure, as requests raises it.
        """
        call: Call = options["timeout"]
        self._current.call = call
        call.begin(self._cancel_count)
        if self._closed:
            raise Canceled(request=request)
        try:
            seconds = call.seconds_to_wait()
            response = super().send(request, *args, **{**options, "stream": True, "timeout": seconds})
        except Exception as error:
            self._raise_as_requests_error(call, request, error)
            raise
        if call.idle_seconds is not None and response.ok and not response.is_redirect:
            call.begin_stream()
            return response
        try:
            # Without this attribute, requests would read the body, also a redirect's, without limits.
            response._content = b"".join(self.chunks(call, response))  # noqa: SLF001
        finally:
            response.close()
        return response

    def chunks(self, call: Call, response: requests.Response) -> Iterator[bytes]:
        """Yield the unpacked body of a response in parts of at most 64 KiB.

        Raises:
            Canceled, TooLarge, requests.RequestException: as :meth:`send`.
        """
        try:
            for chunk in response.iter_content(_CHUNK_BYTES):
                call.budget.charge(chunk)
                yield chunk
        except Exception as error:
            self._raise_as_requests_error(call, response.request, error)
            raise
        if self._is_canceled(call):  # after cancellation, a body without a length looks complete
            raise Canceled(request=response.request)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Use the bounded connections for a host."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _pools(self._call, self._check, self._connected)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """Use the bounded connections for a proxy."""
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _pools(self._call, self._check, self._connected)
        return manager

    def _call(self) -> Call:
        """Return the limits of this thread's request."""
        return cast("Call", self._current.call)

    def _check(self) -> None:
        if self._is_canceled(self._call()):
            raise ConnectionAbortedError

    def _connected(self, sock: Any) -> None:
        with self._lock:
            self._sockets.add(sock)
            canceled = self._is_canceled(self._call())
        if canceled:  # while the connection was being made
            _shut_down(sock)

    def _is_canceled(self, call: Call) -> bool:
        return self._closed or call.cancel_count != self._cancel_count

    def _raise_as_requests_error(self, call: Call, request: requests.PreparedRequest, error: Exception) -> None:
        """Raise Canceled for a canceled call, whatever its error, and wrap other errors that requests does not wrap."""
        if self._is_canceled(call):
            raise Canceled(request=request) from error
        if isinstance(error, TransportError | OSError) and not isinstance(error, requests.RequestException):
            raise requests.ConnectionError(error, request=request) from error


def _pools(
    call: Callable[[], Call], check: Callable[[], None], connected: Callable[[Any], None]
) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pools with connections that observe the limits of their call.

    Args:
        call: returns the call of the current thread.
        check: raises an OSError if that call was canceled.
        connected: called with each new socket.
    """

    def make_response(sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        return _BoundedResponse(call(), sock, *arguments, **options)

    class Connection(HTTPConnection):
        # A function is enough, since http.client only calls it. Unless static, it would get the connection as argument.
        response_class = staticmethod(make_response)  # type: ignore[assignment]

        def _new_conn(self) -> socket.socket:
            sock: socket.socket = super()._new_conn()
            try:
                check()
                sock.settimeout(call().seconds_to_wait())  # time left for the TLS handshake
            except OSError:
                sock.close()
                raise
            return sock

        def connect(self) -> None:
            super().connect()
            connected(self.sock)  # after TLS: ssl leaks a socket that is shut down before its handshake

    class SecureConnection(Connection, HTTPSConnection):
        def connect(self) -> None:
            try:
                super().connect()
            except TimeoutError:  # of the handshake: urllib3 raises another type if connecting takes too long
                raise HandshakeTimeout("no answer to the TLS handshake") from None

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = SecureConnection

        def _validate_conn(self, conn: Any) -> None:
            if conn.is_closed:
                conn.connect()  # without urllib3's warning about unverified certificates, which the caller reports

    return {"http": Pool, "https": SecurePool}


class _BoundedResponse(http.client.HTTPResponse):
    """Response whose head and body are read within the limits of its call."""

    def __init__(self, call: Call, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_BoundedReads(self.fp.detach(), sock, call))


class _BoundedReads(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, call: Call) -> None:
        self._raw, self._sock, self._call = raw, sock, call

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._call.seconds_to_wait())
        count = self._raw.readinto(buffer)
        self._call.received(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _shut_down(sock: Any) -> None:
    while not isinstance(sock, socket.socket):
        sock = sock.socket  # TLS through a TLS proxy
    with contextlib.suppress(OSError):  # already closed
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # SSLSocket.shutdown would drop TLS during a read
