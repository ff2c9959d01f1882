"""Status of ElasticQuotas: sums of the requests of their namespace's running pods.

Source: kubernetes-sigs/scheduler-plugins v0.33.5, pkg/controllers/elasticquota_controller.go.
"""

from collections.abc import Mapping
from typing import Any, Final

from runtime.kubernetes.k8s_fields import get
from runtime.kubernetes.objects import CPU, Pod
from runtime.kubernetes.paths import OPTIONAL_LISTS
from runtime.kubernetes.reflector import Object
from trimaran.scheduler.plugins.quotas.elastic_quota import Amounts, added
from trimaran.scheduler.plugins.quotas.namespace_use import amounts_of
from trimaran.scheduler.service.status_controller import Key, StatusRule


def used_status(quota: Object, pods: list[Amounts]) -> Mapping[str, Any]:
    """Return the status of a quota: the use of each resource in ``min`` or ``max``, or in the requests of pods."""
    spec, total = get(quota, "spec"), added(*pods)
    names = dict.fromkeys((*(get(spec, "min") or {}), *(get(spec, "max") or {}), *total))
    return {**(get(quota, "status") or {}), "used": {name: _quantity(name, total.get(name, 0)) for name in names}}


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU and amount % 1000 else str(amount // 1000 if name == CPU else amount)


def _requests(pod: Object) -> Amounts:
    try:
        return amounts_of(Pod.from_k8s(pod))
    except ValueError:
        return {}  # the scheduler's own watch reports the unreadable pod


def _namespace(document: Object) -> Key:
    return str(get(get(document, "metadata"), "namespace")), ""


QUOTA_STATUS: Final = StatusRule(
    OPTIONAL_LISTS["ElasticQuota"][0],
    _namespace,
    _namespace,
    used_status,
    {"fieldSelector": "status.phase=Running"},
    _requests,
)
"""Status of ElasticQuotas by the running pods of their namespace."""
