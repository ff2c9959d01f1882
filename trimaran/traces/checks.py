"""Checks of the content of a trace: units, kinds of owners, limits, and use in relation to requests."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.traces.problems import TraceProblems
from trimaran.traces.tables import Table
from trimaran.traces.trace import JOB, LIMIT_COLUMNS, NO_LIMIT, POD_COLUMNS, RESOURCES, Trace

_SERVICES = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Pod", "Node", "")
# Capacity of the largest node: below the first amount the unit is wrong, because a kubelet alone needs more; below the
# second or above the third it is unusual.
_CAPACITIES = {
    "cpu_capacity_milli": (100, 1000, 10_000_000, "millicores: 16000 for 16 cores"),
    "memory_capacity_bytes": (32 << 20, 512 << 20, 1 << 50, "bytes: 68719476736 for 64 GiB"),
}
_ODD_SHARE = 1000  # a node is unusual if the largest one has more than this many times its capacity
_HIGH_USE, _IMPOSSIBLE_USE = 3.0, 2.0  # mean use, as a share of the requests, and of the capacity


def check_capacities(table: Table, columns: Mapping[str, Int64s]) -> None:
    """Report capacities in a wrong unit, such as cores or GiB.

    DaemonSets may leave nearly nothing of a small node, so that one small node is not an error.
    """
    sound = np.flatnonzero(table.sound)
    for column, (impossible, small, large, unit) in _CAPACITIES.items() if sound.size else ():
        amounts = columns[column]
        largest = int(amounts[sound].max())
        location = f"{table.path}: row {table.rows[int(sound[amounts[sound].argmax()])]}: {column} {largest}"
        if largest < impossible:
            table.problems.refuse(f"{location} of the largest node is not in {unit}")
        elif not small <= largest <= large:
            table.problems.warn(f"{location} of the largest node is unusual; the unit is {unit}")
        odd = sound[amounts[sound] < largest / _ODD_SHARE].tolist()
        rule = f"is less than a thousandth of the largest node's; the unit is {unit}"
        table.warn({at: f"{column} {amounts[at]} {rule}" for at in odd})


def check_joins(folder: Path, trace: Trace, problems: TraceProblems) -> None:
    """Warn of joining nodes whose capacity is in a wrong unit."""
    smallest = np.array(list(trace.amounts().values())).max(axis=0) / _ODD_SHARE
    for event in trace.events:
        if event.capacity is not None and (event.capacity < smallest).any():
            cpu, memory = event.capacity
            problems.warn(
                f"{folder}: events, minute {event.minute}: node {event.node!r} joins with {cpu} millicores and "
                f"{memory} bytes, less than a thousandth of the largest node"
            )


def check_kinds(table: Table) -> None:
    """Report kinds of owners that replays would take for services by mistake: only ``Job`` is not a service."""
    known = {kind.casefold().rstrip("s"): kind for kind in (*_SERVICES, JOB)} | {"cronjob": JOB}
    misspelled, unknown = {}, dict[str, int]()
    for index, kind in enumerate(table["owner_kind"]):
        if index in table.misshapen or kind in (*_SERVICES, JOB):
            continue
        if meant := known.get(kind.strip().casefold().rstrip("s")):
            misspelled[index] = f"owner_kind {kind!r} is not read as a kind; did you mean {meant}?"
        else:
            unknown.setdefault(kind, index)
    table.refuse(misspelled)
    table.warn(
        {
            index: f"owner_kind {kind!r} counts as a service; write {JOB} for pods that run to their end"
            for kind, index in unknown.items()
        }
    )


def check_limits(table: Table, columns: Mapping[str, Int64s]) -> None:
    """Report limits below requests, which Kubernetes refuses."""
    for limit, request in zip(LIMIT_COLUMNS, ("cpu_request_milli", "memory_request_bytes"), strict=True):
        limits, requests = columns[limit], columns[request]
        below = np.flatnonzero(table.sound & (limits != NO_LIMIT) & (limits < requests)).tolist()
        remedy = "raise it, or leave it empty for no limit"
        table.refuse({at: f"{limit} {limits[at]} is below {request} {requests[at]}; {remedy}" for at in below})


def check_lifetimes(table: Table, columns: Mapping[str, Int64s]) -> None:
    """Report pods that end before they arrive."""
    arrival, end = columns["arrival_minute"], columns["end_minute"]
    negative = np.flatnonzero(table.sound & (end < arrival)).tolist()
    table.refuse({at: f"end_minute {end[at]} is before arrival_minute {arrival[at]}" for at in negative})


def check_minutes(folder: Path, arrival: Int64s, end: Int64s, minutes: int, problems: TraceProblems) -> None:
    """Warn if the trace and its pods do not cover the same time: their units may differ."""
    late = int(np.count_nonzero(arrival >= minutes))
    if 2 * late > len(arrival):
        problems.warn(
            f"{folder}: {late} of {len(arrival)} pods arrive after the end of the trace, minute {minutes}, and are "
            "left out; are their times in minutes?"
        )
    last = int(end.max(initial=0))
    if 0 < 2 * last < minutes:
        problems.warn(f"{folder}: no pod runs after minute {last} of {minutes}; are all times in minutes?")


def check_use(path: Path, trace: Trace, table: Table, problems: TraceProblems) -> None:
    """Report use that is too short for its pod, in a wrong unit, lost because the request is 0, or missing.

    Args:
        path: the file with the use.
        trace: the trace; values of rows with an error are placeholders.
        table: the table of pods.
        problems: where problems of ``path`` are reported.
    """
    recorded, lifetimes = np.diff(trace.use.offsets), trace.end_minute - trace.arrival_minute
    short = np.flatnonzero(table.sound & (recorded < lifetimes))
    problems.refuse_many(
        path, [f"pod {trace.pods[at]} has {recorded[at]} minutes of use, and runs for {lifetimes[at]}" for at in short]
    )
    columns = {"cpu": trace.cpu_request_milli, "memory": trace.memory_request_bytes}
    for (resource, requests), column in zip(columns.items(), POD_COLUMNS[-2:], strict=True):
        levels = mean_levels(trace, resource)
        lost = np.flatnonzero(table.sound & (requests == 0) & (levels > 0)).tolist()
        remedy = "write 1, and its use as a multiple of that"
        table.warn(dict.fromkeys(lost, f"{column} is 0, so the pod's use counts as 0; {remedy}"))
        of_capacity, of_requests = use_shares(trace, resource)
        measured = f"{path}: {resource}: pods use {100 * of_requests:.0f} % of their requests on average"
        example = "use is a share of the request, such as 0.35 for 35 %"
        if of_capacity > _IMPOSSIBLE_USE and of_requests > _HIGH_USE:
            problems.refuse(f"{measured}, and {100 * of_capacity:.0f} % of all nodes; {example}")
        elif of_requests > _HIGH_USE:
            problems.warn(f"{measured}; {example}")
        elif of_capacity > 1:
            problems.warn(f"{path}: {resource}: pods use {100 * of_capacity:.0f} % of all nodes on average")
        elif len(levels) and not levels.any():
            problems.warn(f"{path}: {resource}: no pod uses any, so policies that read it see idle nodes")


def check_fit(trace: Trace, table: Table) -> None:
    """Warn of pods that request more than any node has, after overcommit."""
    joining = [event.capacity for event in trace.events if event.capacity is not None]
    capacities = np.array([*trace.amounts().values(), *joining])
    largest = capacities.max(axis=0)
    both = (trace.cpu_request_milli, trace.memory_request_bytes)
    for name, amounts, factor, most in zip(RESOURCES, both, trace.overcommit, largest.tolist(), strict=True):
        unit = f"{name} after overcommit, and the largest node has {most}: it never runs"
        too_large = np.flatnonzero(table.sound & (amounts / factor > most))
        table.warn({int(at): f"the pod requests {amounts[at] / factor:.0f} of {unit}" for at in too_large})


def mean_levels(trace: Trace, resource: str) -> Float64s:
    """Return the mean use of each pod as a share of its request, shape (pods,); 0 for a pod without use."""
    offsets = trace.use.offsets
    values, recorded = (trace.use.cpu if resource == "cpu" else trace.use.memory), np.diff(offsets)
    levels, used = np.zeros(len(recorded)), np.flatnonzero(recorded)
    if used.size:
        sums = np.add.reduceat(values[: offsets[-1]], offsets[:-1][used], dtype=np.float64)
        levels[used] = sums / recorded[used]
    return levels


def use_shares(trace: Trace, resource: str) -> tuple[float, float]:
    """Return the mean use of a resource as a share of the nodes' capacity, and as a share of the pods' requests."""
    capacity, requests = {
        "cpu": (trace.cpu_capacity_milli, trace.cpu_request_milli),
        "memory": (trace.memory_capacity_bytes, trace.memory_request_bytes),
    }[resource]
    requested = requests * np.maximum(trace.end_minute - trace.arrival_minute, 0).astype(np.float64)
    used = float(requested @ mean_levels(trace, resource))
    return used / (float(capacity.sum()) * trace.minutes), used / max(float(requested.sum()), 1.0)
