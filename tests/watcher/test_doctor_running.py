"""Tests of the doctor with a running watcher, and with the nodes of a cluster."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from support.certificates import Authority
from support.fake_kubernetes import FakeKubernetes, node, run_fake_kubernetes
from support.ports import closed_port, nowhere
from support.servers import Service, reply, serving, wait_until

from trimaran.cli.main import main
from watcher.doctor.metrics import summarize
from watcher.doctor.remote_service import ServiceConnection
from watcher.doctor.remote_watcher import examine_watcher
from watcher.findings import Finding, Kind
from watcher.providers.base import Check

Start = Callable[..., Service]
TOKEN = "right-token-right-token"


@pytest.fixture
def service(watch: Start) -> Service:
    """Watcher with three made-up nodes, node-1 to node-3."""
    service = watch("--provider", "Fake")
    service.wait_for("/watcher")
    return service


@pytest.fixture
def kubernetes(kubernetes_folder: Path) -> Iterator[FakeKubernetes]:
    """Cluster with one node that the watcher does not have, and without one that it has."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        for name in ("node-1", "node-2", "node-7"):
            fake.nodes[name] = node(name)
        yield fake


def failures(checks: Iterator[Check]) -> list[tuple[str, str]]:
    """Return the failed steps with their settings."""
    return [(check.step, check.setting) for check in checks if not check.ok]


def test_running_watcher(service: Service) -> None:
    """All steps succeed, with the connection, the health and the served metrics."""
    checks = {check.step: check for check in examine_watcher(ServiceConnection(service.url + "/watcher/"))}
    assert not [check for check in checks.values() if not check.ok]
    assert "accepts connections" in checks["watcher: TCP"].message
    assert "15m" in checks["watcher: health"].message
    assert checks["watcher: metrics"].message == "3 nodes from Fake, window 15m"
    assert checks["watcher: metrics"].details == ("node-1", "node-2", "node-3")


def test_nodes_are_compared_with_the_cluster(
    service: Service, kubernetes: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --cluster the nodes come from the API server, by provider.kube_config or kubectl's configuration."""
    config = str(kubernetes.kube_config())
    command = ["doctor", "--watcher", service.url, "--cluster"]
    for options in (["--set", f"provider.kube_config={config}"], []):
        monkeypatch.setenv("KUBECONFIG", "/nowhere" if options else config)
        result = CliRunner().invoke(main, [*command, *options])
        assert result.exit_code == 1
        assert "without metrics: node-7" in result.output
        assert "unknown nodes: " in result.output
    broken = tmp_path / "config"
    broken.write_text("kind: Config")
    result = CliRunner().invoke(main, [*command, "--set", f"provider.kube_config={broken}"])
    assert (result.exit_code, "trimaran: " in result.output) == (2, True)
    result = CliRunner().invoke(main, [*command, "--nodes", "nodes.yaml"])
    assert (result.exit_code, "--nodes and --cluster" in result.output) == (2, True)


@pytest.mark.parametrize("option", ["--worth-it", "--cluster"])
def test_a_missing_kubeconfig_of_the_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """A variable KUBECONFIG that names a missing file is an error with the file; an existing one of a list is used."""
    missing = tmp_path / "none"
    monkeypatch.setenv("KUBECONFIG", str(missing))
    result = CliRunner().invoke(main, ["doctor", option, "--provider", "Host"])
    assert result.exit_code == 2
    assert str(missing) in result.output
    other = tmp_path / "other"
    other.write_text("kind: Config")
    monkeypatch.setenv("KUBECONFIG", f"{missing}{os.pathsep}{other}")
    result = CliRunner().invoke(main, ["doctor", option, "--provider", "Host"])
    assert str(other) in result.output


def test_unreachable_api_server(service: Service, kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cluster's nodes the command ends with status 2."""
    config = Path(kubernetes.kube_config("gone", server=f"https://127.0.0.1:{closed_port()}"))
    monkeypatch.setenv("KUBECONFIG", str(config))
    result = CliRunner().invoke(main, ["doctor", "--watcher", service.url, "--cluster"])
    assert result.exit_code == 2
    assert "API server" in result.output


@pytest.mark.parametrize("service", ["watcher", "extender", "scheduler", "rebalancer"])
def test_an_empty_address_is_a_failed_step(service: str) -> None:
    """An address that was not set, as of an unset variable, does not check this machine's provider instead."""
    result = CliRunner().invoke(main, ["doctor", f"--{service}", "", "--provider", "Host"])
    assert result.exit_code == 1, result.output
    assert result.output.startswith(f"FAIL  {service}: ")


def test_findings_about_coverage_name_their_window() -> None:
    """Low coverage is reported for each window, with its name; a problem in all windows is reported once."""
    found = [
        {"kind": kind, "node": "vm", "window": window, "message": message}
        for window, share in (("15m", 2), ("5m", 5))
        for kind, message in (("low_coverage", f"only {share}% has samples"), ("flatline", "it never changes"))
    ]

    metrics = {
        "timestamp": 1, "window": {"duration": "15m", "start": 1, "end": 2}, "source": "Prometheus",
        "data": {"NodeMetricsMap": {"vm": {"metrics": [], "tags": {}, "metadata": {}}}},
    }  # fmt: skip
    bodies = {"/watcher": metrics, "/findings": {"findings": found}}
    with serving(lambda handler: reply(handler, bodies.get(handler.path, {}))) as fake:
        output = CliRunner().invoke(main, ["doctor", "--watcher", fake.url]).output
    assert "vm, 15m: " in output
    assert "flatline: vm: " in output


@pytest.mark.parametrize(("age", "fails"), [(0, False), (899, False), (900, True)])
def test_windows_that_fill_are_starting(age: int, fails: bool) -> None:
    """Low coverage fails once it lasts longer than its window; before, one step says that the windows fill."""
    found = [
        {"kind": "low_coverage", "node": name, "window": "15m", "message": "only 20% has samples", "since": 1000}
        for name in ("a", "b")
    ]
    metrics = {
        "timestamp": 1000 + age, "window": {"duration": "15m", "start": 1, "end": 2}, "source": "Kubelet",
        "data": {"NodeMetricsMap": {"a": {"metrics": [], "tags": {}, "metadata": {}}}},
    }  # fmt: skip
    health = {"reasons": [], "warnings": ["low_coverage: only 20% has samples (a, 15m)"], "age_seconds": {}}
    bodies = {"/watcher": metrics, "/findings": {"findings": found}, "/watcher/health": health}
    with serving(lambda handler: reply(handler, bodies.get(handler.path, {}))) as fake:
        checks = list(examine_watcher(ServiceConnection(fake.url)))
    assert [check.step for check in checks if not check.ok] == (["low coverage"] if fails else [])
    texts = [check.message for check in checks if check.step == "watcher: windows"]
    assert [text.startswith("starting: 15m: ") for text in texts] == ([] if fails else [True])


@pytest.mark.parametrize("why", ["no metrics yet", "connection refused"])
def test_a_watcher_before_its_first_fetch_is_starting(why: str) -> None:
    """No metrics before the first fetch has ended are no failure; after a failed fetch they are one."""
    health = {"reasons": [f"windows 15m, 10m: {why}"], "warnings": [], "age_seconds": {}}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, health if handler.path == "/watcher/health" else {"code": "no_metrics"}, 503)

    with serving(answer) as fake:
        checks = list(examine_watcher(ServiceConnection(fake.url)))
    failed = [check.step for check in checks if not check.ok]
    assert failed == ([] if why == "no metrics yet" else ["watcher: health", "watcher: metrics"])


def test_open_findings_become_failed_steps(watch: Start, tmp_path: Path) -> None:
    """A finding of the watcher becomes a failed step."""
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps({"good": {"cpu": {"average": 20}}, "bad": {"cpu": {"average": 900}}}))
    service = watch("--provider", "Fake", "--set", f"fake.file={nodes}")
    service.wait_for("/watcher")
    result = CliRunner().invoke(main, ["doctor", "--watcher", service.url])
    assert result.exit_code == 1
    (line,) = [line for line in result.output.splitlines() if line.startswith("FAIL  out of range: ")]
    assert line.count("bad fake:cpu:percent: ") == 1


