"""``trimaran assess`` with a real API server and a real Prometheus, which it finds by its Service."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, pod
from support.past_cluster import BARE, HOT, UNSCRAPED, WASTEFUL, PastCluster
from support.ports import free_port
from support.servers import run_prometheus

from trimaran.cli.main import main

pytestmark = pytest.mark.e2e

NODES, DAYS = 20, 2


def own_address() -> str:
    """Return an address of this machine that is not a loopback address, which the API server does not proxy to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def past() -> PastCluster:
    """A made-up cluster with five planted faults."""
    return PastCluster(int(time.time()) // 60 * 60, NODES, DAYS)


@contextmanager
def running(past: PastCluster, folder: Path) -> Iterator[ControlPlane]:
    """Run a control plane with the cluster's objects, and with its Prometheus behind a Service."""
    address, port = own_address(), free_port()
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "prometheus-operated", "namespace": "monitoring"},
        "spec": {"clusterIP": "None", "ports": [{"name": "web", "port": 9090, "targetPort": port}]},
    }  # fmt: skip
    endpoint = {
        "addresses": [address], "conditions": {"ready": True},
        "targetRef": {"kind": "Pod", "name": "prometheus-0", "namespace": "monitoring"},
    }  # fmt: skip
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "prometheus-operated-1", "namespace": "monitoring",
                     "labels": {"kubernetes.io/service-name": "prometheus-operated"}},
        "endpoints": [endpoint], "ports": [{"name": "web", "port": port, "protocol": "TCP"}],
    }  # fmt: skip
    with (
        run_prometheus(folder, past.lines(), f"--web.listen-address={address}:{port}", server="prometheus-3"),
        ControlPlane(folder) as cluster,
    ):
        namespaces = ("monitoring", *{each.namespace for each in past.pods})
        cluster.api.create(
            *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces)
        )
        server = pod("prometheus-0", container(), nodeName="node-0")  # the API server only proxies to addresses of pods
        server["metadata"]["namespace"] = "monitoring"
        cluster.api.create(service, endpoints, server, *past.manifests())
        status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
        cluster.api.patch("/api/v1/namespaces/monitoring/pods/prometheus-0/status", status)
        yield cluster


@pytest.fixture(scope="module")
def cluster(past: PastCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The made-up cluster."""
    with running(past, tmp_path_factory.mktemp("past")) as cluster:
        yield cluster


def assess(cluster: ControlPlane, *options: object) -> Result:
    """Run the command with the cluster's kubeconfig."""
    access = ("--kube-config", cluster.kubeconfig(), "--last", f"{DAYS}d", "--rate", "5m")
    return CliRunner().invoke(main, ["assess", *map(str, (*access, *options))])


def test_each_planted_fault_is_found(cluster: ControlPlane, past: PastCluster, tmp_path: Path) -> None:
    """Prometheus is found by its Service; each fault is named with its node, time or namespace, and a remedy."""
    html = tmp_path / "assessment.html"
    done = assess(cluster, "--html", html, "--cpu-hour-price", 0.03, "-o", "json", "--keep", tmp_path / "k")
    assert done.exit_code in {0, 3}, done.output
    assert "Service monitoring/prometheus-operated" in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    problems = {each["subject"]: each for each in document["problems"]}
    assert problems.keys() >= {UNSCRAPED, BARE, "Prometheus"}
    assert all(each["remedy"] for each in problems.values())
    (hot,) = (each for each in document["hot_nodes"] if each["node"] == HOT)
    assert hot["since"] == pytest.approx(past.hot_since, abs=900)
    (wasteful,) = (each for each in document["workloads"] if each["name"] == f"shop/Deployment/{WASTEFUL}")
    assert wasteful["cpu"]["freed"] > 0.9 * wasteful["cpu"]["requested"]
    assert wasteful["monthly_cost"] > 0
    assert [each["change"] for each in document["outcomes"]][:2] == ["kube-scheduler alone", "with the extender"]
    page = html.read_text()
    for name in (UNSCRAPED, BARE, HOT, WASTEFUL):
        assert name in page
    assert document["not_checked"] == []
    again = json.loads(CliRunner().invoke(main, ["assess", str(tmp_path / "k"), "-o", "json"]).stdout)
    assert again["outcomes"] == document["outcomes"]
    assert "HPA" in again["not_checked"][0]


def test_as_a_plugin_of_kubectl_with_exec_credentials(cluster: ControlPlane, tmp_path: Path) -> None:
    """``kubectl trimaran assess`` uses the credentials that the kubeconfig's command prints."""
    configuration = yaml.safe_load(cluster.kubeconfig().read_text())
    (user,) = configuration["users"]
    version = "client.authentication.k8s.io/v1"
    credential = tmp_path / "credential.json"
    credential.write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": user["user"]}))
    command = {"apiVersion": version, "command": "cat", "args": [str(credential)], "interactiveMode": "Never"}
    user["user"] = {"exec": command}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(configuration))
    folders = (binary("kubectl").parent, Path(sys.executable).parent, os.environ["PATH"])
    done = subprocess.run(
        ["kubectl", "trimaran", "assess", "--no-replay", "--last", "6h", "--rate", "5m", "-o", "json"],
        env={**os.environ, "PATH": os.pathsep.join(map(str, folders)), "KUBECONFIG": str(kubeconfig)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["nodes"], document["hot_nodes"][0]["node"]) == (NODES, HOT)
