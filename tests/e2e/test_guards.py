"""The admission policies of the manifests: what the accounts of the writers may change of nodes and pods."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane import builds
from control_plane.api import Api
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, pod
from control_plane.moving import MANIFESTS, PODS
from control_plane.node_writer import create_account_and_nodes
from control_plane.rights import grant_rights
from support.servers import wait_until

from trimaran.cluster.target_note import REMOVED, TargetNote
from trimaran.soft_taints.node_state import NodeState

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[2] / "deploy/helm/trimaran"
NODE, POD = "/api/v1/nodes/node-1", f"{PODS}/web"
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
HOT = {"key": "trimaran.io/hot", "value": "true", "effect": "PreferNoSchedule"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with the accounts, rights and policies of the nodes' writer and the rebalancer."""
    with ControlPlane(tmp_path) as cluster:
        create_account_and_nodes(cluster)
        grant_rights(cluster, *MANIFESTS)
        cluster.api.patch(NODE, {"spec": {"taints": [SPOT]}, "metadata": {"annotations": {"team": "a"}}})
        cluster.api.create(pod("web", container(requests={"cpu": "100m"}), nodeName="node-1"))
        yield cluster


def refusal(account: Api, path: str, change: dict[str, Any]) -> str:
    """Return why a policy would refuse a merge patch; "" if the patch would be accepted."""
    headers = {"Content-Type": "application/merge-patch+json"}
    try:
        account.request("PATCH", path, json=change, headers=headers, params={"dryRun": "All"})
    except requests.HTTPError as error:
        if error.response.status_code != 422:  # RBAC refuses with 403
            raise
        return str(error.response.json()["message"])
    return ""


def test_the_policies_leave_the_writers_only_what_they_write(cluster: ControlPlane) -> None:
    """The soft taints' account may write its taint and annotations, and the rebalancer's its notes; others go free."""
    writer = cluster.service_account("trimaran", "trimaran-nodes")
    mover = cluster.service_account("trimaran", "trimaran-rebalancer")
    taken = "of another key, or ours with another effect, or without one that was there"
    for taints in ([SPOT, {**HOT, "key": "other"}], [SPOT, {**HOT, "effect": "NoExecute"}], [HOT], []):
        wait_until(lambda taints=taints: "taint" in refusal(writer, NODE, {"spec": {"taints": taints}}), taken)
    for change, message in (
        ({"metadata": {"annotations": {"team": "b"}}}, "annotations"),
        ({"metadata": {"annotations": {"team": None}}}, "annotations"),
        ({"metadata": {"annotations": {"other.io/x": "1"}}}, "annotations"),
        ({"metadata": {"labels": {"team": "b"}}}, "nothing else"),
        ({"spec": {"unschedulable": True}}, "nothing else"),
    ):
        assert message in refusal(writer, NODE, change), change
    annotations = {"load.trimaran.io/15m": "cpu=95,memory=5"}
    for hot in (True, False):  # as the writer sends it, with both levels
        state = NodeState.from_k8s(cluster.api.get(NODE))
        ours = annotations if hot else dict.fromkeys(annotations)
        changed = writer.patch(NODE, state.patch({HOT["key"]: hot, "trimaran.io/warm": hot}, annotations=ours, now=1e9))
        assert [each["key"] for each in changed["spec"]["taints"]] == ["spot", "trimaran.io/hot", "trimaran.io/warm"][
            : 1 + 2 * hot
        ]

    foreign = {"metadata": {"annotations": {"team": "b"}}}
    wait_until(lambda: "annotations" in refusal(mover, POD, foreign), "an annotation of others")
    for change in ({"metadata": {"labels": {"app": "b"}}}, {"spec": {"activeDeadlineSeconds": 1}}):
        assert "only annotations" in refusal(mover, POD, change), change
    note = TargetNote("node-2", "node-1", 1e9)
    assert refusal(mover, POD, {"metadata": {"annotations": note.annotations()}}) == ""
    assert refusal(mover, POD, {"metadata": {"annotations": dict(REMOVED)}}) == ""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "default"}}
    with pytest.raises(requests.HTTPError, match="UID"):
        mover.request("POST", f"{POD}/eviction", json=eviction)
    uid = cluster.api.get(POD)["metadata"]["uid"]
    named = {**eviction, "deleteOptions": {"preconditions": {"uid": uid}}}
    assert mover.request("POST", f"{POD}/eviction", json=named).ok
    assert refusal(cluster.api, NODE, {"spec": {"taints": []}, "metadata": {"labels": {"team": "b"}}}) == ""


def test_only_the_rebalancer_sets_notes_of_planned_targets(cluster: ControlPlane) -> None:
    """Others may neither set nor change a note, at a pod's creation or through its status, but remove it."""
    mover, others = cluster.service_account("trimaran", "trimaran-rebalancer"), cluster.api
    note = {"metadata": {"annotations": TargetNote("node-2", "node-1", 1e9).annotations()}}
    wait_until(lambda: "only the rebalancer" in refusal(others, POD, note), "a note of others")
    assert "only the rebalancer" in refusal(others, f"{POD}/status", note)
    for name, text in note["metadata"]["annotations"].items():
        assert "only the rebalancer" in refusal(others, POD, {"metadata": {"annotations": {name: text}}}), name
    with pytest.raises(requests.HTTPError, match="rebalancer"):
        others.create(pod("forged", annotations=note["metadata"]["annotations"]))
    mover.patch(POD, note)
    changed = {"metadata": {"annotations": TargetNote("node-3", "node-1", 1e9).annotations()}}
    assert "only the rebalancer" in refusal(others, POD, changed)
    assert refusal(mover, POD, changed) == ""
    for change in ({"team": "b"}, {"rebalancer.trimaran.io/move": "false"}, dict(REMOVED)):
        assert refusal(others, POD, {"metadata": {"annotations": change}}) == "", change
        assert refusal(others, f"{POD}/status", {"metadata": {"annotations": change}}) == "", change
    others.create(pod("web-2", annotations={"rebalancer.trimaran.io/move": "false"}))


def test_the_policies_of_the_chart_are_those_of_the_manifests() -> None:
    """With the release ``trimaran`` both have the same rules for the rebalancer's account and for all others."""
    values = ("--set", "rebalancer.enabled=true,rebalancer.mode=act", "--show-only", "templates/guards.yaml")
    place = ("--kube-version", "1.37.0", "--namespace", "trimaran")
    command = [builds.binary("helm"), "template", "trimaran", CHART, *place, *values]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    def policies(text: str) -> dict[tuple[str, str], dict[str, Any]]:
        objects = [each for each in yaml.safe_load_all(text) if each and each["kind"].startswith("Validating")]
        return {(each["kind"], each["metadata"]["name"]): each["spec"] for each in objects}

    rendered = done.stdout.replace("trimaran-trimaran-", "trimaran-")  # names begin with the namespace
    assert policies(rendered) == policies((CHART.parents[1] / "kubernetes/rebalancer-act.yaml").read_text())
