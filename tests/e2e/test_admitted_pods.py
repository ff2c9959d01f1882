"""Everything that a real API server accepts can be read: pods with odd leaves, sent as a dry run.

``TRIMARAN_ODD_PODS=5000`` sends more; ``TRIMARAN_ODD_PROBES=500`` puts more of them on nodes.
"""

import os
import random
from collections import Counter
from pathlib import Path

import pytest
import requests
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.scheduler import Scheduler
from support.odd_pods import ODD, Object, odd_pod
from support.servers import wait_until

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod
from scoring import NodeTable

pytestmark = pytest.mark.e2e
PODS = int(os.environ.get("TRIMARAN_ODD_PODS", "300"))
PROBES = int(os.environ.get("TRIMARAN_ODD_PROBES", "30"))
LARGEST = 2**63 - 1
_SIZES = (
    {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "example.com/x": "4"},
    {"cpu": "9P", "memory": str(LARGEST), "ephemeral-storage": "9E", "example.com/x": "9P"},
)  # of the nodes in turn; next to the larger ones, huge requests leave room, too


def _admitted(cluster: ControlPlane, made: Object) -> Object | None:
    """Return a pod as the API server would store it; None if it refuses the pod."""
    try:
        answer: Object = cluster.api.request(
            "POST", "/api/v1/namespaces/default/pods", json=made, params={"dryRun": "All"}
        ).json()
    except requests.HTTPError as error:
        if error.response.status_code not in {400, 422}:
            raise
        return None
    return answer


def test_pods_that_the_api_server_accepts_can_be_read(tmp_path: Path, record_property) -> None:
    """Each accepted pod decodes, and each amount of it fits 64 bits; each of the known odd pods is accepted."""
    dice, counts = random.Random(53), Counter[str]()
    plain = {"containers": [{"name": "c", "image": "i"}]}
    with ControlPlane(tmp_path) as cluster:
        for name, odd in ODD.items():
            made = {"metadata": {"name": "p", "namespace": "default"}, "spec": {**plain, **odd}}
            assert _admitted(cluster, made) is not None, name
        for number in range(PODS):
            admitted = _admitted(cluster, odd_pod(dice, f"p{number}"))
            counts["refused" if admitted is None else "read"] += 1
            if admitted is not None:
                pod = Pod.from_k8s(admitted)
                assert all(0 <= amount <= LARGEST for _, amount in pod_demand.filter_requests(pod)), admitted
    record_property("figures", f"{counts['read']} of {PODS} odd pods accepted, all of them read")
    assert counts["read"] > PODS // 10


def _odd_pods(cluster: ControlPlane) -> list[Object]:
    """Return the known odd pods, of 3.5 cores each, and drawn ones that the API server accepts."""
    main = container(requests={"cpu": "3500m", "memory": "64Mi"})
    odd = [pod(f"odd-{number}", **{"containers": [main], **each}) for number, each in enumerate(ODD.values())]
    dice = random.Random(54)
    while len(odd) < len(ODD) + PROBES:
        drawn = odd_pod(dice, f"odd-{len(odd)}")
        if _admitted(cluster, drawn) is not None:
            odd.append(drawn)
    return odd


def _probe(node_name: str, resource: str, amount: int, kind: str) -> Object:
    """Return a pod that only this node may take and that requests an amount, which is millicores for CPU."""
    amounts = {resource: f"{amount}m" if resource == "cpu" else str(amount)}
    name = f"{kind}-{node_name}-{resource.rpartition('/')[2]}"
    main = container(requests=amounts, limits=amounts)
    where = {"kubernetes.io/hostname": node_name}
    return pod(name, main, nodeSelector=where, preemptionPolicy="Never")  # odd pods may have a negative priority


def test_a_node_with_an_odd_pod_has_as_much_room_as_for_kube_scheduler(tmp_path: Path, record_property) -> None:
    """Next to each odd pod, kube-scheduler places a pod that requests the rest, and none that requests one unit more.

    Where the requests of the odd pod exceed 64 bits, ours saturate and the node takes nothing; kube-scheduler's wrap.
    """
    with ControlPlane(tmp_path) as cluster:
        odd = _odd_pods(cluster)
        for number, each in enumerate(odd):
            size = _SIZES[0 if number < len(ODD) else number % len(_SIZES)]
            made = node(f"node-{number}", resources=size)
            made["status"]["allocatable"].update(size)
            each["spec"]["nodeName"] = f"node-{number}"
            cluster.api.create(made)
        cluster.api.create(*odd)
        table = NodeTable.from_k8s(cluster.api.items("/api/v1/nodes"), cluster.api.items("/api/v1/pods"))
        fits: list[Object] = []
        more: list[Object] = []
        saturated: set[str] = set()
        for row, name in enumerate(table.names):
            for resource in _SIZES[0]:
                taken = int(table.in_tree_requests(resource)[row])
                free = int(table.allocatable(resource)[row]) - taken
                if free > 0:
                    fits.append(_probe(name, resource, free, "fits"))
                if free < LARGEST:
                    more.append(_probe(name, resource, max(free, 0) + 1, "more"))
                if taken == LARGEST:
                    saturated.add(f"more-{name}-{resource.rpartition('/')[2]}")
        for each in fits:
            wanted = each["spec"]["nodeSelector"]["kubernetes.io/hostname"]
            feasible = table.feasible(Pod.from_k8s(each))
            assert [name for name, fit in zip(table.names, feasible, strict=True) if fit] == [wanted]
        assert not any(table.feasible(Pod.from_k8s(each)).any() for each in more)

        def tried(probes: list[Object]) -> dict[str, str] | None:
            """Return the node of each probe by its name, "" if it is refused; None if one has not been tried."""
            expected = {each["metadata"]["name"] for each in probes}
            pods = {each["metadata"]["name"]: each for each in cluster.api.items("/api/v1/pods")}
            waiting = [
                name for name in expected
                if not pods[name]["spec"].get("nodeName") and not pods[name]["status"].get("conditions")
            ]  # fmt: skip
            return None if waiting else {name: pods[name]["spec"].get("nodeName", "") for name in expected}

        def placed(probes: list[Object]) -> set[str]:
            cluster.api.create(*probes)
            nodes = wait_until(lambda: tried(probes), "kube-scheduler has tried all probes", 60 + PROBES)
            return {name for name, node_name in nodes.items() if node_name}

        with Scheduler(cluster, [{"schedulerName": "default-scheduler"}], verbosity=2):
            wrongly_placed = placed(more)  # first, while there is the most room
            refused = {each["metadata"]["name"] for each in fits} - placed(fits)
    record_property(
        "figures",
        f"{len(odd)} odd pods: {len(fits)} probes that fit, {len(more)} that do not; sums beyond 64 bits: "
        f"{len(saturated)}, of which kube-scheduler took {len(wrongly_placed & saturated)} for room",
    )
    assert not refused
    assert wrongly_placed <= saturated
