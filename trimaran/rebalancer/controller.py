"""Controller of the moves: follows evicted pods, searches for moves when a trigger fires, and makes or reports them.

In mode observe, and while the brake is set, the controller reports the moves that it would make, and makes none.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.http.failures import describe
from runtime.kubernetes.api import REQUEST_FAILURES
from runtime.outage_log import OutageLog
from trimaran.planning.move_triggers import ClusterSigns, Trigger, TriggerWatch
from trimaran.planning.moves import MoveCosts
from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.brake import brake_reason, pending_wait, why_failing
from trimaran.rebalancer.caps import HOUR, Caps
from trimaran.rebalancer.cluster_watch import ClusterWatch
from trimaran.rebalancer.facts import NodeBarrier
from trimaran.rebalancer.ledger import Brake, Ledger
from trimaran.rebalancer.ledger_store import LedgerConflict, LedgerStore, UnreadableLedger
from trimaran.rebalancer.lineage import CooldownClock, Member, replacements
from trimaran.rebalancer.look import ClusterLook, recent_moves
from trimaran.rebalancer.measured_use import UseReader, is_fragmented
from trimaran.rebalancer.mover import LeadershipLost, PodMover
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.note_cleaning import NoteCleaner
from trimaran.rebalancer.outcomes import followed, measured
from trimaran.rebalancer.plan import MovePlan, plan_moves
from trimaran.rebalancer.reports import MoveReporter, RebalancerCounts, gains
from trimaran.rebalancer.rules import MoveRules

_STALE_WATCH = 60.0  # seconds; a watch of the API server ends, and begins again, every 15
_CLOCK_JUMP = 60.0  # seconds by which the wall clock may deviate from the uptime between two cycles
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchSchedule:
    """Options that decide when a search begins.

    Attributes:
        acts: whether moves are made.
        triggers: events that start a search.
        hot_percent: load of a node at which the trigger ``load`` fires, percent.
        seconds: time between two searches.
    """

    acts: bool
    triggers: Sequence[Trigger] = (Trigger.TIME,)
    hot_percent: float = 80.0
    seconds: float = 300.0


@dataclass(frozen=True)
class PublishedPlan:
    """Last plan, for readers in other threads.

    Attributes:
        plan: the plan.
        look: state of the cluster that the plan was made for.
        acts: whether the moves of the plan are made.
        ledger: moves of the past day, and the brake.
        caps: number of moves and its limit, by cap.
    """

    plan: MovePlan
    look: ClusterLook | None
    acts: bool
    ledger: Ledger
    caps: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Rebalancer:
    """Controller of the moves. Not thread-safe, but any thread may read ``counts`` and ``published``.

    Args:
        watch: live state of the cluster.
        use: measured use of pods and nodes.
        mover: makes moves.
        store: storage of the ledger.
        reporter: writer of reports.
        counts: counters.
        rules: the limits.
        schedule: when to search, and whether to act.
        term: returns the number of the Lease's current term, None if this process does not hold the Lease.
        clock: Unix time.
        uptime: clock that never jumps.
    """

    def __init__(
        self,
        watch: ClusterWatch,
        use: UseReader,
        mover: Callable[[Callable[[], ClusterLook], Callable[[], bool]], PodMover],
        store: LedgerStore,
        reporter: MoveReporter,
        counts: RebalancerCounts,
        rules: MoveRules,
        schedule: SearchSchedule,
        term: Callable[[], int | None],
        clock: Callable[[], float],
        uptime: Callable[[], float],
    ) -> None:
        self._watch, self._use, self._make_mover, self._store = watch, use, mover, store
        self._reporter, self.counts, self._rules, self._schedule = reporter, counts, rules, schedule
        self._term, self._clock, self._uptime = term, clock, uptime
        self._costs = MoveCosts()
        self._cleaner = NoteCleaner(uptime)
        self._looks = BadLooks(rules.nodes.bad_looks, rules.nodes.good_looks)
        self._triggers = TriggerWatch(schedule.triggers, schedule.hot_percent)
        self._observed = Ledger()  # moves that were planned only
        self._searched_at, self._rest_until = -schedule.seconds, 0.0  # times on the uptime clock
        self._clock_rests_until = 0.0
        self._offset = clock() - uptime()
        self._outage = OutageLog(_log, "no search for moves", "moves are searched for again")
        self._was_acting = False
        self._failing: dict[str, float] = {}  # by UID of a replacement that cannot start: uptime of its first failure
        self._hold = ""  # why no further pod moves now
        self.published = self._unsearched()

    def run_cycle(self) -> bool:
        """Follow the evicted pods, and search for moves if a trigger fires; return whether the watches are synced."""
        if not self._watch.is_synced:
            return False
        self._check_clock()
        term = self._term() if self._schedule.acts else None
        if self._schedule.acts and term is None:
            self._looks.forget()
            self._was_acting = False
            return True
        try:
            ledger = self._store.read() if self._schedule.acts else Ledger()
            if self._schedule.acts and self._can_judge():
                ledger = self._follow(ledger)
            self._search_if_due(ledger, term)
            if self._schedule.acts and self._can_judge():  # after the search, which tenants must not delay
                moving = {record.uid for record in self.published.ledger.open_records()}
                self._cleaner.clean(self._watch.noted_pods(), moving, self._mover(term))
        except (LeadershipLost, LedgerConflict, UnreadableLedger) as error:
            self._outage.failed(str(error) or "another replica took the Lease")
        except REQUEST_FAILURES as error:
            self._outage.failed(f"the ledger cannot be read or written: {describe(error).reason}")
        return True

    def _unsearched(self) -> PublishedPlan:
        return PublishedPlan(MovePlan(nothing="no search yet"), None, self._schedule.acts, Ledger())

    def _can_judge(self) -> bool:
        """Return whether the watches are fresh and the clock did not jump, so that pods and their ages are known."""
        return self._watch.age_seconds <= _STALE_WATCH and self._uptime() >= self._clock_rests_until

    def _follow(self, ledger: Ledger) -> Ledger:
        """Update the moves whose replacement is awaited, and set the brake if something goes wrong."""
        look, before = self._look(), ledger
        over: list[MoveRecord] = []
        for record in list(followed(look, ledger.records, self._rules)):
            known = ledger.find(record.key)
            ledger = ledger.put(record)
            if known is not None and known.is_open and not record.is_open:
                over.append(record)
        wait = pending_wait(look.all_members(), {record.replacement for record in ledger.records}, look.now)
        if not any(record.is_made and look.now - record.planned_at < HOUR for record in ledger.records):
            ledger = replace(ledger, wait=round(wait, 1))
        replaced = list(replacements(ledger.records, look.members))
        failing = self._failures(replaced)
        if ledger.brake is None:
            waits = ledger.wait, wait
            found = brake_reason(ledger.records, replaced, waits, self._rules.brake, look.now, failing)
            if found is not None:
                brake = Brake(*found, look.now)
                ledger = ledger.with_brake(brake)
        # A growing wait alone is not worth a write: the next cycle measures the wait again.
        if replace(ledger, wait=before.wait) != before or abs(ledger.wait - before.wait) > HOUR / 60:
            self._store.write(ledger)
        # Report after the write: if the write fails, the next cycle finds the same ended moves again.
        for record in over:
            self._count_end(record)
            self._reporter.over(record)
        if ledger.brake is not None and before.brake is None:
            self._reporter.braked(ledger.brake)
        self.counts.open = len(ledger.open_records())
        self.counts.twice = CooldownClock(self._rules.cooldowns, ledger.records).moved_twice()
        return ledger

    def _failures(self, replaced: Sequence[tuple[MoveRecord, Member]]) -> dict[str, float]:
        """Return for how many seconds replacements have failed to start, by UID, and hold further moves meanwhile.

        A crashing container runs between its crashes, so a replacement that failed once counts until it is Ready.
        """
        now, earlier, self._failing, self._hold = self._uptime(), self._failing, {}, ""
        for record, member in replaced:
            uid, facts = member.pod.uid, member.facts
            if facts.ready_at is None and (facts.failing or uid in earlier):
                self._failing[uid] = earlier.get(uid, now)
                self._hold = self._hold or f"{why_failing(record, member)}; no pod moves until it is Ready"
        return {uid: now - since for uid, since in self._failing.items()}

    def _count_end(self, record: MoveRecord) -> None:
        if record.state is MoveState.LANDED:
            self.counts.moves["landed" if record.landed_on == record.target else "elsewhere"] += 1
        else:
            self.counts.moves[str(record.state)] += 1

    def _search_if_due(self, ledger: Ledger, term: int | None) -> None:
        acts = self._schedule.acts and ledger.brake is None
        if acts != self._was_acting:
            self._looks.forget()
            if acts:  # what was only planned under the brake must not delay what is made after it
                self._observed, self.published = Ledger(), self._unsearched()
        self._was_acting = acts
        passed = self._uptime() - self._searched_at
        if acts and self._hold:
            self._outage.failed(self._hold)
            self._publish(MovePlan(nothing=self._hold), self.published.look, ledger, acts=acts)
            return
        self._publish(self.published.plan, self.published.look, ledger, acts=acts)
        if passed < self._schedule.seconds:
            return
        signs = self._signs(ledger)
        if self._triggers.fired(signs) is None and not self._looks.is_counting:
            return
        self._triggers.searched(signs)
        self._searched_at = self._uptime()
        if why := self._refresh():
            self._looks.forget()
            self._outage.failed(why)
            self._publish(MovePlan(nothing=why), None, ledger, acts=acts)
            return
        look = self._look()
        ledger = self._measure(look, ledger)
        self._search(look, ledger, term, acts=acts)

    def _search(self, look: ClusterLook, ledger: Ledger, term: int | None, *, acts: bool) -> None:
        """Search for moves, and make or report them."""
        rules = self._rules if acts else replace(self._rules, holdout_percent=0.0)
        records = self._counting(ledger)
        plan = plan_moves(look, records, rules, self._looks, self._costs)
        counts = self.counts
        counts.searches, counts.planned, counts.hot = counts.searches + 1, len(plan.moves), len(plan.hot)
        counts.stays, counts.used_at = plan.refused(), look.use.timestamp
        if plan.nothing:
            self._outage.failed(plan.nothing)
        else:  # the watcher's clock agrees with ours
            self._outage.worked()
            ledger = ledger.pruned(look.now)
        inputs = {
            "use_age_seconds": round(look.now - look.use.timestamp),
            "caps": Caps(rules.caps, records, len(look.running), look.now).usage(),
        }
        if acts:
            ledger = self._act(plan, ledger, term, inputs)
        else:
            for move in plan.moves:
                self._reporter.planned(move, inputs)
            held = (move.record.changed(state=MoveState.HELD) for move in plan.moves)
            self._observed = self._observed.put_all(held).pruned(look.now)
        self._publish(plan, look, ledger, acts=acts)

    def _act(self, plan: MovePlan, ledger: Ledger, term: int | None, inputs: Mapping[str, Any]) -> Ledger:
        """Make the moves of a plan; return the ledger with these moves."""
        if plan.held:
            ledger = ledger.put_all(move.record for move in plan.held)
            self._store.write(ledger)
            for move in plan.held:
                self._reporter.planned(move, inputs, held=True)
        mover = self._mover(term)
        for move in plan.moves:
            if self._uptime() < self._rest_until or self._watch.age_seconds > _STALE_WATCH:
                break
            ledger, wait = mover.move(move, ledger, inputs)
            if wait is not None:
                self._rest_until = self._uptime() + wait
        self.counts.open = len(ledger.open_records())
        return ledger

    def _measure(self, look: ClusterLook, ledger: Ledger) -> Ledger:
        """Measure the gains of moves that are due; return the ledger with these gains."""
        found = list(measured(look, ledger.records, self._rules, self._costs))
        if found:
            ledger = ledger.put_all(found)
            self._store.write(ledger)
        observed = list(measured(look, self._observed.records, self._rules, self._costs))
        self._observed = self._observed.put_all(observed)
        for record in (*found, *observed):
            self._reporter.measured(record)
        self.counts.gains, self.counts.measured = gains([*ledger.records, *self._observed.records])
        return ledger

    def _refresh(self) -> str:
        """Read the use of pods and nodes; return the reason if the use is missing or too old."""
        if self._watch.age_seconds > _STALE_WATCH:
            return f"the API server is silent for {self._watch.age_seconds:.0f} s"
        gone = [record.uid for record in self.published.ledger.records if record.is_made]
        return self._use.refresh(self._watch.node_names(), gone)

    def _look(self) -> ClusterLook:
        return self._watch.look(self._use.pods, self._use.loads, self._use.window, self._clock())

    def _mover(self, term: int | None) -> PodMover:
        return self._make_mover(self._look, lambda: term is not None and self._term() == term)

    def _signs(self, ledger: Ledger) -> ClusterSigns:
        look = self._look()
        return ClusterSigns(
            interval_passed=True,
            names=tuple(name for name, facts in look.nodes.items() if NodeBarrier.NOT_READY not in facts.barriers),
            running=len(look.running),
            loads=lambda: self._use.node_loads(recent_moves(look.table, ledger.records)),
            is_fragmented=lambda: is_fragmented(look),
        )

    def _check_clock(self) -> None:
        """Rest for an hour after a jump of the clock: no window of time can be trusted."""
        offset = self._clock() - self._uptime()
        if abs(offset - self._offset) > _CLOCK_JUMP:
            self._rest_until = self._clock_rests_until = self._uptime() + HOUR
            _log.warning("the clock jumped: no moves for an hour", extra={"seconds": round(offset - self._offset)})
        self._offset = offset

    def _counting(self, ledger: Ledger) -> list[MoveRecord]:
        """Return the moves that caps and cooldowns count; a move that was only planned counts as made."""
        return [*ledger.records, *(each.changed(state=MoveState.LANDED) for each in self._observed.records)]

    def _publish(self, plan: MovePlan, look: ClusterLook | None, ledger: Ledger, *, acts: bool) -> None:
        running = 0 if look is None else len(look.running)
        caps = Caps(self._rules.caps, self._counting(ledger), running, self._clock()).usage()
        merged = ledger.put_all(self._observed.records)
        self.published = PublishedPlan(plan, look, acts, merged, caps)
