"""Extender as a process of its own: without a cluster, without a watcher, and with unusable settings."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import requests
import yaml
from click.testing import CliRunner
from control_plane.processes import Process
from support.certificates import Authority
from support.extending import CONFIGURATION, extender_args
from support.fake_kubernetes import node, run_fake_kubernetes
from support.plugin_packages import register
from support.servers import Service, TrimaranProcess, check_error, wait_until
from support.threads import started

from runtime.kubernetes import api as kubernetes
from trimaran.cli.main import main
from trimaran.extender.outage import EventRecorder
from trimaran.extender.settings import ExtenderSection

Start = Callable[..., Service]
MEGABYTES = 1 << 20


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a scheduler configuration, and a kubeconfig of an unreachable API server."""
    scheduler, kubeconfig = tmp_path / "scheduler.yaml", tmp_path / "kubeconfig"
    scheduler.write_text(yaml.safe_dump(dict(CONFIGURATION)))
    kubeconfig.write_text(
        yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "me", "user": {"token": "nobody's"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        })
    )  # fmt: skip
    return scheduler, kubeconfig


@pytest.fixture
def url(files: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    """Yield the URL of an extender that reaches neither a cluster nor a watcher."""
    scheduler, kubeconfig = files
    command = [
        "extender", "--config", scheduler, "--kube-config", kubeconfig,
        "--watcher", "http://127.0.0.1:9", "--port", "0",
    ]  # fmt: skip
    process = TrimaranProcess(command, tmp_path / "extender.log")
    try:
        process.wait_until(lambda: requests.get(f"{process.url}/livez", timeout=5).ok, "the extender answers")
        yield process.url
    finally:
        process.terminate()


def test_without_a_cluster_scores_are_neutral(url: str) -> None:
    """Without a cluster the extender is alive but not ready, and gives all nodes the same score."""
    assert requests.get(f"{url}/readyz", timeout=60).status_code == 503
    for document in (extender_args("node-1", "node-2"), extender_args("node-1", "node-1", "node-2"), extender_args()):
        response = requests.post(f"{url}/prioritize", orjson.dumps(document), timeout=60)
        assert response.status_code == 200
        assert response.json() == [{"Host": name, "Score": 0} for name in dict.fromkeys(document["NodeNames"])]
    check_error(requests.post(f"{url}/prioritize", b'{"Pod": NaN}', timeout=60), 400, "bad_request")


@pytest.mark.parametrize(
    ("server", "setting", "refused"),
    [("v1.37.2", (), ""), ("v1.38.0", (), "has version v1.38.0"), ("v1.38.0", ("1.37",), "")],
)
def test_an_unknown_version_of_kubernetes_is_refused(
    files: tuple[Path, Path], tmp_path: Path, server: str, setting: tuple[str, ...], refused: str
) -> None:
    """The extender does not act for a version without known rules, and says why; the setting overrides the server's."""
    log = tmp_path / "extender.log"
    with run_fake_kubernetes(tmp_path, kubernetes=server) as fake:
        fake.put("nodes", node("node-1"))
        command = [
            "extender", "--config", files[0], "--kube-config", fake.kube_config(),
            "--watcher", "http://127.0.0.1:9", "--port", "0", "--set", "extender.mode=active",
            *(option for version in setting for option in ("--set", f"extender.kubernetes_version={version}")),
        ]  # fmt: skip
        process = TrimaranProcess(command, log)
        try:
            url = process.url
            process.wait_until(lambda: requests.get(f"{url}/readyz", timeout=5).ok, "the extender is ready")
            response = requests.post(f"{url}/prioritize", orjson.dumps(extender_args("node-1")), timeout=60)
            assert response.json() == [{"Host": "node-1", "Score": 0}]
            outcome = "no_rules" if refused else "no_metrics"
            assert f'outcome="{outcome}"}} 1.0' in requests.get(f"{url}/metrics", timeout=60).text
        finally:
            process.terminate()
    reasons = [line for line in log.read_text().splitlines() if "nodes are not scored by their load" in line]
    assert len(reasons) == 1
    assert refused in reasons[0]


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ((), ""),
        (("server.host=0.0.0.0",), "everyone who reaches the port"),
        (("server.host=0.0.0.0", "server.token=0123456789abcdef"), "cannot send a token"),
    ],
)
@pytest.mark.slow
def test_an_open_port_is_logged(
    files: tuple[Path, Path], tmp_path: Path, settings: tuple[str, ...], warning: str
) -> None:
    """The log warns of a port that is open without a certificate, and of a token, which kube-scheduler cannot send."""
    log = tmp_path / "extender.log"
    command = [
        "extender", "--config", files[0], "--kube-config", files[1],
        "--watcher", "http://127.0.0.1:9", "--port", "0", *(w for each in settings for w in ("--set", each)),
    ]  # fmt: skip
    process = TrimaranProcess(command, log)
    process.wait_until(lambda: "serving" in log.read_text(), "it serves")
    process.terminate()
    text = log.read_text()
    assert warning in text
    assert ("everyone who" in text, "cannot send a token" in text) == ("everyone" in warning, "token" in warning)


