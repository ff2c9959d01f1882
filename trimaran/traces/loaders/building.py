"""Building of a trace from a data set: a sample of machines, their tasks, and the use in a time span.

Machines and tasks are sampled by a hash of their names, so that a seed selects the same ones in any order of the files.
Memory is bounded: four bytes for each minute of a selected task.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from runtime.kubernetes.objects import MAX_AMOUNT
from trimaran.traces.history import MAX_LEVEL
from trimaran.traces.loaders.dataset import LARGEST_BYTES, LARGEST_MILLI, DatasetFormat, DatasetTask, Machine
from trimaran.traces.loaders.past_days import PastDays
from trimaran.traces.loaders.rows import DatasetFiles, LoadError
from trimaran.traces.trace import NO_LIMIT, PodUse, Trace

_REQUESTED = 0.88  # requests after overcommit, as a share of allocatable
_OVERCOMMIT = 1.5  # CPU overcommit of generated machines
_MIN_REQUESTS = (1.0, 1024.0**2)
_ROWS = NDArray[np.float16]


@dataclass(frozen=True)
class ImportOptions:
    """Part of a data set to import.

    Attributes:
        nodes: largest number of machines.
        begin_minute: start of the span, in minutes from the start of the data set.
        minutes: length of the span.
        warm_up_minutes: first part of the span, which is not measured.
        seed: random seed of the sample.
        history_days: days before the span whose use becomes the trace's history.
    """

    nodes: int = 60
    begin_minute: int = 0
    minutes: int = 3600
    warm_up_minutes: int = 720
    seed: int = 0
    history_days: int = 0


@dataclass(eq=False)
class _Pod:
    """Run of a task in the span; minutes are counted from the start of the span.

    Attributes:
        task: the task.
        start: first minute.
        end: minute after the last one.
        data_end: minute after the last one with data.
        levels: use as a share of the request, shape (2, end - start); NaN if unknown.
        known: whether there is any data about CPU and about memory, shape (2,).
    """

    task: DatasetTask
    start: int
    end: int
    data_end: int = 0
    levels: _ROWS = field(default_factory=lambda: np.zeros((2, 0), np.float16))
    known: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(2, np.bool_))


@dataclass
class _DataRange:
    """Time range in which a data set has data, in seconds, for the error message if the requested span has no data."""

    begin: float = inf
    end: float = -inf

    def extend(self, *seconds: float) -> None:
        """Extend the range so that it includes the given times; infinite times are unknown and ignored."""
        known = [time for time in seconds if isfinite(time)]
        self.begin, self.end = min([self.begin, *known]), max([self.end, *known])

    def __bool__(self) -> bool:
        """Return True if the range is not empty."""
        return self.begin <= self.end

    def __str__(self) -> str:
        """Return the range in hours, rounded outwards to hundredths."""
        return f"from hour {self.begin // 36 / 100:g} to {-(-self.end // 36) / 100:g}"


def build_trace(name: str, source: DatasetFiles, form: DatasetFormat, options: ImportOptions) -> tuple[Trace, int]:
    """Build a trace from a part of a data set.

    Args:
        name: name of the trace.
        source: files of the data set.
        form: format of the data set.
        options: the part of the data set to import.

    Returns:
        The trace, and the number of tasks that are left out because they have no measured use.

    Raises:
        LoadError: the data cannot be read, the span is empty, or the data has too few days before it.
    """
    machines, share = _sample_machines(source, form, options)
    names = frozenset(machine.name for machine in machines)
    # Select tasks: as many as generated machines can hold, those of the sampled machines, or the machines' share.
    task_range = _DataRange()
    candidates = _tasks_in_span(form.tasks(source, names), options, task_range)
    if not form.has_machines:
        pods = _sample_pods(candidates, options)
    elif form.names_machines:
        pods = list(candidates)
    else:
        pods = [pod for pod in candidates if _hash_fraction(options.seed, pod.task.key) < share]
    if not pods or not (machines or not form.has_machines):
        hint = f"it has tasks {task_range}" if task_range else "choose other hours"
        raise LoadError(
            f"{source.folder}: {form.title} has no tasks between the hours {options.begin_minute / 60:g} and "
            f"{(options.begin_minute + options.minutes) / 60:g}; {hint}"
        )
    pods = list({pod.task: pod for pod in pods}.values())  # drop duplicate rows
    past = PastDays(60 * options.begin_minute, options.history_days)
    if options.history_days:
        # Tasks that ended before the span, too: these files are small, compared with those of the use.
        past.select(form.tasks(source, names), {(pod.task.owner_kind, pod.task.owner) for pod in pods})
    # Read the use of the selected tasks, and leave out those without any.
    use_range = _read_uses(source, form, options, pods, past)
    used_pods = [pod for pod in (_fill_gaps(pod, form) for pod in pods) if pod is not None]
    if not used_pods:
        hint = f"the data set has use {use_range}" if use_range else "check that its files with use are complete"
        hint += f", too few for --history-days {options.history_days}" if options.history_days else ""
        raise LoadError(f"{source.folder}: no task has use in these hours; {hint}")
    options = _trim_span(used_pods, options)
    machines = machines if form.has_machines else _generate_machines(used_pods, options)
    trace = _trace(name, machines, sorted(used_pods, key=lambda pod: (pod.start, pod.task.key)), options)
    return replace(trace, history=past.history(trace.mean_requests())), len(pods) - len(used_pods)


def _sample_machines(source: DatasetFiles, form: DatasetFormat, options: ImportOptions) -> tuple[list[Machine], float]:
    """Return a sample of machines, and the share of all machines that the sample has, from 0 to 1."""
    # The sample has the machines with the lowest hashes; hashes are negated, as heapq removes the smallest entry.
    lowest: list[tuple[float, str, Machine]] = []
    seen: set[str] = set()
    for machine in form.machines(source):
        if machine.name in seen or machine.cpu_milli < 1 or machine.memory_bytes < 1:
            continue
        seen.add(machine.name)
        entry = (-_hash_fraction(options.seed, machine.name), machine.name, machine)
        if len(lowest) < options.nodes:
            heapq.heappush(lowest, entry)
        else:
            heapq.heappushpop(lowest, entry)
    return sorted((entry[2] for entry in lowest), key=lambda machine: machine.name), len(lowest) / max(len(seen), 1)


def _tasks_in_span(tasks: Iterator[DatasetTask], options: ImportOptions, task_range: _DataRange) -> Iterator[_Pod]:
    """Yield the runs of tasks in the span to import; a run that begins before or ends after the span is cut."""
    for task in tasks:
        task_range.extend(inf if task.start is None else task.start, task.end)
        start = 0.0 if task.start is None else task.start / 60 - options.begin_minute
        end = task.end / 60 - options.begin_minute
        if end > 0 and start < options.minutes and end >= start:
            first = max(int(start), 0)
            last = options.minutes if end >= options.minutes else int(np.ceil(end))
            yield _Pod(task, first, max(last, first + 1))


def _sample_pods(pods: Iterator[_Pod], options: ImportOptions) -> list[_Pod]:
    """Return a sample of tasks whose requests fill the wanted number of generated machines."""
    lowest: list[tuple[float, int, float, _Pod]] = []
    machines, number = 0.0, count()
    for pod in pods:
        weight = _machines_needed(pod, options)
        heapq.heappush(lowest, (-_hash_fraction(options.seed, pod.task.key), next(number), weight, pod))
        machines += weight
        while machines - lowest[0][2] >= options.nodes:
            machines -= heapq.heappop(lowest)[2]
    return [entry[3] for entry in lowest]


def _generate_machines(pods: Sequence[_Pod], options: ImportOptions) -> list[Machine]:
    """Return as many generated machines as the pods need, at most ``options.nodes``, with memory for all pods."""
    needed = round(sum(_machines_needed(pod, options) for pod in pods))
    machines = min(options.nodes, max(needed, 1))
    requested = sum(_requests(pod.task)[1] * (pod.end - pod.start) for pod in pods) / options.minutes
    memory = max(LARGEST_BYTES, requested / (_REQUESTED * machines))
    return [Machine(f"node-{number:04}", LARGEST_MILLI, memory) for number in range(machines)]


def _machines_needed(pod: _Pod, options: ImportOptions) -> float:
    """Return the number of generated machines that a pod fills with its CPU request, averaged over the span."""
    machine = _REQUESTED * _OVERCOMMIT * LARGEST_MILLI * options.minutes
    return pod.task.cpu_milli * (pod.end - pod.start) / machine


def _read_uses(
    source: DatasetFiles, form: DatasetFormat, options: ImportOptions, pods: Sequence[_Pod], past: PastDays
) -> _DataRange:
    """Set the pods' levels (use as a share of the request), and add the past; return the time range with use."""
    use_range = _DataRange()
    by_key: dict[str, list[_Pod]] = {}
    for pod in pods:
        pod.levels = np.full((2, pod.end - pod.start), np.nan, np.float16)
        by_key.setdefault(pod.task.key, []).append(pod)
    requests = {key: (runs[0].task.cpu_milli, runs[0].task.memory_bytes) for key, runs in by_key.items()}
    for use in form.uses(source, past.requests | requests):
        use_range.extend(use.start, use.end)
        past.add(use)
        first = int(use.start // 60) - options.begin_minute
        last = max(int(np.ceil(use.end / 60)) - options.begin_minute, first + 1)
        for pod in by_key.get(use.key, ()):
            minutes = slice(max(first - pod.start, 0), max(last - pod.start, 0))
            for row, amount, request in zip(pod.levels, (use.cpu, use.memory), _requests(pod.task), strict=True):
                if amount >= 0:  # not NaN
                    row[minutes] = min(amount / request, MAX_LEVEL)
    return use_range


def _fill_gaps(pod: _Pod, form: DatasetFormat) -> _Pod | None:
    """Fill each gap in a pod's levels (use as a share of the request) with the value before the gap.

    Returns:
        The pod, limited to the time with use if its task has no start time; None if its CPU use is unknown.
    """
    known = np.flatnonzero(~np.isnan(pod.levels[0]))
    if not known.size and form.cpu_level is None:
        return None
    # Without a start time, a task runs from its first to its last use.
    if pod.task.start is None and known.size:
        first, last = int(known[0]), int(known[-1]) + 1
        pod = _Pod(pod.task, pod.start + first, pod.start + last, levels=pod.levels[:, first:last])
        known -= first
    if known.size:
        pod.data_end = pod.start + int(known[-1]) + 1
    else:
        pod.data_end = pod.end if np.isfinite(pod.task.end) else pod.start + 1
    pod.known[:] = ~np.isnan(pod.levels).all(axis=1)
    for row, level in zip(pod.levels, (form.cpu_level or 0.0, form.memory_level), strict=True):
        known = np.flatnonzero(~np.isnan(row))
        if known.size:
            row[:] = row[known[np.maximum(np.searchsorted(known, np.arange(len(row)), side="right") - 1, 0)]]
        else:
            row[:] = level
    return pod


def _trim_span(pods: Sequence[_Pod], options: ImportOptions) -> ImportOptions:
    """End the span with the last data of any pod; the warm-up keeps its share of the span."""
    minutes = max(pod.data_end for pod in pods)
    for pod in pods:
        pod.end = min(pod.end, minutes)
        pod.levels = pod.levels[:, : pod.end - pod.start]
    return replace(options, minutes=minutes, warm_up_minutes=options.warm_up_minutes * minutes // options.minutes)


def _trace(name: str, machines: Sequence[Machine], pods: Sequence[_Pod], options: ImportOptions) -> Trace:
    requests = np.array([_requests(pod.task) for pod in pods]).round().astype(np.int64)
    capacity = np.array([[machine.cpu_milli, machine.memory_bytes] for machine in machines]).round().astype(np.int64)
    none = np.full(len(pods), NO_LIMIT, np.int64)
    lifetimes = np.array([[pod.start, pod.end] for pod in pods], np.int64)
    numbers: dict[str, int] = {}
    return Trace(
        name=name,
        nodes=tuple(machine.name for machine in machines),
        cpu_capacity_milli=capacity[:, 0],
        memory_capacity_bytes=capacity[:, 1],
        pods=tuple(_unique_name(pod.task.key, numbers) for pod in pods),
        owner_kinds=tuple(pod.task.owner_kind for pod in pods),
        owners=tuple(pod.task.owner for pod in pods),
        arrival_minute=lifetimes[:, 0],
        end_minute=lifetimes[:, 1],
        cpu_request_milli=requests[:, 0],
        memory_request_bytes=requests[:, 1],
        cpu_limit_milli=none,
        memory_limit_bytes=none,
        use=PodUse(
            np.concatenate([[0], np.cumsum(lifetimes[:, 1] - lifetimes[:, 0])]),
            np.concatenate([pod.levels[0] for pod in pods]),
            np.concatenate([pod.levels[1] for pod in pods]),
        ),
        overcommit=_overcommit(requests, lifetimes, capacity, np.stack([pod.known for pod in pods]), options),
        warm_up_minutes=options.warm_up_minutes,
        minutes=options.minutes,
    )


def _overcommit(
    requests: NDArray[np.int64],
    lifetimes: NDArray[np.int64],
    capacity: NDArray[np.int64],
    known: NDArray[np.bool_],
    options: ImportOptions,
) -> tuple[float, float]:
    """Return the overcommit of CPU and memory with which 88 percent of allocatable is requested, at least 1.

    For a resource without any data the overcommit is 1: its use is assumed to be a share of the requests, so overcommit
    would overload the nodes.
    """
    measured = np.maximum(lifetimes[:, 1] - np.maximum(lifetimes[:, 0], options.warm_up_minutes), 0)
    requested = measured.astype(np.float64) @ requests / (options.minutes - options.warm_up_minutes)
    full = np.where(known.any(axis=0), requested / (_REQUESTED * capacity.sum(axis=0)), 1.0)
    cpu, memory = np.maximum(full.round(3), 1.0).tolist()
    return cpu, memory


def _requests(task: DatasetTask) -> tuple[float, float]:
    """Return a task's CPU and memory requests, at least 1 millicore and 1 MiB, because use is divided by them."""
    amounts = task.cpu_milli, task.memory_bytes
    cpu, memory = (
        min(max(amount, minimum), MAX_AMOUNT) for amount, minimum in zip(amounts, _MIN_REQUESTS, strict=True)
    )
    return cpu, memory


def _unique_name(key: str, numbers: dict[str, int]) -> str:
    """Return a unique pod name for a run of a task; the second and later runs of a task get a number."""
    number = numbers[key] = numbers.get(key, -1) + 1
    return f"{key}#{number}" if number else key


def _hash_fraction(seed: int, name: str) -> float:
    """Return a uniform pseudo-random number from 0 to 1 for a name."""
    return int.from_bytes(blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()) / 2**64
