"""Several providers: the first that answers is served.

Metrics of different providers are never mixed in one snapshot: they may mean different things.
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
    """A provider over others.

    Args:
        providers: name and provider, the first being the one that is wanted.
    """

    def __init__(self, providers: Sequence[tuple[str, WindowProvider]]) -> None:
        self._providers = tuple(providers)
        self._late = Bulkhead()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return what the first provider that can answers, with a finding for each one before it that failed.

        They are asked one after another, each with its share of the time that is left.

        Raises:
            ProviderError: none of them could.
        """
        answers = self._ask_in_turn(window, deadline)
        failures = {number: answer for number, answer in answers.items() if isinstance(answer, Exception)}
        good = [(number, answer) for number, answer in answers.items() if isinstance(answer, Fetched)]
        if not good:
            raise ProviderError("; ".join(f"{self._providers[number][0]}: {each}" for number, each in failures.items()))
        chosen, fetched = good[0]
        name = self._providers[chosen][0]
        findings = [
            Finding(Kind.FELL_BACK, f"{self._providers[number][0]} failed, {name} answers: {error}", window.duration)
            for number, error in failures.items()
            if number < chosen
        ]
        return replace(fetched, source=name, findings=(*findings, *fetched.findings))

    def check(self) -> Iterator[Check]:
        """Yield the steps of every provider, named."""
        for name, provider in self._providers:
            yield from (replace(step, step=f"{name}: {step.step}") for step in provider.check())

    def close(self) -> None:
        """Close all of them."""
        for _, provider in self._providers:
            close_provider(provider)

    def _ask(self, number: int, window: Window, deadline: Deadline) -> Fetched:
        provider = self._providers[number][1]
        call = partial(budget.apart, number, partial(provider.fetch, window, deadline))
        return self._late.run((number, window.duration), call)

    def _ask_in_turn(self, window: Window, deadline: Deadline) -> dict[int, Fetched | Exception]:
        answers: dict[int, Fetched | Exception] = {}
        for number in range(len(self._providers)):
            share = Deadline.after(deadline.remaining_seconds() / (len(self._providers) - number))
            # In a thread of its own, as one that ignores its deadline must not cost the next one's share.
            answers[number] = _usable(gather({number: partial(self._ask, number, window, share)}, share)[number])
            if isinstance(answers[number], Fetched):
                break
        return answers


def _usable(answer: Fetched | Exception) -> Fetched | Exception:
    if isinstance(answer, Fetched) and not answer.nodes:
        return ProviderError("it knows no node")
    return answer
