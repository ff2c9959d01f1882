"""CPU capacity of nodes as a ceiling of their pods' use: pods that demand more get shares, as in Linux.

A node whose pods demand more than its CPU gives each pod at most its share by weight, and what a pod does not need of
its share goes to the others (CFS, weights from requests: https://docs.kernel.org/scheduler/sched-design-CFS.html). The
use of a service in that minute is what it got; the service never makes up for the rest. A job does the rest later: once
it lags by a whole minute, the rest of its recorded use comes a minute later, and so does its end.
"""

import numpy as np

from scoring.arrays import Float64s, Int64s
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.ledger import CPU_ROW

#: Weight of a pod without a CPU request, in millicores: the kernel's smallest one, 2 of 1,024 for a core.
_LOWEST_WEIGHT = 2.0


class CpuCeiling:
    """Sharing of each node's CPU among its pods, minute by minute.

    Args:
        cluster: the simulated cluster.
        holds: whether capacity limits use. If not, pods use what they demand, and demand above capacity is recorded.
    """

    def __init__(self, cluster: Cluster, *, holds: bool) -> None:
        self._cluster, self._holds = cluster, holds

    def settle(self) -> list[PodRun]:
        """Finish the use of the current minute, after its last change.

        Returns:
            The runs of jobs that end a minute later than they would have.
        """
        cluster = self._cluster
        ledger, minute = cluster.ledger, cluster.minute
        demand, capacity = ledger.cpu_milli[:, minute], ledger.capacity[CPU_ROW]
        full = np.flatnonzero(demand > capacity * (1 + 1e-9))
        if not len(full):
            return []
        runs: dict[int, list[PodRun]] = {number: [] for number in full.tolist()}
        for run in cluster.running.values():
            if run.node in runs and run.end > minute:
                runs[run.node].append(run)
        late: list[PodRun] = []
        for number, of_node in runs.items():
            demands = np.array([cluster.demand_milli(run) for run in of_node])
            if self._holds:
                weights = np.maximum([run.requests[CPU_ROW] for run in of_node], _LOWEST_WEIGHT)
                got = fair_shares(demands, weights, float(capacity[number]))
            else:
                got = demands * (capacity[number] / demand[number])
            ledger.short_milli[number, minute] = demand[number] - capacity[number]
            for run, wanted, share in zip(of_node, demands.tolist(), got.tolist(), strict=True):
                if share < wanted:
                    run.short_milli += wanted - share if minute >= cluster.trace.warm_up_minutes else 0.0
                    if self._holds and self._throttle(run, wanted, share):
                        late.append(run)
            if self._holds:
                ledger.cpu_milli[number, minute] = capacity[number]
        return late

    def _throttle(self, run: PodRun, wanted: float, share: float) -> bool:
        """Let a run use its share in the current minute; return whether the run ends later because of it.

        Args:
            run: the run.
            wanted: CPU that the run demands, millicores.
            share: CPU that the run gets, millicores.
        """
        cluster, place = self._cluster, self._cluster.minute - run.start
        if run.use is None:
            run.use = cluster.run_use(run)
        run.use[CPU_ROW, place] = share
        if not cluster.is_job(run.pod):
            return False
        run.lag_minutes += 1 - share / wanted
        if run.lag_minutes < 1:
            return False
        run.lag_minutes -= 1
        again = run.use[:, place].copy()
        again[CPU_ROW] = wanted
        rest = run.use[:, place + 1 :]
        later = np.concatenate([again[:, None], rest], axis=1)
        change = later.copy()
        change[:, : rest.shape[1]] -= rest
        cluster.ledger.add(run.node, cluster.minute + 1, change)
        run.use = np.concatenate([run.use[:, : place + 1], later], axis=1)
        end, run.end = run.end, min(run.start + run.use.shape[1], cluster.trace.minutes)
        return run.end > end


def fair_shares(demands: Float64s, weights: Float64s, capacity: float) -> Float64s:
    """Return the CPU that each pod of a node gets if the pods together demand more than the node has.

    Each pod gets the lower of its demand and its weight times a level; at this common level capacity is used up.

    Args:
        demands: demand of each pod, shape (pods,), together at least the capacity.
        weights: weight of each pod, positive, shape (pods,).
        capacity: capacity in the unit of the demands.
    """
    order: Int64s = np.argsort(demands / weights, kind="stable")
    sorted_demands, sorted_weights = demands[order], weights[order]
    left = capacity - np.concatenate([[0.0], np.cumsum(sorted_demands)[:-1]])  # if all pods before get their demand
    others = np.cumsum(sorted_weights[::-1])[::-1]
    levels = left / others
    unmet = np.flatnonzero(sorted_demands > sorted_weights * levels)
    if not len(unmet):
        return demands
    return np.asarray(np.minimum(demands, weights * max(float(levels[unmet[0]]), 0.0)))
