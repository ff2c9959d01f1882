"""Evictions on a real control plane: workloads get their pods back, and disruption budgets hold."""

from pathlib import Path

import pytest
import requests
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.manifests import container, node
from control_plane.scheduler import Scheduler
from control_plane.usage import Kwok
from support.servers import wait_until

pytestmark = pytest.mark.e2e

PODS = "/api/v1/namespaces/default/pods"
BUDGET = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"
PROFILES = [{"schedulerName": "default-scheduler"}]
LABELS = {"app": "web"}


def deployment(replicas):
    """Return a Deployment whose pods have small requests."""
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container(requests={"cpu": "100m"})]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": spec}  # fmt: skip


def evict(cluster, name):
    """Request the eviction of a pod; return the response's status code."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    try:
        return cluster.api.request("POST", f"{PODS}/{name}/eviction", json=body).status_code
    except requests.HTTPError as error:
        return error.response.status_code


def test_an_evicted_pod_comes_back_within_its_budget(tmp_path: Path) -> None:
    """A Deployment replaces an evicted pod, and its disruption budget refuses a second eviction until it is ready."""
    with ControlPlane(tmp_path) as cluster:
        kwok = Kwok(cluster)
        cluster.api.create(*(kwok.for_kwok(node(f"node-{number}")) for number in range(2)))
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                  "metadata": {"name": "web", "namespace": "default"},
                  "spec": {"minAvailable": 3, "selector": {"matchLabels": LABELS}}}  # fmt: skip
        with (
            kwok,
            ControllerManager(cluster),
            Scheduler(cluster, PROFILES, verbosity=2),
        ):
            cluster.api.create(deployment(3), budget)

            def ready():
                pods = [pod for pod in cluster.api.items(PODS) if pod["metadata"].get("deletionTimestamp") is None]
                conditions = [pod["status"].get("conditions", []) for pod in pods]
                return [
                    pod["metadata"]["name"]
                    for pod, listed in zip(pods, conditions, strict=True)
                    if any((each["type"], each["status"]) == ("Ready", "True") for each in listed)
                ]

            def allowed():
                return cluster.api.get(BUDGET).get("status", {}).get("disruptionsAllowed")

            first = wait_until(lambda: len(ready()) == 3 and ready(), "three pods are ready")
            wait_until(lambda: allowed() == 0, "the budget is counted")
            assert evict(cluster, first[0]) == 429

            cluster.api.patch(
                "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web", {"spec": {"minAvailable": 2}}
            )
            wait_until(lambda: allowed() == 1, "the budget allows an eviction")
            assert evict(cluster, first[0]) == 201
            wait_until(lambda: len(ready()) == 3 and first[0] not in ready(), "the pod is replaced")
