"""Worlds put together anew from others: is what was found in worlds also there in what nothing was tried out on?

    python research/recombined.py --into DIR [--count N] [--seed N] WORLD WORLD WORLD WORLD ...

Each new world has half of the services' owners of one world and half of those of another, the jobs of a third and the
nodes of a fourth, drawn by the seed. Pods keep their lives and what they use in parts of their requests, and so the
pods of an owner rise and fall together as they did. CPU requests are scaled to the fourth world's nodes, so that mean
CPU use is what it was there; what is requested of CPU and of memory is the same part of what is allocatable as there,
for CPU by another overcommit. Shares are means over the time that is measured.

Worlds are folders as ``trimaran simulate`` takes them, four at least, of several names and all as long as each other.
How much memory pods use of their requests is theirs, so that a world may use more or less of it than the fourth.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.simulator.cluster import JOB
from trimaran.traces.tables import TraceError
from trimaran.traces.trace import PodUse, Trace, read_trace, write_trace

PARTS = 4


def jobs(trace: Trace) -> Bools:
    """Say which pods are jobs, shape (pods,)."""
    return np.array([kind == JOB for kind in trace.owner_kinds], np.bool_)


def half_of_services(trace: Trace, rng: np.random.Generator) -> Int64s:
    """Return the pods of half of the services' owners, ascending."""
    is_job = jobs(trace)
    owners = sorted({owner for owner, job in zip(trace.owners, is_job, strict=True) if not job})
    kept = set(rng.permutation(owners)[: len(owners) // 2].tolist())
    return np.array([pod for pod, owner in enumerate(trace.owners) if owner in kept and not is_job[pod]], np.int64)


def used(trace: Trace) -> float:
    """Return the mean millicores that pods use over the time that is measured, had each begun when it arrived."""
    begin = np.maximum(trace.warm_up_minutes - trace.arrival_minute, 0)
    end = np.minimum(trace.end_minute, trace.minutes) - trace.arrival_minute
    lives = enumerate(zip(begin.tolist(), end.tolist(), strict=True))
    total = sum(float(trace.usage(pod, first, last)[0].sum()) for pod, (first, last) in lives if first < last)
    return total / (trace.minutes - trace.warm_up_minutes)


def requested(trace: Trace, amounts: Int64s) -> float:
    """Return the mean of what is requested over the time that is measured, before overcommit."""
    begin = np.maximum(trace.arrival_minute, trace.warm_up_minutes)
    lives = np.maximum(np.minimum(trace.end_minute, trace.minutes) - begin, 0)
    return float(amounts.astype(np.float64) @ lives) / (trace.minutes - trace.warm_up_minutes)


def scaled(amounts: Int64s, factor: Float64s | float) -> Int64s:
    """Return amounts times a factor, none of them below 1; 0 and no limit stay what they are."""
    product: Int64s = np.where(amounts > 0, np.maximum(np.rint(amounts * factor), 1), amounts).astype(np.int64)
    return product


def together(name: str, parts: Sequence[tuple[Trace, Int64s]], place: Trace) -> Trace:
    """Return a world of some traces' pods on the nodes of another, before it is scaled as a whole."""
    rows = [(trace, pod) for trace, pods in parts for pod in pods.tolist()]
    rows.sort(key=lambda row: int(row[0].arrival_minute[row[1]]))

    def column(attribute: str) -> Int64s:
        return np.array([getattr(trace, attribute)[pod] for trace, pod in rows], np.int64)

    # Clusters differ in size: a pod keeps its part of it.
    cpu, memory = (
        np.array([getattr(place, amount).sum() / getattr(trace, amount).sum() for trace, _ in rows])
        for amount in ("cpu_capacity_milli", "memory_capacity_bytes")
    )
    spans = [slice(*trace.use.offsets[pod : pod + 2].tolist()) for trace, pod in rows]
    lengths = np.array([span.stop - span.start for span in spans], np.int64)
    return replace(
        place,
        name=name,
        pods=tuple(f"pod-{number:05}" for number in range(len(rows))),
        owner_kinds=tuple(trace.owner_kinds[pod] for trace, pod in rows),
        owners=tuple(f"{trace.name}-{trace.owners[pod]}" for trace, pod in rows),
        arrival_minute=column("arrival_minute"),
        end_minute=column("end_minute"),
        cpu_request_milli=scaled(column("cpu_request_milli"), cpu),
        memory_request_bytes=scaled(column("memory_request_bytes"), memory),
        cpu_limit_milli=scaled(column("cpu_limit_milli"), cpu),
        memory_limit_bytes=scaled(column("memory_limit_bytes"), memory),
        use=PodUse(
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([trace.use.cpu[span] for (trace, _), span in zip(rows, spans, strict=True)]),
            np.concatenate([trace.use.memory[span] for (trace, _), span in zip(rows, spans, strict=True)]),
        ),
    )


def recombined(name: str, worlds: Sequence[Trace], rng: np.random.Generator) -> Trace:
    """Return a new world, from four that are drawn."""
    first, second, third, place = (worlds[number] for number in rng.permutation(len(worlds))[:PARTS])
    parts = [(each, half_of_services(each, rng)) for each in (first, second)]
    parts.append((third, np.flatnonzero(jobs(third))))
    if not any(len(pods) for _, pods in parts):
        raise TraceError(f"{name}: {first.name} and {second.name} have too few services, and {third.name} has no jobs")
    made = together(name, parts, place)
    there, here = ((used(trace), requested(trace, trace.memory_request_bytes)) for trace in (place, made))
    for trace, amounts in ((place, there), (made, here)):
        if not all(amounts):
            raise TraceError(f"{trace.name}: no CPU is used, or no memory requested, after the warm-up")
    cpu, memory = (before / now for before, now in zip(there, here, strict=True))
    made = replace(
        made,
        cpu_request_milli=scaled(made.cpu_request_milli, cpu),
        cpu_limit_milli=scaled(made.cpu_limit_milli, cpu),
        memory_request_bytes=scaled(made.memory_request_bytes, memory),
        memory_limit_bytes=scaled(made.memory_limit_bytes, memory),
    )
    more = requested(made, made.cpu_request_milli) / requested(place, place.cpu_request_milli)
    return replace(made, overcommit=(place.overcommit[0] * more, place.overcommit[1]))


def natural(text: str) -> int:
    """Return a whole number from 0 on."""
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


def main() -> None:
    """Write the worlds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", type=Path, nargs="+", metavar="WORLD", help="a trace's folder")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR", help="where the new worlds go")
    parser.add_argument("--count", type=natural, default=24, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=natural, default=0, help="of what is drawn (default: %(default)s)")
    wanted = parser.parse_args()
    try:
        write(check([read_trace(folder) for folder in wanted.worlds]), wanted.into, wanted.count, wanted.seed)
    except TraceError as error:
        sys.exit(str(error))


def check(worlds: Sequence[Trace]) -> Sequence[Trace]:
    """Return worlds that can be put together."""
    if len(worlds) < PARTS:
        raise TraceError(f"{len(worlds)} worlds: a new one takes its parts from {PARTS}")
    if len({trace.name for trace in worlds}) < len(worlds):
        raise TraceError("two worlds have the same name: their owners could not be told apart")
    if len({(trace.warm_up_minutes, trace.minutes) for trace in worlds}) > 1:
        raise TraceError("the worlds have several lengths or warm-ups: pods of one cannot run in another")
    if worlds[0].warm_up_minutes == worlds[0].minutes:
        raise TraceError("the worlds are over with their warm-up: nothing is measured")
    return worlds


def write(worlds: Sequence[Trace], folder: Path, count: int, seed: int) -> None:
    """Write so many new worlds into a folder that has none yet."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise TraceError(f"{folder}: is no empty folder; name another one")
    for number in range(1, count + 1):
        made = recombined(f"recombined-{number:02}", worlds, np.random.default_rng([seed, number]))
        write_trace(made, folder / made.name)
        print(f"{folder / made.name}: {len(made.pods):,} pods, CPU overcommitted {made.overcommit[0]:.2f} times")


if __name__ == "__main__":
    main()
