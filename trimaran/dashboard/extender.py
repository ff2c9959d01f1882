"""What an extender decided, read from it, and kept for a moment."""

from collections.abc import Sequence
from typing import Any

from trimaran.dashboard.result_store import Kept
from trimaran.extender.decisions import DECISIONS, EXPLAIN, REGRET
from trimaran.extender.decisions.decisions_client import Extender

MOST = 500
_SECONDS = 5.0


class Decisions:
    """An extender's decisions. Safe to use from several threads.

    Args:
        extender: is asked.
    """

    def __init__(self, extender: Extender) -> None:
        """Read nothing yet."""
        self._extender = extender
        self._kept = Kept()

    def recent(self) -> Sequence[dict[str, Any]]:
        """Return the last decisions, the newest first.

        Raises:
            NoAnswer: the extender refuses, or cannot be asked.
        """

        def read() -> Sequence[dict[str, Any]]:
            found: Sequence[dict[str, Any]] = self._extender.ask(DECISIONS, limit=str(MOST))["decisions"]
            return found

        return self._kept.read("recent", _SECONDS, read)

    def regret(self) -> dict[str, Any]:
        """Return the table of regrets; raises as :meth:`recent`."""
        return self._kept.read("regret", _SECONDS, lambda: self._extender.ask(REGRET))

    def explain(self, pod: str) -> dict[str, Any]:
        """Return the last decision for a pod, ``namespace/name``; raises as :meth:`recent`."""
        return self._extender.ask(EXPLAIN, pod=pod)
