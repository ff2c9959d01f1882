"""Field trial in the running extender: it follows the schedule, measures its blocks, and stops on harm.

Every replica measures every block from the same metrics and bindings; the first one that writes a block's record wins.
The state is read again in every cycle, so a stop by one replica holds for all. A replica that cannot read the state for
the length of a block does not act.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from client import ClientError, Collector
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.threads import TurnGuard, start_thread
from scoring import Pod
from trimaran.extender.trial.outcomes import BlockRecord, BlockSampler, BoundPod
from trimaran.extender.trial.report import trial_document
from trimaran.extender.trial.state import TrialPlan, TrialState
from trimaran.extender.trial.store import TrialStore, UnreadableTrial

_MOST_BOUND = 100_000  # bound pods to remember between two cycles
_MOST_UNSAVED = 20  # blocks to remember while the API server is unreachable
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrialSources:
    """Inputs of a field trial, and its callback for Events.

    Attributes:
        metrics: source of the metrics.
        schedulers: scheduler names of the pods that count.
        can_act: returns whether the extender could act now.
        ask: returns the value of a PromQL query; None without a value.
        announce: called with the reason of an Event, its message, and whether somebody should act.
    """

    metrics: Collector
    schedulers: Collection[str]
    can_act: Callable[[], bool] = lambda: True
    ask: Callable[[str], float | None] = lambda _: None
    announce: Callable[[str, str, bool], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class _RunningTrial:
    plan: TrialPlan
    state: TrialState
    read_at: float  # monotonic


class FieldTrial:
    """Field trial with a thread of its own. :meth:`acts`, :meth:`add_bound` and the properties are thread-safe.

    Args:
        api: Kubernetes API.
        namespace: namespace of the ConfigMap with the trial's state.
        plan: returns the current settings of the trial; None while the extender is in another mode.
        sources: sources of the outcomes.
        cycle_seconds: time between two cycles.
        late_seconds: longest wait for the last metrics of a block, after the end of the block.
        clock: Unix time.
        monotonic: monotonic clock.
    """

    def __init__(
        self,
        api: Sender,
        namespace: str,
        plan: Callable[[], TrialPlan | None],
        sources: TrialSources,
        cycle_seconds: float = 15.0,
        late_seconds: float = 300.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._namespace, self._plan, self._sources = api, namespace, plan, sources
        self._cycle_seconds, self._late_seconds = cycle_seconds, late_seconds
        self._clock, self._monotonic = clock, monotonic
        self._bound: deque[BoundPod] = deque(maxlen=_MOST_BOUND)
        self._samplers: dict[int, BlockSampler] = {}
        self._unsaved: deque[BlockRecord] = deque(maxlen=_MOST_UNSAVED)
        self._planned: TrialPlan | None = None
        self._store: TrialStore | None = None
        self._running: _RunningTrial | None = None
        self._problem = ""
        self._stop = threading.Event()
        self._turns = TurnGuard(_log, "the field trial could not be continued", "the field trial is continued")
        self._thread: threading.Thread | None = None

    @property
    def problem(self) -> str:
        """Reason why the trial cannot continue, so that the extender is in shadow; "" if there is none."""
        return self._problem

    @property
    def state(self) -> TrialState | None:
        """State of the trial; None before it is read, and if the mode is not ``trial``."""
        running = self._running
        return None if running is None else running.state

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread(self._run, "trial")

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def acts(self) -> bool:
        """Return whether the extender acts now."""
        running = self._running
        if running is None or self._monotonic() - running.read_at > running.plan.schedule.block_seconds:
            return False
        return running.state.acts(running.plan.schedule, self._clock())

    def add_bound(self, pod: Pod, created_at: float | None) -> None:
        """Add a pod that was bound just now; see :data:`trimaran.cluster.view.OnBound`."""
        if pod.scheduled_at is not None and created_at is not None and pod.scheduler_name in self._sources.schedulers:
            self._bound.append(BoundPod(pod.node_name, created_at, pod.scheduled_at))

    def document(self) -> dict[str, Any] | None:
        """Return the report as a JSON object; None without a trial."""
        running = self._running
        if running is None:
            return None
        now = self._clock()
        return trial_document(running.plan, running.state, now, is_acting=self.acts(), problem=self._problem)

    def run_cycle(self) -> None:
        """Read the state, observe the current block, and record the blocks that are over."""
        plan = self._plan()
        if plan != self._planned:
            self._planned, self._running, self._problem = plan, None, ""
            self._samplers.clear()
            self._unsaved.clear()
            self._store = None if plan is None else TrialStore(self._api, self._namespace, plan.schedule.name)
        bound = [self._bound.popleft() for _ in range(len(self._bound))]
        if plan is None or self._store is None:
            return
        self._refresh(plan, self._store)
        self._observe(plan, bound)
        self._save(plan, self._store)

    def _run(self) -> None:
        while not self._stop.wait(self._cycle_seconds):
            self.run_turn()

    def run_turn(self) -> None:
        """Run a cycle of the thread; after an unexpected error stop acting, because harm would not be measured."""
        self._turns.run(self.run_cycle, None)
        if self._turns.failure:
            self._refuse(self._turns.failure)

    def _refresh(self, plan: TrialPlan, store: TrialStore) -> None:
        """Read the state, and begin the trial if there is none."""
        read_at, window = self._monotonic(), self._window_seconds()
        if plan.schedule.block_seconds < 2 * window:
            self._refuse(
                f"extender.trial_block_seconds = {plan.schedule.block_seconds}: must be at least twice the window of "
                f"the metrics, {window} s"
            )
            return
        try:
            state = store.read()
            if state is None:
                state = TrialState.begin(plan, self._clock())
                if not store.write(state):
                    return  # another replica has begun it: the next cycle reads its state
                _log.info("a field trial begins with the next pair of blocks", extra=_about(plan, state))
        except UnreadableTrial as error:
            self._refuse(str(error))
            return
        except REQUEST_FAILURES as error:
            self._set_problem(store.explain(error))
            return
        if state.plan != plan.as_document():
            changed = sorted(name for name, value in plan.as_document().items() if state.plan.get(name) != value)
            self._refuse(
                f"the trial {plan.schedule.name} was begun with other settings ({', '.join(changed)}); restore them, "
                "or choose another extender.trial_name"
            )
            return
        self._set_problem("")
        self._set_state(plan, state, read_at)

    def _set_state(self, plan: TrialPlan, state: TrialState, read_at: float) -> None:
        before = self.state
        self._running = _RunningTrial(plan, state, read_at)
        if state.stopped_at is not None and (before is None or before.stopped_at is None):
            _log.warning("the field trial was stopped: the extender is in shadow", extra=_about(plan, state))

    def _observe(self, plan: TrialPlan, bound: list[BoundPod]) -> None:
        """Add the new bound pods and metrics to the samplers of the blocks; close the samplers whose block is over."""
        now, running = self._clock(), self._running
        block = plan.schedule.block_at(now)
        if running is not None and running.state.stopped_at is None and running.state.includes(block.pair):
            sampler = self._samplers.setdefault(block.number, BlockSampler(block, plan.thresholds))
            sampler.spoiled |= not self._sources.can_act() or self.acts() != block.active
        try:
            snapshot = self._sources.metrics.snapshot()
        except ClientError:
            snapshot = None
        for number, sampler in sorted(self._samplers.items()):
            for pod in bound:
                sampler.add_bound(pod)
            if snapshot is not None:
                sampler.add_snapshot(snapshot)
            # The last window of a block arrives after its end.
            until = sampler.block.end
            if now > until + self._late_seconds or (snapshot is not None and snapshot.window.end > until <= now):
                del self._samplers[number]
                self._close_block(plan, sampler)

    def _close_block(self, plan: TrialPlan, sampler: BlockSampler) -> None:
        record = sampler.record(self._sources.ask(plan.query) if plan.query else None)
        if record is not None:
            self._unsaved.append(record)
            return
        _log.warning(
            "a block of the field trial does not count: metrics are missing, or the extender could not act",
            extra={"trial": plan.schedule.name, "block": sampler.block.number},
        )

    def _save(self, plan: TrialPlan, store: TrialStore) -> None:
        """Add the measured blocks to the stored state. If the API server fails, the next cycle tries again."""
        while self._unsaved:
            try:
                if not self._add(plan, store, self._unsaved[0]):
                    return
            except (UnreadableTrial, *REQUEST_FAILURES) as error:
                self._set_problem(store.explain(error))
                return
            self._unsaved.popleft()

    def _add(self, plan: TrialPlan, store: TrialStore, record: BlockRecord) -> bool:
        """Add a block to the stored state, and stop the trial if its blocks show harm; return whether it is stored.

        The block is not stored if another replica wrote the state at the same time.
        """
        read_at = self._monotonic()
        state = store.read()
        if state is None:
            return False  # deleted: the next cycle begins the trial again
        changed = state.with_block(record, plan.harm_points, self._clock())
        if changed != state and not store.write(changed):
            return False
        self._set_state(plan, changed, read_at)
        if changed.stopped_at is not None and state.stopped_at is None:
            self._sources.announce("TrialStopped", f"The extender is back in shadow: {changed.reason}", True)
        elif (
            changed != state and record.number // 2 == state.first_pair + plan.schedule.pairs - 1 and record.number % 2
        ):
            self._sources.announce("TrialEnded", "The extender is in shadow. See trimaran extender trial", False)
        return True

    def _window_seconds(self) -> int:
        """Return the length of the metrics' window; 0 without metrics."""
        try:
            window = self._sources.metrics.snapshot().window
        except ClientError:
            return 0
        return window.end - window.start

    def _refuse(self, problem: str) -> None:
        """Stop acting because of a problem."""
        self._running = None
        self._set_problem(problem)

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.error("the field trial cannot continue: the extender is in shadow", extra={"why": problem})
        self._problem = problem


def _about(plan: TrialPlan, state: TrialState) -> dict[str, Any]:
    begin = plan.schedule.block(2 * state.first_pair).start
    return {"trial": plan.schedule.name, "begins_at": begin, "blocks": len(state.blocks), "why": state.reason}
