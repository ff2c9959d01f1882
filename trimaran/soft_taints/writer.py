"""Writer of taints and annotations on nodes. It writes within a budget, and only while it holds the Lease.

The writer runs in cycles. A cycle writes taints first, then annotations, those with the largest changes first. Writes
over budget are deferred and recomputed in the next cycle. Nodes whose writes fail come last, and are retried with
backoff, so that they do not use up the budget of the others.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import requests

from client import ClientError
from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from trimaran.soft_taints import annotations
from trimaran.soft_taints.backoff import NodeBackoff
from trimaran.soft_taints.hysteresis import HotNodeRule, node_loads
from trimaran.soft_taints.node_state import NodeState, NodeStateCache, Object
from watcher.model import WatcherMetrics, averages

MERGE_PATCH = "application/merge-patch+json"
WRITE_SECONDS = 10.0
_CYCLE_SECONDS = 60.0  # of writes, so that nodes whose writes time out delay new metrics by no more than this
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
        write_seconds: time limit of a write.
    """

    taints: bool = True
    rule: HotNodeRule = field(default_factory=HotNodeRule)
    taint_key: str = "trimaran.io/hot"
    windows: tuple[str, ...] = ()
    step_percent: float = 5.0
    writes_per_minute: float = 60.0
    max_age_seconds: float = 300.0
    write_seconds: float = WRITE_SECONDS


@dataclass(slots=True)
class WriterCounts:
    """Counters and gauges of the node writer.

    Attributes:
        taints, annotations: patches that changed taints and annotations; a patch can count as both.
        conflicts: patches refused because the node had changed meanwhile.
        failures: patches that failed otherwise.
        hot: nodes that are hot now.
        deferred: nodes whose write was over budget in the last cycle.
        failing: nodes whose last patch failed.
        cycles: finished cycles.
        known: nodes of the cluster.
        metrics_at: time of the newest metrics that were read, Unix seconds; 0 if there were none.
    """

    taints: int = 0
    annotations: int = 0
    conflicts: int = 0
    failures: int = 0
    hot: int = 0
    deferred: int = 0
    failing: int = 0
    cycles: int = 0
    known: int = 0
    metrics_at: float = 0.0


