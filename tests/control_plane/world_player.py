"""A trace played on a real control plane, faster than life: its pods are created, run where they are bound, and end.

Only the durations of the load are divided by the speed: arrivals and lives. A pod of the trace is a bare pod, which
names a ReplicaSet or Job as its controller that nothing runs. In the form of replicas each pod of a service is the one
replica of a ReplicaSet of its own, so that a real controller creates it again after an eviction, and the trace's pod
lives on. These ReplicaSets belong to the Deployment of their owner, whose number of replicas the player keeps up to
date. Only :data:`CONTROLLERS` may run: others would scale the Deployments, or delete the bare pods of jobs.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Protocol, Self

import requests
from control_plane.cluster import ControlPlane
from control_plane.manifests import Object, container, node, pod

from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from runtime.kubernetes.reflector import Reflector
from trimaran.simulator.cluster import Cluster
from trimaran.traces.trace import JOB, NO_LIMIT, Trace

CONTROLLERS = ("replicaset-controller",)
POD_LABEL, OWNER_LABEL = "replay.trimaran/pod", "replay.trimaran/owner"
#: Added to the names of Jobs: without it the number at the end of a name would count as one run of several.
JOB_SUFFIX = "-run"
_HASH_LABEL, _HASH = "pod-template-hash", "5d8f6c9b7"
_PODS = "/api/v1/namespaces/default/pods"
_REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


class PodForm(StrEnum):
    """Form in which the pods of a trace are created."""

    BARE = "bare"
    REPLICA = "replica"


class WorldClock:
    """Clock of a played trace: minutes of the trace by the wall clock.

    Args:
        speed: minutes of the trace in a minute of life.
        clock: Unix time.

    Attributes:
        origin: Unix time of minute 0; until :meth:`start` the trace has not begun.
    """

    def __init__(self, speed: float, clock: Callable[[], float] = time.time) -> None:
        self.speed, self._clock = speed, clock
        self.origin = float("inf")

    def start(self) -> None:
        """Begin with minute 0 now."""
        self.origin = self._clock()

    def minute(self) -> float:
        """Return the present minute of the trace, with its fraction; 0 before the start."""
        return max(0.0, (self._clock() - self.origin) * self.speed / 60)

    def unix_seconds(self, minute: float) -> float:
        """Return the Unix time of a minute of the trace."""
        return self.origin + 60 * minute / self.speed


class PlacementObserver(Protocol):
    """Consumer of the placements that the API server reports, called by one thread."""

    def bound(self, uid: str, name: str, number: int, node_name: str, minute: float) -> None:
        """Take the binding of a pod: its uid and name, its number in the trace, its node, and the minute."""
        ...

    def gone(self, uid: str, minute: float) -> None:
        """Take the end of a pod."""
        ...


class WorldPlayer:
    """Player of one trace. Use it as a context manager: pods are followed from the start of the block to its end.

    Args:
        cluster: cluster to play on.
        trace: the trace. Requests are divided by its overcommit, as an admission webhook would.
        clock: clock of the trace.
        observer: consumer of the placements.
        form: form of the pods.
    """

    def __init__(
        self,
        cluster: ControlPlane,
        trace: Trace,
        clock: WorldClock,
        observer: PlacementObserver,
        form: PodForm = PodForm.BARE,
    ) -> None:
        self._cluster, self._trace, self._clock, self._observer, self._form = cluster, trace, clock, observer, form
        self._world = Cluster(trace, trace.overcommit)
        self._numbers = {name: number for number, name in enumerate(trace.pods)}
        self._bound: set[str] = set()
        self._ends: dict[int, list[int]] = defaultdict(list)  # numbers of pods by the minute in which they end
        self._waiting_jobs: set[int] = set()  # jobs that never ran yet: their life begins when they are bound
        self._deployments: dict[str, str] = {}  # uid by owner
        self._replicas: Counter[str] = Counter()  # by owner
        self._names: dict[int, str] = {}  # name of the newest pod by number in the trace
        self._ended: set[int] = set()
        self._lock = threading.Lock()
        self._api = KubernetesApi(ApiServerConfig(kube_config=cluster.kubeconfig()))
        self._reflector = Reflector(self._api, _PODS, self)

    def __enter__(self) -> Self:
        self._reflector.start()
        assert self._reflector.synced.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._reflector.stop()
        self._reflector.join()
        self._api.close()

    def create_nodes(self, for_kubelet: Callable[[Object], Object] = lambda each: each) -> None:
        """Create the trace's nodes.

        Args:
            for_kubelet: change of a node for its kubelet, such as :meth:`control_plane.usage.Kwok.for_kwok`.
        """
        amounts = self._trace.amounts().items()
        nodes = [node(name, f"{cpu}m", str(memory), resources={"pods": "1000"}) for name, (cpu, memory) in amounts]
        self._cluster.api.create(*map(for_kubelet, nodes))

    def create_owners(self) -> None:
        """Create the owners of services: ReplicaSets that bare pods name, or the Deployments of replicas.

        kube-scheduler spreads pods by the selectors of their ReplicaSets.
        """
        owners = zip(self._trace.owner_kinds, self._trace.owners, strict=True)
        names = dict.fromkeys(owner for kind, owner in owners if kind != JOB)
        if self._form is PodForm.BARE:
            self._cluster.api.create(*(replica_set(f"{name}-{_HASH}", name, 0, {}) for name in names))
            return
        created = self._cluster.api.create(
            *({**replica_set(name, name, 0, {}), "kind": "Deployment"} for name in names)
        )
        self._deployments = {each["metadata"]["name"]: each["metadata"]["uid"] for each in created}

    def play(self, until: int | None = None, report: Callable[[int], None] = lambda _minute: None) -> None:
        """Play the trace from minute 0 to its end; returns then.

        Args:
            until: minute before which to end; by default the end of the trace.
            report: called with each minute after its pods were created.
        """
        trace, arrivals = self._trace, defaultdict(list)
        for number, minute in enumerate(trace.arrival_minute.tolist()):
            if trace.end_minute[number] > minute:
                arrivals[minute].append(number)
                if trace.owner_kinds[number] == JOB:
                    self._waiting_jobs.add(number)
                else:
                    self._ends[int(trace.end_minute[number])].append(number)
        end = trace.minutes if until is None else until
        for minute in range(end):
            time.sleep(max(0.0, self._clock.unix_seconds(minute) - time.time()))
            with self._lock:
                ending = self._ends.pop(minute, [])
            arriving = arrivals.pop(minute, [])
            for number in ending:
                self._end(number)
            if self._form is PodForm.REPLICA and arriving:  # their controllers create the pods in any order
                self._cluster.api.create(*map(self._manifest, arriving))
            else:
                for number in arriving:
                    self._cluster.api.create(self._manifest(number))
            self._scale(arriving, ending)
            report(minute)
        time.sleep(max(0.0, self._clock.unix_seconds(end) - time.time()))

    def replace(self, objects: Iterable[Object]) -> None:
        """Take the full list of the pods."""
        there = {each["metadata"]["uid"]: each for each in objects}
        for each in there.values():
            self.put(each)
        for uid in self._bound - there.keys():
            self._gone(uid)

    def put(self, changed: Object) -> None:
        """Take a new or changed pod."""
        uid, name = changed["metadata"]["uid"], changed["spec"].get("nodeName")
        number = self._numbers.get(changed["metadata"].get("labels", {}).get(POD_LABEL))
        if number is None or uid in self._bound:
            return
        self._names[number] = changed["metadata"]["name"]
        if number in self._ended:  # a replacement that its controller created at the last moment
            self._delete(f"{_PODS}/{self._names[number]}")
            return
        if not name:
            return
        minute = self._clock.minute()
        self._bound.add(uid)
        with self._lock:
            if number in self._waiting_jobs:
                self._waiting_jobs.remove(number)
                life = int(self._trace.end_minute[number] - self._trace.arrival_minute[number])
                self._ends[int(minute) + life].append(number)
        self._observer.bound(uid, changed["metadata"]["name"], number, name, minute)

    def drop(self, deleted: Object) -> None:
        """Take the end of a pod."""
        self._gone(deleted["metadata"]["uid"])

    def _gone(self, uid: str) -> None:
        if uid in self._bound:
            self._bound.remove(uid)
            self._observer.gone(uid, self._clock.minute())

    def _end(self, number: int) -> None:
        self._ended.add(number)
        if self._is_replica(number):
            self._delete(f"{_REPLICA_SETS}/{self._replica_set_name(number)}")
        self._delete(f"{_PODS}/{self._names.get(number, self._trace.pods[number])}")

    def _delete(self, path: str) -> None:
        try:
            self._cluster.api.delete(path)
        except requests.HTTPError as error:
            if error.response.status_code != 404:  # a pod that is gone, or has no name yet
                raise

    def _scale(self, arriving: Iterable[int], ending: Iterable[int]) -> None:
        """Set the replicas of the Deployments whose pods arrived or ended, as their controller reports them."""
        changed = set()
        for numbers, change in ((arriving, 1), (ending, -1)):
            for number in filter(self._is_replica, numbers):
                self._replicas[self._trace.owners[number]] += change
                changed.add(self._trace.owners[number])
        for owner in changed:
            path, count = f"{_DEPLOYMENTS}/{owner}", self._replicas[owner]
            scaled = self._cluster.api.patch(path, {"spec": {"replicas": count}})
            counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count)
            status = {"observedGeneration": scaled["metadata"]["generation"], **counts}
            self._cluster.api.patch(f"{path}/status", {"status": status})

    def _is_replica(self, number: int) -> bool:
        return self._form is PodForm.REPLICA and self._trace.owner_kinds[number] != JOB

    def _replica_set_name(self, number: int) -> str:
        return replica_set_name(self._trace.owners[number], self._trace.pods[number])

    def _manifest(self, number: int) -> Object:
        trace, name = self._trace, self._trace.pods[number]
        kind, owner = trace.owner_kinds[number], trace.owners[number]
        cpu, memory = self._world.requests(number)
        limits = {"cpu": int(trace.cpu_limit_milli[number]), "memory": int(trace.memory_limit_bytes[number])}
        amounts = {
            "requests": {"cpu": f"{cpu}m", "memory": str(memory)},
            "limits": {n: f"{v}m" if n == "cpu" else str(v) for n, v in limits.items() if v != NO_LIMIT},
        }
        result = pod(name, container(**amounts))
        labels = {POD_LABEL: name, OWNER_LABEL: owner}
        if self._is_replica(number):
            template = {"metadata": {"labels": {**labels, _HASH_LABEL: name}}, "spec": result["spec"]}
            made = replica_set(self._replica_set_name(number), owner, 1, template)
            deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "controller": True}
            made["metadata"]["ownerReferences"] = [{**deployment, "uid": self._deployments[owner]}]
            return made
        controller = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{owner}{JOB_SUFFIX}"}
        if kind != JOB:
            controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{owner}-{_HASH}"}
            labels[_HASH_LABEL] = _HASH
        references = [{**controller, "uid": f"uid-of-{owner}", "controller": True}]
        result["metadata"] |= {"labels": labels, "ownerReferences": references}
        return result


def replica_set_name(owner: str, pod_name: str) -> str:
    """Return the name of the ReplicaSet of a pod, as a Deployment names it: the pod's name stands for the hash."""
    return f"{owner}-{pod_name}"


def replica_set(name: str, owner: str, replicas: int, template: dict[str, Any]) -> Object:
    """Return a ReplicaSet that selects the pods of an owner of the trace."""
    labels = {OWNER_LABEL: owner}
    template = template or {"metadata": {"labels": labels}, "spec": {"containers": [container()]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    }  # fmt: skip
