"""The filter on a real kube-scheduler: no pod on a node that is over its limit, none waits too long, none is killed."""

import json
import sys
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
    """A cluster of nodes that are all alike."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(f"node-{number}", str(CORES), "64Gi") for number in range(NODES)))
        yield cluster


@pytest.fixture
def load(tmp_path: Path) -> Callable[[Mapping[str, float]], Path]:
    """Sets what the nodes use of their CPU; returns the file."""

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
    """A stock kube-scheduler with the file that the product writes."""
    made = render_config(LOAD_AWARE, ExtenderEndpoint(extender.url, filters=True))
    assert made["percentageOfNodesToScore"] == 100
    return Scheduler(cluster, made["profiles"], extenders=made["extenders"], verbosity=4)


def wanted(name: str, cpu: str = "400m", **spec: Any) -> dict[str, Any]:
    return pod(name, container(requests={"cpu": cpu, "memory": "64Mi"}), schedulerName="load-aware", **spec)


def placed(cluster: ControlPlane, count: int, seconds: float = 60) -> Counter[str]:
    """Wait until so many pods are bound; return how many are on which node."""

    def all_bound() -> Counter[str] | None:
        names = [each["spec"].get("nodeName") for each in cluster.api.items("/api/v1/pods")]
        return Counter(names) if len(names) == count and all(names) else None

    found: Counter[str] = wait_until(all_bound, f"{count} pods are bound", seconds)
    return found


def test_no_pod_lands_on_a_node_over_its_limit_and_a_hot_cluster_schedules(
    cluster: ControlPlane, watch: Callable[..., Service], load: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """By expected use, pods in flight among it, in one burst; with all nodes over it all pods are placed too."""
    loads = {f"node-{n}": 80.0 if n < 5 else 95.0 if n < 8 else 20.0 for n in range(NODES)}
    watcher = watching(watch, load(loads))
    with Extender(cluster, LOAD_AWARE, watcher, extender__filter="open", **SETTINGS) as extender:
        with scheduling(cluster, extender):
            cluster.api.create(*(wanted(f"pod-{number}") for number in range(40)))
            got = placed(cluster, 40)
            expected = {name: loads[name] + 100 * 0.4 * count / CORES for name, count in got.items()}
            assert max(expected.values()) <= LIMIT
            assert set(got).isdisjoint({"node-5", "node-6", "node-7"})
            load(dict.fromkeys(loads, 95.0))
            wait_until(lambda: extender_sees_hot(extender, cluster), "all nodes are hot", 40)
            before = len(cluster.api.items("/api/v1/pods"))
            cluster.api.create(*(wanted(f"more-{number}") for number in range(20)))
            placed(cluster, before + 20)
        counts = extender.metrics()
    narrowed, all_over = (
        counts[f'trimaran_extender_filtered_total{{outcome="{name}"}}'] for name in ("narrowed", "all_over")
    )
    with capsys.disabled():
        sys.stdout.write(
            f"\nfilter: 40 pods, the fullest node at {max(expected.values()):.1f} % expected, limit {LIMIT:g} %; "
            f"{narrowed:.0f} narrowed, {all_over:.0f} with all nodes over let pass\n"
        )
    assert narrowed >= 40
    assert all_over >= 20


def extender_sees_hot(extender: Extender, cluster: ControlPlane) -> bool:
    """Place one pod more; return whether all nodes were over their limit for it."""
    name = f"probe-{time.monotonic_ns()}"
    cluster.api.create(wanted(name))
    placed(cluster, len(cluster.api.items("/api/v1/pods")))
    return bool(extender.metrics()['trimaran_extender_filtered_total{outcome="all_over"}'])


def left(cluster: ControlPlane) -> int:
    """Return how many of the cheap pods are there, and not about to go."""
    pods = [each["metadata"] for each in cluster.api.items("/api/v1/pods")]
    return sum(each["name"].startswith("cheap-") and "deletionTimestamp" not in each for each in pods)


def test_a_pod_waits_for_a_node_to_cool_or_for_its_time_and_kills_nobody(
    cluster: ControlPlane, watch: Callable[..., Service], load: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Fail-closed: woken when a node cools, else placed within its time; preemption finds nothing that would help."""
    hot = {f"node-{n}": 95.0 for n in range(NODES)}
    watcher = watching(watch, load(hot))
    # Full by requests, so that preemption would make room; hot by what others use, so that it would be for nothing.
    full = [wanted(f"solid-{n}", "15", priority=2000, nodeName=f"node-{n}") for n in range(NODES)]
    gone = {"terminationGracePeriodSeconds": 0}
    cheap = [wanted(f"cheap-{n}", "1", priority=1, nodeName=f"node-{n}", **gone) for n in range(NODES)]
    cluster.api.create(*full, *cheap)
    with Extender(cluster, LOAD_AWARE, watcher, extender__filter="closed", **SETTINGS) as extender:
        with scheduling(cluster, extender):
            cluster.api.create(wanted("dear", priority=1000))
            wait_until(lambda: extender.metrics()["trimaran_extender_waiting"], "preemption was refused")
            time.sleep(3)
            assert left(cluster) == NODES
            cluster.api.delete("/api/v1/namespaces/default/pods/dear")
            for n in range(NODES):
                cluster.api.delete(f"/api/v1/namespaces/default/pods/cheap-{n}")
            wait_until(lambda: not left(cluster), "there is room")
            began = time.monotonic()
            cluster.api.create(wanted("first", priority=1000))
            placed(cluster, NODES + 1)
            waited = time.monotonic() - began
            assert WAIT_SECONDS <= waited <= WAIT_SECONDS + 15
            cluster.api.create(wanted("second", priority=1000))
            wait_until(lambda: extender.metrics()["trimaran_extender_waiting"], "it is rejected")
            load({**hot, "node-4": 10.0})
            began = time.monotonic()
            placed(cluster, NODES + 2)
            woken = time.monotonic() - began
            second = cluster.api.get("/api/v1/namespaces/default/pods/second")
            assert second["spec"]["nodeName"] == "node-4"
    with capsys.disabled():
        sys.stdout.write(
            f"\nfilter, fail-closed: passed after {waited:.1f} s of {WAIT_SECONDS}; woken after {woken:.1f} s\n"
        )
