"""Made-up cluster with a past of some days: its nodes and pods, and its metrics as OpenMetrics text, with five faults.

The planted faults: a node whose kubelet is no longer scraped, a node that is hot since a pod of it began to work, a
workload that requests twenty times what it uses, a namespace without requests, and a break of Prometheus.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from control_plane.manifests import container, node, pod

MEBI = 2**20
SCRAPE_SECONDS = 120
_STATE_SECONDS = 1800  # between two samples of kube-state-metrics
_CORES = 4.0
UNSCRAPED, HOT, WASTEFUL, BARE = "node-17", "node-3", "checkout", "batch"
_SHARES = (0.2, 0.4, 0.6, 0.8, 1.3)  # mean use of the web workloads as a share of their requests
_DAY = 86400


@dataclass(frozen=True)
class PastPod:
    """Pod of the made-up cluster.

    Attributes:
        namespace: its namespace.
        owner: name of its Deployment.
        revision: revision of the Deployment, part of the pod's name.
        name: its name.
        node: its node.
        start: start, Unix seconds.
        end: end, Unix seconds.
        request: requested CPU, cores; 0 without requests.
        memory: memory use, bytes.
        mean: mean use of CPU over a day, cores.
    """

    namespace: str
    owner: str
    revision: str
    name: str
    node: str
    start: int
    end: int
    request: float
    memory: int
    mean: float


class PastCluster:
    """Nodes of four cores with eight pods each. Each workload replaces its pods once a day.

    Args:
        end: end of the past, Unix seconds.
        nodes: number of nodes, at least 20.
        days: length of the past.
        seed: seed of the use.
    """

    def __init__(self, end: int, nodes: int = 100, days: int = 7, seed: int = 0) -> None:
        self.end, self.begin = end, end - _DAY * days
        self.names = [f"node-{number}" for number in range(nodes)]
        self._random = np.random.default_rng(seed)
        outage = self.begin + _DAY * days // 3
        self.outage = outage, outage + 3 * 3600
        self.unscraped_since = end - _DAY // 2
        self.hot_since = end - _DAY // 3
        self.pods = list(self._pods(nodes))

    def _pods(self, nodes: int) -> Iterator[PastPod]:
        """Yield the pods in the order of their starts, each on the node with the least requested CPU."""
        yield PastPod("shop", "reports", "1", "reports-1-0", HOT, self.begin, self.end, 0.5, 500 * MEBI, 0.2)
        workloads = [("shop", f"web-{number}", 0.4, share, nodes * 6 // 5) for number, share in enumerate(_SHARES)]
        workloads += [("shop", WASTEFUL, 1.0, 0.05, nodes // 5), (BARE, "spark", 0.0, 0.5, nodes // 4)]
        starts = []
        for number, workload in enumerate(workloads):
            rollout = self.begin + _DAY * (number + 1) // (len(workloads) + 1)
            starts += [(self.begin, rollout, workload)]
            starts += [(at, min(at + _DAY, self.end), workload) for at in range(rollout, self.end, _DAY)]
        running: list[PastPod] = []
        for start, end, (namespace, owner, request, share, count) in sorted(starts, key=lambda each: each[0]):
            running = [each for each in running if each.end > start]
            requested = dict.fromkeys(self.names, 0.0)
            for each in running:
                requested[each.node] += each.request or 0.1
            revision = f"{start // 60 % 100_000:05d}"
            for number in range(count):
                name = min(requested, key=lambda each: (requested[each], self._random.random()))
                requested[name] += request or 0.1
                mean = share * (request or 0.6) * float(self._random.uniform(0.8, 1.2))
                memory = int(self._random.integers(300, 900)) * MEBI
                made = PastPod(
                    namespace, owner, revision, f"{owner}-{revision}-{number:05d}", name, start, end, request, memory,
                    mean,
                )  # fmt: skip
                running.append(made)
                yield made

    def manifests(self) -> Iterator[dict[str, Any]]:
        """Yield the Nodes, and the Pods that run at the end."""
        yield from (node(name, f"{_CORES:g}", "16Gi") for name in self.names)
        for each in self.pods:
            if each.end < self.end:
                continue
            requests = {"cpu": f"{round(1000 * each.request)}m", "memory": f"{each.memory // MEBI + 100}Mi"}
            manifest = pod(each.name, container(requests=requests if each.request else {}), nodeName=each.node)
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{each.owner}-{each.revision}"}
            manifest["metadata"] |= {
                "namespace": each.namespace, "labels": {"pod-template-hash": each.revision},
                "ownerReferences": [{**owner, "uid": f"uid-{each.owner}-{each.revision}", "controller": True}],
            }  # fmt: skip
            yield manifest

    def lines(self) -> Iterator[str]:
        """Yield the metrics of cAdvisor and of kube-state-metrics as OpenMetrics text."""
        yield "# TYPE container_cpu_usage_seconds counter\n"
        for each in self.pods:
            labels, times = _labels(each), self._times(each)
            counter = np.cumsum(self._cores(each)) * SCRAPE_SECONDS
            seen = self._is_scraped(each)
            rows = zip(counter[seen].tolist(), times[seen].tolist(), strict=True)
            yield "".join(f"container_cpu_usage_seconds_total{{{labels}}} {value:.2f} {at}\n" for value, at in rows)
        yield "# TYPE container_memory_working_set_bytes gauge\n"
        for each in self.pods:
            labels, times = _labels(each), self._times(each)[self._is_scraped(each)].tolist()
            yield "".join(f"container_memory_working_set_bytes{{{labels}}} {each.memory} {at}\n" for at in times)
        states = {
            "kube_pod_info": (_info, 1), "kube_replicaset_owner": (_replica_set, 1),
        }  # fmt: skip
        for name, (labels_of, value) in states.items():
            yield f"# TYPE {name} gauge\n"
            for labels in dict.fromkeys(map(labels_of, self.pods)):
                yield from self._states(name, labels, value)
        yield "# TYPE kube_pod_container_resource_requests gauge\n"
        for each in self.pods:
            for resource, amount in (("cpu", each.request), ("memory", each.memory + 100 * MEBI)):
                if each.request:
                    labels = f'{_labels(each)},resource="{resource}"'
                    yield from self._states("kube_pod_container_resource_requests", labels, amount)

    def _states(self, name: str, labels: str, value: float) -> Iterator[str]:
        times = range(self.begin, self.end, _STATE_SECONDS)
        yield "".join(f"{name}{{{labels}}} {value} {at}\n" for at in times)

    def _times(self, of: PastPod) -> Any:
        return np.arange(of.start, of.end + 1, SCRAPE_SECONDS)

    def _cores(self, of: PastPod) -> Any:
        times = self._times(of)
        use = of.mean * (1 + np.sin(2 * np.pi * times / _DAY) / 3)
        if of.node == HOT and of.owner == "reports":
            use = np.where(times >= self.hot_since, 3.2, use)
        return np.maximum(use * self._random.normal(1, 0.1, len(times)), 0.001)

    def _is_scraped(self, of: PastPod) -> Any:
        times = self._times(of)
        is_up = (times < self.outage[0]) | (times >= self.outage[1])
        return is_up & ((of.node != UNSCRAPED) | (times < self.unscraped_since))


def _labels(of: PastPod) -> str:
    return f'namespace="{of.namespace}",pod="{of.name}",container="main"'


def _info(of: PastPod) -> str:
    replica_set = f'created_by_kind="ReplicaSet",created_by_name="{of.owner}-{of.revision}"'
    return f'namespace="{of.namespace}",pod="{of.name}",node="{of.node}",{replica_set}'


def _replica_set(of: PastPod) -> str:
    owner = f'owner_kind="Deployment",owner_name="{of.owner}"'
    return f'namespace="{of.namespace}",replicaset="{of.owner}-{of.revision}",{owner}'
