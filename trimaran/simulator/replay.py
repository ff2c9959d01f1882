"""Replay of a trace: pods with recorded use arrive, are placed by a policy, and end, minute by minute.

The steps of each minute, in this order:

1. Pods whose time is over end.
2. Nodes fail and join.
3. Pods are scheduled in the order of their arrival: queued pods if capacity was freed, then the arriving ones.
4. Pods are moved, and the freed capacity goes to queued pods.
5. The autoscaler orders and removes nodes.
6. Pods of a node get their shares of its CPU, if they demand more than it has.

Pods are scheduled by the library's filter with node sampling, and the policy chooses among the feasible nodes; or the
policy schedules all pods itself, as one with its own queue does.

A replay is deterministic. The seed determines tie-breaks among nodes of equal score, as in kube-scheduler, and the
choices of the random policy. It changes neither the pods nor their use.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools
from trimaran.planning.move_triggers import Trigger
from trimaran.simulator.absent_resources import warn_of_absent_resources
from trimaran.simulator.autoscaling import Autoscaler, Autoscaling
from trimaran.simulator.ceiling import CpuCeiling
from trimaran.simulator.cluster import Cluster, PodRun, QueuedPod, requested
from trimaran.simulator.faults import Fault
from trimaran.simulator.moving.base import Mover
from trimaran.simulator.placing_by_choice import PlacingByChoice
from trimaran.simulator.policy import Placing, Policy, Victim
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.events import EventKind, NodeEvent, check_events
from trimaran.traces.trace import Trace


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a replay, in addition to its trace and policy.

    Attributes:
        seed: seed of the tie-breaks.
        overcommit: divisors of CPU and memory requests; None means the trace's own.
        windows: windows of the simulated metrics.
        faults: faults of the simulated metrics.
        events: nodes that fail and join; None means the trace's own.
        evicted_after_minutes: minutes from the failure of a node until its pods are rescheduled. By default pods
            tolerate an unreachable node for five minutes.
        autoscaling: settings of the autoscaler; None disables it.
        percent_of_nodes: percentage of the nodes for which feasibility is checked; 0 means kube-scheduler's rule: 50
            less one for each 125 nodes, at least 5 percent and at least 100 nodes.
        move_triggers: triggers of all move policies; empty means each policy's own.
        objects: further objects of the cluster, as the API server shows them; only standalone policies read them.
        startup_seconds: time from the eviction of a moved pod until it works again; during its whole minutes use is 0.
        ceiling: whether pods use no more than their node's CPU (:mod:`trimaran.simulator.ceiling`).
        learned_use: whether policies of files and profiles get the use of workloads, as with ``extender.learned_use``.
    """

    seed: int = 0
    overcommit: tuple[float, float] | None = None
    windows: Windows = field(default_factory=Windows)
    faults: tuple[Fault, ...] = ()
    events: tuple[NodeEvent, ...] | None = None
    evicted_after_minutes: int = 5
    autoscaling: Autoscaling | None = None
    percent_of_nodes: int = 0
    move_triggers: tuple[Trigger, ...] = ()
    startup_seconds: float = 0.0
    ceiling: bool = True
    learned_use: bool = False
    objects: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)


@dataclass(frozen=True, eq=False)
class ReplayOutcome:
    """Final state and counters of a replay.

    Attributes:
        cluster: the cluster at the end, with every run and the use of every node.
        policy: the policy's name.
        decisions: number of placements.
        unplaced: numbers of the pods that got no node before their end or the end of the replay.
        moves: number of moved pods.
        displaced: number of pods that lost their node.
        waited: mask of the minutes in which a pod that was ready got no node, shape (minutes,).
        starting_minutes: pod-minutes in which moved pods did not work yet.
    """

    cluster: Cluster
    policy: str
    decisions: int
    unplaced: tuple[int, ...]
    moves: int
    displaced: int
    waited: Bools
    starting_minutes: float = 0.0


