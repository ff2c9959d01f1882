"""The past use of the running pods in a replay, kept by the code that keeps it live.

Each five minutes the mean CPU and the highest memory of every pod that ran in them are stored. The use is known with
the same delay and the same outages as the watcher's node metrics. CPU demand above a node's capacity counts as use.
"""

from itertools import compress

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from watcher.workloads.pod_history import PERIOD_STEPS, STEP_SECONDS, STEPS, Float16s, PodHistory

STEP_MINUTES = STEP_SECONDS // 60
_HOUR = 60 // STEP_MINUTES
_GIB = 1024**3

Key = tuple[int, int]


class PastUse:
    """Past use of the pods of one replay.

    Args:
        cluster: the simulated cluster.
        watcher: the watcher, which limits how recent the known use is.
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher) -> None:
        self._cluster, self._watcher = cluster, watcher
        self._history: PodHistory[Key] = PodHistory()
        self._active: list[PodRun] = []  # runs that had not ended at the last step
        self._followed = 0
        self._next_step = 0

    def known_steps(self, minutes: int) -> int:
        """Return the number of past steps with known use: whole hours, or in the first hour whole quarters.

        The number is 0 without a fresh snapshot, so that nothing is moved in an outage.

        Args:
            minutes: largest length of the past.
        """
        if self._watcher.snapshot() is None:
            return 0
        self._observe()
        steps = min(minutes // STEP_MINUTES, self._next_step, STEPS)
        return steps - steps % (_HOUR if steps >= _HOUR else PERIOD_STEPS)

    def known(self, pods: Int64s, steps: int) -> tuple[Float16s, Float16s]:
        """Return the past of running pods as :meth:`watcher.workloads.pod_history.PodHistory.past` does.

        Args:
            pods: numbers of running pods.
            steps: length of the past, as :meth:`known_steps` returns it.
        """
        return self._history.past([self._key(self._cluster.running[pod]) for pod in pods.tolist()], steps)

    def _observe(self) -> None:
        """Store the steps that have become known."""
        cluster = self._cluster
        self._active += cluster.pod_runs[self._followed :]
        self._followed = len(cluster.pod_runs)
        while (self._next_step + 1) * STEP_MINUTES <= self._watcher.known_until():
            self._observe_step(self._next_step * STEP_MINUTES)
            self._next_step += 1
        # Pods that wait for a new node keep their past.
        waiting = [(number, -1) for number in cluster.queue]
        self._history.keep_only([*map(self._key, cluster.running.values()), *waiting])

    def _observe_step(self, begin: int) -> None:
        """Store the step that begins in a minute."""
        cluster, end = self._cluster, begin + STEP_MINUTES
        spans = np.array([(run.pod, run.start, run.end, cluster.use_origin(run)) for run in self._active], np.int64)
        pods, starts, ends, origins = spans.reshape(-1, 4).T
        start = np.maximum(starts, begin)
        length = np.minimum(ends, end) - start
        ran = np.flatnonzero(length > 0)
        keys = [self._key(self._active[number]) for number in ran.tolist()]
        self._active = list(compress(self._active, (ends > end).tolist()))

        # Places of these minutes in the trace's arrays of use.
        pods, length = pods[ran], length[ran]
        first = cluster.trace.use.offsets[pods] + start[ran] - origins[ran]
        offsets = np.cumsum(length) - length
        at = np.repeat(first - offsets, length) + np.arange(length.sum())
        unique = dict.fromkeys(keys)  # a pod that was moved within the step ran twice
        place = {key: number for number, key in enumerate(unique)}
        of_minute = np.repeat([place[key] for key in keys], length).astype(np.int64)
        cpu, memory = self._sums(at, of_minute, len(unique))
        number = np.array([key[0] for key in unique], np.int64)
        trace = cluster.trace
        cores = cpu * trace.cpu_request_milli[number] / 1000
        gib = memory * trace.memory_request_bytes[number] / _GIB
        self._history.observe(begin // STEP_MINUTES, list(unique), cores, gib)

    def _sums(self, at: Int64s, pod: Int64s, pods: int) -> tuple[Float64s, Float64s]:
        """Return the mean CPU level and the highest memory level of each pod over some minutes."""
        use, memory = self._cluster.trace.use, np.zeros(pods)
        minutes = np.bincount(pod, minlength=pods)
        cpu = np.bincount(pod, use.cpu[at].astype(np.float64), pods) / np.maximum(minutes, 1)
        np.maximum.at(memory, pod, use.memory[at].astype(np.float64))
        return cpu, memory

    def _key(self, run: PodRun) -> Key:
        """Return the identity of a pod's past: a job that starts over begins a new one."""
        return run.pod, run.start if self._cluster.is_job(run.pod) else -1
