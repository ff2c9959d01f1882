"""Admission by predicted peaks of nodes instead of requests, as Google's Borg overcommits.

A pod fits a node if the node's predicted peak and the pod's requests together are at most its capacity. The predictors
are those of Bashir et al., "Take it to the Limit: Peak Prediction-driven Resource Overcommitment in Datacenters",
EuroSys 2021, with requests in place of limits. Of the pods with two hours of samples, one every five minutes:

n-sigma              mean + 5 deviations of the sum of their use
sum-of-percentiles   sum of the 99th percentiles of the use of each

Younger pods count with their requests. The published code caps use at the limit. Pods may use more than they request,
so their use is not capped here.
"""

from enum import StrEnum

import numpy as np

from scoring.arrays import Bools, Float64s, Int64s
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.use_rounds import PodRound, UseRounds
from trimaran.traces.events import Amounts

_SAMPLES = 24  # two hours of rounds of five minutes
_DEVIATIONS = 5
_PERCENTILE = 99


class PeakPredictor(StrEnum):
    """Predictor of the peak use of a node."""

    N_SIGMA = "n-sigma"
    PERCENTILES = "sum-of-percentiles"


class PeakAdmission:
    """Nodes that have room for a pod by their predicted peaks, in one replay.

    Args:
        cluster: the simulated cluster.
        watcher: the watcher, which limits how recent the known use is.
        predictor: the predictor.
    """

    def __init__(self, cluster: Cluster, watcher: SimulatedWatcher, predictor: PeakPredictor) -> None:
        self._cluster, self._watcher, self._predictor = cluster, watcher, predictor
        self._rounds = UseRounds(cluster)
        self._samples = np.full((2, len(cluster.trace.pods), _SAMPLES), np.nan, np.float32)
        self._count = 0
        self._peaks: Float64s = np.zeros((2, 0))  # by number in the ledger, at the last prediction
        self._predicted_runs = 0

    def refresh(self) -> bool:
        """Predict again if use has become known since the last call; return whether it has."""
        known = self._count
        for measured in self._rounds.known(self._watcher.known_until()):
            self._store(measured)
        if self._count == known:
            return False
        self._predict()
        return True

    def feasible(self, requests: Amounts) -> Bools:
        """Return a mask of the nodes that have room for a pod, shape (nodes,).

        Args:
            requests: millicores and bytes that the pod requests.
        """
        cluster = self._cluster
        expected = np.zeros_like(cluster.ledger.capacity)
        expected[:, : self._peaks.shape[1]] = self._peaks
        for run in cluster.pod_runs[self._predicted_runs :]:
            if run.end > cluster.minute:
                expected[:, run.node] += run.requests
        free = cluster.capacity - expected[:, cluster.numbers]
        return np.asarray((free >= np.array(requests)[:, None]).all(axis=0))

    def _store(self, measured: PodRound) -> None:
        column = self._count % _SAMPLES
        self._count += 1
        self._samples[:, :, column] = np.nan
        self._samples[0, measured.pods, column] = 1000 * measured.cores
        self._samples[1, measured.pods, column] = measured.memory_bytes

    def _predict(self) -> None:
        """Predict the peak of each node from the pods that run on it now."""
        cluster = self._cluster
        runs = list(cluster.running.values())
        self._predicted_runs = len(cluster.pod_runs)
        pods = np.array([run.pod for run in runs], np.int64)
        nodes = np.array([run.node for run in runs], np.int64)
        requests = np.array([run.requests for run in runs], np.float64).reshape(len(runs), 2).T
        count = cluster.ledger.capacity.shape[1]
        self._peaks = np.zeros((2, count))
        for resource in range(2):
            samples = self._samples[resource, pods].astype(np.float64)
            is_warm = np.isfinite(samples).all(axis=1)
            young = np.bincount(nodes[~is_warm], requests[resource, ~is_warm], count)
            self._peaks[resource] = young + self._warm_peaks(samples[is_warm], nodes[is_warm], count)

    def _warm_peaks(self, samples: Float64s, nodes: Int64s, count: int) -> Float64s:
        """Return the predicted peak of the pods with enough samples on each node, shape (count,).

        Args:
            samples: their use, shape (pods, samples).
            nodes: node of each pod.
            count: number of nodes.
        """
        if self._predictor is PeakPredictor.PERCENTILES:
            each = np.percentile(samples, _PERCENTILE, axis=1) if len(samples) else np.zeros(0)
            return np.asarray(np.bincount(nodes, each, count))
        total = np.zeros((count, _SAMPLES))
        np.add.at(total, nodes, samples)
        return np.asarray(total.mean(axis=1) + _DEVIATIONS * total.std(axis=1, ddof=1))
