"""Waits of pods in the scheduling queue, computed from the outcome of a replay."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from trimaran.simulator.replay import ReplayOutcome


@dataclass(frozen=True, slots=True)
class QueueWait:
    """Time that a pod waits for a node.

    Attributes:
        pod: the pod's number.
        start: first minute of the wait.
        end: first minute after the wait.
        is_last: True if the pod never got a node afterwards.
    """

    pod: int
    start: int
    end: int
    is_last: bool = False


def queue_waits(outcome: ReplayOutcome) -> Iterator[QueueWait]:
    """Yield every wait of a minute or more, pod by pod.

    A wait starts when the pod arrives or loses its node. It ends when the pod gets a node or gives up.
    """
    trace = outcome.cluster.trace
    runs_of = defaultdict(list)
    for run in outcome.cluster.pod_runs:
        runs_of[run.pod].append(run)
    unplaced = frozenset(outcome.unplaced)
    for pod in sorted(unplaced | runs_of.keys()):
        since = int(trace.arrival_minute[pod])
        for run in runs_of[pod]:
            if run.start > since:
                yield QueueWait(pod, since, run.start)
            since = run.end
        if pod in unplaced:
            end = trace.minutes if outcome.cluster.is_job(pod) else int(trace.end_minute[pod])
            if end > since:
                yield QueueWait(pod, since, end, is_last=True)
