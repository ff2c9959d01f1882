"""The manifests in deploy/kubernetes: applied to a real API server, with their own commands, files and accounts."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.api import Api, collection
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.pods import PodRunner
from control_plane.scheduler import Scheduler
from support.servers import Service, wait_until

from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config, validate_config

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_network")]

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
FILES = ("watcher.yaml", "scheduler.yaml", "nodes.yaml", "extender.yaml", "dashboard.yaml", "rebalancer.yaml",
         "rebalancer-act.yaml", "standalone-scheduler.yaml")  # fmt: skip
NODES = 8
# Ports and host from the manifests, where they are local to the pod.
EXTENDER, WATCHER_PORT = "http://127.0.0.1:2021", 2020


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def only_document(name: str, kind: str) -> dict[str, Any]:
    (document,) = (each for each in documents(name) if each["kind"] == kind)
    return document


def apply(cluster: ControlPlane, name: str) -> int:
    """Apply the objects of a file under strict field validation; return their number."""
    for each in documents(name):
        cluster.api.request("POST", collection(each), json=each, params={"fieldValidation": "Strict"})
    return len(documents(name))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with every manifest applied."""
    with ControlPlane(tmp_path) as cluster:
        for name in FILES:
            assert apply(cluster, name)
        cluster.api.create(*(node(f"node-{number}", "16", "64Gi") for number in range(NODES)))
        yield cluster


def test_every_manifest_is_applied(cluster: ControlPlane) -> None:
    """The API server accepts every file in the folder under strict field validation."""
    assert {each.name for each in FOLDER.glob("*.yaml")} == {*FILES, "kustomization.yaml"}
    names = {each["metadata"]["name"] for each in cluster.api.items("/apis/apps/v1/deployments")}
    assert names == {f"trimaran-{part}" for part in ("watcher", "scheduler", "nodes", "extender", "dashboard",
                                                 "rebalancer", "standalone")}  # fmt: skip


def test_the_schedulers_file_equals_the_rendered_configuration() -> None:
    """kube-scheduler.yaml equals ``trimaran extender config`` of scheduler.yaml and passes its checks."""
    data = only_document("scheduler.yaml", "ConfigMap")["data"]
    shipped = yaml.safe_load(data["kube-scheduler.yaml"])
    assert shipped == render_config(yaml.safe_load(data["scheduler.yaml"]), ExtenderEndpoint(EXTENDER))
    assert list(validate_config(shipped)) == []


