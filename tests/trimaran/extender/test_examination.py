"""``/readyz``, ``/status`` and ``trimaran doctor --extender`` of a real extender."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import requests
from click.testing import CliRunner, Result
from support.certificates import Authority
from support.deciding import run_extender
from support.extending import extender_args
from support.fake_kubernetes import FakeKubernetes, node, pod, run_fake_kubernetes
from support.ports import closed_port, nowhere
from support.servers import Service, check_error, reply, serving, wait_until

from trimaran.cli.main import main

Start = Callable[..., Service]
TOKEN = "0123456789abcdef"
RULE = '{apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]}'


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[FakeKubernetes]:
    """Cluster with the nodes of the watcher's provider Fake, and one pod."""
    with run_fake_kubernetes(tmp_path) as fake:
        for number in (1, 2, 3):
            fake.put("nodes", node(f"node-{number}"))
        fake.put("pods", pod("web", "node-1"))
        yield fake


def doctor(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["doctor", "--extender", *arguments])


def test_a_healthy_extender_passes_all_steps(kubernetes: FakeKubernetes, tmp_path: Path, watch: Start) -> None:
    """The steps show the cluster, the metrics, the version, the profiles and the rollout; all pass, also as JSON."""
    watcher = watch("--provider", "Fake")
    watcher.wait_for("/watcher")
    with run_extender(tmp_path, kubernetes, watcher.url, "extender.mode=active", "extender.canary=10") as url:
        result = wait_until(lambda: (done := doctor(url)).exit_code == 0 and done, "all steps pass")
        document = json.loads(doctor(url + "/", "-o", "json").output)
        bad = pod("bad", "node-2")
        kubernetes.put("pods", {**bad, "spec": {**bad["spec"], "overhead": {"cpu": "much"}}})
        unknown = wait_until(lambda: "FAIL" in (text := doctor(url).output) and text, "the pod is known")
        for number in (1, 2, 3):
            kubernetes.delete("nodes", node(f"node-{number}"))
        kubernetes.put("nodes", node("worker"))
        other = wait_until(lambda: "FAIL  extender: metrics" in (text := doctor(url).output) and text, "it is known")
    failed = next(line for line in other.splitlines() if line.startswith("FAIL  extender: metrics"))
    assert "such as worker, but 3 others, such as node-1" in failed
    assert "objects: 1 nodes or pods " in unknown
    assert "1 nodes are not known: node-2: " in unknown
    lines = dict(
        line[6:].split(": ", 2)[1:] for line in result.output.splitlines() if line.startswith("ok    extender")
    )
    assert "accepts connections" in lines["TCP"]
    assert lines["cluster"].startswith("3 nodes, 1 pods ")
    assert lines["metrics"].startswith("3 nodes from Fake")
    assert re.findall(r"[\d.]+\d", lines["Kubernetes"]) == ["1.37", "1.37.2"]
    assert lines["profile"] == "load-aware: 1 x LoadVariationRiskBalancing"
    assert lines["mode"].startswith("active: 10 percent")
    assert {step["step"]: step["ok"] for step in document}["extender: ready"] is True


