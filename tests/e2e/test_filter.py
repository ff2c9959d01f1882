"""The filter with a real kube-scheduler: no pod exceeds a node's limit, waits too long, or preempts in vain."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from control_plane.cluster import ControlPlane
from control_plane.extender import LOAD_AWARE, Extender
from control_plane.manifests import container, node, pod
from control_plane.scheduler import Scheduler
from support.servers import Service, wait_until

from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config

pytestmark = pytest.mark.e2e

NODES, CORES, LIMIT = 10, 16, 85.0
WAIT_SECONDS = 12
SETTINGS = {
    "extender__deadline_seconds": 5, "extender__refresh_seconds": 0.5, "extender__filter_cpu_percent": LIMIT,
    "extender__filter_max_wait_seconds": WAIT_SECONDS,
}  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of identical nodes."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(f"node-{number}", str(CORES), "64Gi") for number in range(NODES)))
        yield cluster


@pytest.fixture
def load(tmp_path: Path) -> Callable[[Mapping[str, float]], Path]:
    """A function that sets the CPU load of the nodes and returns the file with the loads."""

    def write(percents: Mapping[str, float]) -> Path:
        file = tmp_path / "loads.json"
        new = file.with_suffix(".new")
        new.write_text(
            json.dumps({name: {"cpu": {"average": v}, "memory": {"average": 5}} for name, v in percents.items()})
        )
        new.replace(file)
        return file

    return write


def watching(watch: Callable[..., Service], file: Path) -> str:
    service = watch("--provider", "Fake", "--interval", "1", TRIMARAN_FAKE__FILE=str(file))
    service.wait_for("/readyz")
    return service.url


def scheduling(cluster: ControlPlane, extender: Extender) -> Scheduler:
    """Return a stock kube-scheduler with the rendered configuration."""
    configuration = render_config(LOAD_AWARE, ExtenderEndpoint(extender.url, filters=True))
    assert configuration["percentageOfNodesToScore"] == 100
    return Scheduler(cluster, configuration["profiles"], extenders=configuration["extenders"], verbosity=4)


def load_aware_pod(name: str, cpu: str = "400m", **spec: Any) -> dict[str, Any]:
    return pod(name, container(requests={"cpu": cpu, "memory": "64Mi"}), schedulerName="load-aware", **spec)


def wait_for_bound_pods(cluster: ControlPlane, count: int, seconds: float = 60) -> Counter[str]:
    """Wait until the cluster has exactly so many pods, all of them bound; return the number of pods per node."""

    def all_bound() -> Counter[str] | None:
        names = [each["spec"].get("nodeName") for each in cluster.api.items("/api/v1/pods")]
        return Counter(names) if len(names) == count and all(names) else None

    counts: Counter[str] = wait_until(all_bound, f"{count} pods are bound", seconds)
    return counts


def test_pods_avoid_nodes_over_their_limit_unless_all_nodes_are_over(
    cluster: ControlPlane,
    watch: Callable[..., Service],
    load: Callable[..., Path],
    record_property: Callable[[str, object], None],
) -> None:
    """In a burst no node's expected load exceeds the limit; if all nodes are over it, pods are still placed."""
    loads = {f"node-{n}": 80.0 if n < 5 else 95.0 if n < 8 else 20.0 for n in range(NODES)}
    watcher = watching(watch, load(loads))
    with Extender(cluster, LOAD_AWARE, watcher, extender__filter="open", **SETTINGS) as extender:
        with scheduling(cluster, extender):
            cluster.api.create(*(load_aware_pod(f"pod-{number}") for number in range(40)))
            counts_by_node = wait_for_bound_pods(cluster, 40)
            expected = {name: loads[name] + 100 * 0.4 * count / CORES for name, count in counts_by_node.items()}
            assert max(expected.values()) <= LIMIT
            assert set(counts_by_node).isdisjoint({"node-5", "node-6", "node-7"})
            load(dict.fromkeys(loads, 95.0))
            wait_until(lambda: extender_sees_hot(extender, cluster), "all nodes are hot")
            before = len(cluster.api.items("/api/v1/pods"))
            cluster.api.create(*(load_aware_pod(f"more-{number}") for number in range(20)))
            wait_for_bound_pods(cluster, before + 20)
        counts = extender.metrics()
    narrowed, all_over = (
        counts[f'trimaran_extender_filtered_total{{outcome="{name}"}}'] for name in ("narrowed", "all_over")
    )
    record_property(
        "figures",
        f"filter: 40 pods, the fullest node at {max(expected.values()):.1f} % expected, limit {LIMIT:g} %; "
        f"{narrowed:.0f} narrowed, {all_over:.0f} with all nodes over let pass",
    )
    assert narrowed >= 40
    assert all_over >= 20


