"""One client's connection, as a state machine. It never waits, and knows nothing of threads or pollers.

    READING --a whole request--> ANSWERING --its answer--> SENDING --all is taken--> READING again, or LINGERING
       |                                                      |                                          |
       +------------- the client has gone, or took too long --+------------------------------------------+--> CLOSED

Whoever runs it (``connections``) calls ``readable`` and ``writable`` when the poller says so, ``answered`` when an
answer is there, and ``close`` when it has to go; in any order, as what does not fit the state does nothing. One step is
for other threads: whoever made an answer may ``send_early``, while nobody else has to do with the client.
"""

import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from runtime.server.requests import RejectedRequest, RequestHead, RequestReader, Stage

HEAD_SECONDS = 5.0  # from the beginning of a connection, or of a later request, to the end of the request's head
BODY_SECONDS = 15.0  # from there to the end of its body
IDLE_SECONDS = 30.0  # between two requests
SEND_SECONDS = 60.0  # to take an answer
LINGER_SECONDS = 2.0  # for a client to close, so that it gets the end of the answer
_RECEIVED_BYTES = 16384  # at once: what a TLS record holds, so that nothing is left where no poller sees it
_JOINED_BYTES = 65536  # of an answer, to copy which costs less than to send it in pieces
_SENT_BYTES = 256 << 10  # at once, however much a client takes: then it is others' turn
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_SECONDS = {Stage.NOTHING: IDLE_SECONDS, Stage.HEAD: HEAD_SECONDS, Stage.BODY: BODY_SECONDS}


class ConnectionState(Enum):
    """What a connection does."""

    READING = "waits for a request"
    PROCESSING = "waits for us"
    SENDING = "waits until its client takes the answer"
    LINGERING = "has sent its last, and waits for its client to close"
    CLOSED = "is closed"


class EncodedResponse(NamedTuple):
    """What is sent: head and body, and whether another request may follow."""

    pieces: Sequence[bytes]
    keep_alive: bool


