"""Requests and use of workloads over a trace, and what recommended requests would free."""

from collections.abc import Sequence

import numpy as np

from runtime.kubernetes.workloads import Workload
from scoring.arrays import Bools, Float64s, Int64s
from trimaran.assessment.model import HOURS_A_MONTH, Amounts, Consumer, Prices
from trimaran.simulator.use_rounds import ROUND_MINUTES
from trimaran.traces.checks import mean_levels
from trimaran.traces.history import MAX_LEVEL
from trimaran.traces.recording.assembly import MIN_REQUESTS
from trimaran.traces.trace import RESOURCES, Trace
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.learn.use_round import UseRound
from watcher.usage.recommend.recommendation import RecommendationRule, recommend
from watcher.usage.sources.known_autoscalers import KnownAutoscalers
from watcher.workload_table import ContainerKey

_BEGIN_SECONDS = 1_600_000_200  # of minute 0, if the trace does not say it; the learner's days end at midnight
_MOST_DAYS = 7.0
_KEPT_OF_DAYS = 0.9
_GIB = 2.0**30
CONTAINER = "*"
"""Name of a traced pod's container: a trace has the sum of a pod's containers."""


def without_requests(trace: Trace) -> Bools:
    """Return for each pod whether it has no request of CPU or of memory, shape (pods,).

    A recording stores use as a share of the request, so a pod without one gets the smallest that its use fits.
    """
    begin = trace.use.offsets[:-1]
    has_use = np.diff(trace.use.offsets) > 0
    none = np.zeros(len(trace.pods), np.bool_)
    amounts_of = trace.cpu_request_milli, trace.memory_request_bytes
    for amounts, smallest, use in zip(amounts_of, MIN_REQUESTS, (trace.use.cpu, trace.use.memory), strict=True):
        peaks = np.zeros(len(trace.pods))
        if has_use.any():
            peaks[has_use] = np.maximum.reduceat(use, begin[has_use]).astype(np.float64)
        needed = np.maximum(smallest, np.ceil(peaks * amounts / MAX_LEVEL))
        none |= amounts <= needed
    return none


def consumers(
    trace: Trace, begin: int | None, autoscalers: KnownAutoscalers, prices: Prices
) -> tuple[Consumer, list[Consumer], list[Consumer]]:
    """Return all pods together, the namespaces, and the workloads; those whose requests would change most first.

    Args:
        trace: the trace.
        begin: Unix time of minute 0; None if unknown.
        autoscalers: autoscalers, whose workloads keep their requests.
        prices: prices of an hour.
    """
    keys = [_workload(kind, owner) for kind, owner in zip(trace.owner_kinds, trace.owners, strict=True)]
    number = {workload: row for row, workload in enumerate(dict.fromkeys(keys))}
    owner = np.array([number[key] for key in keys], np.int64)
    requested, used, minutes, none = _sums(trace, owner, len(number))
    learner = _learned(trace, list(number), owner, _BEGIN_SECONDS if begin is None else begin)
    ratio = _recommended_ratios(learner, list(number), autoscalers, trace.minutes)
    freed, missing = requested * np.maximum(1 - ratio, 0), requested * np.maximum(ratio - 1, 0)
    names = [f"{each.namespace}/{each.kind}/{each.name}" for each in number]
    namespaces = [each.namespace for each in number]

    def consumer(name: str, rows: Sequence[int]) -> Consumer:
        sums = [values[:, rows].sum(axis=1) for values in (requested, used, freed, missing)]
        cpu, memory = (Amounts(*(float(each[row]) for each in sums)) for row in (0, 1))
        pods = float(minutes[rows].sum())
        share = float(none[rows].sum()) / pods if pods else 0.0
        return Consumer(name, pods, cpu, memory, share, _cost(cpu, memory, prices))

    by_namespace: dict[str, list[int]] = {}
    for row, namespace in enumerate(namespaces):
        by_namespace.setdefault(namespace, []).append(row)
    capacity = max(trace.cpu_capacity_milli.sum() / 1000, 1), max(float(trace.memory_capacity_bytes.sum()), 1)

    def changed(each: Consumer) -> float:
        parts = zip((each.cpu, each.memory), capacity, strict=True)
        return -float(sum((of.freed + of.missing) / whole for of, whole in parts))

    of_namespaces = sorted((consumer(*each) for each in by_namespace.items()), key=changed)
    of_workloads = sorted((consumer(name, [row]) for row, name in enumerate(names)), key=changed)
    return consumer("all pods", range(len(number))), of_namespaces, of_workloads