class NodeWriter:
    """Writer that computes and sends the patches of nodes. Not thread-safe, but any thread may read ``counts``.

    Args:
        api: Kubernetes API.
        nodes: current state of the nodes.
        watcher: source of the metrics.
        plan: options of the writer.
        term: returns the number of the Lease's current term, None if this process does not hold the Lease; called
            before each write. A cycle ends with the term in which it began.
        clock: Unix time.
        monotonic: monotonic clock.
    """

    def __init__(
        self,
        api: Sender,
        nodes: NodeStateCache,
        watcher: MetricsSource,
        plan: WritePlan,
        term: Callable[[], int | None] = lambda: 1,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._nodes, self._watcher, self._plan, self._term = api, nodes, watcher, plan, term
        self._clock, self._monotonic = clock, monotonic
        self._hot: dict[str, float] | None = None  # None: unknown, at the start and after another replica wrote
        self._hot_in: int | None = None  # the term in which the hot nodes were decided
        self._tokens, self._refilled_at = plan.writes_per_minute, monotonic()
        self._backoff = NodeBackoff()
        self.counts = WriterCounts()

    def run_cycle(self) -> None:
        """Read the metrics, decide which nodes are hot, and patch nodes within the budget. No-op without the Lease."""
        term = self._term()
        if term != self._hot_in:
            self._hot, self._hot_in = None, term
        if term is None:
            return
        states = self._nodes.all()
        self._backoff.keep_only(states)
        due = sorted(self._due_patches(states), key=lambda each: each[0])
        self._refill_tokens()
        self.counts.cycles += 1
        self.counts.known = len(states)
        self.counts.deferred = 0
        ends_at = self._monotonic() + _CYCLE_SECONDS
        for number, (_, name, patch) in enumerate(due):
            # After an interruption of the Lease, as by a suspension, the loads and states that were read are outdated.
            if self._tokens < 1 or self._monotonic() >= ends_at or self._term() != term:
                self.counts.deferred = len(due) - number
                break
            self._tokens -= 1
            self._write(name, patch)
        self.counts.failing = len(self._backoff)

    def clear(self) -> int:
        """Remove the taint and the load annotations from all nodes, regardless of the budget.

        Returns the number of nodes that could not be written. A node that changes meanwhile is tried a second time.
        """
        failed = list(self._nodes.all())
        for _ in range(2):
            failed = [name for name in failed if not self._clear(name)]
        return len(failed)

    def _clear(self, name: str) -> bool:
        state = self._nodes.get(name)
        if state is None:  # deleted meanwhile
            return True
        patch = state.patch(self._plan.taint_key, hot=False, annotations=dict.fromkeys(state.annotations))
        return not patch or self._write(name, patch)

    def _due_patches(self, states: Mapping[str, NodeState]) -> Iterator[tuple[tuple[int, float, str], str, Object]]:
        """Yield sort key, node name and patch of each node that needs a patch; the lowest key is written first."""
        hot = self._decide_hot(states) if self._plan.taints else None
        changes = self._changed_annotations(states)
        now = self._monotonic()
        for name, state in states.items():
            is_hot = None if hot is None else name in hot
            change = changes.get(name, {})
            patch = state.patch(self._plan.taint_key, hot=is_hot, annotations=change)
            if patch and not self._backoff.is_waiting(name, now):
                urgency = -1000.0 if "spec" in patch else -annotations.largest_change(change, state.annotations)
                yield (self._backoff.failures(name), urgency, name), name, patch

    def _decide_hot(self, states: Mapping[str, NodeState]) -> Mapping[str, float]:
        now = self._monotonic()
        if self._hot is None:  # the age of found taints is unknown: treat it as long enough, so that nodes may cool
            since = now - self._plan.rule.min_hot_seconds
            self._hot = {name: since for name, state in states.items() if state.is_tainted(self._plan.taint_key)}
        snapshot = self._fresh_snapshot(None)
        loads = {} if snapshot is None else node_loads(snapshot)
        tainted = {name for name, state in states.items() if state.is_tainted(self._plan.taint_key)}
        # A node that cannot be tainted now must not take the place of one that can.
        unable = {name for name in states if self._backoff.is_waiting(name, now)} - tainted
        loads = {name: load for name, load in loads.items() if name not in unable}
        # The minimum time begins when the taint is written: until then the budget may have deferred it.
        before = {name: since if name in tainted else now for name, since in self._hot.items() if name not in unable}
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
        self.counts.metrics_at = snapshot.timestamp
        return snapshot if abs(self._clock() - snapshot.timestamp) <= self._plan.max_age_seconds else None

    def _refill_tokens(self) -> None:
        now, budget = self._monotonic(), self._plan.writes_per_minute
        self._tokens = min(budget, self._tokens + (now - self._refilled_at) * budget / 60)
        self._refilled_at = now

    def _write(self, name: str, patch: Object) -> bool:
        """Patch a node; return whether it succeeded."""
        path, counts = f"/api/v1/nodes/{name}", self.counts
        try:
            changed = self._api.send("PATCH", path, Deadline.after(self._plan.write_seconds), patch, MERGE_PATCH)
            if not _is_node(changed, name):
                raise UnexpectedResponse("the response is not the node")
        except REQUEST_FAILURES as error:
            self._backoff.record_failure(name, self._monotonic())
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status == requests.codes.conflict:
                counts.conflicts += 1  # succeeds once the watch has delivered the change
            else:
                counts.failures += 1
                _log.warning("node could not be patched", extra={"node": name, "error": str(error)})
            return False
        self._backoff.record_success(name)
        counts.taints += "spec" in patch
        counts.annotations += "annotations" in patch.get("metadata", {})
        self._nodes.put(changed)
        return True


def _is_node(response: object, name: str) -> bool:
    match response:
        case {"metadata": {"name": found}}:
            return bool(found == name)
    return False
