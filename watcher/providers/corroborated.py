"""Provider with a second source for comparison. Failures of the second source never affect a fetch."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from runtime.http.budget import call_with_own_budget
from runtime.http.gather import Bulkhead, Deadline, gather
from watcher.model import Window
from watcher.providers.base import Check, Fetched, WindowProvider, close_provider
from watcher.providers.sampled import Sampled

_log = logging.getLogger(__name__)


class Corroborated:
    """Provider that adds a second provider's metrics to the first provider's, as :attr:`Fetched.second_source`.

    Args:
        provider: name of the first provider, and the provider.
        second: name of the second provider, and the provider. After a failover to the second provider, its metrics are
            not compared with themselves.
        window: the only window that is fetched from the second provider.
    """

    def __init__(self, provider: tuple[str, WindowProvider], second: tuple[str, WindowProvider], window: str) -> None:
        self._name, self._provider = provider
        self._second_name, self._second = second
        self._window = window
        self._bulkhead = Bulkhead()
        self._second_answers = True

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the first provider's metrics, with those of the second if it answers in time.

        Raises:
            ProviderError: the first provider failed.
        """
        if window.duration != self._window:
            return self._provider.fetch(window, deadline)
        # A sampled provider answers from memory, so there is no point in waiting for it.
        second_deadline = Deadline.after(0) if isinstance(self._second, Sampled) else deadline
        second_call = partial(call_with_own_budget, "second", partial(self._second.fetch, window, second_deadline))
        answers = gather(
            {
                "first": partial(self._provider.fetch, window, deadline),
                "second": partial(self._bulkhead.run, "second", second_call),
            },
            deadline,
        )
        fetched, second_answer = answers["first"], answers["second"]
        self._log_change(second_answer)
        if isinstance(fetched, Exception):
            raise fetched
        if isinstance(second_answer, Exception) or (fetched.source or self._name) == self._second_name:
            return fetched
        return replace(fetched, second_source=second_answer.nodes)

    def check(self) -> Iterator[Check]:
        """Yield the steps of the first provider."""
        return self._provider.check()

    def close(self) -> None:
        """Close both providers."""
        close_provider(self._provider)
        close_provider(self._second)

    def _log_change(self, answer: Fetched | Exception) -> None:
        """Log when the second source starts or stops answering."""
        answers = isinstance(answer, Fetched)
        if answers != self._second_answers:
            message = (
                "metrics are compared with the second source"
                if answers
                else "metrics are not compared with the second source"
            )
            reason = "" if answers else str(answer)
            _log.info(message, extra={"provider": self._second_name, **({"error": reason} if reason else {})})
        self._second_answers = answers
