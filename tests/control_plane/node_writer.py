"""``trimaran nodes`` on a real control plane: nodes, a watcher with loads set by a test, and writers as processes."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import requests
from control_plane.cluster import ControlPlane
from control_plane.manifests import node
from control_plane.processes import Process, numbered
from control_plane.rights import grant_rights
from control_plane.varied import varied
from support.servers import Service

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes/nodes.yaml"
NODES = 12
HOT = ("node-3", "node-7")
SECTION = "trimaran.soft_taints.settings:NodesSection"
QUICK = {"interval_seconds": 0.5, "lease_seconds": 3, "min_hot_seconds": 1}


def create_account_and_nodes(cluster: ControlPlane) -> None:
    """Create the service account of the shipped manifest with its rights, and nodes."""
    grant_rights(cluster, MANIFEST)
    create_nodes(cluster)


def create_nodes(cluster: ControlPlane) -> None:
    """Create the nodes."""
    cluster.api.create(*(node(f"node-{number}", "16", "64Gi") for number in range(NODES)))


@contextmanager
def watching(
    watch: Callable[..., Service], folder: Path, *, port: int = 0
) -> Iterator[tuple[str, Callable[[dict[str, float]], None]]]:
    """Run a watcher; yield its address and a function that sets the nodes' loads."""
    file = folder / "loads.json"

    def load(percents: dict[str, float]) -> None:
        new = file.with_suffix(".new")
        new.write_text(
            json.dumps({name: {k: {"average": v} for k in ("cpu", "memory")} for name, v in percents.items()})
        )
        new.replace(file)

    load({f"node-{number}": 95.0 if f"node-{number}" in HOT else 30.0 for number in range(NODES)})
    service = watch("--provider", "Fake", "--interval", "1", port=port, TRIMARAN_FAKE__FILE=str(file))
    service.wait_for("/readyz")
    yield service.url, load


class Writer:
    """A ``trimaran nodes`` process with the account's token.

    Args:
        cluster: cluster whose nodes are written.
        watcher: address of the watcher.
        token: token of the service account.
        constants: constants of the section that are no settings, and their other values.
        settings: settings that differ from quick ones.
    """

    def __init__(
        self, cluster: ControlPlane, watcher: str, token: str, constants: Mapping[str, float] | None = None,
        **settings: object,
    ) -> None:  # fmt: skip
        windows = str(settings.pop("windows", "15m"))
        command = [
            *varied(SECTION, {**QUICK, **(constants or {})}), "nodes", "--taints", "--windows", windows,
            "--watcher", watcher, "--kube-config", str(cluster.kubeconfig("nodes", token=token)), "--port", "0",
        ]  # fmt: skip
        for name, value in settings.items():
            command += ["--set", f"nodes.{name}={value}"]
        self.process = Process(command, numbered(cluster.folder, "nodes.log"))

    @property
    def url(self) -> str:
        """Address of its probes and metrics."""
        return self.process.url

    def metric(self, name: str) -> float:
        """Return the value of a metric."""
        text = requests.get(f"{self.url}/metrics", timeout=60).text
        return float(next(line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(name + " ")))

    def wait(self) -> "Writer":
        """Wait until the writer has read all nodes; return it."""
        self.process.wait_until(lambda: requests.get(f"{self.url}/readyz", timeout=5).ok, "the writer is ready")
        return self


def tainted(cluster: ControlPlane) -> set[str]:
    """Return the names of the nodes with our taint."""
    nodes = cluster.api.items("/api/v1/nodes")
    return {
        each["metadata"]["name"] for each in nodes
        if any(taint["key"] == "trimaran.io/hot" for taint in each["spec"].get("taints") or ())
    }  # fmt: skip


def annotated(cluster: ControlPlane) -> dict[str, dict[str, str]]:
    """Return the load annotations by node name, of the nodes that have any."""
    by_node = {
        each["metadata"]["name"]: {
            key: text
            for key, text in each["metadata"].get("annotations", {}).items()
            if key.startswith("load.trimaran.io/")
        }
        for each in cluster.api.items("/api/v1/nodes")
    }
    return {name: annotations for name, annotations in by_node.items() if annotations}


def clear(kubeconfig: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run ``trimaran nodes --clear`` with a Lease of three seconds; return the finished process."""
    command = [
        *varied(SECTION, {"lease_seconds": 3}), "nodes", "--clear", "--kube-config", str(kubeconfig), *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
