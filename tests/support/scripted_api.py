"""A Kubernetes API that follows a script, for faults that a real server does not produce on demand."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import requests

from runtime.http.gather import Deadline
from runtime.kubernetes.api import ListPage, WatchEvent

SILENCE = "silence"
"""A script's step: no response until :meth:`ScriptedApi.abort` is called."""

Step = ListPage | WatchEvent | Exception | str


class ScriptedApi:
    """A fake API that serves each list and each watch from the next of its scripts; the last script repeats.

    Args:
        lists: pages per list request; an exception is raised in its turn.
        watches: events per watch, after which the server ends it; an exception is raised in its turn.

    Attributes:
        silent: event that is set once a script reaches ``SILENCE``.
        requests_seen: "list" or the resource version of a watch, for each request in order.
        queries: query parameters of each request.
    """

    def __init__(self, lists: Iterable[Iterable[Step]] = (), watches: Iterable[Iterable[Step]] = ()) -> None:
        self._lists, self._watches = [list(each) for each in lists], [list(each) for each in watches]
        self._aborted = threading.Event()
        self.silent = threading.Event()
        self.requests_seen: list[str] = []
        self.queries: list[dict[str, Any]] = []

    def pages(self, path: str, deadline: Deadline, *, page_seconds: float, **query: str) -> Iterator[ListPage]:
        """Yield the pages of the next list script."""
        self._note("list", query)
        for step in self._steps(self._lists):
            assert isinstance(step, ListPage)
            yield step

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        """Yield the events of the next watch script."""
        self._note(resource_version, query)
        for step in self._steps(self._watches):
            assert isinstance(step, WatchEvent)
            yield step

    def abort(self) -> None:
        """End the silence: requests that wait raise a connection error."""
        self._aborted.set()

    def _note(self, request: str, query: dict[str, str]) -> None:
        self.requests_seen.append(request)
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
    """Return a page of a list with these objects."""
    return ListPage(list(objects), version)


def event(kind: str, version: str, **metadata: Any) -> WatchEvent:
    """Return a watch event for an object with this metadata."""
    return WatchEvent(kind, {"metadata": {**metadata, "resourceVersion": version}}, version)


def http_error(status: int) -> requests.HTTPError:
    """Return the error of a response with this status."""
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status}", response=response)
