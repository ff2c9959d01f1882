"""From a data set to a trace: some machines, the tasks on them, and their use in a span of time, in bounded memory.

What is drawn is drawn by a hash of names: the same seed takes the same machines and tasks, whatever their order. Kept
are four bytes for each minute that a chosen task is there.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.objects import MOST
from trimaran.traces.loaders.dataset import LARGEST_BYTES, LARGEST_MILLI, Format, Machine, Task
from trimaran.traces.loaders.rows import LoadError, Source
from trimaran.traces.trace import MOST_LEVEL, NO_LIMIT, PodUse, Trace

_REQUESTED = 0.88  # of what is allocatable, after overcommit
_OVERCOMMIT = 1.5  # of CPU, where machines are made up for tasks
_LEAST = (1.0, 1024.0**2)
_ROWS = NDArray[np.float16]


@dataclass(frozen=True)
class Wanted:
    """What is taken of a data set.

    Attributes:
        nodes: how many machines, at most.
        begin_minute: from when on.
        minutes: for how long.
        warm_up_minutes: of these, what is not measured.
        seed: of what is drawn.
    """

    nodes: int = 60
    begin_minute: int = 0
    minutes: int = 3600
    warm_up_minutes: int = 720
    seed: int = 0


@dataclass(eq=False)
class _Pod:
    """A run of a task in the span.

    Attributes:
        task: what runs.
        start: the minute of the span in which it begins.
        end: it runs before this one.
        told: the minute before which something is told of it.
        levels: its use in parts of the request, not-a-number where nothing is told; shape (2, end - start).
        known: whether anything is told of its use of CPU, and of memory; shape (2,).
    """

    task: Task
    start: int
    end: int
    told: int = 0
    levels: _ROWS = field(default_factory=lambda: np.zeros((2, 0), np.float16))
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(2, np.bool_))


@dataclass
class _Told:
    """From when to when, in seconds, something is told: what to choose instead of a span with nothing."""

    begin: float = inf
    end: float = -inf

    def cover(self, *seconds: float) -> None:
        """Cover these moments, too; one that is not known is infinite."""
        known = [each for each in seconds if isfinite(each)]
        self.begin, self.end = min([self.begin, *known]), max([self.end, *known])

    def __bool__(self) -> bool:
        """Say whether anything is told."""
        return self.begin <= self.end

    def __str__(self) -> str:
        """Say the hours, to hundredths."""
        return f"from hour {self.begin // 36 / 100:g} to {-(-self.end // 36) / 100:g}"


@dataclass
class Left:
    """How many tasks were left out, as nothing is told of their use."""

    without_use: int = 0


def build(name: str, source: Source, form: Format, wanted: Wanted) -> tuple[Trace, Left]:
    """Return a trace of what is wanted, and what was left out.

    Raises:
        LoadError: the data cannot be read, or there is nothing in the span.
    """
    machines, part = _machines(source, form, wanted)
    names = frozenset(machine.name for machine in machines)
    told = _Told()
    found = _lives(form.tasks(source, names), wanted, told)
    if not form.has_machines:
        pods = _fitting(found, wanted)
    elif form.names_machines:
        pods = list(found)
    else:
        pods = [pod for pod in found if _drawn(wanted.seed, pod.task.key) < part]
    if not pods or not (machines or not form.has_machines):
        others = f"; it tells of tasks {told}" if told else "; choose others"
        raise LoadError(
            f"{source.folder}: there is nothing of {form.title} between the hours {wanted.begin_minute / 60:g} and "
            f"{(wanted.begin_minute + wanted.minutes) / 60:g}{others}"
        )
    pods = list({pod.task: pod for pod in pods}.values())  # what is told twice is there once
    left = Left()
    used = _read_uses(source, form, wanted, pods)
    kept = [pod for pod in (_filled(pod, form) for pod in pods) if pod is not None]
    left.without_use = len(pods) - len(kept)
    if not kept:
        others = f"it is told {used}" if used else "are its files of use there for them?"
        raise LoadError(f"{source.folder}: no task has use in these hours; {others}")
    wanted = _cut(kept, wanted)
    machines = machines if form.has_machines else _made_up(kept, wanted)
    return _trace(name, machines, sorted(kept, key=lambda pod: (pod.start, pod.task.key)), wanted), left


def _machines(source: Source, form: Format, wanted: Wanted) -> tuple[list[Machine], float]:
    """Return so many machines, drawn, and what part of all they are."""
    lowest: list[tuple[float, str, Machine]] = []  # the largest first, as it is the one to go
    seen: set[str] = set()
    for machine in form.machines(source):
        if machine.name in seen or machine.cpu_milli < 1 or machine.memory_bytes < 1:
            continue
        seen.add(machine.name)
        entry = (-_drawn(wanted.seed, machine.name), machine.name, machine)
        if len(lowest) < wanted.nodes:
            heapq.heappush(lowest, entry)
        else:
            heapq.heappushpop(lowest, entry)
    return sorted((each[2] for each in lowest), key=lambda machine: machine.name), len(lowest) / max(len(seen), 1)


def _lives(tasks: Iterator[Task], wanted: Wanted, told: _Told) -> Iterator[_Pod]:
    """Yield the tasks that are there in the span, for as long as they are there in it."""
    for task in tasks:
        told.cover(inf if task.start is None else task.start, task.end)
        start = 0.0 if task.start is None else task.start / 60 - wanted.begin_minute
        end = task.end / 60 - wanted.begin_minute
        if end > 0 and start < wanted.minutes and end >= start:
            first = max(int(start), 0)
            last = wanted.minutes if end >= wanted.minutes else int(np.ceil(end))
            yield _Pod(task, first, max(last, first + 1))


def _fitting(pods: Iterator[_Pod], wanted: Wanted) -> list[_Pod]:
    """Return tasks, drawn, that request what so many made-up machines give."""
    lowest: list[tuple[float, int, float, _Pod]] = []
    asked, number = 0.0, count()
    for pod in pods:
        weight = _machines_worth(pod, wanted)
        heapq.heappush(lowest, (-_drawn(wanted.seed, pod.task.key), next(number), weight, pod))
        asked += weight
        while asked - lowest[0][2] >= wanted.nodes:
            asked -= heapq.heappop(lowest)[2]
    return [entry[3] for entry in lowest]


def _made_up(pods: Sequence[_Pod], wanted: Wanted) -> list[Machine]:
    """Return as many machines as these pods are worth, at most as many as are wanted, with memory for all of them."""
    worth = round(sum(_machines_worth(pod, wanted) for pod in pods))
    made = min(wanted.nodes, max(worth, 1))
    asked = sum(_asked(pod.task)[1] * (pod.end - pod.start) for pod in pods) / wanted.minutes
    memory = max(LARGEST_BYTES, asked / (_REQUESTED * made))
    return [Machine(f"node-{place:04}", LARGEST_MILLI, memory) for place in range(made)]


def _machines_worth(pod: _Pod, wanted: Wanted) -> float:
    """Return how many made-up machines it takes for what a pod requests over the span."""
    machine = _REQUESTED * _OVERCOMMIT * LARGEST_MILLI * wanted.minutes
    return pod.task.cpu_milli * (pod.end - pod.start) / machine


def _read_uses(source: Source, form: Format, wanted: Wanted, pods: Sequence[_Pod]) -> _Told:
    """Write what is told of the pods' use into their levels, and return when it is told."""
    told = _Told()
    by_key: dict[str, list[_Pod]] = {}
    for pod in pods:
        pod.levels = np.full((2, pod.end - pod.start), np.nan, np.float16)
        by_key.setdefault(pod.task.key, []).append(pod)
    requests = {key: (runs[0].task.cpu_milli, runs[0].task.memory_bytes) for key, runs in by_key.items()}
    for use in form.uses(source, requests):
        told.cover(use.start, use.end)
        first = int(use.start // 60) - wanted.begin_minute
        last = max(int(np.ceil(use.end / 60)) - wanted.begin_minute, first + 1)
        for pod in by_key[use.key]:
            here = slice(max(first - pod.start, 0), max(last - pod.start, 0))
            for row, used, asked in zip(pod.levels, (use.cpu, use.memory), _asked(pod.task), strict=True):
                if used >= 0:
                    row[here] = min(used / asked, MOST_LEVEL)
    return told


def _filled(pod: _Pod, form: Format) -> _Pod | None:
    """Return a pod without gaps: where nothing is told it goes on as before. None where nothing is known of its CPU."""
    known = np.flatnonzero(~np.isnan(pod.levels[0]))
    if not known.size and form.cpu_level is None:
        return None
    if pod.task.start is None and known.size:  # it is there while its use is told
        first, last = int(known[0]), int(known[-1]) + 1
        pod = _Pod(pod.task, pod.start + first, pod.start + last, levels=pod.levels[:, first:last])
        known -= first
    if known.size:
        pod.told = pod.start + int(known[-1]) + 1
    else:
        pod.told = pod.end if np.isfinite(pod.task.end) else pod.start + 1
    pod.known[:] = ~np.isnan(pod.levels).all(axis=1)
    for row, level in zip(pod.levels, (form.cpu_level or 0.0, form.memory_level), strict=True):
        known = np.flatnonzero(~np.isnan(row))
        if known.size:
            row[:] = row[known[np.maximum(np.searchsorted(known, np.arange(len(row)), side="right") - 1, 0)]]
        else:
            row[:] = level
    return pod


def _cut(pods: Sequence[_Pod], wanted: Wanted) -> Wanted:
    """End the span, which would be empty then, where nothing more is told of any pod; the warm-up keeps its part."""
    minutes = max(pod.told for pod in pods)
    for pod in pods:
        pod.end = min(pod.end, minutes)
        pod.levels = pod.levels[:, : pod.end - pod.start]
    return replace(wanted, minutes=minutes, warm_up_minutes=wanted.warm_up_minutes * minutes // wanted.minutes)


def _trace(name: str, machines: Sequence[Machine], pods: Sequence[_Pod], wanted: Wanted) -> Trace:
    requests = np.array([_asked(pod.task) for pod in pods]).round().astype(np.int64)
    capacity = np.array([[machine.cpu_milli, machine.memory_bytes] for machine in machines]).round().astype(np.int64)
    none = np.full(len(pods), NO_LIMIT, np.int64)
    lives = np.array([[pod.start, pod.end] for pod in pods], np.int64)
    numbers: dict[str, int] = {}
    return Trace(
        name=name,
        nodes=tuple(machine.name for machine in machines),
        cpu_capacity_milli=capacity[:, 0],
        memory_capacity_bytes=capacity[:, 1],
        pods=tuple(_unique(pod.task.key, numbers) for pod in pods),
        owner_kinds=tuple(pod.task.owner_kind for pod in pods),
        owners=tuple(pod.task.owner for pod in pods),
        arrival_minute=lives[:, 0],
        end_minute=lives[:, 1],
        cpu_request_milli=requests[:, 0],
        memory_request_bytes=requests[:, 1],
        cpu_limit_milli=none,
        memory_limit_bytes=none,
        use=PodUse(
            np.concatenate([[0], np.cumsum(lives[:, 1] - lives[:, 0])]),
            np.concatenate([pod.levels[0] for pod in pods]),
            np.concatenate([pod.levels[1] for pod in pods]),
        ),
        overcommit=_overcommit(requests, lives, capacity, np.stack([pod.known for pod in pods]), wanted),
        warm_up_minutes=wanted.warm_up_minutes,
        minutes=wanted.minutes,
    )


def _overcommit(
    requests: NDArray[np.int64],
    lives: NDArray[np.int64],
    capacity: NDArray[np.int64],
    known: NDArray[np.bool_],
    wanted: Wanted,
) -> tuple[float, float]:
    """Return what requests are to be divided by so that 88 percent of what is allocatable is requested; at least 1.

    It is 1 for a resource whose use is not known of any pod: what is made up from requests would overload nodes by it.
    """
    measured = np.maximum(lives[:, 1] - np.maximum(lives[:, 0], wanted.warm_up_minutes), 0)
    asked = measured.astype(np.float64) @ requests / (wanted.minutes - wanted.warm_up_minutes)
    full = np.where(known.any(axis=0), asked / (_REQUESTED * capacity.sum(axis=0)), 1.0)
    cpu, memory = np.maximum(full.round(3), 1.0).tolist()
    return cpu, memory


def _asked(task: Task) -> tuple[float, float]:
    """Return what a task requests, at least 1m and 1 MiB, of which its use is told in parts."""
    cpu, memory = (
        min(max(asked, least), MOST) for asked, least in zip((task.cpu_milli, task.memory_bytes), _LEAST, strict=True)
    )
    return cpu, memory


def _unique(key: str, numbers: dict[str, int]) -> str:
    """Return a name for a run of a task: that of the second one is told apart."""
    number = numbers[key] = numbers.get(key, -1) + 1
    return f"{key}#{number}" if number else key


def _drawn(seed: int, name: str) -> float:
    """Return a number from 0 to 1 that is drawn for a name."""
    return int.from_bytes(blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()) / 2**64
