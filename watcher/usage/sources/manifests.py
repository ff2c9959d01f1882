"""Pod manifests of the Kubernetes API as running pods: the workload, the revision and the containers' resources."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from runtime.kubernetes.k8s_fields import decoder, unix_seconds
from runtime.kubernetes.objects import CPU, MAX_AMOUNT, MEMORY, Pod
from runtime.kubernetes.owners import controller_of
from runtime.kubernetes.pod_demand import in_tree_requests
from runtime.kubernetes.qos import GUARANTEED, qos_class
from runtime.kubernetes.quantity import milli_value, value
from runtime.kubernetes.workloads import (
    ContainerRole,
    Owner,
    ParentLookup,
    Workload,
    no_parent,
    revision_of,
    workload_of,
)
from watcher.usage.sources.pods import (
    ContainerResources,
    ContainerRestart,
    PodKey,
    PodTemplate,
    RunningPod,
)

_MOST_TEMPLATES = 50_000
_FINISHED = frozenset({"Succeeded", "Failed"})
_NOTHING: Mapping[str, Any] = {}


class PodIdentity(NamedTuple):
    """Metadata that name the workload of a pod.

    Attributes:
        key: namespace and name of the pod.
        labels: labels of the pod.
        owner: controller of the pod; None if it has none.
        generate_name: prefix that the API server made the name of.
    """

    key: PodKey
    labels: Mapping[str, str]
    owner: Owner | None
    generate_name: str

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """Read an object's metadata."""
        labels = {key: text for key, text in _mapping(metadata.get("labels")).items() if isinstance(text, str)}
        prefix = metadata.get("generateName")
        return cls(key_of(metadata), labels, controller_of(metadata), prefix if isinstance(prefix, str) else "")


class ManifestReader:
    """Reader of pod manifests; equal templates become one object. Fields that are invalid count as missing.

    Args:
        owner_labels: labels that name a workload, the most important first.
        parent_of: lookup of the controllers of ReplicaSets and Jobs.
    """

    def __init__(self, owner_labels: Sequence[str] = (), parent_of: ParentLookup = no_parent) -> None:
        self._owner_labels, self._parent_of = tuple(owner_labels), parent_of
        self._templates: dict[PodTemplate, PodTemplate] = {}
        self._nodes: dict[str, str] = {}  # one text for all pods of a node

    @decoder("pod")
    def read(self, manifest: Mapping[str, Any], *, failed: bool = False) -> tuple[RunningPod, PodIdentity] | None:
        """Return a pod and the metadata that name its workload; None if it is not bound to a node, or has finished.

        With ``failed``, return None for all pods that have not failed.

        Raises:
            ValueError: a field has another type than in Kubernetes.
        """
        metadata, spec, status = (_mapping(manifest.get(key)) for key in ("metadata", "spec", "status"))
        phase = status.get("phase")
        if not (node_name := spec.get("nodeName")) or (phase != "Failed" if failed else phase in _FINISHED):
            return None
        identity = PodIdentity.of(metadata)
        whole = None if _is_plain(spec, status) else _whole(manifest)
        template = PodTemplate(
            self.workload(identity),
            revision_of(identity.labels),
            *_containers(spec),
            is_guaranteed=(status.get("qosClass") or (whole and qos_class(whole))) == GUARANTEED,
            pod=_pod_level(spec),
            is_complete=True,
            requests=None if whole is None else (_requested(whole, CPU), _requested(whole, MEMORY)),
        )
        uid, node = str(metadata.get("uid") or ""), self._nodes.setdefault(str(node_name), str(node_name))
        started_at = _time(status.get("startTime"), "status.startTime")
        return RunningPod(self._shared(template), started_at, uid, node, tuple(_restarts(status))), identity

    def renamed(self, pod: RunningPod, identity: PodIdentity) -> RunningPod:
        """Return the pod with its workload looked up again, as more controllers may be known."""
        workload = self.workload(identity)
        if workload == pod.template.workload:
            return pod
        return pod._replace(template=self._shared(replace(pod.template, workload=workload)))

    def workload(self, identity: PodIdentity) -> Workload:
        """Return the workload of a pod."""
        return workload_of(
            *identity.key,
            identity.labels,
            identity.owner,
            generate_name=identity.generate_name,
            owner_labels=self._owner_labels,
            parent_of=self._parent_of,
        )

    def _shared(self, template: PodTemplate) -> PodTemplate:
        if len(self._templates) >= _MOST_TEMPLATES:
            self._templates.clear()  # frees the templates of deleted pods; running pods keep theirs
            self._nodes.clear()
        return self._templates.setdefault(template, template)


