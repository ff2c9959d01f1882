"""Shadow: decide for the pods of another scheduler, bind nothing, and compare.

Regret is the score of our choice minus that of the node where the other scheduler has bound the pod, both by our own
scores at the time of our decision. It is 0 if both agree. If the other scheduler's node is not feasible by our filters,
there is no regret, and the pod is counted as infeasible.

A pod that would have to wait before it is bound, for its volumes or for other pods, is compared by the node that was
chosen for it. A pod that needs preemption is compared by its nominated node, without a regret: before the victims are
gone, no node is feasible.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from trimaran.scheduler.framework.decisions import Decision, Unschedulable
from trimaran.scheduler.framework.feasibility import run_filters
from trimaran.scheduler.framework.scheduler import Scheduler
from trimaran.scheduler.service.telemetry import SchedulerTelemetry

_MOST_OPEN = 10_000
_MOST_COMPARED = 1_000


@dataclass(frozen=True)
class _Choice:
    """Decision on a pod, with all nodes' scores at that time.

    Attributes:
        node_name: our node.
        names: names of the nodes.
        feasible: mask of the nodes that pass our filters, shape (nodes,).
        totals: weighted scores, shape (nodes,).
    """

    node_name: str
    names: tuple[str, ...]
    feasible: Bools
    totals: Int64s

    def regret(self, node_name: str) -> int | None:
        """Return the score of our node minus that of another node; None if the other node is not feasible."""
        if node_name not in self.names:
            return None
        row = self.names.index(node_name)
        return int(self.totals[self.names.index(self.node_name)] - self.totals[row]) if self.feasible[row] else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two decisions on a pod.

    Attributes:
        pod: namespace and name.
        ours: our node.
        theirs: node of the other scheduler.
        regret: score of our node minus that of theirs; None if theirs is not feasible by our filters.
    """

    pod: str
    ours: str
    theirs: str
    regret: int | None


class ShadowRecord:
    """Handler of the scheduling loop's decisions that only records them. For the scheduling thread.

    Args:
        scheduler: the scheduler.
        telemetry: metrics.

    Attributes:
        compared: newest comparisons, oldest first. Replaced, never changed, so that any thread may read it.
        agreed: number of pods for which both schedulers chose the same node.
        total: number of compared pods.
        missed: number of pods that the other scheduler bound before our decision.
        nominated: number of compared pods for which our decision was a preemption.
    """

    def __init__(self, scheduler: Scheduler, telemetry: SchedulerTelemetry) -> None:
        self._scheduler, self._telemetry = scheduler, telemetry
        self._open: OrderedDict[str, _Choice | str] = OrderedDict()  # a nominated node's name after a preemption
        self._pending: set[str] = set()
        self.compared: tuple[Comparison, ...] = ()
        self.agreed = self.total = self.missed = self.nominated = 0

    def is_busy(self) -> bool:
        """Return False: nothing is sent."""
        return False

    def handle(self, decision: Decision, seconds: float) -> None:
        """Record the node of a decision, and the scores of all nodes for the pod."""
        self._telemetry.count_cycle(seconds)
        uid = decision.pod.uid
        if isinstance(decision, Unschedulable):
            if decision.preemption is not None:
                self._remember(uid, decision.preemption.node_name)
        elif not isinstance(self._open.get(uid), _Choice):  # after a wait the first decision counts
            self._remember(uid, self._choice(decision.pod, decision.node_name))

    def _choice(self, pod: Pod, node_name: str) -> _Choice:
        state = self._scheduler.state
        profile = self._scheduler.profiles[pod.scheduler_name]
        state.retry(pod.uid)  # the pod must not count on its node when the nodes are scored
        try:
            feasible = run_filters(profile.filters, pod, state.table).feasible
            totals = self._scheduler.totals(pod, feasible)
        finally:
            state.assume(pod, node_name, 0.0)
        return _Choice(node_name, state.table.names, feasible, totals)

    def _remember(self, uid: str, choice: _Choice | str) -> None:
        self._open[uid] = choice
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)

    def observe(self, uid: str, pod: Pod | None) -> None:
        """Compare the decision on a pod with the node that it was bound to."""
        if pod is None:
            self._open.pop(uid, None)
            self._pending.discard(uid)
        elif not pod.node_name:
            if pod.scheduler_name in self._scheduler.profiles:
                self._pending.add(uid)
        elif uid in self._pending:
            self._pending.discard(uid)
            choice = self._open.pop(uid, None)
            if choice is None:
                self.missed += 1
            else:
                self._compare(pod, choice)

    def _compare(self, pod: Pod, choice: _Choice | str) -> None:
        self.total += 1
        if isinstance(choice, str):
            self.nominated += 1
            self.agreed += pod.node_name == choice
            self._telemetry.count_shadow(pod.node_name == choice, None)
            return
        regret, agrees = choice.regret(pod.node_name), pod.node_name == choice.node_name
        self.agreed += agrees
        comparison = Comparison(f"{pod.namespace}/{pod.name}", choice.node_name, pod.node_name, regret)
        self.compared = (*self.compared[-_MOST_COMPARED + 1 :], comparison)
        self._telemetry.count_shadow(agrees, regret)

    def report(self) -> dict[str, object]:
        """Return agreement and regret, for people and programs."""
        regrets = np.array([each.regret for each in self.compared if each.regret is not None])
        return {
            "compared": self.total,
            "agreed": self.agreed,
            "missed": self.missed,
            "nominated": self.nominated,
            "infeasible": sum(each.regret is None for each in self.compared),
            "regret": {
                "mean": float(regrets.mean()) if regrets.size else None,
                "p95": float(np.percentile(regrets, 95)) if regrets.size else None,
            },
            "newest": [
                {"pod": each.pod, "ours": each.ours, "theirs": each.theirs, "regret": each.regret}
                for each in self.compared[-20:]
            ],
        }
