"""``trimaran rebalance`` on a real control plane, with the rights of the shipped manifest."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.moving import (
    APPS,
    COLD,
    HOT,
    MANIFESTS,
    PodUse,
    RebalancerProcess,
    hot_cluster,
    ledger,
    noted,
    ready,
)
from control_plane.relay import Relay
from support.servers import wait_until

from trimaran.rebalancer.moves import MoveState

pytestmark = pytest.mark.e2e

_LISTS = (
    "/api/v1/pods", "/api/v1/nodes", "/api/v1/configmaps", "/apis/apps/v1/deployments", "/api/v1/serviceaccounts",
    "/apis/policy/v1/poddisruptionbudgets", "/apis/coordination.k8s.io/v1/namespaces/trimaran/leases", "/api/v1/events",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with a hot node."""
    with hot_cluster(tmp_path_factory.mktemp("rebalancer")) as cluster:
        yield cluster


def versions(cluster: ControlPlane) -> dict[str, str]:
    """Return the resource version of every object, by list and name."""
    return {
        f"{path}/{each['metadata'].get('namespace')}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
        for path in _LISTS for each in cluster.api.items(path)
    }  # fmt: skip


def test_observe_writes_nothing(cluster: ControlPlane) -> None:
    """In mode observe moves are planned with their targets and loads, and no object of the cluster changes."""
    with PodUse(cluster) as watcher:
        before = versions(cluster)
        rebalancer = RebalancerProcess(cluster, watcher.url, "observe")
        try:
            found: dict[str, Any] = rebalancer.process.wait_until(
                lambda: (state := rebalancer.status()).get("planned") and state, "moves are planned"
            )
            first = found["planned"][0]
            assert (first["source"], first["target"] in COLD) == (HOT, True)
            assert round(first["source_load"]["before"][0]) == 94
            assert first["target_load"]["before"][0] < first["target_load"]["after"][0] < 70
            assert found["acts"] is False
            wait_until(lambda: rebalancer.status()["searches"] >= 3, "it searches again")
            assert rebalancer.lines("move planned")
            name = next(pod for pod in ready(cluster) if pod.startswith("app-a"))
            assert "its disruption budget allows no eviction now" in explain(rebalancer.url, name)
        finally:
            rebalancer.process.kill()
        assert versions(cluster) == before


def explain(url: str, pod: str) -> str:
    command = [sys.executable, "-m", "trimaran", "rebalance", "explain", f"default/{pod}", "--url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_kill_at_any_step_exceeds_no_cap_and_leaves_nothing(cluster: ControlPlane) -> None:
    """Killed after the note and after the eviction, it moves three pods in all at most.

    So many are allowed per hour. All ten pods are Ready in the end, those of app-a where they were, as its disruption
    budget allows no eviction, and no note stays on a pod. Every right of the manifests is used, and none is missing.
    """
    used: set[tuple[str, str]] = set()
    steps = [
        ("PATCH", "/pods/", True),
        ("POST", "/eviction", True),
    ]  # noted, but not evicted; evicted, but not recorded
    before = ready(cluster)
    deleted = watch_evictions(cluster)
    with PodUse(cluster) as watcher, Relay(cluster) as relay:
        for method, part, answered in steps:
            rebalancer = RebalancerProcess(cluster, watcher.url, "act", server=relay.url)
            killed = kill_at(relay, rebalancer, used, method, part, answered=answered)
            wait_until(killed.is_set, f"{method} {part} is reached")
            assert len(deleted()) <= 3
        relay.on_request = lambda method, path, *, answered: used.add(right(method, path))
        rebalancer = RebalancerProcess(cluster, watcher.url, "act", server=relay.url)
        try:
            rebalancer.process.wait_until(rebalancer.is_at_rest, "the moves are made", 120)
            wait_until(lambda: len(ready(cluster)) == 2 * len(APPS), "all pods are ready")
            wait_until(lambda: not noted(cluster), "no note is left")
            assert rebalancer.status()["brake"] is None
        finally:
            rebalancer.process.kill()
        assert not rebalancer.lines("no Events are written")
    assert used == granted()
    moved = deleted()
    assert 1 <= len(moved) <= 3
    assert {name: on for name, on in ready(cluster).items() if name.startswith("app-a")} == {
        name: on for name, on in before.items() if name.startswith("app-a")
    }
    made = [move for move in ledger(cluster) if move.is_made and move.state is not MoveState.PLANNED]
    assert {move.name for move in made} == moved
    assert {move.landed_on for move in made} <= set(COLD)


def right(method: str, path: str) -> tuple[str, str]:
    """Return the verb and the resource of a request, as RBAC names them."""
    path, _, query = path.partition("?")
    parts = path.split("/")[3 if path.startswith("/api/") else 4 :]
    parts = parts[2:] if parts[0] == "namespaces" else parts
    resource = f"{parts[0]}/{parts[2]}" if len(parts) > 2 else parts[0]
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method) or ("get" if len(parts) > 1 else "list")
    return ("watch" if "watch=1" in query else verb), resource


def granted() -> set[tuple[str, str]]:
    """Return the verbs and resources that the shipped roles allow."""
    roles = [each for file in MANIFESTS for each in yaml.safe_load_all(file.read_text()) if "rules" in each]
    rules = [rule for role in roles for rule in role["rules"]]
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


def test_the_account_has_no_further_rights(cluster: ControlPlane) -> None:
    """The account may not delete pods, change nodes or workloads, or read secrets and other ConfigMaps and Leases."""
    account = cluster.service_account("trimaran", "trimaran-rebalancer")
    name = next(iter(ready(cluster)))
    elsewhere = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}}
    attempts: list[Callable[[], Any]] = [
        lambda: account.delete(f"/api/v1/namespaces/default/pods/{name}"),
        lambda: account.patch(f"/api/v1/nodes/{HOT}", {"spec": {"unschedulable": True}}),
        lambda: account.patch("/apis/apps/v1/namespaces/default/deployments/app-a", {"spec": {"replicas": 0}}),
        lambda: account.items("/api/v1/namespaces/trimaran/secrets"),
        lambda: account.get("/api/v1/namespaces/trimaran/configmaps/kube-root-ca.crt"),
        lambda: account.get("/apis/coordination.k8s.io/v1/namespaces/trimaran/leases/others"),
        lambda: account.create(elsewhere),
    ]
    for attempt in attempts:
        with pytest.raises(requests.HTTPError) as refusal:
            attempt()
        assert refusal.value.response.status_code == 403


def kill_at(
    relay: Relay,
    rebalancer: RebalancerProcess,
    used: set[tuple[str, str]],
    method: str,
    part: str,
    *,
    answered: bool,
) -> threading.Event:
    """Kill a rebalancer at its next such request: before the API server gets it, or before the answer arrives."""
    killed = threading.Event()

    def on_request(sent: str, path: str, *, answered: bool, wanted: bool = answered) -> None:
        used.add(right(sent, path))
        if (sent, answered) == (method, wanted) and part in path and not killed.is_set():
            killed.set()
            rebalancer.process.kill()
            if not answered:
                raise OSError("the client is gone")

    relay.on_request = on_request
    return killed


def watch_evictions(cluster: ControlPlane) -> Any:
    """Return a function that returns the names of the pods of now that are gone."""
    before = set(ready(cluster))

    def gone() -> set[str]:
        return before - {pod["metadata"]["name"] for pod in cluster.api.items("/api/v1/namespaces/default/pods")
                         if "deletionTimestamp" not in pod["metadata"]}  # fmt: skip

    return gone