def extender_sees_hot(extender: Extender, cluster: ControlPlane) -> bool:
    """Place another pod; return whether all nodes were over their limit for it."""
    name = f"probe-{time.monotonic_ns()}"
    cluster.api.create(load_aware_pod(name))
    wait_for_bound_pods(cluster, len(cluster.api.items("/api/v1/pods")))
    return bool(extender.metrics()['trimaran_extender_filtered_total{outcome="all_over"}'])


def cheap_pods(cluster: ControlPlane) -> int:
    """Return the number of cheap pods that are not being deleted."""
    pods = [each["metadata"] for each in cluster.api.items("/api/v1/pods")]
    return sum(each["name"].startswith("cheap-") and "deletionTimestamp" not in each for each in pods)


def test_a_rejected_pod_waits_for_a_cool_node_or_its_time_limit_without_preemption(
    cluster: ControlPlane,
    watch: Callable[..., Service],
    load: Callable[..., Path],
    record_property: Callable[[str, object], None],
) -> None:
    """A fail-closed filter retries a pod when a node cools, else places it in time, and preempts no pod."""
    hot = {f"node-{n}": 95.0 for n in range(NODES)}
    watcher = watching(watch, load(hot))
    # Full by requests, so that preemption would free requests; hot by other load, so that preemption would not help.
    solid = [load_aware_pod(f"solid-{n}", "15", priority=2000, nodeName=f"node-{n}") for n in range(NODES)]
    no_grace = {"terminationGracePeriodSeconds": 0}
    cheap = [load_aware_pod(f"cheap-{n}", "1", priority=1, nodeName=f"node-{n}", **no_grace) for n in range(NODES)]
    cluster.api.create(*solid, *cheap)
    with Extender(cluster, LOAD_AWARE, watcher, extender__filter="closed", **SETTINGS) as extender:
        with scheduling(cluster, extender):
            cluster.api.create(load_aware_pod("dear", priority=1000))
            wait_until(
                lambda: extender.metrics()["trimaran_extender_waiting"], "the pod is rejected and preemption refused"
            )
            time.sleep(3)
            assert cheap_pods(cluster) == NODES
            cluster.api.delete("/api/v1/namespaces/default/pods/dear")
            for n in range(NODES):
                cluster.api.delete(f"/api/v1/namespaces/default/pods/cheap-{n}")
            wait_until(lambda: not cheap_pods(cluster), "the cheap pods are deleted")
            began = time.monotonic()
            cluster.api.create(load_aware_pod("first", priority=1000))
            wait_for_bound_pods(cluster, NODES + 1)
            waited = time.monotonic() - began
            assert WAIT_SECONDS <= waited <= WAIT_SECONDS + 15
            cluster.api.create(load_aware_pod("second", priority=1000))
            wait_until(lambda: extender.metrics()["trimaran_extender_waiting"], "the pod is rejected")
            load({**hot, "node-4": 10.0})
            began = time.monotonic()
            wait_for_bound_pods(cluster, NODES + 2)
            requeued = time.monotonic() - began
            second = cluster.api.get("/api/v1/namespaces/default/pods/second")
            assert second["spec"]["nodeName"] == "node-4"
    record_property(
        "figures",
        f"filter, fail-closed: placed after {waited:.1f} s of {WAIT_SECONDS}; requeued after {requeued:.1f} s",
    )
