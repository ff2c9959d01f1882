"""Everything that a real API server accepts can be read: pods with odd leaves, sent as a dry run."""

import random
from collections import Counter
from pathlib import Path

import pytest
import requests
from control_plane.cluster import ControlPlane
from support.odd_pods import ODD, Object, odd_pod

from runtime.kubernetes import pod_demand
from runtime.kubernetes.objects import Pod

pytestmark = pytest.mark.e2e
PODS = 300
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
