"""Checks inside the running service: at its start, and again while something is wrong."""

import logging
import threading
import time
from collections.abc import Callable

from watcher.doctor.examination import examine
from watcher.settings import Settings

_POLL_SECONDS = 0.5
_MIN_PAUSE_SECONDS = 10.0
_MAX_PAUSE_SECONDS = 300.0
_log = logging.getLogger(__name__)


class Doctor:
    """Background thread that runs all checks at the service's start, and again while something is wrong.

    After a failure, the checks run again when the next fetch has ended, so that a solved problem is not shown for long:
    at most every 10 seconds, and at least every 5 minutes.

    Args:
        settings: all settings.
        last_fetch: returns the time of the watcher's last fetch.
        monotonic: monotonic clock.
    """

    def __init__(
        self, settings: Settings, last_fetch: Callable[[], float], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._last_fetch, self._monotonic = settings, last_fetch, monotonic
        self._problems: tuple[str, ...] = ()
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the thread; it ends when all checks succeed."""
        threading.Thread(target=self._run, name="doctor", daemon=True).start()

    def stop(self) -> None:
        """Stop checking."""
        self._stop.set()

    def problems(self) -> tuple[str, ...]:
        """Return the steps that failed in the last run."""
        return self._problems

    def _run(self) -> None:
        while not self._stop.is_set():
            checked_at, fetched_at = self._monotonic(), self._last_fetch()
            try:
                failed = [check for check in examine(self._settings) if not check.ok]
            except Exception:  # noqa: BLE001  a provider may raise anything
                _log.exception("the checks failed unexpectedly")
                return
            problems = tuple(f"{check.step}: {check.message} ({check.setting})" for check in failed)
            for problem in problems:
                if problem not in self._problems:
                    _log.warning("check failed", extra={"check": problem})
            if self._problems and not problems:
                _log.info("all checks pass again")
            self._problems = problems
            if not problems:
                return
            self._wait(checked_at, fetched_at)

    def _wait(self, checked_at: float, fetched_at: float) -> None:
        """Wait until the checks are due again, or until :meth:`stop`."""
        while not self._stop.wait(_POLL_SECONDS):
            waited = self._monotonic() - checked_at
            has_news = self._last_fetch() != fetched_at
            if waited >= (_MIN_PAUSE_SECONDS if has_news else _MAX_PAUSE_SECONDS):
                return
