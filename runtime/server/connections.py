"""All connections of a worker: who is polled for what, how many there may be, and for how long.

One thread calls everything here. A connection that has to make room is closed at once, also when an event of its own is
still to come in the same batch of the poller: its state is CLOSED then, and the event does nothing.
"""

import errno
import logging
import math
import resource
import selectors
import socket
from collections.abc import Callable, Iterable
from functools import partial
from heapq import nsmallest
from typing import NamedTuple

from runtime.server.connection import Connection, ConnectionState, EncodedResponse

MAX_SENDING = 64  # answers that wait for their clients: each may be megabytes that nobody else holds
MAX_BUFFERED_BYTES = 64 << 20  # of requests that are not whole, of all connections
MAX_CONNECTIONS = 4096
_OWN_FILES = 124  # what else a worker has open: the store, the log, connections to providers
_ACCEPTED_AT_ONCE = 256  # but no more than so many beyond the limit, before others make room:
_MAX_EXCESS = 32
_MIN_WAIT_SECONDS = 0.2  # that a client is waited for before it has to make room
_PAUSE_SECONDS = 0.1  # in accepting, when there are no files left and nobody makes room
_STOP_SECONDS = 2.0  # for requests that may be on their way when the worker stops
_NO_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_EVENTS = {
    ConnectionState.READING: selectors.EVENT_READ,
    ConnectionState.LINGERING: selectors.EVENT_READ,
    ConnectionState.SENDING: selectors.EVENT_WRITE,
}

_log = logging.getLogger(__name__)


class ListeningSocket(NamedTuple):
    """Where connections come in.

    Attributes:
        sock: listens.
        secure: returns a connection as it is spoken to: itself, or secured.
    """

    sock: socket.socket
    secure: Callable[[socket.socket], socket.socket] = lambda sock: sock


