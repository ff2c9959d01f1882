"""State of a rebalancer, read over HTTP and cached for five seconds."""

from typing import Any

from runtime.http.json_service import JsonService
from trimaran.dashboard.ttl_cache import TTLCache

_SECONDS = 5.0


class RebalancerState:
    """Reader of a rebalancer's state, with one cache for all viewers. Thread-safe.

    Args:
        rebalancer: client of the rebalancer.
    """

    def __init__(self, rebalancer: JsonService) -> None:
        """Create the cache; nothing is read until a page asks for it."""
        self._rebalancer = rebalancer
        self._cache = TTLCache()

    def read(self) -> dict[str, Any]:
        """Return the state as the JSON object that ``trimaran rebalance status --json`` prints.

        Raises:
            ServiceUnavailable: the rebalancer refuses the request or cannot be reached.
        """
        return self._cache.get("status", _SECONDS, self._read)

    def _read(self) -> dict[str, Any]:
        return self._rebalancer.ask_leader(lambda: self._rebalancer.get("/status"), lambda state: bool(state["leads"]))
