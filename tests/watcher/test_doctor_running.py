"""The doctor asks a watcher that runs, and the cluster for its nodes."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from support.certificates import Authority
from support.fake_kubernetes import FakeKubernetes, node, run_fake_kubernetes
from support.servers import Service, free_port, reply, serving, wait_until

from trimaran.cli.main import main
from watcher.doctor.remote_watcher import WatcherConnection, examine_watcher
from watcher.providers.base import Check

Start = Callable[..., Service]
TOKEN = "right-token-right-token"


@pytest.fixture
def service(watch: Start) -> Service:
    """A watcher of three made-up nodes, node-1 to node-3."""
    service = watch("--provider", "Fake")
    service.wait_for("/watcher")
    return service


@pytest.fixture
def kubernetes(kubernetes_folder: Path) -> Iterator[FakeKubernetes]:
    """A cluster that has one node more than the watcher knows, and lacks one."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        for name in ("node-1", "node-2", "node-7"):
            fake.nodes[name] = node(name)
        yield fake


def failures(checks: Iterator[Check]) -> list[tuple[str, str]]:
    """Return the steps that failed, with what mends them."""
    return [(check.step, check.setting) for check in checks if not check.ok]


def test_a_watcher_that_runs(service: Service) -> None:
    """The way to it, how it does and what it serves are told; no step fails."""
    checks = {check.step: check for check in examine_watcher(WatcherConnection(service.url + "/watcher/"))}
    assert not [check for check in checks.values() if not check.ok]
    assert "accepts connections" in checks["watcher: TCP"].message
    assert "15m" in checks["watcher: health"].message
    assert checks["watcher: metrics"].message == "3 nodes from Fake, window 15m"
    assert checks["watcher: metrics"].details == ("node-1", "node-2", "node-3")


def test_its_nodes_are_held_against_the_cluster_s(
    service: Service, kubernetes: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --cluster the API server says which nodes there are: by the settings' kubeconfig, or the one of kubectl."""
    config = str(kubernetes.kube_config())
    command = ["doctor", "--watcher", service.url, "--cluster"]
    for way in (["--set", f"provider.kube_config={config}"], []):
        monkeypatch.setenv("KUBECONFIG", "/nowhere" if way else config)
        result = CliRunner().invoke(main, [*command, *way])
        assert result.exit_code == 1
        assert "FAIL  the cluster's nodes: without metrics: node-7" in result.output
        assert "FAIL  metrics of no node: metrics of what is no node of the cluster: node-3" in result.output
    broken = tmp_path / "config"
    broken.write_text("kind: Config")
    result = CliRunner().invoke(main, [*command, "--set", f"provider.kube_config={broken}"])
    assert (result.exit_code, "trimaran: " in result.output) == (2, True)
    result = CliRunner().invoke(main, [*command, "--nodes", "nodes.yaml"])
    assert (result.exit_code, "give one" in result.output) == (2, True)


def test_an_api_server_that_is_not_there_is_said(
    service: Service, kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is examined without the nodes that were asked for."""
    config = Path(kubernetes.kube_config("gone", server=f"https://127.0.0.1:{free_port()}"))
    monkeypatch.setenv("KUBECONFIG", str(config))
    result = CliRunner().invoke(main, ["doctor", "--watcher", service.url, "--cluster"])
    assert result.exit_code == 2
    assert "the API server does not list the nodes: " in result.output


def test_what_it_holds_to_be_wrong_is_a_failed_step(watch: Start, tmp_path: Path) -> None:
    """A node whose average is beyond what can be is found by the watcher, and told by the doctor."""
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps({"good": {"cpu": {"average": 20}}, "bad": {"cpu": {"average": 900}}}))
    service = watch("--provider", "Fake", "--set", f"fake.file={nodes}")
    service.wait_for("/watcher")
    result = CliRunner().invoke(main, ["doctor", "--watcher", service.url])
    assert result.exit_code == 1
    (line,) = [line for line in result.output.splitlines() if line.startswith("FAIL  out of range: ")]
    assert line.count("bad fake:cpu:percent: AVG is 900 percent of capacity") == 1


def test_what_keeps_us_out_names_the_option(watch: Start, tmp_path: Path) -> None:
    """A certificate that is not trusted, a plain http to TLS, no token and a wrong one: each has its option."""
    authority = Authority(tmp_path, "authority")
    certificate = authority.issue("server")
    service = watch(
        "--provider", "Fake", "--set", f"server.certificate={certificate}", "--set", f"server.token={TOKEN}"
    )
    service.url = service.url.replace("http:", "https:")
    ready = partial(requests.get, f"{service.url}/readyz", timeout=5, verify=str(authority.certificate))
    wait_until(lambda: ready().ok, "it is ready")
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(TOKEN)
    wrong.write_text("wrong-token-wrong-token")
    trusted = WatcherConnection(service.url, right, authority.certificate)
    assert failures(examine_watcher(trusted)) == []
    for running, failed in (
        (WatcherConnection(service.url), ("watcher: TLS", "--ca-file")),
        (WatcherConnection(service.url.replace("https:", "http:")), ("watcher", "--watcher")),
        (WatcherConnection(service.url, None, authority.certificate), ("watcher: access", "--token-file")),
        (WatcherConnection(service.url, wrong, authority.certificate), ("watcher: access", "--token-file")),
        (WatcherConnection(service.url, tmp_path / "nowhere", authority.certificate), ("watcher", "--token-file")),
    ):
        assert failures(examine_watcher(running)) == [failed]


def test_what_is_no_watcher_is_said() -> None:
    """Another service, a closed port and an address that is none fail in a step that names the option."""
    with serving(lambda handler: reply(handler, "<html>Welcome</html>")) as server:
        assert failures(examine_watcher(WatcherConnection(server.url))) == [("watcher: metrics", "--watcher")]
    assert failures(examine_watcher(WatcherConnection(f"http://127.0.0.1:{free_port()}"))) == [("watcher: TCP", "--watcher")]
    assert failures(examine_watcher(WatcherConnection("trimaran:2020"))) == [("watcher", "--watcher")]


def test_the_go_service_is_examined_as_far_as_it_tells() -> None:
    """load-watcher has neither health nor findings: its metrics are read all the same."""
    body = {"timestamp": 1, "window": {"duration": "15m", "start": 1, "end": 2}, "source": "Prometheus",
            "data": {"NodeMetricsMap": {"a": {"metrics": [], "tags": {}, "metadata": {}}}}}  # fmt: skip
    with serving(lambda handler: reply(handler, body)) as server:
        checks = {check.step: check.message for check in examine_watcher(WatcherConnection(server.url))}
    assert checks["watcher: health"] == "it does not say how it does"
    assert checks["watcher: metrics"] == "1 nodes from Prometheus, window 15m"
