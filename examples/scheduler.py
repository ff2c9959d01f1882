"""Scheduler in Python that places pods by the actual use of nodes, and keeps gangs within one zone.

    python examples/scheduler.py --watcher http://127.0.0.1:2020 --kube-config ~/.kube/config

It places the pods whose ``spec.schedulerName`` is its name, highest priority first, and can run in addition to other
schedulers. Pods with the label ``pod-group.scheduling.sigs.k8s.io/name`` are a gang: they wait until their number is at
least their label ``pod-group.scheduling.sigs.k8s.io/min-available``. Then all of them are bound in the zone with the
highest scores, or none is bound. Without metrics, nodes are scored by the requests of their pods.

With ``--learned-use`` pods count with what the watcher has learned of their workloads, and the plugin CongestionCost
replaces the one that scores by measured load alone.

Checked are free resources, cordons, taints, node selectors and required node affinity. Host ports, volumes, topology
spread, affinity to other pods and scheduling gates are not checked: leave pods that need them to kube-scheduler. There
is no preemption. Run one replica: two would place the same pods.
"""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import requests

from client import ClientError, Collector, connect
from runtime.http.credentials import InvalidApiServerConfig, UnusableToken
from runtime.http.gather import Deadline
from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from scoring import (
    CongestionCost,
    FallbackPolicy,
    Judgment,
    LoadVariationRiskBalancing,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeTable,
    Pod,
    Profile,
    UseLevels,
    WeightedPlugin,
)
from scoring.load.pod_expectation import PodExpectation, expectation_line
from trimaran.cluster.view import ClusterView
from trimaran.cluster.workload_use import WorkloadUse
from watcher.workloads.api_pods import ApiPods

GANG = "pod-group.scheduling.sigs.k8s.io/name"
SIZE = "pod-group.scheduling.sigs.k8s.io/min-available"
ZONE = "topology.kubernetes.io/zone"
CYCLE_SECONDS = 0.1
RETRY_SECONDS = 5.0
NEVER = "", 0.0
# Load decides; requests decide between nodes with equal load scores.
BY_LOAD = WeightedPlugin(LoadVariationRiskBalancing(count_recent_pods=True), 10)
BY_LEARNED_USE = WeightedPlugin(CongestionCost(), 10)
BY_REQUESTS = WeightedPlugin(NodeResourcesFit()), WeightedPlugin(NodeResourcesBalancedAllocation())


def gang_of(pod: Pod) -> str:
    """Return the name of a pod's gang, or ""."""
    return f"{pod.namespace}/{pod.labels[GANG]}" if pod.labels.get(GANG) else ""


def zones(pods: list[Pod], nodes: NodeTable) -> Iterator[np.ndarray]:
    """Yield the nodes of each zone as a mask, shape (nodes,); for a pod without a gang, yield all nodes.

    If some pods of the gang are already bound, after a failure during binding, yield only their zone.

    Raises:
        LookupError: the gang is not complete yet.
    """
    if not (name := gang_of(pods[0])):
        yield np.ones(len(nodes), bool)
        return
    bound = [row for row, placed in nodes.placed_pods() if gang_of(placed.pod) == name]
    present, size = len(pods) + len(bound), pods[0].labels.get(SIZE, "1")
    if size.isdecimal() and present < int(size):
        raise LookupError(f"{present} of {size} pods of the gang exist")
    zone_of = np.array([node.labels.get(ZONE, "") for node in nodes.nodes])
    for zone in np.unique(zone_of[bound] if bound else zone_of):
        yield zone_of == zone


