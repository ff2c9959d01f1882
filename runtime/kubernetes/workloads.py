"""Names of workloads, and the only function that determines the workload of a pod.

A workload is the set of pods that run the same program, over all its revisions and runs: a Deployment with the pods of
all its ReplicaSets, a CronJob with all its Jobs, all runs of a Spark application. The name follows from the pod's
metadata, and from the controller of its ReplicaSet or Job if that is known. If it is unknown, the names and hash labels
that Kubernetes' controllers generate lead to the same workload; only other controllers may use other names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

LABEL: Final = "Label"
"""Kind of workloads that are named by a label of their pods."""
SPARK_APPLICATION: Final = "SparkApplication"
PARENT_KINDS: Final = frozenset({"ReplicaSet", "Job"})
"""Kinds of owners that often have a controller themselves, which must be looked up."""

LASTING_KINDS: Final = frozenset({"Deployment", "Rollout", "StatefulSet", "DaemonSet", "CronJob", "ReplicaSet",
                                  "ReplicationController", "DeploymentConfig", "Node"})  # fmt: skip
"""Kinds of controllers that replace their pods under the same name. Users choose these names, so different names are
different workloads, even if only a number or hash at the end differs.
"""
ENDING_KINDS: Final = frozenset({"Job", "CronJob", SPARK_APPLICATION, "Workflow", "TaskRun"})
"""Kinds of workloads whose pods run to completion."""
_NUMBERED = frozenset({"Pod", "Job", SPARK_APPLICATION})  # their names may end with the number of a run or replica
_TEMPLATE_HASHES = (("rollouts-pod-template-hash", "Rollout"), ("pod-template-hash", "Deployment"))
_REVISIONS = ("rollouts-pod-template-hash", "pod-template-hash", "controller-revision-hash")
_SPARK_ROLE = "spark-role"
_SPARK_NAMES = ("sparkoperator.k8s.io/app-name", "spark-app-name")
_TEKTON_NAMES = (("tekton.dev/pipeline", "tekton.dev/pipelineTask"), ("tekton.dev/task",), ("tekton.dev/clusterTask",))

NAMING_LABELS: Final = (
    *_REVISIONS, _SPARK_ROLE, *_SPARK_NAMES, *dict.fromkeys(label for group in _TEKTON_NAMES for label in group)
)  # fmt: skip
"""All labels that :func:`workload_of` and :func:`revision_of` read, except the labels from a setting."""

# CronJobs name their Jobs by the scheduled time in minutes (in old versions seconds) since 1970. Dates do not match.
_CRON_RUN = re.compile(r"-(?:2[5-9]|3[0-9])[0-9]{6}$|-1[0-9]{9}$")
_SPARK_ROLE_SUFFIX = re.compile(r"-(?:exec-[0-9]+|driver)$")
# Suffixes that controllers and scripts generate. The last is Kubernetes' own: five letters without vowels.
_GENERATED = re.compile(
    r"""[-.](?:
        [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}            # UUID
      | (?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9](?:[-t.][0-9]{2}[-.]?[0-9]{2}(?:[-.]?[0-9]{2})?(?:\.?[0-9]+)?z?)?  # date
      | [0-9]{8}[-t]?[0-9]{4}(?:[0-9]{2})?z?                                    # 20240501t120000
      | [0-9]{8,}                                                               # seconds, minutes, a date
      | (?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,64}                            # hash
      | (?!https$)[bcdfghjklmnpqrstvwxz2456789]{5}
    )$""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[-.][0-9]{1,7}$")


class Owner(NamedTuple):
    """Controller that created a pod, such as a ReplicaSet.

    A named tuple, because every score looks up the owners of many pods, and tuples have the fastest hash.
    """

    kind: str
    name: str
    uid: str = ""


class Workload(NamedTuple):
    """Identity of a workload.

    Attributes:
        namespace: namespace of its pods.
        kind: kind of the controller that users know, such as ``Deployment`` and not ``ReplicaSet``; ``Pod`` for pods
            without a controller, ``Label`` for a workload that a label names.
        name: name of the controller, without the parts that differ between runs.
    """

    namespace: str
    kind: str
    name: str


class ContainerRole(IntEnum):
    """Role of a container in its pod; a sidecar is an init container that keeps running."""

    UNKNOWN = 0
    CONTAINER = 1
    SIDECAR = 2
    INIT = 3


ParentLookup = Callable[[str, Owner], Owner | None]
"""Function that returns the controller of a ReplicaSet or Job in a namespace; None if it has none or is unknown."""


