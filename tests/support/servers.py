"""Servers for tests: Prometheus, the watcher in its own process, and a scripted HTTP server."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import requests
from control_plane.processes import Process
from support.ports import served_url, start_on_free_ports
from support.programs import how_to_install, path_of
from support.waiting import LIMIT_SECONDS, wait_until
from support.warm import WarmProcess
from werkzeug.serving import WSGIRequestHandler, make_server

from watcher.testing.servers import FakeServer as Fake
from watcher.testing.servers import reply, run_server, serving  # noqa: F401  tests import all servers from here

IN_CI = os.environ.get("CI") == "true"
#: Whether coverage is measured, which a forked or killed process does not report.
MEASURED = "coverage" in sys.modules
#: Servers with Prometheus' query API: Debian's version, the newest one, and the one that computes rates differently.
PROMETHEUS_SERVERS = ("prometheus", "prometheus-3", "victoria-metrics")
#: IDs of the collected tests with the mark ``server`` or ``e2e``.
SERVER_TESTS: set[str] = set()


def need_server(program: str) -> str:
    """Return the path of a program; if it is not installed, skip the test, or fail it if CI=true.

    Fixtures call it before they start anything. The test has the mark ``server``: the tests with this mark are also
    run as on a machine without servers (``make test-hidden``).
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    assert not test or test in SERVER_TESTS, "mark the test: @pytest.mark.server"
    path = path_of(program)
    if path is None:
        (pytest.fail if IN_CI else pytest.skip)(how_to_install(program))
    return path


@contextmanager
def run_prometheus(folder: Path, lines: Iterable[str], *arguments: str, server: str = "prometheus") -> Iterator[str]:
    """Run one of :data:`PROMETHEUS_SERVERS` with a history in OpenMetrics text; yield its address."""
    if server == "victoria-metrics":
        with run_victoria_metrics(folder, lines) as url:
            yield url
    else:
        _write_blocks(folder, lines)
        with start_prometheus(folder, "global: {scrape_interval: 1h}\n", *arguments, server=server) as url:
            yield url


def _write_blocks(folder: Path, lines: Iterable[str]) -> None:
    promtool = need_server("promtool")
    text = folder / "history.om"
    text.write_text("".join(lines) + "# EOF\n")
    create = [promtool, "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=48h"]
    subprocess.run([*create, str(text), str(folder / "data")], check=True, capture_output=True)


@contextmanager
def start_prometheus(folder: Path, settings: str, *arguments: str, server: str = "prometheus") -> Iterator[str]:
    """Run Prometheus with the blocks in the folder's ``data``, if any; yield its address."""
    prometheus = need_server(server)
    config = folder / "prometheus.yml"
    config.write_text(settings)

    def start(port: int) -> Process:
        nonlocal url
        url = f"http://127.0.0.1:{port}"
        command = [
            prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn",
            f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=30d", *arguments,
        ]  # fmt: skip
        return Process(command, folder / "prometheus.log")

    url = ""
    with start_on_free_ports(start) as process:
        process.wait_until(lambda: requests.get(f"{url}/-/ready", timeout=2).ok, "Prometheus is ready")
        yield url


