"""Writes on nodes what they use, within a budget: one turn after the other, as long as the Lease is held.

Taints come first, then annotations, those first that are furthest from the truth. What the budget has no room for waits
for the next turn, and is by then what is true then.
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
from trimaran.soft_taints.hysteresis import HeatRule, loads_of
from trimaran.soft_taints.node_state import Marks, Object
from watcher.model import WatcherMetrics, averages

MERGE_PATCH = "application/merge-patch+json"
_WRITE_SECONDS = 10.0
_log = logging.getLogger(__name__)


class Mirror(Protocol):
    """What knows what is on nodes: :class:`trimaran.soft_taints.node_state.MarkMirror` has it."""

    def all(self) -> Mapping[str, Marks]:
        """Return what every node has."""
        ...

    def put(self, changed: Object) -> None:
        """Take a node that has changed."""
        ...


class Watcher(Protocol):
    """What is asked of the watcher: :class:`client.WatcherClient` has it."""

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return all nodes' metrics; raises ``ClientError`` where there are none."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write.

    Attributes:
        taints: whether hot nodes are tainted.
        rule: when a node is hot.
        taint_key: of the taint.
        windows: that annotations tell; none writes no annotations.
        step_percent: between the values of annotations.
        writes_per_minute: the budget, for all nodes together.
        max_age_seconds: older metrics are none.
    """

    taints: bool = True
    rule: HeatRule = field(default_factory=HeatRule)
    taint_key: str = "trimaran.io/hot"
    windows: tuple[str, ...] = ()
    step_percent: float = 5.0
    writes_per_minute: float = 60.0
    max_age_seconds: float = 300.0


@dataclass(slots=True)
class Counts:
    """What was done so far.

    Attributes:
        taints, annotations: writes that changed them; one may be both.
        conflicts: writes that were refused because somebody was faster.
        failures: others that failed.
        hot: nodes that are hot now.
        waiting: nodes whose write had no room in the budget at the last turn.
        turns: how many there were.
    """

    taints: int = 0
    annotations: int = 0
    conflicts: int = 0
    failures: int = 0
    hot: int = 0
    waiting: int = 0
    turns: int = 0


class Writer:
    """Plans and writes. For one thread; its counts may be read by any.

    Args:
        api: the API server.
        mirror: what is on nodes now.
        watcher: what nodes use.
        plan: what to write.
        is_held: whether we are the one that writes, asked before each write.
        clock: unix time.
        monotonic: a clock that is never set.
    """

    def __init__(
        self,
        api: Sender,
        mirror: Mirror,
        watcher: Watcher,
        plan: Plan,
        is_held: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._mirror, self._watcher, self._plan, self._is_held = api, mirror, watcher, plan, is_held
        self._clock, self._monotonic = clock, monotonic
        self._hot: dict[str, float] | None = None  # None: not known, as at the start and after others wrote
        self._room, self._room_at = plan.writes_per_minute, monotonic()
        self.counts = Counts()

    def turn(self) -> None:
        """Read the metrics, decide, and write what there is room for. Without the Lease nothing is asked."""
        if not self._is_held():
            self._hot = None
            return
        marks = self._mirror.all()
        due = sorted(self._due(marks), key=lambda each: each[0])
        self._refill()
        self.counts.turns += 1
        self.counts.waiting = 0
        for number, (_, name, patch) in enumerate(due):
            if self._room < 1 or not self._is_held():
                self.counts.waiting = len(due) - number
                break
            self._room -= 1
            self._write(name, patch)

    def clear(self) -> None:
        """Take everything of ours off all nodes, whatever the budget."""
        for name, has in self._mirror.all().items():
            patch = has.patch(self._plan.taint_key, hot=False, annotations=dict.fromkeys(has.annotations))
            if patch:
                self._write(name, patch)

    def _due(self, marks: Mapping[str, Marks]) -> Iterator[tuple[tuple[float, str], str, Object]]:
        """Yield each node's patch, after what it is sorted by: the lowest goes first."""
        hot = self._decide(marks) if self._plan.taints else None
        said = self._said(marks)
        for name, has in marks.items():
            is_hot = None if hot is None else name in hot
            change = said.get(name, {})
            patch = has.patch(self._plan.taint_key, hot=is_hot, annotations=change)
            if patch:
                urgency = -1000.0 if "spec" in patch else -annotations.distance(change, has.annotations)
                yield (urgency, name), name, patch

    def _decide(self, marks: Mapping[str, Marks]) -> Mapping[str, float]:
        now = self._monotonic()
        if self._hot is None:  # who is tainted was hot for a while: it may cool at once
            since = now - self._plan.rule.hold_seconds
            self._hot = {name: since for name, has in marks.items() if has.is_tainted(self._plan.taint_key)}
        snapshot = self._fresh(None)
        loads = {} if snapshot is None else loads_of(snapshot)
        # A node is hot since its taint was written, for which the budget may have had no room.
        before = {
            name: since if name in marks and marks[name].is_tainted(self._plan.taint_key) else now
            for name, since in self._hot.items()
        }
        self._hot = self._plan.rule.hot(marks, loads, before, now)  # in an outage nobody becomes hot
        self.counts.hot = len(self._hot)
        return self._hot

    def _said(self, marks: Mapping[str, Marks]) -> Mapping[str, Mapping[str, str | None]]:
        """Return what annotations are to say: of nodes that are not measured nothing changes."""
        said: dict[str, dict[str, str | None]] = {}
        for window in self._plan.windows:
            snapshot = self._fresh(window)
            for name, node in () if snapshot is None else snapshot.data.items():
                if name in marks:
                    written = marks[name].annotations
                    found = annotations.wanted(window, averages(node), written, self._plan.step_percent)
                    said.setdefault(name, {}).update(found)
        return said

    def _fresh(self, window: str | None) -> WatcherMetrics | None:
        try:
            snapshot = self._watcher.metrics(window)
        except ClientError as error:
            _log.warning("there are no metrics to write", extra={"window": window or "", "error": str(error)})
            return None
        return snapshot if abs(self._clock() - snapshot.timestamp) <= self._plan.max_age_seconds else None

    def _refill(self) -> None:
        now, budget = self._monotonic(), self._plan.writes_per_minute
        self._room = min(budget, self._room + (now - self._room_at) * budget / 60)
        self._room_at = now

    def _write(self, name: str, patch: Object) -> None:
        path, counts = f"/api/v1/nodes/{name}", self.counts
        try:
            changed = self._api.send("PATCH", path, Deadline.after(_WRITE_SECONDS), patch, MERGE_PATCH)
        except REQUEST_FAILURES as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status == requests.codes.conflict:
                counts.conflicts += 1  # it is tried again when the watch has told what changed
                return
            counts.failures += 1
            _log.warning("a node cannot be written", extra={"node": name, "error": str(error)})
            return
        counts.taints += "spec" in patch
        counts.annotations += "annotations" in patch.get("metadata", {})
        self._mirror.put(changed)
