"""The filter: keeps pods off nodes whose expected use would be over a limit. Off by default; it never strands a pod.

    all nodes that were asked about are over      fail-open (the default): all pass; fail-closed: none, see below
    a node is not measured, or suspect            it passes
    a DaemonSet's or static pod, exempt namespace all pass; the same for pods in shadow, and those of other schedulers
    rejected for so long by fail-closed           all pass: autoscalers do not know extenders, and add no node

Refused nodes are answered as unresolvable, so that preemption leaves them alone; and where it would make room on full
nodes, those that stay over their limit all the same are refused too, else pods would be killed for nothing. A scheduler
asks about a sample unless its percentageOfNodesToScore is 100; "all" means all that were asked.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from client import ClientError
from runtime.kubernetes import pod_demand
from scoring import MetricsTable, NodeTable, Pod, PreparedPlugin
from scoring.arrays import Bools, Float64s
from scoring.table.node_rows import NodeRows
from trimaran.extender.expected_use import ExpectedUse
from trimaran.extender.prioritizer import SnapshotSource, LiveCluster
from trimaran.extender.wire import ExtenderArgs
from watcher.model import WatcherMetrics

EXEMPT_OWNERS = frozenset({"DaemonSet", "Node"})
FILTER_OUTCOMES = ("passed", "narrowed", "all_over", "rejected", "waited_enough", "exempt", "no_metrics")
_MOST_WAITING = 10_000
VictimUids = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """How to filter.

    Attributes:
        limits: resource to percent of capacity that a node may be expected to use with the pod.
        fail: ``open`` lets a pod pass where all nodes are over; ``closed`` lets it wait.
        max_wait_seconds: after which a pod that waits passes.
        exempt_namespaces: whose pods always pass.
    """

    limits: Mapping[str, float]
    fail: Literal["open", "closed"] = "open"
    max_wait_seconds: float = 300.0
    exempt_namespaces: frozenset[str] = frozenset({"kube-system"})


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Which candidates pass, and why the others do not."""

    passed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RejectedPod:
    """A pod that was rejected: what was asked, since when (monotonic), and whether it was woken for its time's end."""

    asked: ExtenderArgs
    since: float
    woken: bool = False


