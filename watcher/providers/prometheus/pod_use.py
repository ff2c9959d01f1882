"""Use of containers from cAdvisor's series in Prometheus, in shards of namespaces.

Each query returns at most some thousands of series, so that it stays within the limits of the server and within the
memory of the watcher. A namespace with more containers is divided by the last letter of its pods' names.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import requests

from runtime.http import budget
from runtime.http.failures import FailureKind, describe
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError
from watcher.findings import Finding, Kind
from watcher.model import Window
from watcher.providers.prometheus.queries import value_of
from watcher.windows.container_use import (
    CPU_CORES,
    MEMORY_BYTES,
    PRESSURE,
    THROTTLING,
    ContainerUse,
    ContainerUseBuilder,
)

CPU_SERIES = "container_cpu_usage_seconds_total"
MEMORY_SERIES = "container_memory_working_set_bytes"
PERIODS_SERIES = "container_cpu_cfs_periods_total"
THROTTLED_SERIES = "container_cpu_cfs_throttled_periods_total"
WAITING_SERIES = "container_pressure_cpu_waiting_seconds_total"
_MIN_STRAIN = 0.01  # smaller shares are not read
_MIN_SCRAPES = 4
_SHARD_SERIES, _MIN_SHARD_SERIES = 20_000, 500
_SHARD_CHARACTERS = 3000  # of the namespaces in a query, which is a part of the URL
_LAST_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_INTERVAL_SERIES = 1000  # of the namespace whose raw samples show the scrape interval
_INTERVAL_RANGE_SECONDS = 1200
_INTERVAL_EXPIRY_SECONDS = 3600
_TOO_LARGE = {413, 422, 503, 504}  # Prometheus answers 422 to a query with too many samples, and 503 after a timeout

Run = Callable[[str, int | None, Deadline], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Shard:
    """Part of the containers: all of some namespaces, or of one namespace the pods whose names end with some letters.

    Attributes:
        namespaces: the namespaces.
        endings: the last letters; empty for all pods.
    """

    namespaces: tuple[str, ...]
    endings: str = ""

    @property
    def matchers(self) -> str:
        """The label matchers that select the shard."""
        namespaces = "|".join(self.namespaces)
        return f'namespace=~"{namespaces}"' + (f',pod=~".*[{self.endings}]"' if self.endings else "")

    def halves(self) -> "tuple[Shard, ...]":
        """Return two shards that make up this one; none if it cannot be divided."""
        if len(self.namespaces) > 1:
            middle = len(self.namespaces) // 2
            return Shard(self.namespaces[:middle]), Shard(self.namespaces[middle:])
        letters = self.endings or _LAST_LETTERS
        middle = len(letters) // 2
        return (Shard(self.namespaces, letters[:middle]), Shard(self.namespaces, letters[middle:])) if middle else ()


def shards(counts: Mapping[str, int], most: int) -> list[Shard]:
    """Divide namespaces into shards with about ``most`` series each, or fewer.

    Args:
        counts: number of series of each namespace.
        most: number of series of a shard.
    """
    divided: list[Shard] = []
    names: list[str] = []
    series = characters = 0
    for name, count in sorted(counts.items(), key=lambda item: item[1]):
        if count > most:
            parts = min(-(-count // most), len(_LAST_LETTERS))
            divided += [Shard((name,), _LAST_LETTERS[part::parts]) for part in range(parts)]
            continue
        if names and (series + count > most or characters + len(name) > _SHARD_CHARACTERS):
            divided.append(Shard(tuple(names)))
            names, series, characters = [], 0, 0
        names.append(name)
        series, characters = series + count, characters + len(name) + 1
    return [*divided, Shard(tuple(names))] if names else divided


class PodUseQueries:
    """Queries for the use of every container.

    Args:
        run: runs a PromQL expression at a time, in Unix seconds or now, and returns its series.
        matchers: label matchers for all series.
        translate: returns the error to raise for a failure of ``run``.
    """

    def __init__(self, run: Run, matchers: str, translate: Callable[[Exception], ProviderError]) -> None:
        self._run, self._matchers, self._translate = run, matchers, translate
        self._shard_series = _SHARD_SERIES
        self._scrape_seconds = 0.0  # 0 if unknown
        self._interval_until = 0.0

    def fetch(self, window: Window, deadline: Deadline) -> ContainerUse:
        """Return the use of all containers. A shard that cannot be read becomes a finding.

        Raises:
            ProviderError: there are no series, or nothing can be read.
        """
        try:
            counts = self._count(window.end, deadline)
            self._measure_interval(counts, window.end, deadline)
        except Exception as error:
            raise self._translate(error) from error
        if not counts:
            raise ProviderAnswerError(
                f"Prometheus has no series {self._select(CPU_SERIES)} with the labels namespace and pod: does it "
                "scrape cAdvisor? (prometheus.matchers; workloads.enabled = false stops this query)"
            )
        seconds = max(window.end - window.start, math.ceil(_MIN_SCRAPES * self._scrape_seconds))
        rows, failures = ContainerUseBuilder(), list[Exception]()
        for shard in shards(counts, self._shard_series):
            failures += self._read(shard, rows, seconds, window.end, deadline)
        unchecked = self._add_strain(rows, counts, seconds, window.end, deadline)
        messages = list(dict.fromkeys(str(self._translate(error)) for error in failures))
        use = rows.build(
            window.end,
            float(seconds),
            [Finding(Kind.QUERY_FAILED, f"the use of some pods is unknown: {message}") for message in messages],
            unchecked,
        )
        if not len(use):
            raise ProviderAnswerError(messages[0] if messages else "Prometheus has not scraped any container twice yet")
        return use

    def _count(self, at: int | None, deadline: Deadline) -> dict[str, int]:
        return counts_of(self._run(f"count by (namespace) ({self._select(CPU_SERIES)})", at, deadline))

    def _measure_interval(self, counts: Mapping[str, int], at: int, deadline: Deadline) -> None:
        """Read the scrape interval from the raw samples of a small namespace, once an hour."""
        if time.monotonic() < self._interval_until or not counts:
            return
        name, count = min(counts.items(), key=lambda item: item[1])
        if count > _INTERVAL_SERIES:
            return
        selector = self._select(CPU_SERIES, Shard((name,)).matchers)
        series = self._run(f"{selector}[{_INTERVAL_RANGE_SECONDS}s]", at, deadline)
        times = [[sample[0] for sample in item.get("values", ())] for item in series]
        gaps = [later - earlier for each in times for earlier, later in pairwise(each)]
        if gaps:
            self._scrape_seconds = float(median(gaps))
            self._interval_until = time.monotonic() + _INTERVAL_EXPIRY_SECONDS

    def _read(
        self, shard: Shard, rows: ContainerUseBuilder, seconds: int, at: int, deadline: Deadline
    ) -> list[Exception]:
        """Read a shard; if the server or the budget refuses it as too large, read its halves."""
        try:
            for resource, promql in (
                (CPU_CORES, self._cpu(shard, seconds)),
                (MEMORY_BYTES, self._memory(shard, seconds)),
            ):
                self._add(rows, resource, promql, at, deadline)
        except Exception as error:  # noqa: BLE001  the caller judges every failure
            halves = shard.halves() if is_too_large(error) and deadline.remaining_seconds() else ()
            if not halves:
                return [error]
            self._shard_series = max(self._shard_series // 2, _MIN_SHARD_SERIES)
            return [failure for half in halves for failure in self._read(half, rows, seconds, at, deadline)]
        return []

    def _add(self, rows: ContainerUseBuilder, resource: int, promql: str, at: int, deadline: Deadline) -> None:
        """Add the values of a query. Its response is charged to the budget only until it is read."""
        with budget.released():
            for item in self._run(promql, at, deadline):
                labels = item["metric"]
                if "pod" in labels and "container" in labels:
                    rows.add(resource, labels["namespace"], labels["pod"], labels["container"], value_of(item))

    def _add_strain(
        self, rows: ContainerUseBuilder, counts: Mapping[str, int], seconds: int, at: int, deadline: Deadline
    ) -> list[str]:
        """Add the containers that were throttled or waited for CPU; return what could not be read, with the reason.

        A container without a CPU limit has no series of throttling. Those without strain are not in the responses.
        """
        unchecked = []
        for kind, (name, series) in enumerate(((THROTTLING, PERIODS_SERIES), (PRESSURE, WAITING_SERIES))):
            try:
                if not self._run(f"count({self._select(series)})", at, deadline):
                    unchecked.append(f"{name}: Prometheus has no series {series}")
                    continue
                strained = list[tuple[str, str, str, float]]()
                for shard in shards(counts, self._shard_series):
                    with budget.released():
                        for item in self._run(self._strain(kind, shard, seconds), at, deadline):
                            labels = item["metric"]
                            names = (labels.get(label, "") for label in ("namespace", "pod", "container"))
                            strained.append((*names, min(value_of(item), 1.0)))
                rows.add_strain(kind, strained)
            except Exception as error:  # noqa: BLE001  the use is known all the same
                unchecked.append(f"{name}: {self._translate(error)}")
        return unchecked

    def _strain(self, kind: int, shard: Shard, seconds: int) -> str:
        """Return PromQL for the containers with a strain: 0 for throttling, 1 for waiting."""
        if kind:
            share = f"rate({self._select(WAITING_SERIES, shard.matchers)}[{seconds}s])"
        else:
            throttled, periods = (self._select(name, shard.matchers) for name in (THROTTLED_SERIES, PERIODS_SERIES))
            share = f"rate({throttled}[{seconds}s]) / rate({periods}[{seconds}s])"
        return f"max by (namespace, pod, container) ({share}) > {_MIN_STRAIN:g}"

    def _cpu(self, shard: Shard, seconds: int) -> str:
        """Return PromQL for the mean use of CPU, in cores.

        The mean of a series that is older than the window is its rate. A rate is too low for a younger series, which
        covers only a part of the window: there the slope of its samples counts. Both need two samples. A counter that
        was reset has no slope. Series that have ended are left out, and of several series of one container, from two
        scrape jobs or from before a restart, the highest counts.
        """
        series = self._select(CPU_SERIES, shard.matchers)
        ranged = f"{series}[{seconds}s]"
        return (
            f"max by (namespace, pod, container) (((rate({ranged}) and {series} offset {seconds}s) "
            f"or (deriv({ranged}) unless resets({ranged}) > 0)) and {series})"
        )

    def _memory(self, shard: Shard, seconds: int) -> str:
        """Return PromQL for the highest working set, in bytes, of containers with at least two samples."""
        series = self._select(MEMORY_SERIES, shard.matchers)
        ranged = f"{series}[{seconds}s]"
        return (
            f"max by (namespace, pod, container) (max_over_time({ranged}) "
            f"and count_over_time({ranged}) > 1 and {series})"
        )

    def _select(self, name: str, *matchers: str) -> str:
        return select(name, *matchers, self._matchers)


def select(name: str, *matchers: str) -> str:
    """Return a selector without the sums of pods and nodes, and without pause containers."""
    parts = ('container!=""', 'container!="POD"', 'image!=""', *matchers)
    return f"{name}{{{','.join(filter(None, parts))}}}"


def counts_of(series: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of containers of each namespace, from a count by namespace."""
    counts = {item["metric"].get("namespace", ""): int(value_of(item)) for item in series}
    counts.pop("", None)  # a scrape configuration that renames the label; without it pods have no identity
    return counts


def is_too_large(error: Exception) -> bool:
    """Return whether a part of a query may succeed where the whole query failed."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code in _TOO_LARGE
    return describe(error).kind is FailureKind.TOO_LARGE
