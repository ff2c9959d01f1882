"""Tests of how tests find ports: a service's own choice, and another start of a program whose port was taken."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import requests
from control_plane.processes import Process
from support import ports
from support.influxdb_server import run_influxdb
from support.ports import closed_port, served_url, start_on_free_ports
from support.servers import start_prometheus

TESTS = Path(__file__).parents[1]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that looks free to the first program that is started, although another one listens on it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        free = ports.free_port
        numbers = chain([port], iter(free, None))
        monkeypatch.setattr(ports, "free_port", lambda: next(numbers))
        yield port


def start_server(port: int, log: Path) -> Process:
    """Start a server of Python's standard library."""
    return Process([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)], log)


def test_a_program_starts_again_on_another_port(taken: int, tmp_path: Path) -> None:
    """A program that ends because its port is in use is started again; the port in use is left alone."""
    tried = []

    def start(port: int) -> Process:
        tried.append(port)
        return start_server(port, tmp_path / "log")

    with start_on_free_ports(start):
        first, second = tried
        assert first == taken != second
        assert requests.get(f"http://127.0.0.1:{second}/", timeout=60).ok


def test_a_program_with_another_failure_is_not_started_again(tmp_path: Path) -> None:
    """A program that ends for another reason fails the test with its output."""
    starts = []

    def start(port: int) -> Process:
        starts.append(port)
        return Process([sys.executable, "-c", "raise SystemExit('no such option')"], tmp_path / "log")

    with pytest.raises(pytest.fail.Exception, match="no such option"):
        start_on_free_ports(start)
    assert len(starts) == 1


def test_ports_that_are_always_in_use_end_the_attempts(tmp_path: Path) -> None:
    """After some starts the test fails with the output."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(pytest.fail.Exception, match="5 starts"),
    ):
        start_on_free_ports(lambda port: start_server(listener.getsockname()[1], tmp_path / "log"))


@pytest.mark.server
def test_prometheus_starts_again_on_another_port(taken: int, tmp_path: Path) -> None:
    """Prometheus answers on another port, and not the server that took the first one."""
    with start_prometheus(tmp_path, "global: {scrape_interval: 1h}\n") as url:
        assert not url.endswith(f":{taken}")


@pytest.mark.server
def test_influxdb_starts_again_on_other_ports(taken: int, tmp_path: Path) -> None:
    """InfluxDB, which needs two ports, answers on another one."""
    with run_influxdb(tmp_path) as server:
        assert not server.url.endswith(f":{taken}")


@pytest.mark.parametrize(
    ("line", "url"),
    [
        (
            "2030-01-31T12:00:00+01:00 info     serving url=http://127.0.0.1:81/watcher provider=Fake",
            "http://127.0.0.1:81",
        ),
        ('{"message":"serving in mode act","url":"https://[::]:82","mode":"act"}', "https://127.0.0.1:82"),
        ("info serving url=http://0.0.0.0:83 compat_url=http://127.0.0.1:84/compat", "http://127.0.0.1:83"),
        ("info serving compat_url=http://127.0.0.1:84/compat url=http://[::1]:85", "http://[::1]:85"),
    ],
)
def test_the_address_is_in_the_log(tmp_path: Path, line: str, url: str) -> None:
    """The address is that of the latest start, in text and in JSON, for a client on this machine."""
    log = tmp_path / "log"
    log.write_text("info serving url=http://127.0.0.1:80/watcher\n")
    begin = log.stat().st_size
    with log.open("a") as output:
        output.write(f"info is starting\n{line}\n")
    assert served_url(log, lambda: False, begin=begin) == url


def test_a_service_that_ends_before_it_serves_fails_the_test(tmp_path: Path) -> None:
    """The failure has the log, and does not wait for the limit."""
    log = tmp_path / "log"
    log.write_text("error: server.threads must be at least 1\n")
    with pytest.raises(pytest.fail.Exception, match=r"server\.threads"):
        served_url(log, lambda: True)


def test_nobody_can_listen_on_the_closed_port() -> None:
    """The port refuses connections, and no server can take it."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", closed_port()), timeout=60)
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", closed_port()))


def ports_of(process: str) -> set[int]:
    """Return 2,000 ports that one of three test processes chooses."""
    code = "from support.ports import free_port\nprint(*(free_port() for _ in range(2000)))"
    shares = {"PYTEST_XDIST_WORKER": process, "PYTEST_XDIST_WORKER_COUNT": "3", "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, env={**os.environ, **shares}, check=True, capture_output=True, text=True).stdout
    return {int(port) for port in output.split()}


def test_parallel_test_processes_choose_different_ports() -> None:
    """No port is chosen twice, by the same process or by another one."""
    first, second = ports_of("gw0"), ports_of("gw1")
    assert len(first) == len(second) == 2000
    assert not first & second