class Scheduler:
    """Scheduling loop for the pending pods of one scheduler name. For one thread."""

    def __init__(
        self, name: str, view: ClusterView, api: KubernetesApi, load: Collector, use: WorkloadUse | None = None
    ) -> None:
        self.view, self.api, self.load, self.use = view, api, load, use
        self.profile = Profile((BY_LOAD if use is None else BY_LEARNED_USE, *BY_REQUESTS), name)
        self.policy = FallbackPolicy()
        self.rng = np.random.default_rng()
        self.bound: set[str] = set()  # uids, until the view reports the binding
        self.refused: dict[str, tuple[str, float]] = {}  # by uid: reason, and monotonic time of the next attempt

    def run_cycle(self) -> None:
        """Place every gang that is due."""
        gangs = self.due()
        if not gangs:
            return
        with self.view.reading() as table:  # short: events wait until the block ends
            nodes = table.copy()
        try:
            snapshot = self.load.snapshot()
        except ClientError as error:
            snapshot = None
            print(f"no metrics, so nodes are scored by requests: {error}", file=sys.stderr)
        judgment = self.policy.judge(nodes, snapshot, time.time())
        levels = None if self.use is None else self.use.levels()
        for gang in gangs:
            try:
                nodes, placed = self.place(gang, nodes, judgment, levels)
            except LookupError as error:
                self.refuse(gang, str(error))
                continue
            for pod, node_name in placed:
                self.bind(pod, node_name, levels)

    def due(self) -> list[list[Pod]]:
        """Return the gangs to place now: highest priority first, then the oldest."""
        pending = [pod for pod in self.view.pending() if pod.scheduler_name == self.profile.scheduler_name]
        uids = {pod.uid for pod in pending}
        self.bound &= uids
        self.refused = {uid: refusal for uid, refusal in self.refused.items() if uid in uids}
        gangs: dict[str, list[Pod]] = {}
        for pod in sorted(pending, key=lambda pod: -pod.priority):
            if pod.uid not in self.bound and not pod.terminating:
                gangs.setdefault(gang_of(pod) or pod.uid, []).append(pod)
        now = time.monotonic()  # a gang is tried at once when a pod joins it
        return [gang for gang in gangs.values() if any(self.refused.get(pod.uid, NEVER)[1] <= now for pod in gang)]

    def place(
        self, gang: list[Pod], nodes: NodeTable, judgment: Judgment, levels: UseLevels | None
    ) -> tuple[NodeTable, list[tuple[Pod, str]]]:
        """Return a table with the pods placed, and the node of each pod.

        Raises:
            LookupError: the gang is not complete, or does not fit in any zone.
        """
        candidates, failure = [], LookupError("the cluster has no nodes")
        for in_zone in zones(gang, nodes):
            plan, placed, total = nodes.copy(), [], 0
            prepared = self.profile.prepare(plan, judgment, levels)
            try:
                for pod in gang:
                    scores = prepared.score(pod, plan.feasible(pod) & in_zone)
                    placed.append((pod, scores.best(self.rng)))
                    total += int(scores.total.max())
                    plan.assume(*placed[-1])
                candidates.append((total, plan, placed))
            except LookupError as error:
                failure = error
        if not candidates:
            raise failure
        return max(candidates, key=lambda candidate: candidate[0])[1:]

    def bind(self, pod: Pod, node_name: str, levels: UseLevels | None) -> None:
        """Bind a pod. After a failure the pod is retried while it is pending."""
        binding = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }  # fmt: skip
        if self.send("POST", pod, "binding", binding, "application/json"):
            self.bound.add(pod.uid)
            self.view.assume(pod, node_name)  # counts until the watch reports the binding
            expected = ""
            if self.use is not None:
                expectation = PodExpectation.of(levels, pod, time.time(), self.use.why_unknown)
                expected = f"; expected use: {expectation_line(expectation.as_document())}"
            print(f"{pod.namespace}/{pod.name} is bound to {node_name}{expected}", flush=True)
        else:
            self.refused[pod.uid] = "", time.monotonic() + RETRY_SECONDS

    def refuse(self, pods: list[Pod], reason: str) -> None:
        """Write the reason into the pods' status, once; kubectl and the cluster autoscaler read it there."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason}
        for pod in pods:
            before, _ = self.refused.get(pod.uid, NEVER)
            self.refused[pod.uid] = reason, time.monotonic() + RETRY_SECONDS
            if before != reason:
                patch = {"status": {"conditions": [condition]}}
                self.send("PATCH", pod, "status", patch, "application/strategic-merge-patch+json")

    def send(self, method: str, pod: Pod, subresource: str, body: object, content_type: str) -> bool:
        """Write a subresource of a pod; return whether the API server accepted it."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/{subresource}"
        try:
            self.api.send(method, path, Deadline.after(10), body, content_type)
        except (requests.RequestException, UnusableToken, InvalidApiServerConfig) as error:
            # The pod was deleted or bound by somebody else, or the API server is unreachable.
            print(f"{pod.namespace}/{pod.name}: {error}", file=sys.stderr)
            return False
        return True


def main() -> int:
    """Schedule until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="trimaran", help="schedulerName of the pods to place [default: trimaran]")
    parser.add_argument("--watcher", help="address of a watcher; without it, this process embeds a watcher")
    parser.add_argument("--learned-use", action="store_true", help="count pods with the learned use of their workloads")
    parser.add_argument("--kube-config", type=Path, help="a kubeconfig; without it, the pod's service account is used")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as closing:
        try:
            access = ApiServerConfig(kube_config=options.kube_config)
            api, view_api = KubernetesApi(access), KubernetesApi(access)  # closing the view ends all calls of its API
            # An embedded watcher gets the pods of the view below, so that one list and watch serves both.
            shared = None if options.watcher or not options.learned_use else ApiPods(KubernetesApi(access))
            watcher = connect(options.watcher) if shared is None else connect(pods=shared)
            load = closing.enter_context(Collector(watcher, interval_seconds=15))
        except (ValueError, InvalidApiServerConfig) as error:
            parser.error(str(error))
        closing.callback(api.close)
        closing.callback(view_api.close)
        view = ClusterView(view_api)
        if shared is not None:
            shared.share(view.pods)
        closing.callback(view.close)
        view.start()
        use = None
        if options.learned_use:
            use = WorkloadUse(watcher, interval_seconds=60)
            closing.callback(use.close)
            use.start()
        scheduler = Scheduler(options.name, view, api, load, use)
        while not stop.wait(CYCLE_SECONDS):
            if view.is_synced:
                scheduler.run_cycle()
    return 0


if __name__ == "__main__":
    sys.exit(main())
