"""A client's connection as a state machine. It never blocks, and does not depend on threads or pollers.

    READING --whole request--> PROCESSING --response--> SENDING --all sent--> READING again, or LINGERING
       |                                                   |                                   |
       +---------- client disconnected or timed out -------+-----------------------------------+--> CLOSED

``connections`` drives it: it calls ``readable`` and ``writable`` on events of the poller, ``respond`` once a response
is ready, and ``close`` to drop the client, in any order: a call that does not fit the state does nothing. Only
``send_early`` and ``has_left`` may run in another thread, the one that computes the response, while the state is
PROCESSING.
"""

import select
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, cast

from runtime.server.requests import RejectedRequest, RequestHead, RequestReader, Stage

HEAD_SECONDS = 5.0  # from the start of a connection, or the first byte of a later request, to the end of its head
BODY_SECONDS = 15.0  # from the end of the head to the end of the body
IDLE_SECONDS = 30.0  # between two requests
SEND_SECONDS = 60.0  # for the client to receive a response
LINGER_SECONDS = 2.0  # for the client to close the connection, so that it receives the end of the response
_RECV_BYTES = 16384  # per call: the maximum of a TLS record, so that the TLS layer keeps no data unseen by the poller
_JOINED_BYTES = 65536  # size of a response up to which one copy costs less than several calls of send
_SENT_BYTES = 256 << 10  # per turn, even if the client takes more, so that other connections get their turn
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_SECONDS = {Stage.NOTHING: IDLE_SECONDS, Stage.HEAD: HEAD_SECONDS, Stage.BODY: BODY_SECONDS}


class ConnectionState(Enum):
    """State of a connection."""

    READING = "waits for a request"
    PROCESSING = "waits for the application's response"
    SENDING = "waits for the client to receive the response"
    LINGERING = "has sent its last response, and waits for the client to close the connection"
    CLOSED = "is closed"


class EncodedResponse(NamedTuple):
    """Bytes of a response, head and body, and whether the connection stays open for another request."""

    pieces: Sequence[bytes]
    keep_alive: bool


