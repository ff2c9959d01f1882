"""Pods with their workloads and requests from the metrics of kube-state-metrics, present or recorded."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runtime.http import budget
from runtime.http.gather import Deadline
from runtime.kubernetes.objects import CPU, MEMORY
from runtime.kubernetes.workloads import NAMING_LABELS, Owner, Workload, revision_of, workload_of
from watcher.errors import ProviderAnswerError
from watcher.providers.own_labels import both_forms, own_label
from watcher.usage.sources.kube_state_containers import (
    CONTAINER,
    POD,
    Ask,
    Labels,
    PodContainers,
    key_of_series,
    read_containers,
    read_restarts,
    series_selector,
)
from watcher.usage.sources.pods import Capacity, ContainerRestart, PodKey, PodTemplate, RunningPod, RunningPods

Series = Callable[[str, Deadline], Iterable[tuple[Labels, float]]]
"""Function that returns labels and value of the series of a PromQL expression."""

_UNKNOWN = PodContainers()
_UNNAMED: Final = {"", "<none>"}
_NOT_IN_LABELS = re.compile("[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class KubeStatePod:
    """Pod as kube-state-metrics describes it.

    Attributes:
        workload: workload of the pod.
        revision: hash of the pod's template; "" if kube-state-metrics does not export the labels of pods.
        node: node of the pod; "" if unknown.
        uid: uid of the pod; "" if kube-state-metrics does not report it.
        parts: containers of the pod, with requests and limits.
    """

    workload: Workload
    revision: str
    node: str
    uid: str
    parts: PodContainers


def read_pods(
    ask: Ask,
    matchers: str = "",
    owner_labels: Sequence[str] = (),
    wanted: Container[PodKey] | None = None,
    *,
    are_running: bool = False,
) -> dict[PodKey, KubeStatePod]:
    """Return the pods of kube-state-metrics.

    Several instances of kube-state-metrics may report the same objects. Labels of pods are known only if they are
    exported (``--metric-labels-allowlist``); hashes and names suffice for the usual controllers.

    Args:
        ask: queries one metric.
        matchers: label matchers for all series.
        owner_labels: labels that name a workload, the most important first.
        wanted: the pods to read; None for all.
        are_running: whether the pods run now; otherwise they may have ended.

    Raises:
        Exception: ``ask`` failed.
    """
    ask = _with_own_labels(ask)
    infos, workloads, label_sets = _named(ask, matchers, owner_labels, wanted)
    parts = read_containers(ask, infos, matchers, are_running=are_running) if infos else {}
    pods = {}
    for key, labels in infos.items():
        revision = revision_of(label_sets.get(key, {}))
        node, uid = labels.get("node", ""), labels.get("uid", "")
        pods[key] = KubeStatePod(workloads[key], revision, node, uid, parts.get(key, _UNKNOWN))
    return pods


def read_workloads(ask: Ask, matchers: str = "", owner_labels: Sequence[str] = ()) -> dict[PodKey, Workload]:
    """Return the workload of each pod of kube-state-metrics; arguments and errors as of :func:`read_pods`."""
    return _named(_with_own_labels(ask), matchers, owner_labels, None)[1]


def _named(
    ask: Ask, matchers: str, owner_labels: Sequence[str], wanted: Container[PodKey] | None
) -> tuple[dict[PodKey, Labels], dict[PodKey, Workload], dict[PodKey, dict[str, str]]]:
    """Return, each by pod, the labels of kube_pod_info, the workload, and the labels of the pod."""
    info = "namespace,pod,uid,node,created_by_kind,created_by_name"
    infos = {
        key_of_series(labels): labels
        for labels, _ in ask(series_selector("kube_pod_info", matchers), info)
        if wanted is None or key_of_series(labels) in wanted
    }
    if not infos:
        return {}, {}, {}
    parents = {
        **_parents(ask, "ReplicaSet", "kube_replicaset_owner", "replicaset", matchers),
        **_parents(ask, "Job", "kube_job_owner", "job_name", matchers),
    }
    label_sets = _label_sets(ask, (*owner_labels, *NAMING_LABELS), infos, matchers)

    def parent_of(namespace: str, owner: Owner) -> Owner | None:
        return parents.get((namespace, owner.kind, owner.name))

    workloads = {}
    for key, labels in infos.items():
        kind, name = labels.get("created_by_kind", ""), labels.get("created_by_name", "")
        owner = None if kind in _UNNAMED or name in _UNNAMED else Owner(kind, name)
        pod_labels = label_sets.get(key, {})
        workloads[key] = workload_of(*key, pod_labels, owner, owner_labels=owner_labels, parent_of=parent_of)
    return infos, workloads, label_sets


class KubeStatePods:
    """Source of the running pods, for a watcher with a Prometheus and without the right to list pods.

    Args:
        series: queries the Prometheus.
        matchers: label matchers for all series.
        owner_labels: labels that name a workload, the most important first.
    """

    def __init__(self, series: Series, matchers: str, owner_labels: Sequence[str] = ()) -> None:
        self._series, self._matchers, self._owner_labels = series, matchers, tuple(owner_labels)

    def running(self, deadline: Deadline) -> RunningPods:
        """Return the running pods.

        Raises:
            ProviderError: a query failed, or there are no series.
        """
        ask, own = self._asking(deadline)
        running = self._in_phase("Running", own)
        described = read_pods(ask, self._matchers, self._owner_labels, running, are_running=True)
        if not described:
            raise ProviderAnswerError(
                "Prometheus has no series of kube_pod_info and kube_pod_status_phase: does it scrape "
                "kube-state-metrics? (prometheus.matchers)"
            )
        started = dict(self._times("kube_pod_start_time", own))
        restarts = read_restarts(own, described, self._matchers, started)
        return _pods(described, started, restarts)

    def killed(self, deadline: Deadline) -> Sequence[RunningPod]:
        """Return pods that have failed and still exist, with the kills for lack of memory of their containers.

        Raises:
            ProviderError: a query failed.
        """
        ask, own = self._asking(deadline)
        if not (failed := self._in_phase("Failed", own)):
            return ()
        kills = series_selector("kube_pod_container_status_terminated_reason", 'reason="OOMKilled"', self._matchers)
        containers: dict[PodKey, list[str]] = defaultdict(list)
        for labels, _ in own(f"{kills} == 1", CONTAINER):
            if (key := key_of_series(labels)) in failed:
                containers[key].append(labels.get("container", ""))
        ended = dict(self._times("kube_pod_completion_time", own))
        restarts = {
            key: tuple(ContainerRestart(name, ended[key], was_out_of_memory=True) for name in sorted(names))
            for key, names in containers.items()
            if key in ended
        }
        described = read_pods(ask, self._matchers, self._owner_labels, restarts) if restarts else {}
        return tuple(_pods(described, {}, restarts).values())

    def capacity(self, deadline: Deadline) -> Capacity | None:
        """Return the sum of all nodes' allocatable resources; None without series of the nodes.

        Raises:
            ProviderError: a query failed.
        """
        amounts = []
        for resource in (CPU, MEMORY):
            selector = series_selector("kube_node_status_allocatable", f'resource="{resource}"', self._matchers)
            by_node: dict[str, float] = {}
            for labels, value in self._series(f"max by ({both_forms(['node'])}) ({selector})", deadline):
                node = own_label(labels, "node")
                by_node[node] = max(value, by_node.get(node, value))
            amounts += [math.fsum(by_node.values())] if by_node else []
        return (amounts[0], amounts[1]) if len(amounts) == 2 else None

    @property
    def problems(self) -> tuple[str, ...]:
        """Empty, since this source reports no problems."""
        return ()

    def close(self) -> None:
        """Do nothing: the provider closes its connections."""

    def _asking(self, deadline: Deadline) -> tuple[Ask, Ask]:
        def ask(selector: str, keep: str) -> list[tuple[Labels, float]]:
            with budget.released():
                return list(self._series(f"max by ({keep}) ({selector})", deadline))

        return ask, _with_own_labels(ask)

    def _in_phase(self, phase: str, own: Ask) -> set[PodKey]:
        selector = series_selector("kube_pod_status_phase", f'phase="{phase}"', self._matchers)
        return {key_of_series(labels) for labels, _ in own(f"{selector} == 1", POD)}

    def _times(self, metric: str, own: Ask) -> Iterator[tuple[PodKey, float]]:
        for labels, at in own(series_selector(metric, self._matchers), POD):
            yield key_of_series(labels), at


def _pods(
    described: Mapping[PodKey, KubeStatePod],
    started: Mapping[PodKey, float],
    restarts: Mapping[PodKey, tuple[ContainerRestart, ...]] | None,
) -> dict[PodKey, RunningPod]:
    """Return pods with their shared templates, starts and restarts; ``restarts`` is None if they are unknown."""
    templates: dict[PodTemplate, PodTemplate] = {}
    pods = {}
    for key, pod in described.items():
        template = PodTemplate(
            pod.workload,
            pod.revision,
            pod.parts.containers,
            tuple(each.name for each in pod.parts.init_containers),
            is_guaranteed=pod.parts.is_guaranteed,
            pod=pod.parts.pod,
            is_complete=pod.parts.is_complete,
            requests=pod.parts.requests,
        )
        pods[key] = RunningPod(
            templates.setdefault(template, template),
            started.get(key),
            pod.uid,
            pod.node,
            None if restarts is None else restarts.get(key, ()),
        )
    return pods


def _with_own_labels(ask: Ask) -> Ask:
    """Return a function like ``ask`` whose labels are the objects' own, even if the scrape has renamed them."""

    def ask_own(selector: str, keep: str) -> Iterator[tuple[Labels, float]]:
        names = keep.split(",")
        for labels, value in ask(selector, both_forms(names)):
            yield {name: own for name in names if (own := own_label(labels, name))}, value

    return ask_own


def _parents(ask: Ask, kind: str, metric: str, label: str, matchers: str) -> dict[tuple[str, str, str], Owner]:
    """Return the controllers of the objects of a kind, by namespace, kind and name of the object."""
    selector = series_selector(metric, 'owner_is_controller!="false"', matchers)
    shared: dict[Owner, Owner] = {}
    return {
        (labels.get("namespace", ""), kind, labels.get(label, "")): shared.setdefault(owner, owner)
        for labels, _ in ask(selector, f"namespace,{label},owner_kind,owner_name")
        if (owner := Owner(labels.get("owner_kind", ""), labels.get("owner_name", ""))).name not in _UNNAMED
    }


def _label_sets(
    ask: Ask, names: Sequence[str], wanted: Container[PodKey], matchers: str
) -> dict[PodKey, dict[str, str]]:
    """Return the labels of pods that name workloads and revisions, as far as kube-state-metrics exports them."""
    exported = {f"label_{_NOT_IN_LABELS.sub('_', name)}": name for name in names}
    return {
        key: {name: labels[label] for label, name in exported.items() if labels.get(label)}
        for labels, _ in ask(series_selector("kube_pod_labels", matchers), ",".join((POD, *exported)))
        if (key := key_of_series(labels)) in wanted
    }
