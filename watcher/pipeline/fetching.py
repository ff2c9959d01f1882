"""Fetching: get the metrics of all windows concurrently under one deadline, and clean each window when it arrives."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from runtime import duration
from runtime.http.budget import use_budget
from runtime.http.gather import Bulkhead, BulkheadFull, Deadline, gather
from watcher.errors import ProviderError
from watcher.findings import Finding
from watcher.model import NodeMetrics, WatcherMetrics, Window
from watcher.pipeline.round import Round
from watcher.providers.base import Fetched, WindowProvider
from watcher.quality import analyzer
from watcher.settings import WatchSettings

_log = logging.getLogger(__name__)
_GRACE_SECONDS = 1.0  # for a provider to return partial results after its own calls have timed out


class Fetcher:
    """Fetches all windows from one provider.

    Args:
        provider: the provider.
        source: the provider's name.
        settings: the windows, and the limits of a fetch: time, memory, nodes.
        standing: findings to add to every fetch, such as that a provider's certificate is not verified.
    """

    def __init__(
        self, provider: WindowProvider, source: str, settings: WatchSettings, standing: Sequence[Finding] = ()
    ) -> None:
        self._provider = provider
        self._source = source
        self._settings = settings
        self._standing = tuple(standing)
        self._late = Bulkhead()
        self._cleaning = threading.Lock()

    def fetch(self, now: int) -> Round:
        """Fetch all windows, each ending at ``now`` (Unix seconds); a window that fails does not affect the others."""
        deadline = Deadline.after(self._settings.fetch_timeout_seconds)
        calls = {name: partial(self._fetch, name, now, deadline) for name in self._settings.windows}
        with use_budget(self._settings.fetch_budget()):
            answers = gather(calls, Deadline(deadline.at + _GRACE_SECONDS))
        arrived: dict[str, Fetched] = {}
        failures: dict[str, str] = {}
        newest: dict[str, float] = {}
        second_source: dict[str, NodeMetrics] = {}
        for name, answer in answers.items():
            if isinstance(answer, Exception):
                failures[name] = _reason(answer)
                continue
            arrived[name] = answer
            second_source.update(answer.second_source)
            for node, time_ in answer.newest.items():
                newest[node] = max(time_, newest.get(node, time_))
            if not answer.nodes:
                failures[name] = f"{self._source} returned no node with usable metrics"
                if answer.findings:
                    failures[name] += f"; for example: {answer.findings[0].message}"
        snapshots = {
            name: WatcherMetrics(now, _window(name, now), fetched.source or self._source, fetched.nodes)
            for name, fetched in arrived.items()
        }
        findings = tuple(finding for fetched in arrived.values() for finding in fetched.findings)
        return Round(now, snapshots, {}, (*self._standing, *findings), newest, second_source).with_failures(failures)

    def _fetch(self, name: str, now: int, deadline: Deadline) -> Fetched:
        """Fetch one window, and remove metrics that cannot be used and nodes beyond the first 20,000.

        Args:
            name: the window, such as ``15m``.
            now: end of the window, Unix seconds.
            deadline: time at which the provider must have answered.

        Returns:
            The provider's result with the remaining nodes, and findings about what was removed or changed.
        """
        fetched: Fetched = self._late.run(name, partial(self._provider.fetch, _window(name, now), deadline))
        with self._cleaning:  # one window at a time: in parallel it is not faster, and delays HTTP requests
            limited, too_many = analyzer.limit(fetched.nodes, name, self._settings.max_nodes)
            nodes, cleaned = analyzer.clean(limited, name)
            findings = (*fetched.findings, *too_many, *cleaned)
            explained = analyzer.explain_missing_cpu(nodes, findings, fetched.source or self._source)
        return replace(fetched, nodes=explained, findings=findings)


def _window(name: str, now: int) -> Window:
    return Window(name, now - duration.seconds(name), now)


def _reason(error: Exception) -> str:
    if isinstance(error, ProviderError):
        return str(error)
    if isinstance(error, BulkheadFull):
        return f"the provider {error}"
    if isinstance(error, TimeoutError):
        return "the provider did not answer in time (watch.fetch_timeout_seconds)"
    _log.error("the provider failed unexpectedly", exc_info=error)
    return f"the provider failed unexpectedly: {type(error).__name__}: {error}"