class Connection:
    """A client's connection.

    Attributes:
        sock: non-blocking socket.
        client: address of the client.
        server: local address of the connection.
        is_secure: True for TLS.
        state: current state.
        since: start of the wait for the client, or the last time the client received data; monotonic seconds.
        deadline: end of the wait for the client, monotonic seconds; has no meaning in PROCESSING.
        has_taken: whether the client has received more of the current response than fits into the socket's buffer.
    """

    def __init__(
        self,
        sock: socket.socket,
        client: Any,
        server: Any,
        max_body_bytes: int,
        handle: Callable[["Connection", RequestHead, bytes], EncodedResponse | None],
        reject: Callable[[RejectedRequest], EncodedResponse],
        now: float,
    ) -> None:
        """Start to wait for a request.

        Args:
            sock: socket of the client; becomes non-blocking.
            client: address of the client.
            server: local address of the connection.
            max_body_bytes: size limit of a request's body.
            handle: called with the connection, head and body of each request. Returns the response, or None if
                ``respond`` will be called with the response later.
            reject: returns the response to an invalid request.
            now: monotonic seconds.
        """
        sock.setblocking(False)
        self.sock = sock
        self.client = client
        self.server = server
        self.is_secure = isinstance(sock, ssl.SSLSocket)
        self.state = ConnectionState.READING
        self.since, self.deadline = now, now + HEAD_SECONDS
        self._reader = RequestReader(max_body_bytes)
        self._handle = handle
        self._reject = reject
        # Part of a request to which the deadline applies. A new connection that stays silent gets the time for a head,
        # which is shorter than the time between two requests.
        self._stage = Stage.HEAD
        self.has_taken = self._is_buffer_full = False
        self._unsent: deque[memoryview] = deque()
        self._socket_lock = threading.Lock()  # keeps the socket open during send_early
        self._keep_alive = self._has_backlog = False

    @property
    def has_backlog(self) -> bool:
        """Return whether received data may hold another request, so that ``resume`` must be called."""
        return self._has_backlog and self.state is ConnectionState.READING

    @property
    def buffered_bytes(self) -> int:
        """Number of buffered bytes of incomplete requests."""
        return self._reader.buffered_bytes

    @property
    def unsent(self) -> tuple[bytes, ...]:
        """Return the buffers with unsent bytes of the response; several connections may share a buffer."""
        return tuple(cast("bytes", piece.obj) for piece in self._unsent)

    @property
    def is_idle(self) -> bool:
        """Return whether the connection waits for a request and has received none of its bytes."""
        return self.state is ConnectionState.READING and self._reader.stage is Stage.NOTHING

    def readable(self, now: float) -> None:
        """Read what the client sent."""
        if self.state is ConnectionState.READING:
            if not self._has_backlog:
                self._try(self._read, now)
        elif self.state is ConnectionState.LINGERING:
            self._try(self._discard_input, now)

    def writable(self, now: float) -> None:
        """Send more of a response."""
        if self.state is ConnectionState.SENDING:
            self._try(self._send, now)
            self._try(self._resume, now)

    def send_early(self, response: EncodedResponse) -> EncodedResponse:
        """Send a small response from another thread, and return the unsent rest for ``respond``.

        The client then need not wait until the main loop wakes up, which would double the time on an idle machine.
        """
        if sum(map(len, response.pieces)) > _JOINED_BYTES:
            return response
        joined = b"".join(response.pieces)
        with self._socket_lock:
            try:
                sent = self.sock.send(joined) if self.state is ConnectionState.PROCESSING else 0
            except OSError:  # the client disconnected, or its buffer is full: the main loop handles both
                sent = 0
        return EncodedResponse((joined[sent:],), response.keep_alive)

    def has_left(self) -> bool:
        """Return whether the client has closed the connection while its request waits. Always False except on Linux."""
        with self._socket_lock:
            if self.state is not ConnectionState.PROCESSING:
                return True
            if sys.platform != "linux":
                return False
            poller = select.poll()  # unlike recv(), also detects the end behind unread data, and below TLS
            poller.register(self.sock, select.POLLRDHUP)
            return bool(poller.poll(0))

    def respond(self, response: EncodedResponse, now: float) -> None:
        """Send the response of a request for which ``handle`` returned None, then continue with buffered data."""
        if self.state is ConnectionState.PROCESSING:
            self._start_sending(response, now)
            self._try(self._resume, now)

    def resume(self, now: float) -> None:
        """Continue with requests that were received already."""
        if self.has_backlog:
            self._try(self._resume, now)

    def close(self) -> None:
        """Close the connection in any state."""
        if self.state is not ConnectionState.CLOSED:
            with self._socket_lock:
                self.state = ConnectionState.CLOSED
                self.sock.close()
            self._unsent.clear()

    def _try(self, step: Callable[[float], None], now: float) -> None:
        """Run a step that uses the socket, and handle the socket's errors."""
        try:
            step(now)
        except _WOULD_BLOCK:
            self._is_buffer_full = self.state is ConnectionState.SENDING
        except ssl.SSLError:  # no common TLS version or the like; the TLS layer has sent the client an alert
            self._try(self._linger, now)
        except OSError:  # the client disconnected
            self.close()

    def _read(self, now: float) -> None:
        data = self.sock.recv(_RECV_BYTES)
        if data:
            self._reader.feed(data)
            self._resume(now)
        else:
            self.close()

    def _discard_input(self, _now: float) -> None:
        if not self.sock.recv(_RECV_BYTES):
            self.close()

    def _resume(self, now: float) -> None:
        """Process one request if it is complete. Only one per turn, so that other connections get their turn."""
        if self.state is not ConnectionState.READING:
            return
        response: EncodedResponse | None
        try:
            request = self._reader.next_request()
        except RejectedRequest as rejected:
            response = self._reject(rejected)
        else:
            if request is None:
                self._has_backlog = self._reader.has_backlog
                self._extend_deadline(now)
                return
            self.state = ConnectionState.PROCESSING
            response = self._handle(self, *request)
        self._has_backlog = self._reader.buffered_bytes > 0
        if response is not None:
            self._start_sending(response, now)

    def _extend_deadline(self, now: float) -> None:
        """Set the deadline for the next part of a request, once for each part."""
        stage = self._reader.stage
        if stage.value > self._stage.value:
            self._stage, self.since, self.deadline = stage, now, now + _SECONDS[stage]
            if self._reader.expects_continue:
                self.sock.send(_CONTINUE)  # never blocks: everything before was sent, so the send buffer is empty

    def _start_sending(self, response: EncodedResponse, now: float) -> None:
        pieces = response.pieces
        if sum(map(len, pieces)) <= _JOINED_BYTES:  # one packet and one call, since each call gives up the GIL
            pieces = (b"".join(pieces),)
        self._unsent.extend(memoryview(piece) for piece in pieces if piece)
        self._keep_alive = response.keep_alive
        self.has_taken = self._is_buffer_full = False
        self.state, self.since, self.deadline = ConnectionState.SENDING, now, now + SEND_SECONDS
        self._try(self._send, now)

    def _send(self, now: float) -> None:
        """Send until the client takes no more. After all is sent, wait for the next request or linger."""
        total = 0
        while self._unsent:
            if total >= _SENT_BYTES:
                return
            sent = self.sock.send(self._unsent[0][:_SENT_BYTES])
            total += sent
            self.since = now
            self.has_taken |= self._is_buffer_full  # only the client makes room in a full buffer
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
            else:
                self._unsent.popleft()
        if self._keep_alive:
            self.state, self._stage = ConnectionState.READING, Stage.NOTHING
            self.since, self.deadline = now, now + IDLE_SECONDS
        else:
            self._linger(now)

    def _linger(self, now: float) -> None:
        """Close the sending side only: data that arrives at a closed socket would reset it and lose the response."""
        self.state, self.since, self.deadline = ConnectionState.LINGERING, now, now + LINGER_SECONDS
        self._unsent.clear()
        self.sock.shutdown(socket.SHUT_WR)
