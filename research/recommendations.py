"""Recommended requests on traces: how often use is above them, and how much they free, by rule.

Each rule learns from the first part of a trace, and is judged on the rest, which it does not see. The rules:

- ``vpa`` and ``krr``: the rules of ``trimaran workloads``, by the watcher's learner in rounds of five minutes. Requests
  within 10 percent of the rule's amount are kept, as in its patches. Days of history and runs are not demanded, because
  the traces are too short for that.
- VerticalPodAutoscaler: the 90th percentile of CPU samples, in a histogram whose weights halve every 24 hours and
  grow with the request, and the 90th percentile of each pod's highest memory in 24 hours; plus 15 percent, at least 25m
  and 250Mi (recommender flags in its docs/flags.md).
- KRR, strategy simple: the highest of the pods' 95th percentiles of CPU, and the highest memory plus 15 percent; at
  least 10m and 100 MB, and 100 samples (robusta_krr/strategies/simple.py and its Config).

A workload-hour is an hour in which a workload has pods. Its CPU is above the request if the mean of its pods is, its
memory if the highest of its pods is. Workload-hours count that every rule knows. Freed is the mean over the judged time
of the requests of these workloads' pods as users wrote them, minus the recommended ones, in percent of the former.

    python research/recommendations.py worlds/* [--learned-hours 36]
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from runtime.kubernetes.workloads import Workload
from scoring.arrays import Bools, Float64s, Int64s
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import Trace
from watcher.usage.learn.cpu_histograms import BIN_ENDS, bins_of
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.learn.use_round import UseRound
from watcher.usage.recommend.recommendation import RULES, RecommendationRule, RequestVerdict, recommend
from watcher.workload_table import ContainerKey

ROUND, HOUR, DAY = 5, 60, 1440
_START = 20_000 * 86400.0  # midnight
_MARGIN = 1.15
_VPA_FLOORS, _KRR_FLOORS = np.array([0.025, 250 * 2.0**20]), np.array([0.01, 1e8])
_VPA_MEMORY_EDGES: Float64s = np.asarray(1e7 / 0.05 * (1.05 ** np.arange(177) - 1), np.float64)
_KRR_QUANTILE, _KRR_SAMPLES = 0.95, 100


@dataclass(frozen=True, eq=False)
class PodMinutes:
    """Use of pods, one row for each minute of each pod.

    Attributes:
        workload: number of each pod-minute's workload.
        pod: number of its pod.
        minute: the minute.
        use: cores and bytes, shape (2, pod-minutes).
        requests: requests of the pod, in the same form.
        count: number of workloads.
    """

    workload: Int64s
    pod: Int64s
    minute: Int64s
    use: Float64s
    requests: Float64s
    count: int

    @classmethod
    def of(cls, trace: Trace) -> "PodMinutes":
        """Return all minutes of a trace."""
        lengths = np.diff(trace.use.offsets)
        pod = np.repeat(np.arange(len(lengths)), lengths)
        minute = np.arange(len(pod)) - np.repeat(trace.use.offsets[:-1], lengths) + trace.arrival_minute[pod]
        requests = np.stack([trace.cpu_request_milli / 1000, trace.memory_request_bytes])[:, pod]
        names = list(zip(trace.owner_kinds, trace.owners, strict=True))
        number = {name: place for place, name in enumerate(dict.fromkeys(names))}
        workload = np.array([number[name] for name in names], np.int64)[pod]
        use = np.stack([trace.use.cpu, trace.use.memory]).astype(np.float64) * requests
        return cls(workload, pod, minute, use, requests, len(number))

    def take(self, chosen: Bools) -> "PodMinutes":
        """Return some of the minutes."""
        return PodMinutes(
            self.workload[chosen], self.pod[chosen], self.minute[chosen], self.use[:, chosen],
            self.requests[:, chosen], self.count,
        )  # fmt: skip


Rule = Callable[[PodMinutes], Float64s]
"""Function that returns the recommended requests of each workload, cores and bytes, shape (2, workloads).

