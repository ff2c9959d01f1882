"""``trimaran rebalance`` on a real control plane: a hot node, a watcher whose use of pods is made up, and processes."""

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

import numpy as np
import orjson
import requests
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.manifests import container, node
from control_plane.processes import Process, numbered
from control_plane.rights import grant_rights
from control_plane.scheduler import Scheduler
from control_plane.usage import CPU_ANNOTATION, Kwok
from support.extending import snapshot_of
from support.servers import run_server, wait_until

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.workloads import Workload
from trimaran.rebalancer.ledger import Ledger
from trimaran.rebalancer.moves import MoveRecord
from watcher.pod_use_table import HOURS, PERIODS, STEP_SECONDS, STEPS, PodUseTable
from watcher.wire.pod_use import encode_pod_use

PODS = "/api/v1/namespaces/default/pods"
LEDGER = "/api/v1/namespaces/trimaran/configmaps/trimaran-rebalancer"
MANIFESTS = [
    Path(__file__).parents[2] / "deploy/kubernetes" / name for name in ("rebalancer.yaml", "rebalancer-act.yaml")
]
HOT, COLD = "node-0", ("node-1", "node-2")
APPS = tuple(f"app-{letter}" for letter in "abcde")
CORES, NODE_CORES = 0.75, 8
QUICK = {"search_seconds": 1, "percent_per_hour": 100, "moves_per_hour": 3}
_QUICK_RULES = {
    "nodes.bad_looks": 1, "pods.min_age": 0, "pods.scaler_quiet": 0, "caps.node_per_hour": 10, "cooldowns.workload": 0,
    "cooldowns.node": 0, "holdout_percent": 0,
}  # fmt: skip


def deployment(name: str, replicas: int = 2, cpu: str = "100m", cores: float = CORES) -> dict[str, Any]:
    """Return a Deployment whose pods request ``cpu`` and use so many cores each."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": {CPU_ANNOTATION: str(cores)}},
        "spec": {"containers": [container(requests={"cpu": cpu, "memory": "64Mi"})]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
            "spec": spec}  # fmt: skip


def budget(name: str, least: int) -> dict[str, Any]:
    """Return a disruption budget of a Deployment."""
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}}}  # fmt: skip


@contextmanager
def hot_cluster(folder: Path) -> Iterator[ControlPlane]:
    """Run a cluster whose ten pods of five Deployments all run on one of three nodes; app-a may lose no pod."""
    with ControlPlane(folder) as cluster:
        kwok = Kwok(cluster)
        grant_rights(cluster, *MANIFESTS)
        cluster.api.create(*(kwok.for_kwok(node(name, str(NODE_CORES), "32Gi")) for name in (HOT, *COLD)))
        for name in COLD:
            cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        profiles = [{"schedulerName": "default-scheduler"}]
        with kwok, ControllerManager(cluster), Scheduler(cluster, profiles, verbosity=2):
            cluster.api.create(*map(deployment, APPS), budget("app-a", 2), budget("app-b", 1))
            wait_until(lambda: len(ready(cluster)) == 2 * len(APPS), "all pods are ready")
            wait_until(lambda: allowed(cluster, "app-b") == 1, "the budgets are counted")
            for name in COLD:
                cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
            yield cluster


def ready(cluster: ControlPlane) -> dict[str, str]:
    """Return the node of each Ready pod that is not terminating, by name."""
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in cluster.api.items(PODS)
        if "deletionTimestamp" not in pod["metadata"]
        and any((each["type"], each["status"]) == ("Ready", "True") for each in pod["status"].get("conditions", ()))
    }  # fmt: skip


def allowed(cluster: ControlPlane, name: str) -> int:
    """Return the number of evictions that a disruption budget allows."""
    found = cluster.api.get(f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}")
    return int(found.get("status", {}).get("disruptionsAllowed", -1))


def ledger(cluster: ControlPlane) -> list[MoveRecord]:
    """Return the moves in the rebalancer's ledger; empty without one."""
    with suppress(requests.HTTPError):
        return list(Ledger.from_json(cluster.api.get(LEDGER)["data"]["ledger"]).records)
    return []


def noted(cluster: ControlPlane) -> list[str]:
    """Return the names of the pods that stay and have a note of a planned target."""
    return [
        pod["metadata"]["name"] for pod in cluster.api.items(PODS)
        if "deletionTimestamp" not in pod["metadata"]
        and any(name.startswith("rebalancer.trimaran.io/target") for name in pod["metadata"].get("annotations", {}))
    ]  # fmt: skip


