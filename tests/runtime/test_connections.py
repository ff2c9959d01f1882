"""A worker's connections in any order of events, with real sockets and a real poller."""

import contextlib
import selectors
import socket
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from runtime.server import connection as connection_module
from runtime.server import connections as connections_module
from runtime.server.connection import (
    BODY_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    LINGER_SECONDS,
    SEND_SECONDS,
    Connection,
    ConnectionState,
    EncodedResponse,
)
from runtime.server.connections import Connections, ListeningSocket
from runtime.server.requests import RejectedRequest, RequestHead
from runtime.server.sending_limit import MAX_WAITING

MAX_CONNECTIONS = 4
BIG = b"b" * 400_000  # larger than the sockets' buffers
SMALL = b"1\r\nx\r\n" * 90 + b"0\r\n\r\n"
KNOWN = b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n"
REQUESTS = {  # request to response
    KNOWN: b"</known>",
    b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n": b"</later>",
    b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n": b"</big>" + BIG,
    b"POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde": b"</laterabcde>",
    b"POST /known HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n": b"</knownabcde>",
    b"POST /known HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + SMALL: b"</known" + b"x" * 90 + b">",
    b"GET /known HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": b"</known>.",
    b"POST /known HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n": b"<413>.",
    b"nonsense\r\n\r\n": b"<400>.",
    b"\r\n\r\n": b"",
}


