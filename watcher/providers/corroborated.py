"""A provider with a second one beside it, which says what it knows of the same nodes and never costs it a fetch."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from runtime.http.budget import apart
from runtime.http.gather import Bulkhead, Deadline, gather
from watcher.model import Window
from watcher.providers.base import Check, Fetched, WindowProvider, close_provider
from watcher.providers.sampled import Sampled

_log = logging.getLogger(__name__)


class Corroborated:
    """Serves what the first provider says; what the second says is in :attr:`Fetched.beside`.

    Args:
        provider: the first, and its name.
        second: the second, and its name. It is not asked for what it answered itself.
        window: the one window that the second is asked for.
    """

    def __init__(self, provider: tuple[str, WindowProvider], second: tuple[str, WindowProvider], window: str) -> None:
        self._name, self._provider = provider
        self._second_name, self._second = second
        self._window = window
        self._late = Bulkhead()
        self._answers = True

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return what the first provider says, with what the second does where it answers in time.

        Raises:
            ProviderError: the first has no answer.
        """
        if window.duration != self._window:
            return self._provider.fetch(window, deadline)
        # What is sampled in the background is there or not, and not waited for.
        patience = Deadline.after(0) if isinstance(self._second, Sampled) else deadline
        second = partial(apart, "second", partial(self._second.fetch, window, patience))
        answers = gather(
            {
                "first": partial(self._provider.fetch, window, deadline),
                "second": partial(self._late.run, "second", second),
            },
            deadline,
        )
        fetched, beside = answers["first"], answers["second"]
        self._note(beside)
        if isinstance(fetched, Exception):
            raise fetched
        if isinstance(beside, Exception) or (fetched.source or self._name) == self._second_name:
            return fetched
        return replace(fetched, beside=beside.nodes)

    def check(self) -> Iterator[Check]:
        """Yield the first provider's own steps."""
        return self._provider.check()

    def close(self) -> None:
        """Close both."""
        close_provider(self._provider)
        close_provider(self._second)

    def _note(self, answer: Fetched | Exception) -> None:
        """Log when the second source begins or ceases to answer."""
        answers = isinstance(answer, Fetched)
        if answers != self._answers:
            said = "metrics are corroborated" if answers else "metrics are not corroborated"
            why = "" if answers else str(answer)
            _log.info(said, extra={"provider": self._second_name, **({"error": why} if why else {})})
        self._answers = answers
