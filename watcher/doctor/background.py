"""All checks inside the running service: when it starts, and again while something is wrong."""

import logging
import threading

from watcher.doctor.examination import examine
from watcher.settings import Settings

_AGAIN_SECONDS = 300.0
_log = logging.getLogger(__name__)


class Doctor:
    """Runs all checks in the background when the service starts, and again while something is wrong."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._problems: tuple[str, ...] = ()
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin; the thread ends by itself when all is well."""
        threading.Thread(target=self._run, name="doctor", daemon=True).start()

    def stop(self) -> None:
        """Do not check again."""
        self._stop.set()

    def problems(self) -> tuple[str, ...]:
        """Return the steps that failed when they were tried last."""
        return self._problems

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                failed = [check for check in examine(self._settings) if not check.ok]
            except Exception:  # noqa: BLE001  a provider's defect must not end the service's health
                _log.exception("the checks failed unexpectedly")
                return
            problems = tuple(f"{check.step}: {check.message} ({check.setting})" for check in failed)
            for problem in problems:
                if problem not in self._problems:
                    _log.warning("check failed", extra={"check": problem})
            self._problems = problems
            if not problems or self._stop.wait(_AGAIN_SECONDS):
                return
