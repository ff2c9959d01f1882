"""The real descheduler moves pods off hot nodes, with the watcher in place of a Prometheus server."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.cluster import ControlPlane
from control_plane.descheduler import descheduler_command, documented_policy, queries
from control_plane.manifests import container, node, pod
from support.servers import Service, start_prometheus, wait_until

from watcher.api.prometheus_api import LOAD, RESOURCE_LOAD

pytestmark = pytest.mark.e2e

HOT_PERCENT = 80
# Whole points around the limit, and fractions: the descheduler rounds down.
LOADS = {"cool-1": 10.0, "cool-2": 49.9, "warm-1": 60.0, "warm-2": 79.0, "warm-3": 79.99, "hot-1": 80.0, "hot-2": 99.9}
PODS_A_NODE = 3


def owned(name: str, node_name: str) -> dict[str, Any]:
    """Return a pod of a ReplicaSet on a node, which the descheduler may evict."""
    plain = pod(name, container(requests={"cpu": "100m"}), nodeName=node_name)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    return {**plain, "metadata": {**plain["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize("through", ["the watcher itself", "a Prometheus that scrapes it", "one query a resource"])
def test_the_descheduler_evicts_only_from_hot_nodes(
    tmp_path: Path, watch: Callable[..., Service], through: str
) -> None:
    """With the documented policies pods are evicted from each hot node and from no other node."""
    file = tmp_path / "loads.json"
    loads = {name: {"cpu": {"average": load}, "memory": {"average": 5}} for name, load in LOADS.items()}
    if through == "one query a resource":
        loads["hot-2"] = {"cpu": {"average": 5}, "memory": {"average": LOADS["hot-2"]}}
    file.write_text(json.dumps(loads))
    service = watch("--provider", "Fake", "--interval", "1", TRIMARAN_FAKE__FILE=str(file))
    service.wait_for("/readyz")
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(name, "16", "64Gi") for name in LOADS))
        cluster.api.create(*(owned(f"{name}-{n}", name) for name in LOADS for n in range(PODS_A_NODE)))
        running = {"status": {"phase": "Running"}}
        for name in LOADS:
            for n in range(PODS_A_NODE):
                cluster.api.patch(f"/api/v1/namespaces/default/pods/{name}-{n}/status", running)
        if through == "the watcher itself":
            deschedule(cluster, service.url)
        elif through == "one query a resource":
            deschedule(cluster, service.url, "descheduler.md")
        else:
            scrape = {"job_name": "nodes", "honor_labels": True, "scrape_interval": "1s",
                      "metrics_path": "/metrics/nodes",
                      "static_configs": [{"targets": [service.url.removeprefix("http://")]}]}  # fmt: skip
            with start_prometheus(tmp_path, yaml.safe_dump({"scrape_configs": [scrape]})) as prometheus:
                wait_until(lambda: len(query(prometheus)) == len(LOADS), "it is scraped")
                assert query(prometheus) == query(service.url)
                deschedule(cluster, prometheus)
        pods = cluster.api.items("/api/v1/pods")  # evicted pods remain, as there is no kubelet
        left = Counter(each["spec"]["nodeName"] for each in pods if "deletionTimestamp" not in each["metadata"])
    assert {name for name in LOADS if left[name] < PODS_A_NODE} == {
        name for name, load in LOADS.items() if load >= HOT_PERCENT
    }


def query(address: str) -> dict[str, float]:
    """Return the result of the descheduler's query, by node."""
    result = requests.get(f"{address}/api/v1/query", {"query": LOAD}, timeout=60).json()["data"]["result"]
    return {each["metric"]["instance"]: float(each["value"][1]) for each in result}


def deschedule(cluster: ControlPlane, address: str, page: str = "nodes.md") -> None:
    """Run the descheduler once, with the policy of a page."""
    policy = documented_policy(address, page)
    expected = [LOAD] if page == "nodes.md" else [f'{RESOURCE_LOAD}{{resource="{each}"}}' for each in ("cpu", "memory")]
    assert queries(policy) == expected
    for profile in policy["profiles"]:
        (arguments,) = (each["args"] for each in profile["pluginConfig"])
        assert arguments["targetThresholds"] == {"MetricResource": HOT_PERCENT - 1}
    command, environment = descheduler_command(cluster, policy, "0")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    (cluster.folder / "descheduler.log").write_text(done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
