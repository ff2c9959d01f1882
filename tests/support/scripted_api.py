"""A Kubernetes API that does what a script says: faults that a real server does not show when told to."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import requests

from runtime.http.gather import Deadline
from runtime.kubernetes.api import ListPage, WatchEvent

SILENCE = "silence"
"""In a script: nothing comes until the API is told to end what it is asked."""

Step = ListPage | WatchEvent | Exception | str


class ScriptedApi:
    """Answers each list and each watch with the next of its scripts; the last one is used again.

    Args:
        lists: pages; an exception is raised in its turn.
        watches: events, after which the server ends the watch; an exception is raised in its turn.

    Attributes:
        asked: "list", or the version that a watch went on from, in the order asked.
        queries: of each.
    """

    def __init__(self, lists: Iterable[Iterable[Step]] = (), watches: Iterable[Iterable[Step]] = ()) -> None:
        self._lists, self._watches = [list(each) for each in lists], [list(each) for each in watches]
        self._aborted = threading.Event()
        self.silent = threading.Event()
        self.asked: list[str] = []
        self.queries: list[dict[str, Any]] = []

    def pages(self, path: str, deadline: Deadline, *, page_seconds: float, **query: str) -> Iterator[ListPage]:
        """Yield the next script's pages."""
        self._note("list", query)
        for step in self._steps(self._lists):
            assert isinstance(step, ListPage)
            yield step

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        """Yield the next script's events."""
        self._note(resource_version, query)
        for step in self._steps(self._watches):
            assert isinstance(step, WatchEvent)
            yield step

    def abort(self) -> None:
        """End the silence."""
        self._aborted.set()

    def _note(self, what: str, query: dict[str, str]) -> None:
        self.asked.append(what)
        self.queries.append(query)

    def _steps(self, scripts: list[list[Step]]) -> Iterator[Step]:
        script = scripts.pop(0) if len(scripts) > 1 else scripts[0] if scripts else []
        for step in script:
            if step == SILENCE:
                self.silent.set()
                self._aborted.wait()
                raise requests.ConnectionError("ended")
            if isinstance(step, Exception):
                raise step
            yield step


def page(version: str, *objects: dict[str, Any]) -> ListPage:
    """Return a page of a list."""
    return ListPage(list(objects), version)


def event(kind: str, version: str, **metadata: Any) -> WatchEvent:
    """Return an event about the object with these metadata."""
    return WatchEvent(kind, {"metadata": {**metadata, "resourceVersion": version}}, version)


def refusal(status: int) -> requests.HTTPError:
    """Return what is raised for an answer of that status."""
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status}", response=response)
