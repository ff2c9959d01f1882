"""Policy that places pods by ``trimaran scheduler`` as a whole: queue, backoff, filters, scores and preemption.

The replay drives the state machine that runs live, :class:`trimaran.scheduler.framework.scheduler.Scheduler`. The
trace's pods are its objects, and its clock is the replay's. Within a minute the clock goes on from one due attempt to
the next, so that backoffs of seconds pass. With Coscheduling, the pods of a job that arrive in the same minute are a
gang. A pod's namespace is that of its owner: the part before the slash, as in recorded traces; without a slash it is
``default``.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.gangs import POD_GROUP_LABEL
from runtime.kubernetes.objects import Node, Pod
from runtime.kubernetes.workloads import Owner
from scoring import ScorePlugin, UseLevels
from scoring.profiles.fallback import FallbackPolicy
from trimaran.scheduler.framework.decisions import Bind, Prepare, Unschedulable
from trimaran.scheduler.plugins.gangs.coscheduling import Coscheduling
from trimaran.scheduler.profiles.configuration import SchedulerSetup, read_setup
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.cluster_observer import ClusterObserver
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.policy import Placement, Placing, Victim
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.traces.trace import JOB, Trace

_HOSTNAME = "kubernetes.io/hostname"
_OWNER_LABEL = "owner"
_SELECTING_KINDS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
_MINUTE = 60.0


@dataclass(frozen=True)
class StandalonePolicy:
    """Policy of ``trimaran scheduler`` with a KubeSchedulerConfiguration.

    Attributes:
        name: the policy's name in reports.
        document: the parsed file, with one profile; see :func:`standalone_policy`.
        fallback: rule for nodes without metrics.
        objects: further objects of the cluster, as the API server shows them, such as ElasticQuotas.
        adapt: adds your own plugins to the configuration, as for the live scheduler; None adds none.
    """

    name: str
    document: Mapping[str, Any] = field(hash=False)
    fallback: FallbackPolicy = field(default_factory=FallbackPolicy)
    objects: Sequence[Mapping[str, Any]] = field(default=(), hash=False)
    adapt: Callable[[SchedulerSetup], SchedulerSetup] | None = None

    move_policy: ClassVar[None] = None

    def begin(self, cluster: Cluster, watcher: SimulatedWatcher, rng: np.random.Generator) -> "SchedulerPlacing":
        """Return a new scheduler for one replay."""
        seed = int(rng.spawn(1)[0].integers(2**63))  # a separate stream: preemption must not change the tie-breaks
        setup = read_setup(self.document, preempts_shared=True, seed=seed)
        if self.adapt is not None:
            setup = self.adapt(setup)
        placing = SchedulerPlacing(setup, self.fallback, cluster, watcher, rng)
        for document in self.objects:
            placing.scheduler.put_other(document["kind"], document, cluster.now)
        return placing


def standalone_policy(
    name: str, document: Mapping[str, Any], objects: Sequence[Mapping[str, Any]] = ()
) -> StandalonePolicy:
    """Return the policy of ``trimaran scheduler`` with a parsed KubeSchedulerConfiguration.

    Args:
        name: the policy's name in reports.
        document: the parsed file.
        objects: further objects of the cluster that plugins read, such as ElasticQuotas.

    Raises:
        ValueError: the document is not a valid configuration of the scheduler, or has several profiles.
    """
    names = read_setup(document, allow_with="").scheduler_names
    if len(names) > 1:
        raise ValueError(f"profiles: a policy needs a file with one profile, this file has: {', '.join(names)}")
    return StandalonePolicy(name, document, objects=tuple(objects))


class SchedulerPlacing(Placing, ClusterObserver):
    """Placing of a replay's pods by a scheduler, which observes the cluster.

    Args:
        setup: configuration of the scheduler.
        fallback: rule for nodes without metrics.
        cluster: the simulated cluster.
        watcher: the nodes' metrics.
        rng: random generator for tie-breaks.
    """

    def __init__(
        self,
        setup: SchedulerSetup,
        fallback: FallbackPolicy,
        cluster: Cluster,
        watcher: SimulatedWatcher,
        rng: np.random.Generator,
    ) -> None:
        self._cluster, self._watcher, self._fallback = cluster, watcher, fallback
        self.scheduler = setup.scheduler(rng)
        (profile,) = setup.profiles
        self._scheduler_name = profile.scheduler_name
        plugins = [weighted.plugin for weighted in profile.scores.plugins]
        self._reads_metrics = profile.reads_load
        learns = any(type(plugin).with_levels is not ScorePlugin.with_levels for plugin in plugins)
        self._history = UseHistory(cluster, watcher) if learns else None
        self._load: tuple[object, UseLevels | None] | None = None
        self._objects: dict[int, Pod] = {}  # pods that the scheduler knows, by their number in the trace
        self._numbers: dict[str, int] = {}  # their numbers, by uid
        self._pending: set[int] = set()
        self._now = cluster.now
        self._gangs = _gangs(cluster.trace) if any(isinstance(each, Coscheduling) for each in profile.stateful) else {}
        self._put_owners()
        self._put_gangs()
        self.scheduler.replace_nodes(map(_labeled, cluster.nodes.nodes), self._now)
        cluster.observer = self

    # Changes of the cluster

    def admit(self, number: int) -> Pod:
        """Return a pod that arrives, by its number in the trace."""
        return self._cluster.pod(number)

    def joined(self, node: Node) -> None:
        """Add a node."""
        self.scheduler.put_node(_labeled(node), self._clock())

    def left(self, node_name: str) -> None:
        """Remove a node."""
        self.scheduler.drop_node(node_name)

    def placed(self, number: int, pod: Pod, node_name: str) -> None:  # noqa: ARG002  the scheduler's object differs
        """Report that a pod was bound: the watch shows it, and then the Binding's answer arrives."""
        self._pending.discard(number)
        bound = replace(self._object(number), node_name=node_name, scheduled_at=self._cluster.now)
        self.scheduler.put_pod(bound, self._clock())
        self.scheduler.bound(bound.uid)

    def ended(self, number: int, pod: Pod) -> None:  # noqa: ARG002  the scheduler's object differs
        """Remove a pod."""
        uid = self._objects.pop(number).uid
        del self._numbers[uid]
        self.scheduler.drop_pod(uid, self._clock(), left_at=self._cluster.now)

    # Decisions

    def has_news(self) -> bool:
        """Return True: the scheduler itself knows which of the queued pods are due."""
        return True

    def place(self, numbers: Sequence[int]) -> Iterator[Placement | Victim]:
        """Let the scheduler decide until no pod is due in this minute; yield its placements and victims."""
        self._submit(numbers)
        end = self._cluster.now + _MINUTE
        while (due_at := self.scheduler.next_at()) is not None and due_at < end:
            self._now = max(self._clock(), due_at)
            self._use_load()
            decision = self.scheduler.next(self._now)
            if self.scheduler.failures.first is not None:  # a live scheduler would try again and hide the failure
                raise self.scheduler.failures.first
            if isinstance(decision, Bind):
                yield Placement(self._numbers[decision.pod.uid], self._cluster.nodes.row(decision.node_name))
            elif isinstance(decision, Prepare):
                self.scheduler.prepared(decision.pod.uid, self._now)
            elif isinstance(decision, Unschedulable) and decision.preemption is not None:
                victims = [self._numbers[victim.uid] for victim in decision.preemption.victims]
                for number in victims:
                    yield Victim(number)
                self._submit(victims)

    def _submit(self, numbers: Sequence[int]) -> None:
        """Add the queued pods that are ready to the scheduler, and remove those that gave up."""
        cluster = self._cluster
        for number in [number for number in self._pending if number not in cluster.queue]:
            self._pending.remove(number)
            uid = self._objects.pop(number).uid
            del self._numbers[uid]
            self.scheduler.drop_pod(uid, self._clock())
        for number in numbers:
            if number not in self._pending and cluster.queue[number].ready <= cluster.minute:
                self._pending.add(number)
                self.scheduler.put_pod(self._object(number), self._clock())

    def _clock(self) -> float:
        """Return the scheduler's time: that of the replay, or later within the minute."""
        self._now = max(self._now, self._cluster.now)
        return self._now

    def _use_load(self) -> None:
        """Let the scheduler score by the newest metrics, as in a live cluster."""
        if not self._reads_metrics:
            return
        snapshot = self._watcher.snapshot()
        levels = None if self._history is None else self._history.levels()
        if self._load is None or self._load[0] is not snapshot or self._load[1] is not levels:
            self._load = snapshot, levels
            judgment = self._fallback.judge(self.scheduler.state.table, snapshot, self._cluster.now)
            self.scheduler.use_load(judgment, levels)

    def _object(self, number: int) -> Pod:
        """Return a pod of the trace as the API server would show it: with a scheduler's name and its owner's labels."""
        known = self._objects.get(number)
        if known is None:
            trace = self._cluster.trace
            kind, (namespace, name) = trace.owner_kinds[number], _namespace_and_name(trace.owners[number])
            known = self._objects[number] = replace(
                self._cluster.pod(number),
                namespace=namespace,
                scheduler_name=self._scheduler_name,
                owner=self._cluster.owner(_owner_kind(kind), name),
                labels={_OWNER_LABEL: name, **self._gang_label(number)},
                priority=0 if trace.priority is None else int(trace.priority[number]),
            )
            self._numbers[known.uid] = number
        return known

    def _gang_label(self, number: int) -> Mapping[str, str]:
        gang = _gang_name(self._cluster.trace, number)
        return {POD_GROUP_LABEL: _namespace_and_name(gang)[1]} if gang in self._gangs else {}

    def _put_gangs(self) -> None:
        """Add a PodGroup for each gang."""
        for gang, size in self._gangs.items():
            namespace, name = _namespace_and_name(gang)
            document = {"metadata": {"name": name, "namespace": namespace}, "spec": {"minMember": size}}
            self.scheduler.put_other("PodGroup.scheduling.x-k8s.io", document, self._now)

    def _put_owners(self) -> None:
        """Add the owners, by whose selectors PodTopologySpread spreads pods by default."""
        trace = self._cluster.trace
        owners = {Owner(_owner_kind(kind), name) for kind, name in zip(trace.owner_kinds, trace.owners, strict=True)}
        for owner in sorted(owners):
            if owner.kind != JOB:
                namespace, name = _namespace_and_name(owner.name)
                metadata = {"name": name, "namespace": namespace}
                spec = {"selector": {"matchLabels": {_OWNER_LABEL: name}}}
                document = {"kind": owner.kind, "metadata": metadata, "spec": spec}
                self.scheduler.put_other(owner.kind, document, self._now)


def _namespace_and_name(text: str) -> tuple[str, str]:
    """Return the namespace and the name of ``namespace/name``, or of a name alone."""
    namespace, _, name = text.rpartition("/")
    return namespace or "default", name


def _gang_name(trace: Trace, number: int) -> str:
    """Return the name of a pod's gang: the owner of the pod, and the minute of its arrival."""
    return f"{trace.owners[number]}-{trace.arrival_minute[number]}"


def _gangs(trace: Trace) -> Mapping[str, int]:
    """Return the gangs of a trace with their sizes: the pods of a job that arrive in the same minute, if several do."""
    jobs = (number for number, kind in enumerate(trace.owner_kinds) if kind == JOB)
    sizes = Counter(_gang_name(trace, number) for number in jobs)
    return {name: size for name, size in sizes.items() if size > 1}


def _owner_kind(kind: str) -> str:
    """Return the kind of the controller that creates the pods of a trace's owner: the ReplicaSet of a Deployment."""
    return kind if kind == JOB or kind in _SELECTING_KINDS else "ReplicaSet"


def _labeled(node: Node) -> Node:
    return replace(node, labels={**node.labels, _HOSTNAME: node.name})
