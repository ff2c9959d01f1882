"""Templates and running pods in the cluster, for the patches of ``trimaran workloads``. Only reads."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.paths import CORE, object_path
from runtime.kubernetes.workloads import Workload
from trimaran.cli.options import fail
from watcher.errors import ProviderError
from watcher.usage.sources.api_pods import ApiPods

_SECONDS = 60.0


def template_containers(api: KubernetesApi, workload: Workload) -> Collection[str] | None:
    """Return the names of the containers and init containers in a workload's template; None without such a workload.

    Raises:
        requests.RequestException: the workload cannot be read.
    """
    try:
        spec = api.get(object_path(workload.kind, workload.name, workload.namespace), Deadline.after(_SECONDS))["spec"]
    except REQUEST_FAILURES as error:
        if describe(error).status == requests.codes.not_found:
            return None
        raise
    if workload.kind == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    pod_spec: Mapping[str, Any] = spec["template"]["spec"]
    return {each["name"] for part in ("containers", "initContainers") for each in pod_spec.get(part) or ()}


def check_resize(api: KubernetesApi) -> None:
    """Exit with status 1 if the API server cannot resize running pods."""
    served = api.get(CORE, Deadline.after(_SECONDS))["resources"]
    if not any(each.get("name") == "pods/resize" for each in served):
        version = api.get("/version", Deadline.after(_SECONDS)).get("gitVersion")
        fail(
            f"the API server ({version}) does not resize pods in place: it has no subresource pods/resize, which is on "
            "by default from Kubernetes 1.33 on; use --patch without --in-place",
            1,
        )


def pods_by_workload(api: KubernetesApi, wanted: Iterable[Workload]) -> dict[Workload, dict[str, Collection[str]]]:
    """Return the running pods of the wanted workloads: by workload and name of the pod, the names of its containers.

    Exits with status 1 if the pods cannot be listed.
    """
    pods: dict[Workload, dict[str, Collection[str]]] = {workload: {} for workload in wanted}
    source = ApiPods(api)
    try:
        for key, pod in source.running(Deadline.after(_SECONDS)).items():
            if pod.template.workload in pods:
                pods[pod.template.workload][key.name] = {each.name for each in pod.template.containers}
    except ProviderError as error:
        fail(error, 1)
    finally:
        source.close()
    return pods
