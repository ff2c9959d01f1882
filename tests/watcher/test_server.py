"""The service as its own process: its answers, crashes, restarts and signals."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import jsonschema
import pytest
import requests
from conftest import History
from control_plane.clock import Clock
from support.servers import Fake, Service, check_error, prometheus_arguments, serving, two_nodes, wait_until
from support.starts import start_once
from support.waiting import LIMIT_SECONDS

from watcher.api.openapi import schema

Start = Callable[..., Service]
QUICK = ("--interval", "0.2", "--set", "watch.fetch_timeout_seconds=2")


# -- the main job -------------------------------------------------------------------------------------------------


def test_host_metrics_without_a_provider(watch: Start) -> None:
    """Without a provider setting, this machine's CPU and memory (AVG and STD) are served, valid by both schemas."""
    service = watch("--set", "host.node_name=this-machine", cold=True)
    document = service.wait_for("/watcher").json()
    jsonschema.Draft4Validator(schema("kep")).validate(document)
    jsonschema.Draft202012Validator(schema("watcher")).validate(document)
    assert document["source"] == "Host"
    served = {(metric["type"], metric["operator"]) for metric in document["data"]["this-machine"]["metrics"]}
    assert {("CPU", "AVG"), ("CPU", "STD"), ("Memory", "AVG"), ("Memory", "STD")} <= served
    one = service.get("/watcher/this-machine").json()
    assert list(one["data"]) == ["this-machine"]
    jsonschema.Draft202012Validator(schema("watcher")).validate(one)
    assert list(service.get("/compat/watcher").json()["data"]["NodeMetricsMap"]) == ["this-machine"]
    assert "'nobody'" in check_error(service.get("/watcher/nobody"), 404, "unknown_node")


@pytest.mark.server
def test_a_real_prometheus_end_to_end(watch: Start, prometheus_with_rules: History) -> None:
    """100 nodes of a real Prometheus are served, compressed and with an entity tag."""
    service = watch(*prometheus_arguments(prometheus_with_rules.url))
    response = service.wait_for("/watcher")
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(response.json()["data"]) == 100
    assert all(len(node["metrics"]) == 4 for node in response.json()["data"].values())
    assert service.get("/watcher", headers={"If-None-Match": response.headers["ETag"]}).status_code == 304
    wait_until(lambda: service.get("/watcher/health").ok, "health is good")
    assert service.get("/findings").json() == {"findings": [], "counts": {}}


# -- crashes and restarts -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_and_restarted_with_the_provider_down(watch: Start) -> None:
    """After a restart without the provider, the last snapshot is served with its own timestamp until it is stale.

    The probes report each state.
    """
    expiry = ("--set", "watch.expiry_seconds=20")
    with serving(two_nodes) as fake:
        first = watch(*prometheus_arguments(fake), *QUICK, *expiry)
        wait_until(lambda: first.wait_for("/watcher/health").ok, "the first is healthy")
        assert first.get("/readyz").status_code == 200
        before = first.get("/watcher").json()
        first.kill()
    second = watch(*prometheus_arguments(fake), *QUICK, *expiry)
    restarted = second.wait_for("/watcher").json()
    assert restarted["timestamp"] >= before["timestamp"]
    assert list(restarted["data"]) == list(before["data"])
    assert second.get("/readyz").status_code == 200
    assert second.get("/livez").status_code == 200
    check_error(second.get("/watcher/health"), 503, "unhealthy")
    assert second.get("/compat/watcher").json()["data"]["NodeMetricsMap"].keys() == before["data"].keys()

    again = second.get("/watcher").json()
    assert again["timestamp"] == restarted["timestamp"]  # unchanged, since the provider is down
    assert "cannot be reached" in check_error(second.wait_for("/watcher", 404), 404, "stale")
    assert time.time() - again["timestamp"] > 20
    check_error(second.get("/readyz"), 503, "not_ready")
    check_error(second.get("/watcher/health"), 503, "unhealthy")
    assert second.get("/livez").status_code == 200
    go = second.get("/compat/watcher")
    assert go.status_code == 200
    assert go.json()["data"] == {"NodeMetricsMap": {}}
    assert go.json()["timestamp"] == restarted["timestamp"]


def test_a_killed_worker_is_respawned(watch: Start, prometheus: Fake) -> None:
    """The master replaces a worker that died, and the new worker serves the store's snapshot."""
    service = watch(*prometheus_arguments(prometheus), *QUICK)
    service.wait_for("/watcher/health")
    (worker,) = service.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: service.workers() and service.workers() != [worker], "another worker is there")
    assert list(service.wait_for("/watcher").json()["data"]) == ["node-1", "node-2"]
    assert service.process.poll() is None


@pytest.mark.slow
def test_restart_waits_for_an_orphaned_worker(watch: Start, prometheus: Fake) -> None:
    """A service started right after its master was killed waits until the orphaned worker has left the port."""
    first = watch(*prometheus_arguments(prometheus), *QUICK)
    first.wait_for("/watcher")
    (orphan,) = first.workers()
    os.kill(orphan, signal.SIGSTOP)  # keeps the port until SIGCONT below
    try:
        first.process.kill()
        first.process.wait(10)
        second = watch(*prometheus_arguments(prometheus), *QUICK, port=first.port)
        wait_until(lambda: "waiting for it" in second.log.read_text(), "the port is in use")
    finally:
        os.kill(orphan, signal.SIGCONT)
    wait_until(second.workers, "the second has a worker")
    assert second.wait_for("/watcher").status_code == 200
    assert "Traceback" not in second.log.read_text()