class PodUse(ThreadingHTTPServer):
    """A made-up watcher: each pod used all day what its annotation says. Use it as a context manager.

    Attributes:
        url: address of the watcher.
    """

    daemon_threads = True

    def __init__(self, cluster: ControlPlane) -> None:
        super().__init__(("127.0.0.1", 0), _PodUseHandler)
        self.cluster, self.url = cluster, f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._running = run_server(self)
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)

    def pods(self) -> list[tuple[Pod, float]]:
        """Return the pods on nodes with their use, cores."""
        listed = [each for each in self.cluster.api.items("/api/v1/pods") if each["spec"].get("nodeName")]
        return [
            (Pod.from_k8s(each), float(each["metadata"].get("annotations", {}).get(CPU_ANNOTATION, 0)))
            for each in listed
        ]

    def memory_gibibytes(self, pod: Pod) -> float:
        """Return the memory use of a pod."""
        return 0.1

    def loads(self) -> dict[str, float]:
        """Return the CPU load of each node, percent."""
        loads = {each["metadata"]["name"]: 0.0 for each in self.cluster.api.items("/api/v1/nodes")}
        for pod, cores in self.pods():
            loads[pod.node_name] += 100 * cores / NODE_CORES
        return loads

    def table(self, nodes: Collection[str]) -> PodUseTable:
        """Return the use of the pods on some nodes over the last day."""
        pods = [each for each in self.pods() if each[0].node_name in nodes]
        until = time.time() // STEP_SECONDS * STEP_SECONDS
        cores = np.array([each for _, each in pods]).reshape(len(pods), 1)
        memory = np.array([self.memory_gibibytes(pod) for pod, _ in pods]).reshape(len(pods), 1)
        return PodUseTable(
            timestamp=until,
            uids=[pod.uid for pod, _ in pods],
            names=[f"{pod.namespace}/{pod.name}" for pod, _ in pods],
            nodes=[pod.node_name for pod, _ in pods],
            workloads=[pod.workload or Workload("", "", "") for pod, _ in pods],
            revisions=["" for _ in pods],
            since=np.full(len(pods), until - STEPS * STEP_SECONDS),
            last_seen=np.full(len(pods), until),
            cpu_cores=(cores * np.ones(STEPS)).astype(np.float16),
            memory_gib=(memory * np.ones(PERIODS)).astype(np.float16),
            courses=np.zeros((2, len(pods), HOURS), np.float16),
        )


class _PodUseHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PodUse

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/pods/history":
            body = encode_pod_use(self.server.table(set(parse_qs(query).get("node", ()))))
        else:
            body = orjson.dumps(snapshot_of(self.server.loads()))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # the client has stopped
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class RebalancerProcess:
    """A ``trimaran rebalance`` process with the token of the manifest's account.

    Args:
        cluster: cluster whose pods move.
        watcher: address of the watcher.
        mode: observe or act.
        server: address of the API to use instead of the cluster's own, such as a relay's.
        rules: rules that are no settings and differ from quick ones, by their paths in ``MoveRules``.
        lease_seconds: duration of the Lease.
        settings: settings that differ from quick ones.
    """

    def __init__(
        self, cluster: ControlPlane, watcher: str, mode: str, *, server: str = "",
        rules: Mapping[str, float] | None = None, lease_seconds: float = 6, **settings: Any,
    ) -> None:  # fmt: skip
        token = cluster.service_account("trimaran", "trimaran-rebalancer").token
        command = [
            sys.executable, str(Path(__file__).with_name("varied.py")),
            f"runtime.kubernetes.leader_election:LEASE_SECONDS={lease_seconds}",
            "trimaran.rebalancer.rules:CYCLE_SECONDS=0.3",
            f"trimaran.rebalancer.rules:RULES={orjson.dumps({**_QUICK_RULES, **(rules or {})}).decode()}",
            "--", "rebalance", "--mode", mode, "--watcher", watcher, "--port", "0",
            "--kube-config", str(cluster.kubeconfig("rebalancer", token=token, server=server)),
        ]  # fmt: skip
        for name, value in {**QUICK, **settings}.items():
            command += ["--set", f"rebalance.{name}={value}"]
        log = numbered(cluster.folder, "rebalancer.log")
        self.process = Process(command, log, {"TRIMARAN_LOG__FORMAT": "json"})

    @property
    def url(self) -> str:
        """Address of its probes, metrics and state."""
        return self.process.url

    def status(self) -> dict[str, Any]:
        """Return the state of the rebalancer; empty while it starts."""
        with suppress(requests.RequestException):
            found: dict[str, Any] = requests.get(f"{self.url}/status", timeout=60).json()
            return found
        return {}

    def leads(self) -> bool:
        """Return whether this rebalancer holds the Lease."""
        return bool(self.status().get("leads"))

    def is_at_rest(self) -> bool:
        """Return whether this rebalancer leads, has searched twice, has no open move and plans none."""
        state = self.status()
        return bool(
            state.get("leads") and state["searches"] >= 2 and not state["planned"] and state["caps"]["open"][0] == 0
        )

    def metric(self, name: str) -> float:
        """Return the value of a metric; 0 if it has none."""
        text = requests.get(f"{self.url}/metrics", timeout=60).text
        return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " ")), 0.0)

    def lines(self, message: str) -> list[dict[str, Any]]:
        """Return the lines of the log with a message."""
        read = [orjson.loads(line) for line in self.process.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in read if message in line.values()]
