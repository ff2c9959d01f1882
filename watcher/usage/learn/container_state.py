"""Columns of the learner's rows that decide about requests: CPU contention, runs, restarts, kills and limits.

CPU contention (``strain``) is the share of CPU periods in which a container was throttled, and the share of time in
which it waited for CPU. A container that was killed for lack of memory needs 20 percent or 100 MiB more, whichever is
more, than the largest of three amounts: its request when it was killed, its highest sample, and its limit if a sample
came near it. Samples are rare, so a container may be killed at its limit although all its samples are below it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from watcher.usage.learn.use_round import MAX_USE, ContainerFacts
from watcher.usage.sources.pods import DAYS
from watcher.workload_table import Float64s, Int64s

KILLED_SECONDS: Final = DAYS * 86400.0
"""Time for which a kill for lack of memory, or a restart, counts."""
_KILLED_RATIO, _KILLED_BYTES = 1.2, 100 * 2.0**20  # VerticalPodAutoscaler's oom-bump-up-ratio, oom-min-bump-up-bytes

_NEAR_LIMIT = 0.8  # share of the limit from which on a sample shows that the container used all of it

Rows = npt.NDArray[np.void]


def add_strain(
    table: Rows, rows: Int64s, group: Int64s, weight: Float64s, strain: Float64s, minutes: float, memory: float
) -> None:
    """Add the mean CPU contention of each container's pods to the decayed sums.

    Args:
        table: the learner's rows.
        rows: row of each container of the round.
        group: container of each measurement, as an index of ``rows``.
        weight: pod-minutes of each measurement.
        strain: CPU contention of each measurement, shape (2, measurements); NaN if unknown.
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


def common_requests(
    group: Int64s, pods: Float64s, revision: Int64s, started_at: Float64s, requests: Float64s
) -> Float64s:
    """Return the requests that most pods of each container's newest revision have, shape (2, containers).

    After a resize of one pod, a mean would be a request that no pod has. The newest revision is the revision of the pod
    that started last. If two requests are equally frequent, the one of the pod that started last is returned.

    Args:
        group: container of each measurement; each container has at least one.
        pods: number of pods that each measurement stands for.
        revision: revision of each measurement.
        started_at: start of each measurement's pod, Unix seconds; NaN if unknown.
        requests: requests of one pod, shape (2, measurements).
    """
    start = np.nan_to_num(started_at, nan=-np.inf)
    order = np.lexsort((start, group))
    last = np.flatnonzero(np.diff(group[order], append=-1))  # the end of each container's measurements
    at = np.flatnonzero(revision == revision[order][last][group])

    # Runs of equal requests of one container, then the largest run of each.
    at = at[np.lexsort((requests[1, at], requests[0, at], group[at]))]
    columns = np.stack([group[at], *requests[:, at]])
    begin = np.flatnonzero(np.r_[True, (np.diff(columns) != 0).any(axis=0)])
    sizes, newest = np.add.reduceat(pods[at], begin), np.maximum.reduceat(start[at], begin)
    runs = np.lexsort((newest, sizes, group[at[begin]]))
    largest = runs[np.flatnonzero(np.diff(group[at[begin[runs]]], append=-1))]
    return np.asarray(requests[:, at[begin[largest]]])


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
    """Replace limits, role and QoS class of the containers that have rows, and record restarts and kills.

    Args:
        table: the learner's rows.
        rows: row of each container of the facts; None for a container that was never measured.
        facts: the facts.
        now: end of the round, Unix seconds.
    """
    places = [place for place, row in enumerate(rows) if row is not None]
    at = np.array([row for row in rows if row is not None], np.int64)
    _note_unmeasured(table, at, facts, places, now)
    table["limits"][at] = np.where(facts.limits <= MAX_USE, facts.limits, 0.0)[:, places].T
    table["has_pod_requests"][at] = facts.has_pod_requests[:, places].T
    table["role"][at], table["is_guaranteed"][at] = facts.roles[places], facts.is_guaranteed[places]
    table["restarted_at"][at] = np.maximum(table["restarted_at"][at], facts.restarted_at[places])
    killed_at, requests = facts.killed_at[places], facts.killed_requests[places]
    is_new = killed_at > table["killed_at"][at]
    killed = at[is_new]
    peaks = table["memory_peaks"][killed].max(axis=1)
    limits = facts.killed_limits[places][is_new]
    limits = np.where((limits <= MAX_USE[1]) & (peaks >= _NEAR_LIMIT * limits), limits, 0.0)
    amounts = np.maximum(np.maximum(np.minimum(requests[is_new], MAX_USE[1]), peaks), limits)
    needed = np.maximum(amounts * _KILLED_RATIO, amounts + _KILLED_BYTES)
    is_recent = table["killed_at"][killed] > now - KILLED_SECONDS
    table["killed_memory"][killed] = np.maximum(needed, is_recent * table["killed_memory"][killed])
    table["killed_at"][killed] = killed_at[is_new]


def _note_unmeasured(table: Rows, at: Int64s, facts: ContainerFacts, places: Sequence[int], now: float) -> None:
    """Update the rows of containers that were never measured, such as containers killed at each start."""
    chosen = np.asarray(places, np.int64)
    seen_at = np.where(facts.pods > 0, now, facts.killed_at)[chosen]
    unmeasured = (table["pod_minutes"][at] == 0) & (seen_at > 0)
    rows, chosen, seen_at = at[unmeasured], chosen[unmeasured], seen_at[unmeasured]
    requests = np.where(facts.requests <= MAX_USE, facts.requests, 0.0)[:, chosen].T
    table["requests"][rows] = table["first_requests"][rows] = requests
    table["pods"][rows] = facts.pods[chosen]
    table["first_seen"][rows] = np.minimum(table["first_seen"][rows], seen_at)
    table["last_seen"][rows] = np.maximum(table["last_seen"][rows], seen_at)
