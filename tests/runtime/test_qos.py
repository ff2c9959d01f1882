"""Quality of service of pods, as Kubernetes computes it."""

from typing import Any

import pytest

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.qos import qos_class

BOTH = {"cpu": "1", "memory": "1Gi"}


def pod(*resources: dict[str, Any], **fields: Any) -> Pod:
    containers = [{"name": f"c{number}", "resources": each} for number, each in enumerate(resources)]
    return Pod.from_k8s({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}, **fields})


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}], "BestEffort"),
        ([{"limits": BOTH}], "Guaranteed"),
        ([{"limits": BOTH}, {}], "Burstable"),
        ([{"requests": BOTH, "limits": {"cpu": "2", "memory": "1Gi"}}], "Burstable"),
        ([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], "Burstable"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
    ],
)
def test_the_class_follows_from_requests_and_limits(resources: list[dict[str, Any]], expected: str) -> None:
    """Guaranteed pods have equal requests and limits of CPU and memory in all containers."""
    assert qos_class(pod(*resources)) == expected


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        ({"limits": BOTH}, "Guaranteed"),
        ({"requests": BOTH, "limits": BOTH}, "Guaranteed"),
        ({"requests": BOTH, "limits": {"cpu": "2", "memory": "1Gi"}}, "Burstable"),
        ({"requests": BOTH}, "Burstable"),
    ],
)
def test_resources_of_the_whole_pod_decide_the_class(whole: dict[str, Any], expected: str) -> None:
    """Pod-level requests and limits count instead of those of the containers."""
    spec = {"containers": [{"name": "c"}], "resources": whole}
    assert qos_class(Pod.from_k8s({"metadata": {"name": "p"}, "spec": spec})) == expected


def test_the_class_that_the_api_server_reports_counts_first() -> None:
    """It also knows of limits of the whole pod."""
    assert qos_class(pod({}, status={"qosClass": "Guaranteed"})) == "Guaranteed"
