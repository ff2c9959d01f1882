"""Past use of containers from cAdvisor's series in Prometheus, a day at a time, in shards of namespaces.

A shard is smaller than in ``pod_use``, because each series has a value for every five minutes of the day.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from runtime.http import budget
from runtime.http.gather import Deadline
from watcher.providers.prometheus.container_labels import CPU_SERIES, Run, read_container_labels
from watcher.providers.prometheus.pod_use import MEMORY_SERIES, Shard, counts_of, is_too_large, shards
from watcher.providers.prometheus.queries import value_of
from watcher.windows.container_use import CPU_CORES, HIGHEST, MEMORY_BYTES
from watcher.windows.past_container_use import PastContainerUse

RunRange = Callable[[str, range, Deadline], list[dict[str, Any]]]
_SHARD_SERIES, _MIN_SHARD_SERIES = 1000, 50

_Key = tuple[str, str, str]


class PastPodUseQueries:
    """Queries for the past use of every container.

    Args:
        run: runs a PromQL expression at a time, in Unix seconds or now, and returns its series.
        run_range: runs a PromQL expression at each time of a range, and returns its series.
        matchers: label matchers for all series.
    """

    def __init__(self, run: Run, run_range: RunRange, matchers: str) -> None:
        self._run, self._run_range, self._matchers = run, run_range, matchers
        self._shard_series = _SHARD_SERIES

    def read(self, ends: range, timeout_seconds: float) -> Iterator[tuple[tuple[str, ...], PastContainerUse]]:
        """Yield the namespaces and the use of each shard; a shard whose response is too large is halved.

        Args:
            ends: ends of the steps, Unix seconds.
            timeout_seconds: timeout of each query.

        Raises:
            Exception: a query failed.
        """
        seconds = ends[-1] - ends[0] + ends.step
        counts = {}
        for labels in read_container_labels(
            self._run, self._matchers, ends[-1], Deadline.after(timeout_seconds), seconds
        ):
            ranged = f"{labels.select(CPU_SERIES, self._matchers)}[{seconds}s]"
            expression = f"count by ({labels.namespace}) (last_over_time({ranged}))"
            counts[labels] = counts_of(labels, self._run(expression, ends[-1], Deadline.after(timeout_seconds)))
        waiting = list(reversed(shards(counts, self._shard_series)))
        while waiting:
            shard = waiting.pop()
            try:
                yield shard.namespaces, self._shard(shard, ends, seconds, timeout_seconds)
            except Exception as error:
                halves = shard.halves() if is_too_large(error) else ()
                if not halves:
                    raise
                self._shard_series = max(self._shard_series // 2, _MIN_SHARD_SERIES)
                waiting += reversed(halves)

    def _shard(self, shard: Shard, ends: range, seconds: int, timeout_seconds: float) -> PastContainerUse:
        """Return the use of a shard; NaN for impossible values."""
        cpu, memory = (shard.select(name, self._matchers) for name in (CPU_SERIES, MEMORY_SERIES))
        rows: dict[_Key, int] = {}
        courses: list[np.ndarray[Any, np.dtype[np.float32]]] = []
        with budget.released():
            promql = f"max by ({shard.labels.by}) (rate({cpu}[{ends.step}s]))"
            for item in self._run_range(promql, ends, Deadline.after(timeout_seconds)):
                if (key := shard.labels.names_of(item["metric"])) is not None:
                    rows[key] = len(courses)
                    courses.append(_course(item, ends))
        sizes = np.full((2, len(rows)), np.nan)
        for place, function in enumerate(("avg_over_time", "max_over_time")):
            with budget.released():
                promql = f"max by ({shard.labels.by}) ({function}({memory}[{seconds}s]))"
                for item in self._run(promql, ends[-1], Deadline.after(timeout_seconds)):
                    row, value = rows.get(shard.labels.names_of(item["metric"]) or ("", "", "")), value_of(item)
                    if row is not None and 0 <= value <= HIGHEST[MEMORY_BYTES]:
                        sizes[place, row] = value
        namespaces, pods, containers = zip(*rows, strict=True) if rows else ((), (), ())
        cores = np.array(courses, np.float32).reshape(-1, len(ends))
        return PastContainerUse(ends, namespaces, pods, containers, cores, sizes)


def _course(item: dict[str, Any], ends: range) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the value of a series at each time; NaN for a missing or impossible value."""
    course = np.full(len(ends), np.nan, np.float32)
    for at, text in item["values"]:
        try:
            place, value = ends.index(round(at)), float(text)
        except ValueError:
            continue
        if 0 <= value <= HIGHEST[CPU_CORES]:
            course[place] = value
    return course
