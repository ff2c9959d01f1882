"""A scheduler in Python: it places pods by what nodes really use, and keeps gangs within one zone.

    python examples/scheduler.py --watcher http://127.0.0.1:2020 --kube-config ~/.kube/config

It places the pods whose ``spec.schedulerName`` is its name, highest priority first, beside any other scheduler. Pods
with the label ``pod-group.scheduling.sigs.k8s.io/name`` are a gang: they wait until there are as many as their label
``pod-group.scheduling.sigs.k8s.io/min-available`` says, and are bound all together, in the zone where they score most,
or not at all. Without metrics pods go where they fit best by what others request.

Looked at are free resources, cordons, taints, node selectors and required node affinity. Not looked at, so leave such
pods to kube-scheduler: host ports, volumes, topology spread, affinity to other pods, scheduling gates. Nothing is
preempted. Run one: two would place the same pods.
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
from runtime.http.gather import Deadline
from runtime.kubernetes.api import Access, KubernetesApi
from runtime.kubernetes.credentials import UnusableAccess, UnusableToken
from scoring import (
    FallbackPolicy,
    Judgment,
    LoadVariationRiskBalancing,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeTable,
    Pod,
    Profile,
    WeightedPlugin,
)
from trimaran.cluster.view import ClusterView

GANG = "pod-group.scheduling.sigs.k8s.io/name"
SIZE = "pod-group.scheduling.sigs.k8s.io/min-available"
ZONE = "topology.kubernetes.io/zone"
TURN_SECONDS = 0.1
RETRY_SECONDS = 5.0
NEVER = "", 0.0
# Load decides; what others request decides between nodes that are equal by load.
PLUGINS = (
    WeightedPlugin(LoadVariationRiskBalancing(count_recent_pods=True), 10),
    WeightedPlugin(NodeResourcesFit()),
    WeightedPlugin(NodeResourcesBalancedAllocation()),
)


def gang_of(pod: Pod) -> str:
    """Return the name of a pod's gang, "" without one."""
    return f"{pod.namespace}/{pod.labels[GANG]}" if pod.labels.get(GANG) else ""


def zones(pods: list[Pod], nodes: NodeTable) -> Iterator[np.ndarray]:
    """Yield the nodes that pods of a gang may go to together, zone after zone, shape (nodes,); all for a single pod.

    It is one zone, that of the pods which are bound already, after a failure in the middle of a gang.

    Raises:
        LookupError: the gang is not complete yet.
    """
    if not (name := gang_of(pods[0])):
        yield np.ones(len(nodes), bool)
        return
    bound = [row for row, placed in nodes.placed_pods() if gang_of(placed.pod) == name]
    there, size = len(pods) + len(bound), pods[0].labels.get(SIZE, "1")
    if size.isdecimal() and there < int(size):
        raise LookupError(f"{there} of {size} pods of the gang are there")
    zone_of = np.array([node.labels.get(ZONE, "") for node in nodes.nodes])
    for zone in np.unique(zone_of[bound] if bound else zone_of):
        yield zone_of == zone