@pytest.mark.slow
def test_starts_under_busy_clients(tmp_path: Path) -> None:
    """In 8 restarts no client gets an error while the worker still imports modules (1,000 in ``make soak``)."""
    start_once(tmp_path, 0, 1.5)  # fills the store
    for _ in range(8):
        errors, answers = start_once(tmp_path, 24, 1.0)
        assert errors == []
        assert answers["/compat/watcher", 200] > 0


@pytest.mark.server
@pytest.mark.slow
def test_the_clock_jumps_while_the_service_runs(watch: Start, tmp_path: Path) -> None:
    """After each jump, back or ahead by up to 50 years, the next fetch is served, and the worker lives on."""
    clock = Clock(tmp_path, "watcher")
    service = watch("--provider", "Fake", "--interval", "0.2", cold=True, **clock.environment)
    service.wait_for("/watcher")
    service.wait_for("/livez")
    workers = service.workers()
    day = 86400
    for seconds in (-10, -3600, -day, 0, day, 0, -50 * 365 * day, 0, 5 * 365 * day, 0):
        clock.set(seconds)

        def is_fetched(offset: int = seconds) -> bool:
            return abs(service.get("/watcher").json().get("timestamp", 0) - time.time() - offset) < 4

        wait_until(is_fetched, f"a fetch {seconds} s from now is served")
        assert {service.get(path).status_code for path in ("/livez", "/readyz", "/compat/watcher")} == {200}
    loads = service.get("/history?host=node-1&type=CPU&operator=AVG&since=5m").json()["series"][0]["values"][0]
    assert loads[-1] is not None or loads[-2] is not None
    assert service.workers() == workers
    assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_service_cleanly(watch: Start, prometheus: Fake, tmp_path: Path, number: int) -> None:
    """SIGTERM and SIGINT end master and worker with status 0, without a traceback, and close the store."""
    service = watch(*prometheus_arguments(prometheus), *QUICK)
    service.wait_for("/watcher")
    with requests.Session() as idle:  # an idle connection must not delay the end
        idle.get(f"{service.url}/livez", timeout=60)
        service.process.send_signal(number)
        assert service.process.wait(LIMIT_SECONDS) == 0
    assert "Traceback" not in service.log.read_text()
    assert "cannot be fetched" not in service.log.read_text()
    files = sorted(path.name for path in tmp_path.glob("watcher.sqlite*"))
    assert files == ["watcher.sqlite", "watcher.sqlite.lock"], service.log.read_text()


def test_sigterm_does_not_wait_for_a_provider_that_hangs(watch: Start, tmp_path: Path) -> None:
    """While a fetch hangs in the provider, SIGTERM ends the service cleanly, long before the fetch times out."""

    def hang(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:  # until the service closes the connection
            handler.wfile.write(b" ")
            time.sleep(0.05)

    with serving(hang) as fake:
        service = watch(*prometheus_arguments(fake), "--set", f"watch.fetch_timeout_seconds={2 * LIMIT_SECONDS}")
        wait_until(lambda: len(fake.requests) >= 12, "the fetch is under way")
        began = time.monotonic()
        assert service.terminate() == 0
        assert time.monotonic() - began < LIMIT_SECONDS
    assert "Traceback" not in service.log.read_text()
    # A worker that is killed after its grace period leaves the store open.
    assert sorted(path.name for path in tmp_path.glob("watcher.sqlite*")) == ["watcher.sqlite", "watcher.sqlite.lock"]


# -- the rest -----------------------------------------------------------------------------------------------------


def test_json_logs(watch: Start, prometheus: Fake) -> None:
    """With log.format=json, each line of the log is one JSON object with time, level, logger and message."""
    service = watch(*prometheus_arguments(prometheus), *QUICK, "--set", "log.format=json")
    service.wait_for("/watcher")
    service.terminate()
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    assert any(line["message"] == "serving" and line["url"] == f"{service.url}/watcher" for line in lines)


def test_many_requests_at_once(watch: Start, prometheus: Fake) -> None:
    """Concurrent requests during changes of the snapshot all get complete documents."""
    service = watch(*prometheus_arguments(prometheus), *QUICK)
    service.wait_for("/watcher")
    wrong: list[object] = []

    def ask() -> None:
        with requests.Session() as session:
            for _ in range(25):
                response = session.get(f"{service.url}/watcher", timeout=60)
                if response.status_code != 200 or set(response.json()["data"]) != {"node-1", "node-2"}:
                    wrong.append(response.text)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_port_zero_selects_a_free_port(watch: Start) -> None:
    """With --port 0 the service listens on a free port, and the log has its number."""
    service = watch(port=0)
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]+", service.url)
    service.wait_for("/livez")


@pytest.mark.parametrize("host", ["::", "[::]"])
def test_listening_on_ipv6_and_ipv4(watch: Start, host: str) -> None:
    """A service that listens on ``::``, with or without brackets, also answers over IPv4."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("IPv6 is not available")
    service = watch("--host", host)
    service.wait_for("/livez")
    service.url = service.url.replace("127.0.0.1", "[::1]")
    service.wait_for("/livez")


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (("--host", "0.0.0.0"), True),
        (("--host", "localhost"), False),
        (("--host", "127.0.0.2"), False),
        (("--host", "0.0.0.0", "--set", "server.token=right-token-right-token"), False),
    ],
)
def test_an_open_port_is_warned_about(watch: Start, arguments: tuple[str, ...], warned: bool) -> None:
    """Listening on a non-local address without authentication logs one warning that names the settings."""
    service = watch(*arguments)
    wait_until(lambda: "serving" in service.log.read_text(), "it serves")
    service.terminate()
    assert service.log.read_text().count("server.tokens_file") == warned
