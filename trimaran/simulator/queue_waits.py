"""How long pods had no node: from their arrival, or from when they lost one, to the next or the end of their time."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from trimaran.simulator.replay import ReplayOutcome


@dataclass(frozen=True, slots=True)
class QueueWait:
    """A pod's time without a node.

    Attributes:
        pod: its number.
        start: the first minute of it.
        end: the first minute after it.
        is_last: no node came after it.
    """

    pod: int
    start: int
    end: int
    is_last: bool = False


def queue_waits(outcome: ReplayOutcome) -> Iterator[QueueWait]:
    """Yield every wait of a minute or more, pod by pod."""
    trace = outcome.cluster.trace
    pod_runs = defaultdict(list)
    for run in outcome.cluster.pod_runs:
        pod_runs[run.pod].append(run)
    never = frozenset(outcome.unplaced)
    for pod in sorted(never | pod_runs.keys()):
        since = int(trace.arrival_minute[pod])
        for run in pod_runs[pod]:
            if run.start > since:
                yield QueueWait(pod, since, run.start)
            since = run.end
        if pod in never:
            end = trace.minutes if outcome.cluster.is_job(pod) else int(trace.end_minute[pod])
            if end > since:
                yield QueueWait(pod, since, end, is_last=True)
