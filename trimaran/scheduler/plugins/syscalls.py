"""SySched: nodes where a pod adds the fewest system calls that its neighbours do not need.

Every system call that a node's pods may make is a way into its kernel. Let S(p) be the calls that the seccomp profiles
of a pod allow, and H the union over the pods of a node. If a pod comes to a node, its score counts the calls

    |H - S(pod)| + sum over the node's pods i of |(H | S(pod)) - S(i)|

that the node's pods do not need themselves, and 0 on an empty node. The highest number scores 0, the number 0 scores
100. A pod without a profile has the default one, which allows all calls. Source: scheduler-plugins 0.33.5, pkg/sysched.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np

from runtime.kubernetes.k8s_fields import decoder, get
from runtime.kubernetes.objects import SECCOMP_ANNOTATIONS, Pod
from scoring.arrays import Float64s, Int64s
from scoring.normalization import inverted
from scoring.plugins.base import Rows, Terms, WithoutNodeTerms
from scoring.profiles.configuration.fields import FieldReader
from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.arguments import finish, text

KIND: Final = "SeccompProfile"
_ALLOWED: Final = frozenset({"SCMP_ACT_ALLOW", "SCMP_ACT_LOG"})
Syscalls = frozenset[str]


@decoder("seccomp profile")
def read_seccomp_profile(document: Mapping[str, Any]) -> Syscalls:
    """Return the system calls that a SeccompProfile allows.

    Raises:
        ValueError: the object has another form.
    """
    listed = get(get(document, "spec"), "syscalls") or ()
    allowed = (get(each, "names") or () for each in listed if get(each, "action") in _ALLOWED)
    return frozenset(str(name) for names in allowed for name in names)


class SeccompProfiles(Protocol):
    """SeccompProfiles of the cluster."""

    def version(self, kind: str) -> int:
        """Return a number that increases whenever an object of a kind changes."""
        ...

    def seccomp_profile(self, name: str) -> Syscalls:
        """Return the calls that the profile ``namespace/name`` allows; none if it does not exist."""
        ...


@dataclass(frozen=True)
class SySched(WithoutNodeTerms):
    """Score plugin for the system calls that the pods of a node do not need.

    Attributes:
        profiles: profiles.
        default_profile: ``namespace/name`` of the profile of pods without one.
    """

    profiles: SeccompProfiles
    default_profile: str = "default/all-syscalls"
    _state: "_NodeCalls" = field(init=False, repr=False, compare=False)

    name: ClassVar[str] = "SySched"
    normalizes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "_state", _NodeCalls(self))

    @property
    def annotations(self) -> frozenset[str]:
        """Names of the pod annotations that name seccomp profiles."""
        return frozenset({SECCOMP_ANNOTATIONS})

    @classmethod
    def from_config(cls, profiles: SeccompProfiles, reader: FieldReader) -> Self:
        """Read ``SySchedArgs``.

        Raises:
            ValueError: an argument is invalid or unknown; the message begins with its path.
        """
        namespace, name = cls.default_profile.split("/")
        namespace, name = text(reader, "defaultProfileNamespace", namespace), text(reader, "defaultProfileName", name)
        finish(reader)
        return cls(profiles, f"{namespace}/{name}")

    def syscalls_of(self, pod: Pod) -> Syscalls:
        """Return the calls that the profiles of a pod allow; a pod without profiles has the default profile."""
        own: Syscalls = frozenset().union(*map(self.profiles.seccomp_profile, pod.seccomp_profiles))
        return own or self.profiles.seccomp_profile(self.default_profile)

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the number of calls on each node that its pods do not need."""
        return {"score": np.array([self._state.unneeded(self.syscalls_of(pod), nodes)[rows] for pod in pods])}

    def normalize(self, scores: Int64s) -> Int64s:
        """Return 0 for the highest number of calls, up to 100 for no calls."""
        return inverted(scores)

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the number as a sentence."""
        return f"{terms['score']} system calls that the pod and the node's pods do not need themselves"


class _NodeCalls:
    """System calls of each node's pods; after a change of the node table only the changed nodes are counted again.

    Attributes:
        host: which calls the pods of a node may make together, shape (nodes, calls).
    """

    def __init__(self, plugin: SySched) -> None:
        self._plugin = plugin
        self._rows: object = None
        self._profiles = self._version = -1
        self._place: dict[str, int] = {}  # column of each call
        self._pods: Float64s = np.zeros(0)  # number of pods of each node
        self._unneeded: Float64s = np.zeros(0)  # number of unneeded calls on each node before another pod comes
        self._absent: Float64s = np.zeros(
            (0, 0)
        )  # a node's number of pods for a call that none of them may make, else 0
        self.host: Float64s = np.zeros((0, 0))

    def unneeded(self, own: Syscalls, nodes: NodeTable) -> Int64s:
        """Return the number of unneeded calls on each node if a pod with the calls ``own`` comes, shape (nodes,)."""
        self._follow(nodes)
        known = [self._place[name] for name in own if name in self._place]
        pod = np.zeros(len(self._place))
        pod[known] = 1
        score = self._unneeded + self.host @ (1 - pod) + self._absent @ pod
        score += (len(own) - len(known)) * self._pods  # calls that no pod on any node may make
        return np.where(self.host.any(axis=1), score, 0).astype(np.int64)

    def _follow(self, nodes: NodeTable) -> None:
        profiles = self._plugin.profiles.version(KIND)
        if nodes.rows is not self._rows or profiles != self._profiles:
            self._rows, self._profiles, self._version, self._place = nodes.rows, profiles, -1, {}
            self.host = self._absent = np.zeros((len(nodes), 0))
            self._pods, self._unneeded = np.zeros(len(nodes)), np.zeros(len(nodes))
        if self._version == nodes.version:
            return
        counted = {row: self._count(nodes, row) for row in nodes.changed_rows(self._version).tolist()}
        for name in sorted({name for counts in counted.values() for calls in counts for name in calls}):
            self._place.setdefault(name, len(self._place))
        more = len(self._place) - self.host.shape[1]
        self.host = np.pad(self.host, ((0, 0), (0, more)))
        # No pod that was there before may make a new call.
        self._absent = np.hstack([self._absent, np.tile(self._pods[:, np.newaxis], (1, more))])
        for row, counts in counted.items():
            self._pods[row] = sum(counts.values())
            self.host[row], lacking = 0, np.full(len(self._place), self._pods[row])
            for calls, count in counts.items():
                places = [self._place[name] for name in calls]
                self.host[row, places] = 1
                lacking[places] -= count
            self._unneeded[row] = self.host[row] @ lacking
            self._absent[row] = (1 - self.host[row]) * lacking
        self._version = nodes.version

    def _count(self, nodes: NodeTable, row: int) -> Counter[Syscalls]:
        return Counter(self._plugin.syscalls_of(placed.pod) for placed in nodes.placed_on(row))