def test_a_missing_right_is_named(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    """Without the right to list pods, /readyz and doctor name verb, resource, account and the rule to add."""
    kubernetes.forbidden.add(("", "pods", "list"))
    with run_extender(tmp_path, kubernetes, "http://127.0.0.1:9") as url:
        wait_until(lambda: "403" in requests.get(f"{url}/readyz", timeout=20).text, "it was refused")
        wait_until(lambda: requests.get(f"{url}/status", timeout=20).json()["kubernetes"]["server"], "it has a version")
        response = requests.get(f"{url}/readyz", timeout=60)
        result = doctor(url)
        message = check_error(response, 503, "not_ready")
        requests.post(f"{url}/prioritize", orjson.dumps(extender_args("node-1")), timeout=60).raise_for_status()
        kubernetes.forbidden.clear()
        wait_until(lambda: requests.get(f"{url}/readyz", timeout=20).ok, "it is ready with the right")
        after = doctor(url)
    assert result.exit_code == after.exit_code == 1
    failed = [line for line in result.output.splitlines() if line.startswith("FAIL")]
    assert [line[6:].split(": ")[1] for line in failed] == ["ready", "cluster", "metrics"]
    for text in (message, failed[0], failed[1]):
        assert 'cannot list resource "pods"' in text
        assert 'User "system:serviceaccount:monitoring:trimaran"' in text
        assert RULE in text
    failed = [line for line in after.output.splitlines() if line.startswith("FAIL")]
    assert [line[6:].split(": ")[1] for line in failed] == ["metrics"]
    assert "cluster.watcher (TRIMARAN_CLUSTER__WATCHER)" in failed[0]


def test_an_api_server_that_never_answered_is_named(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    """/readyz and doctor have one short reason, without a class of Python; doctor says that nothing was ever heard."""
    kubernetes.url = f"https://127.0.0.1:{closed_port()}"
    with run_extender(tmp_path, kubernetes, "http://127.0.0.1:9") as url:
        wait_until(lambda: "refused" in requests.get(f"{url}/readyz", timeout=20).text, "its requests have failed")
        message = check_error(requests.get(f"{url}/readyz", timeout=60), 503, "not_ready")
        status = requests.get(f"{url}/status", timeout=60).json()
        output = doctor(url).output
    assert message == "the cluster is not known: Connection refused"
    assert (status["cluster"]["heard"], status["cluster"]["failures"]) == (False, ["Connection refused"])
    assert "the API server has not responded since the start, " in output
    assert "HTTPSConnectionPool" not in output
    assert "Max retries exceeded" not in output


def test_an_unknown_version_fails_a_step(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    """Without rules for the API server's version the step names the setting."""
    kubernetes.kubernetes = "v1.99.0"
    with run_extender(tmp_path, kubernetes, "http://127.0.0.1:9") as url:
        wait_until(lambda: requests.get(f"{url}/readyz", timeout=20).ok, "it is ready")
        output = doctor(url).output
    (line,) = [line for line in output.splitlines() if line.startswith("FAIL  extender: Kubernetes: ")]
    assert "v1.99.0" in line
    assert "extender.kubernetes_version" in line


def test_credentials_are_options(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    """Token, CA and client certificate are options, which failed steps name; without them /readyz gives no reason."""
    authority = Authority(tmp_path, "ca")
    server, client = authority.issue("server"), authority.issue("client")
    (tmp_path / "ca.pem").write_text(authority.certificate.read_text())
    (tmp_path / "token").write_text(TOKEN)
    settings = (
        f"server.certificate={server}", f"server.client_ca_file={authority.certificate}", f"server.token={TOKEN}",
    )  # fmt: skip
    kubernetes.forbidden.add(("", "pods", "list"))
    ca, key = ("--ca-file", str(authority.certificate)), ("--client-certificate", str(client))
    with run_extender(tmp_path, kubernetes, "http://127.0.0.1:9", *settings) as url:
        readyz = requests.get(f"{url}/readyz", verify=str(authority.certificate), timeout=60)
        assert "403" not in check_error(readyz, 503, "not_ready")
        for options, failed in (
            ((), "extender: TLS"), (ca, "extender: access"), ((*ca, *key), "extender: access"),
        ):  # fmt: skip
            result = doctor(url, *options)
            assert result.exit_code == 1
            (line,) = [line for line in result.output.splitlines() if line.startswith("FAIL")]
            assert line.startswith(f"FAIL  {failed}: ")
            option = {0: "--ca-file", 2: "--client-certificate", 4: "--token-file"}[len(options)]
            assert line.endswith(f"  -> {option}")
        result = doctor(url, *ca, *key, "--token-file", str(tmp_path / "token"))
        assert "extender: profile" in result.output


def test_an_address_without_an_extender() -> None:
    """Another service, a closed port and an invalid address fail in a step that names the option."""
    with serving(lambda handler: reply(handler, {"status": "success"})) as other:
        outputs = {url: doctor(url) for url in (other.url, nowhere(), "trimaran:2021")}
    for output in outputs.values():
        assert output.exit_code == 1
        (line,) = [line for line in output.output.splitlines() if line.startswith("FAIL")]
        assert line.endswith("  -> --extender")
    assert doctor("http://127.0.0.1:1", "--cluster").exit_code == 2
