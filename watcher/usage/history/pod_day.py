"""Use of each pod over the last day: turns rounds into tables and into rows for the store; no clock, no file."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from runtime.kubernetes.workloads import Workload
from watcher.pod_use_table import HOURS, STEP_SECONDS, STEPS, Float16s, Float64s, PodUseTable
from watcher.usage.array_bytes import UNREADABLE, pack, unpack
from watcher.usage.history.pod_history import HOUR_STEPS, PodHistory
from watcher.usage.store.pod_use import PodUseChanges, StoredPodUse

if TYPE_CHECKING:
    from watcher.usage.sources.pods import RunningPod, RunningPods
    from watcher.usage.store.pod_use import PodRow
    from watcher.windows.container_use import ContainerUse

_log = logging.getLogger(__name__)
_GIB = 1024**3
_THROTTLED = 0.05  # share of the CPU periods from which on a pod waits for its own limit
_UNKNOWN_COURSE = np.full((2, HOURS), np.nan)


class _KeptPod:
    """Names of a pod, the first and the newest step in which it was measured, and when it last waited for CPU."""

    __slots__ = ("first", "last", "name", "node", "number", "revision", "uid", "waited", "waiting", "workload")

    def __init__(self, number: int, texts: Sequence[str], workload: Workload, first: int) -> None:
        self.number, self.workload, self.first, self.last = number, workload, first, first
        self.uid, self.name, self.node, self.revision = texts
        self.waiting, self.waited = np.nan, first  # highest share of a round, and the step of this round; not stored

    @property
    def key(self) -> str:
        return self.uid or self.name

    @property
    def row(self) -> "PodRow":
        return (self.number, self.uid, self.name, self.node, self.revision, *self.workload)


class PodUseDay:
    """The last day of the use of every pod; not thread-safe.

    Args:
        max_pods: largest number of pods; further ones are left out until others have been gone for a day.
    """

    def __init__(self, max_pods: int = 100_000) -> None:
        self._max_pods = max_pods
        self._clear()

    def _clear(self) -> None:
        self._history: PodHistory[str] = PodHistory()
        self._pods: dict[str, _KeptPod] = {}
        self._workloads: dict[Workload, Workload] = {}  # one object for all pods of a workload
        self._next_number = 1
        self._rounds_in_step = 0
        self._is_full = False

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def size(self) -> int:
        """Size of the buffers in bytes."""
        return self._history.size

    def observe(self, use: "ContainerUse", pods: "RunningPods") -> PodUseChanges | None:
        """Add a measurement of all pods; return the changes to store, or None if a newer measurement is known."""
        newest = int(use.timestamp - use.window_seconds / 2) // STEP_SECONDS
        steps = max(round(use.window_seconds / STEP_SECONDS), 1)
        first = newest - steps + 1
        begins = newest < self._history.newest - HOUR_STEPS
        if begins:
            _log.warning("the clock was set back: the past use of pods begins again")
            self._clear()
        if newest < self._history.newest:
            return None
        keys, cpu, memory, added = self._measured(use, pods, first, newest)
        if steps == 1:
            cpu = self._mean_of_step(newest, keys, cpu)
        for step in range(max(first, self._history.newest), newest + 1):
            self._history.observe(step, keys, cpu, memory)
        self._note_waiting(use, pods, newest)
        gone = self._forget_gone(newest)
        hours = range(first // HOUR_STEPS, newest // HOUR_STEPS + 1)
        blocks = {hour: self._block(hour) for hour in hours}
        oldest_hour = (newest - STEPS + 1) // HOUR_STEPS
        return PodUseChanges([self._pods[key].row for key in added], gone, blocks, oldest_hour, begins)

    def table(self, nodes: Iterable[str], uids: Iterable[str], courses: Mapping[Workload, Float64s]) -> PodUseTable:
        """Return the use of the pods on the given nodes, and of further pods.

        Args:
            nodes: names of nodes, whose pods of the newest step are returned.
            uids: uids of further pods, also of pods that are gone.
            courses: mean use of a pod of each workload in each hour of the day, cores and bytes, shape (2, 24).
        """
        wanted, newest = set(nodes), self._history.newest
        keys = [key for key, pod in self._pods.items() if pod.node in wanted and pod.last == newest]
        keys = list(dict.fromkeys([*keys, *(uid for uid in uids if uid in self._pods)]))
        pods = [self._pods[key] for key in keys]
        cpu, memory = self._history.past(keys, STEPS)
        course = np.array([courses.get(pod.workload, _UNKNOWN_COURSE) for pod in pods], np.float64)
        course = course.reshape(-1, 2, HOURS).transpose(1, 0, 2) / [[[1]], [[_GIB]]]
        since = np.array([max(pod.first, newest - STEPS + 1) for pod in pods], np.float64) * STEP_SECONDS
        last_seen = np.array([pod.last + 1 for pod in pods], np.float64) * STEP_SECONDS
        names = ([pod.uid for pod in pods], [pod.name for pod in pods], [pod.node for pod in pods])
        return PodUseTable(
            float((newest + 1) * STEP_SECONDS) if newest >= 0 else 0.0,
            *names, [pod.workload for pod in pods], [pod.revision for pod in pods],
            since, last_seen, cpu, memory, _half(course),
            np.array([pod.waiting if pod.waited > newest - HOUR_STEPS else np.nan for pod in pods], np.float64),
        )  # fmt: skip

    def _note_waiting(self, use: "ContainerUse", pods: "RunningPods", newest: int) -> None:
        """Record which pods waited for CPU that their node did not have: none of their containers was throttled."""
        if use.strain is None:
            return
        throttled, waiting = np.nan_to_num(use.strain)
        throttling, longest = defaultdict[tuple[str, str], float](float), dict[tuple[str, str], float]()
        for row in np.flatnonzero((waiting > 0) | (throttled > 0)).tolist():
            name = use.namespaces[row], use.pods[row]
            throttling[name] = max(throttling[name], float(throttled[row]))
            longest[name] = max(longest.get(name, 0.0), float(waiting[row]))
        for name, share in longest.items():
            running = pods.get(name)  # type: ignore[call-overload]  # a plain tuple equals a PodKey
            kept = None if running is None else self._pods.get(running.uid or "/".join(name))
            if kept is None:
                continue
            waited = 0.0 if throttling[name] >= _THROTTLED else share
            if kept.waited <= newest - HOUR_STEPS or not waited < kept.waiting:
                kept.waiting, kept.waited = waited, newest

    def restore(self, stored: StoredPodUse) -> None:
        """Restore stored pods and blocks; damaged blocks are left out."""
        named: dict[int, _KeptPod] = {}
        for number, *texts, namespace, kind, name in stored.pods:
            workload = Workload(namespace, kind, name)
            named[number] = _KeptPod(number, texts, self._workloads.setdefault(workload, workload), -1)
        self._next_number = max(named, default=0) + 1
        for hour, body in sorted(stored.blocks.items()):
            try:
                self._restore_hour(hour, named, unpack(body))
            except (*UNREADABLE, AttributeError) as error:
                _log.warning("an hour of the stored use of pods is unreadable", extra={"error": str(error)})

    def _restore_hour(self, hour: int, named: Mapping[int, _KeptPod], block: Mapping[str, Float64s]) -> None:
        numbers, ends = block["pods"].tolist(), block["ends"].astype(np.int64).reshape(-1, 2).tolist()
        rows = [row for row, number in enumerate(numbers) if number in named]
        pods = [named[numbers[row]] for row in rows]
        cpu, memory = block["cpu"][rows].astype(np.float16), block["memory"][rows].astype(np.float16)
        newest = min(int(block["newest"][0]), (hour + 1) * HOUR_STEPS - 1)
        self._history.restore(hour, newest, [pod.key for pod in pods], cpu, memory)
        for row, pod in zip(rows, pods, strict=True):
            pod.first, pod.last = ends[row]
            self._pods[pod.key] = pod

    def _measured(
        self, use: "ContainerUse", pods: "RunningPods", first: int, newest: int
    ) -> tuple[list[str], Float64s, Float64s, list[str]]:
        """Return the measured pods, their CPU in cores and memory in GiB, and the keys of new pods."""
        place: dict[tuple[str, str], int] = {}
        names = zip(use.namespaces, use.pods, strict=True)
        group = np.fromiter((place.setdefault(name, len(place)) for name in names), np.int64, len(use))
        keys: list[str] = []
        rows: list[int] = []
        added: list[str] = []
        for (namespace, name), row in place.items():
            running = pods.get((namespace, name))  # type: ignore[call-overload]  # a plain tuple equals a PodKey
            if running is None:
                continue
            key = running.uid or f"{namespace}/{name}"
            kept = self._pods.get(key)
            if kept is None:
                if len(self._pods) >= self._max_pods:
                    self._report_full()
                    continue
                kept = self._pods[key] = self._new(f"{namespace}/{name}", running, first)
                added.append(key)
            kept.last = newest
            keys.append(key)
            rows.append(row)
        sums = np.stack([np.bincount(group, each, len(place)) for each in (use.cpu_cores, use.memory_bytes)])
        cpu, memory = sums.astype(np.float64)[:, rows]
        return keys, cpu, memory / _GIB, added

    def _mean_of_step(self, step: int, keys: list[str], cpu: Float64s) -> Float64s:
        """Return each pod's mean CPU over the rounds of a step, for rounds that are shorter than a step."""
        self._rounds_in_step = self._rounds_in_step + 1 if step == self._history.newest else 1
        if self._rounds_in_step == 1:
            return cpu
        before = self._history.past(keys, 3)[0][:, -1].astype(np.float64)
        mean = before + (cpu - before) / self._rounds_in_step
        return np.where(np.isnan(before), cpu, np.where(np.isnan(cpu), before, mean))

    def _new(self, name: str, running: "RunningPod", first: int) -> _KeptPod:
        workload = self._workloads.setdefault(running.template.workload, running.template.workload)
        self._next_number += 1
        texts = (running.uid, name, running.node, running.template.revision)
        return _KeptPod(self._next_number - 1, texts, workload, first)

    def _report_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            _log.warning("the past use of further pods is not kept", extra={"pods": self._max_pods})

    def _forget_gone(self, newest: int) -> list[int]:
        """Forget the pods that have not been measured for a day; return their numbers."""
        gone = [key for key, pod in self._pods.items() if pod.last <= newest - STEPS]
        if not gone:
            return []
        self._history.forget(gone)
        numbers = [self._pods.pop(key).number for key in gone]
        self._workloads = {pod.workload: pod.workload for pod in self._pods.values()}
        self._is_full = False
        return numbers

    def _block(self, hour: int) -> bytes:
        """Return the packed use in an hour of the pods that were measured in this hour."""
        keys, cpu, memory = self._history.hour(hour)
        pods = [self._pods[key] for key in keys]
        return pack(
            newest=np.array([self._history.newest]),
            pods=np.array([pod.number for pod in pods], np.int64),
            # Other threads can run while a generator is read, but not while a list of tuples is converted.
            ends=np.fromiter((step for pod in pods for step in (pod.first, pod.last)), np.int64).reshape(-1, 2),
            cpu=cpu,
            memory=memory,
        )


def _half(values: Float64s) -> Float16s:
    return np.minimum(values, np.finfo(np.float16).max).astype(np.float16)
