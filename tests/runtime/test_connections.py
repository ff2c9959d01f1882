"""The connections of a worker, in every order of what can happen to them, over real sockets and a real poller."""

import contextlib
import selectors
import socket
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from runtime.server import connection as one
from runtime.server import connections as all_
from runtime.server.connection import Connection, ConnectionState, EncodedResponse
from runtime.server.connections import Connections, ListeningSocket
from runtime.server.requests import RejectedRequest, RequestHead

MOST = 4
BIG = b"b" * 400_000  # more than the sockets' buffers take
SMALL = b"1\r\nx\r\n" * 90 + b"0\r\n\r\n"
KNOWN = b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n"
REQUESTS = {  # and what is answered
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
    """Clients do as they like, threads finish when they like, batches of events are worked on in any order."""

    clients: Bundle[socket.socket] = Bundle("clients")

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.poller = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)  # whose bytes are there at once
        self.listener.bind("")
        self.listener.listen(64)
        self.connections = Connections(self.poller, [ListeningSocket(self.listener)], self.connect, MOST)
        self.made: list[Connection] = []
        self.asked: list[tuple[Connection, EncodedResponse]] = []  # and to be answered by a thread
        self.batch: list[Any] = []
        self.unsent: dict[Any, bytes] = {}  # of what each client has begun to say
        self.expected: dict[Any, bytes] = {}  # what it gets, if it gets all
        self.got: dict[Any, bytes] = {}

    def connect(self, sock: socket.socket, client: Any, server: Any, now: float) -> Connection:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
        self.made.append(Connection(sock, client, server, 100, self.answer, self.refuse, now))
        return self.made[-1]

    def answer(self, connection: Connection, head: RequestHead, body: bytes) -> EncodedResponse | None:
        assert connection.state is ConnectionState.PROCESSING
        if head.request.path == "/known":
            return self.known(head, body)
        answer = b"<%s%s>" % (head.request.path.encode(), body) + (BIG if head.request.path == "/big" else b"")
        assert all(each is not connection for each, _ in self.asked)  # one at a time
        self.asked.append((connection, EncodedResponse((answer[:5], answer[5:]), keep_alive=True)))
        return None

    def known(self, head: RequestHead, body: bytes = b"") -> EncodedResponse | None:
        if head.request.path != "/known":
            return None
        return EncodedResponse((b"</known%s>" % body, b"" if head.keep_alive else b"."), head.keep_alive)

    def refuse(self, refused: RejectedRequest) -> EncodedResponse:
        return EncodedResponse((b"<%d>." % refused.status,), keep_alive=False)

    # -- clients ---------------------------------------------------------------------------------------------------

    @rule(target=clients)
    def a_client_comes(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.bind("")  # to any free address, by which its connection is found
        client.connect(self.listener.getsockname())
        client.setblocking(False)
        self.unsent[client] = self.got[client] = self.expected[client] = b""
        return client

    @rule(client=clients, requests=st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=7))
    def it_asks(self, client: socket.socket, requests: list[bytes]) -> None:
        """Begin to say something, one or several requests, and send none of it yet."""
        self.unsent[client] += b"".join(requests)
        for request in requests:
            if not self.expected[client].endswith(b"."):  # with that a connection ends
                self.expected[client] += REQUESTS[request]

    @rule(client=clients, size=st.sampled_from([1, 2, 20, 40, 70, 1000]))
    def it_sends(self, client: socket.socket, size: int) -> None:
        with contextlib.suppress(OSError):
            sent = client.send(self.unsent[client][:size])
            self.unsent[client] = self.unsent[client][sent:]

    @rule(client=clients)
    def it_takes_what_there_is(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self.got[client] += client.recv(1 << 20)

    @rule(client=clients)
    def it_ends_its_side(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    @rule(client=consumes(clients))
    def it_goes(self, client: socket.socket) -> None:
        client.close()

    @rule(client=clients)
    def it_is_patient(self, client: socket.socket) -> None:
        """A client whose connection is still there gets all that it asked for."""
        for _ in range(50):
            self.it_sends(client, 1000)
            self.everything_is_worked_on()
            while self.asked:
                self.connections.respond(*self.asked.pop(), self.now)
            self.it_takes_what_there_is(client)
        theirs = [each for each in self.made if each.client == client.getsockname()]
        assert all(each.state is ConnectionState.CLOSED for each in theirs) or self.got[client] == self.expected[client]

    # -- the worker ------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def the_poller_has_a_batch(self, data: st.DataObject) -> None:
        events = self.poller.select(0)
        self.batch += data.draw(st.permutations(events * 2))  # a second one comes when the first was worked on

    @precondition(lambda self: self.batch)
    @rule()
    def an_event_is_worked_on(self) -> None:
        key, events = self.batch.pop(0)
        if isinstance(key.data, Connection):
            self.connections.handle_events(key.data, events, self.now)
        else:
            self.connections.accept(key.data, self.now)

    @rule()
    def everything_is_worked_on(self) -> None:
        for _ in range(5):
            self.connections.resume_backlog(self.now)
            self.batch += self.poller.select(0)
            while self.batch:
                self.an_event_is_worked_on()
            self.connections.enforce_limits(self.now)

    @rule()
    def those_behind_catch_up(self) -> None:
        self.connections.resume_backlog(self.now)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def a_thread_finishes(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.asked) - 1))
        self.connections.respond(*self.asked.pop(index), self.now)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def a_thread_sends_early(self, data: st.DataObject) -> None:
        """What it could not send is still to be answered, and by whom it was asked may be closed meanwhile."""
        index = data.draw(st.integers(0, len(self.asked) - 1))
        connection, reply = self.asked[index]
        self.asked[index] = connection, connection.send_early(reply)

    @rule(seconds=st.sampled_from([0.1, one.LINGER_SECONDS, one.HEAD_SECONDS, one.IDLE_SECONDS, one.SEND_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def it_looks_after_them(self) -> None:
        """Also in the middle of a batch: what is closed then has events that are still to come."""
        answering = [each for each in self.made if each.state is ConnectionState.PROCESSING]
        self.connections.enforce_limits(self.now)
        assert all(each.state is ConnectionState.PROCESSING for each in answering)
        waiting = [each for each in self.made if each.state not in {ConnectionState.PROCESSING, ConnectionState.CLOSED}]
        young = [each for each in waiting if each.since > self.now - all_._MIN_WAIT_SECONDS]
        assert len(self.connections) <= max(MOST, len(answering) + len(young))
        assert all(self.now <= each.deadline + 0.5 for each in waiting)

    # -- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_poller_watches_for_what_is_waited_for(self) -> None:
        watched = {key.data: key.events for key in self.poller.get_map().values() if isinstance(key.data, Connection)}
        wanted = {each: all_._EVENTS[each.state] for each in self.made if each.state in all_._EVENTS}
        assert watched == wanted
        assert self.connections._backlog == {each for each in self.made if each.has_backlog}
        assert len(self.connections) == len([each for each in self.made if each.state is not ConnectionState.CLOSED])

    @invariant()
    def sockets_are_closed_with_their_connections(self) -> None:
        for each in self.made:
            assert (each.sock.fileno() < 0) == (each.state is ConnectionState.CLOSED)

    @invariant()
    def what_is_held_is_counted(self) -> None:
        held = sum(each.buffered_bytes for each in self.made if each.state is ConnectionState.READING)
        assert self.connections._buffered_bytes == held

    @invariant()
    def clients_get_answers_to_what_they_asked_and_in_order(self) -> None:
        for client, got in self.got.items():
            assert self.expected[client].startswith(got)

    def teardown(self) -> None:
        for client in self.got:
            client.close()
        if hasattr(self, "connections"):
            self.connections.close()
            assert not len(self.connections)
            self.listener.close()
            self.poller.close()


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ([], one.HEAD_SECONDS),
        ([b"\r\n"] * 9, one.HEAD_SECONDS),
        ([b"GET /known HTTP/1.1\r\n", b"Host: x\r\n", b"X: y\r\n"], one.HEAD_SECONDS),
        ([b"POST /known HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n", b"a", b"b"], 1 + one.BODY_SECONDS),
        ([KNOWN], 1 + one.IDLE_SECONDS),
        ([KNOWN, b"\r\n", b"\r\n"], 2 + one.HEAD_SECONDS),
        ([KNOWN, b"G", b"E", b"T"], 2 + one.HEAD_SECONDS),
        ([KNOWN, KNOWN[:-1], KNOWN[-1:]], 3 + one.IDLE_SECONDS),
        ([b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"], None),
        ([b"nonsense\r\n\r\n"], 1 + one.LINGER_SECONDS),
    ],
)
def test_how_long_a_client_is_waited_for(said: list[bytes], seconds: float | None) -> None:
    """Each part of a request has its time, which begins once: what comes a second later does not prolong it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        connection = Connection(ours, "", "", 8, lambda _, head, __: machine.known(head), machine.refuse, 0)
        for now, data in enumerate(said, 1):
            theirs.send(data)
            connection.readable(now)
        assert (None if connection.state is ConnectionState.PROCESSING else connection.deadline) == seconds


def test_one_that_sends_much_lets_others_in() -> None:
    """Of what one client has sent at once a few requests, or chunks, are worked on before it is others' turn."""
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


def test_one_that_takes_much_lets_others_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long answer a part is sent, however much its client takes, before it is others' turn."""
    monkeypatch.setattr(one, "_SENT_BYTES", 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        answer = EncodedResponse((b"h" * 10, b"b" * 2500), keep_alive=True)
        connection = Connection(ours, "", "", 8, lambda *_: answer, machine.refuse, 0)
        theirs.send(KNOWN)
        connection.readable(1)
        taken = [len(theirs.recv(10_000))]
        while connection.state is ConnectionState.SENDING:
            connection.writable(2)
            taken.append(len(theirs.recv(10_000)))
        assert taken == [1000, 1000, 510]


def test_an_event_that_comes_too_late() -> None:
    """While an answer is made nothing is read, and before it is whole nothing is sent, whatever the poller says."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        connection = Connection(ours, "", "", 8, lambda _, head, __: machine.known(head), machine.refuse, 0)
        connection.writable(1)
        assert (connection.state, connection.since, connection.deadline) == (
            ConnectionState.READING,
            0,
            one.HEAD_SECONDS,
        )
        theirs.send(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.readable(2)
        theirs.send(KNOWN)
        connection.readable(3)
        connection.respond(EncodedResponse((b"</later>",), keep_alive=True), 4)
        connection.readable(5)
        assert theirs.recv(100) == b"</later></known>"


def test_what_is_sent_early_is_there_before_the_loop_turns() -> None:
    """A small answer goes out from the thread that made it; a large one, or one that nobody takes, is for the loop."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        machine = Machine()
        connection = Connection(ours, "", "", 8, lambda *_: None, machine.refuse, 0)
        small, large = (
            EncodedResponse((b"<", b"later>"), keep_alive=True),
            EncodedResponse((bytes(one._JOINED_BYTES + 1),), keep_alive=True),
        )
        assert b"".join(connection.send_early(small).pieces) == b"<later>"  # nobody has asked
        theirs.send(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.readable(1)
        assert connection.send_early(large) is large
        left = connection.send_early(small)
        assert (b"".join(left.pieces), left.keep_alive, theirs.recv(100)) == (b"", True, b"<later>")
        connection.respond(left, 2)
        assert connection.state is ConnectionState.READING
        connection.close()
        assert b"".join(connection.send_early(small).pieces) == b"<later>"


def test_when_all_is_to_stop_nobody_is_waited_for_long() -> None:
    """Who says nothing has two seconds, and so has who gets an answer later than that: nobody asks a worker on."""
    machine = Machine()
    machine.start()
    clients = [machine.a_client_comes() for _ in range(2)]
    machine.everything_is_worked_on()
    for client, asked in zip(clients, (KNOWN, b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"), strict=True):
        client.sendall(asked)
    machine.everything_is_worked_on()
    machine.connections.stop(1)
    machine.connections.enforce_limits(3.5)
    assert len(machine.connections) == 1
    machine.connections.respond(*machine.asked.pop(), 4)
    machine.connections.enforce_limits(5.5)
    assert len(machine.connections) == 1
    machine.connections.enforce_limits(6.5)
    assert len(machine.connections) == 0
    for sock in (*clients, machine.listener, machine.poller):
        sock.close()


TestConnections = Machine.TestCase
TestConnections.settings = settings(max_examples=2 * settings.default.max_examples, stateful_step_count=40)
