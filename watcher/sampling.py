"""Rolling windows for sources that only know the present.

Samples are taken in the background at a steady pace and kept, in the store too, so that a restart loses none. A window
is then computed over exactly the samples that fall into it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from watcher import duration
from watcher.errors import ProviderError, ProviderUnavailable
from watcher.findings import Finding, Kind
from watcher.gather import Deadline
from watcher.model import Metric, NodeMetrics, Operator, Window
from watcher.providers.base import Check, Fetched, Sample, SampleProvider
from watcher.settings import WatchSettings
from watcher.statistics import statistics
from watcher.store import SampleRound, Store

_log = logging.getLogger(__name__)

_MIN_SAMPLES = 2
_WARM_UP_SECONDS = 1.0
_LOW_COVERAGE = 0.5


class Sampled:
    """Turns a SampleProvider into a WindowProvider.

    The first :meth:`fetch` starts the sampling and waits for the second sample, a second later, so that a watcher
    started just now has something to say.
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
        self._newest: dict[str, float] = {}
        self._failure: ProviderError | None = None
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the window's statistics of every node that has at least two samples in it."""
        with self._changed:
            if self._thread is None and not self._stop.is_set():
                kept = self._store.load_samples(self._source, since=self._clock() - self._span)
                self._remember(*kept)
                self._newest = dict(kept[-1].timestamps) if kept else {}
                self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
                self._thread.start()
            self._changed.wait_for(
                lambda: len(self._rounds) >= _MIN_SAMPLES or self._failure or self._stop.is_set(),
                deadline.remaining_seconds(),
            )
            # No upper bound: what came while the first fetch waited is newer than its window's end, and welcome.
            rounds = [taken for taken in self._rounds if taken.taken_at > window.start]
            failure = self._failure
        if len(rounds) < _MIN_SAMPLES and failure is not None:
            raise failure
        if not rounds:
            raise ProviderUnavailable(f"{self._source}: no sample was taken in the last {window.duration}")
        return Fetched(*_aggregate(rounds, window, self._interval, self._operators))

    def check(self) -> Iterator[Check]:
        """Yield the provider's own steps."""
        return self._provider.check()

    def sample_once(self) -> None:
        """Take one sample now and keep it. The background thread calls this at its pace; tests may too."""
        try:
            taken = self._new_only(self._provider.sample(Deadline.after(self._timeout)))
        except ProviderError as error:
            if str(error) != str(self._failure):
                _log.warning("sampling failed", extra={"provider": self._source, "error": str(error)})
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            return
        with self._changed:
            self._failure = None
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
        self.sample_once()
        pause = _WARM_UP_SECONDS if len(self._rounds) < _MIN_SAMPLES else self._interval
        while not self._stop.wait(pause):
            self.sample_once()
            pause = self._interval

    def _new_only(self, taken: Mapping[str, Sample]) -> dict[str, Sample]:
        new = {node: sample for node, sample in taken.items() if sample.timestamp != self._newest.get(node)}
        self._newest = {node: sample.timestamp for node, sample in taken.items()}
        return new

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
        counts, computed = statistics(values, operators)
        for row in np.flatnonzero(counts >= _MIN_SAMPLES):
            for operator, found in computed.items():
                metrics[nodes[row]].append(Metric(name, type_, operator, window.duration, float(found[row])))
    coverage = _coverage(rounds, row_of, window, interval_seconds)
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


def _coverage(
    rounds: list[SampleRound], row_of: Mapping[str, int], window: Window, interval_seconds: float
) -> dict[str, float]:
    """Return the share of the window's sampling intervals that hold a sample, for each node."""
    span = duration.seconds(window.duration)
    expected = max(1, int(span // interval_seconds))
    slots: list[set[int]] = [set() for _ in row_of]
    for taken in rounds:
        slot = min(expected - 1, int((taken.taken_at - window.start) // interval_seconds))
        for node in taken.timestamps:
            slots[row_of[node]].add(slot)
    return {node: len(slots[row]) / expected for node, row in row_of.items()}
