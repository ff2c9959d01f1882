"""Choice of a node for a pod: filters, sampling, scores, and a random tie-break, as in kube-scheduler."""

from dataclasses import replace

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.arrays import Bools, Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.profiles.fallback import Judgment
from scoring.profiles.profile import PreparedProfile
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.feasibility import Feasibility, run_filters
from trimaran.scheduler.framework.node_sampling import NodeSampling
from trimaran.scheduler.framework.profile import SchedulerProfile


class NodeSelector:
    """Choice of nodes from one table, with the prepared scores of each profile. For one thread.

    Args:
        table: node table, which the scheduler keeps up to date.
        rng: breaks ties between nodes with equal scores.
    """

    def __init__(self, table: NodeTable, rng: np.random.Generator) -> None:
        self._table, self._rng = table, rng
        self._load: tuple[MetricsTable | Judgment, UseLevels | None] | None = None
        self._load_rows = table.rows  # nodes that the metrics are aligned to
        self._prepared: dict[str, PreparedProfile] = {}
        self._sampling: dict[str, NodeSampling] = {}

    def use_load(self, metrics: MetricsTable | Judgment, levels: UseLevels | None) -> None:
        """Score by other metrics from now on; see :meth:`.Scheduler.use_load`."""
        self._load, self._load_rows = (metrics, levels), self._table.rows
        self._prepared.clear()

    def metrics(self, nodes: NodeTable) -> MetricsTable:
        """Return the metrics of a table's nodes; without fresh metrics no value in the result is valid."""
        if self._load is None:
            return MetricsTable.empty(nodes)
        load = self._load[0]
        return (load.metrics if isinstance(load, Judgment) else load).follow(nodes)

    def feasible(self, profile: SchedulerProfile, pod: Pod) -> Feasibility:
        """Return the nodes that pass the profile's filters; if the pod's nominated node passes, only this node."""
        nodes = self._table
        nominated = nodes.rows.row_by_name.get(pod.nominated_node_name) if pod.nominated_node_name else None
        if nominated is not None and run_filters(profile.filters, pod, nodes, np.array([nominated])).feasible[0]:
            mask = np.zeros(len(nodes), np.bool_)
            mask[nominated] = True
            return Feasibility(mask, {})
        result = run_filters(profile.filters, pod, nodes)
        sampling = self._sampling.setdefault(profile.scheduler_name, NodeSampling(profile.sample_percent))
        rows = sampling.candidates(result.feasible)
        if len(rows) == np.count_nonzero(result.feasible):
            return result
        chosen = np.zeros(len(nodes), np.bool_)
        chosen[rows] = True
        return replace(result, feasible=chosen)

    def best(self, profile: SchedulerProfile, pod: Pod, feasibility: Feasibility) -> tuple[int, int | None]:
        """Return the row and score of the best feasible node; the score is None if there is only one feasible node."""
        rows = np.flatnonzero(feasibility.feasible)
        if len(rows) == 1 or not profile.scores.plugins:
            return int(rows[self._rng.integers(len(rows))]), None
        total = self._totals_of(profile, pod, rows)
        best = np.flatnonzero(total == total.max())
        index = int(best[0 if len(best) == 1 else self._rng.integers(len(best))])
        return int(rows[index]), int(total[index])

    def totals(self, profile: SchedulerProfile, pod: Pod, feasible: Bools) -> Int64s:
        """Return the score of each feasible node, shape (nodes,); 0 for the others."""
        rows, totals = np.flatnonzero(feasible), np.zeros(len(feasible), np.int64)
        if profile.scores.plugins and len(rows):
            totals[rows] = self._totals_of(profile, pod, rows)
        return totals

    def _totals_of(self, profile: SchedulerProfile, pod: Pod, rows: Int64s) -> Int64s:
        """Return the scores of the feasible rows, ascending, shape (k,)."""
        try:
            return self._scores_of(profile).total(pod, among=None if len(rows) == len(self._table) else rows)
        except Exception:
            self._prepared.pop(profile.scheduler_name, None)  # the exception may have left it partly updated
            raise

    def _scores_of(self, profile: SchedulerProfile) -> PreparedProfile:
        prepared = self._prepared.get(profile.scheduler_name)
        if prepared is None:
            metrics, levels = self._load or (MetricsTable.empty(self._table), None)
            if self._table.rows is not self._load_rows:
                metrics = metrics.follow(self._table)
            prepared = self._prepared[profile.scheduler_name] = profile.scores.prepare(self._table, metrics, levels)
        return prepared
