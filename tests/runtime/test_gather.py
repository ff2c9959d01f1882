"""Calls side by side under one deadline."""

import threading
import time

from runtime.http.gather import Deadline, gather


def test_results_come_in_the_order_of_the_calls() -> None:
    """Whichever call ends first, the results stand in the order of the calls."""
    first_may_end = threading.Event()

    def slow() -> str:
        first_may_end.wait(5)
        return "slow"

    def quick() -> str:
        first_may_end.set()
        return "quick"

    assert list(gather({"a": slow, "b": quick}, Deadline.after(5)).items()) == [("a", "slow"), ("b", "quick")]


def test_calls_run_side_by_side() -> None:
    """Calls that wait for each other all end: none waits for its turn."""
    together = threading.Barrier(8)
    results = gather({number: lambda: together.wait(5) for number in range(8)}, Deadline.after(10))
    assert sorted(results.values()) == list(range(8))


def test_a_failure_is_the_result_of_its_call_alone() -> None:
    """A call that raises has its exception as result; the others have theirs."""
    failure = KeyError("x")

    def fail() -> int:
        raise failure

    assert gather({"bad": fail, "good": lambda: 1}, Deadline.after(5)) == {"bad": failure, "good": 1}


def test_a_late_call_is_a_timeout_and_what_came_counts() -> None:
    """At the deadline a late call has a TimeoutError, a quick one its result, and give_up ran once."""
    release = threading.Event()
    given_up = []
    calls = {"late": lambda: release.wait(30), "quick": lambda: True}
    results = gather(calls, Deadline.after(0.1), give_up=lambda: given_up.append(1))
    release.set()
    assert isinstance(results["late"], TimeoutError)
    assert results["quick"] is True
    assert given_up == [1]


def test_give_up_is_not_run_when_all_came() -> None:
    """Without a late call nothing is given up."""
    given_up = []
    gather({"quick": lambda: 1}, Deadline.after(5), give_up=lambda: given_up.append(1))
    assert given_up == []


def test_no_calls_give_no_results() -> None:
    """An empty mapping is answered at once."""
    assert gather({}, Deadline.after(5)) == {}


def test_a_deadline_never_has_less_than_nothing_left() -> None:
    """remaining_seconds counts down to 0 and stays there."""
    assert 0 < Deadline.after(5).remaining_seconds() <= 5
    assert Deadline(time.monotonic() - 1).remaining_seconds() == 0
