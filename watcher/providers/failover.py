"""Failover between several providers: the metrics of the first provider that answers are used.

A snapshot never mixes metrics from different providers, because their definitions may differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from runtime.http import budget
from runtime.http.gather import Bulkhead, Deadline, gather
from watcher.errors import ProviderError
from watcher.findings import Finding, Kind
from watcher.model import Window
from watcher.providers.base import Check, Fetched, WindowProvider, close_provider


class Failover:
    """Provider that tries several providers in order.

    Args:
        providers: name and provider of each, the preferred one first.
    """

    def __init__(self, providers: Sequence[tuple[str, WindowProvider]]) -> None:
        self._providers = tuple(providers)
        self._bulkhead = Bulkhead()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the metrics of the first provider that answers, with a finding for each failed provider before it.

        The providers are tried one after another; each gets an equal share of the remaining time.

        Raises:
            ProviderError: all providers failed.
        """
        answers = self._ask_in_turn(window, deadline)
        failures = {number: answer for number, answer in answers.items() if isinstance(answer, Exception)}
        successes = [(number, answer) for number, answer in answers.items() if isinstance(answer, Fetched)]
        if not successes:
            raise ProviderError(
                "; ".join(f"{self._providers[number][0]}: {error}" for number, error in failures.items())
            )
        chosen, fetched = successes[0]
        name = self._providers[chosen][0]
        findings = [
            Finding(
                Kind.FELL_BACK, f"{self._providers[number][0]} failed, {name} is used instead: {error}", window.duration
            )
            for number, error in failures.items()
            if number < chosen
        ]
        return replace(fetched, source=name, findings=(*findings, *fetched.findings))

    def check(self) -> Iterator[Check]:
        """Yield the steps of every provider, with its name."""
        for name, provider in self._providers:
            yield from (replace(step, step=f"{name}: {step.step}") for step in provider.check())

    def close(self) -> None:
        """Close all providers."""
        for _, provider in self._providers:
            close_provider(provider)

    def _ask(self, number: int, window: Window, deadline: Deadline) -> Fetched:
        provider = self._providers[number][1]
        call = partial(budget.call_with_own_budget, number, partial(provider.fetch, window, deadline))
        return self._bulkhead.run((number, window.duration), call)

    def _ask_in_turn(self, window: Window, deadline: Deadline) -> dict[int, Fetched | Exception]:
        answers: dict[int, Fetched | Exception] = {}
        for number in range(len(self._providers)):
            share = Deadline.after(deadline.remaining_seconds() / (len(self._providers) - number))
            # In a separate thread: a provider that ignores its deadline must not use up the next provider's share.
            answers[number] = _error_if_empty(
                gather({number: partial(self._ask, number, window, share)}, share)[number]
            )
            if isinstance(answers[number], Fetched):
                break
        return answers


def _error_if_empty(answer: Fetched | Exception) -> Fetched | Exception:
    if isinstance(answer, Fetched) and not answer.nodes:
        return ProviderError("it returned no nodes")
    return answer
