"""Rolling windows for sources that only know the present.

Samples are taken in the background at a steady pace and kept, in the store too, so that a restart loses none. A window
is then computed over exactly the samples that fall into it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from runtime import duration
from runtime.http.budget import spending
from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderUnavailable
from watcher.findings import Finding, Kind
from watcher.freshness import CLOCK_CORRECTION_SECONDS, PRUNED_AT_ONCE
from watcher.model import Window
from watcher.providers.base import Check, Fetched, Sample, SampleProvider, Samples, close_provider
from watcher.settings import WatchSettings
from watcher.windows.samples import MIN_SAMPLES, SampleRound, SampleStore

_log = logging.getLogger(__name__)

_WARM_UP_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_REMEMBERED = 8  # timestamps of a node; replicas of a source take turns in answering, each with samples of its own


class Sampled:
    """Turns a SampleProvider into a WindowProvider.

    The first :meth:`fetch` starts the sampling and waits for the second sample, a second later where the source has a
    new one by then, so that a watcher started just now has something to say.
    """

    def __init__(
        self,
        provider: SampleProvider,
        settings: WatchSettings,
        store: SampleStore,
        source: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._interval = settings.sample_interval_seconds
        self._operators = settings.operators
        self._timeout = settings.fetch_timeout_seconds
        self._budget = settings.fetch_budget
        self._expiry = max(settings.expiry_seconds, 2 * settings.sample_interval_seconds)
        self._span = max(map(duration.seconds, settings.windows))
        self._shortest = min(map(duration.seconds, settings.windows))
        self._store = store
        self._source = source
        self._clock = clock
        self._rounds: deque[SampleRound] = deque()
        self._seen: dict[str, dict[float, bool]] = {}  # node name to its last timestamps, the newest last
        self._findings: tuple[Finding, ...] = ()
        self._failure: ProviderError | None = None
        self._loaded_from: int | None = None  # which opening of the store
        self._sampled_at = 0.0  # by the clock that is never set
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the window's statistics of every node that has at least two samples in it.

        Raises:
            ProviderError: there are not two samples, or no recent one: however long the window, what was last sampled
                before the expiry is not the load of now.
        """
        with self._changed:
            self._prepare()
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
                self._thread.start()
            self._changed.wait_for(
                lambda: self._can_serve(window) or self._failure or self._stop.is_set(),
                deadline.remaining_seconds(),
            )
            # Not up to the window's end: what came while the first fetch waited is newer, and welcome.
            latest = self._clock() + CLOCK_CORRECTION_SECONDS
            rounds = [taken for taken in self._rounds if window.start < taken.taken_at <= latest]
            failure, noticed = self._failure, self._findings
        recent = bool(rounds) and self._is_recent(rounds[-1])
        if (len(rounds) < MIN_SAMPLES or not recent) and failure is not None:
            raise failure
        if not rounds:
            raise ProviderUnavailable(f"{self._source}: no sample was taken in the last {window.duration}")
        if len(rounds) < MIN_SAMPLES:
            raise ProviderUnavailable(
                f"{self._source}: one sample in the last {window.duration}, and metrics need two; the source had no "
                "newer one since"
            )
        if not recent:
            age = self._age_seconds(rounds[-1])
            raise ProviderUnavailable(f"{self._source}: the source had no new sample for {age:.0f} s")
        from watcher.windows.sample_table import aggregate  # noqa: PLC0415  numpy is behind it

        nodes = aggregate(rounds, window, self._interval, self._operators)
        newest = {node: timestamp for taken in rounds for node, timestamp in taken.timestamps.items()}
        if failure is not None:
            noticed = (Finding(Kind.FETCH_FAILED, f"no new samples: {failure}"), *noticed)
        return Fetched(nodes, tuple(replace(each, window=window.duration) for each in noticed), newest=newest)

    def check(self) -> Iterator[Check]:
        """Yield the provider's own steps."""
        return self._provider.check()

    def sample_once(self) -> None:
        """Take one sample now and keep it. The background thread calls this at its pace; tests may too."""
        with self._changed:
            self._prepare()
        try:
            with spending(self._budget()):
                answer = self._provider.sample(Deadline.after(self._timeout))
            taken = self._new_only(answer)
            kept = SampleRound.of(self._clock(), taken)
        except ProviderError as error:
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001
            # Whatever a provider raises or returns, the next sample may be good again: the thread goes on.
            failure = f"{self._source}: the provider failed unexpectedly: {type(error).__name__}: {error}"
            if failure != str(self._failure):
                _log.exception("the provider failed unexpectedly", extra={"provider": self._source})
            self._fail(ProviderAnswerError(failure))
            return
        with self._changed:
            self._failure = None
            self._findings = answer.findings if isinstance(answer, Samples) else ()
            if taken:
                self._remember(kept)
                self._sampled_at = time.monotonic()
            self._changed.notify_all()
        if taken:
            self._store.save_samples(self._source, kept, keep_since=self._clock() - self._span)

    def close(self) -> None:
        """Stop sampling."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        close_provider(self._provider)
        if self._thread is not None:
            self._thread.join(timeout=_CLOSE_SECONDS)

    def _run(self) -> None:
        due, pause = time.monotonic(), _WARM_UP_SECONDS / 2
        while not self._stop.is_set():
            self.sample_once()
            # At first more often, as metrics need two samples and the source may have a new one at any time.
            warm = self._count(self._clock() - self._shortest) >= MIN_SAMPLES
            pause = self._interval if warm else min(2 * pause, self._interval)
            due = max(due + pause, time.monotonic())  # a pace that drifts would leave gaps
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _can_serve(self, window: Window) -> bool:
        return self._count(window.start) >= MIN_SAMPLES and self._is_recent(self._rounds[-1])

    def _is_recent(self, taken: SampleRound) -> bool:
        is_past = taken.taken_at <= self._clock() + CLOCK_CORRECTION_SECONDS
        return is_past and self._age_seconds(taken) <= self._expiry

    def _age_seconds(self, taken: SampleRound) -> float:
        """Tell by both clocks: one that was set back while nothing came makes what there is younger than it is."""
        return max(self._clock() - taken.taken_at, time.monotonic() - self._sampled_at)

    def _count(self, since: float) -> int:
        return sum(taken.taken_at > since for taken in self._rounds)

    def _fail(self, error: ProviderError) -> None:
        if str(error) != str(self._failure):
            _log.warning("sampling failed", extra={"provider": self._source, "error": str(error)})
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _prepare(self) -> None:
        """Take over what was sampled before a restart, once it can be read, and give up what cannot be dated."""
        if self._loaded_from != self._store.times_opened:
            self._load()
        self._forget_the_future()

    def _load(self) -> None:
        if self._loaded_from is None:
            self._sampled_at = time.monotonic()  # how old they are, only the clock that is set can tell
        self._loaded_from = self._store.times_opened
        kept = self._store.load_samples(self._source, since=self._clock() - self._span)
        for taken in kept:
            for node, timestamp in taken.timestamps.items():
                self._is_new(node, timestamp)
        known = {taken.taken_at: taken for taken in (*kept, *self._rounds)}
        self._rounds = deque(known[taken_at] for taken_at in sorted(known))

    def _forget_the_future(self) -> None:
        """Give up, for good, what the clock stamped before it was set back: in time it would pass for recent."""
        now = self._clock()
        if any(taken.taken_at > now + CLOCK_CORRECTION_SECONDS for taken in self._rounds):
            # Also what passes for recent by now: it is older than that by as much as the clock was set back.
            since = now - self._expiry
            self._rounds = deque(taken for taken in self._rounds if taken.taken_at < since)
            self._store.forget_samples(self._source, since)

    def _new_only(self, taken: Mapping[str, Sample]) -> dict[str, Sample]:
        gone = self._seen.keys() - taken.keys()
        if gone:  # forgotten once no sample of theirs is kept; not by its time, as the source's clock may be another
            for node in gone.difference(*(kept.timestamps for kept in self._rounds)):
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
        now = self._clock()
        # Those of the future are from before the clock was set back: nothing says which window they belong to.
        known = [taken for taken in (*self._rounds, *rounds) if taken.taken_at <= now]
        # Few at a time, as in the store: to a clock that jumped ahead all are too old, until it is right again.
        old = sum(taken.taken_at < now - self._span for taken in known)
        self._rounds = deque(known[min(old, PRUNED_AT_ONCE) :])