@contextmanager
def run_victoria_metrics(folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """Run VictoriaMetrics with a history in OpenMetrics text, and its own defaults; yield its address."""
    program = need_server("victoria-metrics")

    def start(port: int) -> Process:
        nonlocal url
        url = f"http://127.0.0.1:{port}"
        command = [program, f"-storageDataPath={folder / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
                   "-retentionPeriod=30d", "-loggerLevel=WARN"]  # fmt: skip
        return Process(command, folder / "victoria-metrics.log")

    url = ""
    with start_on_free_ports(start) as process:
        process.wait_until(lambda: requests.get(f"{url}/health", timeout=2).ok, "VictoriaMetrics is ready")
        text = "".join(line if line.startswith("#") else _in_milliseconds(line) for line in lines)
        for path, body in (("api/v1/import/prometheus", text.encode()), ("internal/force_flush", b"")):
            requests.post(f"{url}/{path}", data=body, timeout=LIMIT_SECONDS).raise_for_status()
        yield url


def _in_milliseconds(line: str) -> str:
    series, _, seconds = line.rpartition(" ")
    return f"{series} {round(float(seconds) * 1000)}\n"


def two_nodes(handler: BaseHTTPRequestHandler) -> None:
    """Respond as a Prometheus server with two nodes."""
    result = [{"metric": {"instance": f"{name}:9100"}, "value": [1, "0.25"]} for name in ("node-1", "node-2")]
    reply(handler, {"status": "success", "data": {"resultType": "vector", "result": result}})


class _Silent(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


@contextmanager
def served_app(app: Any) -> Iterator[str]:
    """Serve a WSGI application in this process; yield its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Silent)
    with run_server(server):
        yield f"http://127.0.0.1:{server.server_port}"


# -- the watcher in its own process -------------------------------------------------------------------------------


def start_command(
    command: tuple[str, ...],
    log: Path,
    environment: dict[str, str],
    *,
    cold: bool = False,
    open_files: int | None = None,
) -> subprocess.Popen[bytes] | WarmProcess:
    """Start a ``trimaran`` command in its own process and session; its output is appended to a log.

    In a test the process is forked from a server with all imports done. It is a new interpreter if ``cold`` is set, if
    ``PYTHONPATH`` in its environment selects other modules, if coverage is measured, and in benchmarks, as for users.
    """
    log.touch()
    if "PYTEST_CURRENT_TEST" in os.environ and not (MEASURED or cold or "PYTHONPATH" in environment):
        return WarmProcess(command, log, environment, open_files)
    limited = [] if open_files is None else ["sh", "-c", f'ulimit -Sn {open_files} && exec "$@"', "sh"]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*limited, sys.executable, "-m", "trimaran", *command], stdout=output, stderr=output, env=environment,
            start_new_session=True,
        )  # fmt: skip


class TrimaranProcess(Process):
    """A ``trimaran`` command as a program, given by its arguments and started by :func:`start_command`."""

    def _run(self, output: BinaryIO) -> subprocess.Popen[bytes] | WarmProcess:
        return start_command(tuple(self._command), self.log, self._environment)


def run_trimaran(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a ``trimaran`` command to its end in its own process; capture its output. As :func:`start_command`."""
    words = tuple(map(str, arguments))
    if MEASURED:
        command = [sys.executable, "-m", "trimaran", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        status = WarmProcess(words, output, os.environ, errors=errors).wait(60)
        return subprocess.CompletedProcess(words, status, output.read_text(), errors.read_text())


class Service:
    """A ``trimaran watch`` process.

    Args:
        store: file of the store.
        log: file to which the output is appended.
        arguments: further arguments.
        port: port of the API; a restart may ask for the one that the service had. By default the service selects one.
        open_files: limit of its open files.
        cold: start a new interpreter, see :func:`start_command`.
        environment: environment variables in addition to those of this process.
    """

    def __init__(
        self,
        store: Path,
        log: Path,
        *arguments: str,
        port: int = 0,
        open_files: int | None = None,
        cold: bool = False,
        **environment: str,
    ) -> None:
        self.store, self.log = store, log
        self._begin = log.stat().st_size if log.exists() else 0
        command = ("watch", "--port", str(port), "--store", str(store), *arguments)
        self.process = start_command(command, log, {**os.environ, **environment}, cold=cold, open_files=open_files)

    @cached_property
    def url(self) -> str:
        """Address of the API, from the log."""
        return self.logged_url()

    @property
    def port(self) -> int:
        """Port of the API."""
        return int(self.url.rpartition(":")[2])

    def logged_url(self, field: str = "url") -> str:
        """Wait until the service logs an address; return it without its path."""
        return served_url(self.log, lambda: self.process.poll() is not None, begin=self._begin, field=field)

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.url + path, timeout=60, **options)

    def wait_for(self, path: str, status: int = 200, seconds: float = LIMIT_SECONDS) -> requests.Response:
        def answered() -> list[requests.Response]:
            response = self.get(path)
            return [response] if response.status_code == status else []  # a response with status 400 or above is false

        try:
            responses: list[requests.Response] = wait_until(answered, f"{path} answers {status}", seconds)
        except pytest.fail.Exception:
            pytest.fail(f"{path} did not answer {status}; the log says:\n{self.log.read_text()[-3000:]}")
        return responses[0]

    def workers(self) -> list[int]:
        """Return the process IDs of gunicorn's workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def kill(self) -> None:
        """Kill the master and the worker with SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def terminate(self) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_SECONDS)

    def close(self) -> None:
        """End the process if it runs; with SIGTERM first if coverage is measured, as a killed one reports none."""
        if self.process.poll() is None and MEASURED:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.terminate()
        if self.process.poll() is None:
            self.kill()


def prometheus_arguments(fake_or_address: Fake | str) -> tuple[str, ...]:
    """Return the arguments for a watcher that reads from this Prometheus server."""
    address = fake_or_address if isinstance(fake_or_address, str) else fake_or_address.url
    return ("--provider", "Prometheus", "--address", address)


def check_error(response: requests.Response, status: int, code: str) -> str:
    """Check the status and body of an error response; return the message."""
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    error = response.json()["error"]
    assert error.keys() == {"code", "message"}
    assert error["code"] == code
    return str(error["message"])


def send_raw(service: Service, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a raw request; return the status, headers and body."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request)
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body
