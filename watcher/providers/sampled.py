"""Rolling windows for sources that only know the present.

A background thread samples the source at a steady pace. The samples are kept in memory and in the store, so none are
lost at a restart. A window is computed from exactly the samples that fall into it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from runtime import duration
from runtime.http.budget import use_budget
from runtime.http.gather import Deadline
from runtime.threads import start_thread
from watcher.errors import ProviderAnswerError, ProviderError, ProviderUnavailable
from watcher.findings import Action, Finding, Kind
from watcher.freshness import CLOCK_CORRECTION_SECONDS, PRUNE_BATCH_SIZE
from watcher.model import Window
from watcher.providers.base import Check, Fetched, Sample, SampleProvider, Samples, close_provider
from watcher.settings import WatchSettings
from watcher.windows.samples import MIN_SAMPLES, SampleRound, SampleStore

_log = logging.getLogger(__name__)

_WARM_UP_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_REMEMBERED = 8  # timestamps of a node: replicas of a source take turns in answering, each with its own samples


class Sampled:
    """Adapter that turns a SampleProvider into a WindowProvider.

    The first :meth:`fetch` starts the sampling and waits for the second sample. That takes a second if the source has a
    new sample by then, so a new watcher soon has metrics.
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
        self._since: dict[str, float] = {}  # node name to the time at which the node was created
        self._findings: tuple[Finding, ...] = ()
        self._failure: ProviderError | None = None
        self._loaded_from: int | None = None  # the store's times_opened at the last load
        self._sampled_at = 0.0  # on the monotonic clock
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the statistics of every node that has at least two samples in the window.

        Raises:
            ProviderError: there are fewer than two samples, or none is recent: samples older than the expiry do not
                describe the present load, however long the window is.
        """
        with self._changed:
            self._prepare()
            if self._thread is None and not self._stop.is_set():
                self._thread = start_thread(self._run, "sampling")
            self._changed.wait_for(
                lambda: self._can_serve(window) or self._failure or self._stop.is_set(), deadline.remaining_seconds()
            )
            # Samples newer than the window's end are used too: they arrived while the first fetch was waiting.
            latest = self._clock() + CLOCK_CORRECTION_SECONDS
            rounds = [round_ for round_ in self._rounds if window.start < round_.taken_at <= latest]
            failure, findings = self._failure, self._findings
        # A failure of the source only fails the fetch if the samples do not suffice; else it becomes a finding.
        recent = bool(rounds) and self._is_recent(rounds[-1])
        if (len(rounds) < MIN_SAMPLES or not recent) and failure is not None:
            raise failure
        if not rounds:
            raise ProviderUnavailable(f"{self._source}: no sample was taken in the last {window.duration}")
        if len(rounds) < MIN_SAMPLES:
            raise ProviderUnavailable(
                f"{self._source}: only one sample in the last {window.duration}, but metrics need two; the source had "
                "no newer one"
            )
        if not recent:
            age = self._age_seconds(rounds[-1])
            raise ProviderUnavailable(f"{self._source}: the source had no new sample for {age:.0f} s")
        from watcher.windows.sample_table import aggregate  # imports numpy

        nodes, left_out = aggregate(rounds, window, self._interval, self._operators)
        newest = {node: timestamp for round_ in rounds for node, timestamp in round_.timestamps.items()}
        if failure is not None:
            findings = (Finding(Kind.FETCH_FAILED, f"no new samples: {failure}"), *findings)
        findings = tuple(replace(finding, window=window.duration) for finding in (*findings, *left_out))
        return Fetched(nodes, findings, newest=newest)

    def check(self) -> Iterator[Check]:
        """Yield the provider's steps."""
        return self._provider.check()

    def sample_once(self) -> None:
        """Take one sample now and store it.

        The background thread calls this at each interval; tests may call it, too.
        """
        with self._changed:
            self._prepare()
        try:
            with use_budget(self._budget()):
                answer = self._provider.sample(Deadline.after(self._timeout))
            readable, unreadable = _readable(answer)
            new_samples = self._new_only(readable)
            round_ = SampleRound.of(self._clock(), new_samples)
        except ProviderError as error:
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001
            # The provider may raise or return anything; the thread goes on, as the next sample may succeed.
            failure = f"{self._source}: the provider failed unexpectedly: {type(error).__name__}: {error}"
            if failure != str(self._failure):
                _log.exception("the provider failed unexpectedly", extra={"provider": self._source})
            self._fail(ProviderAnswerError(failure))
            return
        with self._changed:
            self._failure = None
            self._findings = (*(answer.findings if isinstance(answer, Samples) else ()), *unreadable)
            since = {node: getattr(each, "since", 0.0) for node, each in new_samples.items()}
            if created := {node: at for node, at in since.items() if at > self._since.get(node, 0.0)}:
                self._since |= created  # the earlier samples of its name are of another machine
                self._rounds = deque(each.without_earlier(created) for each in self._rounds)
            if new_samples:
                self._remember(round_)
                self._sampled_at = time.monotonic()
            self._changed.notify_all()
        if new_samples:
            self._store.save_samples(self._source, round_, keep_since=self._clock() - self._span)

    def close(self) -> None:
        """Stop the sampling and close the provider."""
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
            # Sample more often at first: metrics need two samples, and the source may have a new one at any time.
            warm = self._count(self._clock() - self._shortest) >= MIN_SAMPLES
            pause = self._interval if warm else min(2 * pause, self._interval)
            due = max(due + pause, time.monotonic())  # relative to the last due time, so that the pace does not drift
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _can_serve(self, window: Window) -> bool:
        return self._count(window.start) >= MIN_SAMPLES and self._is_recent(self._rounds[-1])

    def _is_recent(self, round_: SampleRound) -> bool:
        is_past = round_.taken_at <= self._clock() + CLOCK_CORRECTION_SECONDS
        return is_past and self._age_seconds(round_) <= self._expiry

    def _age_seconds(self, round_: SampleRound) -> float:
        """Return a round's age in seconds, the larger of the ages by the wall clock and by the monotonic clock.

        The wall clock alone is not enough: it may have been set back since the last sample.
        """
        return max(self._clock() - round_.taken_at, time.monotonic() - self._sampled_at)

    def _count(self, since: float) -> int:
        return sum(round_.taken_at > since for round_ in self._rounds)

    def _fail(self, error: ProviderError) -> None:
        if str(error) != str(self._failure):
            _log.warning("sampling failed", extra={"provider": self._source, "error": str(error)})
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _prepare(self) -> None:
        """Load stored rounds of samples whenever the store was opened, and drop rounds with future timestamps."""
        if self._loaded_from != self._store.times_opened:
            self._load()
        self._drop_future_rounds()

    def _load(self) -> None:
        if self._loaded_from is None:
            self._sampled_at = time.monotonic()  # the age of stored rounds is only known by the wall clock
        self._loaded_from = self._store.times_opened
        stored = self._store.load_samples(self._source, since=self._clock() - self._span)
        for round_ in stored:
            for node, timestamp in round_.timestamps.items():
                self._is_new(node, timestamp)
        self._since = {}
        rounds = {round_.taken_at: round_ for round_ in (*stored, *self._rounds)}
        self._rounds = deque(rounds[taken_at] for taken_at in sorted(rounds))

    def _drop_future_rounds(self) -> None:
        """If the clock was set back, delete the earlier rounds that would distort the present load.

        These are rounds with timestamps in the future, and rounds that look younger than the expiry: their true age is
        unknown.
        """
        now = self._clock()
        if any(round_.taken_at > now + CLOCK_CORRECTION_SECONDS for round_ in self._rounds):
            # Rounds that look recent now are dropped, too: they are older by the amount that the clock was set back.
            since = now - self._expiry
            self._rounds = deque(round_ for round_ in self._rounds if round_.taken_at < since)
            self._store.forget_samples(self._source, since)

    def _new_only(self, samples: Mapping[str, Sample]) -> dict[str, Sample]:
        gone = self._seen.keys() - samples.keys()
        if gone:  # forget a node once no round has its samples; not by time, as the source's clock may differ
            for node in gone.difference(*(round_.timestamps for round_ in self._rounds)):
                del self._seen[node]
                self._since.pop(node, None)
        return {node: sample for node, sample in samples.items() if self._is_new(node, sample.timestamp)}

    def _is_new(self, node: str, timestamp: float) -> bool:
        """Return whether this sample of the node was not seen before, and remember its timestamp."""
        seen = self._seen.setdefault(node, {})
        known = seen.pop(timestamp, False)
        seen[timestamp] = True
        if len(seen) > _REMEMBERED:
            del seen[next(iter(seen))]
        return not known

    def _remember(self, *rounds: SampleRound) -> None:
        now = self._clock()
        # Rounds in the future are from before the clock was set back: their place in a window is unknown.
        known = [round_ for round_ in (*self._rounds, *rounds) if round_.taken_at <= now]
        # Drop a few at a time, as the store does: while the clock is ahead, all rounds look too old.
        old = sum(round_.taken_at < now - self._span for round_ in known)
        self._rounds = deque(known[min(old, PRUNE_BATCH_SIZE) :])


def _readable(samples: Mapping[str, Sample]) -> tuple[Mapping[str, Sample], list[Finding]]:
    """Return the samples that can be read, and a finding for each other sample.

    Raises:
        Exception: the error of the first sample, if no sample can be read.
    """
    try:
        SampleRound.of(0, samples)
    except Exception as first:  # a provider in another package may return anything
        readable, findings = {}, []
        for node, sample in samples.items():
            try:
                SampleRound.of(0, {node: sample})
            except Exception as error:  # noqa: BLE001  as above
                message = f"the provider's sample of {node} cannot be read: {type(error).__name__}: {error}"
                findings.append(Finding(Kind.BAD_VALUE, message, node=node, action=Action.DROPPED))
            else:
                readable[node] = sample
        if not readable:
            raise first from None
        return readable, findings
    return samples, []