def test_failed_access_names_the_option(watch: Start, tmp_path: Path) -> None:
    """An untrusted certificate, plain HTTP to TLS, and a missing or wrong token each name their option."""
    authority = Authority(tmp_path, "authority")
    certificate = authority.issue("server")
    service = watch(
        "--provider", "Fake", "--set", f"server.certificate={certificate}", "--set", f"server.token={TOKEN}"
    )
    ready = partial(requests.get, f"{service.url}/readyz", timeout=5, verify=str(authority.certificate))
    wait_until(lambda: ready().ok, "it is ready")
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(TOKEN)
    wrong.write_text("wrong-token-wrong-token")
    trusted = ServiceConnection(service.url, right, authority.certificate)
    assert failures(examine_watcher(trusted)) == []
    for running, failed in (
        (ServiceConnection(service.url), ("watcher: TLS", "--ca-file")),
        (ServiceConnection(service.url.replace("https:", "http:")), ("watcher", "--watcher")),
        (ServiceConnection(service.url, None, authority.certificate), ("watcher: access", "--token-file")),
        (ServiceConnection(service.url, wrong, authority.certificate), ("watcher: access", "--token-file")),
        (ServiceConnection(service.url, tmp_path / "nowhere", authority.certificate), ("watcher", "--token-file")),
    ):
        assert failures(examine_watcher(running)) == [failed]


def test_address_without_a_watcher() -> None:
    """Another service, a closed port and an invalid address fail in a step that names the option."""
    with serving(lambda handler: reply(handler, "<html>Welcome</html>")) as server:
        assert failures(examine_watcher(ServiceConnection(server.url))) == [("watcher: metrics", "--watcher")]
    assert failures(examine_watcher(ServiceConnection(nowhere()))) == [("watcher: TCP", "--watcher")]
    assert failures(examine_watcher(ServiceConnection("trimaran:2020"))) == [("watcher", "--watcher")]


def test_load_watcher_has_no_health() -> None:
    """load-watcher has neither health nor findings, but its metrics are examined."""
    body = {"timestamp": 1, "window": {"duration": "15m", "start": 1, "end": 2}, "source": "Prometheus",
            "data": {"NodeMetricsMap": {"a": {"metrics": [], "tags": {}, "metadata": {}}}}}  # fmt: skip
    with serving(lambda handler: reply(handler, body)) as server:
        checks = {check.step: check.message for check in examine_watcher(ServiceConnection(server.url))}
    assert checks["watcher: health"] == "there is no health report"
    assert checks["watcher: metrics"] == "1 nodes from Prometheus, window 15m"


def test_nodes_with_the_same_cause_share_one_text() -> None:
    """A cause has one text with its nodes; the details have a line for each node."""
    names = [f"n{number}" for number in range(7)]
    findings = [Finding(Kind.QUERY_FAILED, "connection refused", "5m", name) for name in names]
    findings.append(Finding(Kind.QUERY_FAILED, "403 Forbidden", "5m", "other"))
    (check,) = summarize(findings)
    assert check.message == "7 nodes (n0, n1, n2, n3, n4 and 2 more): connection refused; other: 403 Forbidden"
    assert check.details == (*(f"{name}: connection refused" for name in names), "other: 403 Forbidden")
