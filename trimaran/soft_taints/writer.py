"""Writer of taints and annotations on nodes. It writes within a budget, and only while it holds the Lease.

The writer runs in cycles. A cycle writes taints first, then annotations, those with the largest changes first. Writes
over budget are deferred and recomputed in the next cycle. Nodes whose writes fail come last, and are retried with
backoff; retries that fail take at most a tenth of the budget. A taint that is set or removed leaves a line in the log
and an Event on the node; Events are written after all patches of a cycle, so that they delay no taint.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import requests

from client import ClientError
from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes import object_requests
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.events import EventWriter
from runtime.kubernetes.paths import object_path
from runtime.outage_log import OutageLog
from trimaran.cluster.measured_nodes import why_unmeasured
from trimaran.soft_taints import annotations
from trimaran.soft_taints.backoff import NodeBackoff
from trimaran.soft_taints.hot_nodes import HotNodes
from trimaran.soft_taints.hysteresis import HotNodeRule
from trimaran.soft_taints.node_state import NodeState, NodeStateCache, Object, node_reference
from watcher.model import Grade, WatcherMetrics, averages

WRITE_SECONDS = 10.0
COMPONENT = "trimaran-nodes"
_EVENTS_SECONDS = 30.0  # for all Events of a cycle; the rest is dropped
_CYCLE_SECONDS = 60.0  # longest run of writes: writes that time out delay the next metrics by no more than this
_RETRY_SHARE = 0.1  # share of the write budget that failing retries may use
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
        refresh_seconds: age from which the time of an unchanged annotation is renewed.
        writes_per_minute: budget of writes for all nodes together.
        max_age_seconds: maximum age of the metrics; older metrics count as missing.
        write_seconds: time limit of a write.
        warm_rule: limits that decide when a node is warm; None for no taint on warm nodes.
        warm_taint_key: key of the taint on warm nodes.
        whole_number: whether the higher load of each window is annotated as one whole number, too.
    """

    taints: bool = True
    rule: HotNodeRule = field(default_factory=HotNodeRule)
    taint_key: str = "trimaran.io/hot"
    windows: tuple[str, ...] = ()
    step_percent: float = 5.0
    refresh_seconds: float = 600.0
    writes_per_minute: float = 60.0
    max_age_seconds: float = 300.0
    write_seconds: float = WRITE_SECONDS
    warm_rule: HotNodeRule | None = None
    warm_taint_key: str = "trimaran.io/warm"
    whole_number: bool = False

    def levels(self) -> tuple[HotNodes, HotNodes]:
        """Return the levels of taints: hot nodes and warm nodes."""
        return (
            HotNodes(self.rule, self.taint_key, "hot", off="" if self.taints else "nodes.taints is off"),
            HotNodes(
                self.warm_rule or self.rule, self.warm_taint_key, "warm",
                off="" if self.taints and self.warm_rule else "nodes.warm_percent is 0 or nodes.taints is off",
            ),
        )  # fmt: skip


