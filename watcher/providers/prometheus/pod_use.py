"""Use of containers from cAdvisor's series in Prometheus, in shards of namespaces.

Each query returns at most some thousands of series, so that it stays within the limits of the server and within the
memory of the watcher. A namespace with more containers is divided by the last letter of its pods' names.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import requests

from runtime.http import budget
from runtime.http.failures import FailureKind, describe
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError
from watcher.findings import Finding, Kind
from watcher.model import Window
from watcher.providers.prometheus.container_labels import (
    CPU_SERIES,
    PLAIN_LABELS,
    ContainerLabels,
    Run,
    read_container_labels,
)
from watcher.providers.prometheus.queries import value_of
from watcher.windows.container_use import (
    CPU_CORES,
    MEMORY_BYTES,
    PRESSURE,
    THROTTLING,
    ContainerUse,
    ContainerUseBuilder,
)

MEMORY_SERIES = "container_memory_working_set_bytes"
PERIODS_SERIES = "container_cpu_cfs_periods_total"
THROTTLED_SERIES = "container_cpu_cfs_throttled_periods_total"
WAITING_SERIES = "container_pressure_cpu_waiting_seconds_total"
_MIN_STRAIN = 0.01  # smaller shares are not read
_MIN_SCRAPES, _ENOUGH_SCRAPES = 4, 10
_SHARD_SERIES, _MIN_SHARD_SERIES = 20_000, 500
_SHARD_CHARACTERS = 3000  # longest list of namespaces in a query, which is a part of the URL
_LAST_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_INTERVAL_SERIES = 1000  # maximum in the namespace whose raw samples show the scrape interval
_INTERVAL_RANGE_SECONDS = 1200
_LAYOUT_EXPIRY_SECONDS = 3600
_TOO_LARGE = {413, 422, 503, 504}  # Prometheus answers 422 to a query with too many samples, and 503 after a timeout

Counts = Mapping[ContainerLabels, Mapping[str, int]]
"""Number of series of each namespace, by the labels that name a container."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part of the containers: of several namespaces, or of one namespace's pods whose names end with some letters.

    Attributes:
        namespaces: the namespaces.
        endings: the last letters; empty for all pods.
        labels: the labels that name a container.
    """

    namespaces: tuple[str, ...]
    endings: str = ""
    labels: ContainerLabels = PLAIN_LABELS

    def select(self, metric: str, matchers: str) -> str:
        """Return a selector of the shard's series of a metric."""
        own = [f'{self.labels.namespace}=~"{"|".join(self.namespaces)}"']
        own += [f'{self.labels.pod}=~".*[{self.endings}]"'] if self.endings else []
        return self.labels.select(metric, *own, matchers)

    def halves(self) -> "tuple[Shard, ...]":
        """Return two shards that make up this one; an empty tuple if it cannot be divided."""
        if len(self.namespaces) > 1:
            middle = len(self.namespaces) // 2
            halves = self.namespaces[:middle], self.namespaces[middle:]
            return tuple(replace(self, namespaces=half) for half in halves)
        letters = self.endings or _LAST_LETTERS
        middle = len(letters) // 2
        parts = (letters[:middle], letters[middle:]) if middle else ()
        return tuple(replace(self, endings=part) for part in parts)


def shards(counts: Counts, most: int) -> list[Shard]:
    """Divide namespaces into shards with about ``most`` series each, or fewer.

    Args:
        counts: number of series of each namespace, by the labels that name a container.
        most: number of series of a shard.
    """
    return [shard for labels, by_namespace in counts.items() for shard in _shards(by_namespace, most, labels)]


