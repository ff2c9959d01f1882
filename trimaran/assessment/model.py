"""Result of an assessment: plain data, which the command shows as text, JSON and HTML."""

import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

HOURS_A_MONTH = 730.0


class Effect(StrEnum):
    """Effect of a change on the recorded days."""

    GAIN = "fewer hot minutes"
    NONE = "no clear difference"
    HARM = "harm"


class Change(StrEnum):
    """Change with which the recorded days are replayed."""

    NONE = "kube-scheduler alone"
    EXTENDER = "with the extender"
    REBALANCER = "with the rebalancer"
    REQUESTS = "with recommended requests"


@dataclass(frozen=True, slots=True)
class AssessmentProblem:
    """Problem of the metrics or of the cluster's objects.

    Attributes:
        subject: node, namespace or source.
        message: what is wrong.
        remedy: what to do.
    """

    subject: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class HotNode:
    """Node whose CPU use was hot, 80 percent of capacity or more.

    Attributes:
        node: name of the node.
        since: begin of the hot time that lasts until the end of the recording, Unix seconds; None if it is not hot now.
        hot_share: share of the measured minutes in which it was hot.
        mean_percent: mean CPU use, percent of capacity.
        peak_percent: highest CPU use of five minutes, percent of capacity.
    """

    node: str
    since: int | None
    hot_share: float
    mean_percent: float
    peak_percent: float


@dataclass(frozen=True, slots=True)
class Amounts:
    """CPU or memory of pods, on average over the recording, in cores or bytes.

    Attributes:
        requested: requested amount.
        used: used amount.
        freed: requested amount that recommended requests would free.
        missing: amount by which recommended requests exceed the present ones.
    """

    requested: float
    used: float
    freed: float
    missing: float


@dataclass(frozen=True, slots=True)
class Consumer:
    """Workload or namespace with what its pods request and use.

    Attributes:
        name: ``namespace`` or ``namespace/kind/name``.
        pods: mean number of pods at a time.
        cpu: CPU of the pods, cores.
        memory: memory of the pods, bytes.
        without_requests: share of the pods without a request of CPU or memory.
        monthly_cost: cost of what recommended requests would free, less that of what they add, for a month; None
            without prices.
    """

    name: str
    pods: float
    cpu: Amounts
    memory: Amounts
    without_requests: float
    monthly_cost: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of the recorded days with a change.

    Attributes:
        change: the change.
        effect: effect on hot minutes, waits and memory; None for kube-scheduler alone.
        reason: explanation of the effect.
        hot_minutes: node-minutes with CPU use at or above 80 percent.
        waited_minutes: minutes that pods waited for a node.
        overrun_minutes: node-minutes with memory use above capacity.
        requested_percent: requested CPU as a share of capacity, percent.
        moves: moved pods.
    """

    change: Change
    effect: Effect | None
    reason: str
    hot_minutes: float
    waited_minutes: float
    overrun_minutes: float
    requested_percent: float
    moves: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of an hour of a core and of a GiB of memory; None if not given."""

    core_hour: float | None = None
    gib_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """Assessment of a cluster.

    Attributes:
        source: where the past was read.
        begin: begin of the recording, Unix seconds; None if a recorded trace does not say it.
        minutes: length of the recording.
        nodes: number of nodes.
        pods: number of recorded pods.
        problems: problems of metrics and objects, the worst first.
        hot_nodes: nodes that are hot now, then those that were; None if the use of nodes was not recorded.
        cluster: all pods together.
        capacity: cores and bytes of all nodes.
        namespaces: namespaces, the ones whose requests would change most first.
        workloads: workloads, in the same order.
        not_checked: reasons against a lower request that could not be checked.
        outcomes: outcomes of the recorded days, kube-scheduler alone first; empty if they were not replayed.
        steps: what to do next, each a sentence with a command.
        heat: mean CPU use of the hottest nodes by hour, percent, by name of the node.
    """

    source: str
    begin: int | None
    minutes: int
    nodes: int
    pods: int
    problems: tuple[AssessmentProblem, ...]
    hot_nodes: tuple[HotNode, ...] | None
    cluster: Consumer
    capacity: tuple[float, float]
    namespaces: tuple[Consumer, ...]
    workloads: tuple[Consumer, ...]
    not_checked: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    steps: tuple[str, ...] = ()
    heat: dict[str, list[float | None]] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """Return the assessment as a JSON object."""
        return asdict(self)


def utc_text(seconds: float) -> str:
    """Return a Unix time as text, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