NaN stands for no recommendation, infinity for the present request.
"""


def learned(rule: RecommendationRule, minutes: PodMinutes) -> Float64s:
    """Recommend by a rule of ``trimaran workloads``, with the watcher's learner."""
    learner = WorkloadLearner()
    keys = [ContainerKey(Workload("", "", str(number)), "main") for number in range(minutes.count)]
    for measured in _rounds(minutes, keys):
        learner.observe(measured)
    table = learner.containers()
    advice = recommend(table, replace(rule, min_days=0, min_runs=0))
    at = [int(key.workload.name) for key in table.keys]
    requests = np.full((2, minutes.count), np.nan)
    requests[:, at] = np.where(advice.verdicts == RequestVerdict.KEEP, np.inf, advice.requests)
    return requests


def _rounds(minutes: PodMinutes, keys: list[ContainerKey]) -> Iterator[UseRound]:
    """Yield rounds of five minutes: mean CPU and highest memory of each pod."""
    order = np.lexsort((minutes.minute, minutes.pod, minutes.minute // ROUND))
    number, pod = (minutes.minute // ROUND)[order], minutes.pod[order]
    first = np.flatnonzero(np.append(True, (np.diff(number) != 0) | (np.diff(pod) != 0)))
    lengths = np.diff(np.append(first, len(order)))
    cores = np.add.reduceat(minutes.use[0, order], first) / lengths
    memory = np.maximum.reduceat(minutes.use[1, order], first)
    workload, requests = minutes.workload[order][first], minutes.requests[:, order][:, first]
    starts = np.flatnonzero(np.append(True, np.diff(number[first]) != 0))
    for begin, end in zip(starts, np.append(starts[1:], len(first)), strict=True):
        rows = slice(begin, end)
        yield UseRound(
            time=_START + 60.0 * ROUND * (number[first[begin]] + 1), seconds=60.0 * ROUND, keys=keys,
            container=workload[rows], revision=np.zeros(end - begin, np.int64), pods=np.ones(end - begin),
            measured_seconds=60.0 * lengths[rows], use=np.stack([cores, memory])[:, rows], requests=requests[:, rows],
        )  # fmt: skip


def vertical_pod_autoscaler(minutes: PodMinutes) -> Float64s:
    """Recommend by VerticalPodAutoscaler's defaults."""
    decay = 2.0 ** (minutes.minute / DAY)
    cpu = np.zeros((minutes.count, len(BIN_ENDS)))
    np.add.at(cpu, (minutes.workload, bins_of(minutes.use[0])), decay * np.maximum(minutes.requests[0], 0.1))

    interval = minutes.pod * (minutes.minute.max() // DAY + 1) + minutes.minute // DAY
    order = np.argsort(interval, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(interval[order]) != 0))
    peaks = np.maximum.reduceat(minutes.use[1, order], first)
    memory = np.zeros((minutes.count, len(_VPA_MEMORY_EDGES) - 1))
    bins = np.clip(np.searchsorted(_VPA_MEMORY_EDGES, peaks, "right") - 1, 0, memory.shape[1] - 1)
    np.add.at(memory, (minutes.workload[order][first], bins), decay[order][first])
    used = np.stack([_quantiles(cpu, BIN_ENDS), _quantiles(memory, _VPA_MEMORY_EDGES[1:])])
    return np.asarray(np.maximum(_MARGIN * used, _VPA_FLOORS[:, None]))


def _quantiles(weights: Float64s, ends: Float64s) -> Float64s:
    """Return the end of the bin with the 90th percentile of each row; NaN for a row without weights."""
    cumulated = np.cumsum(weights, axis=1)
    bins = (cumulated < 0.9 * cumulated[:, -1:]).sum(axis=1)
    return np.where(cumulated[:, -1] > 0, ends[np.minimum(bins, len(ends) - 1)], np.nan)


def kubernetes_resource_recommender(minutes: PodMinutes) -> Float64s:
    """Recommend by the strategy simple of KRR."""
    order = np.argsort(minutes.pod, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(minutes.pod[order]) != 0))
    used = np.full((2, minutes.count), -np.inf)
    for begin, part in zip(first, np.split(minutes.use[:, order], first[1:], axis=1), strict=True):
        workload = minutes.workload[order[begin]]
        highest = np.quantile(part[0], _KRR_QUANTILE), _MARGIN * part[1].max()
        used[:, workload] = np.maximum(used[:, workload], highest)
    used[:, np.bincount(minutes.workload, minlength=minutes.count) < _KRR_SAMPLES] = np.nan
    return np.asarray(np.maximum(used, _KRR_FLOORS[:, None]))


def as_written(minutes: PodMinutes) -> Float64s:
    """Recommend the requests that users wrote."""
    return np.full((2, minutes.count), np.inf)


RULES_COMPARED: Mapping[str, Rule] = {
    "requests as written": as_written,
    "`vpa` of `trimaran workloads`": lambda minutes: learned(RULES["vpa"], minutes),
    "`krr` of `trimaran workloads`": lambda minutes: learned(RULES["krr"], minutes),
    "VerticalPodAutoscaler": vertical_pod_autoscaler,
    "KRR": kubernetes_resource_recommender,
}


@dataclass(frozen=True)
class Judgment:
    """Judgment of a rule on the part of a trace that it did not see; CPU and memory.

    Attributes:
        hours: number of workload-hours.
        above: workload-hours whose use is above the request.
        requested: mean of the requests as users wrote them, cores and bytes.
        freed: mean of these minus the recommended ones, cores and bytes.
    """

    hours: int
    above: tuple[int, int]
    requested: Float64s
    freed: Float64s


def judge(trace: Trace, learned_minutes: int, rules: Mapping[str, Rule] = RULES_COMPARED) -> dict[str, Judgment]:
    """Return the judgment of each rule on a trace."""
    every = PodMinutes.of(trace)
    seen, rest = every.take(every.minute < learned_minutes), every.take(every.minute >= learned_minutes)
    recommended = {name: rule(seen) for name, rule in rules.items()}
    known = np.all([~np.isnan(each).any(axis=0) for each in recommended.values()], axis=0)
    known &= np.bincount(seen.workload, minlength=seen.count) > 0
    rest = rest.take(known[rest.workload])
    hour = (rest.minute - learned_minutes) // HOUR
    place, group = np.unique(rest.workload * (hour.max() + 1) + hour, return_inverse=True)
    sizes = np.bincount(group)
    length = trace.minutes - learned_minutes
    judgments = {}
    for name, amounts in recommended.items():
        requests = np.where(np.isinf(amounts[:, rest.workload]), rest.requests, amounts[:, rest.workload])
        use, request = (np.bincount(group, row) / sizes for row in (rest.use[0], requests[0]))
        over = np.bincount(group, rest.use[1] > requests[1] * (1 + 1e-9)) > 0
        above = int((use > request * (1 + 1e-9)).sum()), int(over.sum())
        requested = rest.requests.sum(axis=1) / length
        judgments[name] = Judgment(len(place), above, requested, requested - requests.sum(axis=1) / length)
    return judgments


def main() -> None:
    """Print a row for each rule, over all worlds together, with the range over worlds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="+", type=Path)
    parser.add_argument("--learned-hours", type=int, default=36)
    arguments = parser.parse_args()
    worlds = [judge(read_trace(world), arguments.learned_hours * HOUR) for world in arguments.worlds]
    hours = sum(world["requests as written"].hours for world in worlds)
    print(f"{len(worlds)} worlds, {hours:,} workload-hours, learnt from the first {arguments.learned_hours} hours\n")
    columns = ("CPU: hours above, %", "CPUs freed", "of requests, %", "memory: hours above, %", "GiB freed",
               "of requests, %")  # fmt: skip
    print(f"| rule | {' | '.join(columns)} |\n|---|" + "---:|" * len(columns))
    for name in RULES_COMPARED:
        cells = []
        for resource, unit in enumerate((1.0, 2.0**30)):
            judged = [world[name] for world in worlds]
            above = [100 * each.above[resource] / each.hours for each in judged]
            shares = [100 * each.freed[resource] / each.requested[resource] for each in judged]
            freed = sum(each.freed[resource] for each in judged) / unit
            cells += [_range(above), f"{freed:,.0f}", _range(shares)]
        print(f"| {name} | {' | '.join(cells)} |")


def _range(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
