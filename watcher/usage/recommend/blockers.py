"""Blockers: reasons not to lower a request although the rule gives less.

Measured use understates the need of a container that was held back: throttled, waiting for CPU, killed for lack of
memory or restarted. Requests that an autoscaler acts on, and requests of pods of the QoS class Guaranteed, have other
purposes than to state the use.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from runtime.kubernetes.objects import CPU, MEMORY
from runtime.kubernetes.workloads import ENDING_KINDS
from watcher.usage.learn.container_state import KILLED_SECONDS
from watcher.usage.sources.known_autoscalers import KnownAutoscalers
from watcher.workload_table import Bools, ContainerTable, Float64s

_DAY = 86400.0
_MAX_STRAIN = (0.05, 0.1)
"""Shares of throttled periods and of time waiting for CPU from which on a container counts as held back."""
_STRAINS = ("throttled in {:.0%} of the CPU periods of the last day", "waiting for CPU in {:.0%} of the last day")
_WHOLE = 1e-9


def is_recent(times: Float64s, now: float) -> Bools:
    """Return which times are within the last 14 days; a time of 0 is not."""
    return np.asarray((times > 0) & (times > now - KILLED_SECONDS))


def blockers(
    table: ContainerTable, would_lower: Bools, autoscaling: KnownAutoscalers, *, min_days: float, min_runs: int
) -> npt.NDArray[np.str_]:
    """Return the reasons not to lower each request, separated by semicolons, shape (2, containers); "" without one.

    Args:
        table: learned use and state of the containers.
        would_lower: requests that the rule would lower, shape (2, containers); others have no reasons.
        autoscaling: autoscalers of the requests.
        min_days: days of history without which no request is lowered.
        min_runs: number of runs without which no request is lowered, for workloads whose pods run to their end.
    """
    texts = np.full(would_lower.shape, "", object)
    now = table.last_seen.max(initial=0.0)
    for row in np.flatnonzero(would_lower.any(axis=0)).tolist():
        shared = tuple(_of_container(table, row, now, min_days=min_days, min_runs=min_runs))
        own = tuple(_of_cpu(table, row)), tuple(_of_memory(table, row, now))
        for resource, name in enumerate((CPU, MEMORY)):
            if would_lower[resource, row]:
                key = table.keys[row]
                scaled = autoscaling.of(key.workload, key.container, name)
                texts[resource, row] = "; ".join((*shared, *own[resource], *scaled))
    longest = max((len(text) for text in texts.flat), default=0)
    return texts.astype(f"U{max(longest, 60)}")  # room for the reasons that the caller adds


def _of_container(table: ContainerTable, row: int, now: float, *, min_days: float, min_runs: int) -> Iterator[str]:
    """Yield the reasons that hold for CPU and memory."""
    if table.keys[row].workload.kind in ENDING_KINDS:
        if table.runs[row] < min_runs:
            yield f"history of {table.runs[row]:.0f} runs, below {min_runs}"
    elif (days := (table.last_seen[row] - table.first_seen[row]) / _DAY) < min_days:
        yield f"history of {days:.1f} days, below {min_days:g}"
    restarted_at = table.restarted_at[row]
    if is_recent(restarted_at, now) and restarted_at != table.killed_at[row]:
        yield f"restarted {_ago(now - restarted_at)} ago"
    if table.is_guaranteed[row]:
        cores = table.requests[0, row]
        is_pinned = cores >= 1 and abs(cores - round(cores)) < _WHOLE
        yield "QoS class Guaranteed" + (" with whole CPUs, which the static CPU manager pins" if is_pinned else "")


def _of_cpu(table: ContainerTable, row: int) -> Iterator[str]:
    for share, most, text in zip(table.strain[:, row], _MAX_STRAIN, _STRAINS, strict=True):
        if share >= most:  # false for NaN
            yield text.format(share)


def _of_memory(table: ContainerTable, row: int, now: float) -> Iterator[str]:
    if is_recent(table.killed_at[row], now):
        yield f"killed for lack of memory {_ago(now - table.killed_at[row])} ago"
    limit = table.limits[1, row]
    if limit > 0 and limit == table.requests[1, row] and not table.is_guaranteed[row]:
        yield "the request equals the limit"


def _ago(seconds: float) -> str:
    return f"{seconds / _DAY:.1f} days" if seconds >= _DAY else f"{max(seconds, 0) / 3600:.1f} hours"
