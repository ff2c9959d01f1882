"""Gangs of ``trimaran scheduler`` on a real control plane, by PodGroups of scheduler-plugins."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane.cluster import ControlPlane
from control_plane.plugin_oracle import define
from control_plane.rights import was_forbidden
from support.standalone import NAME, RunningScheduler, all_bound, pending, pods_of, standalone_cluster

pytestmark = pytest.mark.e2e

GROUP, GROUPS = "scheduling.x-k8s.io", "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"podgroups.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"},
    },
    "spec": {
        "group": GROUP,
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SCHEMA, "status": SCHEMA}}},
            }
        ],
    },
}  # fmt: skip
STATUS_RIGHT = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "gang-status"},
        "rules": [{"apiGroups": [GROUP], "resources": ["podgroups/status"], "verbs": ["patch"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "gang-status"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gang-status"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": "trimaran"}],
    },
]  # fmt: skip
PLUGINS = {
    "multiPoint": {"enabled": [{"name": "Coscheduling"}, {"name": "GangScheduling"}]},
    "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of two simulated nodes with the scheduler's account and the kind PodGroup."""
    with standalone_cluster(tmp_path, 2) as cluster:
        define(cluster.api, [KIND])  # a kind that is not served yet is looked for again after a minute
        cluster.api.create(*STATUS_RIGHT)
        yield cluster


def member(name: str, gang: str) -> dict[str, Any]:
    manifest = pending(name, "1")
    manifest["metadata"]["labels"] = {f"{GROUP}/pod-group": gang}
    return manifest


def condition(cluster: ControlPlane, name: str) -> dict[str, str]:
    (pod,) = pods_of(cluster, name)
    return next(iter(pod["status"].get("conditions") or [{}]))


def phases(cluster: ControlPlane) -> dict[str, str]:
    return {each["metadata"]["name"]: (each.get("status") or {}).get("phase", "") for each in cluster.api.items(GROUPS)}


def test_a_gang_is_bound_as_a_whole_and_its_status_is_written(cluster: ControlPlane, tmp_path: Path) -> None:
    """An incomplete gang is held; one without room is Unschedulable as a whole; a complete one is bound at once."""
    version = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump({**version, "profiles": [{"schedulerName": NAME, "plugins": PLUGINS}]}))
    options = ("--config", str(file), "--set", "scheduler.pod_group_status=true")
    scheduler = RunningScheduler(cluster, options=options)
    try:
        scheduler.process.wait_until(lambda: scheduler.leads, "it leads", 150)
        for name, least in (("small", 4), ("large", 9)):
            metadata = {"name": name, "namespace": "default"}
            group = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "PodGroup", "metadata": metadata}
            cluster.api.create({**group, "spec": {"minMember": least}})
        for number in range(3):  # one after the other: the status tells how many there were when a pod came
            cluster.api.create(member(f"small-{number}", "small"))
        held = "3 of 4 pods of gang default/small exist"
        scheduler.process.wait_until(
            lambda: condition(cluster, "small-2").get("message") == held, "a pod of the gang is held"
        )
        assert condition(cluster, "small-2")["reason"] == "Held"
        cluster.api.create(*(member(f"large-{number}", "large") for number in range(9)))
        scheduler.process.wait_until(
            lambda: {condition(cluster, f"large-{number}").get("reason") for number in range(9)} == {"Unschedulable"},
            "all pods of the large gang are unschedulable",
        )
        assert not any(each["spec"].get("nodeName") for each in pods_of(cluster, ""))
        cluster.api.create(member("small-3", "small"))
        scheduler.process.wait_until(lambda: all_bound(cluster, "small", 4), "the small gang is bound")
        scheduler.process.wait_until(
            lambda: phases(cluster) == {"small": "Running", "large": "Scheduling"}, "the statuses are written"
        )
        assert not was_forbidden(scheduler.process.log.read_text())
    finally:
        scheduler.process.terminate()
