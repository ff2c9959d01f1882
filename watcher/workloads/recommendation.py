"""Recommended requests of containers, and the requested amounts that are not used: pure functions over arrays.

The default rule resembles VerticalPodAutoscaler's: the 90th percentile of CPU use and the highest memory of the last 14
days, each plus 15 percent, and at least 10m and 100Mi. Amounts are rounded up to two or three digits that people would
write: by at most 5 percent, and 1m of CPU below 20m; by at most 6.25 percent of memory, in powers of two.

A raise follows from any history, as in VerticalPodAutoscaler: use above the request was measured. A request is lowered
only after a week, because most load repeats weekly.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from watcher.workload_table import Bools, ContainerTable, Float64s
from watcher.workloads.pods import RECENT_SECONDS

_MIB = 2.0**20
_DAY = 86400.0
_KEPT = 0.1  # relative difference from the request up to which a change is not worth a rollout
_ROUNDING_ERROR = 1e-9
NO_REQUEST = "no request is set"

Texts = npt.NDArray[np.str_]


class RequestVerdict(StrEnum):
    """Change that a request needs; UNKNOWN without measurements of the resource."""

    LOWER = "lower"
    RAISE = "raise"
    KEEP = "keep"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class RecommendationRule:
    """Rule that makes requests of use.

    Attributes:
        quantile: quantile of CPU use, 0 to 1; the table must have it.
        margin: share that is added to the quantile of CPU and to the highest memory.
        min_cpu_cores: lowest recommendation of CPU, cores.
        min_memory_bytes: lowest recommendation of memory, bytes.
        min_days: days of history without which no request is lowered.
    """

    quantile: float = 0.9
    margin: float = 0.15
    min_cpu_cores: float = 0.01
    min_memory_bytes: float = 100 * _MIB
    min_days: float = 7


@dataclass(frozen=True, slots=True, eq=False)
class Recommendations:
    """Recommended requests of the containers of a table; CPU first and memory second.

    Attributes:
        requests: recommended requests, cores and bytes, shape (2, containers); NaN if unknown. It is the present
            request where the rule gives less and a reason forbids that.
        verdicts: a :class:`RequestVerdict` for each request, shape (2, containers).
        reasons: reasons why a request is not lowered or not known, shape (2, containers); "" without one.
        wasted: requests minus use, at least 0, times the pods that run now, cores and bytes, shape (2, containers);
            NaN if the use is unknown.
    """

    requests: Float64s
    verdicts: Texts
    reasons: Texts
    wasted: Float64s


def recommend(table: ContainerTable, rule: RecommendationRule = RecommendationRule()) -> Recommendations:
    """Return the recommended requests of all containers of a table.

    Raises:
        ValueError: the table does not have the rule's quantile.
    """
    if rule.quantile not in table.quantiles:
        raise ValueError(f"quantile: must be one of {', '.join(map(str, table.quantiles))}, not {rule.quantile:g}")
    used = np.stack([table.cpu_percentiles[table.quantiles.index(rule.quantile)], table.highest_memory])
    # A measured container has at least the end of the first bin, and no process runs without memory.
    is_known = np.isfinite(used) & (used > 0)
    floors = np.array([rule.min_cpu_cores, rule.min_memory_bytes])[:, None]
    wanted = _rounded(np.maximum(np.where(is_known, used, 0.0) * (1 + rule.margin), floors))

    present = table.requests
    is_close = np.abs(wanted - present) <= _KEPT * present
    would_lower = is_known & ~is_close & (wanted < present)
    days = (table.last_seen - table.first_seen) / _DAY
    is_blocked = would_lower & (days < rule.min_days)

    verdicts = np.full(present.shape, RequestVerdict.KEEP, "U5")
    verdicts[would_lower & ~is_blocked] = RequestVerdict.LOWER
    verdicts[is_known & ~is_close & (wanted > present)] = RequestVerdict.RAISE
    verdicts[~is_known] = RequestVerdict.UNKNOWN
    requests = np.where(is_blocked, present, np.where(is_known, wanted, np.nan))
    wasted = np.where(is_known, np.maximum(present - table.use, 0.0) * _running_pods(table), np.nan)
    return Recommendations(requests, verdicts, _reasons(present, is_known, is_blocked, days, rule), wasted)


def _reasons(present: Float64s, is_known: Bools, is_blocked: Bools, days: Float64s, rule: RecommendationRule) -> Texts:
    ages = np.array([f"history of {age:.1f} days, below {rule.min_days:g}" for age in days.tolist()], "U60")
    reasons = np.where(is_blocked, ages, "")
    reasons[present <= 0] = NO_REQUEST
    for row, resource in enumerate(("CPU", "memory")):
        reasons[row, ~is_known[row]] = f"the use of {resource} is not known"
    return reasons


def _running_pods(table: ContainerTable) -> Float64s:
    """Return the number of pods of each container that run now; 0 if the newest rounds do not have it."""
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
