"""The extender's account in deploy/kubernetes: each of its rights is needed, verb by verb, and no other is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.manifests import node, pod
from control_plane.processes import Process
from support.servers import free_port, wait_until

pytestmark = pytest.mark.e2e

MANIFEST = Path(__file__).parent.parent / "deploy/kubernetes/extender.yaml"
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
GROUP = "/apis/rbac.authorization.k8s.io/v1"
ROLES = (f"{GROUP}/clusterroles/trimaran-extender", f"{GROUP}/namespaces/trimaran/roles/trimaran-extender")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with the account that the shipped manifest makes."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trimaran"}})
        for wanted in yaml.safe_load_all(MANIFEST.read_text()):
            if wanted["kind"] in RIGHTS:
                cluster.api.create(wanted)
        cluster.api.create(*(node(f"node-{number}") for number in range(2)))
        yield cluster


class Asked:
    """An extender with the account's token, whose watcher is gone, asked for everything that needs a right."""

    def __init__(self, cluster: ControlPlane, url: str, process: Process) -> None:
        self._cluster = cluster
        self._url = url
        self._process = process
        self._reader = cluster.service_account("default", "reader").token

    def explained(self) -> requests.Response:
        headers = {"Authorization": f"Bearer {self._reader}"}
        return requests.get(f"{self._url}/explain", {"pod": "default/web"}, headers=headers, timeout=10)

    def is_refused(self) -> bool:
        with suppress(requests.RequestException):  # it does not answer yet
            asked = {"Pod": pod("web"), "NodeNames": ["node-0", "node-1"]}
            requests.post(f"{self._url}/prioritize", json=asked, timeout=10).raise_for_status()
            self.explained()
        return "403" in self._process.log.read_text()

    def did_everything(self) -> bool:
        self.is_refused()
        events = self._cluster.api.items("/api/v1/namespaces/trimaran/events")
        ready = requests.get(f"{self._url}/readyz", timeout=10).ok
        return ready and self.explained().status_code == 200 and events != []


@contextmanager
def asked(cluster: ControlPlane) -> Iterator[Asked]:
    """Start the extender as the manifest has it, but for TLS, with a kubeconfig in the place of a pod's files."""
    (data,) = (each["data"] for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ConfigMap")
    configuration = cluster.folder / "scheduler.yaml"
    configuration.write_text(data["scheduler.yaml"])
    token = cluster.service_account("trimaran", "trimaran-extender").token
    port = free_port()
    command = [
        sys.executable, "-m", "trimaran", "extender", "--config", str(configuration), "--port", str(port),
        "--kube-config", str(cluster.kubeconfig("extender", token=token)), "--watcher", f"http://127.0.0.1:{free_port()}",
        "--set", "extender.events_namespace=trimaran",
    ]  # fmt: skip
    process = Process(command, cluster.folder / f"extender-{port}.log")
    try:
        yield Asked(cluster, f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()


def test_each_right_is_needed(cluster: ControlPlane) -> None:
    """With all of them it does everything and is refused nothing; without any one verb it is refused."""
    cluster.account("reader", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    with asked(cluster) as whole:
        wait_until(whole.did_everything, "it follows the cluster, explains, and told of the outage", 60)
        assert not whole.is_refused()
    tried = 0
    for path in ROLES:
        rules: list[dict[str, Any]] = cluster.api.get(path)["rules"]
        for number, resource, verb in [
            (number, resource, verb)
            for number, rule in enumerate(rules) for resource in rule["resources"] for verb in rule["verbs"]
        ]:  # fmt: skip
            cluster.api.patch(path, {"rules": lessened(rules, number, resource, verb)})
            with asked(cluster) as extender:
                wait_until(extender.is_refused, f"without {verb} of {resource} it is refused", 60)
            cluster.api.patch(path, {"rules": rules})
            tried += 1
    assert tried == 7


def lessened(rules: list[dict[str, Any]], number: int, resource: str, verb: str) -> list[dict[str, Any]]:
    """Return the rules without one verb of one resource."""
    rule = rules[number]
    others = [each for each in rule["resources"] if each != resource]
    verbs = [each for each in rule["verbs"] if each != verb]
    split = [{**rule, "resources": others}] if others else []
    split += [{**rule, "resources": [resource], "verbs": verbs}] if verbs else []
    return [*rules[:number], *split, *rules[number + 1 :]]
