"""Quotas and gangs of ``trimaran scheduler`` while its leader is killed, on a real control plane.

``TRIMARAN_FAULT_PODS=1000 TRIMARAN_KILLS=3`` makes it harder.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.gang_scenarios import RESOURCES as GANGS
from control_plane.plugin_oracle import define
from control_plane.quota_scenarios import RESOURCES as QUOTAS
from control_plane.relay import Relay
from support.servers import wait_until
from support.standalone import (
    NAME,
    RunningScheduler,
    overcommitted,
    pending,
    pods_of,
    scheduled_events,
    standalone_cluster,
)

pytestmark = pytest.mark.e2e

NODES, PODS = 40, int(os.environ.get("TRIMARAN_FAULT_PODS", "400"))
LEAST, MOST = 40, 60  # cores of each namespace; a pod has half a core
KILLS = int(os.environ.get("TRIMARAN_KILLS", "1"))
PATIENCE = 300
PLUGINS = {
    "multiPoint": {"enabled": [{"name": "Coscheduling"}, {"name": "CapacityScheduling"}]},
    "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of simulated nodes with the scheduler's account, quotas and gangs."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), NODES) as cluster:
        define(cluster.api, (*QUOTAS, *GANGS))
        cluster.api.create(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in "ab"))
        yield cluster


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    """Options of the command with the plugins."""
    version = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump({**version, "profiles": [{"schedulerName": NAME, "plugins": PLUGINS}]}))
    return ("--config", str(file), "--set", "scheduler.preempt_shared=true")


@contextmanager
def killed_leaders(cluster: ControlPlane, options: tuple[str, ...]) -> Iterator[None]:
    """Run two replicas; kill the leader some times, soon after it has begun to bind, and replace it."""
    dice, replicas, done = random.Random(0), [RunningScheduler(cluster, options=options) for _ in range(2)], []

    def kill() -> None:
        for _ in range(KILLS):
            leader = wait_until(lambda: next((each for each in replicas if each.leads), None), "one leads", PATIENCE)
            time.sleep(dice.uniform(0.2, 1.5))
            leader.process.kill()
            replicas[replicas.index(leader)] = RunningScheduler(cluster, options=options)
        done.append(True)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        killer.join(PATIENCE)
        for each in replicas:
            each.process.kill()
    assert done


def bound(cluster: ControlPlane) -> Counter[str]:
    """Return the number of pods on nodes by namespace."""
    listed = cluster.api.items("/api/v1/pods")
    return Counter(each["metadata"]["namespace"] for each in listed if each["spec"].get("nodeName"))


@contextmanager
def sampled(cluster: ControlPlane) -> Iterator[list[Counter[str]]]:
    """Count the pods on nodes again and again while the block runs; yield the counts."""
    samples: list[Counter[str]] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.2):
            samples.append(bound(cluster))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join(PATIENCE)


class Bindings:
    """Bindings on their way to the API server: some never reach it, of others the answer is withheld.

    Attributes:
        lost: paths of those that do not reach it.
        unanswered: paths of those that are carried out.
        leader_is_dead: set once the sender was killed.
    """

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.unanswered: list[str] = []
        self.leader_is_dead = threading.Event()

    def hold(self, _method: str, path: str, *, answered: bool) -> None:
        """Hold Bindings back until the sender is dead: the first two before they are sent, others once answered."""
        if not path.endswith("/binding"):
            return
        if answered:
            self.unanswered.append(path)
        elif len(self.lost) < 2:
            self.lost.append(path)
        else:
            return
        self.leader_is_dead.wait(PATIENCE)
        raise requests.ConnectionError(path)


def elastic_quota(namespace: str, least: int, most: int) -> dict[str, Any]:
    bounds = {"min": {"cpu": str(least), "memory": "1Ti"}, "max": {"cpu": str(most)}}
    metadata = {"name": "quota", "namespace": namespace}
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": bounds}


def in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def test_no_quota_is_exceeded_by_many_pods_while_leaders_are_killed(
    cluster: ControlPlane, options: tuple[str, ...]
) -> None:
    """At no time more than max, nor all together more than the sum of min; in the end each has its guarantee."""
    cluster.api.create(*(elastic_quota(namespace, LEAST, MOST) for namespace in "ab"))
    settled = Counter({"a": 2 * LEAST, "b": 2 * LEAST})
    with sampled(cluster) as samples, killed_leaders(cluster, options):
        for namespace in "ab":  # first a alone borrows, then b comes and takes back
            names = (f"{namespace}-{number}" for number in range(PODS // 2))
            cluster.api.create(*(in_namespace(pending(each), namespace) for each in names))
        wait_until(lambda: samples and samples[-1] == settled, "each namespace has its min", PATIENCE)
    samples.append(bound(cluster))
    assert max(each["a"] for each in samples) > 2 * LEAST  # it had borrowed
    assert max(max(each["a"], each["b"]) for each in samples) <= 2 * MOST
    assert max(each["a"] + each["b"] for each in samples) <= 4 * LEAST
    assert samples[-1] == settled
    for namespace in "ab":
        cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods")
    wait_until(lambda: not bound(cluster), "the pods are deleted", PATIENCE)


def test_a_take_over_while_bindings_are_unanswered_keeps_the_quota(
    cluster: ControlPlane, options: tuple[str, ...]
) -> None:
    """The successor counts Bindings that were carried out, and not those that were lost; pods beyond max are held."""
    most, count, bindings = 5, 16, Bindings()
    cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c"}})
    cluster.api.create(elastic_quota("c", most, most))
    with Relay(cluster) as relay, sampled(cluster) as samples:
        relay.on_request = bindings.hold
        leader = RunningScheduler(cluster, relay.url, options)
        successor = None
        try:
            leader.process.wait_until(lambda: leader.leads, "it leads", PATIENCE)
            successor = RunningScheduler(cluster, options=options)
            cluster.api.create(*(in_namespace(pending(f"c-{number}"), "c") for number in range(count)))
            leader.process.wait_until(lambda: bindings.lost and bindings.unanswered, "Bindings are held back")
            leader.process.kill()
            bindings.leader_is_dead.set()
            successor.process.wait_until(lambda: bound(cluster)["c"] == 2 * most, "the quota is in use", PATIENCE)
            held = "elastic quota c/quota would exceed its max of cpu"
            successor.process.wait_until(
                lambda: len(conditions(cluster, "c", held)) == count - 2 * most, "the others are held"
            )
        finally:
            bindings.leader_is_dead.set()
            for each in (leader, successor):
                if each is not None:
                    each.process.kill()
    assert {each["reason"] for each in conditions(cluster, "c", held)} == {"Held"}
    assert max(each["c"] for each in samples) <= 2 * most
    carried_out = {path.split("/")[-2] for path in bindings.unanswered}
    assert carried_out <= {each["metadata"]["name"] for each in pods_of(cluster, "c-") if each["spec"].get("nodeName")}
    cluster.api.delete("/api/v1/namespaces/c/pods")


def conditions(cluster: ControlPlane, namespace: str, text: str) -> list[dict[str, Any]]:
    """Return the conditions of a namespace's pods whose message has a text."""
    return [
        condition
        for pod in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
        for condition in pod["status"].get("conditions") or ()
        if text in condition.get("message", "")
    ]


def test_gangs_come_whole_while_leaders_are_killed(cluster: ControlPlane, options: tuple[str, ...]) -> None:
    """Gangs that a leader has bound in part are completed by the next one; none is bound twice or in part."""
    gangs, size = 24, 5
    for number in range(gangs):
        metadata = {"name": f"gang-{number}", "namespace": "default"}
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata}
        cluster.api.create({**group, "spec": {"minMember": size}})
    with killed_leaders(cluster, options):
        manifests = [pending(f"member-{number}-{each}") for number in range(gangs) for each in range(size)]
        for manifest in manifests:
            gang = manifest["metadata"]["name"].split("-")[1]
            manifest["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": f"gang-{gang}"}
        cluster.api.create(*manifests)
        wait_until(lambda: bound(cluster)["default"] == gangs * size, "all gangs are bound", PATIENCE)
    events = scheduled_events(cluster, "member")
    assert not events or max(events.values()) == 1
    assert overcommitted(cluster) == {}
    assert len(pods_of(cluster, "member")) == gangs * size
