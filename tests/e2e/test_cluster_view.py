"""The cluster view with a real API server: after each fault it soon equals a fresh list again."""

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
WATCH, SILENCE = 5, 2.0  # a watch's requested duration, the view's maximum age without events, and its tolerance
RIGHTS = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}


@pytest.fixture(scope="module", autouse=True)
def short_watches() -> Iterator[None]:
    """Watches of five instead of fifteen seconds, so that the effects of a fault come sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.kubernetes.reflector._WATCH_SECONDS", WATCH)
        patch.setattr("runtime.kubernetes.reflector._SILENCE_SECONDS", SILENCE)
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with a hundred nodes, pods on them, and a pending pod."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(*(node(f"node-{number}") for number in range(NODES)))
        cluster.api.create(*(bound_pod(f"pod-{number}", number) for number in range(PODS)), pod("waits"))
        yield cluster


@pytest.fixture(scope="module")
def token(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File with the token of an account that may only list and watch nodes and pods."""
    file = tmp_path_factory.mktemp("account") / "token"
    file.write_text(cluster.create_account("view", RIGHTS).token)
    return file


@pytest.fixture(scope="module")
def view(cluster: ControlPlane, token: Path) -> Iterator[ClusterView]:
    """A view that follows the cluster through all tests of this module."""
    access = ApiServerConfig(address=cluster.url, token_file=token, ca_file=cluster.certificates.certificate)
    with contextlib.closing(KubernetesApi(access)) as api, contextlib.closing(ClusterView(api).start()) as view:
        assert view.wait(SOON)
        yield view


def bound_pod(name: str, number: int, cpu: str = "10m") -> Object:
    """Return a pod on the node with this number."""
    return pod(name, container(requests={"cpu": cpu, "memory": "16Mi"}), nodeName=f"node-{number % NODES}")


def differences(view: ClusterView, api: Api) -> str:
    """Return the first difference between the view and a fresh list, or ""."""
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
        for column in (NodeTable.capacity, NodeTable.allocatable, NodeTable.requests, NodeTable.limits):
            if not np.array_equal(column(table, resource)[rows], column(fresh, resource)):
                return f"other {column.__name__} of {resource}"
    return ""


def wait_until_equal(view: ClusterView, api: Api) -> None:
    """Wait until the view equals a fresh list and is not older than a watch."""
    last = [""]

    def same() -> bool:
        last[0] = differences(view, api) or ("no recent watch event" if view.age_seconds > WATCH else "")
        return not last[0]

    try:
        wait_until(same, "the view equals a fresh list", SOON)
    except pytest.fail.Exception:
        pytest.fail(f"after {SOON:.0f} s the view has {last[0]}")