class Replay:
    """Replay of one trace under one policy; call :meth:`run` once.

    Args:
        trace: the trace.
        policy: the policy that chooses nodes.
        options: options of the replay.

    Raises:
        TraceError: an event does not match the trace's nodes.
    """

    def __init__(self, trace: Trace, policy: Policy, options: ReplayOptions | None = None) -> None:
        self.options = ReplayOptions() if options is None else options
        overcommit = trace.overcommit if self.options.overcommit is None else self.options.overcommit
        self.cluster = Cluster(trace, overcommit)
        self._policy = policy
        rng = np.random.default_rng(self.options.seed)
        self._watcher = SimulatedWatcher(self.options.windows, self.cluster, self.options.faults)
        warn_of_absent_resources(policy)
        self._placing = self._begin(rng)
        self._ceiling = CpuCeiling(self.cluster, holds=self.options.ceiling)
        self._ends: dict[int, list[PodRun]] = defaultdict(list)
        self._queue = self.cluster.queue
        events = trace.events if self.options.events is None else self.options.events
        check_events(events, trace.amounts(), trace.name)
        self._events: dict[int, list[NodeEvent]] = defaultdict(list)
        for event in events:
            self._events[event.minute].append(event)
        scaling = self.options.autoscaling
        self._autoscaler = None if scaling is None else Autoscaler(scaling, self.cluster)
        self._decisions = 0
        self._moved = 0
        self._starting: set[int] = set()  # moved pods without a node
        self._displaced = 0
        self._unplaced: list[int] = []
        self._waited: Bools = np.zeros(trace.minutes, np.bool_)

    def run(self) -> ReplayOutcome:
        """Run the replay to its end."""
        trace, cluster = self.cluster.trace, self.cluster
        mover = self._mover()
        arrivals: dict[int, list[int]] = defaultdict(list)
        for number in np.argsort(trace.arrival_minute, kind="stable").tolist():
            if trace.end_minute[number] > trace.arrival_minute[number]:
                arrivals[int(trace.arrival_minute[number])].append(number)
        for minute in range(trace.minutes):
            cluster.minute = minute

            # Queued pods are tried again only if capacity was freed or one of them has become ready.
            retry = self._end_pods()
            retry |= self._placing.has_news()
            retry |= self._change_nodes()
            retry |= any(queued.ready == minute for queued in self._queue.values())
            waiting = list(self._queue) if retry else []
            arriving = arrivals.pop(minute, [])
            for number in arriving:
                self._enqueue(number, minute)
            self._schedule([*waiting, *arriving])

            if mover is not None and self._move(mover):
                self._schedule(list(self._queue))

            if self._autoscaler is not None:
                self._scale(self._autoscaler)
            for run in self._ceiling.settle():
                self._ends[run.end].append(run)
            self._waited[minute] = any(queued.ready <= minute for queued in self._queue.values())
        self._unplaced += self._queue  # the numbers of the pods that are still queued
        unplaced = tuple(sorted(self._unplaced))
        starting = self._moved * self.options.startup_seconds / 60
        return ReplayOutcome(
            cluster, self._policy.name, self._decisions, unplaced, self._moved, self._displaced, self._waited, starting
        )

    def _begin(self, rng: np.random.Generator) -> Placing:
        begun = self._policy.begin(self.cluster, self._watcher, rng)
        return (
            begun if isinstance(begun, Placing) else PlacingByChoice(self.cluster, begun, self.options.percent_of_nodes)
        )

    def _end_pods(self) -> bool:
        """End the pods whose time is over and drop queued pods that give up.

        Returns:
            Whether any running pod ended.
        """
        cluster, ended = self.cluster, False
        for run in self._ends.pop(cluster.minute, ()):
            if cluster.running.get(run.pod) is run and run.end == cluster.minute:  # neither ended nor delayed since
                cluster.end(run.pod)
                ended = True
        for number in [n for n, queued in self._queue.items() if queued.until <= cluster.minute]:
            del self._queue[number]
            self._unplaced.append(number)
        return ended

    def _change_nodes(self) -> bool:
        """Apply failures and joins of nodes; return whether any node joined."""
        cluster, joined = self.cluster, False
        ordered = [] if self._autoscaler is None else self._autoscaler.pop_arrived()
        for event in (*ordered, *self._events.pop(cluster.minute, ())):
            if event.kind is EventKind.JOIN:
                cluster.join(event.node, event.capacity)
                joined = True
            else:
                self._displace(cluster.leave(event.node), self.options.evicted_after_minutes)
        return joined

    def _scale(self, autoscaler: Autoscaler) -> None:
        """Let the autoscaler order and remove nodes; pods of removed nodes may be placed again at once."""
        autoscaler.order_nodes()
        for name in autoscaler.nodes_to_remove():
            pods = self.cluster.leave(name)
            self._displace(pods, 0)
            self._schedule(pods)

    def _displace(self, numbers: list[int], minutes: int) -> None:
        """Queue pods that lost their node.

        Args:
            numbers: the pods' numbers.
            minutes: minutes until they may be placed again.
        """
        now = self.cluster.minute
        for number in numbers:
            self._enqueue(number, now + minutes)
        self._displaced += len(numbers)

    def _enqueue(self, number: int, ready: int) -> None:
        """Queue a pod that may be placed from a minute on."""
        cluster, pod = self.cluster, self._placing.admit(number)
        until = cluster.trace.minutes if cluster.is_job(number) else int(cluster.trace.end_minute[number])
        self._queue[number] = QueuedPod(pod, requested(pod), ready, until)

    def _schedule(self, numbers: list[int]) -> None:
        """Try to place queued pods."""
        for step in self._placing.place(numbers):
            if isinstance(step, Victim):
                self.cluster.end(step.number)
                self._displace([step.number], 0)
                continue
            self._place(step.number, self._queue[step.number].pod, step.row)
            del self._queue[step.number]
            self._decisions += 1

    def _mover(self) -> Mover | None:
        move_policy, triggers = self._policy.move_policy, self.options.move_triggers
        if move_policy is None:
            return None
        return replace(move_policy, triggers=triggers or move_policy.triggers).begin(self.cluster, self._watcher)

    def _move(self, mover: Mover) -> bool:
        """Make the moves that are due: a pod ends on one node and starts on another in the same minute.

        Returns:
            Whether any pod moved.
        """
        cluster, moved = self.cluster, self._moved
        for number, row in mover.due():
            pod = cluster.pods[number]
            cluster.end(number)
            self._moved += 1
            self._starting.add(number)
            if row is not None:
                self._place(number, pod, row)
                continue
            self._enqueue(number, cluster.minute)
            self._schedule([number])
        return self._moved > moved

    def _place(self, number: int, pod: Pod, row: int) -> None:
        startup = 0
        if number in self._starting:
            self._starting.remove(number)
            startup = int(self.options.startup_seconds // 60)
        run = self.cluster.place(number, pod, row, startup)
        self._ends[run.end].append(run)
