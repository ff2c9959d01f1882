"""How long pods had no node: from their arrival, or from when they lost one, to the next or the end of their time."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from trimaran.simulator.replay import Outcome


@dataclass(frozen=True, slots=True)
class Wait:
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


def waits(outcome: Outcome) -> Iterator[Wait]:
    """Yield every wait of a minute or more, pod by pod."""
    trace = outcome.cluster.trace
    stays = defaultdict(list)
    for stay in outcome.cluster.stays:
        stays[stay.pod].append(stay)
    never = frozenset(outcome.never_placed)
    for pod in sorted(never | stays.keys()):
        since = int(trace.arrival_minute[pod])
        for stay in stays[pod]:
            if stay.start > since:
                yield Wait(pod, since, stay.start)
            since = stay.end
        if pod in never:
            end = trace.minutes if outcome.cluster.is_job(pod) else int(trace.end_minute[pod])
            if end > since:
                yield Wait(pod, since, end, is_last=True)