@dataclass(slots=True)
class WriterCounts:
    """Counters and gauges of the node writer.

    Attributes:
        taints, annotations: patches that changed taints and annotations; a patch can count as both.
        conflicts: patches refused because the node had changed meanwhile.
        failures: patches that failed otherwise.
        hot, warm: nodes that are hot or warm now; hot nodes are warm, too.
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
    warm: int = 0
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
        self._levels = plan.levels()
        self._hot_in: int | None = None  # the term in which the hot nodes were decided
        self._measured_at: dict[str, float] = {}  # Unix time of the last fresh metrics, by window
        self._events = EventWriter(api, COMPONENT)
        self._tokens, self._refilled_at = plan.writes_per_minute, monotonic()
        self._retry_tokens = max(1.0, _RETRY_SHARE * plan.writes_per_minute)
        self._outages: dict[str | None, OutageLog] = defaultdict(
            lambda: OutageLog(_log, "no metrics to write on nodes", "metrics to write on nodes again", monotonic)
        )  # by window
        self._backoff = NodeBackoff()
        self.counts = WriterCounts()

    def run_cycle(self) -> None:
        """Read the metrics, decide which nodes are hot, and patch nodes within the budget. No-op without the Lease."""
        term = self._term()
        if term != self._hot_in:
            for level in self._levels:
                level.forget()
            self._hot_in = term
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
        written = []
        for number, (_, name, patch) in enumerate(due):
            is_retry = self._backoff.failures(name) > 0  # then all further patches are retries, too
            # After the process was suspended and lost the Lease, the loads and states that it read are outdated.
            is_over_budget = self._tokens < 1 or (is_retry and self._retry_tokens < 1)
            if is_over_budget or self._monotonic() >= ends_at or self._term() != term:
                self.counts.deferred = len(due) - number
                break
            self._tokens -= 1
            is_written = self._write(name, patch)
            if is_written and "spec" in patch:
                written.append(name)
            elif is_retry and not is_written:  # retries that succeed, as after an outage, are not limited
                self._retry_tokens -= 1
        self.counts.failing = len(self._backoff)
        self._report_taints(states, written)

    def _report_taints(self, before: Mapping[str, NodeState], names: list[str]) -> None:
        """Log the taints that were set or removed, and write Events about them."""
        deadline = Deadline.after(_EVENTS_SECONDS)
        written = ((name, level) for name in names for level in self._levels)
        for name, level in written:
            was_tainted = before[name].is_tainted(level.taint_key)
            if was_tainted == (name in level):
                continue
            reason = level.record_write(name, self._clock(), hot=not was_tainted)
            why = level.off or reason
            since = None if reason.since is None else annotations.timestamp(reason.since)
            _log.info(
                "node tainted" if reason.hot else "taint removed",
                extra={
                    "node": name, "level": level.level, "load_percent": reason.load,
                    "threshold_percent": reason.threshold, "since": since,
                },
            )  # fmt: skip
            if deadline.remaining_seconds():
                message = f"Taint {level.taint_key} {'set' if reason.hot else 'removed'}: {why}"
                subject = node_reference(name, before[name].uid)
                self._events.write(subject, reason.event, message, deadline)

    def _due_patches(self, states: Mapping[str, NodeState]) -> Iterator[tuple[tuple[Any, ...], str, Object]]:
        """Yield sort key, node name and patch of each node that needs a patch; the lowest key is written first."""
        now = self._monotonic()
        waiting = {name for name in states if self._backoff.is_waiting(name, now)}
        snapshot = self._fresh_snapshot(None, states) if self._plan.taints else None
        for level in self._levels:
            level.decide(states, snapshot, waiting, now)
        self.counts.hot, self.counts.warm = map(len, self._levels)
        snapshots = {window: self._fresh_snapshot(window, states) for window in self._plan.windows}
        self._measured_at |= {window: each.timestamp for window, each in snapshots.items() if each is not None}
        for name, state in states.items():
            if name in waiting:
                continue
            change = self._changed_annotations(name, state.annotations, snapshots)
            taints = {level.taint_key: name in level for level in self._levels}
            patch = state.patch(taints, annotations=change, now=self._clock())
            if patch:
                urgency = -1000.0 if "spec" in patch else -annotations.largest_change(change, state.annotations)
                age = annotations.oldest_time(state.annotations)
                yield (self._backoff.failures(name), urgency, age, name), name, patch

    def _changed_annotations(
        self, name: str, written: Mapping[str, str], snapshots: Mapping[str, WatcherMetrics | None]
    ) -> Mapping[str, str | None]:
        """Return the desired annotations of a node; None removes an annotation.

        Annotations of windows that are not configured are removed at once. Annotations of a window without a
        measurement are removed when they are too old.
        """
        plan, now = self._plan, self._clock()
        change: dict[str, str | None] = dict.fromkeys(
            written.keys()
            - {annotations.PREFIX + window for window in plan.windows}
            - {annotations.PREFIX + window + annotations.WHOLE_NUMBER for window in plan.windows if plan.whole_number}
        )
        for window, snapshot in snapshots.items():
            key = annotations.PREFIX + window
            node = None if snapshot is None else snapshot.data.get(name)
            desired = None
            if snapshot is not None and node is not None and node.metadata.get("grade") != Grade.LAST_GOOD:
                desired = annotations.desired_annotation(
                    averages(node), written.get(key, ""), snapshot.timestamp, plan.step_percent, plan.refresh_seconds
                )
            number_key = key + annotations.WHOLE_NUMBER
            if desired is not None:
                change[key] = desired
                if plan.whole_number:
                    change[number_key] = annotations.whole_number(desired)
            elif key in written:
                # In an outage, an annotation with an older time was still correct when the outage began.
                confirmed_at = self._measured_at.get(window, 0.0) if snapshot is None else 0.0
                measured_at = max(annotations.AnnotatedLoad.parse(written[key]).measured_at, confirmed_at)
                if abs(now - measured_at) > plan.max_age_seconds:
                    change |= {name: None for name in (key, number_key) if name in written}
        return change

    def _fresh_snapshot(self, window: str | None, nodes: Collection[str]) -> WatcherMetrics | None:
        try:
            snapshot = self._watcher.metrics(window).as_listed(nodes)
        except ClientError as error:
            self._outages[window].failed(str(error), window=window or "")
            return None
        if problem := why_unmeasured(nodes, snapshot):
            self._outages[window].failed(problem, window=window or "")
        else:
            self._outages[window].worked()
        self.counts.metrics_at = snapshot.timestamp
        return snapshot if abs(self._clock() - snapshot.timestamp) <= self._plan.max_age_seconds else None

    def _refill_tokens(self) -> None:
        now, budget = self._monotonic(), self._plan.writes_per_minute
        refilled = (now - self._refilled_at) * budget / 60
        self._tokens = min(budget, self._tokens + refilled)
        self._retry_tokens = min(max(1.0, _RETRY_SHARE * budget), self._retry_tokens + _RETRY_SHARE * refilled)
        self._refilled_at = now

    def _write(self, name: str, patch: Object) -> bool:
        """Patch a node; return whether it succeeded."""
        path, counts = object_path("Node", name), self.counts
        try:
            changed = object_requests.patch(self._api, path, patch, Deadline.after(self._plan.write_seconds))
            if not _is_node(changed, name):
                raise UnexpectedResponse("the response is not the node")
        except REQUEST_FAILURES as error:
            self._backoff.record_failure(name, self._monotonic())
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status == requests.codes.conflict:
                counts.conflicts += 1  # the next patch succeeds once the watch has delivered the change
            else:
                counts.failures += 1
                _log.warning("node could not be patched", extra={"node": name, "error": describe(error).reason})
            return False
        self._backoff.record_success(name)
        counts.taints += "spec" in patch
        counts.annotations += "annotations" in patch.get("metadata", {})
        self._nodes.put(changed)
        return True


def _is_node(response: object, name: str) -> bool:
    match response:
        case {"metadata": {"name": found, "resourceVersion": str(version)}} if version:
            return bool(found == name)  # without a version, the next patch would overwrite changes of others
    return False
