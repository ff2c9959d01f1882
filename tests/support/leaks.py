"""Comparison of what this process holds before and after each test and each wider fixture."""

import contextlib
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.inventory import Difference, Inventory, Key, describe, take
from support.origins import Origins


class Leak(Exception):
    """A fixture that failed or skipped half-way has left something; the message lists it."""


#: The guard of this process, once its tests run.
installed: list["LeakGuard"] = []
#: Seconds in which what a test has stopped may end, such as a server's thread whose connection was just closed.
PATIENCE_SECONDS = 10.0
#: Kinds of resources that may still end by themselves.
_ENDING = {"thread", "child", "descriptor", "temporary file"}


class LeakGuard:
    """Compares what this process holds before and after each test and each wider fixture.

    What a fixture of a wider scope has started belongs to that fixture, with all that its threads start, and is
    compared at the fixture's end, or at once if it fails or skips half-way. What ends by itself has some seconds.
    """

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._known = take(origins)
        self._held: dict[Any, Difference] = {}
        self._unclosed: list[str] = []

    def check_test(self) -> list[str]:
        """Return a line for each thing that is left since the last check, apart from what wider fixtures hold."""
        now, left = self._wait_for_nothing(lambda now: self._new(now, self._known))
        lines = self._lines(left)
        self._known = now
        self._origins.forget()
        return lines

    @contextmanager
    def holding(self, fixture: Any) -> Iterator[None]:
        """Let a fixture hold what is started in the block, until :meth:`check_fixture`.

        Raises:
            Leak: the block failed or skipped, and left something.
        """
        before = take(self._origins)
        try:
            yield
        except BaseException as error:
            now, left = self._wait_for_nothing(lambda now: self._new(now, before))
            lines = self._lines(left)
            self._adopt(left, now)
            if lines:
                raise Leak(listing(f"failed or skipped ({error}), and", lines)) from error
            raise
        now = take(self._origins)
        self._held[fixture] = self._new(now, before)
        self._adopt(self._held[fixture], now)

    @contextmanager
    def replacing(self, pid: int) -> Iterator[None]:
        """Let the fixture that holds a child process hold what is started in the block, too."""
        before = take(self._origins)
        try:
            yield
        finally:
            now = take(self._origins)
            for fixture, held in self._held.items():
                if ("child", pid) in held.resources:
                    new = self._new(now, before)
                    self._held[fixture] = Difference(held.resources | new.resources, held.states)
                    self._adopt(new, now)
                    break

    def check_fixture(self, fixture: Any) -> list[str]:
        """Return a line for each thing that is left of what a fixture held."""
        held = self._held.pop(fixture, None)
        if not held:
            return []

        def still_held(now: Inventory) -> Difference:
            changed = {key: was for key, was in held.states.items() if now.states.get(key) != was}
            return Difference(held.resources & now.resources, changed)

        _, left = self._wait_for_nothing(still_held)
        for key, was in held.states.items():  # the tests that follow are compared with the state before the fixture
            if key not in left.states:
                self._known.states.pop(key, None) if was is None else self._known.states.update({key: was})
        return self._lines(left)

    def _new(self, now: Inventory, earlier: Inventory) -> Difference:
        """Return what is new, apart from what fixtures hold, to which belongs what their threads have started."""
        new = now.since(earlier)
        own = set(new.resources)
        for fixture, held in self._held.items():
            theirs = {key for key in own if key in held.resources or self._is_started_by(key, fixture, held)}
            self._held[fixture] = Difference(held.resources | theirs, held.states)
            self._known.resources |= theirs
            own -= theirs
        return Difference(frozenset(own), new.states)

    def _is_started_by(self, key: Key, fixture: Any, held: Difference) -> bool:
        if key[0] == "temporary file":  # of a process that the fixture runs, if this process has not created it
            in_this_folder = not isinstance(fixture, str)  # what the session keeps has another one: kept_by_session
            has_child = any(kind == "child" for kind, _ in held.resources)
            return in_this_folder and has_child and not self._origins.has_created(key[1])
        starter = self._origins.starter(*key)
        while starter is not None and ("thread", starter) not in held.resources:
            starter = self._origins.starter("thread", starter)
        return starter is not None

    def _adopt(self, difference: Difference, now: Inventory) -> None:
        self._known.resources |= difference.resources
        for key in difference.states:
            self._known.states.pop(key, None)
            if key in now.states:
                self._known.states[key] = now.states[key]

    def _wait_for_nothing(self, compare: Callable[[Inventory], Difference]) -> tuple[Inventory, Difference]:
        """Wait until nothing is left, or until patience ends; return the last inventory and the rest in it.

        Patience counts the pauses as they were meant: while the machine stands still, nothing can end.
        """
        passed, pause, collections = 0.0, 0.001, 0
        while True:
            now = take(self._origins)
            left = compare(now)
            if passed > PATIENCE_SECONDS or not any(kind in _ENDING for kind, _ in left.resources):
                return now, left
            if passed >= 0.5 * collections:  # what ends late may be garbage only then
                self._collect_garbage(whole=collections > 0)
                collections += 1
            time.sleep(pause)
            passed += pause
            pause = min(pause * 1.5, 0.05)

    def _collect_garbage(self, *, whole: bool) -> None:
        """Close what only cycles refer to, such as pools of urllib3; what Python warns of there is left behind, too.

        What survives is left out of later collections, which took a second each in the middle of a run.

        Args:
            whole: look at what survived earlier ones, too.
        """
        usual = sys.unraisablehook

        def keep(raised: Any) -> None:
            if isinstance(raised.exc_value, ResourceWarning):
                self._unclosed.append(f"garbage: {raised.exc_value}")
            else:
                usual(raised)

        sys.unraisablehook = keep
        try:
            if whole:
                gc.unfreeze()
            gc.collect()
            gc.freeze()
        finally:
            sys.unraisablehook = usual

    def _lines(self, left: Difference) -> list[str]:
        unclosed, self._unclosed = self._unclosed, []
        return unclosed + sorted(describe(key, self._origins) for key in (*left.resources, *left.states))


@contextmanager
def kept_by_session(name: str) -> Iterator[None]:
    """Keep what is started in the block until the process ends: servers that are started once, at their first use."""
    with contextlib.ExitStack() as stack:
        for guard in installed:
            stack.enter_context(guard.holding(name))
            # Such a server removes its temporary files after the folder of the tests is gone.
            stack.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
            tempfile.tempdir = str(Path(tempfile.gettempdir()).parent)
        yield


@contextmanager
def replaced(pid: int) -> Iterator[None]:
    """Let a process that is started in the block belong to the fixture to which its predecessor belonged."""
    with contextlib.ExitStack() as stack:
        for guard in installed:
            stack.enter_context(guard.replacing(pid))
        yield


def listing(what: str, lines: list[str]) -> str:
    """Return a sentence that ends with "left behind", and the lines."""
    return f"{what} left behind:\n  " + "\n  ".join(lines)
