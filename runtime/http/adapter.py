"""The adapter of requests that is bounded: answers end by a deadline, within a size, and when another thread says so.

A read timeout does not end a server that sends one byte a second: each byte starts it anew.
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
_MOST_IDLE_CONNECTIONS = 256  # all of a fetch's: what does not fit is closed after each request, with a line in the log


@dataclass(slots=True)
class Call:
    """The bounds of one call. Goes through requests in the place of its timeout.

    Attributes:
        ends_at: by when the whole answer has to be there, on the monotonic clock.
        max_bytes: how large it may be, as sent.
        budget: what it may take once it is unpacked.
        idle_seconds: of a stream: how long nothing may come. It has no other bound once its head is there.
        received_bytes: how many came.
        ends: how often the adapter was told to end calls before this one.
    """

    ends_at: float
    max_bytes: float
    budget: Budget
    idle_seconds: float | None = None
    received_bytes: int = 0
    ends: int = 0

    def begin(self, ends: int) -> None:
        """Begin a request; a redirect is another one."""
        self.received_bytes = 0
        self.ends = ends

    def begin_stream(self) -> None:
        """Have no bound from now on but the idle time."""
        self.ends_at = self.max_bytes = math.inf
        self.budget = Budget(math.inf)

    def seconds_to_wait(self) -> float:
        """Return how long the next step may take.

        Raises:
            TimeoutError: the call's time is over.
        """
        seconds = self.ends_at - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the call's time is over")
        return seconds if self.idle_seconds is None else min(seconds, self.idle_seconds)

    def received(self, count: int) -> None:
        """Count bytes as they come from the network.

        Raises:
            TooLarge: these are too many.
        """
        self.received_bytes += count
        if self.received_bytes > self.max_bytes:
            raise too_large(self.max_bytes)


class BoundedAdapter(HTTPAdapter):
    """Sends requests, each within the bounds of its :class:`Call`. Safe to use from several threads."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._ends = 0
        self._closed = False
        self._current = threading.local()
        super().__init__(pool_maxsize=_MOST_IDLE_CONNECTIONS)

    def end(self) -> None:
        """End every call that is under way, in every thread."""
        with self._lock:
            self._ends += 1
            sockets = list(self._sockets)
        for each in sockets:
            _hang_up(each)

    def close(self) -> None:
        """End every call; later ones end before they begin."""
        self._closed = True
        self.end()
        super().close()

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request; return the answer with its whole body, or of a stream with its head.

        Args:
            request: what to send.
            args: none; the session names them all.
            options: as of requests; the timeout is the :class:`Call`.

        Raises:
            Ended: by :meth:`end` or :meth:`close`.
            TooLarge: as :class:`Call` has it.
            requests.RequestException: as of requests.
        """
        call: Call = options["timeout"]
        self._current.call = call
        call.begin(self._ends)
        if self._closed:
            raise Canceled(request=request)
        try:
            seconds = call.seconds_to_wait()
            response = super().send(request, *args, **{**options, "stream": True, "timeout": seconds})
        except Exception as error:
            self._raise_in_requests_words(call, request, error)
            raise
        if call.idle_seconds is not None and response.ok and not response.is_redirect:
            call.begin_stream()
            return response
        try:
            # As if requests had read it; it would read without bounds, a redirect's body too.
            response._content = b"".join(self.chunks(call, response))  # noqa: SLF001
        finally:
            response.close()
        return response

    def chunks(self, call: Call, response: requests.Response) -> Iterator[bytes]:
        """Yield an answer's body, unpacked, in parts of 64 KiB at most.

        Raises:
            Ended, TooLarge, requests.RequestException: as :meth:`send`.
        """
        try:
            for chunk in response.iter_content(_CHUNK_BYTES):
                call.budget.charge(chunk)
                yield chunk
        except Exception as error:
            self._raise_in_requests_words(call, response.request, error)
            raise
        if self._has_ended(call):  # a body without a length looks whole then
            raise Canceled(request=response.request)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the connections to a host ours."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _pools(self._call, self._check, self._connected)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """Make the connections through a proxy ours."""
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _pools(self._call, self._check, self._connected)
        return manager

    def _call(self) -> Call:
        """Return what this thread's request is bounded by."""
        return cast("Call", self._current.call)

    def _check(self) -> None:
        if self._has_ended(self._call()):
            raise ConnectionAbortedError

    def _connected(self, sock: Any) -> None:
        with self._lock:
            self._sockets.add(sock)
            ended = self._has_ended(self._call())
        if ended:  # while it connected
            _hang_up(sock)

    def _has_ended(self, call: Call) -> bool:
        return self._closed or call.ends != self._ends

    def _raise_in_requests_words(self, call: Call, request: requests.PreparedRequest, error: Exception) -> None:
        """Say of a call that was ended that it was, however that looks; and in requests' words what it let through."""
        if self._has_ended(call):
            raise Canceled(request=request) from error
        if isinstance(error, TransportError | OSError) and not isinstance(error, requests.RequestException):
            raise requests.ConnectionError(error, request=request) from error


def _pools(
    call: Callable[[], Call], check: Callable[[], None], connected: Callable[[Any], None]
) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pools with connections that know whose call they are for.

    Args:
        call: returns the call of the thread that asks.
        check: raises an OSError where that call was ended.
        connected: is told of each socket.
    """

    def answer(sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        return _Answer(call(), sock, *arguments, **options)

    class Connection(HTTPConnection):
        # Not a class, as http.client only calls it; static, as a class calls its functions with itself.
        response_class = staticmethod(answer)  # type: ignore[assignment]

        def _new_conn(self) -> socket.socket:
            sock: socket.socket = super()._new_conn()
            try:
                check()
                sock.settimeout(call().seconds_to_wait())  # what connecting took, the TLS handshake has not
            except OSError:
                sock.close()
                raise
            return sock

        def connect(self) -> None:
            super().connect()
            connected(self.sock)  # not before TLS: ssl leaks a socket that is shut down before its handshake

    class SecureConnection(Connection, HTTPSConnection):
        def connect(self) -> None:
            try:
                super().connect()
            except TimeoutError:  # not to connect in time is another one
                raise HandshakeTimeout("no answer to the TLS handshake") from None

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = SecureConnection

        def _validate_conn(self, conn: Any) -> None:
            if conn.is_closed:
                conn.connect()  # without urllib3's warning where nothing is verified: whoever decides that says so

    return {"http": Pool, "https": SecurePool}


class _Answer(http.client.HTTPResponse):
    """An answer that is read, head and body, within the bounds of its call."""

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


def _hang_up(sock: Any) -> None:
    while not isinstance(sock, socket.socket):
        sock = sock.socket  # TLS through a TLS proxy
    with contextlib.suppress(OSError):  # closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not SSLSocket's own: it takes TLS away under the reader
