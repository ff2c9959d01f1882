"""Recombined worlds: new traces made of parts of other traces, to test policies in worlds where none was tuned.

A world is a trace that the simulator replays. Four worlds are drawn at random for each new world. It has half of the
services (by owner) of the first, half of the services of the second, the jobs of the third and the nodes of the fourth.
Pods keep their lifetimes and their use as a part of their requests, so that the use of an owner's pods still rises and
falls together. CPU requests are scaled so that the mean CPU use is the same as in the fourth world. The requested
shares of allocatable CPU and memory are also the same as in the fourth world; for CPU the overcommit is changed to
achieve this. Means are over the measured time, after the warm-up. Memory use as a part of the request is not changed,
so a new world may use more or less memory than the fourth.

Worlds are folders as ``trimaran simulate`` reads them: at least four, with different names and the same length.

    python research/recombined.py --into DIR [--count N] [--seed N] WORLD WORLD WORLD WORLD ...
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.traces.problems import TraceError
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import JOB, PodUse, Trace, write_trace

PARTS = 4


def job_mask(trace: Trace) -> Bools:
    """Return a mask of the pods that belong to jobs, shape (pods,)."""
    return np.array([kind == JOB for kind in trace.owner_kinds], np.bool_)


def half_of_services(trace: Trace, rng: np.random.Generator) -> Int64s:
    """Return the numbers of the service pods that belong to a random half of the owners, ascending.

    Args:
        trace: trace with services and jobs.
        rng: random numbers.
    """
    is_job = job_mask(trace)
    owners = sorted({owner for owner, job in zip(trace.owners, is_job, strict=True) if not job})
    drawn = set(rng.permutation(owners)[: len(owners) // 2].tolist())
    return np.array([pod for pod, owner in enumerate(trace.owners) if owner in drawn and not is_job[pod]], np.int64)


def mean_use(trace: Trace) -> float:
    """Return the mean CPU use of all pods together, in millicores, over the time after the warm-up.

    Every pod is assumed to start when it arrives.
    """
    begin = np.maximum(trace.warm_up_minutes - trace.arrival_minute, 0)
    end = np.minimum(trace.end_minute, trace.minutes) - trace.arrival_minute
    lives = enumerate(zip(begin.tolist(), end.tolist(), strict=True))
    total = sum(float(trace.usage(pod, first, last)[0].sum()) for pod, (first, last) in lives if first < last)
    return total / (trace.minutes - trace.warm_up_minutes)


def mean_requests(trace: Trace, amounts: Int64s) -> float:
    """Return the mean, over the time after the warm-up, of the sum of the present pods' requests, before overcommit.

    Args:
        trace: trace of the pods.
        amounts: request of each pod, shape (pods,).
    """
    begin = np.maximum(trace.arrival_minute, trace.warm_up_minutes)
    lives = np.maximum(np.minimum(trace.end_minute, trace.minutes) - begin, 0)
    return float(amounts.astype(np.float64) @ lives) / (trace.minutes - trace.warm_up_minutes)


def scaled(amounts: Int64s, factor: Float64s | float) -> Int64s:
    """Return amounts times a factor, rounded and at least 1; 0 and the negative value for "no limit" are unchanged."""
    product: Int64s = np.where(amounts > 0, np.maximum(np.rint(amounts * factor), 1), amounts).astype(np.int64)
    return product


def combine(name: str, parts: Sequence[tuple[Trace, Int64s]], place: Trace) -> Trace:
    """Return a world with the pods of some traces on the nodes of another trace, before its mean use is scaled.

    Args:
        name: name of the new world.
        parts: traces, each with the numbers of its pods to take.
        place: trace whose nodes are taken.
    """
    rows = [(trace, pod) for trace, pods in parts for pod in pods.tolist()]
    rows.sort(key=lambda row: int(row[0].arrival_minute[row[1]]))

    def column(attribute: str) -> Int64s:
        return np.array([getattr(trace, attribute)[pod] for trace, pod in rows], np.int64)

    # Clusters differ in size: a pod keeps its share of the cluster.
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


def recombine(name: str, worlds: Sequence[Trace], rng: np.random.Generator) -> Trace:
    """Return a new world made of four of the given worlds, which are drawn at random.

    Raises:
        TraceError: the drawn worlds have no pods to take, or no CPU use or memory requests after the warm-up.
    """
    first, second, third, place = (worlds[number] for number in rng.permutation(len(worlds))[:PARTS])
    parts = [(trace, half_of_services(trace, rng)) for trace in (first, second)]
    parts.append((third, np.flatnonzero(job_mask(third))))
    if not any(len(pods) for _, pods in parts):
        raise TraceError(f"{name}: {first.name} and {second.name} have too few services, and {third.name} has no jobs")
    world = combine(name, parts, place)
    there, here = ((mean_use(trace), mean_requests(trace, trace.memory_request_bytes)) for trace in (place, world))
    for trace, amounts in ((place, there), (world, here)):
        if not all(amounts):
            raise TraceError(f"{trace.name}: no CPU is used, or no memory requested, after the warm-up")
    cpu, memory = (before / now for before, now in zip(there, here, strict=True))
    world = replace(
        world,
        cpu_request_milli=scaled(world.cpu_request_milli, cpu),
        cpu_limit_milli=scaled(world.cpu_limit_milli, cpu),
        memory_request_bytes=scaled(world.memory_request_bytes, memory),
        memory_limit_bytes=scaled(world.memory_limit_bytes, memory),
    )
    more = mean_requests(world, world.cpu_request_milli) / mean_requests(place, place.cpu_request_milli)
    return replace(world, overcommit=(place.overcommit[0] * more, place.overcommit[1]))


def natural(text: str) -> int:
    """Parse an integer of at least 0, for argparse."""
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


def main() -> None:
    """Parse the command line, and write the recombined worlds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", type=Path, nargs="+", metavar="WORLD", help="a trace's folder")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR", help="folder of the new worlds")
    parser.add_argument("--count", type=natural, default=24, help="number of worlds (default: %(default)s)")
    parser.add_argument("--seed", type=natural, default=0, help="seed of the generator (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        worlds = check([read_trace(folder) for folder in arguments.worlds])
        write(worlds, arguments.into, arguments.count, arguments.seed)
    except TraceError as error:
        sys.exit(str(error))


def check(worlds: Sequence[Trace]) -> Sequence[Trace]:
    """Check that worlds can be combined, and return them.

    Raises:
        TraceError: there are fewer than four worlds, two have the same name, their lengths differ, or they end with
            their warm-up.
    """
    if len(worlds) < PARTS:
        raise TraceError(f"{len(worlds)} worlds: a new one needs {PARTS}")
    if len({trace.name for trace in worlds}) < len(worlds):
        raise TraceError("two worlds have the same name: give them different names, so that their owners differ")
    if len({(trace.warm_up_minutes, trace.minutes) for trace in worlds}) > 1:
        raise TraceError("the worlds have different lengths or warm-ups: pods of one cannot run in another")
    if worlds[0].warm_up_minutes == worlds[0].minutes:
        raise TraceError("the worlds end with their warm-up: nothing is measured")
    return worlds


def write(worlds: Sequence[Trace], folder: Path, count: int, seed: int) -> None:
    """Draw new worlds and write them into a folder, which must be empty or not exist.

    Args:
        worlds: worlds to combine.
        folder: folder for the new worlds.
        count: number of new worlds.
        seed: seed of the random numbers.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise TraceError(f"{folder}: not an empty folder; name another one")
    for number in range(1, count + 1):
        world = recombine(f"recombined-{number:02}", worlds, np.random.default_rng([seed, number]))
        write_trace(world, folder / world.name)
        print(f"{folder / world.name}: {len(world.pods):,} pods, CPU overcommitted {world.overcommit[0]:.2f} times")


if __name__ == "__main__":
    main()
