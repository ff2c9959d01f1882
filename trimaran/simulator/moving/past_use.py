"""The past use of the running pods in a replay, kept by the code that keeps it live.

Each five minutes the mean CPU and the highest memory of every running pod are stored, with the rounds of
:mod:`trimaran.simulator.use_rounds`.
"""

from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES, UseRounds
from watcher.pod_use_table import PERIOD_STEPS, STEPS, Float16s
from watcher.workloads.pod_history import PodHistory

_HOUR = 60 // ROUND_MINUTES
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
        self._rounds = UseRounds(cluster)

    def known_steps(self, minutes: int) -> int:
        """Return the number of past steps with known use: whole hours, or in the first hour whole quarters.

        The number is 0 without a fresh snapshot, so that nothing is moved in an outage.

        Args:
            minutes: largest length of the past.
        """
        if self._watcher.snapshot() is None:
            return 0
        self._observe()
        steps = min(minutes // ROUND_MINUTES, self._rounds.until // ROUND_MINUTES, STEPS)
        return steps - steps % (_HOUR if steps >= _HOUR else PERIOD_STEPS)

    def known(self, runs: list[PodRun], steps: int) -> tuple[Float16s, Float16s]:
        """Return the past of running pods as :meth:`watcher.workloads.pod_history.PodHistory.past` does.

        Args:
            runs: runs of pods.
            steps: length of the past, as :meth:`known_steps` returns it.
        """
        return self._history.past([self._key(run) for run in runs], steps)

    def _observe(self) -> None:
        """Store the rounds that have become known."""
        for measured in self._rounds.known(self._watcher.known_until()):
            pods = [self._key(run) for run in measured.runs]
            step = measured.until // ROUND_MINUTES - 1
            self._history.observe(step, pods, measured.cores, measured.memory_bytes / _GIB)
        # Pods that wait for a new node keep their past.
        waiting = [(number, -1) for number in self._cluster.queue]
        self._history.keep_only([*map(self._key, self._cluster.running.values()), *waiting])

    def _key(self, run: PodRun) -> Key:
        """Return the identity of a pod's past: a job that starts over begins a new one."""
        return run.pod, run.start if self._cluster.is_job(run.pod) else -1
