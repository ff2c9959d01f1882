"""The service as its own process with unusable input: a clear error each time, and running where possible."""

import json
import socket
from collections.abc import Callable
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.servers import (
    Fake,
    Service,
    check_error,
    prometheus_arguments,
    reply,
    send_raw,
    serving,
    two_nodes,
    wait_until,
)

Start = Callable[..., Service]
QUICK = ("--interval", "0.2", "--set", "watch.fetch_timeout_seconds=2")
NOTHING = "http://127.0.0.1:9"  # no process listens there


def not_a_number(handler: BaseHTTPRequestHandler) -> None:
    """Answer like a Prometheus whose values are all NaN."""
    result = [{"metric": {"instance": "node-1:9100"}, "value": [1, "NaN"]}]
    reply(handler, {"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.mark.slow
def test_a_port_in_use(watch: Start) -> None:
    """A port in use ends the start with one clear line and status 1, without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = watch(port=port)
        assert service.process.wait(30) == 1
    log = service.log.read_text()
    assert f"127.0.0.1 port {port} is in use" in log
    assert "--port" in log
    assert "Traceback" not in log


def test_an_address_of_another_machine(watch: Start) -> None:
    """A host that cannot be listened on ends the start with one clear line and status 1."""
    service = watch("--host", "nowhere.invalid")
    assert service.process.wait(30) == 1
    assert "nowhere.invalid port" in service.log.read_text()
    assert "Traceback" not in service.log.read_text()


def _status(status: int) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: reply(handler, {"status": "error", "error": "because"}, status)


def _empty(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, {"status": "success", "data": {"resultType": "vector", "result": []}})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "cannot be reached: Connection refused (provider.address)"),
        (_status(401), "refuses the credentials: 401 Unauthorized: because (provider.token)"),
        (_status(404), "404 Not Found: because; is provider.address right?"),
        (lambda handler: reply(handler, "<html>"), "is not JSON; is provider.address right?"),
        (_empty, "has no series of any of: instance:node_cpu:ratio"),
        (not_a_number, "returned no node with usable metrics; for example: AVG is nan"),
    ],
    ids=["unreachable", "wrong token", "not found", "html", "no such rule", "nan"],
)
def test_unusable_providers(watch: Start, answer: Any, words: str) -> None:
    """The service is alive and not ready; health, /watcher and the log have the reason, and none has the token."""

    def judge(address: str) -> None:
        service = watch(*prometheus_arguments(address), *QUICK, "--set", "provider.token=hush-hush")
        wait_until(lambda: words in str(service.get("/watcher/health").json()["reasons"]), f"health says: {words}")
        check_error(service.get("/watcher/health"), 503, "unhealthy")
        assert words in check_error(service.get("/watcher"), 404, "no_metrics")
        check_error(service.get("/readyz"), 503, "not_ready")
        assert service.get("/livez").status_code == 200
        assert service.get("/compat/watcher").json()["data"] == {"NodeMetricsMap": {}}
        assert words in service.log.read_text()
        everything = service.log.read_text() + "".join(service.get(path).text for path in ("/findings", "/metrics"))
        assert "hush" not in everything
        assert "Traceback" not in everything

    with serving(answer) if answer else nullcontext() as fake:
        judge(fake.url if fake else NOTHING)


def test_a_provider_that_comes_up_later(watch: Start) -> None:
    """A provider that is down at the start is retried soon, without a restart."""
    up = []
    with serving(lambda handler: two_nodes(handler) if up else _status(503)(handler)) as fake:
        service = watch(*prometheus_arguments(fake), *QUICK)
        wait_until(lambda: "503" in service.get("/watcher/health").text, "the provider is down")
        up.append(True)
        assert service.wait_for("/watcher/health").json()["status"] == "ok"


def test_a_corrupt_store_is_set_aside(watch: Start, prometheus: Fake, tmp_path: Path) -> None:
    """The service starts with a corrupt store, keeps the file under another name, and reports it."""
    store = tmp_path / "watcher.sqlite"
    store.write_bytes(b"this is not a database\n" * 1000)
    service = watch(*prometheus_arguments(prometheus), *QUICK, store=store)
    body = service.wait_for("/watcher/health").json()
    (aside,) = tmp_path.glob("watcher.sqlite.corrupt-*")
    assert aside.read_bytes() == b"this is not a database\n" * 1000
    assert aside.name in body["warnings"][0]
    assert "set aside" in service.log.read_text()
    assert "trimaran_store_set_aside_total 1.0" in service.get("/metrics").text


def test_malformed_requests(watch: Start, prometheus: Fake) -> None:
    """Malformed requests each get a short JSON error, and the service continues."""
    service = watch(*prometheus_arguments(prometheus), *QUICK)
    service.wait_for("/watcher")
    long = "x" * 10_000
    for request, expected in (
        (f"GET /watcher/{long} HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (f"GET /watcher?host={long} HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (f"GET /watcher HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n", 431),
        ("GET /watcher/a\nb HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ('GET /watcher/a"b c HTTP/1.1\r\nHost: x\r\n\r\n', 400),
        ("nonsense\r\n\r\n", 400),
        ("GET /watcher HTTP/1.1\r\nbad header\r\n\r\n", 400),
        ("GET /watcher HTTP/1.1\r\nHost: x\r\nContent-Length: nonsense\r\n\r\n", 400),
    ):
        status, headers, body = send_raw(service, request.encode())
        assert (status, headers["content-type"]) == (expected, "application/json")
        assert json.loads(body)["error"]["code"] == "bad_request"
        assert len(body) < 500
        status, headers, nothing = send_raw(service, request.replace("GET", "HEAD").encode())
        if "GET" in request:
            assert (status, headers["content-length"], nothing) == (expected, str(len(body)), b"")
    assert service.get("/watcher").status_code == 200
    assert "Traceback" not in service.log.read_text()
