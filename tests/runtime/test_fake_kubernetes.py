"""The fake API server, checked with the official client and kubectl."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from support.fake_kubernetes import FakeKubernetes, node, node_metrics, pod, run_fake_kubernetes
from support.servers import need_server

AT = 1_700_000_000


@pytest.fixture
def fake(kubernetes_folder: Path) -> Iterator[FakeKubernetes]:
    """Run a fake API server with five nodes and a pod."""
    with run_fake_kubernetes(kubernetes_folder) as fake:
        for number in range(5):
            name = f"node-{number}"
            fake.nodes[name] = node(name, pool="odd" if number % 2 else "even")
            fake.metrics[name] = node_metrics(name, "1234567890n", "4194304Ki", AT)
        fake.pods["shop/web-1"] = pod("web-1", "node-1", "shop")
        yield fake


@pytest.fixture
def api(fake: FakeKubernetes) -> Iterator[client.ApiClient]:
    """Return the official client with the fake's kubeconfig."""
    with config.new_client_from_config(str(fake.kube_config()), persist_config=False) as api:
        yield api


def test_the_official_client_lists_in_pages(api: client.ApiClient) -> None:
    """A list with limit and continue returns all nodes, with a falling remainingItemCount."""
    core, found, position, remaining = client.CoreV1Api(api), [], None, []
    while True:
        page = core.list_node(limit=2, _continue=position)
        found += [item.metadata.name for item in page.items]
        position = page.metadata._continue
        remaining.append(page.metadata.remaining_item_count)
        if not position:
            break
    assert found == [f"node-{number}" for number in range(5)]
    assert remaining == [3, 1, None]


def test_the_official_client_reads_metrics_and_pods(api: client.ApiClient) -> None:
    """NodeMetrics, nodes, pods and label selectors work as in a cluster."""
    metrics = client.CustomObjectsApi(api).list_cluster_custom_object("metrics.k8s.io", "v1beta1", "nodes")
    assert metrics["items"][0]["usage"] == {"cpu": "1234567890n", "memory": "4194304Ki"}
    core = client.CoreV1Api(api)
    assert core.read_node("node-1").status.capacity["cpu"] == "4"
    assert [item.metadata.name for item in core.list_node(label_selector="pool=odd").items] == ["node-1", "node-3"]
    assert core.list_namespaced_pod("shop").items[0].spec.node_name == "node-1"
    assert not core.list_namespaced_pod("other").items


def test_the_official_client_watches(fake: FakeKubernetes, api: client.ApiClient) -> None:
    """A watch yields existing objects first, and then changes."""
    core = client.CoreV1Api(api)
    seen = []
    changes = threading.Timer(0.3, lambda: (fake.put("nodes", node("new")), fake.delete("nodes", node("new"))))
    changes.start()
    for event in watch.Watch().stream(core.list_node, timeout_seconds=10):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            break
    changes.join()
    assert seen[:5] == [("ADDED", f"node-{number}") for number in range(5)]
    assert seen[5:] == [("ADDED", "new"), ("DELETED", "new")]


def test_old_versions_and_continue_tokens_expire(fake: FakeKubernetes, api: client.ApiClient) -> None:
    """After a compaction, a watch from an old version and an old continue token get status 410."""
    fake.put("nodes", node("new"))
    fake.forget_history()
    core = client.CoreV1Api(api)
    with pytest.raises(ApiException) as caught:
        list(watch.Watch().stream(core.list_node, resource_version="1000", timeout_seconds=5))
    assert caught.value.status == 410
    fake.expired_continues = 1
    page = core.list_node(limit=2)
    with pytest.raises(ApiException) as caught:
        core.list_node(limit=2, _continue=page.metadata._continue)
    assert caught.value.status == 410


def test_rejections_are_status_objects(fake: FakeKubernetes, api: client.ApiClient) -> None:
    """401, 403 and 404 have reason and message as from the API server."""
    core = client.CoreV1Api(api)
    with pytest.raises(ApiException) as missing:
        core.read_node("none")
    assert (missing.value.status, '"reason": "NotFound"' in missing.value.body) == (404, True)
    fake.forbidden.add(("", "pods", "list"))
    with pytest.raises(ApiException) as forbidden:
        core.list_pod_for_all_namespaces()
    assert 'cannot list resource \\"pods\\" in API group \\"\\"' in forbidden.value.body
    fake.tokens.clear()
    with pytest.raises(ApiException) as unknown:
        core.list_node()
    assert unknown.value.status == 401


def test_the_official_client_works_in_a_pod(
    fake: FakeKubernetes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The lower-case bearer of the official in-cluster configuration is accepted."""
    account = fake.service_account(tmp_path)
    host, _, port = fake.url.removeprefix("https://").rpartition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    found = client.Configuration()
    config.incluster_config.InClusterConfigLoader(
        str(account / "token"), str(account / "ca.crt"), environ=environment
    ).load_and_set(found)
    with client.ApiClient(found) as api:
        assert len(client.CoreV1Api(api).list_node().items) == 5
    assert fake.requests[-1][2].startswith("bearer ")


@pytest.mark.server
@pytest.mark.parametrize("user", ["token", "certificate"])
def test_kubectl_works_as_with_a_cluster(fake: FakeKubernetes, tmp_path: Path, user: str) -> None:
    """``kubectl top`` and ``kubectl get`` print the fake's objects, and its errors as a cluster's."""
    binary = need_server("kubectl")
    file = fake.kube_config(user=fake.client_certificate() if user == "certificate" else None)

    def kubectl(*arguments: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        command = [binary, "--kubeconfig", str(file), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    top = [line.split() for line in kubectl("top", "nodes").splitlines()]
    assert top[1] == ["node-0", "1235m", "30%", "4096Mi", "25%"]
    assert len(top) == 6
    assert kubectl("get", "nodes", "--chunk-size=2", "--no-headers").split()[::2] == [f"node-{n}" for n in range(5)]
    assert "web-1" in kubectl("get", "pods", "--all-namespaces")
    fake.metrics_api = "missing"
    assert "Metrics API not available" in kubectl("top", "nodes")
    fake.metrics_api = "down"
    assert "ServiceUnavailable" in kubectl("top", "nodes")
    fake.forbidden.add(("", "nodes", "list"))
    assert "(Forbidden): nodes is forbidden" in kubectl("get", "nodes")
