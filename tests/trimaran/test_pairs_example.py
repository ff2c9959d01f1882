"""The example that reserves and permits, installed from its wheel: in a replay, in shadow, and live."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests
import yaml
from control_plane.manifests import container, node, pod
from control_plane.processes import Process
from support.controller_api import ControllerApi
from support.ports import nowhere
from support.servers import run_server, wait_until
from support.wheels import ROOT, Site, build_wheels, install
from support.worlds import small_world

from runtime.kubernetes.paths import NODES, PODS
from trimaran.traces.trace import write_trace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Environment with the wheel of the example."""
    folder = tmp_path_factory.mktemp("pairs")
    source = folder / "pairs"
    shutil.copytree(ROOT / "examples/pairs", source)
    return install(source, build_wheels(folder / "wheels"))


class PairedCluster(ControllerApi):
    """A fake API server with a node and pods.

    Attributes:
        pods: the pods, by name.
        bound: names of the pods that were bound, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, dict[str, Any]] = {}
        self.bound, self.version = list[str](), 1

    def put(self, name: str, **spec: Any) -> None:
        """Create or change a pod of a pair."""
        made = pod(name, container(requests={"cpu": "1", "memory": "1Gi"}), schedulerName="ours", **spec)
        made["metadata"] |= {"uid": name, "namespace": "default", "labels": {"pair": "one"}}
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        self.pods[name] = made

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        path, _, query = target.partition("?")
        if path == NODES and "watch=" not in query:
            item = node("node-0", "8")
            item["metadata"]["resourceVersion"] = "1"
            return 200, {"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [item]}
        if path == PODS and "watch=" not in query:
            metadata = {"resourceVersion": str(self.version)}
            return 200, {"kind": "PodList", "metadata": metadata, "items": [*self.pods.values()]}
        if path == PODS:
            seen = int(query.partition("resourceVersion=")[2].partition("&")[0])
            wait = [each for each in self.pods.values() if int(each["metadata"]["resourceVersion"]) > seen]
            lines = [orjson.dumps({"type": "ADDED", "object": each}) + b"\n" for each in wait]
            return (200, b"".join(lines)) if wait else super().answer(method, target, body)
        if path.endswith("/binding"):
            self.bound.append(body["metadata"]["name"])
            return 201, {"kind": "Status", "status": "Success"}
        if path.endswith("/events"):
            return 201, body
        return super().answer(method, target, body)


@contextmanager
def scheduling(site: Site, folder: Path, *options: str) -> Iterator[tuple[PairedCluster, Process]]:
    """Run ``trimaran scheduler`` with the plugin over a cluster with one pod of a pair, until it is ready."""
    file, cluster = folder / "scheduler.yaml", PairedCluster()
    plugins = {"multiPoint": {"enabled": [{"name": "Pairs"}]}}
    profile = {"schedulerName": "ours", "plugins": plugins}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file.write_text(yaml.safe_dump({**kind, "profiles": [profile]}))
    cluster.put("first")
    command = site.command(
        "scheduler", "--config", file, "--kube-config", cluster.kubeconfig(folder), "--watcher", nowhere(),
        "--port", 0, *options,
    )  # fmt: skip
    with run_server(cluster), Process(command, folder / "scheduler.log") as process:
        try:
            process.wait_until(lambda: requests.get(f"{process.url}/readyz", timeout=60).ok, "it is ready")
            yield cluster, process
        finally:
            cluster.close()


def metrics_after_a_cycle(process: Process) -> str:
    """Return the metrics once a scheduling cycle has run."""

    def metrics() -> str:
        text = requests.get(f"{process.url}/metrics", timeout=60).text
        return text if "\nscheduler_scheduling_algorithm_duration_seconds_count 1.0" in text else ""

    return str(process.wait_until(metrics, "a cycle has run"))


def test_in_a_replay_a_pod_without_a_partner_is_not_bound(site: Site, tmp_path: Path) -> None:
    """Of the pods of two owners only those of the owner with two pods are placed."""
    trace = small_world(2, [("Deployment", 0.5)] * 3, 120)
    write_trace(replace(trace, owners=("web", "web", "alone")), tmp_path / "world")
    file = site.source / "replayed.yaml"
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Pairs"}]}}}
    profile |= {"pluginConfig": [{"name": "Pairs", "args": {"label": "owner", "waitSeconds": 5}}]}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file.write_text(yaml.safe_dump({**kind, "profiles": [profile]}))
    site.run(
        "simulate", "compare", "--trace", tmp_path / "world", "--policy", "pairs=standalone:replayed.yaml",
        "--policy", "default", "--html", tmp_path / "report.html",
    )  # fmt: skip
    (section,) = json.loads((tmp_path / "report.json").read_text())
    unplaced = {name: each["unplaced_pods"]["mean"] for name, each in section["means"].items()}
    assert unplaced == {"pairs": 1, "default": 0}


def test_in_shadow_a_waiting_pod_is_compared(site: Site, tmp_path: Path) -> None:
    """A pod that would wait for its partner is compared by the node that was chosen for it; nothing is written."""
    with scheduling(site, tmp_path, "--shadow") as (cluster, process):
        assert metrics_after_a_cycle(process)
        cluster.put("first", nodeName="node-0")
        shadow = f"{process.url}/shadow"
        process.wait_until(lambda: requests.get(shadow, timeout=5).json()["compared"] == 1, "it is compared")
        assert requests.get(shadow, timeout=60).json()["agreed"] == 1
        assert not cluster.bound


def test_live_a_pair_is_bound_together(site: Site, tmp_path: Path) -> None:
    """The first pod waits on its node; once its partner has a node, both are bound."""
    with scheduling(site, tmp_path) as (cluster, process):
        # A pod whose Binding was sent would be in flight, as the watch never shows it with a node.
        assert "trimaran_scheduler_in_flight 0.0" in metrics_after_a_cycle(process)
        assert not cluster.bound
        cluster.put("second")
        wait_until(lambda: sorted(cluster.bound) == ["first", "second"], "both are bound")
