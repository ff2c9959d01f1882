"""Rolling windows for sources that only know the present.

Samples are taken in the background at a steady pace and kept, in the store too, so that a restart loses none. A window
is then computed over exactly the samples that fall into it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from watcher import duration
from watcher.errors import ProviderAnswerError, ProviderError, ProviderUnavailable
from watcher.findings import Finding, Kind
from watcher.gather import Deadline
from watcher.model import QUANTILES, Metric, NodeMetrics, Operator, Window
from watcher.providers.base import Check, Fetched, Sample, SampleProvider, Samples
from watcher.settings import WatchSettings
from watcher.store import SampleRound, Store

_log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]
_MIN_SAMPLES = 2
_WARM_UP_SECONDS = 1.0
_LOW_COVERAGE = 0.5
_REMEMBERED = 8  # timestamps of a node; replicas of a source take turns in answering, each with samples of its own
_GAP_FACTOR = 1.5  # a distance of more than so many of a node's usual steps is a gap


class Sampled:
    """Turns a SampleProvider into a WindowProvider.

    The first :meth:`fetch` starts the sampling and waits for the second sample, a second later where the source has a
    new one by then, so that a watcher started just now has something to say.
    """

    def __init__(
        self,
        provider: SampleProvider,
        settings: WatchSettings,
        store: Store,
        source: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._interval = settings.sample_interval_seconds
        self._operators = settings.operators
        self._timeout = settings.fetch_timeout_seconds
        self._span = max(map(duration.seconds, settings.windows))
        self._store = store
        self._source = source
        self._clock = clock
        self._rounds: deque[SampleRound] = deque()
        self._seen: dict[str, dict[float, bool]] = {}  # node name to its last timestamps, the newest last
        self._findings: tuple[Finding, ...] = ()
        self._failure: ProviderError | None = None
        self._loaded = False
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the window's statistics of every node that has at least two samples in it."""
        with self._changed:
            self._load()
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
                self._thread.start()
            self._changed.wait_for(
                lambda: len(self._rounds) >= _MIN_SAMPLES or self._failure or self._stop.is_set(),
                deadline.remaining_seconds(),
            )
            # No upper bound: what came while the first fetch waited is newer than its window's end, and welcome.
            rounds = [taken for taken in self._rounds if taken.taken_at > window.start]
            failure, noticed = self._failure, self._findings
        if len(rounds) < _MIN_SAMPLES and failure is not None:
            raise failure
        if not rounds:
            raise ProviderUnavailable(f"{self._source}: no sample was taken in the last {window.duration}")
        if len(rounds) < _MIN_SAMPLES:
            raise ProviderUnavailable(
                f"{self._source}: one sample in the last {window.duration}, and metrics need two; the source had no "
                "newer one since"
            )
        nodes, findings = _aggregate(rounds, window, self._interval, self._operators)
        if failure is not None:
            noticed = (Finding(Kind.QUERY_FAILED, f"the last sample could not be taken: {failure}"), *noticed)
        return Fetched(nodes, (*(replace(each, window=window.duration) for each in noticed), *findings))

    def check(self) -> Iterator[Check]:
        """Yield the provider's own steps."""
        return self._provider.check()

    def sample_once(self) -> None:
        """Take one sample now and keep it. The background thread calls this at its pace; tests may too."""
        try:
            answer = self._provider.sample(Deadline.after(self._timeout))
        except ProviderError as error:
            if str(error) != str(self._failure):
                _log.warning("sampling failed", extra={"provider": self._source, "error": str(error)})
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001
            # A defect in a provider must not end the sampling: the next sample may be another case.
            _log.exception("sampling failed unexpectedly", extra={"provider": self._source})
            self._fail(ProviderAnswerError(f"{self._source} failed unexpectedly: {type(error).__name__}: {error}"))
            return
        with self._changed:
            self._load()
            self._failure = None
            self._findings = answer.findings if isinstance(answer, Samples) else ()
            taken = self._new_only(answer)
            if taken:
                kept = SampleRound.of(self._clock(), taken)
                self._remember(kept)
            self._changed.notify_all()
        if taken:
            self._store.save_samples(self._source, kept, keep_since=self._clock() - self._span)

    def close(self) -> None:
        """Stop sampling."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=self._timeout)
        close = getattr(self._provider, "close", None)
        if close is not None:
            close()

    def _run(self) -> None:
        pause = _WARM_UP_SECONDS / 2
        while not self._stop.is_set():
            began = time.monotonic()
            self.sample_once()
            # At first more often, as metrics need two samples and the source may have a new one at any time.
            pause = min(2 * pause, self._interval) if len(self._rounds) < _MIN_SAMPLES else self._interval
            self._stop.wait(max(0.0, began + pause - time.monotonic()))

    def _fail(self, error: ProviderError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _load(self) -> None:
        """Take over, once, what was sampled before a restart."""
        if self._loaded:
            return
        self._loaded = True
        kept = self._store.load_samples(self._source, since=self._clock() - self._span)
        for taken in kept:
            for node, timestamp in taken.timestamps.items():
                self._is_new(node, timestamp)
        self._remember(*kept)

    def _new_only(self, taken: Mapping[str, Sample]) -> dict[str, Sample]:
        oldest = self._clock() - self._span
        for node in self._seen.keys() - taken.keys():
            if max(self._seen[node]) < oldest:
                del self._seen[node]
        return {node: sample for node, sample in taken.items() if self._is_new(node, sample.timestamp)}

    def _is_new(self, node: str, timestamp: float) -> bool:
        """Return whether this sample of the node was not there before, and remember it."""
        seen = self._seen.setdefault(node, {})
        known = seen.pop(timestamp, False)
        seen[timestamp] = True
        if len(seen) > _REMEMBERED:
            del seen[next(iter(seen))]
        return not known

    def _remember(self, *rounds: SampleRound) -> None:
        self._rounds.extend(rounds)
        while self._rounds and self._rounds[0].taken_at < self._clock() - self._span:
            self._rounds.popleft()


def _aggregate(
    rounds: list[SampleRound], window: Window, interval_seconds: float, operators: Sequence[Operator]
) -> tuple[dict[str, NodeMetrics], tuple[Finding, ...]]:
    nodes = sorted({node for taken in rounds for node in taken.timestamps})
    row_of = {node: row for row, node in enumerate(nodes)}
    metrics: dict[str, list[Metric]] = {node: [] for node in nodes}
    series = dict.fromkeys(key for taken in rounds for key in taken.values)
    for name, type_ in series:
        values = np.full((len(nodes), len(rounds)), np.nan)
        for column, taken in enumerate(rounds):
            for node, value in taken.values.get((name, type_), {}).items():
                values[row_of[node], column] = value
        counts, statistics = _statistics(values, operators)
        for row in np.flatnonzero(counts >= _MIN_SAMPLES):
            for operator, found in statistics.items():
                metrics[nodes[row]].append(Metric(name, type_, operator, window.duration, float(found[row])))
    timestamps = np.full((len(nodes), len(rounds)), np.nan)
    for column, taken in enumerate(rounds):
        for node, timestamp in taken.timestamps.items():
            timestamps[row_of[node], column] = timestamp
    taken_at = np.array([taken.taken_at for taken in rounds])
    coverage = dict(zip(nodes, _coverage(taken_at, timestamps, window, interval_seconds).tolist(), strict=True))
    measured = {
        node: NodeMetrics(
            tuple(metrics[node]),
            metadata={} if coverage[node] >= 1 else {"coverage": round(coverage[node], 4)},
        )
        for node in nodes
        if metrics[node]
    }
    findings = tuple(
        Finding(
            Kind.LOW_COVERAGE,
            f"only {coverage[node]:.0%} of the window has samples",
            window=window.duration,
            node=node,
        )
        for node in measured
        if coverage[node] < _LOW_COVERAGE
    )
    return measured, findings


def _statistics(values: Floats, operators: Sequence[Operator]) -> tuple[npt.NDArray[np.int64], dict[Operator, Floats]]:
    """Return how many values each row has, and every operator over them; NaN are no values.

    The mean and the population deviation are computed in two passes, for precision; percentiles are interpolated
    between neighbors, as Prometheus' ``quantile_over_time`` does.
    """
    present = ~np.isnan(values)
    counts = present.sum(axis=1)
    some: npt.NDArray[np.int64] = np.maximum(counts, 1)
    means = np.where(present, values, 0.0).sum(axis=1) / some
    squares = np.where(present, values - means[:, None], 0.0) ** 2
    found = {Operator.AVG: means, Operator.STD: np.sqrt(squares.sum(axis=1) / some)}
    wanted = {operator: QUANTILES[operator] for operator in operators if operator in QUANTILES}
    if wanted:
        ordered = np.sort(values, axis=1)  # NaN come last
        rows = np.arange(len(values))
        for operator, quantile in wanted.items():
            place = quantile * (some - 1)
            lower: npt.NDArray[np.int64] = np.floor(place).astype(np.int64)
            low, high = ordered[rows, lower], ordered[rows, np.minimum(lower + 1, some - 1)]
            found[operator] = low + (high - low) * (place - lower)
    return counts, {operator: found[operator] for operator in operators}


def _coverage(taken_at: Floats, timestamps: Floats, window: Window, interval_seconds: float) -> Floats:
    """Return the share of the window that samples stand for, 0 to 1, for each node.

    A node's usual step is the median distance of its samples, so that a source which renews its values more slowly than
    we ask leaves no gaps. Distances are taken between the source's own times, which are not rounded to our rounds;
    only where the samples lie in the window is told by our clock, as the source's may be another.

    Args:
        taken_at: when each round was taken, ascending, unix seconds by our clock.
        timestamps: (nodes, rounds) unix seconds by the source's clock; NaN where a round has no sample of the node.
        window: the window that all rounds lie in.
        interval_seconds: how often we ask.
    """
    start = np.full((len(timestamps), 1), -np.inf)
    latest_before = np.fmax.accumulate(np.hstack([start, timestamps[:, :-1]]), axis=1)
    distances = timestamps - latest_before
    distances[~(np.isfinite(distances) & (distances > 0))] = np.nan
    counts = np.maximum((~np.isnan(distances)).sum(axis=1), 1)
    usual = np.sort(distances, axis=1)[np.arange(len(distances)), (counts - 1) // 2]  # NaN come last
    steps = np.fmax(usual, interval_seconds)
    between = np.where(distances > _GAP_FACTOR * steps[:, None], distances - steps[:, None], 0.0).sum(axis=1)
    ours = np.where(np.isnan(timestamps), np.nan, taken_at)
    edges = np.stack([np.fmin.reduce(ours, axis=1) - window.start, window.end - np.fmax.reduce(ours, axis=1)])
    outside = np.where(edges > _GAP_FACTOR * steps + interval_seconds, edges - steps, 0.0).sum(axis=0)
    covered: Floats = np.clip(1 - (between + outside) / duration.seconds(window.duration), 0.0, 1.0)
    return covered
