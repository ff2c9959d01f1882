"""Use of nodes and pods in a live replay, from the process that plays the trace: GET /nodes and GET /pods."""

from collections.abc import Iterator
from typing import Any

from runtime import duration
from runtime.http.gather import Deadline, gather
from watcher.errors import ProviderError
from watcher.model import Metric, MetricType, NodeMetrics, Operator, Window
from watcher.providers.base import Check, Fetched
from watcher.providers.session import ProviderSession, bearer, provider_error
from watcher.settings import Settings
from watcher.windows.container_use import CPU_CORES, MEMORY_BYTES, ContainerUse, ContainerUseBuilder

_NAMESPACE, _CONTAINER = "default", "main"


class LiveReplayProvider:
    """Provider that asks the player of a trace."""

    def __init__(self, settings: Settings) -> None:
        self._address = settings.provider.address
        self._session = ProviderSession(settings.provider, bearer(settings.provider))

    def fetch(self, window: Window, deadline: Deadline) -> Fetched:
        """Return the metrics of every node over the window."""
        answer = self._ask(f"/nodes?seconds={duration.seconds(window.duration)}", deadline)
        nodes = {
            name: NodeMetrics(
                tuple(
                    Metric(f"replay:{kind.lower()}", MetricType(kind), Operator(operator), window.duration, value)
                    for kind, operator, value in values
                )
            )
            for name, values in answer["nodes"].items()
        }
        return Fetched(nodes, newest=dict.fromkeys(nodes, answer["newest"]))

    def pod_use(self, window: Window, deadline: Deadline) -> ContainerUse:
        """Return the use of every pod over the window."""
        seconds = window.end - window.start
        rows = ContainerUseBuilder()
        for pod, cores, memory_bytes in self._ask(f"/pods?seconds={seconds}", deadline):
            rows.add(CPU_CORES, _NAMESPACE, pod, _CONTAINER, cores)
            rows.add(MEMORY_BYTES, _NAMESPACE, pod, _CONTAINER, memory_bytes)
        return rows.build(window.end, float(seconds))

    def check(self) -> Iterator[Check]:
        """Yield one step: the metrics of the last minute."""
        try:
            nodes = self.fetch(Window("1m", 0, 60), Deadline.after(5)).nodes
            yield Check("read /nodes", ok=True, message=f"{len(nodes)} nodes")
        except ProviderError as error:
            yield Check("read /nodes", ok=False, message=str(error), setting="provider.address")

    def _ask(self, path: str, deadline: Deadline) -> Any:
        def read() -> Any:
            return self._session.get(f"{self._address}{path}", timeout=deadline.remaining_seconds()).json()

        answer = gather({path: read}, deadline, give_up=self._session.abort)[path]
        if isinstance(answer, Exception):
            raise provider_error("LiveReplay", self._address or "", answer) from answer
        return answer