class NodeFilter:
    """Answers requests, from any thread.

    Args:
        schedulers: whose pods are filtered.
        view: the live cluster.
        metrics: what nodes use.
        options: how to filter.
        acts_for: whether a pod, by its uid, is acted for.
        monotonic: a clock that is never set.

    Attributes:
        counts: pods by what became of them, :data:`FILTER_OUTCOMES`.
        waiting: pods that were rejected last, by uid, the longest waiting first.
    """

    def __init__(
        self,
        schedulers: Mapping[str, object],
        view: LiveCluster,
        metrics: SnapshotSource,
        options: FilterOptions,
        acts_for: Callable[[str], bool] = lambda _: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedulers, self._view, self._metrics, self._options = schedulers, view, metrics, options
        self._acts_for, self._monotonic = acts_for, monotonic
        self._prepared: tuple[object, PreparedPlugin, frozenset[str]] | None = None  # with what it was prepared from
        self._limits: tuple[NodeRows, Mapping[str, Float64s]] | None = None
        self.counts: Counter[str] = Counter()
        self.waiting: OrderedDict[str, RejectedPod] = OrderedDict()

    def answer(self, asked: ExtenderArgs, leaving: VictimUids = MappingProxyType({})) -> FilterResult:
        """Return which candidates pass.

        Args:
            asked: the pod and the candidates.
            leaving: by node the uids of pods that preemption would kill for it there.
        """
        if self._is_exempt(asked):
            return self._let_pass(asked, "exempt")
        over = self.over(asked, leaving)
        if over is None:
            return self._let_pass(asked, "no_metrics")
        if not over:
            return self._let_pass(asked, "passed")
        if len(over) < len(asked.node_names):
            self.waiting.pop(asked.pod.uid, None)
            self.counts["narrowed"] += 1
            return FilterResult([name for name in asked.node_names if name not in over], over)
        if self._options.fail == "open":
            return self._let_pass(asked, "all_over")
        waiting = self.waiting.setdefault(asked.pod.uid, RejectedPod(asked, self._monotonic()))
        if self.has_waited(waiting):
            return self._let_pass(asked, "waited_enough")
        waiting.asked = asked
        while len(self.waiting) > _MOST_WAITING:
            self.waiting.popitem(last=False)
        self.counts["rejected"] += 1
        return FilterResult((), over)

    def has_waited(self, waiting: RejectedPod) -> bool:
        """Return whether a pod has waited long enough."""
        return self._monotonic() - waiting.since >= self._options.max_wait_seconds

    def over(self, asked: ExtenderArgs, leaving: VictimUids = MappingProxyType({})) -> dict[str, str] | None:
        """Return which candidates are over a limit, with the reason; None where there are no metrics.

        Arguments as for :meth:`answer`.
        """
        try:
            snapshot = self._metrics.snapshot()
        except ClientError:
            return None
        with self._view.reading() as nodes:
            known, rows = nodes.known_rows(asked.node_names)
            prepared, suspect = self._prepare(nodes, snapshot)
            terms = prepared.terms(asked.pod, rows)
            limits = self._limits_of(nodes.rows)
            freed = {resource: _freed(nodes, known, leaving, resource) for resource in limits}
        refused: dict[str, str] = {}
        for resource, limit in limits.items():
            after = terms[f"{resource}_percent"][0] - freed[resource]
            over: Bools = after > limit[rows]  # never where it is not a number
            for place in np.flatnonzero(over).tolist():
                reason = f"{resource}: {after[place]:.1f} % expected, the limit is {limit[rows[place]]:g} %"
                if known[place] not in suspect:
                    refused.setdefault(known[place], reason)
        return refused

    def _prepare(self, nodes: NodeTable, snapshot: WatcherMetrics) -> tuple[PreparedPlugin, frozenset[str]]:
        held = self._prepared
        if held is None or held[0] is not snapshot.data or held[1].nodes is not nodes:
            suspect = frozenset(name for name, given in snapshot.metadata.items() if given.get("suspect"))
            prepared = PreparedPlugin(ExpectedUse(), nodes, MetricsTable.align(snapshot, nodes))
            held = self._prepared = snapshot.data, prepared, suspect
        return held[1], held[2]

    def _limits_of(self, rows: NodeRows) -> Mapping[str, Float64s]:
        """Return each node's limits, by row: its annotation's, where it has one that can be read."""
        if self._limits is None or self._limits[0] is not rows:
            limits = {
                resource: np.array([_limit(node.use_limits.get(resource, ""), usual) for node in rows.nodes])
                for resource, usual in self._options.limits.items()
            }
            self._limits = rows, limits
        return self._limits[1]

    def _is_exempt(self, asked: ExtenderArgs) -> bool:
        pod: Pod = asked.pod
        return (
            asked.scheduler_name not in self._schedulers
            or pod.namespace in self._options.exempt_namespaces
            or (pod.owner is not None and pod.owner.kind in EXEMPT_OWNERS)
            or not self._acts_for(pod.uid)
        )

    def _let_pass(self, asked: ExtenderArgs, why: str) -> FilterResult:
        self.waiting.pop(asked.pod.uid, None)
        self.counts[why] += 1
        return FilterResult(asked.node_names)


def _freed(nodes: NodeTable, names: Sequence[str], leaving: VictimUids, resource: str) -> Float64s:
    """Return what the pods that would leave request, percent of each node's capacity, shape (names,)."""
    freed = np.zeros(len(names))
    for place, name in enumerate(names if leaving else ()):
        gone = set(leaving.get(name, ()))
        amount = sum(pod_demand.in_tree_requests(pod, resource) for pod in nodes.pods(name) if pod.uid in gone)
        freed[place] = 100 * amount / max(nodes.capacity(resource)[nodes.row(name)], 1)
    return freed


def _limit(stated: str, usual: float) -> float:
    try:
        found = float(stated or usual)
    except ValueError:
        return usual
    return found if 0 < found <= 1000 else usual