def _workload(kind: str, owner: str) -> Workload:
    namespace, _, name = owner.partition("/")
    return Workload(namespace, kind, name) if name else Workload("", kind, owner)


def _sums(trace: Trace, owner: Int64s, count: int) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """Return sums over each workload's pods, on average over the trace.

    Returns:
        Requests and use, cores and bytes, shape (2, workloads); pods, and pods without a request, shape (workloads,).
    """
    ran = np.diff(trace.use.offsets)
    none = without_requests(trace)
    requested, used = np.zeros((2, count)), np.zeros((2, count))
    amounts = trace.cpu_request_milli / 1000, trace.memory_request_bytes.astype(np.float64)
    for row, (amount, resource) in enumerate(zip(amounts, RESOURCES, strict=True)):
        used[row] = np.bincount(owner, mean_levels(trace, resource) * ran * amount, count)
        requested[row] = np.bincount(owner, np.where(none, 0.0, ran * amount), count)
    pods, bare = np.bincount(owner, ran, count), np.bincount(owner, ran * none, count)
    return requested / trace.minutes, used / trace.minutes, pods / trace.minutes, bare / trace.minutes


def _learned(trace: Trace, workloads: Sequence[Workload], owner: Int64s, begin: int) -> WorkloadLearner:
    """Return the watcher's learner after rounds of five minutes of the whole trace."""
    learner, keys = WorkloadLearner(), [ContainerKey(workload, CONTAINER) for workload in workloads]
    offsets, arrival = trace.use.offsets[:-1], trace.arrival_minute
    ends = arrival + np.diff(trace.use.offsets)
    requests = np.stack([trace.cpu_request_milli / 1000, trace.memory_request_bytes])
    for until in range(ROUND_MINUTES, trace.minutes + 1, ROUND_MINUTES):
        since = until - ROUND_MINUTES
        pods = np.flatnonzero((arrival < until) & (ends > since))
        if not len(pods):
            continue
        first = np.maximum(arrival[pods], since)
        minutes = np.minimum(ends[pods], until) - first
        measured = UseRound(
            time=float(begin + 60 * until),
            seconds=60.0 * ROUND_MINUTES,
            keys=keys,
            container=owner[pods],
            revision=np.zeros(len(pods), np.int64),
            pods=np.ones(len(pods)),
            measured_seconds=60.0 * minutes,
            use=trace.use.in_spans(offsets[pods] + first - arrival[pods], minutes) * requests[:, pods],
            requests=requests[:, pods],
        )
        learner.observe(measured)
    return learner


def _recommended_ratios(
    learner: WorkloadLearner, workloads: Sequence[Workload], autoscalers: KnownAutoscalers, minutes: int
) -> Float64s:
    """Return each workload's recommended requests as a share of the present ones, shape (2, workloads).

    It is 1 where a request stays, or is not set. A request is lowered only after nine tenths of the recording, at most
    of a week.
    """
    rule = RecommendationRule(min_days=_KEPT_OF_DAYS * min(minutes / 1440, _MOST_DAYS))
    table = learner.containers((rule.quantile,))
    advice = recommend(table, rule, autoscalers)
    ratio = np.ones((2, len(workloads)))
    row_of = {workload: row for row, workload in enumerate(workloads)}
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = advice.requests / table.requests
    for column, key in enumerate(table.keys):
        known = np.isfinite(shares[:, column]) & np.isin(advice.verdicts[:, column], ("lower", "raise"))
        ratio[known, row_of[key.workload]] = shares[known, column]
    return ratio


def _cost(cpu: Amounts, memory: Amounts, prices: Prices) -> float | None:
    if prices.core_hour is None and prices.gib_hour is None:
        return None
    cores, gibibytes = cpu.freed - cpu.missing, (memory.freed - memory.missing) / _GIB
    hourly = cores * (prices.core_hour or 0.0) + gibibytes * (prices.gib_hour or 0.0)
    return HOURS_A_MONTH * hourly