def key_of(metadata: Mapping[str, Any]) -> PodKey:
    """Return namespace and name in an object's metadata."""
    return PodKey(str(metadata.get("namespace") or "default"), str(metadata.get("name") or ""))


def _is_plain(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether a pod requests the sum of its containers; reading a whole pod would take seven times as long."""
    if spec.keys() & {"initContainers", "overhead", "resources"} or not status.get("qosClass"):
        return False
    wanted = {each.get("name"): _mapping(each.get("resources")) for each in _mappings(spec.get("containers"))}
    for each in _mappings(status.get("containerStatuses")):
        requests = _mapping(wanted.get(each.get("name"))).get("requests")
        actual = _mapping(each.get("resources")).get("requests")
        if any(held not in (None, requests) for held in (actual, each.get("allocatedResources"))):
            return False  # during a resize the largest of these counts
    return "nodeAllocatableResourceClaimStatuses" not in status


def _whole(manifest: Mapping[str, Any]) -> Pod | None:
    try:
        return Pod.from_k8s(manifest)
    except ValueError:  # in a form that no API server sends
        return None


def _requested(pod: Pod, resource: str) -> int:
    return min(in_tree_requests(pod, resource), MAX_AMOUNT)


def _containers(spec: Mapping[str, Any]) -> tuple[tuple[ContainerResources, ...], tuple[str, ...]]:
    """Return the containers with the sidecars (init containers that always restart), and the names of the others."""
    containers = [_resources(each, ContainerRole.CONTAINER) for each in _mappings(spec.get("containers"))]
    init_containers = []
    for each in _mappings(spec.get("initContainers")):
        if each.get("restartPolicy") == "Always":
            containers.append(_resources(each, ContainerRole.SIDECAR))
        else:
            init_containers.append(str(each.get("name") or ""))
    return tuple(containers), tuple(init_containers)


def _resources(container: Mapping[str, Any], role: ContainerRole) -> ContainerResources:
    resources = _mapping(container.get("resources"))
    requests, limits = _mapping(resources.get("requests")), _mapping(resources.get("limits"))
    return ContainerResources(
        str(container.get("name") or ""),
        _amount(requests, CPU), _amount(requests, MEMORY), _amount(limits, CPU), _amount(limits, MEMORY), role,
    )  # fmt: skip


def _pod_level(spec: Mapping[str, Any]) -> ContainerResources | None:
    """Return the requests and limits of the pod as a whole; None without any."""
    pod = _resources({"resources": spec.get("resources")}, ContainerRole.UNKNOWN)
    return pod if any(amount is not None for amount in pod.amounts) else None


def _amount(amounts: Mapping[str, Any], resource: str) -> int | None:
    """Return an amount in millicores or bytes; None if it is missing, unreadable, negative or impossible."""
    written = amounts.get(resource)
    if written is None:
        return None
    try:
        amount = milli_value(written) if resource == CPU else value(written)
    except ValueError:
        return None
    return amount if 0 <= amount <= MAX_AMOUNT else None


def _restarts(status: Mapping[str, Any]) -> Iterator[ContainerRestart]:
    """Yield the last restart of each container that was restarted or killed; most pods have none."""
    for each in (*_mappings(status.get("containerStatuses")), *_mappings(status.get("initContainerStatuses"))):
        present, before = (_mapping(_mapping(each.get(name)).get("terminated")) for name in ("state", "lastState"))
        was_killed = "OOMKilled" in (present.get("reason"), before.get("reason"))
        if not was_killed and not each.get("restartCount"):
            continue  # has not ended, or is a finished init container
        ended = [at for run in (present, before) if (at := _time(run.get("finishedAt"), "finishedAt")) is not None]
        if ended:
            yield ContainerRestart(str(each.get("name") or ""), max(ended), was_killed)


def _time(text: Any, field: str) -> float | None:
    try:
        return unix_seconds(text, field)
    except ValueError:
        return None


def _mapping(field: Any) -> Mapping[str, Any]:
    return field if isinstance(field, dict) else _NOTHING


def _mappings(field: Any) -> list[Mapping[str, Any]]:
    return [each for each in field if isinstance(each, dict)] if isinstance(field, list) else []
