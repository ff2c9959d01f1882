"""Gangs of the cluster with their pods, for the plugins that place them. Pure: no clock, no requests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runtime.kubernetes.gangs import GangForm, GangRef, PodGroup, gang_of, group_ref, labelled_group
from runtime.kubernetes.objects import Pod

HELD: Final = "Gang"
"""Refusing plugin of the pods of incomplete gangs: no event requeues them, only the completion of the gang does."""

_LONG_AGO = float("-inf")


@dataclass
class Gang:
    """Gang with its pods and the state of its scheduling.

    Attributes:
        ref: identity of the gang.
        group: description of the gang; None if it is not known.
        problem: reason why the description cannot be read; empty if it was read, or does not exist.
        pods: pods that have not ended, bound and pending, of any scheduler, by uid.
        queued_at: time at which the first pod came or the gang last failed, seconds; None before.
        held_since: time since which placed pods wait for the others, seconds.
        backoff_until: time before which the gang is not tried again, seconds.
        checked_until: time until which ``minResources`` need no further check, seconds.
        lacks_room: whether a pod of the complete gang found no node in the last attempt.
        failed_pods: uids of pods that get the failure of another pod of the gang, without an attempt of their own.
        failure: message and refusing plugins of that failure.
    """

    ref: GangRef
    group: PodGroup | None = None
    problem: str = ""
    pods: dict[str, Pod] = field(default_factory=dict)
    queued_at: float | None = None
    held_since: float = _LONG_AGO
    backoff_until: float = _LONG_AGO
    checked_until: float = _LONG_AGO
    lacks_room: bool = False
    failed_pods: set[str] = field(default_factory=set)
    failure: tuple[str, frozenset[str]] = ("", frozenset())

    @property
    def min_members(self) -> int:
        """Least number of pods that run together; 0 if it is not known, or the gang has no minimum."""
        return 0 if self.group is None else self.group.min_members

    @property
    def ready(self) -> int:
        """Number of pods that can run or do run: those without scheduling gates that are not being deleted."""
        return sum(not (pod.terminating or pod.scheduling.gates) for pod in self.pods.values())

    def why_missing(self) -> str:
        """Return why the description is missing; empty if it is known."""
        if self.group is not None:
            return ""
        return self.problem or f"PodGroup {self.ref} does not exist"


class GangDirectory:
    """Gangs of the cluster by their identity, with their pods. For one thread."""

    def __init__(self) -> None:
        self._gangs: dict[GangRef, Gang] = {}
        self._ref_of: dict[str, GangRef] = {}  # by uid of the pod
        self._changed: dict[str, None] = {}  # uids of pods to try again, in order

    def of(self, pod: Pod) -> Gang | None:
        """Return the gang of a known pod; None if the pod has no gang."""
        ref = self._ref_of.get(pod.uid)
        return None if ref is None else self._gangs[ref]

    def put_group(self, kind: str, document: Mapping[str, Any]) -> None:
        """Add or update the description of a gang; an invalid one counts as missing, with the reason.

        Args:
            kind: kind of :data:`~runtime.kubernetes.gangs.POD_GROUP_KINDS`.
            document: the object.
        """
        gang = self._gang(group_ref(kind, document))
        group, problem = None, ""
        try:
            group = PodGroup.from_k8s(document)
        except ValueError as error:
            problem = str(error)
        if (gang.group, gang.problem) != (group, problem):
            gang.group, gang.problem = group, problem
            self._changed.update(dict.fromkeys(gang.pods))

    def drop_group(self, kind: str, document: Mapping[str, Any]) -> None:
        """Remove the description of a gang; arguments as for :meth:`put_group`."""
        ref = group_ref(kind, document)
        if ref in self._gangs:
            self._gangs[ref].group, self._gangs[ref].problem = None, ""
            self._tidy(ref)

    def put_pod(self, pod: Pod) -> None:
        """Add or update a pod; pods without a gang are ignored."""
        ref = gang_of(pod)
        if ref is None:
            return
        gang = self._gang(ref)
        before = gang.ready
        gang.pods[pod.uid] = pod
        self._ref_of[pod.uid] = ref
        if ref.form is GangForm.LABELS:
            _read_labels(gang, pod)
        if before < gang.min_members <= gang.ready:
            self._changed.update(dict.fromkeys(gang.pods))

    def drop_pod(self, uid: str) -> None:
        """Remove a pod that was deleted or has ended."""
        ref = self._ref_of.pop(uid, None)
        if ref is not None:
            del self._gangs[ref].pods[uid]
            self._gangs[ref].failed_pods.discard(uid)
            self._tidy(ref)

    def take_changed(self) -> list[str]:
        """Return the uids of the pods whose gang became complete or got another description since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    def _gang(self, ref: GangRef) -> Gang:
        return self._gangs.setdefault(ref, Gang(ref))

    def _tidy(self, ref: GangRef) -> None:
        gang = self._gangs[ref]
        if not gang.pods and (gang.group is None or ref.form is GangForm.LABELS):
            del self._gangs[ref]


def placed_pods(gang: Gang, is_assumed: Callable[[str], bool]) -> int:
    """Return the number of pods of a gang that are bound, or count on a node, and are not being deleted."""
    return sum(not pod.terminating and bool(pod.node_name or is_assumed(uid)) for uid, pod in gang.pods.items())


def _read_labels(gang: Gang, pod: Pod) -> None:
    """Read the gang's minimum number of pods from a pod's labels; if its pods differ, the largest number counts."""
    try:
        group = labelled_group(pod)
    except ValueError as error:
        gang.problem = str(error)
        return
    if group is not None and group.min_members > gang.min_members:
        gang.group = group