class Connection:
    """A client's connection.

    Attributes:
        sock: never blocks.
        client: its address.
        server: the address that it came to.
        is_secure: whether it speaks TLS.
        state: what it does.
        since: when waiting for its client began, or when the client last took something; monotonic seconds.
        until: when that ends; of no matter while ANSWERING.
    """

    def __init__(
        self,
        sock: socket.socket,
        client: Any,
        server: Any,
        max_body_bytes: int,
        answer: Callable[["Connection", RequestHead, bytes], EncodedResponse | None],
        refuse: Callable[[RejectedRequest], EncodedResponse],
        now: float,
    ) -> None:
        """Begin to wait for a request.

        Args:
            sock: of the client; it is made not to block.
            client: its address.
            server: the address that it came to.
            max_body_bytes: of a request.
            answer: is given each whole request, head and body; returns the reply, or None when ``answered`` is called
                with it later.
            refuse: returns the reply to what is no request.
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
        self._answer = answer
        self._refuse = refuse
        self._stage = (
            Stage.HEAD
        )  # that the deadline is for: one that begins in silence has not as long as one that idles
        self._unsent: deque[memoryview] = deque()
        self._socket_lock = threading.Lock()  # so that it is not closed under who sends early
        self._keep_alive = self._has_backlog = False

    @property
    def has_backlog(self) -> bool:
        """Whether more may be there than it was its turn for: ``go_on`` is to be called."""
        return self._has_backlog and self.state is ConnectionState.READING

    @property
    def buffered_bytes(self) -> int:
        """How much of requests that are not whole is data_left."""
        return self._reader.buffered_bytes

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which nothing has come."""
        return self.state is ConnectionState.READING and self._reader.stage is Stage.NOTHING

    def readable(self, now: float) -> None:
        """Take what has come."""
        if self.state is ConnectionState.READING:
            if not self._has_backlog:
                self._try(self._read, now)
        elif self.state is ConnectionState.LINGERING:
            self._try(self._discard_input, now)

    def writable(self, now: float) -> None:
        """Go on with an answer."""
        if self.state is ConnectionState.SENDING:
            self._try(self._send, now)
            self._try(self._resume, now)

    def send_early(self, reply: EncodedResponse) -> EncodedResponse:
        """Send a small answer from any thread, and return what is left of it for ``answered``.

        The client has it before the loop wakes up, which on a machine with time to sleep takes as long as sending.
        """
        if sum(map(len, reply.pieces)) > _JOINED_BYTES:
            return reply
        joined = b"".join(reply.pieces)
        with self._socket_lock:
            try:
                sent = self.sock.send(joined) if self.state is ConnectionState.PROCESSING else 0
            except OSError:  # it has gone, or takes nothing now: the loop will see
                sent = 0
        return EncodedResponse((joined[sent:],), reply.keep_alive)

    def respond(self, reply: EncodedResponse, now: float) -> None:
        """Send the reply that ``answer`` did not return, then go on with what has come meanwhile."""
        if self.state is ConnectionState.PROCESSING:
            self._start_sending(reply, now)
            self._try(self._resume, now)

    def resume(self, now: float) -> None:
        """Go on with requests that are there already."""
        if self.has_backlog:
            self._try(self._resume, now)

    def close(self) -> None:
        """Close it, whatever it does."""
        if self.state is not ConnectionState.CLOSED:
            with self._socket_lock:
                self.state = ConnectionState.CLOSED
                self.sock.close()
            self._unsent.clear()

    def _try(self, step: Callable[[float], None], now: float) -> None:
        try:
            step(now)
        except _NOT_YET:
            return
        except ssl.SSLError:  # it does not speak TLS as we do, which has been told to it
            self._try(self._linger, now)
        except OSError:  # it has gone
            self.close()

    def _read(self, now: float) -> None:
        data = self.sock.recv(_RECEIVED_BYTES)
        if data:
            self._reader.feed(data)
            self._resume(now)
        else:
            self.close()

    def _discard_input(self, _now: float) -> None:
        if not self.sock.recv(_RECEIVED_BYTES):
            self.close()

    def _resume(self, now: float) -> None:
        """Have one request answered, if a whole one is there; then it is others' turn."""
        if self.state is not ConnectionState.READING:
            return
        reply: EncodedResponse | None
        try:
            taken = self._reader.next_request()
        except RejectedRequest as refused:
            reply = self._refuse(refused)
        else:
            if taken is None:
                self._has_backlog = self._reader.has_backlog
                self._extend_deadline(now)
                return
            self.state = ConnectionState.PROCESSING
            reply = self._answer(self, *taken)
        self._has_backlog = self._reader.buffered_bytes > 0
        if reply is not None:
            self._start_sending(reply, now)

    def _extend_deadline(self, now: float) -> None:
        """Give the client its time for the next part of a request, once for each part."""
        stage = self._reader.stage
        if stage.value > self._stage.value:
            self._stage, self.since, self.deadline = stage, now, now + _SECONDS[stage]
            if self._reader.expects_continue:
                self.sock.send(_CONTINUE)  # all else was taken, so there is room

    def _start_sending(self, reply: EncodedResponse, now: float) -> None:
        pieces = reply.pieces
        if sum(map(len, pieces)) <= _JOINED_BYTES:  # one packet, and one call in which other threads get ahead of us
            pieces = (b"".join(pieces),)
        self._unsent.extend(memoryview(piece) for piece in pieces if piece)
        self._keep_alive = reply.keep_alive
        self.state, self.since, self.deadline = ConnectionState.SENDING, now, now + SEND_SECONDS
        self._try(self._send, now)

    def _send(self, now: float) -> None:
        """Send what the client takes; after all of it wait for the next request, or for the client to close."""
        total = 0
        while self._unsent:
            if total >= _SENT_BYTES:
                return
            sent = self.sock.send(self._unsent[0][:_SENT_BYTES])
            total += sent
            self.since = now
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
            else:
                self._unsent.popleft()
        if self._keep_alive:
            self.state, self._stage, self.since, self.deadline = (
                ConnectionState.READING,
                Stage.NOTHING,
                now,
                now + IDLE_SECONDS,
            )
        else:
            self._linger(now)

    def _linger(self, now: float) -> None:
        """Close our side: what the client gets last is lost when it sends on to a socket that is closed."""
        self.state, self.since, self.deadline = ConnectionState.LINGERING, now, now + LINGER_SECONDS
        self._unsent.clear()
        self.sock.shutdown(socket.SHUT_WR)