def _shards(counts: Mapping[str, int], most: int, labels: ContainerLabels) -> list[Shard]:
    divided: list[Shard] = []
    names: list[str] = []
    series = characters = 0
    for name, count in sorted(counts.items(), key=lambda item: item[1]):
        if count > most:
            parts = min(-(-count // most), len(_LAST_LETTERS))
            divided += [Shard((name,), _LAST_LETTERS[part::parts], labels) for part in range(parts)]
            continue
        if names and (series + count > most or characters + len(name) > _SHARD_CHARACTERS):
            divided.append(Shard(tuple(names), labels=labels))
            names, series, characters = [], 0, 0
        names.append(name)
        series, characters = series + count, characters + len(name) + 1
    return [*divided, Shard(tuple(names), labels=labels)] if names else divided


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
        self._labels = [PLAIN_LABELS]
        self._scrape_seconds = 0.0  # 0 if unknown
        self._layout_until = 0.0

    def fetch(self, window: Window, deadline: Deadline) -> ContainerUse:
        """Return the use of all containers. A shard that cannot be read becomes a finding.

        Raises:
            ProviderError: there are no series, or nothing can be read.
        """
        try:
            counts = self._count(window.end, deadline)
            if time.monotonic() >= self._layout_until or not counts:
                labels = read_container_labels(self._run, self._matchers, window.end, deadline)
                if labels != self._labels:
                    self._labels = labels
                    counts = self._count(window.end, deadline)
                if self._measure_interval(counts, window.end, deadline):
                    self._layout_until = time.monotonic() + _LAYOUT_EXPIRY_SECONDS
        except Exception as error:
            raise self._translate(error) from error
        if not counts:
            raise ProviderAnswerError(
                f"Prometheus has no series {PLAIN_LABELS.select(CPU_SERIES, self._matchers)} with the labels namespace "
                "and pod: does it scrape cAdvisor? (prometheus.matchers; workloads.enabled = false stops this query)"
            )
        seconds = max(window.end - window.start, math.ceil(_MIN_SCRAPES * self._scrape_seconds))
        rows, failures = ContainerUseBuilder(), list[Exception]()
        for shard in shards(counts, self._shard_series):
            failures += self._read(shard, rows, seconds, window.end, deadline)
        unchecked = self._add_strain(rows, counts, seconds, window.end, deadline)
        messages = list(dict.fromkeys(str(self._translate(error)) for error in failures))
        findings = [Finding(Kind.QUERY_FAILED, f"the use of some pods is unknown: {message}") for message in messages]
        use = rows.build(window.end, float(seconds), [*findings, *self._few_scrapes(seconds)], unchecked)
        # A container with unknown memory was scraped only once, so its CPU of 0 is unknown, too. Counting the CPU
        # samples would read them a fourth time.
        once = (use.cpu_cores == 0) & np.isnan(use.memory_bytes)
        use = replace(use, cpu_cores=np.where(once, np.nan, use.cpu_cores)) if once.any() else use
        if not len(use):
            raise ProviderAnswerError(messages[0] if messages else "Prometheus has not scraped any container twice yet")
        return use

    def _count(self, at: int | None, deadline: Deadline) -> dict[ContainerLabels, dict[str, int]]:
        by_labels = {}
        for labels in self._labels:
            promql = f"count by ({labels.namespace}) ({labels.select(CPU_SERIES, self._matchers)})"
            if counts := counts_of(labels, self._run(promql, at, deadline)):
                by_labels[labels] = counts
        return by_labels

    def _measure_interval(self, counts: Counts, at: int, deadline: Deadline) -> bool:
        """Read the scrape interval from the raw samples of a small namespace; return False to try again later."""
        small = [
            (count, name, labels)
            for labels, by_namespace in counts.items()
            for name, count in by_namespace.items()
            if count <= _INTERVAL_SERIES
        ]
        if not small:
            return bool(counts)
        _, name, labels = min(small, key=lambda each: each[0])
        selector = Shard((name,), labels=labels).select(CPU_SERIES, self._matchers)
        series = self._run(f"{selector}[{_INTERVAL_RANGE_SECONDS}s]", at, deadline)
        times = [[sample[0] for sample in item.get("values", ())] for item in series]
        gaps = [later - earlier for each in times for earlier, later in pairwise(each)]
        if gaps:
            self._scrape_seconds = float(median(gaps))
        return bool(gaps)

    def _few_scrapes(self, seconds: int) -> list[Finding]:
        """Return a finding if the window has too few scrapes for the CPU of single pods.

        cAdvisor's samples have the time of its own measurement, so the newest may be a scrape interval older than the
        end of the window. A rate extrapolates over half an interval at most.
        """
        if seconds >= _ENOUGH_SCRAPES * self._scrape_seconds:
            return []
        scrape = self._scrape_seconds
        message = (
            f"{seconds} s have fewer than {_ENOUGH_SCRAPES} scrapes of {scrape:g} s, so the CPU of single pods may "
            f"be too low by a third: set workloads.interval_seconds to {_ENOUGH_SCRAPES * scrape:g}"
        )
        return [Finding(Kind.LOW_COVERAGE, message)]

    def _read(
        self, shard: Shard, rows: ContainerUseBuilder, seconds: int, at: int, deadline: Deadline
    ) -> list[Exception]:
        """Read a shard; if the server or the budget refuses it as too large, read its halves."""
        try:
            for resource, promql in (
                (CPU_CORES, self._cpu(shard, seconds)),
                (MEMORY_BYTES, self._memory(shard, seconds)),
            ):
                self._add(rows, resource, shard.labels, promql, at, deadline)
        except Exception as error:  # noqa: BLE001  the caller judges every failure
            halves = shard.halves() if is_too_large(error) and deadline.remaining_seconds() else ()
            if not halves:
                return [error]
            self._shard_series = max(self._shard_series // 2, _MIN_SHARD_SERIES)
            return [failure for half in halves for failure in self._read(half, rows, seconds, at, deadline)]
        return []

    def _add(
        self,
        rows: ContainerUseBuilder,
        resource: int,
        labels: ContainerLabels,
        promql: str,
        at: int,
        deadline: Deadline,
    ) -> None:
        """Add the values of a query. Its response is charged to the budget only until it is read."""
        with budget.released():
            for item in self._run(promql, at, deadline):
                if names := labels.names_of(item["metric"]):
                    rows.add(resource, *names, value_of(item))

    def _add_strain(
        self, rows: ContainerUseBuilder, counts: Counts, seconds: int, at: int, deadline: Deadline
    ) -> list[str]:
        """Add the CPU contention of containers: throttling and waiting; return a text for each that cannot be read.

        A container without a CPU limit has no series of throttling. Containers without contention are not returned.
        """
        unchecked = []
        for kind, (name, series) in enumerate(((THROTTLING, PERIODS_SERIES), (PRESSURE, WAITING_SERIES))):
            try:
                if not any(self._run(f"count({each.select(series, self._matchers)})", at, deadline) for each in counts):
                    unchecked.append(f"{name}: Prometheus has no series {series}")
                    continue
                strained = list[tuple[str, str, str, float]]()
                for shard in shards(counts, self._shard_series):
                    with budget.released():
                        for item in self._run(self._strain(kind, shard, seconds), at, deadline):
                            if names := shard.labels.names_of(item["metric"]):
                                strained.append((*names, min(value_of(item), 1.0)))
                rows.add_strain(kind, strained)
            except Exception as error:  # noqa: BLE001  the use of pods does not depend on this
                unchecked.append(f"{name}: {self._translate(error)}")
        return unchecked

    def _strain(self, kind: int, shard: Shard, seconds: int) -> str:
        """Return PromQL for the containers with CPU contention of a kind: 0 for throttling, 1 for waiting."""
        if kind:
            share = f"rate({shard.select(WAITING_SERIES, self._matchers)}[{seconds}s])"
        else:
            throttled, periods = (shard.select(name, self._matchers) for name in (THROTTLED_SERIES, PERIODS_SERIES))
            share = f"rate({throttled}[{seconds}s]) / rate({periods}[{seconds}s])"
        return f"max by ({shard.labels.by}) ({share}) > {_MIN_STRAIN:g}"

    def _cpu(self, shard: Shard, seconds: int) -> str:
        """Return PromQL for the mean use of CPU, in cores.

        The mean of a series that is older than the window is its rate. A rate is too low for a younger series, which
        covers only a part of the window: there the slope of its samples counts. Both need two samples. A counter that
        was reset has no slope. Series that have ended are left out, and of several series of one container, from two
        scrape jobs or from before a restart, the highest counts. In VictoriaMetrics one sample has the slope 0.
        """
        series = shard.select(CPU_SERIES, self._matchers)
        ranged = f"{series}[{seconds}s]"
        return (
            f"max by ({shard.labels.by}) (((rate({ranged}) and {series} offset {seconds}s) "
            f"or (deriv({ranged}) unless resets({ranged}) > 0)) and {series})"
        )

    def _memory(self, shard: Shard, seconds: int) -> str:
        """Return PromQL for the highest working set, in bytes, of containers with at least two samples."""
        series = shard.select(MEMORY_SERIES, self._matchers)
        ranged = f"{series}[{seconds}s]"
        return f"max by ({shard.labels.by}) (max_over_time({ranged}) and count_over_time({ranged}) > 1 and {series})"


def counts_of(labels: ContainerLabels, series: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of containers of each namespace, from a count by namespace."""
    counts = {item["metric"].get(labels.namespace, ""): int(value_of(item)) for item in series}
    counts.pop("", None)  # series without the label namespace: their pods cannot be identified
    return counts


def is_too_large(error: Exception) -> bool:
    """Return whether a query failed because it is too large, so that its parts may succeed."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code in _TOO_LARGE
    return describe(error).kind is FailureKind.TOO_LARGE