def test_the_unchanged_sidecar_manifest_schedules(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path
) -> None:
    """The manifest's commands, files and account schedule with a real kube-scheduler, in shadow mode, then active."""
    containers = only_document("scheduler.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    commands = {each["name"]: [*each.get("command", ()), *each.get("args", ())] for each in containers}
    for each in containers:
        assert {"name": "configuration", "mountPath": "/etc/trimaran", "readOnly": True} in each["volumeMounts"]
    start_watcher(watch, tmp_path)
    inside = PodRunner(cluster, documents("scheduler.yaml"))
    program, *arguments = commands["kube-scheduler"]
    started = [
        # Nearly as long as kube-scheduler waits, because the tests' machine is busy.
        inside.run(sys.executable, "-m", "trimaran", *commands["extender"], TRIMARAN_EXTENDER__DEADLINE_SECONDS="0.4"),
        inside.run(str(binary(program)), *arguments),
    ]
    try:
        started[0].wait_until(lambda: requests.get(f"{EXTENDER}/readyz", timeout=5).ok, "the extender is ready")
        probe = containers[1]["livenessProbe"]["exec"]["command"]
        assert subprocess.run([sys.executable, *probe[1:]], check=False).returncode == 0
        place(cluster, "shadow", 20)
        assert outcome("shadow") == 20
        reader = cluster.create_account("reader", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
        headers = {"Authorization": f"Bearer {reader.token}"}
        explanation = requests.get(f"{EXTENDER}/explain", {"pod": "default/shadow-0"}, headers=headers, timeout=60)
        assert explanation.json()["mode"] == "shadow"
        settings = only_document("scheduler.yaml", "ConfigMap")["data"]["trimaran.toml"]
        inside.write("trimaran/trimaran.toml", settings.replace('"shadow"', '"active"').replace("10", "100"))
        chosen = place(cluster, "active", 20)
        assert outcome("scored") == 20
        assert set(chosen) <= {f"node-{NODES - 1}", f"node-{NODES - 2}"}
        leases = cluster.api.items("/apis/coordination.k8s.io/v1/namespaces/trimaran/leases")
        assert [each["metadata"]["name"] for each in leases] == ["trimaran-scheduler"]
        for process in started:
            log = process.log.read_text().lower()
            assert "forbidden" not in log, [line for line in log.splitlines() if "forbidden" in line][:3]
    finally:
        for process in started:
            process.terminate()


def start_watcher(watch: Callable[..., Service], folder: Path) -> None:
    """Start a watcher at the manifests' address; two nodes have little load."""
    loads = folder / "loads.json"
    use = {f"node-{n}": 90 if n < NODES - 2 else 10 for n in range(NODES)}
    loads.write_text(json.dumps({k: {"cpu": {"average": v}, "memory": {"average": v}} for k, v in use.items()}))
    watcher = watch("--provider", "Fake", "--interval", "1", port=WATCHER_PORT, TRIMARAN_FAKE__FILE=str(loads))
    watcher.wait_for("/readyz")


def documented_certificates(folder: Path) -> None:
    """Run the commands of docs/deploy.md that create certificates, for an extender at 127.0.0.1."""
    page = (FOLDER.parent.parent / "docs/deploy.md").read_text()
    block = page.partition("### Certificates of the extender")[2].partition("```console\n")[2].partition("```")[0]
    commands = block.replace("$ ", "").replace("\\\n", "")
    script = "\n".join(line for line in commands.splitlines() if "kubectl" not in line and "--from-file" not in line)
    subprocess.run(["bash", "-ec", f"IP=127.0.0.1\n{script}"], cwd=folder, check=True, capture_output=True)


def test_the_extender_deployment_requires_mtls(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path
) -> None:
    """With the manifest's arguments and the documented certificates only kube-scheduler is admitted."""
    start_watcher(watch, tmp_path)
    inside = PodRunner(cluster, documents("extender.yaml"))
    documented_certificates(inside.tls)
    renamed = {"tls.crt": "server.crt", "tls.key": "server.key"}  # as in the documented Secret
    for name, file in renamed.items():
        (inside.tls / name).write_bytes((inside.tls / file).read_bytes())
    (spec,) = only_document("extender.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    process = inside.run(sys.executable, "-m", "trimaran", *spec["args"])
    url, ca = EXTENDER.replace("http://", "https://"), str(inside.tls / "ca.crt")
    try:
        ready = lambda: requests.get(f"{url}/readyz", verify=ca, timeout=5).ok  # noqa: E731
        process.wait_until(ready, "the extender is ready")
        assert requests.post(f"{url}/prioritize", b"{}", verify=ca, timeout=60).status_code == 403
        source = yaml.safe_load(only_document("extender.yaml", "ConfigMap")["data"]["scheduler.yaml"])
        certificate = [str(inside.tls / f"kube-scheduler.{end}") for end in ("crt", "key")]
        configuration = render_config(source, ExtenderEndpoint(url, ca, *certificate))
        with Scheduler(cluster, configuration["profiles"], extenders=configuration["extenders"], verbosity=2):
            place(cluster, "pod", 20, "default-scheduler")
        text = requests.get(f"{url}/metrics", verify=ca, timeout=60).text
        assert 'trimaran_extender_answers_total{outcome="shadow"} 20.0' in text
        assert "forbidden" not in process.log.read_text().lower()
    finally:
        process.terminate()


def place(cluster: ControlPlane, name: str, count: int, scheduler: str = "trimaran") -> list[str]:
    """Create pods for a scheduler; return their nodes once all are bound."""
    request = container(requests={"cpu": "50m"})
    cluster.api.create(*(pod(f"{name}-{n}", request, schedulerName=scheduler) for n in range(count)))

    def bound() -> list[str]:
        pods = cluster.api.items("/api/v1/pods")
        nodes = [item["spec"].get("nodeName") for item in pods if item["metadata"]["name"].startswith(name)]
        return nodes if all(nodes) else []

    nodes: list[str] = wait_until(bound, f"{count} pods are placed")
    return nodes


def outcome(name: str) -> float:
    series = f'trimaran_extender_answers_total{{outcome="{name}"}} '
    text = requests.get(f"{EXTENDER}/metrics", timeout=60).text
    return float(next(line for line in text.splitlines() if line.startswith(series)).removeprefix(series))


def forbidden_requests(account: Api) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield requests that the extender's account must not be able to make."""
    yield "change a node", lambda: account.patch("/api/v1/nodes/node-1", {"metadata": {"labels": {"a": "b"}}})
    yield "delete a pod", lambda: account.delete("/api/v1/namespaces/default/pods/x")
    yield "get one node", lambda: account.get("/api/v1/nodes/node-1")
    yield "read secrets", lambda: account.items("/api/v1/namespaces/trimaran/secrets")
    yield "read config maps", lambda: account.items("/api/v1/namespaces/trimaran/configmaps")
    yield "write Events elsewhere", lambda: account.create(event("default"))
    yield "bind a pod", lambda: account.request("POST", "/api/v1/namespaces/default/pods/x/binding", json={})
    yield "read Leases", lambda: account.items("/apis/coordination.k8s.io/v1/namespaces/trimaran/leases")


def event(namespace: str) -> dict[str, Any]:
    subject = {"kind": "Namespace", "name": namespace, "namespace": namespace}
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": namespace},
        "involvedObject": subject,
    }  # fmt: skip


def test_the_extenders_account_has_only_the_needed_rights(cluster: ControlPlane) -> None:
    """The account may make the extender's own requests, and others are refused."""
    account = cluster.service_account("trimaran", "trimaran-extender")
    assert account.items("/api/v1/nodes")
    account.items("/api/v1/pods")
    account.create(event("trimaran"))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": account.token}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert account.request("POST", path, json=review).json()["status"]["authenticated"]
    for action, send in forbidden_requests(account):
        with pytest.raises(requests.HTTPError) as refusal:
            send()
        assert refusal.value.response.status_code == 403, action
