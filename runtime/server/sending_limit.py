"""Limit on the responses that wait for their clients."""

import math
from collections.abc import Iterable
from heapq import nsmallest

from runtime.server.connection import Connection

MAX_WAITING = 64  # responses that wait for slow clients
MAX_BODY_BYTES = 64 << 20  # of all unsent responses; a body that several connections send counts once
MIN_WAIT_SECONDS = 0.2  # wait for a client before its connection may be closed to make room


class SendingLimit:
    """Connections that send a response, and the choice of the connections to close. Not thread-safe.

    A response waits for its client if the client received nothing of it for 0.2 seconds. Younger responses do not count
    against the limit: in a flood of silent clients, other clients need that time to begin. They cost little memory,
    because most responses share their bodies; if they do not, all responses count.
    """

    def __init__(self) -> None:
        self._bodies: dict[Connection, tuple[bytes, ...]] = {}
        self._users: dict[int, int] = {}  # number of connections that send a body, by its identity
        self._bytes = 0
        self._checked_at = -math.inf

    def update(self, connection: Connection) -> None:
        """Record the unsent bodies of a connection. Call it after each step of the connection."""
        bodies, before = connection.unsent, self._bodies.get(connection, ())
        if list(map(id, bodies)) == list(map(id, before)):
            return
        for body in bodies:
            users = self._users[id(body)] = self._users.get(id(body), 0) + 1
            self._bytes += len(body) if users == 1 else 0
        for body in before:
            self._users[id(body)] -= 1
            if not self._users[id(body)]:
                del self._users[id(body)]
                self._bytes -= len(body)
        if bodies:
            self._bodies[connection] = bodies
        else:
            del self._bodies[connection]

    def excess(self, now: float) -> list[Connection]:
        """Return the connections to close, by longest wait: first those whose clients have received nothing.

        Silent clients go first: in a flood of ever newer silent clients, a client that receives its response has waited
        longest. Half of the places stay for clients that had no time to receive anything yet. The time since the last
        call is added to the 0.2 seconds: whatever delays this thread may delay the clients, too.
        """
        begun_by = now - MIN_WAIT_SECONDS - (now - self._checked_at)
        self._checked_at = now
        if len(self._bodies) <= MAX_WAITING:
            return []
        waiting = set(self._bodies)
        if self._bytes <= MAX_BODY_BYTES:
            waiting = {each for each in waiting if each.since <= begun_by}
        excess = len(waiting) - MAX_WAITING
        if excess <= 0:
            return []
        silent = [each for each in waiting if not each.has_taken]
        given_up = longest_waiting(silent, min(excess, len(silent) - MAX_WAITING // 2))
        return given_up + longest_waiting(waiting.difference(given_up), excess - len(given_up))


def longest_waiting(connections: Iterable[Connection], count: int) -> list[Connection]:
    """Return the connections with the longest wait for their clients."""
    return nsmallest(count, connections, key=lambda connection: connection.since) if count > 0 else []
