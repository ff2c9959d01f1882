"""Cache of raw scores for pods with equal requests, images and workload, such as the replicas of a Deployment.

The first pod is scored on all nodes, each later pod only on the nodes that have changed since the previous pod.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime.kubernetes.objects import CachedRequests, Kin, Pod
from scoring.arrays import Int64s
from scoring.load.metrics_table import MetricsTable
from scoring.table.node_table import NodeTable

if TYPE_CHECKING:
    from scoring.table.node_rows import NodeRows

_MAX_KEYS = 64  # each takes eight bytes a node
_Key = tuple[CachedRequests, Kin | None]


class ScoreCache:
    """Cache of one plugin's raw scores for recent pods with equal requests, images and workload. For one thread.

    Scores are cached from the second of such pods on, or from the first if it is scored on all nodes anyway.

    Args:
        by_workload: true if pods of different workloads are scored differently.
    """

    def __init__(self, *, by_workload: bool) -> None:
        self._by_workload = by_workload
        self._scores: dict[_Key, tuple[int, Int64s]] = {}  # version of the table and scores, the latest used last
        self._seen: dict[_Key, None] = {}
        self._rows: NodeRows | None = None
        self._metrics: MetricsTable | None = None

    def scores(
        self,
        pod: Pod,
        nodes: NodeTable,
        metrics: MetricsTable,
        rows: Int64s | None,
        compute: Callable[[Int64s | None], Int64s],
    ) -> Int64s:
        """Return the raw scores of the given rows for a pod, shape (k,).

        Args:
            pod: pending pod, whose requests are cached.
            nodes: node table.
            metrics: metrics of the nodes; other metrics or nodes than before clear the cache.
            rows: rows to score; None for all.
            compute: returns the raw scores of the given rows, or of all rows for None, shape (k,).
        """
        if pod.cached_requests is None:
            return compute(rows)
        if nodes.rows is not self._rows or metrics is not self._metrics:
            self._scores.clear()
            self._rows, self._metrics = nodes.rows, metrics
        key = pod.cached_requests, pod.kin if self._by_workload else None
        version, scores = self._scores.pop(key, (None, None))
        if version is None or scores is None:
            if rows is not None and key not in self._seen:
                self._seen[key] = None
                _limit(self._seen)
                return compute(rows)
            scores = compute(None)
        else:
            changed = nodes.changed_rows(version)
            if len(changed) > len(scores) // 4:
                scores = compute(None)
            elif len(changed):
                scores = scores.copy()  # a caller may have the old scores
                scores[changed] = compute(changed)
        self._scores[key] = nodes.version, scores
        _limit(self._scores)
        return scores if rows is None else scores[rows]


def _limit(cache: dict[_Key, Any]) -> None:
    while len(cache) > _MAX_KEYS:
        del cache[next(iter(cache))]
