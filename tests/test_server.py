"""The service as a process of its own: what it answers, and what it survives."""

import gzip
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests
from conftest import History
from servers import Fake, Service, reply, serving, wait_until

from watcher.openapi import schema

Start = Callable[..., Service]
QUICK = ("--interval", "0.2", "--set", "watch.fetch_timeout_seconds=2")
NOTHING = "http://127.0.0.1:9"  # nobody listens there


def vector(handler: BaseHTTPRequestHandler) -> None:
    """Answer as a Prometheus with two nodes."""
    result = [{"metric": {"instance": f"{name}:9100"}, "value": [1, "0.25"]} for name in ("node-1", "node-2")]
    reply(handler, {"status": "success", "data": {"resultType": "vector", "result": result}})


def not_a_number(handler: BaseHTTPRequestHandler) -> None:
    """Answer as a Prometheus whose values are all NaN."""
    result = [{"metric": {"instance": "node-1:9100"}, "value": [1, "NaN"]}]
    reply(handler, {"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.fixture
def prometheus() -> Iterator[Fake]:
    """A fake Prometheus that always knows two nodes."""
    with serving(vector) as fake:
        yield fake


def at(fake_or_address: Fake | str) -> tuple[str, ...]:
    """Return the arguments that point a watcher at a Prometheus."""
    address = fake_or_address if isinstance(fake_or_address, str) else fake_or_address.url
    return ("--provider", "Prometheus", "--address", address)


def check_error(response: requests.Response, status: int, code: str) -> str:
    """Check the one shape of errors, and return the message."""
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    error = response.json()["error"]
    assert error.keys() == {"code", "message"}
    assert error["code"] == code
    return str(error["message"])


# -- the main job -------------------------------------------------------------------------------------------------


def test_this_machine_is_served_within_seconds(watch: Start) -> None:
    """Without any provider named, this machine's CPU and memory come, AVG and STD, and both schemas accept them."""
    service = watch("--set", "host.node_name=this-machine")
    document = service.wait_for("/watcher").json()
    jsonschema.Draft4Validator(schema("kep")).validate(document)
    jsonschema.Draft202012Validator(schema("watcher")).validate(document)
    assert document["source"] == "Host"
    got = {(metric["type"], metric["operator"]) for metric in document["data"]["this-machine"]["metrics"]}
    assert {("CPU", "AVG"), ("CPU", "STD"), ("Memory", "AVG"), ("Memory", "STD")} <= got
    one = service.get("/watcher/this-machine").json()
    assert list(one["data"]) == ["this-machine"]
    jsonschema.Draft202012Validator(schema("watcher")).validate(one)
    assert list(service.get("/compat/watcher").json()["data"]["NodeMetricsMap"]) == ["this-machine"]
    assert "'nobody'" in check_error(service.get("/watcher/nobody"), 404, "unknown_node")


def test_a_real_prometheus_end_to_end(watch: Start, prometheus_with_rules: History) -> None:
    """100 nodes of a real Prometheus come through the whole service, compressed and with an entity tag."""
    service = watch(*at(prometheus_with_rules.url))
    response = service.wait_for("/watcher")
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(response.json()["data"]) == 100
    assert all(len(node["metrics"]) == 4 for node in response.json()["data"].values())
    assert service.get("/watcher", headers={"If-None-Match": response.headers["ETag"]}).status_code == 304
    wait_until(lambda: service.get("/watcher/health").ok, "health is good")
    assert service.get("/findings").json() == {"findings": []}


# -- crashes and restarts -----------------------------------------------------------------------------------------


def test_killed_and_restarted_with_the_provider_down(watch: Start) -> None:
    """The last snapshot is served at once under its own timestamp, then stale; the probes are truthful throughout."""
    expiry = ("--set", "watch.expiry_seconds=6")
    with serving(vector) as fake:
        first = watch(*at(fake), *QUICK, *expiry)
        wait_until(lambda: first.wait_for("/watcher/health").ok, "the first is healthy")
        assert first.get("/readyz").status_code == 200
        before = first.get("/watcher").json()
        first.kill()
    second = watch(*at(fake), *QUICK, *expiry)
    restarted = second.wait_for("/watcher").json()
    assert restarted["timestamp"] >= before["timestamp"]
    assert list(restarted["data"]) == list(before["data"])
    assert second.get("/readyz").status_code == 200
    assert second.get("/livez").status_code == 200
    check_error(second.get("/watcher/health"), 503, "unhealthy")
    assert second.get("/compat/watcher").json()["data"]["NodeMetricsMap"].keys() == before["data"].keys()

    again = second.get("/watcher").json()
    assert again["timestamp"] == restarted["timestamp"]  # the provider is down: it stays that of the last snapshot
    assert "cannot be reached" in check_error(second.wait_for("/watcher", 404), 404, "stale")
    assert time.time() - again["timestamp"] > 6
    check_error(second.get("/readyz"), 503, "not_ready")
    check_error(second.get("/watcher/health"), 503, "unhealthy")
    assert second.get("/livez").status_code == 200
    go = second.get("/compat/watcher")
    assert go.status_code == 200
    assert go.json()["data"] == {"NodeMetricsMap": {}}
    assert go.json()["timestamp"] == restarted["timestamp"]


def test_a_killed_worker_is_respawned(watch: Start, prometheus: Fake) -> None:
    """When the worker dies the master starts another one, which serves what the store has."""
    service = watch(*at(prometheus), *QUICK)
    service.wait_for("/watcher/health")
    (worker,) = service.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: service.workers() and service.workers() != [worker], "another worker is there")
    assert list(service.wait_for("/watcher").json()["data"]) == ["node-1", "node-2"]
    assert service.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(watch: Start, prometheus: Fake, tmp_path: Path, number: int) -> None:
    """SIGTERM and SIGINT end master and worker with status 0, no traceback, and the store closed."""
    service = watch(*at(prometheus), *QUICK)
    service.wait_for("/watcher")
    with requests.Session() as idle:  # a connection kept open does not hold it up
        idle.get(f"{service.url}/livez", timeout=5)
        service.process.send_signal(number)
        assert service.process.wait(10) == 0
    assert "Traceback" not in service.log.read_text()
    assert "cannot be fetched" not in service.log.read_text()
    assert [path.name for path in tmp_path.glob("watcher.sqlite*")] == ["watcher.sqlite"]


def test_sigterm_does_not_wait_for_a_provider_that_hangs(watch: Start) -> None:
    """While a fetch hangs in the provider, SIGTERM still ends the service cleanly, long before the fetch would."""

    def hang(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(1200):
            handler.wfile.write(b" ")
            time.sleep(0.05)

    with serving(hang) as fake:
        service = watch(*at(fake), "--set", "watch.fetch_timeout_seconds=60")
        wait_until(lambda: len(fake.requests) >= 12, "the fetch is under way")
        began = time.monotonic()
        assert service.terminate() == 0
        assert time.monotonic() - began < 10
    assert "Traceback" not in service.log.read_text()


# -- bad input ----------------------------------------------------------------------------------------------------


def test_a_port_in_use(watch: Start) -> None:
    """A port in use is one clear line and status 1, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = watch(port=port)
        assert service.process.wait(30) == 1
    log = service.log.read_text()
    assert f"127.0.0.1 port {port} is in use" in log
    assert "--port" in log
    assert "Traceback" not in log


def test_an_address_that_is_not_ours(watch: Start) -> None:
    """A host that cannot be listened on is one clear line and status 1."""
    service = watch("--host", "nowhere.invalid")
    assert service.process.wait(30) == 1
    assert "nowhere.invalid port" in service.log.read_text()
    assert "Traceback" not in service.log.read_text()


def test_an_unknown_provider(watch: Start) -> None:
    """An unknown provider is status 2 with the names of those known and the nearest one."""
    service = watch("--provider", "Prometeus")
    assert service.process.wait(30) == 2
    log = service.log.read_text()
    assert "'Prometeus': there is no such provider; did you mean Prometheus" in log
    assert "METRICS_PROVIDER_NAME" in log
    assert "Traceback" not in log


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
        (_empty, "has no series of instance:node_cpu:ratio"),
        (not_a_number, "returned no node with usable metrics; for one: AVG is nan"),
    ],
    ids=["unreachable", "wrong token", "not found", "html", "no such rule", "nan"],
)
def test_a_provider_that_does_not_help(watch: Start, answer: Any, words: str) -> None:
    """The service is up, alive and not ready; health, /watcher and the log tell the reason, and nothing the token."""

    def judge(address: str) -> None:
        service = watch(*at(address), *QUICK, "--set", "provider.token=hush-hush")
        wait_until(lambda: words in service.get("/watcher/health").text, f"health says: {words}")
        check_error(service.get("/watcher/health"), 503, "unhealthy")
        assert words in check_error(service.get("/watcher"), 404, "no_metrics")
        check_error(service.get("/readyz"), 503, "not_ready")
        assert service.get("/livez").status_code == 200
        assert service.get("/compat/watcher").json()["data"] == {"NodeMetricsMap": {}}
        assert words in service.log.read_text()
        everything = service.log.read_text() + "".join(service.get(path).text for path in ("/findings", "/metrics"))
        assert "hush" not in everything
        assert "Traceback" not in everything

    if answer is None:
        judge(NOTHING)
        return
    with serving(answer) as fake:
        judge(fake.url)


def test_a_provider_that_comes_up_later(watch: Start) -> None:
    """A provider that is down at the start is tried again soon, without a restart."""
    up = []
    with serving(lambda handler: vector(handler) if up else _status(503)(handler)) as fake:
        service = watch(*at(fake), *QUICK)
        wait_until(lambda: "503" in service.get("/watcher/health").text, "the provider is down")
        up.append(True)
        assert service.wait_for("/watcher/health").json()["status"] == "ok"


def test_a_corrupt_store_is_set_aside(watch: Start, prometheus: Fake, tmp_path: Path) -> None:
    """The service starts with a corrupt file, keeps its content under another name, and says so."""
    store = tmp_path / "watcher.sqlite"
    store.write_bytes(b"this is no database\n" * 1000)
    service = watch(*at(prometheus), *QUICK, store=store)
    body = service.wait_for("/watcher/health").json()
    (aside,) = tmp_path.glob("watcher.sqlite.corrupt-*")
    assert aside.read_bytes() == b"this is no database\n" * 1000
    assert aside.name in body["warnings"][0]
    assert "set aside" in service.log.read_text()
    assert "trimaran_store_set_aside_total 1.0" in service.get("/metrics").text


def test_a_store_that_cannot_be_opened(watch: Start, prometheus: Fake) -> None:
    """The service starts, serves from memory, and keeps saying that nothing will survive."""
    service = watch(*at(prometheus), *QUICK, store=Path("/proc/trimaran/watcher.sqlite"))
    body = service.wait_for("/watcher/health").json()
    assert "cannot be opened" in body["warnings"][0]
    assert service.get("/watcher").status_code == 200


def raw(service: Service, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are; return status, headers and body."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def test_host_names_of_any_kind(watch: Start, prometheus: Fake) -> None:
    """Quotes, newlines, 10 kB, broken encodings and requests each get a short JSON error; the service goes on."""
    service = watch(*at(prometheus), *QUICK)
    service.wait_for("/watcher")
    for name in ("%22%27", "a%0Ab", "%00", "%ff", "a%0d%0aSet-Cookie:%20x=1", "..%2f..%2fetc%2fpasswd", "%F0%9F%92%A9"):
        for path in (f"/watcher/{name}", f"/watcher?host={name}", f"/compat/watcher/{name}"):
            status, headers, body = raw(
                service, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
            )
            assert (status, headers["content-type"]) == (404, "application/json")
            assert json.loads(body)["error"]["code"] in {"unknown_node", "not_found"}
            assert "set-cookie" not in headers
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
        status, headers, body = raw(service, request.encode())
        assert (status, headers["content-type"]) == (expected, "application/json")
        assert json.loads(body)["error"]["code"] == "bad_request"
        assert len(body) < 500
    assert service.get("/watcher").status_code == 200
    assert "Traceback" not in service.log.read_text()


# -- the rest -----------------------------------------------------------------------------------------------------


def test_json_logs(watch: Start, prometheus: Fake) -> None:
    """With log.format=json each line of the log is one JSON object with time, level, logger and message."""
    service = watch(*at(prometheus), *QUICK, "--set", "log.format=json")
    service.wait_for("/watcher")
    service.terminate()
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    assert any(line["message"] == "serving" and line["url"] == f"{service.url}/watcher" for line in lines)


def test_kubernetes_service_variables_do_no_harm(watch: Start, prometheus: Fake) -> None:
    """In a pod beside a Service called trimaran the service listens where it was told."""
    service = watch(*at(prometheus), TRIMARAN_PORT="tcp://10.0.0.1:2020", TRIMARAN_SERVICE_PORT="2020")
    assert service.wait_for("/livez").status_code == 200


def test_many_requests_at_once(watch: Start, prometheus: Fake) -> None:
    """Requests from many threads, while snapshots change under them, all get whole documents."""
    service = watch(*at(prometheus), *QUICK)
    service.wait_for("/watcher")
    wrong: list[object] = []

    def ask() -> None:
        with requests.Session() as session:
            for _ in range(25):
                response = session.get(f"{service.url}/watcher", timeout=10)
                if response.status_code != 200 or set(response.json()["data"]) != {"node-1", "node-2"}:
                    wrong.append(response.text)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_bodies_are_compressed_on_the_wire(watch: Start, prometheus: Fake) -> None:
    """The bytes that come for ``Accept-Encoding: gzip`` are gzip of the plain document."""
    service = watch(*at(prometheus), "--interval", "100")
    service.wait_for("/watcher")
    request = "GET /watcher HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    _, headers, body = raw(service, f"{request}Accept-Encoding: gzip\r\n\r\n".encode())
    _, _, plain = raw(service, f"{request}\r\n".encode())
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(body) == plain


def test_port_zero_takes_a_free_one(watch: Start) -> None:
    """With --port 0 a free port is taken, and the log says which."""
    service = watch(port=0)
    pattern = re.compile(r"url=(http://127\.0\.0\.1:[0-9]+)/watcher")
    service.url = wait_until(lambda: pattern.search(service.log.read_text()), "the log names the address")[1]
    assert not service.url.endswith(":0")
    service.wait_for("/livez")
