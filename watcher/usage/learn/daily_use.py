"""Use of the containers of one workload on each day that the learner keeps."""

import numpy as np

from runtime.kubernetes.workloads import Workload
from watcher.usage.learn.cpu_histograms import BINS, percentiles
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.sources.pods import DAYS
from watcher.workload_table import DailyUse


def daily_use(learner: WorkloadLearner, workload: Workload, quantiles: tuple[float, ...] = (0.5, 0.95)) -> DailyUse:
    """Return the use of a workload's containers by day, with these quantiles of CPU use; empty for an unknown workload.

    Args:
        learner: the learner.
        workload: the workload.
        quantiles: the quantiles, 0 to 1.
    """
    rows = learner.rows
    at = np.flatnonzero(rows["workload"] == learner.workloads.get(workload, -1))
    cpu = np.full((len(quantiles), len(at), DAYS), np.nan)
    for age in range(1 + len(learner.past)):
        counts = np.zeros((len(at), BINS))
        if age == 0:
            counts += rows["counts"][at]
        else:
            learner.past[age - 1][1].take(at).add_to(counts, 0, 1.0)
        known = counts.any(axis=1)
        cpu[:, known, age] = percentiles(counts[known].astype(np.float32), [], quantiles)
    peaks = rows["memory_peaks"][at].astype(np.float64)
    keys = tuple(learner.keys[row] for row in at.tolist())
    return DailyUse(keys, quantiles, cpu, np.where(peaks > 0, peaks, np.nan))
