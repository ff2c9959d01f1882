"""Capacity of all nodes of the Kubernetes API: what their pods may request together.

The nodes are listed every quarter of an hour, because a list of 5,000 nodes is some 50 MB, and their number seldom
changes.
"""

import time
from collections.abc import Callable
from typing import Any

from runtime.http.gather import Deadline
from runtime.kubernetes import quantity
from runtime.kubernetes.api import KubernetesApi
from runtime.kubernetes.paths import NODES
from watcher.providers.session import provider_error
from watcher.usage.sources.pods import Capacity

_REFRESH_SECONDS = 900.0


class NodeCapacity:
    """Sums over all nodes, cached for 15 minutes. A failure is cached as well, so that it is not retried earlier.

    Args:
        api: client of the API server.
        clock: monotonic time in seconds.
    """

    def __init__(self, api: KubernetesApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._read_at = -float("inf")
        self._known: Capacity | Exception = (0.0, 0.0)

    def total(self, deadline: Deadline) -> Capacity:
        """Return the cores and bytes that pods may request on all nodes together.

        Raises:
            ProviderError: the nodes cannot be read; the message has the reason.
        """
        if self._clock() - self._read_at >= _REFRESH_SECONDS:
            self._read_at = self._clock()
            try:
                self._known = self._read(deadline)
            except Exception as error:  # noqa: BLE001  whatever fails is reported by the caller
                self._known = error
        if isinstance(self._known, Exception):
            raise provider_error("Kubernetes", self._api.address or self._api.source, self._known)
        return self._known

    def _read(self, deadline: Deadline) -> Capacity:
        cores = memory = 0
        for node in self._api.list_items(NODES, deadline):
            status = node.get("status")
            amounts = status.get("allocatable") if isinstance(status, dict) else None
            cores += _nano(amounts, "cpu")
            memory += _nano(amounts, "memory")
        return cores / 1e9, memory / 1e9


def _nano(amounts: Any, resource: str) -> int:
    """Return an amount in billionths; 0 if it is missing, not a quantity, or negative."""
    try:
        return max(quantity.nano_value(amounts[resource]), 0)
    except (TypeError, KeyError, ValueError):
        return 0
