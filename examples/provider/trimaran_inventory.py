"""Load from an in-house inventory: GET /load returns {"node-1": {"at": 1795260390, "cpu": 20.5, "memory": 40}, ...}.

``at`` is the time of the measurement in Unix seconds; the other values are percent of capacity.
"""

from collections.abc import Iterator
from typing import Any

from runtime.http.gather import Deadline, gather
from watcher.errors import ProviderError
from watcher.findings import Finding, Kind
from watcher.providers.base import Check, Reading, Sample, Samples
from watcher.providers.session import ProviderSession, bearer, provider_error
from watcher.settings import Settings


class InventoryProvider:
    """Provider that samples the present; the watcher stores the samples and computes windows from them."""

    def __init__(self, settings: Settings) -> None:
        self._address = settings.provider.address or "http://inventory:8080"
        self._session = ProviderSession(settings.provider, bearer(settings.provider))

    def sample(self, deadline: Deadline) -> Samples:
        """Return every node's present load."""
        answer = gather({"load": lambda: self._load(deadline)}, deadline, give_up=self._session.abort)["load"]
        if isinstance(answer, Exception):
            raise provider_error("Inventory", self._address, answer) from answer
        return answer

    def check(self) -> Iterator[Check]:
        """Yield one step: a request for /load."""
        try:
            yield Check("read /load", ok=True, message=f"{len(self.sample(Deadline.after(5)))} nodes")
        except ProviderError as error:
            yield Check("read /load", ok=False, message=str(error), setting="provider.address")

    def _load(self, deadline: Deadline) -> Samples:
        nodes: dict[str, Any] = self._session.get(f"{self._address}/load", timeout=deadline.remaining_seconds()).json()
        samples, findings = {}, []
        for node, load in nodes.items():
            try:
                samples[node] = Sample(float(load["at"]), tuple(_readings(load)))
            except (KeyError, TypeError, ValueError) as error:  # one bad node must not cost the others
                findings.append(Finding(Kind.BAD_VALUE, f"{node}: {error!r}", node=node))
        if not samples:
            raise ValueError("no node has a load")
        return Samples(samples, findings)


def _readings(load: dict[str, float]) -> Iterator[Reading]:
    yield Reading("inventory:cpu:percent", "CPU", float(load["cpu"]))
    yield Reading("inventory:memory:percent", "Memory", float(load["memory"]))
