"""Checks inside the running service: at its start, and again while something is wrong."""

import logging
import threading

from watcher.doctor.examination import examine
from watcher.settings import Settings

_RETRY_SECONDS = 300.0
_log = logging.getLogger(__name__)


class Doctor:
    """Background thread that runs all checks at the service's start, and again while something is wrong."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
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
            try:
                failed = [check for check in examine(self._settings) if not check.ok]
            except Exception:  # noqa: BLE001  a provider may raise anything
                _log.exception("the checks failed unexpectedly")
                return
            problems = tuple(f"{check.step}: {check.message} ({check.setting})" for check in failed)
            for problem in problems:
                if problem not in self._problems:
                    _log.warning("check failed", extra={"check": problem})
            self._problems = problems
            if not problems or self._stop.wait(_RETRY_SECONDS):
                return
