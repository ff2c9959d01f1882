"""State and recorded decisions of an extender, read over HTTP and cached for five seconds."""

from collections.abc import Sequence
from typing import Any

from runtime.http.json_service import JsonService
from trimaran.dashboard.ttl_cache import TTLCache
from trimaran.extender import STATUS
from trimaran.extender.decisions import DECISIONS, EXPLAIN, REGRET

MAX_DECISIONS = 500
_SECONDS = 5.0


class Decisions:
    """Reader of an extender's recorded decisions, with one cache for all viewers. Thread-safe.

    Args:
        extender: client of the extender's decisions API.
    """

    def __init__(self, extender: JsonService) -> None:
        """Create the cache; nothing is read until a page asks for it."""
        self._extender = extender
        self._cache = TTLCache()

    def recent(self) -> Sequence[dict[str, Any]]:
        """Return the last 500 decisions as JSON objects, newest first.

        Raises:
            ServiceUnavailable: the extender refuses the request or cannot be reached.
        """

        def read() -> Sequence[dict[str, Any]]:
            decisions: Sequence[dict[str, Any]] = self._extender.get(DECISIONS, limit=str(MAX_DECISIONS))["decisions"]
            return decisions

        return self._cache.get("recent", _SECONDS, read)

    def regret(self) -> dict[str, Any]:
        """Return the regret table: loads of the chosen nodes and of the extender's best nodes, by scheduler and mode.

        Raises the same errors as :meth:`recent`.
        """
        return self._cache.get("regret", _SECONDS, lambda: self._extender.get(REGRET))

    def status(self) -> dict[str, Any]:
        """Return the state of the extender: mode, percentage of pods that it scores, and why it is not ready.

        Raises the same errors as :meth:`recent`.
        """
        return self._cache.get("status", _SECONDS, lambda: self._extender.get(STATUS))

    def explain(self, pod: str) -> dict[str, Any]:
        """Return the last decision about the pod ``namespace/name`` as a JSON object.

        Raises the same errors as :meth:`recent`.
        """
        return self._extender.get(EXPLAIN, pod=pod)
