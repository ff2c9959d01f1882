"""Turns of threads that survive every error."""

import logging
import threading
from typing import Any

import pytest
from support.nodes_api import NodesApi
from support.waiting import wait_until

from runtime.controller.leader_loop import LeaderElectedLoop
from runtime.controller.leadership import Leadership
from runtime.kubernetes.leader_election import Lease
from runtime.threads import TurnGuard

_log = logging.getLogger(__name__)


def test_a_failed_turn_is_logged_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    """A turn that fails gives the other value; each new cause has its traceback in the log, a repeated one no line."""
    guard = TurnGuard(_log, "it failed", "it works again")
    causes: list[Exception | None] = [ValueError("a"), ValueError("a"), KeyError("b"), None, ValueError("a")]

    def turn() -> int:
        cause = causes.pop(0)
        if cause is not None:
            raise cause
        return 1

    caplog.set_level(logging.INFO)
    assert [guard.run(turn, 0) for _ in range(3)] == [0, 0, 0]
    assert guard.failure == "it failed: KeyError: 'b'"
    assert guard.run(turn, 0) == 1
    assert guard.failure == ""
    assert guard.run(turn, 0) == 0
    assert [each.message for each in caplog.records] == ["it failed", "it failed", "it works again", "it failed"]
    assert [each.exc_info is not None for each in caplog.records] == [True, True, False, True]


@pytest.mark.parametrize("part", ["cycle", "Lease"])
def test_a_controller_that_fails_says_so_and_goes_on(part: str) -> None:
    """While cycles or renewals raise, the readiness probe knows the reason, and the threads, daemons, stay alive."""
    broken, cycles = [True], [0]

    def cycle() -> bool:
        cycles[0] += 1
        if broken[0] and part == "cycle":
            raise RuntimeError("odd object")
        return True

    class BrokenApi(NodesApi):
        def send(self, *arguments: Any, **options: Any) -> Any:
            if broken[0] and part == "Lease":
                raise RuntimeError("odd object")
            return super().send(*arguments, **options)

    leadership = Leadership(Lease(BrokenApi(), "trimaran", "one", "me", 0.3), 0.3)
    threads = LeaderElectedLoop(leadership, cycle, 0.05)
    threads.start()
    try:
        wait_until(lambda: "RuntimeError: odd object" in threads.failure, "it is known")
        assert threads.is_alive()
        assert {each.name for each in threading.enumerate() if each.daemon} >= {"cycle", "lease"}
        broken[0], before = False, cycles[0]
        wait_until(lambda: not threads.failure and cycles[0] > before, "it works again")
    finally:
        threads.stop()


@pytest.mark.parametrize(("interval", "first"), [(60.0, 0.5), (0.1, 0.1)])
def test_a_cycle_that_did_not_run_is_tried_again_soon(interval: float, first: float) -> None:
    """A controller does not wait a whole interval for its first inputs; later it does."""
    waits: list[float | None] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            if len(waits) == 3:
                self.set()
            return self.is_set()

    loop = LeaderElectedLoop(None, lambda: len(waits) == 1, interval)
    loop._stop = Stop()
    loop._run()
    assert waits == [first, interval, interval]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_no_exception_ends_a_thread_that_must_go_on(kind: type[BaseException]) -> None:
    """In the main thread such an exception ends the program; in others only a plugin can have raised it."""
    guard, after = TurnGuard(_log, "it failed", "it works again"), []

    def turn() -> None:
        raise kind("ended")

    thread = threading.Thread(target=lambda: after.append(guard.run(turn, None)))
    thread.start()
    thread.join()
    assert (after, guard.failure) == ([None], f"it failed: {kind.__name__}: ended")
    with pytest.raises(kind):
        guard.run(turn, None)
