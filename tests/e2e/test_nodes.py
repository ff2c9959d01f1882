"""Soft taints on hot nodes with a stock kube-scheduler, written with the minimal rights of the manifests."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from control_plane.api import Api
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, pod
from control_plane.node_writer import HOT, NODES, Writer, create_account_and_nodes, tainted, watching
from control_plane.rights import was_forbidden
from control_plane.scheduler import Scheduler
from support.servers import Service, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with the service account of the shipped manifests."""
    with ControlPlane(tmp_path) as cluster:
        create_account_and_nodes(cluster)
        yield cluster


def test_a_stock_scheduler_avoids_hot_nodes(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path
) -> None:
    """One of two writers taints hot nodes; pods avoid these nodes unless all nodes are hot."""
    token = cluster.service_account("trimaran", "trimaran-nodes").token
    with watching(watch, tmp_path) as (watcher, load):
        writers = [Writer(cluster, watcher, token, {"max_hot_fraction": 1}).wait() for _ in range(2)]
        try:
            wait_until(lambda: tainted(cluster) == set(HOT), "the hot nodes are tainted")
            wait_until(lambda: sum(each.metric("trimaran_nodes_writes_here") for each in writers) == 1, "one writes")
            writing = [each for each in writers if each.metric("trimaran_nodes_writes_here")]
            (idle,) = (each for each in writers if each not in writing)
            taint_writes = 'trimaran_nodes_writes_total{of="taints"}'
            assert (writing[0].metric(taint_writes), idle.metric(taint_writes)) == (2, 0)
            annotations = cluster.api.get(f"/api/v1/nodes/{HOT[0]}")["metadata"]["annotations"]
            assert annotations["load.trimaran.io/15m"].startswith("cpu=95,memory=95,at=20")
            with Scheduler(cluster, [{"schedulerName": "default-scheduler"}], verbosity=2):
                cluster.api.create(*(pod(f"pod-{n}", container(requests={"cpu": "100m"})) for n in range(40)))
                placed = wait_until(lambda: all_bound(cluster, 40), "all pods are placed")
                assert set(HOT).isdisjoint(placed)
                load({f"node-{number}": 95.0 for number in range(NODES)})
                wait_until(lambda: len(tainted(cluster)) == NODES, "all nodes are tainted")
                cluster.api.create(*(pod(f"more-{n}", container(requests={"cpu": "100m"})) for n in range(40)))
                wait_until(lambda: all_bound(cluster, 80), "pods are still placed")
            writing[0].process.terminate()
            wait_until(lambda: idle.metric("trimaran_nodes_writes_here"), "the other writer takes over")
            load({f"node-{number}": 10.0 for number in range(NODES)})
            wait_until(lambda: not tainted(cluster), "the nodes have cooled")
            assert idle.metric('trimaran_nodes_writes_total{of="failures"}') == 0
            assert not any(map(refusals, writers))  # each right is needed: see the last test
        finally:
            for each in writers:
                each.process.terminate()


def all_bound(cluster: ControlPlane, count: int) -> list[str]:
    names = [each["spec"].get("nodeName") for each in cluster.api.items("/api/v1/pods")]
    return names if len(names) == count and all(names) else []


def an_event(namespace: str) -> dict[str, Any]:
    subject = {"kind": "Namespace", "name": namespace, "namespace": namespace}
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "an-event", "namespace": namespace},
        "involvedObject": subject,
    }  # fmt: skip


def forbidden_requests(account: Api) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield requests that the account must not be able to make."""
    yield "delete a node", lambda: account.delete("/api/v1/nodes/node-1")
    yield "read pods", lambda: account.items("/api/v1/pods")
    yield "read secrets", lambda: account.items("/api/v1/namespaces/trimaran/secrets")
    yield "change a node's status", lambda: account.patch("/api/v1/nodes/node-1/status", {"status": {}})
    yield "read Events", lambda: account.items("/api/v1/namespaces/default/events")
    yield "create an Event elsewhere", lambda: account.create(an_event("trimaran"))
    leases = "/apis/coordination.k8s.io/v1/namespaces"
    yield "list Leases", lambda: account.items(f"{leases}/trimaran/leases")
    yield "read another Lease", lambda: account.get(f"{leases}/trimaran/leases/others")
    yield "read a Lease elsewhere", lambda: account.get(f"{leases}/kube-system/leases/trimaran-nodes")
    yield "delete the Lease", lambda: account.delete(f"{leases}/trimaran/leases/trimaran-nodes")


def test_the_account_has_only_the_needed_rights(cluster: ControlPlane) -> None:
    """Requests beyond the writer's needs are refused; the test above covers the needed rights."""
    account = cluster.service_account("trimaran", "trimaran-nodes")
    for action, send in forbidden_requests(account):
        with pytest.raises(requests.HTTPError) as refusal:
            send()
        assert refusal.value.response.status_code == 403, action


def test_each_right_is_needed(cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path) -> None:
    """Without any single verb of its roles the writer gets status 403."""
    roles = {
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles/trimaran-nodes",
        "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/trimaran/roles/trimaran-nodes",
        "Role of Events": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/trimaran-nodes",
    }
    original = {kind: cluster.api.get(path)["rules"] for kind, path in roles.items()}
    token = cluster.service_account("trimaran", "trimaran-nodes").token
    lease = "/apis/coordination.k8s.io/v1/namespaces/trimaran/leases/trimaran-nodes"
    with watching(watch, tmp_path) as (watcher, _):
        for kind, path in roles.items():
            for number, rule in enumerate(original[kind]):
                for verb in rule["verbs"]:
                    rules = [dict(each) for each in original[kind]]
                    rules[number]["verbs"] = [each for each in rule["verbs"] if each != verb] or ["none"]
                    cluster.api.patch(path, {"rules": rules})
                    writer = Writer(cluster, watcher, token)
                    wait_until(
                        lambda writer=writer: refusals(writer), f"without {verb} of {rule['resources']} it fails"
                    )
                    writer.process.kill()
                    cluster.api.patch(path, {"rules": original[kind]})
                    clean(cluster, lease)


def refusals(writer: Writer) -> bool:
    return was_forbidden(writer.process.log.read_text())


def clean(cluster: ControlPlane, lease: str) -> None:
    """Remove the objects of a writer, so that the next writer needs all of its rights."""
    with suppress(requests.HTTPError):  # without the right to create the Lease there is none
        cluster.api.delete(lease)
    for name in tainted(cluster):
        cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}, "metadata": {"annotations": None}})
