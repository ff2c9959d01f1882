"""Filter that refuses nodes whose expected use with the pod is over a limit. Off by default.

    all candidates are over a limit               open (the default): all pass; closed: none passes for a limited time
    a pod has waited for max_wait_seconds         all nodes pass: autoscalers ignore extenders, and would add no node
    a node is not measured, or is suspect         the node passes
    DaemonSet's or static pod, exempt namespace   all nodes pass; also for pods in shadow and of other schedulers

Refused nodes are listed as unresolvable, so that preemption ignores them. When kube-scheduler asks about nodes to
preempt pods on, the nodes that stay over their limit without the victims are refused as well: the victims would be
evicted for nothing. kube-scheduler sends a sample of the nodes unless its percentageOfNodesToScore is 100; "all" means
all nodes in the request.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from client import ClientError, Collector
from runtime.kubernetes import pod_demand
from scoring import MetricsTable, NodeTable, Pod, PreparedPlugin
from scoring.arrays import Bools, Float64s
from scoring.table.node_rows import NodeRows
from trimaran.cluster.view import ClusterView
from trimaran.extender.expected_use import ExpectedUse
from trimaran.extender.wire import ExtenderArgs
from watcher.model import WatcherMetrics

EXEMPT_OWNERS = frozenset({"DaemonSet", "Node"})
FILTER_OUTCOMES = ("passed", "narrowed", "all_over", "rejected", "waited_enough", "exempt", "no_metrics")
_MOST_WAITING = 10_000
VictimUids = Mapping[str, Sequence[str]]
"""Uids of the pods that preemption would evict, by node."""


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Options of the filter.

    Attributes:
        limits: resource to the highest expected use of a node with the pod, percent of capacity.
        fail: ``open`` lets all nodes pass if all are over a limit; ``closed`` makes the pod wait.
        max_wait_seconds: longest time that a pod waits; then all nodes pass for the pod.
        exempt_namespaces: namespaces whose pods are never filtered.
    """

    limits: Mapping[str, float]
    fail: Literal["open", "closed"] = "open"
    max_wait_seconds: float = 300.0
    exempt_namespaces: frozenset[str] = frozenset({"kube-system"})


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Result of the filter for one pod.

    Attributes:
        passed: names of the nodes that pass.
        refused: reason for each refused node, by name.
    """

    passed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RejectedPod:
    """Waiting pod: the filter refused all candidates of its last request.

    Attributes:
        args: last filter request of the pod.
        since: monotonic time of the pod's first rejection.
        requeued: whether the pod was requeued because it had waited for ``max_wait_seconds``.
    """

    args: ExtenderArgs
    since: float
    requeued: bool = False


class NodeFilter:
    """Thread-safe filter of a pod's candidate nodes.

    Args:
        schedulers: schedulers whose pods are filtered.
        view: the live cluster.
        metrics: source of the metrics.
        options: options of the filter.
        is_active: returns whether the rollout is active for the pod with a uid.
        monotonic: monotonic clock.

    """

    def __init__(
        self,
        schedulers: Mapping[str, object],
        view: ClusterView,
        metrics: Collector,
        options: FilterOptions,
        is_active: Callable[[str], bool] = lambda _: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedulers, self._view, self._metrics, self._options = schedulers, view, metrics, options
        self._is_active, self._monotonic = is_active, monotonic
        self._prepared: tuple[object, PreparedPlugin, frozenset[str]] | None = None  # data, plugin, suspect nodes
        self._preparing = threading.Lock()
        self._limits: tuple[NodeRows, Mapping[str, Float64s]] | None = None
        self._lock = threading.Lock()  # guards _counts and _waiting
        self._counts: Counter[str] = Counter()
        self._waiting: OrderedDict[str, RejectedPod] = OrderedDict()  # by uid, the longest waiting first

    @property
    def counts(self) -> Counter[str]:
        """Filtered pods by outcome, :data:`FILTER_OUTCOMES`."""
        with self._lock:
            return self._counts.copy()

    @property
    def waiting(self) -> Sequence[RejectedPod]:
        """Waiting pods, the longest waiting first; the last request of each was rejected."""
        with self._lock:
            return tuple(self._waiting.values())

    def forget(self, waiting: RejectedPod) -> None:
        """Forget a waiting pod."""
        with self._lock:
            self._waiting.pop(waiting.args.pod.uid, None)

    def mark_requeued(self, waiting: RejectedPod) -> None:
        """Record that a waiting pod was requeued after ``max_wait_seconds``."""
        uid = waiting.args.pod.uid
        with self._lock:
            if uid in self._waiting:  # the pod may have passed since
                self._waiting[uid] = replace(self._waiting[uid], requeued=True)

    def answer(self, args: ExtenderArgs, victims: VictimUids = MappingProxyType({})) -> FilterResult:
        """Return the candidates that pass, and the reasons for the refused ones.

        Args:
            args: the pod and the candidates.
            victims: uids of the pods that preemption would evict, by node.
        """
        if self._is_exempt(args):
            return self._let_pass(args, "exempt")
        over = self.nodes_over_limit(args, victims)
        if over is None:
            return self._let_pass(args, "no_metrics")
        if not over:
            return self._let_pass(args, "passed")
        if len(over) < len(args.node_names):
            self._count_passed(args, "narrowed")
            return FilterResult([name for name in args.node_names if name not in over], over)
        if self._options.fail == "open":
            return self._let_pass(args, "all_over")
        if not self._has_to_wait(args):
            return self._let_pass(args, "waited_enough")
        return FilterResult((), over)

    def has_waited(self, waiting: RejectedPod) -> bool:
        """Return whether a pod has waited for ``max_wait_seconds``, after which all nodes pass."""
        return self._monotonic() - waiting.since >= self._options.max_wait_seconds

    def nodes_over_limit(self, args: ExtenderArgs, victims: VictimUids = MappingProxyType({})) -> dict[str, str] | None:
        """Return the reason for each candidate over a limit, by node name; None without metrics.

        The arguments are those of :meth:`answer`.
        """
        try:
            snapshot = self._metrics.snapshot()
        except ClientError:
            return None
        prepared, suspect = self._prepare(snapshot)
        with self._view.reading() as nodes:
            known, rows = nodes.known_rows(args.node_names)
            terms = prepared.terms(args.pod, rows)
            limits = self._limits_of(nodes.rows)
            freed = {resource: _freed_percent(nodes, known, victims, resource) for resource in limits}
        refused: dict[str, str] = {}
        for resource, limit in limits.items():
            after = terms[f"{resource}_percent"][0] - freed[resource]
            over: Bools = after > limit[rows]  # false where the expected use is NaN
            for position in np.flatnonzero(over).tolist():
                reason = f"{resource}: {after[position]:.1f} % expected, the limit is {limit[rows[position]]:g} %"
                if known[position] not in suspect:
                    refused.setdefault(known[position], reason)
        return refused

    def _prepare(self, snapshot: WatcherMetrics) -> tuple[PreparedPlugin, frozenset[str]]:
        """Return the plugin prepared for a snapshot, from a copy of the table, and the names of the suspect nodes."""
        with self._preparing:
            cached = self._prepared
            if cached is None or cached[0] is not snapshot.data:
                suspect = frozenset(name for name, metadata in snapshot.metadata.items() if metadata.get("suspect"))
                with self._view.reading() as table:
                    nodes = table.copy()
                prepared = PreparedPlugin(ExpectedUse(), nodes, MetricsTable.align(snapshot, nodes))
                prepared.attach(table)
                cached = self._prepared = snapshot.data, prepared, suspect
            return cached[1], cached[2]

    def _limits_of(self, rows: NodeRows) -> Mapping[str, Float64s]:
        """Return each resource's limits in percent, shape (nodes,): a node's valid annotation, else the setting."""
        if self._limits is None or self._limits[0] is not rows:
            limits = {
                resource: np.array([_limit(node.use_limits.get(resource, ""), default) for node in rows.nodes])
                for resource, default in self._options.limits.items()
            }
            self._limits = rows, limits
        return self._limits[1]

    def _is_exempt(self, args: ExtenderArgs) -> bool:
        pod: Pod = args.pod
        return (
            args.scheduler_name not in self._schedulers
            or pod.namespace in self._options.exempt_namespaces
            or (pod.owner is not None and pod.owner.kind in EXEMPT_OWNERS)
            or not self._is_active(pod.uid)
        )

    def _has_to_wait(self, args: ExtenderArgs) -> bool:
        """Record a rejection, and return True; return False if the pod has waited for ``max_wait_seconds``."""
        uid = args.pod.uid
        with self._lock:
            waiting = self._waiting.get(uid) or RejectedPod(args, self._monotonic())
            if self.has_waited(waiting):
                return False
            self._waiting[uid] = replace(waiting, args=args)
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popitem(last=False)
            self._counts["rejected"] += 1
            return True

    def _let_pass(self, args: ExtenderArgs, outcome: str) -> FilterResult:
        self._count_passed(args, outcome)
        return FilterResult(args.node_names)

    def _count_passed(self, args: ExtenderArgs, outcome: str) -> None:
        with self._lock:
            self._waiting.pop(args.pod.uid, None)
            self._counts[outcome] += 1


def _freed_percent(nodes: NodeTable, names: Sequence[str], victims: VictimUids, resource: str) -> Float64s:
    """Return the resource requests of the victims on each node, percent of the node's capacity, shape (names,)."""
    freed = np.zeros(len(names))
    for position, name in enumerate(names if victims else ()):
        uids = set(victims.get(name, ()))
        amount = sum(pod_demand.in_tree_requests(pod, resource) for pod in nodes.pods(name) if pod.uid in uids)
        freed[position] = 100 * amount / max(nodes.capacity(resource)[nodes.row(name)], 1)
    return freed


def _limit(annotation: str, default: float) -> float:
    try:
        limit = float(annotation or default)
    except ValueError:
        return default
    return limit if 0 < limit <= 1000 else default
