"""Nodes on which the replacements of moved pods land: a cluster with hot nodes, and a proxy that sees what is offered.

kube-scheduler calls the extender through the proxy, so that each node offered for a pod is known. Pods of one workload
are interchangeable: a move has landed if any new pod of the workload is on its target, each pod for one move.
"""

import contextlib
import http.client
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import orjson
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.extender import Extender
from control_plane.manifests import container, node, pod
from control_plane.moving import (
    MANIFESTS,
    NODE_CORES,
    PODS,
    PodUse,
    RebalancerProcess,
    deployment,
    ledger,
    ready,
)
from control_plane.rights import grant_rights
from control_plane.scheduler import Scheduler
from control_plane.usage import CPU_ANNOTATION, Kwok
from support.servers import run_server, wait_until

from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config
from trimaran.rebalancer.moves import MoveRecord, MoveState

PODS_A_NODE = 20
REQUEST = "400m"  # so many such pods fill a node of eight cores, so that the scheduler puts as many on each hot node
USE = 0.1  # cores, until a node is heated
HOT_LOAD = 0.82
LEAST_MOVES = 1  # from a heated node, even if it has few pods left
MOST: Mapping[str, Any] = {
    "moves_per_hour": 1000, "moves_per_day": 1000, "namespace_moves_per_hour": 1000, "lease_seconds": 60,
    "rules": {
        "caps.open_moves": 100, "caps.workload_per_hour": 100, "caps.node_per_hour": 100,
        "brake.max_unready_factor": 100, "brake.max_pending_factor": 100,
    },
}  # fmt: skip
"""Settings of the rebalancer with which caps do not matter, nor a busy machine."""
CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"score": {"enabled": [{"name": "CongestionCost", "weight": 1}]}},
        }
    ],
}


class OfferLog(ThreadingHTTPServer):
    """A proxy before the replicas of an extender that records the request bodies. Use it as a context manager.

    As a Service does, it takes the replicas in turn, and none that is down.

    Args:
        extenders: addresses of the replicas, such as ``http://127.0.0.1:2021``.

    Attributes:
        url: address of the proxy.
        bodies: bodies of the requests to prioritize, in order.
    """

    daemon_threads = True

    def __init__(self, *extenders: str) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._extenders = [each.removeprefix("http://") for each in extenders]
        self._turn = itertools.count()
        self.bodies: list[bytes] = []

    def in_turn(self) -> list[str]:
        """Return the hosts and ports of the replicas, another one first in each call."""
        first = next(self._turn) % len(self._extenders)
        return [*self._extenders[first:], *self._extenders[:first]]

    def __enter__(self) -> Self:
        self._running = run_server(self)
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)

    def offers(self) -> dict[str, set[str]]:
        """Return the names of all nodes offered for each pod, by its UID."""
        nodes: dict[str, set[str]] = defaultdict(set)
        for body in list(self.bodies):
            arguments = orjson.loads(body)
            nodes[arguments["Pod"]["metadata"]["uid"]].update(arguments["NodeNames"])
        return nodes


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OfferLog

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, content = 503, b""  # if all replicas restart: kube-scheduler goes on without them
        for extender in self.server.in_turn():
            connection = http.client.HTTPConnection(extender, timeout=10)
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
                connection.request("POST", self.path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, content = answer.status, answer.read()
            if status != 503:
                break
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.server.bodies.append(body)

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class MoveShares:
    """Numbers of moves by what became of them.

    Attributes:
        moves: moves that were made.
        offered: moves whose target was offered to the extender for a new pod of the workload.
        landed: moves whose target runs a new pod of the workload.
        astray: moves that were offered and did not land: pod, target, and the nodes of the workload's new pods.
    """

    moves: int
    offered: int
    landed: int
    astray: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.moves} moves, target offered in {self.offered}, landed there {self.landed}: "
            f"{self.landed / max(self.offered, 1):.1%} of those offered, {self.landed / max(self.moves, 1):.1%} of all"
        )


def move_shares(
    moves: Sequence[MoveRecord], pods: Sequence[Mapping[str, Any]], offers: Mapping[str, set[str]]
) -> MoveShares:
    """Return what became of some moves.

    Args:
        moves: moves of the ledger.
        pods: pods of the Deployments that are new since the moves began.
        offers: nodes offered for each pod, by UID.
    """
    nodes: dict[str, list[str]] = defaultdict(list)
    offered: dict[str, set[str]] = defaultdict(set)
    for each in pods:
        of = each["metadata"]["labels"]["app"]
        nodes[of].append(each["spec"].get("nodeName", ""))
        offered[of] |= offers.get(each["metadata"]["uid"], set())
    landed = was_offered = 0
    astray = []
    for move in moves:
        of, target = move.workload, move.target
        if target in nodes[of]:
            nodes[of].remove(target)
            landed, was_offered = landed + 1, was_offered + 1
        elif target in offered[of]:
            was_offered += 1
            astray.append(f"{move.name} to {target}; new pods on {nodes[of]}")
    return MoveShares(len(moves), was_offered, landed, tuple(astray))


