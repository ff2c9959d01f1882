"""Parts of an extender without a cluster: a static cluster view, and metrics that the test sets."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from client import NoMetrics
from scoring import Node, NodeTable, Pod, ResourceList
from trimaran.cluster.state import ClusterState
from trimaran.extender.profiles import Profiles
from watcher import wire
from watcher.model import WatcherMetrics
from watcher.wire import Dialect

CONFIGURATION: Mapping[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "load-aware",
            "plugins": {"score": {"enabled": [{"name": "LoadVariationRiskBalancing", "weight": 1}]}},
        },
        {"schedulerName": "default-scheduler"},
    ],
}


def profiles(configuration: Mapping[str, Any] = CONFIGURATION) -> Profiles:
    """Return the extender's profiles from a KubeSchedulerConfiguration."""
    return Profiles.read(configuration)


class StaticView:
    """A cluster view without a watch: only the test changes it."""

    def __init__(self, *names: str) -> None:
        self.is_synced = True
        self.lock = threading.RLock()
        self.state = ClusterState()
        amounts = ResourceList({"cpu": 4000, "memory": 16 << 30, "pods": 110})
        self.state.replace_nodes(Node(name, amounts, amounts, created_at=0.0) for name in names)
        self.assumed: list[tuple[str, str]] = []

    @property
    def in_flight(self) -> int:
        with self.lock:
            return len(self.state.assumptions)

    @contextmanager
    def reading(self, pod: Pod | None = None, *, timeout: float = 60.0) -> Iterator[NodeTable]:
        if not self.lock.acquire(timeout=max(0.0, timeout)):
            raise TimeoutError
        try:
            if pod is not None:
                self.state.retry(pod.uid)
            yield self.state.table
        finally:
            self.lock.release()

    def remember_departed(self, seconds: float) -> None:
        self.state.departed_seconds = seconds

    def assume(self, pod: Pod, node_name: str) -> None:
        with self.lock:
            self.assumed.append((pod.uid, node_name))
            self.state.assume(pod, node_name, time.monotonic())


class SettableMetrics:
    """A source of metrics that the test sets; None simulates an outage."""

    def __init__(self, loads: Mapping[str, float] | None) -> None:
        self.current = None if loads is None else metrics(loads)

    def snapshot(self) -> WatcherMetrics:
        if self.current is None:
            raise NoMetrics("the watcher has nothing fresh")
        return self.current


def metrics(loads: Mapping[str, float], now: float | None = None) -> WatcherMetrics:
    """Return a fresh snapshot with a constant load per node, in percent of CPU and of memory."""
    return wire.decode(orjson.dumps(snapshot_of(loads, now)), Dialect.DOCUMENTED)


def snapshot_of(loads: Mapping[str, float], now: float | None = None) -> dict[str, Any]:
    """Return the response of ``GET /watcher`` with a constant load per node, in percent of CPU and of memory."""
    end = int(time.time() if now is None else now)

    def series(value: float) -> list[dict[str, Any]]:
        return [
            {"name": kind, "type": kind, "operator": operator, "rollup": "5m", "value": amount}
            for kind in ("CPU", "Memory")
            for operator, amount in (("AVG", value), ("STD", 0.0))
        ]

    return {
        "timestamp": end,
        "window": {"duration": "5m", "start": end - 300, "end": end},
        "source": "Fake",
        "data": {name: {"metrics": series(value), "tags": {}, "metadata": {}} for name, value in loads.items()},
    }


def extender_args(*names: str, pod: str = "pod-1", scheduler: str = "load-aware", cpu: str = "100m") -> dict[str, Any]:
    """Return ExtenderArgs as kube-scheduler sends them to an extender."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]
    whole = {
        "metadata": {"name": pod, "namespace": "default", "uid": f"uid-of-{pod}"},
        "spec": {"schedulerName": scheduler, "containers": containers},
    }
    return {"Pod": whole, "Nodes": None, "NodeNames": list(names)}
