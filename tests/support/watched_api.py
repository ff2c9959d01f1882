"""A fake of the API server for the watches of the rebalancer: a list and a queue of events for each kind."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import requests
from support.rebalancing import hot_and_cold
from support.servers import wait_until

from runtime.kubernetes.api import ListPage, WatchEvent
from runtime.kubernetes.paths import NODES, PODS
from trimaran.rebalancer.cluster_watch import BUDGETS, SCALERS, WORKLOADS

PATHS = (NODES, PODS, BUDGETS, SCALERS, *WORKLOADS.values())


class WatchedApi:
    """A fake API with lists and watches by path.

    Attributes:
        objects: the list of each path.
        held: paths whose lists get no answer.
        watched: paths that are watched, so that their list was stored before.
    """

    def __init__(self, held: str = "") -> None:
        world = hot_and_cold()
        self.objects: dict[str, list[dict[str, Any]]] = {path: [] for path in PATHS}
        self.objects |= {NODES: world.nodes, PODS: world.pods, WORKLOADS["Deployment"]: world.workloads}
        self.held, self.watched = {held}, set[str]()
        self._may_answer, self._is_over = threading.Event(), threading.Event()
        self._events: dict[str, queue.Queue[WatchEvent | Exception | None]] = {path: queue.Queue() for path in PATHS}

    def pages(self, path: str, _deadline: object, **_query: Any) -> Iterator[ListPage]:
        if path in self.held:
            self._may_answer.wait()
            self._check()
        yield ListPage(self.objects[path], "1")

    def watch(self, path: str, _version: str, _idle: float, **_query: str) -> Iterator[WatchEvent]:
        self.watched.add(path)
        while (event := self._events[path].get()) is not None:
            if isinstance(event, Exception):
                self._events[path].task_done()
                raise event
            yield event
            self._events[path].task_done()
        self._check()

    def tell(self, path: str, kind: str, changed: dict[str, Any]) -> None:
        """Send an event, and wait until it was read."""
        self._events[path].put(WatchEvent(kind, changed, "2"))
        wait_until(lambda: not self._events[path].unfinished_tasks, "the event is read")

    def fail(self, path: str, error: Exception) -> None:
        """End the watch of a path with an error."""
        self._events[path].put(error)

    def release(self) -> None:
        """Answer the lists that were held."""
        self._may_answer.set()

    def abort(self) -> None:
        self._is_over.set()
        self._may_answer.set()
        for events in self._events.values():
            events.put(None)

    def _check(self) -> None:
        if self._is_over.is_set():
            raise requests.ConnectionError("aborted")
