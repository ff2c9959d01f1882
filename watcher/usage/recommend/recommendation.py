"""Recommended requests of containers, and the requested amounts that are not used: pure functions over arrays.

The rule ``vpa`` resembles VerticalPodAutoscaler's: the 90th percentile of CPU use and the highest memory of the last 14
days, each plus 15 percent. ``krr`` resembles the strategy ``simple`` of KRR (Kubernetes Resource Recommender): the 95th
percentile of CPU use, and the highest memory plus 15 percent. Neither rule lowers a request below 10m or 100Mi; raises
have no such minimum. The highest memory includes what a container needs after it was killed for lack of memory. Amounts
are rounded up to two or three digits that people would write: by at most 5 percent, and 1m of CPU below 20m; by at most
6.25 percent of memory, in powers of two.

A raise follows from any history, as in VerticalPodAutoscaler: use above the request was measured. A request is lowered
only without a blocker, see :mod:`watcher.usage.recommend.blockers`. A lower request leaves the limit; a higher one
keeps the limit's ratio to the request.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from watcher.usage.recommend.blockers import blockers, is_recent
from watcher.usage.sources.known_autoscalers import KnownAutoscalers
from watcher.usage.sources.pods import RECENT_SECONDS
from watcher.workload_table import ContainerTable, Float64s, Recommendations, Texts

if TYPE_CHECKING:
    from watcher.usage.learn.learner_service import LearnerService

_MIB = 2.0**20
_KEPT = 0.1  # relative difference from the request up to which a change is not worth a rollout
_ROUNDING_ERROR = 1e-9
NO_REQUEST = "no request is set"
POD_REQUEST = "the pod has a request as a whole"
"""Reason to keep the requests of a pod's containers: they share the pod's request, which limits their sum."""


class RequestVerdict(StrEnum):
    """Change that a request needs; UNKNOWN without measurements of the resource."""

    LOWER = "lower"
    RAISE = "raise"
    KEEP = "keep"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class RecommendationRule:
    """Rule that computes requests from use.

    Attributes:
        quantile: quantile of CPU use, 0 to 1; the table must have it.
        cpu_margin: share that is added to the quantile of CPU.
        memory_margin: share that is added to the highest memory.
        min_cpu_cores: amount below which no request of CPU is lowered, cores.
        min_memory_bytes: amount below which no request of memory is lowered, bytes.
        min_days: days of history without which no request is lowered.
        min_runs: number of runs without which no request is lowered, for workloads whose pods run to their end.
    """

    quantile: float = 0.9
    cpu_margin: float = 0.15
    memory_margin: float = 0.15
    min_cpu_cores: float = 0.01
    min_memory_bytes: float = 100 * _MIB
    min_days: float = 7
    min_runs: int = 10


RULES: Final = {"vpa": RecommendationRule(), "krr": RecommendationRule(quantile=0.95, cpu_margin=0.0)}
"""Rules that a setting can name."""
_NO_AUTOSCALERS = KnownAutoscalers(unchecked=())


def recommended(learned: "LearnerService") -> tuple[ContainerTable, Recommendations]:
    """Return the learned use and state of each container, and its requests by the learner's rule."""
    containers = learned.containers()
    return containers, recommend(containers, RULES[learned.rule], learned.autoscaling)


def recommend(
    table: ContainerTable,
    rule: RecommendationRule = RULES["vpa"],
    autoscaling: KnownAutoscalers = _NO_AUTOSCALERS,
) -> Recommendations:
    """Return the recommended requests of all containers of a table.

    Args:
        table: learned use and state of the containers.
        rule: the rule.
        autoscaling: autoscalers of the requests.

    Raises:
        ValueError: the table does not have the rule's quantile.
    """
    if rule.quantile not in table.quantiles:
        raise ValueError(f"quantile: must be one of {', '.join(map(str, table.quantiles))}, not {rule.quantile:g}")
    newest = table.last_seen.max(initial=0.0)
    memory = np.maximum(table.highest_memory, np.where(is_recent(table.killed_at, newest), table.killed_memory, 0.0))
    used = np.stack([table.cpu_percentiles[table.quantiles.index(rule.quantile)], memory])
    # A measured container has at least the end of the first bin, and no process runs without memory.
    is_known = np.isfinite(used) & (used > 0)
    floors = np.array([rule.min_cpu_cores, rule.min_memory_bytes])[:, None]
    margins = np.array([rule.cpu_margin, rule.memory_margin])[:, None]
    present = table.requests
    wanted = np.maximum(_rounded(np.where(is_known, used, 0.0) * (1 + margins)), np.minimum(present, floors))

    is_close = np.abs(wanted - present) <= _KEPT * present
    differs = is_known & ~is_close & ~table.has_pod_requests
    would_lower = differs & (wanted < present)
    reasons = blockers(table, would_lower, autoscaling, min_days=rule.min_days, min_runs=rule.min_runs)
    is_blocked = (reasons != "") | table.has_pod_requests
    reasons[present <= 0] = NO_REQUEST
    reasons[table.has_pod_requests] = POD_REQUEST
    for row, resource in enumerate(("CPU", "memory")):
        reasons[row, ~is_known[row]] = f"the use of {resource} is not known"

    verdicts = np.full(present.shape, RequestVerdict.KEEP, "U5")
    verdicts[would_lower & ~is_blocked] = RequestVerdict.LOWER
    verdicts[differs & (wanted > present)] = RequestVerdict.RAISE
    verdicts[~is_known] = RequestVerdict.UNKNOWN
    requests = np.where(is_blocked, present, np.where(is_known, wanted, np.nan))
    wasted = np.where(is_known, np.maximum(present - table.use, 0.0) * _running_pods(table), np.nan)
    return Recommendations(requests, verdicts, reasons, _limits(table, requests, verdicts), wasted)


def _limits(table: ContainerTable, requests: Float64s, verdicts: Texts) -> Float64s:
    """Return the limits that fit the recommended requests; NaN without a limit."""
    is_raised = (verdicts == RequestVerdict.RAISE) & (table.requests > 0)
    ratio = np.divide(table.limits, table.requests, out=np.ones_like(table.limits), where=table.requests > 0)
    # Kubernetes sets a missing request to the limit, so no container has a limit without a request.
    limits = np.where(is_raised, _rounded(requests * ratio), table.limits)
    return np.where(table.limits > 0, limits, np.nan)


def _running_pods(table: ContainerTable) -> Float64s:
    """Return the number of running pods of each container; 0 if it was not measured for 15 minutes."""
    is_running = table.last_seen >= table.last_seen.max(initial=-np.inf) - RECENT_SECONDS
    return np.where(is_running, table.pods, 0.0)


def _rounded(amounts: Float64s) -> Float64s:
    """Round CPU in cores and memory in bytes up to amounts that people would write, such as 235m and 448Mi."""
    milli, mebi = amounts[0] * 1000, amounts[1] / _MIB
    cpu_step = np.maximum(10 ** np.floor(np.log10(np.maximum(milli, 1))) / 20, 1)
    memory_step = np.maximum(2 ** np.floor(np.log2(np.maximum(mebi, 1))) / 16, 1)
    return np.stack([_up(milli, cpu_step) / 1000, _up(mebi, memory_step) * _MIB])


def _up(amounts: Float64s, steps: Float64s) -> Float64s:
    return np.asarray(np.ceil(amounts / steps - _ROUNDING_ERROR) * steps)