class Scheduler:
    """Places the pending pods of its name, again and again. One thread."""

    def __init__(self, name: str, view: ClusterView, api: KubernetesApi, load: Collector) -> None:
        self.view, self.api, self.load = view, api, load
        self.profile = Profile(PLUGINS, name)
        self.policy = FallbackPolicy()
        self.dice = np.random.default_rng()
        self.bound: set[str] = set()  # by uid, until the view has seen it
        self.refused: dict[str, tuple[str, float]] = {}  # by uid: why, and when to try again, monotonic

    def turn(self) -> None:
        """Place every gang that is due."""
        gangs = self.due()
        if not gangs:
            return
        with self.view.reading() as table:  # a moment: events wait for its end
            nodes = table.copy()
        try:
            snapshot = self.load.snapshot()
        except ClientError as error:
            snapshot = None
            print(f"nodes are scored by what pods request: {error}", file=sys.stderr)
        judgment = self.policy.judge(nodes, snapshot, time.time())
        for gang in gangs:
            try:
                nodes, placed = self.place(gang, nodes, judgment)
            except LookupError as error:
                self.refuse(gang, str(error))
                continue
            for pod, node_name in placed:
                self.bind(pod, node_name)

    def due(self) -> list[list[Pod]]:
        """Return the pods to place now, by gangs: highest priority first, then the oldest."""
        pending = [pod for pod in self.view.pending() if pod.scheduler_name == self.profile.scheduler_name]
        uids = {pod.uid for pod in pending}
        self.bound &= uids
        self.refused = {uid: refusal for uid, refusal in self.refused.items() if uid in uids}
        gangs: dict[str, list[Pod]] = {}
        for pod in sorted(pending, key=lambda pod: -pod.priority):
            if pod.uid not in self.bound and not pod.terminating:
                gangs.setdefault(gang_of(pod) or pod.uid, []).append(pod)
        now = time.monotonic()  # a gang that a pod has joined is tried at once
        return [gang for gang in gangs.values() if any(self.refused.get(pod.uid, NEVER)[1] <= now for pod in gang)]

    def place(self, gang: list[Pod], nodes: NodeTable, judgment: Judgment) -> tuple[NodeTable, list[tuple[Pod, str]]]:
        """Return a node for each pod, and a table that counts them there.

        Raises:
            LookupError: the gang is not complete, or no zone has room for all of it.
        """
        found, why = [], LookupError("there are no nodes")
        for here in zones(gang, nodes):
            plan, placed, total = nodes.copy(), [], 0
            prepared = self.profile.prepare(plan, judgment)
            try:
                for pod in gang:
                    scores = prepared.score(pod, plan.feasible(pod) & here)
                    placed.append((pod, scores.best(self.dice)))
                    total += int(scores.total.max())
                    plan.assume(*placed[-1])
                found.append((total, plan, placed))
            except LookupError as error:
                why = error
        if not found:
            raise why
        return max(found, key=lambda each: each[0])[1:]

    def bind(self, pod: Pod, node_name: str) -> None:
        """Bind a pod; where that fails it is tried again while it is pending."""
        binding = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }  # fmt: skip
        if self.send("POST", pod, "binding", binding, "application/json"):
            self.bound.add(pod.uid)
            self.view.assume(pod, node_name)  # counts until the watch tells
            print(f"{pod.namespace}/{pod.name} is bound to {node_name}", flush=True)
        else:
            self.refused[pod.uid] = "", time.monotonic() + RETRY_SECONDS

    def refuse(self, pods: list[Pod], why: str) -> None:
        """Say in the pods' status, once, why they are not placed; kubectl and the cluster autoscaler read it there."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        for pod in pods:
            before, _ = self.refused.get(pod.uid, NEVER)
            self.refused[pod.uid] = why, time.monotonic() + RETRY_SECONDS
            if before != why:
                patch = {"status": {"conditions": [condition]}}
                self.send("PATCH", pod, "status", patch, "application/strategic-merge-patch+json")

    def send(self, method: str, pod: Pod, what: str, body: object, content_type: str) -> bool:
        """Send something about a pod; return whether the API server took it."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/{what}"
        try:
            self.api.send(method, path, Deadline.after(10), body, content_type)
        except (requests.RequestException, UnusableToken, UnusableAccess) as error:
            print(f"{pod.namespace}/{pod.name}: {error}", file=sys.stderr)  # gone or bound meanwhile, or no API server
            return False
        return True


def main() -> int:
    """Schedule until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="trimaran", help="which pods are its work [default: trimaran]")
    parser.add_argument("--watcher", help="the watcher's address; without one, this process watches by itself")
    parser.add_argument("--kube-config", type=Path, help="a kubeconfig; without one, the pod's service account")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as closing:
        try:
            access = Access(kube_config=options.kube_config)
            api, for_view = KubernetesApi(access), KubernetesApi(access)  # the view ends what its own is asked
            load = closing.enter_context(Collector(connect(options.watcher), interval_seconds=15))
        except (ValueError, UnusableAccess) as error:
            parser.error(str(error))
        closing.callback(api.close)
        closing.callback(for_view.close)
        view = ClusterView(for_view)
        closing.callback(view.close)
        view.start()
        scheduler = Scheduler(options.name, view, api, load)
        while not stop.wait(TURN_SECONDS):
            if view.is_synced:
                scheduler.turn()
    return 0


if __name__ == "__main__":
    sys.exit(main())