def test_explanations_need_the_client_certificate_first(files: tuple[Path, Path], tmp_path: Path) -> None:
    """If clients need a certificate, no token of a caller without one is reviewed; /explain needs both."""
    authority = Authority(tmp_path, "ca")
    server, client = authority.issue("server"), authority.issue("client")
    settings = (
        f"server.certificate={server}", f"server.key={server}", f"server.client_ca_file={authority.certificate}",
        "server.token=0123456789abcdef",
    )  # fmt: skip
    command = [
        "extender", "--config", files[0], "--kube-config", files[1],
        "--watcher", "http://127.0.0.1:9", "--port", "0", *(w for each in settings for w in ("--set", each)),
    ]  # fmt: skip
    process = TrimaranProcess(command, tmp_path / "extender.log")

    def get(path: str, token: str = "", certificate: Path | None = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        cert = str(certificate) if certificate else None
        return requests.get(
            f"{process.url}{path}", headers=headers, cert=cert, verify=str(authority.certificate), timeout=60
        )

    try:
        process.wait_until(lambda: get("/livez").ok, "the extender answers")
        for path in ("/explain?pod=default/x", "/decisions", "/regret"):
            check_error(get(path, "made-up"), 403, "forbidden")
        for path in ("/explain?pod=default/x", "/decisions"):
            check_error(get(path, certificate=client), 401, "unauthorized")
            check_error(get(path, "made-up", client), 503, "no_review")  # the API server is unreachable
        check_error(get("/regret", "made-up", client), 401, "unauthorized")
    finally:
        process.terminate()


def test_a_huge_body_is_refused(url: str) -> None:
    """A body of 100 MB is refused by its Content-Length, and the next request is answered."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST /prioritize HTTP/1.1\r\nHost: {host}\r\nContent-Length: {100 * MEGABYTES}\r\n\r\n"
        connection.sendall(head.encode() + b"{" * MEGABYTES)
        answer = b""
        while b"too_large" not in answer and (more := connection.recv(65536)):  # head and body may come apart
            answer += more
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"too_large"' in answer
    assert requests.post(f"{url}/prioritize", orjson.dumps(extender_args("node-1")), timeout=60).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "extender.config"),
        (("--config", "nowhere.yaml"), "nowhere.yaml"),
        (("--set", "extender.on_outage=sometimes"), "extender.on_outage"),
        (("--set", "extender.on_outage=alike"), "Input should be 'neutral' or 'allocation'"),
        (("--set", "extender.outage=alike"), "extender.outage (command line): renamed to extender.on_outage"),
        (("--set", "extender.deadlines=1"), "did you mean extender.deadline_seconds"),
        (("--set", "extender.kubernetes_version=1.38"), "extender.kubernetes_version"),
        (("--set", "extender.kubernetes_version=1.38"), "choose one of 1.33, 1.34, 1.35, 1.36, 1.37"),
        (("--set", "server.compat_port=2022"), "server.compat_port (command line): a setting of the watcher"),
        (("--set", "server.dialect=go"), "server.dialect (command line): a setting of the watcher"),
    ],
)
def test_unusable_settings_are_reported(arguments: tuple[str, ...], why: str) -> None:
    """An unusable setting ends the command with status 2 and an error that names it."""
    done = CliRunner().invoke(main, ["extender", *arguments])
    assert done.exit_code == 2
    assert why in done.output


def test_a_missing_kubeconfig_is_reported(files: tuple[Path, Path]) -> None:
    """Outside a cluster the error names the missing setting with its option, and nothing that cannot be set."""
    done = CliRunner().invoke(main, ["extender", "--config", str(files[0]), "--watcher", "http://127.0.0.1:9"])
    assert done.exit_code == 2
    assert done.output.endswith("set cluster.kube_config (--kube-config), for example to ~/.kube/config\n")


class Refusing:
    def __init__(self, status: int) -> None:
        self.status = status
        self.requests: list[object] = []

    def send(self, *request: object) -> None:
        self.requests.append(request)
        response = requests.Response()
        response.status_code = self.status
        response.reason = "refused"
        raise requests.HTTPError(response=response)


def test_refused_events_are_given_up_and_name_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    """Without the right to create Events, the log has the missing rule and the setting, and no more Events are sent."""
    for status, sent in ((403, 1), (500, 2)):
        caplog.clear()
        api = Refusing(status)
        events = EventRecorder(api, "team-a")
        for reason in ("the watcher is gone", ""):
            events.record(reason)
            wait_until(lambda: not started("event"), "it is sent")
        assert len(api.requests) == len(caplog.records) == sent
        remedy = vars(caplog.records[0]).get("remedy", "")
        rule = (
            'a Role in the namespace team-a bound to this user needs the rule {apiGroups: [""], resources: ["events"]'
        )
        assert (rule in remedy, "extender.events_namespace" in remedy) == (status == 403, status == 403)


def test_events_go_to_the_namespace_of_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default Events are written in the pod's namespace: the shipped roles allow them there, and only there."""
    monkeypatch.setattr(kubernetes, "SERVICE_ACCOUNT", tmp_path)
    assert ExtenderSection().event_namespace() == "default"
    (tmp_path / "namespace").write_text("team-a")
    assert ExtenderSection().event_namespace() == "team-a"
    assert [ExtenderSection(events_namespace=name).event_namespace() for name in ("", "b")] == ["", "b"]
    for file in ("deploy/kubernetes/extender.yaml", "deploy/kubernetes/scheduler.yaml"):
        assert "events_namespace" not in (Path(__file__).parents[3] / file).read_text()


SLOW_PLUGIN = """
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from scoring import ScorePlugin


@dataclass(frozen=True)
class Slow(ScorePlugin):
    folder: str

    name: ClassVar[str] = "Slow"
    reads_pods: ClassVar[bool] = False

    def node_terms(self, nodes, metrics):
        time.sleep(2.5)
        if metrics.of("CPU").valid.any():
            Path(self.folder, "prepared").touch()
        return {"load": metrics.of("CPU").average}

    def pod_terms(self, pods, node, nodes, rows):
        return {"score": np.clip(100 - node["load"], 0, 100).astype(np.int64)}

    def line(self, terms):
        return ""
"""


def test_an_idle_extender_scores_the_first_pod(files: tuple[Path, Path], tmp_path: Path, watch: Start) -> None:
    """An extender without requests prepares for new metrics by itself, so that its first pod is scored in time."""
    watcher, site = watch("--provider", "Fake"), tmp_path / "site"
    site.mkdir()
    (site / "slow_plugin.py").write_text(SLOW_PLUGIN)
    register(site, "slow-plugin", "Slow = slow_plugin:Slow")
    scores = {"enabled": [{"name": "Slow", "weight": 1}]}
    arguments = [{"name": "Slow", "args": {"folder": str(tmp_path)}}]
    profile = {"schedulerName": "load-aware", "plugins": {"score": scores}, "pluginConfig": arguments}
    files[0].write_text(yaml.safe_dump({**CONFIGURATION, "profiles": [profile]}))
    names = list(watcher.wait_for("/watcher").json()["data"])
    with run_fake_kubernetes(tmp_path) as fake:
        for name in names:
            fake.put("nodes", node(name))
        command = [
            sys.executable, "-m", "trimaran", "extender", "--config", files[0], "--kube-config", fake.kube_config(),
            "--watcher", watcher.url, "--port", "0", "--set", "extender.mode=active",
            "--set", "extender.deadline_seconds=2",
        ]  # fmt: skip
        process = Process(command, tmp_path / "extender.log", {"PYTHONPATH": str(site)})
        try:
            process.wait_until((tmp_path / "prepared").exists, "the extender has prepared without a request")
            url = process.url
            requests.post(f"{url}/prioritize", orjson.dumps(extender_args(*names)), timeout=60).raise_for_status()
            assert 'outcome="scored"} 1.0' in requests.get(f"{url}/metrics", timeout=60).text
        finally:
            process.terminate()