@dataclass
class LandingCluster:
    """A cluster whose first nodes are full of pods, which are idle until they are heated.

    Attributes:
        cluster: the control plane.
        hot: names of the full nodes.
        watcher: the made-up watcher.
        extenders: replicas of the extender.
        offers: proxy between kube-scheduler and the replicas.
        kwok: simulated kubelets.
    """

    cluster: ControlPlane
    hot: Sequence[str]
    watcher: PodUse
    extenders: Sequence[Extender]
    offers: OfferLog
    kwok: Kwok

    def scheduler(self, sampled_percent: int = 100) -> Scheduler:
        """Return a kube-scheduler that calls the extender, not started yet.

        Args:
            sampled_percent: percentageOfNodesToScore; 0 for kube-scheduler's own choice.
        """
        rendered = render_config(CONFIGURATION, ExtenderEndpoint(self.offers.url))
        rendered["extenders"][0]["httpTimeout"] = "5s"
        return Scheduler(
            self.cluster, rendered["profiles"], extenders=rendered["extenders"], verbosity=2,
            percentageOfNodesToScore=sampled_percent,
        )  # fmt: skip

    def heat(self) -> set[str]:
        """Let the pods on each hot node use 82 % of it; return the UIDs of all pods before the moves that follow."""
        pods = self.cluster.api.items(PODS)
        of_node: dict[str, list[str]] = defaultdict(list)
        for each in pods:
            of_node[each["spec"].get("nodeName", "")].append(each["metadata"]["name"])
        for name in self.hot:
            cores = HOT_LOAD * NODE_CORES / max(len(of_node[name]), 1)
            for pod_name in of_node[name]:
                notes = {"metadata": {"annotations": {CPU_ANNOTATION: f"{cores:.4f}"}}}
                self.cluster.api.patch(f"{PODS}/{pod_name}", notes)
        return {each["metadata"]["uid"] for each in pods}

    def wait_for_moves(
        self,
        rebalancer: RebalancerProcess,
        before: "set[str]",
        state: MoveState = MoveState.LANDED,
        least: int = 0,
        seconds: float = 240,
    ) -> list[MoveRecord]:
        """Wait until moves of the pods that were there before are in a state, and none in another; return them.

        Args:
            rebalancer: the rebalancer.
            before: UIDs of the pods.
            state: the state.
            least: number of moves; by default one for each hot node.
            seconds: time limit.
        """
        least = least or LEAST_MOVES * len(self.hot)

        def there() -> list[MoveRecord]:
            found = [each for each in ledger(self.cluster) if each.uid in before and each.is_made]
            return found if len(found) >= least and all(each.state is state for each in found) else []

        moves: list[MoveRecord] = rebalancer.process.wait_until(there, f"{least} moves are {state}", seconds)
        return moves

    def shares(self, moves: Sequence[MoveRecord], before: "set[str]") -> MoveShares:
        """Return what became of the moves of the pods that were there before."""
        new = [each for each in self.cluster.api.items(PODS) if each["metadata"]["uid"] not in before]
        return move_shares([each for each in moves if each.uid in before], new, self.offers.offers())


@contextmanager
def landing_cluster(folder: Path, hot: int, cold: int, workloads: int, replicas: int = 1) -> Iterator[LandingCluster]:
    """Run a cluster with full nodes, to be heated, and empty nodes; no scheduler runs in the block.

    Args:
        folder: folder for the files.
        hot: number of full nodes.
        cold: number of empty nodes.
        workloads: number of Deployments, which have the same number of pods.
        replicas: number of replicas of the extender.
    """
    names = [f"node-{number:04d}" for number in range(hot + cold)]
    with ControlPlane(folder) as cluster, PodUse(cluster) as watcher:
        grant_rights(cluster, *MANIFESTS)
        kwok = Kwok(cluster, leases=False)
        cluster.api.create(*(kwok.for_kwok(node(name, str(NODE_CORES), "32Gi")) for name in names[:hot]))
        extenders = [
            Extender(cluster, CONFIGURATION, watcher.url, extender__deadline_seconds=2, extender__refresh_seconds=5)
            for _ in range(replicas)
        ]
        with contextlib.ExitStack() as stack:
            for each in (kwok, ControllerManager(cluster), *extenders):
                stack.enter_context(each)
            offers = stack.enter_context(OfferLog(*(each.url for each in extenders)))
            parts = LandingCluster(cluster, names[:hot], watcher, extenders, offers, kwok)
            pods = hot * PODS_A_NODE // workloads
            with parts.scheduler():
                cluster.api.create(*(deployment(f"app-{n:03d}", pods, REQUEST, USE) for n in range(workloads)))
                wait_until(lambda: len(ready(cluster)) == pods * workloads, "all pods are ready", 120)
            # Only now, so that all pods are on the hot nodes.
            cluster.api.create(*(kwok.for_kwok(node(name, str(NODE_CORES), "32Gi")) for name in names[hot:]))
            probe = pod("probe", container(requests={"cpu": "1m"}))
            probe["metadata"]["uid"] = "probe"
            full_and_empty = [names[0], names[-1]]
            wait_until(
                lambda: all(len(set(each.scores(probe, full_and_empty).values())) == 2 for each in extenders),
                "the new nodes are measured",
                180,
            )
            yield parts