class Machine(RuleBasedStateMachine):
    """State machine in which clients, threads and the poller act in any order."""

    clients: Bundle[socket.socket] = Bundle("clients")

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.poller = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)  # data arrive at once
        self.listener.bind("")
        self.listener.listen(64)
        self.connections = Connections(self.poller, [ListeningSocket(self.listener)], self.connect, MAX_CONNECTIONS)
        self.opened: list[Connection] = []
        self.pending: list[tuple[Connection, EncodedResponse]] = []  # requests that a thread must answer
        self.batch: list[Any] = []
        self.unsent: dict[Any, bytes] = {}  # queued data of each client
        self.expected: dict[Any, bytes] = {}  # all responses to each client
        self.received: dict[Any, bytes] = {}

    def connect(self, sock: socket.socket, client: Any, server: Any, now: float) -> Connection:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
        self.opened.append(Connection(sock, client, server, 100, self.answer, self.refuse, now))
        return self.opened[-1]

    def answer(self, connection: Connection, head: RequestHead, body: bytes) -> EncodedResponse | None:
        assert connection.state is ConnectionState.PROCESSING
        if head.request.path == "/known":
            return self.known(head, body)
        answer = b"<%s%s>" % (head.request.path.encode(), body) + (BIG if head.request.path == "/big" else b"")
        assert all(each is not connection for each, _ in self.pending)  # one request at a time
        self.pending.append((connection, EncodedResponse((answer[:5], answer[5:]), keep_alive=True)))
        return None

    def known(self, head: RequestHead, body: bytes = b"") -> EncodedResponse | None:
        if head.request.path != "/known":
            return None
        return EncodedResponse((b"</known%s>" % body, b"" if head.keep_alive else b"."), head.keep_alive)

    def refuse(self, refused: RejectedRequest) -> EncodedResponse:
        return EncodedResponse((b"<%d>." % refused.status,), keep_alive=False)

    # -- clients ---------------------------------------------------------------------------------------------------

    @rule(target=clients)
    def a_client_connects(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.bind("")  # any free address, which identifies its connection
        client.connect(self.listener.getsockname())
        client.setblocking(False)
        self.unsent[client] = self.received[client] = self.expected[client] = b""
        return client

    @rule(client=clients, requests=st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=7))
    def a_client_queues_requests(self, client: socket.socket, requests: list[bytes]) -> None:
        """Queue one or several requests of a client without sending them."""
        self.unsent[client] += b"".join(requests)
        for request in requests:
            if not self.expected[client].endswith(b"."):  # the end of a connection
                self.expected[client] += REQUESTS[request]

    @rule(client=clients, size=st.sampled_from([1, 2, 20, 40, 70, 1000]))
    def a_client_sends(self, client: socket.socket, size: int) -> None:
        with contextlib.suppress(OSError):
            sent = client.send(self.unsent[client][:size])
            self.unsent[client] = self.unsent[client][sent:]

    @rule(client=clients)
    def a_client_receives(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self.received[client] += client.recv(1 << 20)

    @rule(client=clients)
    def a_client_shuts_down_its_side(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    @rule(client=consumes(clients))
    def a_client_disconnects(self, client: socket.socket) -> None:
        client.close()

    @rule(client=clients)
    def a_client_gets_all_responses(self, client: socket.socket) -> None:
        """A client that reads for long enough gets all responses, unless its connection was closed."""
        for _ in range(50):
            self.a_client_sends(client, 1000)
            self.all_events_are_handled()
            while self.pending:
                self.connections.respond(*self.pending.pop(), self.now)
            self.a_client_receives(client)
        theirs = [each for each in self.opened if each.client == client.getsockname()]
        assert (
            all(each.state is ConnectionState.CLOSED for each in theirs)
            or self.received[client] == self.expected[client]
        )

    # -- the worker ------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def the_poller_returns_a_batch(self, data: st.DataObject) -> None:
        events = self.poller.select(0)
        self.batch += data.draw(st.permutations(events * 2))  # the second copy arrives after the first was handled

    @precondition(lambda self: self.batch)
    @rule()
    def an_event_is_handled(self) -> None:
        key, events = self.batch.pop(0)
        if isinstance(key.data, Connection):
            self.connections.handle_events(key.data, events, self.now)
        else:
            self.connections.accept(key.data, self.now)

    @rule()
    def all_events_are_handled(self) -> None:
        for _ in range(5):
            self.connections.resume_backlog(self.now)
            self.batch += self.poller.select(0)
            while self.batch:
                self.an_event_is_handled()
            self.connections.enforce_limits(self.now)

    @rule()
    def the_backlog_is_resumed(self) -> None:
        self.connections.resume_backlog(self.now)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def a_thread_responds(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.pending) - 1))
        self.connections.respond(*self.pending.pop(index), self.now)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def a_thread_sends_early(self, data: st.DataObject) -> None:
        """Send a response early from a thread; the unsent rest stays, and the connection may be closed meanwhile."""
        index = data.draw(st.integers(0, len(self.pending) - 1))
        connection, response = self.pending[index]
        self.pending[index] = connection, connection.send_early(response)

    @rule(seconds=st.sampled_from([0.1, LINGER_SECONDS, HEAD_SECONDS, IDLE_SECONDS, SEND_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_limits_are_enforced(self) -> None:
        """Enforce the limits, also in the middle of a batch that holds events of closed connections."""
        answering = [each for each in self.opened if each.state is ConnectionState.PROCESSING]
        self.connections.enforce_limits(self.now)
        assert all(each.state is ConnectionState.PROCESSING for each in answering)
        waiting = [
            each for each in self.opened if each.state not in {ConnectionState.PROCESSING, ConnectionState.CLOSED}
        ]
        young = [each for each in waiting if each.since > self.now - connections_module.MIN_WAIT_SECONDS]
        assert len(self.connections) <= max(MAX_CONNECTIONS, len(answering) + len(young))
        assert all(self.now <= each.deadline + 0.5 for each in waiting)

    # -- invariants ----------------------------------------------------------------------------------------------------

    @invariant()
    def the_poller_has_the_events_of_each_state(self) -> None:
        watched = {key.data: key.events for key in self.poller.get_map().values() if isinstance(key.data, Connection)}
        wanted = {
            each: connections_module._EVENTS[each.state]
            for each in self.opened
            if each.state in connections_module._EVENTS
        }
        assert watched == wanted
        assert self.connections._backlog == {each for each in self.opened if each.has_backlog}
        assert len(self.connections) == len([each for each in self.opened if each.state is not ConnectionState.CLOSED])

    @invariant()
    def sockets_are_closed_with_their_connections(self) -> None:
        for each in self.opened:
            assert (each.sock.fileno() < 0) == (each.state is ConnectionState.CLOSED)

    @invariant()
    def buffered_bytes_are_counted(self) -> None:
        buffered = sum(each.buffered_bytes for each in self.opened if each.state is ConnectionState.READING)
        assert self.connections._buffered_bytes == buffered

    @invariant()
    def responses_are_complete_and_in_order(self) -> None:
        for client, received in self.received.items():
            assert self.expected[client].startswith(received)

    def teardown(self) -> None:
        for client in self.received:
            client.close()
        if hasattr(self, "connections"):
            self.connections.close()
            assert not len(self.connections)
            self.listener.close()
            self.poller.close()


@pytest.mark.parametrize(
    ("pieces", "seconds"),
    [
        ([], HEAD_SECONDS),
        ([b"\r\n"] * 9, HEAD_SECONDS),
        ([b"GET /known HTTP/1.1\r\n", b"Host: x\r\n", b"X: y\r\n"], HEAD_SECONDS),
        ([b"POST /known HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n", b"a", b"b"], 1 + BODY_SECONDS),
        ([KNOWN], 1 + IDLE_SECONDS),
        ([KNOWN, b"\r\n", b"\r\n"], 2 + HEAD_SECONDS),
        ([KNOWN, b"G", b"E", b"T"], 2 + HEAD_SECONDS),
        ([KNOWN, KNOWN[:-1], KNOWN[-1:]], 3 + IDLE_SECONDS),
        ([b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"], None),
        ([b"nonsense\r\n\r\n"], 1 + LINGER_SECONDS),
    ],
)
def test_the_deadline_of_each_part_of_a_request(pieces: list[bytes], seconds: float | None) -> None:
    """The deadline of each part of a request is set once, and later data do not extend it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        connection = Connection(ours, "", "", 8, lambda _, head, __: machine.known(head), machine.refuse, 0)
        for now, data in enumerate(pieces, 1):
            theirs.send(data)
            connection.readable(now)
        assert (None if connection.state is ConnectionState.PROCESSING else connection.deadline) == seconds


def test_a_client_that_sends_many_requests_is_served_in_turns() -> None:
    """Of many requests or chunks from one client, only a few are processed per turn."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        connection = Connection(ours, "", "", 100, lambda _, head, __: machine.known(head), machine.refuse, 0)
        theirs.send(KNOWN * 10 + b"POST /known HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + SMALL)
        connection.readable(1)
        ours.setblocking(False)
        answered = [theirs.recv(1000).count(b"</known>")]
        while connection.has_backlog:
            connection.resume(1)
            answered.append(theirs.recv(1000).count(b"</known>") if connection.is_idle or len(answered) < 10 else 0)
        assert answered[:10] == [1] * 10
        assert len(answered) == 13


def test_a_long_response_is_sent_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long response only a part is sent per turn, however much the client takes."""
    monkeypatch.setattr(connection_module, "_SENT_BYTES", 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        answer = EncodedResponse((b"h" * 10, b"b" * 2500), keep_alive=True)
        connection = Connection(ours, "", "", 8, lambda *_: answer, machine.refuse, 0)
        theirs.send(KNOWN)
        connection.readable(1)
        sizes = [len(theirs.recv(10_000))]
        while connection.state is ConnectionState.SENDING:
            connection.writable(2)
            sizes.append(len(theirs.recv(10_000)))
        assert sizes == [1000, 1000, 510]


def test_events_that_do_not_fit_the_state() -> None:
    """While a response is computed, nothing is read or sent, whatever the poller reports."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        connection = Connection(ours, "", "", 8, lambda _, head, __: machine.known(head), machine.refuse, 0)
        connection.writable(1)
        assert (connection.state, connection.since, connection.deadline) == (
            ConnectionState.READING,
            0,
            HEAD_SECONDS,
        )
        theirs.send(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.readable(2)
        theirs.send(KNOWN)
        connection.readable(3)
        connection.respond(EncodedResponse((b"</later>",), keep_alive=True), 4)
        connection.readable(5)
        assert theirs.recv(100) == b"</later></known>"


def test_a_small_response_is_sent_early() -> None:
    """A small response is sent from its thread; large ones, and an unsent rest, are left to the loop."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        connection = Connection(ours, "", "", 8, lambda *_: None, machine.refuse, 0)
        small, large = (
            EncodedResponse((b"<", b"later>"), keep_alive=True),
            EncodedResponse((bytes(connection_module._JOINED_BYTES + 1),), keep_alive=True),
        )
        assert b"".join(connection.send_early(small).pieces) == b"<later>"  # without a request
        theirs.send(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.readable(1)
        assert connection.send_early(large) is large
        rest = connection.send_early(small)
        assert (b"".join(rest.pieces), rest.keep_alive, theirs.recv(100)) == (b"", True, b"<later>")
        connection.respond(rest, 2)
        assert connection.state is ConnectionState.READING
        connection.close()
        assert b"".join(connection.send_early(small).pieces) == b"<later>"


def test_idle_connections_are_closed_soon_after_stop() -> None:
    """After stop, an idle connection is closed within two seconds, also one that received a response later."""
    machine = Machine()
    machine.start()
    clients = [machine.a_client_connects() for _ in range(2)]
    machine.all_events_are_handled()
    for client, request in zip(clients, (KNOWN, b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"), strict=True):
        client.sendall(request)
    machine.all_events_are_handled()
    machine.connections.stop(1)
    machine.connections.enforce_limits(3.5)
    assert len(machine.connections) == 1
    machine.connections.respond(*machine.pending.pop(), 4)
    machine.connections.enforce_limits(5.5)
    assert len(machine.connections) == 1
    machine.connections.enforce_limits(6.5)
    assert len(machine.connections) == 0
    for sock in (*clients, machine.listener, machine.poller):
        sock.close()


TestConnections = Machine.TestCase
TestConnections.settings = settings(max_examples=2 * settings.default.max_examples, stateful_step_count=40)


def no_refusal(_refused: RejectedRequest) -> EncodedResponse:
    """Fail: every request of the test is valid."""
    raise AssertionError


class Flood:
    """Clients that ask for a response that no buffer holds.

    Attributes:
        opened: their connections, in order.
    """

    def __init__(self, stack: contextlib.ExitStack, body: Callable[[], bytes]) -> None:
        self.opened: list[Connection] = []
        self._stack, self._body = stack, body
        self._poller = stack.enter_context(contextlib.closing(selectors.DefaultSelector()))
        self._listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind("")
        self._listener.listen(64)
        self._connections = Connections(self._poller, [ListeningSocket(self._listener)], self._connect, 1000)
        stack.callback(self._connections.close)

    def _connect(self, sock: socket.socket, client: Any, server: Any, now: float) -> Connection:
        def answer(*_: object) -> EncodedResponse:
            return EncodedResponse((b"HTTP/1.1 200 OK\r\n\r\n", self._body()), keep_alive=True)

        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
        self.opened.append(Connection(sock, client, server, 100, answer, no_refusal, now))
        return self.opened[-1]

    def turn(self, now: float) -> None:
        for _ in range(3):
            for key, mask in self._poller.select(0):
                if isinstance(key.data, Connection):
                    self._connections.handle_events(key.data, mask, now)
                else:
                    self._connections.accept(key.data, now)
            self._connections.enforce_limits(now)

    def end(self, received: int, now: float) -> None:
        """Check that the first client, which took some bytes, is still served, and let the others wait for a second."""
        assert received
        assert self.opened[0].state is ConnectionState.SENDING
        for more in (1.0, 1.2):
            self.turn(now + more)

    def ask(self) -> socket.socket:
        client = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(self._listener.getsockname())
        client.sendall(KNOWN)
        client.setblocking(False)
        return client

    def sending(self) -> int:
        return sum(each.state is ConnectionState.SENDING for each in self.opened)


@pytest.mark.parametrize(("rate", "pause"), [(500, 0.19), (3000, 0.03), (3000, 0.1)])
def test_a_client_that_begins_late_outlasts_a_flood_of_others_that_take_nothing(rate: int, pause: float) -> None:
    """Of a body that all share, no response is given up while its client had less than 0.2 s to take any of it."""
    body = b"x" * (4 << 20)
    with contextlib.ExitStack() as stack:
        flood, received = Flood(stack, lambda: body), 0
        honest = flood.ask()
        for step in range(int(rate * 3 * pause)):
            now = step / rate
            if step and step % int(rate * pause) == 0:
                received += len(honest.recv(1 << 20))
            flood.ask()
            flood.turn(now)
        flood.end(received, now)
        assert flood.sending() <= MAX_WAITING


@pytest.mark.parametrize("keeps", [True, False])
def test_bodies_that_nothing_else_uses_are_bounded_at_once(keeps: bool) -> None:
    """The time to begin is not given while the bodies of all responses take more than 64 MiB."""
    shared = b"x" * (1 << 20)
    with contextlib.ExitStack() as stack:
        flood = Flood(stack, lambda: shared if keeps else bytes(1 << 20))
        for _ in range(200):
            flood.ask()
            flood.turn(0.0)
        assert flood.sending() == (200 if keeps else MAX_WAITING)


def test_what_was_sent_counts_no_more() -> None:
    """After its response, a connection counts with the body of its next one only, and a closed one with none."""
    bodies = iter([bytes(1 << 20), bytes(80 << 20), b"end"])
    with contextlib.ExitStack() as stack:
        flood = Flood(stack, lambda: next(bodies))
        client = flood.ask()
        client.sendall(KNOWN * 2)
        limit = flood._connections._sending
        seen = set()
        while not seen or limit._bytes:
            flood.turn(0.0)
            seen.add(limit._bytes >> 20)
            with contextlib.suppress(BlockingIOError):
                client.recv(1 << 22)
        assert seen == {1, 80, 0}
        assert (limit._bodies, limit._users) == ({}, {})


def test_a_client_that_takes_its_response_outlasts_others_that_take_nothing() -> None:
    """500 new clients a second, of a response that no buffer holds, do not cut that of one with pauses of 0.2 s."""
    body = b"x" * (4 << 20)
    with contextlib.ExitStack() as stack:
        flood, received = Flood(stack, lambda: body), 0
        honest = flood.ask()
        for step in range(300):
            now = step * 0.2 / 100
            if step % 100 == 1:
                received += len(honest.recv(1 << 20))
            flood.ask()
            flood.turn(now)
        flood.end(received, now)
        assert flood.sending() == MAX_WAITING