def connection_limit() -> int:
    """Return how many connections there may be with the files that this process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, files - min(_OWN_FILES, files // 2)))


class Connections:
    """The connections that are open. Where there are too many, those that have been waited for longest make room."""

    def __init__(
        self,
        poller: selectors.BaseSelector,
        listeners: Iterable[ListeningSocket],
        connect: Callable[[socket.socket, object, object, float], Connection],
        max_connections: int,
    ) -> None:
        """Begin to accept.

        Args:
            poller: whose events of listeners and connections, its ``data``, are given to ``accept`` and ``ready``.
            listeners: where connections come in; they are made not to block.
            connect: makes a connection of its socket, the addresses of client and server, and the time.
            max_connections: that may be open.
        """
        self._poller = poller
        self._listeners = tuple(listeners)
        self._connect = connect
        self._max_connections = max_connections
        self._registered: dict[Connection, tuple[int, int]] = {}  # to what it is polled for, and as which file
        self._sending: set[Connection] = set()
        self._backlog: set[Connection] = set()
        self._buffered: dict[Connection, int] = {}  # to how many bytes
        self._buffered_bytes = 0
        self._is_accepting = self._is_stopping = False
        self._paused_until = self._next_expiry_check = 0.0
        for listener in self._listeners:
            listener.sock.setblocking(False)
        self._set_accepting(True)

    def __len__(self) -> int:
        return len(self._registered)

    @property
    def poll_timeout(self) -> float:
        """How long the poller may wait: there may be connections to catch up with, or to make room of."""
        if self._backlog:
            return 0.0
        return 1.0 if self._is_accepting else _PAUSE_SECONDS

    def accept(self, listener: ListeningSocket, now: float) -> None:
        """Take some of the connections that have come in."""
        for _ in range(_ACCEPTED_AT_ONCE):
            if len(self) >= self._max_connections + _MAX_EXCESS:
                return
            try:
                sock, client = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._make_room_for_files(error, now)
                return
            try:
                server = sock.getsockname()
                connection = self._connect(listener.secure(sock), client, server, now)
            except OSError:  # it has gone already
                sock.close()
                continue
            self._registered[connection] = 0, connection.sock.fileno()
            self._update(connection)

    def handle_events(self, connection: Connection, events: int, now: float) -> None:
        """Have a connection do what the poller says that it can."""
        if events & selectors.EVENT_READ:
            self._step(connection, connection.readable, now)
        if events & selectors.EVENT_WRITE:
            self._step(connection, connection.writable, now)

    def resume_backlog(self, now: float) -> None:
        """Have connections go on that sent more than it was their turn for; to be called once in each turn."""
        for connection in list(self._backlog):
            self._step(connection, connection.resume, now)

    def respond(self, connection: Connection, reply: EncodedResponse, now: float) -> None:
        """Have a connection send what a thread has found."""
        self._step(connection, partial(connection.respond, reply), now)

    def enforce_limits(self, now: float) -> None:
        """Close what has been waited for too long and what is too many; to be called after each batch of events."""
        if now >= self._next_expiry_check:
            self._next_expiry_check = now + 0.5
            self._close([each for each in self._waiting() if now > each.deadline])
        if self._is_full():
            self._close(_longest(self._waiting(now - _MIN_WAIT_SECONDS), len(self) - self._max_connections))
        self._close(_longest(self._sending, len(self._sending) - MAX_SENDING))
        while self._buffered_bytes > MAX_BUFFERED_BYTES and self._buffered:
            self._close(_longest(self._buffered, 1))
        self._set_accepting(not self._is_stopping and not self._is_full() and now >= self._paused_until)

    def stop(self, now: float) -> None:
        """Accept nothing more, and give those that say nothing little time."""
        self._is_stopping = True
        self._set_accepting(False)
        for connection in self._registered:
            self._shorten_wait(connection, now)

    def close(self) -> None:
        """Close them all."""
        self._close(list(self._registered))

    def _step(self, connection: Connection, step: Callable[[float], None], now: float) -> None:
        try:
            step(now)
        except Exception:  # noqa: BLE001  a defect of ours costs one connection
            _log.exception("a connection failed unexpectedly")
            connection.close()
        if self._is_stopping:  # what a thread answers just now would be kept open for its client's next request
            self._shorten_wait(connection, now)
        self._update(connection)

    def _shorten_wait(self, connection: Connection, now: float) -> None:
        if connection.is_idle:
            connection.deadline = min(connection.deadline, now + _STOP_SECONDS)

    def _is_full(self) -> bool:
        return len(self) > self._max_connections

    def _waiting(self, since: float = math.inf) -> list[Connection]:
        """Return the connections whose clients are waited for, since then or for longer."""
        return [
            each for each in self._registered if each.state is not ConnectionState.PROCESSING and each.since <= since
        ]

    def _close(self, connections: Iterable[Connection]) -> None:
        for connection in connections:
            connection.close()
            self._update(connection)

    def _update(self, connection: Connection) -> None:
        """Have the poller watch for what the connection waits for now, and count it as what it is now."""
        known = self._registered.get(connection)
        if known is None:
            return  # it was closed before
        before, file = known
        events = _EVENTS.get(connection.state, 0)
        if events != before:
            if before and events:
                self._poller.modify(file, events, connection)
            elif events:
                self._poller.register(file, events, connection)
            else:
                self._poller.unregister(file)
            self._registered[connection] = events, file
            (self._sending.add if events == selectors.EVENT_WRITE else self._sending.discard)(connection)
        (self._backlog.add if connection.has_backlog else self._backlog.discard)(connection)
        held = connection.buffered_bytes if connection.state is ConnectionState.READING else 0
        if held or connection in self._buffered:
            self._buffered_bytes += held - self._buffered.pop(connection, 0)
            if held:
                self._buffered[connection] = held
        if connection.state is ConnectionState.CLOSED:
            del self._registered[connection]

    def _make_room_for_files(self, error: OSError, now: float) -> None:
        _log.warning("a connection cannot be accepted", extra={"error": error.strerror, "open": len(self)})
        waiting = self._waiting(now - _MIN_WAIT_SECONDS)
        self._close(_longest(waiting, 1 + len(self) // 8))
        if not waiting:
            self._paused_until = now + _PAUSE_SECONDS

    def _set_accepting(self, wanted: bool) -> None:
        if wanted != self._is_accepting:
            self._is_accepting = wanted
            for listener in self._listeners:
                if wanted:
                    self._poller.register(listener.sock, selectors.EVENT_READ, listener)
                else:
                    self._poller.unregister(listener.sock)


def _longest(connections: Iterable[Connection], count: int) -> list[Connection]:
    """Return those that have been waited for longest."""
    return nsmallest(count, connections, key=lambda connection: connection.since) if count > 0 else []
