"""Everything that a real API server accepts can be read: pods with odd leaves, sent as a dry run.

``TRIMARAN_ODD_PODS=5000`` sends more.
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
LARGEST = 2**63 - 1


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


def _probe(name: str, number: int, cpu: str) -> Object:
    return pod(name, container(requests={"cpu": cpu}), nodeSelector={"kubernetes.io/hostname": f"node-{number}"})


def test_a_node_with_an_odd_pod_has_as_much_room_as_for_kube_scheduler(tmp_path: Path) -> None:
    """Next to each odd pod of 3.5 cores a pod fits that requests the rest, and none that requests more."""
    requests_ = {"cpu": "3500m", "memory": "64Mi"}
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create(*(node(f"node-{number}", "4") for number in range(len(ODD))))
        for number, odd in enumerate(ODD.values()):
            made = pod(f"odd-{number}", container(requests=requests_), nodeName=f"node-{number}")
            made["spec"].update(odd)
            cluster.api.create(made)
        more, rest = ([_probe(f"{cpu}-{n}", n, cpu) for n in range(len(ODD))] for cpu in ("501m", "500m"))
        table = NodeTable.from_k8s(cluster.api.items("/api/v1/nodes"), cluster.api.items("/api/v1/pods"))
        for number in range(len(ODD)):
            assert table.feasible(Pod.from_k8s(rest[number])).tolist().index(True) == number
            assert not table.feasible(Pod.from_k8s(more[number])).any()
        with Scheduler(cluster, [{"schedulerName": "default-scheduler"}]):
            cluster.api.create(*more)
            cluster.api.create(*rest)

            def placed() -> set[str]:
                pods = cluster.api.items("/api/v1/pods")
                return {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")}

            wait_until(lambda: {each["metadata"]["name"] for each in rest} <= placed(), "kube-scheduler fills all", 60)
            assert not placed() & {each["metadata"]["name"] for each in more}
