"""Ports of the servers in tests.

Our own services run with ``--port 0``: they select a port themselves and log their address, which :func:`served_url`
reads. Programs of others must be given a number, which another process may take before they use it:
:func:`start_on_free_ports` then starts them again on another one.
"""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from random import SystemRandom
from typing import Protocol, TypeVar

import psutil
import pytest
from support.leaks import kept_by_session
from support.networks import network
from support.waiting import wait_until

_STARTS = 5
_START_SECONDS = 120.0
_IN_USE = re.compile("address (?:is )?already in use", re.IGNORECASE)
_ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "[::]": "127.0.0.1"}  # of a log line


class Program(Protocol):
    """A started program."""

    @property
    def output(self) -> str:
        """Output since the start."""

    @property
    def tree(self) -> list[int]:
        """IDs of the process and of its children."""

    @property
    def status(self) -> int | None:
        """Exit status; None while the process runs."""

    def kill(self) -> None:
        """Kill the program."""


P = TypeVar("P", bound=Program)


def served_url(log: Path, has_ended: Callable[[], bool], *, begin: int = 0, field: str = "url") -> str:
    """Wait until a service of ours logs that it serves; return its address on this machine, without a path.

    Args:
        log: the service's log, as text or as JSON.
        has_ended: returns whether the process has ended; then it will not serve.
        begin: size of the log when the process was started; an earlier process may have logged another address.
        field: field of the log line, for a service with several ports.
    """
    line = re.compile(rf'serving[^\n]*\b{field}"?[=:]"?(https?)://([^\s"/]+):([0-9]+)'.encode())

    def served() -> tuple[bytes, ...] | None:
        ended = has_ended()  # before the log is read, so that the last line is read too
        match = line.search(log.read_bytes(), begin)
        return match.groups() if match else () if ended else None

    found = wait_until(lambda: (groups := served()) is not None and [groups], f"{log} has an address")[0]
    if not found:
        pytest.fail(f"it ended before it served; the log says:\n{log.read_text(errors='replace')[-3000:]}")
    scheme, host, port = (part.decode() for part in found)
    return f"{scheme}://{_ALL_ADDRESSES.get(host, host)}:{port}"


def closed_port() -> int:
    """Return a port on which nobody listens: this process has it until its end, so that no server selects it."""
    return _closed_port(network()[0])


@cache
def _closed_port(_network: str) -> int:
    with kept_by_session("closed port"):
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        sock.detach()
    return port


def nowhere() -> str:
    """Return the URL of a server that is not running."""
    return f"http://127.0.0.1:{closed_port()}"


def start_on_free_ports(start: Callable[..., P], count: int = 1, *, first: int | None = None) -> P:
    """Start a program, and wait until it listens on its ports; start it again if another process took one of them.

    Args:
        start: starts the program, with the ports as its arguments.
        count: number of ports.
        first: first port to try, instead of a free one.
    """
    for _ in range(_STARTS):
        ports = [free_port() for _ in range(count)]
        if first is not None:
            ports[0], first = first, None
        program = start(*ports)
        try:
            # Another server may answer on a port that was taken, so the sockets must be the program's own.
            wait_until(partial(_listens_or_ended, program, ports), f"it listens on {ports}", _START_SECONDS)
        except BaseException:
            program.kill()
            raise
        if program.status is None:
            return program
        output = program.output
        if not _IN_USE.search(output):
            pytest.fail(f"it ended with {program.status}; its output ends with:\n{output[-4000:]}")
    pytest.fail(f"each of {_STARTS} starts ended since a port was in use:\n{output[-4000:]}")


def _listens_or_ended(program: Program, ports: list[int]) -> bool:
    if program.status is not None:
        return True
    listening = set()
    for pid in program.tree:
        with contextlib.suppress(psutil.Error):  # it has ended; other users than root may not look at one that ends
            connections = psutil.Process(pid).net_connections("tcp")
            listening |= {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    return listening.issuperset(ports)


def _ports() -> Iterator[int]:
    """Return an endless iterator over ports that no other test process takes, in random order.

    They are below the ephemeral ports of Linux, so that no outgoing connection takes a port between its choice and its
    use. Each process that runs tests in parallel has a share of them, and returns to a port only after all others.
    """
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = range(20_000 + process, 32_768, processes)
    return cycle(SystemRandom().sample(ports, len(ports)))


_PORTS = _ports()


def free_port() -> int:
    """Return a free port, for programs that cannot select one; see :func:`start_on_free_ports`."""
    while True:
        port = next(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
