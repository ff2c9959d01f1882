"""Lists of HorizontalPodAutoscalers and VerticalPodAutoscalers, and the reasons that they give."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from runtime.http.gather import Deadline
from runtime.kubernetes.workloads import Workload
from watcher.usage.sources.autoscalers import HPA_PATH, VPA_PATH, AutoscalerLists
from watcher.usage.sources.known_autoscalers import KnownAutoscalers

WEB = Workload("shop", "Deployment", "web")


class Lists:
    """API client with two lists, or the status of each."""

    def __init__(self, hpa: Any = (), vpa: Any = ()) -> None:
        self._lists = {HPA_PATH: hpa, VPA_PATH: vpa}

    def list_items(self, path: str, _deadline: Deadline) -> Iterator[dict[str, Any]]:
        answer = self._lists[path]
        if isinstance(answer, int):
            response = requests.Response()
            response.status_code = answer
            raise requests.HTTPError("refused", response=response)
        yield from answer


def read(hpa: Any = (), vpa: Any = ()) -> KnownAutoscalers:
    return AutoscalerLists(Lists(hpa, vpa)).read(Deadline.after(5))  # type: ignore[arg-type]


def hpa(*metrics: dict[str, Any]) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"namespace": "shop", "name": "scale"},
        "spec": {"scaleTargetRef": target, "metrics": list(metrics)},
    }


def vpa(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": "size"},
        "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, **spec},
    }


def policies(*each: dict[str, Any]) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": list(each)}}


def test_an_hpa_on_a_request_is_a_reason_with_its_target() -> None:
    """Utilization of a resource, of the pod or of one container, is a reason; average values and others are none."""
    found = read([hpa(
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Gi"}}},
        {"type": "ContainerResource",
         "containerResource": {"name": "memory", "container": "proxy", "target": {"averageUtilization": 80}}},
        {"type": "Pods", "pods": {"metric": {"name": "requests"}}},
    )])  # fmt: skip
    assert found.of(WEB, "main", "cpu") == ("HPA scale scales by 60 % of the request",)
    assert found.of(WEB, "main", "memory") == ()
    assert found.of(WEB, "proxy", "memory") == ("HPA scale scales by 80 % of the request",)
    assert found.of(WEB._replace(name="api"), "main", "cpu") == ()
    assert found.unchecked == ()


def test_a_vpa_owns_the_requests_that_it_sets() -> None:
    """A VPA is a reason for what it sets; not if it only recommends, or a policy leaves out a container or resource."""
    owned = ("VPA size sets the request",)
    assert read(vpa=[vpa()]).of(WEB, "main", "cpu") == owned
    assert read(vpa=[vpa(updatePolicy={"updateMode": "Off"})]).of(WEB, "main", "cpu") == ()
    found = read(vpa=[vpa(**policies({"containerName": "proxy", "mode": "Off"},
                                     {"containerName": "main", "controlledResources": ["memory"]}))])  # fmt: skip
    assert found.of(WEB, "proxy", "cpu") == found.of(WEB, "main", "cpu") == ()
    assert found.of(WEB, "main", "memory") == found.of(WEB, "other", "cpu") == owned
    only_main = read(vpa=[vpa(**policies({"containerName": "*", "mode": "Off"}, {"containerName": "main"}))])
    assert (only_main.of(WEB, "main", "cpu"), only_main.of(WEB, "other", "cpu")) == (owned, ())


def test_lists_without_the_right_are_not_checked() -> None:
    """A refused list is named with its resource; a cluster without the VPA's CRD has no VPA, which is checked."""
    assert read(403, 404).unchecked == ("HPA (no right to list horizontalpodautoscalers)",)
    assert read((), 403).unchecked == ("VPA (no right to list verticalpodautoscalers)",)
    assert read(500, 404).unchecked[0].startswith("HPA (")
    assert KnownAutoscalers().unchecked == ("HPA and VPA (the Kubernetes API is not known)",)


@pytest.mark.parametrize("item", [{}, {"spec": []}, {"spec": {"metrics": [1, {"resource": 2}], "targetRef": "web"}}])
def test_malformed_autoscalers_are_no_reason(item: dict[str, Any]) -> None:
    """An object with unexpected fields is read without an error, and is no reason for a workload."""
    found = read([item], [item])
    assert found.of(WEB, "main", "cpu") == ()
    assert found.unchecked == ()
