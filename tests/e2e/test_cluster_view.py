"""The view of a real API server, whatever happens to that: it is what a fresh list says again soon after."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
from control_plane.api import Api, Object
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.relay import Relay
from support.servers import wait_until

from runtime.kubernetes.api import ApiServerConfig, KubernetesApi
from scoring import NodeTable
from trimaran.cluster.view import ClusterView

pytestmark = pytest.mark.e2e

NODES, PODS = 100, 300
SOON = 30.0
WATCH = 15.0  # how long the view asks a watch to last, so how old it grows where nothing happens
RIGHTS = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Return a hundred nodes, and pods on them and on none."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(*(node(f"node-{number}") for number in range(NODES)))
        cluster.api.create(*(bound(f"pod-{number}", number) for number in range(PODS)), pod("waits"))
        yield cluster


@pytest.fixture(scope="module")
def token(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with the token of an account that may list and watch nodes and pods and do nothing else."""
    file = tmp_path_factory.mktemp("account") / "token"
    file.write_text(cluster.account("view", RIGHTS).token)
    return file


@pytest.fixture(scope="module")
def view(cluster: ControlPlane, token: Path) -> Iterator[ClusterView]:
    """Return a view that follows the cluster through all of these tests."""
    access = ApiServerConfig(address=cluster.url, token_file=token, ca_file=cluster.certificates.certificate)
    with contextlib.closing(KubernetesApi(access)) as api, contextlib.closing(ClusterView(api).start()) as view:
        assert view.wait(SOON)
        yield view


def bound(name: str, number: int, cpu: str = "10m") -> Object:
    """Return a pod on the node of that number."""
    return pod(name, container(requests={"cpu": cpu, "memory": "16Mi"}), nodeName=f"node-{number % NODES}")


def differences(view: ClusterView, api: Api) -> str:
    """Say how the view is not what a fresh list says; "" when it is."""
    running = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    nodes, pods = api.items("/api/v1/nodes"), api.items("/api/v1/pods", **running)
    fresh = NodeTable.from_k8s(nodes, pods)
    with view.reading() as live:
        table = live.copy()
    if sorted(table.names) != sorted(fresh.names):
        return f"other nodes: {set(table.names) ^ set(fresh.names)}"
    if {each.uid for each in view.pending()} != {p["metadata"]["uid"] for p in pods if not p["spec"].get("nodeName")}:
        return "other pending pods"
    for name in fresh.names:
        if {each.uid for each in table.pods(name)} != {each.uid for each in fresh.pods(name)}:
            return f"other pods on {name}"
    rows = table.rows_of(fresh.names)
    for resource in fresh.resources:
        for of in (NodeTable.capacity, NodeTable.allocatable, NodeTable.requests, NodeTable.limits):
            if not np.array_equal(of(table, resource)[rows], of(fresh, resource)):
                return f"other {of.__name__} of {resource}"
    return ""


def same_again(view: ClusterView, api: Api) -> None:
    """Wait until the view is what a fresh list says, and follows both nodes and pods."""
    last = [""]

    def same() -> bool:
        last[0] = differences(view, api) or ("not been heard of" if view.age_seconds > WATCH else "")
        return not last[0]

    try:
        wait_until(same, "the view is that of a fresh list", SOON)
    except pytest.fail.Exception:
        pytest.fail(f"after {SOON:.0f} s the view has {last[0]}")


