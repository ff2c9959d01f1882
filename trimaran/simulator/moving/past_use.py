"""The past use of the running pods in a replay, stored by the same code as in a live cluster.

Each five minutes the mean CPU and the highest memory of every running pod are stored, with the rounds of
:mod:`trimaran.simulator.use_rounds`. As in a live cluster a pod that starts on another node is a new pod. The
replacement of a moved pod inherits its past; other new pods begin with the profile of their workload.
"""

from collections.abc import Iterable

import numpy as np

from scoring.arrays import Float64s
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import ROUND_MINUTES, UseRounds
from trimaran.simulator.windows import BEGIN_SECONDS
from watcher.pod_use_table import PERIOD_STEPS, STEP_SECONDS, STEPS, Float16s
from watcher.usage.history.pod_history import PodHistory

DAY_MINUTES = ROUND_MINUTES * STEPS
_HOUR = 60 // ROUND_MINUTES
_GIB = 1024**3
_FIRST_STEP = BEGIN_SECONDS // STEP_SECONDS

Key = tuple[int, int]


class PastUse:
    """Past use of the pods of one replay.

    Args:
        cluster: the simulated cluster.
        watcher: the watcher, which limits how recent the known use is.
        since: minute before which no use is known, as for a watcher that lost its store.
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher, since: int = 0) -> None:
        self._cluster, self._watcher = cluster, watcher
        self._history: PodHistory[Key] = PodHistory()
        self._rounds = UseRounds(cluster, since)
        self._workloads = UseHistory(cluster, watcher)
        self._lineages: dict[int, Key] = {}  # by pod: start of its newest run, and of the run whose past it inherits
        self._moved: set[int] = set()

    def known_steps(self, minutes: int) -> int:
        """Return the number of past steps with known use: whole hours, or in the first hour whole quarters.

        The number is 0 without a fresh snapshot, so that nothing is moved in an outage.

        Args:
            minutes: largest length of the past.
        """
        if self._watcher.snapshot() is None:
            return 0
        self._observe()
        history = self._history
        known = history.newest - history.oldest + 1 if history.newest >= 0 else 0
        steps = min(minutes // ROUND_MINUTES, known, STEPS)
        return steps - steps % (_HOUR if steps >= _HOUR else PERIOD_STEPS)

    @property
    def known_until(self) -> int:
        """End of the newest step with known use, Unix seconds."""
        return (_FIRST_STEP + self._history.newest + 1) * STEP_SECONDS

    def courses(self, runs: list[PodRun]) -> Float64s:
        """Return the hourly profile of each run's workload, cores and GiB, shape (2, runs, 24); NaN for jobs."""
        pods = np.array([run.pod for run in runs], np.int64)
        courses = self._workloads.courses(pods) / [[[1]], [[_GIB]]]
        courses[:, self._cluster.jobs[pods]] = np.nan  # a job will soon end
        return courses

    def measured(self, runs: list[PodRun], steps: int) -> tuple[Float16s, Float16s]:
        """Return past use of running pods, as :meth:`~watcher.usage.history.pod_history.PodHistory.past` does."""
        return self._history.past([self._key(run) for run in runs], steps)

    def moved(self, pods: Iterable[int]) -> None:
        """Let the next runs of moved pods inherit their past."""
        self._moved.update(pods)

    def _observe(self) -> None:
        """Store the rounds that have become known."""
        for measured in self._rounds.known(self._watcher.known_until()):
            pods = [self._key(run) for run in measured.runs]
            step = measured.until // ROUND_MINUTES - 1
            self._history.observe(step, pods, measured.cores, measured.memory_bytes / _GIB)
            self._workloads.learn(measured)
        self._history.keep_only(list(map(self._key, self._cluster.running.values())))

    def _key(self, run: PodRun) -> Key:
        """Return the key of the past of a run: the key of the run whose past it inherits, or a new key."""
        known = self._lineages.get(run.pod)
        if known is None or known[0] != run.start:
            begin = run.start
            if known is not None and run.pod in self._moved:
                self._moved.remove(run.pod)
                begin = known[1]
            known = self._lineages[run.pod] = (run.start, begin)
        return run.pod, known[1]
