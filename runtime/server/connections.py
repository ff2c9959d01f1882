"""All open connections of a worker: registration with the poller, limits on their number, and timeouts.

Not thread-safe: one thread calls everything here. To make room, a connection is closed at once, even if the poller's
current batch still holds an event of it. The event then does nothing, because the connection's state is CLOSED.
"""

import errno
import logging
import math
import resource
import selectors
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from runtime.server.connection import Connection, ConnectionState, EncodedResponse
from runtime.server.sending_limit import MIN_WAIT_SECONDS, SendingLimit, longest_waiting

MAX_BUFFERED_BYTES = 64 << 20  # memory of incomplete requests, over all connections
MAX_CONNECTIONS = 4096
_OWN_FILES = 124  # other open files of a worker: the store, the log, connections to providers
_ACCEPTED_AT_ONCE = 256  # per turn, but at most _MAX_EXCESS above the limit before old connections are closed
_MAX_EXCESS = 32
_PAUSE_SECONDS = 0.1  # pause in accepting if no file descriptors are left and no connection can be closed
_STOP_SECONDS = 2.0  # wait for requests that are on their way when the worker stops
_NO_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_EVENTS = {
    ConnectionState.READING: selectors.EVENT_READ,
    ConnectionState.LINGERING: selectors.EVENT_READ,
    ConnectionState.SENDING: selectors.EVENT_WRITE,
}

_log = logging.getLogger(__name__)


class ListeningSocket(NamedTuple):
    """Socket that accepts connections.

    Attributes:
        sock: the listening socket.
        secure: returns the socket to use for an accepted socket: a TLS socket, or the same socket for plain HTTP.
    """

    sock: socket.socket
    secure: Callable[[socket.socket], socket.socket] = lambda sock: sock


def connection_limit() -> int:
    """Return the maximum number of connections, given the limit on open files of this process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, files - min(_OWN_FILES, files // 2)))


class Connections:
    """Open connections of a worker. Above the limit, the connections with the longest wait for a client are closed."""

    def __init__(
        self,
        poller: selectors.BaseSelector,
        listeners: Iterable[ListeningSocket],
        connect: Callable[[socket.socket, object, object, float], Connection],
        max_connections: int,
    ) -> None:
        """Start to accept connections.

        Args:
            poller: the selector. Its caller passes the ``data`` of each event, a listener or a connection, to
                ``accept`` or ``handle_events``.
            listeners: listening sockets; they become non-blocking.
            connect: creates a connection from its socket, the addresses of client and server, and monotonic seconds.
            max_connections: maximum number of open connections.
        """
        self._poller = poller
        self._listeners = tuple(listeners)
        self._connect = connect
        self._max_connections = max_connections
        self._registered: dict[Connection, tuple[int, int]] = {}  # polled events and file descriptor
        self._sending = SendingLimit()
        self._backlog: set[Connection] = set()
        self._buffered: dict[Connection, int] = {}  # bytes of incomplete requests
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
        """Timeout of the next poll in seconds: 0 while there is a backlog, short while accepting is paused."""
        if self._backlog:
            return 0.0
        return 1.0 if self._is_accepting else _PAUSE_SECONDS

    def accept(self, listener: ListeningSocket, now: float) -> None:
        """Accept waiting connections, at most 256."""
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
            except OSError:  # the client has disconnected already
                sock.close()
                continue
            self._registered[connection] = 0, connection.sock.fileno()
            self._update(connection)

    def handle_events(self, connection: Connection, events: int, now: float) -> None:
        """Handle the poller's events of a connection."""
        if events & selectors.EVENT_READ:
            self._step(connection, connection.readable, now)
        if events & selectors.EVENT_WRITE:
            self._step(connection, connection.writable, now)

    def resume_backlog(self, now: float) -> None:
        """Continue with connections whose received data may hold more requests. Call it once per turn."""
        for connection in list(self._backlog):
            self._step(connection, connection.resume, now)

    def respond(self, connection: Connection, response: EncodedResponse, now: float) -> None:
        """Send the response that a thread has computed."""
        self._step(connection, partial(connection.respond, response), now)

    def enforce_limits(self, now: float) -> None:
        """Close connections that timed out or exceed a limit. Call it after each batch of events."""
        if now >= self._next_expiry_check:
            self._next_expiry_check = now + 0.5
            self._close([each for each in self._waiting() if now > each.deadline])
        if self._is_full():
            self._close(longest_waiting(self._waiting(now - MIN_WAIT_SECONDS), len(self) - self._max_connections))
        self._close(self._sending.excess(now))
        while self._buffered_bytes > MAX_BUFFERED_BYTES and self._buffered:
            self._close(longest_waiting(self._buffered, 1))
        self._set_accepting(not self._is_stopping and not self._is_full() and now >= self._paused_until)

    def stop(self, now: float) -> None:
        """Accept no more connections, and close idle connections after 2 seconds at the latest."""
        self._is_stopping = True
        self._set_accepting(False)
        for connection in self._registered:
            self._shorten_wait(connection, now)

    def close(self) -> None:
        """Close all connections."""
        self._close(list(self._registered))

    def _step(self, connection: Connection, step: Callable[[float], None], now: float) -> None:
        """Run a step of a connection, then update its registration."""
        try:
            step(now)
        except Exception:  # noqa: BLE001  a bug must not end the other connections
            _log.exception("a connection failed unexpectedly")
            connection.close()
        if self._is_stopping:  # otherwise a response sent now would keep its connection open for a next request
            self._shorten_wait(connection, now)
        self._update(connection)

    def _shorten_wait(self, connection: Connection, now: float) -> None:
        if connection.is_idle:
            connection.deadline = min(connection.deadline, now + _STOP_SECONDS)

    def _is_full(self) -> bool:
        return len(self) > self._max_connections

    def _waiting(self, since: float = math.inf) -> list[Connection]:
        """Return the connections that have waited for their clients at least since a time in monotonic seconds."""
        return [
            each for each in self._registered if each.state is not ConnectionState.PROCESSING and each.since <= since
        ]

    def _close(self, connections: Iterable[Connection]) -> None:
        for connection in connections:
            connection.close()
            self._update(connection)

    def _update(self, connection: Connection) -> None:
        """Update the poller's registration and the counters to the connection's current state."""
        registered = self._registered.get(connection)
        if registered is None:
            return  # closed before
        # Events of the poller, which depend on the state only.
        before, file = registered
        events = _EVENTS.get(connection.state, 0)
        if events != before:
            if before and events:
                self._poller.modify(file, events, connection)
            elif events:
                self._poller.register(file, events, connection)
            else:
                self._poller.unregister(file)
            self._registered[connection] = events, file
        self._sending.update(connection)
        # Backlog, and bytes of incomplete requests.
        (self._backlog.add if connection.has_backlog else self._backlog.discard)(connection)
        buffered = connection.buffered_bytes if connection.state is ConnectionState.READING else 0
        if buffered or connection in self._buffered:
            self._buffered_bytes += buffered - self._buffered.pop(connection, 0)
            if buffered:
                self._buffered[connection] = buffered
        if connection.state is ConnectionState.CLOSED:
            del self._registered[connection]

    def _make_room_for_files(self, error: OSError, now: float) -> None:
        """Close waiting connections after file descriptors ran out, or pause accepting if no connection waits."""
        _log.warning("a connection cannot be accepted", extra={"error": error.strerror, "open": len(self)})
        waiting = self._waiting(now - MIN_WAIT_SECONDS)
        self._close(longest_waiting(waiting, 1 + len(self) // 8))
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
