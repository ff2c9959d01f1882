"""Concurrent calls under one deadline."""

import threading
import time

import pytest

from runtime.http.gather import Deadline, gather


def test_results_are_in_the_order_of_the_calls() -> None:
    """Results are in the order of the calls, whichever call ends first."""
    first_may_end = threading.Event()

    def slow() -> str:
        first_may_end.wait(60)
        return "slow"

    def quick() -> str:
        first_may_end.set()
        return "quick"

    assert list(gather({"a": slow, "b": quick}, Deadline.after(60)).items()) == [("a", "slow"), ("b", "quick")]


def test_calls_run_concurrently() -> None:
    """Calls that wait for each other all end."""
    together = threading.Barrier(8)
    results = gather({number: lambda: together.wait(60) for number in range(8)}, Deadline.after(60))
    assert sorted(results.values()) == list(range(8))


def test_an_exception_is_the_result_of_its_call_only() -> None:
    """A call that raises has its exception as the result, and other calls have theirs."""
    failure = KeyError("x")

    def fail() -> int:
        raise failure

    assert gather({"bad": fail, "good": lambda: 1}, Deadline.after(5)) == {"bad": failure, "good": 1}


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_call_that_would_end_its_thread_fails_at_once(kind: type[BaseException]) -> None:
    """A provider that calls ``sys.exit`` does not let the caller wait for the deadline."""

    def leave() -> int:
        raise kind("left")

    results = gather({"bad": leave, "good": lambda: 1}, Deadline.after(600))
    assert results["good"] == 1
    assert str(results["bad"]) == f"raised {kind.__name__}: left"


def test_a_late_call_has_a_timeout_error() -> None:
    """A late call has a TimeoutError, a quick one its result, and give_up is called once."""
    release = threading.Event()
    given_up = []
    calls = {"late": lambda: release.wait(30), "quick": lambda: True}
    results = gather(calls, Deadline.after(0.1), give_up=lambda: given_up.append(1))
    release.set()
    assert isinstance(results["late"], TimeoutError)
    assert results["quick"] is True
    assert given_up == [1]


def test_give_up_is_not_called_without_a_late_call() -> None:
    """Without a late call, give_up is not called."""
    given_up = []
    gather({"quick": lambda: 1}, Deadline.after(5), give_up=lambda: given_up.append(1))
    assert given_up == []


def test_no_calls_give_no_results() -> None:
    """An empty mapping gives an empty result."""
    assert gather({}, Deadline.after(5)) == {}


def test_the_remaining_time_is_never_negative() -> None:
    """The remaining time of a deadline stops at 0."""
    assert 0 < Deadline.after(5).remaining_seconds() <= 5
    assert Deadline(time.monotonic() - 1).remaining_seconds() == 0
