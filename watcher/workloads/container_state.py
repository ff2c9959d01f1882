"""State of containers that bears on their requests, in the learner's rows: strain, runs, restarts, limits.

Strain is the share of CPU periods in which a container was throttled, and the share of the time for which it waited for
CPU. A container that was killed for lack of memory needs 20 percent or 100 MiB more than it requested or used when it
was killed, whichever is more, as in VerticalPodAutoscaler.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from watcher.workload_table import Float64s, Int64s
from watcher.workloads.pods import DAYS
from watcher.workloads.use_round import MAX_USE, ContainerFacts

KILLED_SECONDS: Final = DAYS * 86400.0
"""Time for which a kill for lack of memory, or a restart, counts."""
_KILLED_RATIO, _KILLED_BYTES = 1.2, 100 * 2.0**20  # VerticalPodAutoscaler's oom-bump-up-ratio, oom-min-bump-up-bytes

Rows = npt.NDArray[np.void]


def add_strain(
    table: Rows, rows: Int64s, group: Int64s, weight: Float64s, strain: Float64s, minutes: float, memory: float
) -> None:
    """Add the mean strain of each container's pods to the decayed sums.

    Args:
        table: the learner's rows.
        rows: row of each container of the round.
        group: container of each measurement, as an index of ``rows``.
        weight: pod-minutes of each measurement.
        strain: strain of each measurement, shape (2, measurements); NaN if unknown.
        minutes: minutes of the round.
        memory: minutes after which the weight of a round is 1 / e.
    """
    count, decay = len(rows), np.exp(-minutes / memory)
    for kind, values in enumerate(strain):
        with np.errstate(invalid="ignore"):
            known = (values >= 0) & (values <= 1)
        measured = np.bincount(group[known], weight[known], count)
        seen = measured > 0
        mean = np.bincount(group[known], weight[known] * values[known], count)[seen] / measured[seen]
        for name, amount in (("strain_weights", minutes), ("strain_sums", minutes * mean)):
            table[name][rows[seen], kind] = decay * table[name][rows[seen], kind] + amount


def count_runs(table: Rows, rows: Int64s, group: Int64s, started_at: Float64s) -> None:
    """Count the pods of each container that started after all pods that were known before.

    Args:
        table: the learner's rows.
        rows: row of each container of the round.
        group: container of each measurement, as an index of ``rows``.
        started_at: start of each measurement's pod, Unix seconds; NaN if unknown.
    """
    newest = table["newest_start"]
    is_new = started_at > newest[rows][group]  # false for NaN
    table["runs"][rows] += np.bincount(group[is_new], minlength=len(rows))
    np.maximum.at(newest, rows[group[is_new]], started_at[is_new])


def note_facts(table: Rows, rows: Sequence[int | None], facts: ContainerFacts, now: float) -> None:
    """Replace limits, role and QoS class of the containers that have rows, and note restarts and kills.

    Args:
        table: the learner's rows.
        rows: row of each container of the facts; None for a container that was never measured.
        facts: the facts.
        now: end of the round, Unix seconds.
    """
    places = [place for place, row in enumerate(rows) if row is not None]
    at = np.array([row for row in rows if row is not None], np.int64)
    table["limits"][at] = np.where(facts.limits <= MAX_USE, facts.limits, 0.0)[:, places].T
    table["role"][at], table["is_guaranteed"][at] = facts.roles[places], facts.is_guaranteed[places]
    table["restarted_at"][at] = np.maximum(table["restarted_at"][at], facts.restarted_at[places])
    killed_at, requests = facts.killed_at[places], facts.killed_requests[places]
    is_new = killed_at > table["killed_at"][at]
    killed = at[is_new]
    amounts = np.maximum(np.minimum(requests[is_new], MAX_USE[1]), table["memory_peaks"][killed, 0])
    needed = np.maximum(amounts * _KILLED_RATIO, amounts + _KILLED_BYTES)
    is_recent = table["killed_at"][killed] > now - KILLED_SECONDS
    table["killed_memory"][killed] = np.maximum(needed, is_recent * table["killed_memory"][killed])
    table["killed_at"][killed] = killed_at[is_new]
