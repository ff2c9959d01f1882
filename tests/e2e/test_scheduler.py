"""``trimaran scheduler`` on a real control plane with the rights of its manifest: bindings, statuses, leaders."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from control_plane.cluster import ControlPlane
from control_plane.rights import was_forbidden
from support.servers import wait_until
from support.standalone import (
    RunningScheduler,
    all_bound,
    overcommitted,
    pending,
    pods_of,
    scheduled_events,
    standalone_cluster,
)

pytestmark = pytest.mark.e2e

NODES, PODS = 100, 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of 100 simulated nodes with the scheduler's account."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), NODES) as cluster:
        yield cluster


def test_pods_are_bound_within_the_capacity(cluster: ControlPlane, record_property: Any) -> None:
    """500 pods are bound, none beyond a node's room; one that does not fit gets the condition and an Event."""
    scheduler = RunningScheduler(cluster)
    try:
        scheduler.process.wait_until(lambda: scheduler.leads, "it leads", 150)
        began = time.monotonic()
        cluster.api.create(*(pending(f"web-{number}") for number in range(PODS)), pending("large", "64"))
        scheduler.process.wait_until(lambda: all_bound(cluster, "web", PODS), "all pods are bound", 150)
        record_property("figures", f"{PODS} pods on {NODES} nodes in {time.monotonic() - began:.1f} s, with creation")
        assert overcommitted(cluster) == {}
        conditions = lambda: pods_of(cluster, "large")[0]["status"].get("conditions") or []  # noqa: E731
        scheduler.process.wait_until(conditions, "the pod has a condition")
        (condition,) = conditions()
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"].startswith(f"0/{NODES} nodes are available")
        failed = lambda: [  # noqa: E731
            each for each in cluster.api.items("/apis/events.k8s.io/v1/events")
            if each["reason"] == "FailedScheduling" and each["regarding"]["name"] == "large"
        ]  # fmt: skip
        scheduler.process.wait_until(failed, "there is an Event")
        scheduler.process.wait_until(
            lambda: sum(scheduled_events(cluster, "web").values()) == PODS, "each pod has one Event"
        )
        assert set(scheduled_events(cluster, "web").values()) == {1}
        assert not was_forbidden(scheduler.process.log.read_text())
    finally:
        scheduler.process.terminate()
        cluster.api.delete("/api/v1/namespaces/default/pods")


def test_nothing_is_bound_twice_or_lost_after_kills_and_pauses(cluster: ControlPlane) -> None:
    """Of two replicas the leader is killed, then the next one is stopped for longer than the Lease, under load."""
    replicas = [RunningScheduler(cluster), RunningScheduler(cluster)]
    started = list(replicas)
    try:
        leader = wait_until(lambda: next((each for each in replicas if each.leads), None), "a replica leads", 150)
        cluster.api.create(*(pending(f"kill-{number}") for number in range(200)))
        leader.process.kill()
        replicas.remove(leader)
        replicas.append(RunningScheduler(cluster))
        started.append(replicas[-1])
        wait_until(lambda: all_bound(cluster, "kill", 200), "the other replica binds the rest", 150)
        leader = wait_until(lambda: next((each for each in replicas if each.leads), None), "a replica leads", 150)
        cluster.api.create(*(pending(f"stop-{number}") for number in range(200)))
        leader.process.pause()
        wait_until(lambda: all_bound(cluster, "stop", 200), "the other replica binds the rest", 150)
        leader.process.resume()
        leader.process.wait_until(
            lambda: "exited with code 5" in leader.process.log.read_text(), "the old leader's worker ends"
        )
        assert "the Lease is lost" in leader.process.log.read_text()
        assert overcommitted(cluster) == {}
        for prefix in ("kill", "stop"):
            assert not scheduled_events(cluster, prefix) or max(scheduled_events(cluster, prefix).values()) == 1
    finally:
        for each in started:
            if each.process.status is None:
                each.process.resume()
            each.process.kill()
        cluster.api.delete("/api/v1/namespaces/default/pods")