def no_parent(_namespace: str, _owner: Owner) -> Owner | None:
    """Return None: the lookup for processes that do not watch ReplicaSets and Jobs."""
    return None


def workload_of(
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    owner: Owner | None,
    *,
    generate_name: str = "",
    owner_labels: Sequence[str] = (),
    parent_of: ParentLookup = no_parent,
) -> Workload:
    """Return the workload of a pod.

    The first rule that applies names the workload:

    1. the first label of ``owner_labels`` that the pod has;
    2. the labels of Spark and Tekton;
    3. the controller, or the controller's own controller (Deployment, Rollout, CronJob), and for an Argo Workflow its
       step, too;
    4. the name of a pod without a controller.

    Names of Jobs, pods and custom controllers lose the suffixes that differ between runs.

    Args:
        namespace: namespace of the pod.
        name: name of the pod.
        labels: labels of the pod.
        owner: controller of the pod; None if it has none.
        generate_name: the pod's ``metadata.generateName``.
        owner_labels: labels that name a workload, the most important first.
        parent_of: lookup of the controllers of ReplicaSets and Jobs.
    """
    for label in owner_labels:
        if value := labels.get(label):
            return Workload(namespace, LABEL, value)
    if _SPARK_ROLE in labels:
        stated = next((labels[label] for label in _SPARK_NAMES if labels.get(label)), "")
        return _named(namespace, SPARK_APPLICATION, stated or _SPARK_ROLE_SUFFIX.sub("", name))
    if owner is None:
        return _named(namespace, "Pod", generate_name.rstrip("-.") or name)
    if owner.kind == "Node":  # a static pod: its name ends with the node's
        return Workload(namespace, owner.kind, name.removesuffix(f"-{owner.name}"))
    if owner.kind == "TaskRun" and (task := _tekton_task(labels)):
        return Workload(namespace, owner.kind, task)
    parent = parent_of(namespace, owner) if owner.kind in PARENT_KINDS else None
    if parent is not None:
        return _named(namespace, parent.kind, parent.name)
    return _by_name(namespace, name, labels, owner)


def revision_of(labels: Mapping[str, str]) -> str:
    """Return the hash of the template that a pod was created from; "" if its controller sets none."""
    return next((labels[label] for label in _REVISIONS if labels.get(label)), "")


def _tekton_task(labels: Mapping[str, str]) -> str:
    """Return the name of the task that a pod of Tekton runs, with its pipeline if it has one; "" if unknown."""
    group = next((group for group in _TEKTON_NAMES if all(labels.get(label) for label in group)), ())
    return "-".join(labels[label] for label in group)


def _by_name(namespace: str, pod_name: str, labels: Mapping[str, str], owner: Owner) -> Workload:
    """Return a pod's workload from the names of its controller and the pod; the controller's controller is unknown."""
    kind, name = owner.kind, owner.name
    if kind == "ReplicaSet":
        for label, parent_kind in _TEMPLATE_HASHES:
            hashed = labels.get(label)
            if hashed and name.endswith(f"-{hashed}"):
                return Workload(namespace, parent_kind, name.removesuffix(f"-{hashed}"))
    if kind == "Job" and (run := _CRON_RUN.search(name)) and run.start():
        return Workload(namespace, "CronJob", name[: run.start()])
    if kind == "Workflow" and pod_name.startswith(f"{name}-"):  # Argo: the pod's name has its step and a hash, too
        step = _without_generated(pod_name.removeprefix(f"{name}-"), numbers=True)
        if not _is_generated(step):
            return Workload(namespace, kind, f"{_without_generated(name, numbers=False)}-{step}")
    return _named(namespace, kind, name)


def _named(namespace: str, kind: str, name: str) -> Workload:
    if kind not in LASTING_KINDS:
        name = _without_generated(name, numbers=kind in _NUMBERED)
    return Workload(namespace, kind, name)


def _without_generated(name: str, *, numbers: bool) -> str:
    """Remove generated suffixes from a name, one after another, but never the whole name.

    Args:
        name: the name.
        numbers: whether a number at the end counts as generated.
    """
    while True:
        match = _GENERATED.search(name) or (_NUMBER.search(name) if numbers else None)
        if match is None or not match.start():
            return name
        name = name[: match.start()]


def _is_generated(part: str) -> bool:
    """Return whether a part of a name consists only of a generated suffix or a number."""
    return _GENERATED.fullmatch(f"-{part}") is not None or part.isdigit()