def test_follows_what_happens(cluster: ControlPlane, view: ClusterView) -> None:
    """Pods are made, bound, finished and deleted; a node grows, goes, and comes back under its name as another."""
    api = cluster.api
    same_again(view, api)
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-7"},
    }  # fmt: skip
    api.request("POST", "/api/v1/namespaces/default/pods/waits/binding", json=binding)
    api.create(*(bound(f"more-{number}", number, "20m") for number in range(50)), pod("waits-too"))
    api.patch("/api/v1/namespaces/default/pods/more-1/status", {"status": {"phase": "Succeeded"}})
    for number in range(10, 20):
        api.delete(f"/api/v1/namespaces/default/pods/more-{number}")
    api.patch("/api/v1/nodes/node-3/status", {"status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}}})
    api.delete("/api/v1/nodes/node-5")
    same_again(view, api)
    api.create(node("node-5", "16", "64Gi"))
    same_again(view, api)
    with view.reading() as table:
        assert table.capacity("cpu")[table.row("node-5")] == 16_000
        assert len(table.pods("node-7")) == PODS // NODES + 2
    assert view.lists == 2, "a watch was not enough"


def changed(api: Api, name: str) -> None:
    """Delete a pod and make another, so that there is something to miss."""
    api.create(bound(name, 42, "30m"))
    api.delete(f"/api/v1/namespaces/default/pods/{name}")
    api.create(bound(f"{name}-stays", 43, "40m"))


def test_an_api_server_that_is_killed(cluster: ControlPlane, view: ClusterView) -> None:
    """It comes back on the same port; what happens from then on is seen."""
    cluster.apiserver.restart()
    cluster.apiserver.wait_until(lambda: answers(cluster.api), "the API answers again", 60)
    changed(cluster.api, "restarted")
    same_again(view, cluster.api)


def test_an_api_server_that_stands_still(cluster: ControlPlane, view: ClusterView) -> None:
    """Twenty seconds without a byte; requests that waited are answered then."""
    cluster.apiserver.pause()
    try:
        time.sleep(20)
    finally:
        cluster.apiserver.resume()
    changed(cluster.api, "paused")
    same_again(view, cluster.api)


def test_a_version_that_was_compacted_away(cluster: ControlPlane, view: ClusterView, token: Path) -> None:
    """While no watch is possible, a pod is deleted and etcd forgets that: only a list tells."""
    api, good, lists = cluster.api, token.read_text(), view.lists
    token.write_text("nobody")
    cluster.apiserver.restart()  # ends the watches that are under way, and loses its memory of past events
    cluster.apiserver.wait_until(lambda: answers(api), "the API answers again", 60)
    try:
        api.delete("/api/v1/namespaces/default/pods/pod-1")
        revision = int(api.create(bound("after-the-compaction", 44))[0]["metadata"]["resourceVersion"])
        compact(cluster, revision)
        cluster.apiserver.restart()
        cluster.apiserver.wait_until(lambda: answers(api), "the API answers again", 60)
        assert differences(view, api)
    finally:
        token.write_text(good)
    same_again(view, api)
    assert view.lists > lists


def test_a_token_that_is_not_accepted(cluster: ControlPlane, view: ClusterView, token: Path) -> None:
    """The view stays as it was, and its age tells; with the right token it follows again."""
    good = token.read_text()
    token.write_text("nobody")
    try:
        wait_until(lambda: view.age_seconds > 2 * WATCH + 5, "what was under way ended, both are refused", 90)
        changed(cluster.api, "refused")
        assert differences(view, cluster.api)
    finally:
        token.write_text(good)
    same_again(view, cluster.api)
    assert view.age_seconds < SOON


def test_a_client_certificate_that_expires(cluster: ControlPlane) -> None:
    """A view that comes with a certificate is refused when that has expired, and follows again with a new one."""
    name = "system:kube-scheduler"  # whose rights are there by default
    own = cluster.certificates.issue(name, 20)
    expires = time.monotonic() + 20
    access = ApiServerConfig(address=cluster.url, certificate=str(own), ca_file=cluster.certificates.certificate)
    with contextlib.closing(KubernetesApi(access)) as api, contextlib.closing(ClusterView(api).start()) as view:
        assert view.wait(SOON)
        same_again(view, cluster.api)
        time.sleep(max(0.0, expires - time.monotonic()))
        wait_until(lambda: view.age_seconds > WATCH + 5, "the watches that were under way ended, and are refused", 60)
        changed(cluster.api, "expired")
        assert differences(view, cluster.api)
        cluster.certificates.issue(name)
        same_again(view, cluster.api)


def test_a_serving_certificate_that_expires(cluster: ControlPlane, token: Path) -> None:
    """The view asks no server that it cannot verify, and follows again when there is a new certificate."""
    own = cluster.certificates.issue("relay")
    with Relay(cluster, own) as relay:
        access = ApiServerConfig(address=relay.url, token_file=token, ca_file=cluster.certificates.certificate)
        with contextlib.closing(KubernetesApi(access)) as api, contextlib.closing(ClusterView(api).start()) as view:
            assert view.wait(SOON)
            same_again(view, cluster.api)
            cluster.certificates.issue("relay", -1)
            relay.cut()  # a connection that is there already may stay
            changed(cluster.api, "unverified")
            wait_until(lambda: view.age_seconds > WATCH + 5, "the view hears nothing", 60)
            assert differences(view, cluster.api)
            cluster.certificates.issue("relay")
            same_again(view, cluster.api)


def answers(api: Api) -> bool:
    """Return whether the API is there."""
    try:
        return api.request("GET", "/readyz").text == "ok"
    except OSError:  # as what requests raises is
        return False


def compact(cluster: ControlPlane, revision: int) -> None:
    """Have etcd forget what was before a revision."""
    answer = requests.post(f"{cluster.etcd_url}/v3/kv/compaction", json={"revision": revision}, timeout=10)
    answer.raise_for_status()