def test_the_view_follows_changes(cluster: ControlPlane, view: ClusterView) -> None:
    """The view follows new, bound, finished and deleted pods, and a resized, deleted and recreated node."""
    api = cluster.api
    wait_until_equal(view, api)
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-7"},
    }  # fmt: skip
    api.request("POST", "/api/v1/namespaces/default/pods/waits/binding", json=binding)
    api.create(*(bound_pod(f"more-{number}", number, "20m") for number in range(50)), pod("waits-too"))
    api.patch("/api/v1/namespaces/default/pods/more-1/status", {"status": {"phase": "Succeeded"}})
    for number in range(10, 20):
        api.delete(f"/api/v1/namespaces/default/pods/more-{number}")
    api.patch("/api/v1/nodes/node-3/status", {"status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}}})
    api.delete("/api/v1/nodes/node-5")
    wait_until_equal(view, api)
    api.create(node("node-5", "16", "64Gi"))
    wait_until_equal(view, api)
    with view.reading() as table:
        assert table.capacity("cpu")[table.row("node-5")] == 16_000
        assert len(table.pods("node-7")) == PODS // NODES + 2
    assert view.lists == 2, "the view had to relist"


def change_pods(api: Api, name: str) -> None:
    """Create and delete a pod and create another, so that a view can miss changes."""
    api.create(bound_pod(name, 42, "30m"))
    api.delete(f"/api/v1/namespaces/default/pods/{name}")
    api.create(bound_pod(f"{name}-stays", 43, "40m"))


def test_the_view_recovers_from_a_killed_api_server(cluster: ControlPlane, view: ClusterView) -> None:
    """After a restart of the API server on the same port the view follows changes again."""
    cluster.apiserver.restart()
    cluster.apiserver.wait_until(lambda: is_ready(cluster.api), "the API answers again")
    change_pods(cluster.api, "restarted")
    wait_until_equal(view, cluster.api)


def test_the_view_recovers_from_a_paused_api_server(cluster: ControlPlane, view: ClusterView) -> None:
    """After the API server was paused for longer than a watch the view follows changes again."""
    cluster.apiserver.pause()
    try:
        time.sleep(WATCH + SILENCE + 3)
    finally:
        cluster.apiserver.resume()
    change_pods(cluster.api, "paused")
    wait_until_equal(view, cluster.api)


def test_the_view_relists_after_compaction(cluster: ControlPlane, view: ClusterView, token: Path) -> None:
    """If etcd compacted a pod's deletion while no watch was possible, the view finds it by a relist."""
    api, good, lists = cluster.api, token.read_text(), view.lists
    token.write_text("nobody")
    cluster.apiserver.restart()  # ends the open watches, and clears the API server's watch cache
    cluster.apiserver.wait_until(lambda: is_ready(api), "the API answers again")
    try:
        api.delete("/api/v1/namespaces/default/pods/pod-1")
        revision = int(api.create(bound_pod("after-the-compaction", 44))[0]["metadata"]["resourceVersion"])
        compact(cluster, revision)
        cluster.apiserver.restart()
        cluster.apiserver.wait_until(lambda: is_ready(api), "the API answers again")
        assert differences(view, api)
    finally:
        token.write_text(good)
    wait_until_equal(view, api)
    assert view.lists > lists


def test_the_view_ages_while_its_token_is_refused(cluster: ControlPlane, view: ClusterView, token: Path) -> None:
    """While its token is refused the view keeps its contents and ages; with a valid token it follows again."""
    good = token.read_text()
    token.write_text("nobody")
    try:
        wait_until(lambda: view.age_seconds > 2 * WATCH + 5, "both watches ended and are refused", 90)
        change_pods(cluster.api, "refused")
        assert differences(view, cluster.api)
    finally:
        token.write_text(good)
    wait_until_equal(view, cluster.api)
    assert view.age_seconds < SOON


def test_the_view_reloads_an_expired_client_certificate(cluster: ControlPlane) -> None:
    """A view with an expired client certificate is refused, and follows again with a new certificate."""
    name = "system:kube-scheduler"  # RBAC grants its rights by default
    certificate = cluster.certificates.issue(name, 10)
    expires = time.monotonic() + 10
    access = ApiServerConfig(
        address=cluster.url, certificate=str(certificate), ca_file=cluster.certificates.certificate
    )
    with contextlib.closing(KubernetesApi(access)) as api, contextlib.closing(ClusterView(api).start()) as view:
        assert view.wait(SOON)
        wait_until_equal(view, cluster.api)
        time.sleep(max(0.0, expires - time.monotonic()))
        wait_until(lambda: view.age_seconds > WATCH + 5, "both watches ended and are refused")
        change_pods(cluster.api, "expired")
        assert differences(view, cluster.api)
        cluster.certificates.issue(name)
        wait_until_equal(view, cluster.api)


def test_the_view_refuses_an_expired_serving_certificate(cluster: ControlPlane, token: Path) -> None:
    """The view reads nothing from a server with an expired certificate, and follows again with a new one."""
    certificate = cluster.certificates.issue("relay")
    with Relay(cluster, certificate) as relay:
        access = ApiServerConfig(address=relay.url, token_file=token, ca_file=cluster.certificates.certificate)
        with contextlib.closing(KubernetesApi(access)) as api, contextlib.closing(ClusterView(api).start()) as view:
            assert view.wait(SOON)
            wait_until_equal(view, cluster.api)
            cluster.certificates.issue("relay", -1)
            relay.cut()  # open connections would outlive the certificate
            change_pods(cluster.api, "unverified")
            wait_until(lambda: view.age_seconds > WATCH + 5, "the view gets no events")
            assert differences(view, cluster.api)
            cluster.certificates.issue("relay")
            wait_until_equal(view, cluster.api)


def is_ready(api: Api) -> bool:
    """Return whether the API server is ready."""
    try:
        return api.request("GET", "/readyz").text == "ok"
    except OSError:  # base class of the exceptions of requests
        return False


def compact(cluster: ControlPlane, revision: int) -> None:
    """Compact etcd's history before a revision."""
    response = requests.post(f"{cluster.etcd_url}/v3/kv/compaction", json={"revision": revision}, timeout=60)
    response.raise_for_status()
