"""Several providers at once: the first that answers is served, and another one may be held against it.

Metrics of different providers are never mixed in one snapshot: they may mean different things.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from watcher.errors import ProviderError
from watcher.findings import Finding, Kind
from watcher.model import AVERAGES, REQUIRED, NodeMetrics, Window
from watcher.providers.base import Check, Fetched, WindowProvider, close_provider
from watcher.transport.gather import Bulkhead, Deadline, gather


class Failover:
    """A provider over others.

    Args:
        providers: name and provider, the first being the one that is wanted.
        disagreement_percent: points that the averages of two providers may differ in; 0 does not compare them.
    """

    def __init__(self, providers: Sequence[tuple[str, WindowProvider]], disagreement_percent: float) -> None:
        self._providers = tuple(providers)
        self._bound = disagreement_percent
        self._late = Bulkhead()

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return what the first provider that can answers, with a finding for each one before it that failed.

        Without comparing, they are asked one after another, each with its share of the time that is left; to compare,
        all at once.

        Raises:
            ProviderError: none of them could.
        """
        answers = self._ask_all(window, deadline) if self._bound else self._ask_in_turn(window, deadline)
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
        for number, other in good[1:]:
            findings += self._compare(name, fetched.nodes, self._providers[number][0], other.nodes, window.duration)
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
        return self._late.run((number, window.duration), partial(provider.fetch, window, deadline))

    def _ask_all(self, window: Window, deadline: Deadline) -> dict[int, Fetched | Exception]:
        calls = {number: partial(self._ask, number, window, deadline) for number in range(len(self._providers))}
        answers = gather(calls, deadline)
        return {number: _usable(answers[number]) for number in calls}

    def _ask_in_turn(self, window: Window, deadline: Deadline) -> dict[int, Fetched | Exception]:
        answers: dict[int, Fetched | Exception] = {}
        for number in range(len(self._providers)):
            share = Deadline.after(deadline.remaining_seconds() / (len(self._providers) - number))
            # In a thread of its own, as one that ignores its deadline must not cost the next one's share.
            answers[number] = _usable(gather({number: partial(self._ask, number, window, share)}, share)[number])
            if isinstance(answers[number], Fetched):
                break
        return answers

    def _compare(
        self, first: str, ours: Mapping[str, NodeMetrics], second: str, theirs: Mapping[str, NodeMetrics], window: str
    ) -> Iterator[Finding]:
        for node in ours.keys() & theirs.keys():
            for type_ in REQUIRED:
                one, other = _level(ours[node], type_), _level(theirs[node], type_)
                if one is not None and other is not None and abs(one - other) > self._bound:
                    message = f"{type_} is {one:.1f}% at {first} but {other:.1f}% at {second}"
                    yield Finding(Kind.DISAGREEMENT, message, window, node)


def _usable(answer: Fetched | Exception) -> Fetched | Exception:
    if isinstance(answer, Fetched) and not answer.nodes:
        return ProviderError("it knows no node")
    return answer


def _level(node: NodeMetrics, type_: str) -> float | None:
    return next((metric.value for metric in node.metrics if metric.type == type_ and metric.operator in AVERAGES), None)
