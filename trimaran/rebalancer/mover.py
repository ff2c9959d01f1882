"""Steps of one move. If the process is killed after any step, the next leader continues from there.

1  check the move again, with the newest state
2  record it in the ledger, where it counts for the caps from now on
3  annotate the pod with the target
4  request the eviction
5  record the answer; remove the annotation if the pod stays
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimaran.cluster.target_note import TargetNote
from trimaran.rebalancer.evictions import EvictionAnswer, EvictionOutcome, Evictor
from trimaran.rebalancer.ledger import Ledger
from trimaran.rebalancer.ledger_store import LedgerStore
from trimaran.rebalancer.lineage import refused
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.moves import MoveRecord, MoveState
from trimaran.rebalancer.plan import PlannedMove
from trimaran.rebalancer.recheck import objection
from trimaran.rebalancer.reports import MoveReporter, RebalancerCounts
from trimaran.rebalancer.rules import MoveRules

_STOPPING = frozenset({EvictionAnswer.OVERLOAD, EvictionAnswer.FORBIDDEN, EvictionAnswer.UNKNOWN})


class LeadershipLost(Exception):
    """This process no longer holds the Lease: its view of the cluster may be outdated."""


@dataclass(frozen=True)
class PodMover:
    """Mover of single pods.

    Attributes:
        evictor: client of the Eviction API.
        store: storage of the ledger.
        reporter: writer of reports.
        counts: counters.
        rules: the limits.
        look: returns the newest state of the cluster.
        leads: returns whether this process still holds the Lease, in the term in which the cycle began.
        clock: Unix time.
    """

    evictor: Evictor
    store: LedgerStore
    reporter: MoveReporter
    counts: RebalancerCounts
    rules: MoveRules
    look: Callable[[], ClusterLook]
    leads: Callable[[], bool]
    clock: Callable[[], float]

    def move(self, planned: PlannedMove, ledger: Ledger, inputs: Mapping[str, Any]) -> tuple[Ledger, float | None]:
        """Make a planned move; return the ledger, and how long to wait with further moves, None for no wait.

        Raises:
            LeadershipLost: the Lease is lost; the move may be recorded, and is settled by the next leader.
            LedgerConflict: another process wrote the ledger.
            requests.RequestException, OSError: the ledger could not be written.
        """
        look, record = self.look(), planned.record
        if why := objection(look, record, ledger.records, self.rules):
            self.counts.refusals["recheck"] += 1
            self.reporter.refused(record, why, "recheck")
            return ledger, None
        record = record.changed(
            planned_at=round(self.clock(), 4),  # rounded like the ledger: part of the key
            youngest=max(each.facts.created_at for each in look.members[record.of]),
            refusals=self._refusals(record, ledger),
            grace=look.pods[record.uid].grace,
        )
        ledger = self._record(record, ledger)
        until = self.clock() + self.rules.timeout
        why = self.evictor.note(record.namespace, record.name, record.uid, self._note(record, until))
        self._check_leadership()  # if the process was suspended, another may lead now: write nothing
        if why:
            outcome = EvictionOutcome(EvictionAnswer.DENIED, f"the pod cannot be annotated with its target: {why}")
        else:
            outcome = self.evictor.evict(record.namespace, record.name, record.uid)
        return self._settle(planned, record, ledger, outcome, inputs)

    def _settle(
        self,
        planned: PlannedMove,
        record: MoveRecord,
        ledger: Ledger,
        outcome: EvictionOutcome,
        inputs: Mapping[str, Any],
    ) -> tuple[Ledger, float | None]:
        """Record the answer to the request for an eviction."""
        if outcome.answer is EvictionAnswer.EVICTED:
            version = self.evictor.version(record.namespace, record.name, record.uid)
            record = record.changed(state=MoveState.EVICTED, evicted_at=self.clock(), version=version)
            self.counts.moves["evicted"] += 1
            ledger = self._record(record, ledger)
            self.reporter.evicted(planned, inputs)
            return ledger, None
        self.counts.refusals[outcome.answer] += 1
        self.reporter.refused(record, outcome.text, outcome.answer)
        if outcome.answer is EvictionAnswer.UNKNOWN:
            return ledger, outcome.wait  # the watch will show whether it was evicted; until then it counts as a move
        record = refused(record, self.rules.cooldowns, outcome.wait)
        ledger = self._record(record, ledger)
        self.evictor.note(record.namespace, record.name, record.uid, None)
        return ledger, outcome.wait if outcome.answer in _STOPPING else None

    def _record(self, record: MoveRecord, ledger: Ledger) -> Ledger:
        self._check_leadership()
        changed = ledger.put(record)
        self.store.write(changed)
        return changed

    def _check_leadership(self) -> None:
        if not self.leads():
            raise LeadershipLost

    @staticmethod
    def _note(record: MoveRecord, until: float) -> TargetNote:
        return TargetNote(record.target, record.source, until)

    @staticmethod
    def _refusals(record: MoveRecord, ledger: Ledger) -> int:
        """Return the number of consecutive refused evictions of a lineage."""
        last = next((each for each in reversed(ledger.records) if each.lineage == record.lineage), None)
        return last.refusals if last is not None and last.state is MoveState.REFUSED else 0
