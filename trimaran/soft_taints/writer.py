"""Writer of taints and annotations on nodes. It writes within a budget, and only while it holds the Lease.

The writer runs in cycles. A cycle writes taints first, then annotations, those with the largest changes first. Writes
over budget are deferred and recomputed in the next cycle.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import requests

from client import ClientError
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from trimaran.soft_taints import annotations
from trimaran.soft_taints.hysteresis import HotNodeRule, node_loads
from trimaran.soft_taints.node_state import NodeState, NodeStateCache, Object
from watcher.model import WatcherMetrics, averages

MERGE_PATCH = "application/merge-patch+json"
_WRITE_SECONDS = 10.0
_log = logging.getLogger(__name__)


class MetricsSource(Protocol):
    """Source of metrics: :class:`client.WatcherClient` implements it."""

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics of all nodes. Raises ``ClientError`` if there are none."""
        ...


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Options of the node writer.

    Attributes:
        taints: whether hot nodes are tainted.
        rule: limits that decide when a node is hot.
        taint_key: key of the taint.
        windows: windows whose average load is annotated, such as ``15m``; empty for no annotations.
        step_percent: annotated loads are multiples of this step, percent.
        writes_per_minute: budget of writes for all nodes together.
        max_age_seconds: maximum age of the metrics; older metrics count as missing.
    """

    taints: bool = True
    rule: HotNodeRule = field(default_factory=HotNodeRule)
    taint_key: str = "trimaran.io/hot"
    windows: tuple[str, ...] = ()
    step_percent: float = 5.0
    writes_per_minute: float = 60.0
    max_age_seconds: float = 300.0


@dataclass(slots=True)
class WriterCounts:
    """Counters and gauges of the node writer.

    Attributes:
        taints, annotations: patches that changed taints and annotations; a patch can count as both.
        conflicts: patches refused because the node had changed meanwhile.
        failures: patches that failed otherwise.
        hot: nodes that are hot now.
        deferred: nodes whose write was over budget in the last cycle.
        cycles: finished cycles.
    """

    taints: int = 0
    annotations: int = 0
    conflicts: int = 0
    failures: int = 0
    hot: int = 0
    deferred: int = 0
    cycles: int = 0


class NodeWriter:
    """Writer that computes and sends the patches of nodes. Not thread-safe, but any thread may read ``counts``.

    Args:
        api: Kubernetes API.
        nodes: current state of the nodes.
        watcher: source of the metrics.
        plan: options of the writer.
        is_held: returns whether this process holds the Lease; called before each write.
        clock: Unix time.
        monotonic: monotonic clock.
    """

    def __init__(
        self,
        api: Sender,
        nodes: NodeStateCache,
        watcher: MetricsSource,
        plan: WritePlan,
        is_held: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._nodes, self._watcher, self._plan, self._is_held = api, nodes, watcher, plan, is_held
        self._clock, self._monotonic = clock, monotonic
        self._hot: dict[str, float] | None = None  # None: unknown, at the start and after another replica wrote
        self._tokens, self._refilled_at = plan.writes_per_minute, monotonic()
        self.counts = WriterCounts()

    def run_cycle(self) -> None:
        """Read the metrics, decide which nodes are hot, and patch nodes within the budget. No-op without the Lease."""
        if not self._is_held():
            self._hot = None
            return
        states = self._nodes.all()
        due = sorted(self._due_patches(states), key=lambda each: each[0])
        self._refill_tokens()
        self.counts.cycles += 1
        self.counts.deferred = 0
        for number, (_, name, patch) in enumerate(due):
            if self._tokens < 1 or not self._is_held():
                self.counts.deferred = len(due) - number
                break
            self._tokens -= 1
            self._write(name, patch)

    def clear(self) -> None:
        """Remove the taint and the load annotations from all nodes, regardless of the budget."""
        for name, state in self._nodes.all().items():
            patch = state.patch(self._plan.taint_key, hot=False, annotations=dict.fromkeys(state.annotations))
            if patch:
                self._write(name, patch)

    def _due_patches(self, states: Mapping[str, NodeState]) -> Iterator[tuple[tuple[float, str], str, Object]]:
        """Yield sort key, node name and patch of each node that needs a patch; the lowest key is written first."""
        hot = self._decide_hot(states) if self._plan.taints else None
        changes = self._changed_annotations(states)
        for name, state in states.items():
            is_hot = None if hot is None else name in hot
            change = changes.get(name, {})
            patch = state.patch(self._plan.taint_key, hot=is_hot, annotations=change)
            if patch:
                urgency = -1000.0 if "spec" in patch else -annotations.largest_change(change, state.annotations)
                yield (urgency, name), name, patch

    def _decide_hot(self, states: Mapping[str, NodeState]) -> Mapping[str, float]:
        now = self._monotonic()
        if self._hot is None:  # the age of found taints is unknown: treat it as long enough, so that nodes may cool
            since = now - self._plan.rule.min_hot_seconds
            self._hot = {name: since for name, state in states.items() if state.is_tainted(self._plan.taint_key)}
        snapshot = self._fresh_snapshot(None)
        loads = {} if snapshot is None else node_loads(snapshot)
        # The minimum time begins when the taint is written: until then the budget may have deferred it.
        before = {
            name: since if name in states and states[name].is_tainted(self._plan.taint_key) else now
            for name, since in self._hot.items()
        }
        self._hot = self._plan.rule.hot_nodes(states, loads, before, now)  # without loads no node becomes hot
        self.counts.hot = len(self._hot)
        return self._hot

    def _changed_annotations(self, states: Mapping[str, NodeState]) -> Mapping[str, Mapping[str, str | None]]:
        """Return the desired annotations by node name; nodes that are not measured keep their annotations."""
        changes: dict[str, dict[str, str | None]] = {}
        for window in self._plan.windows:
            snapshot = self._fresh_snapshot(window)
            for name, node in () if snapshot is None else snapshot.data.items():
                if name in states:
                    written = states[name].annotations
                    desired = annotations.desired_annotation(window, averages(node), written, self._plan.step_percent)
                    changes.setdefault(name, {}).update(desired)
        return changes

    def _fresh_snapshot(self, window: str | None) -> WatcherMetrics | None:
        try:
            snapshot = self._watcher.metrics(window)
        except ClientError as error:
            _log.warning("no metrics to write on nodes", extra={"window": window or "", "error": str(error)})
            return None
        return snapshot if abs(self._clock() - snapshot.timestamp) <= self._plan.max_age_seconds else None

    def _refill_tokens(self) -> None:
        now, budget = self._monotonic(), self._plan.writes_per_minute
        self._tokens = min(budget, self._tokens + (now - self._refilled_at) * budget / 60)
        self._refilled_at = now

    def _write(self, name: str, patch: Object) -> None:
        path, counts = f"/api/v1/nodes/{name}", self.counts
        try:
            changed = self._api.send("PATCH", path, Deadline.after(_WRITE_SECONDS), patch, MERGE_PATCH)
        except REQUEST_FAILURES as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status == requests.codes.conflict:
                counts.conflicts += 1  # retried once the watch has delivered the change
                return
            counts.failures += 1
            _log.warning("node could not be patched", extra={"node": name, "error": str(error)})
            return
        counts.taints += "spec" in patch
        counts.annotations += "annotations" in patch.get("metadata", {})
        self._nodes.put(changed)
