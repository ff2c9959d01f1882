"""Autoscalers of workloads in the Kubernetes API: HorizontalPodAutoscalers and VerticalPodAutoscalers.

An HPA that scales by the utilization of a request changes the number of pods when the request changes. A VPA sets the
requests itself. Both are listed in every round, because there are at most as many as workloads.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.objects import CPU, MEMORY
from runtime.kubernetes.paths import LISTS
from runtime.kubernetes.workloads import Workload
from watcher.usage.sources.known_autoscalers import ALL_CONTAINERS, KnownAutoscalers, Scaled

HPA_PATH, VPA_PATH = LISTS["HorizontalPodAutoscaler"], LISTS["VerticalPodAutoscaler"]
_log = logging.getLogger(__name__)
_RESOURCES = (CPU, MEMORY)
_NOTHING: Mapping[str, Any] = {}


class AutoscalerLists:
    """Lists of the autoscalers.

    Args:
        api: client of the API server, which the caller closes.
    """

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._failures: tuple[str, ...] = ()

    def read(self, deadline: Deadline) -> KnownAutoscalers:
        """Return the present autoscalers. A list that cannot be read is named in ``unchecked``."""
        lists: dict[str, dict[Scaled, tuple[str, ...]]] = {"HPA": {}, "VPA": {}}
        unchecked, failures = [], []
        for kind, path, targets in (("HPA", HPA_PATH, _hpa_targets), ("VPA", VPA_PATH, _vpa_targets)):
            reasons = lists[kind]
            try:
                for item in self._api.list_items(path, deadline):
                    for scaled, reason in targets(item):
                        reasons[scaled] = (*reasons.get(scaled, ()), *reason)
            except REQUEST_FAILURES as error:
                failure = describe(error)
                if failure.status == requests.codes.not_found and path == VPA_PATH:
                    continue  # the cluster has no VerticalPodAutoscaler
                is_forbidden = failure.status == requests.codes.forbidden
                why = f"no right to list {path.rpartition('/')[2]}" if is_forbidden else failure.reason
                unchecked.append(f"{kind} ({why})")
                failures.append(f"{kind}: {failure.reason}")
        if tuple(failures) != self._failures:
            self._failures = tuple(failures)
            _log.info("not all autoscalers can be listed", extra={"reasons": "; ".join(failures) or "none any more"})
        return KnownAutoscalers(lists["HPA"], lists["VPA"], tuple(unchecked))


def _hpa_targets(item: Mapping[str, Any]) -> Iterator[tuple[Scaled, tuple[str, ...]]]:
    """Yield each request by whose utilization an HPA scales, with a reason that names the HPA and its target."""
    spec, name = _mapping(item.get("spec")), _name(item)
    workload = _workload(item, spec.get("scaleTargetRef"))
    for metric in _mappings(spec.get("metrics")):
        for field_name in ("resource", "containerResource"):
            source = _mapping(metric.get(field_name))
            target = _mapping(source.get("target")).get("averageUtilization")
            if source.get("name") in _RESOURCES and target is not None:  # an average value does not follow requests
                container = str(source.get("container") or ALL_CONTAINERS)
                reason = f"HPA {name} scales by {target} % of the request"
                yield (workload, container, str(source["name"])), (reason,)


def _vpa_targets(item: Mapping[str, Any]) -> Iterator[tuple[Scaled, tuple[str, ...]]]:
    """Yield the containers and resources that a VPA has a policy for, with a reason if the VPA sets the request."""
    spec, name = _mapping(item.get("spec")), _name(item)
    if _mapping(spec.get("updatePolicy")).get("updateMode") == "Off":
        return
    workload = _workload(item, spec.get("targetRef"))
    policies = _mappings(_mapping(spec.get("resourcePolicy")).get("containerPolicies"))
    by_container = {str(policy.get("containerName") or ALL_CONTAINERS): policy for policy in policies}
    for container, policy in {ALL_CONTAINERS: _NOTHING, **by_container}.items():
        controlled = policy.get("controlledResources")
        for resource in _RESOURCES:
            is_set = policy.get("mode") != "Off" and (not isinstance(controlled, list) or resource in controlled)
            yield (workload, container, resource), (f"VPA {name} sets the request",) if is_set else ()


def _workload(item: Mapping[str, Any], reference: Any) -> Workload:
    target = _mapping(reference)
    namespace = str(_mapping(item.get("metadata")).get("namespace") or "default")
    return Workload(namespace, str(target.get("kind") or ""), str(target.get("name") or ""))


def _name(item: Mapping[str, Any]) -> str:
    return str(_mapping(item.get("metadata")).get("name") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _NOTHING


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
