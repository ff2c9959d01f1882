"""Keeps a copy of one kind of object: list it, watch it from there on, and list it again when a watch cannot go on.

The same as client-go's reflector. A watch is asked to end every so often, so that a connection that fell silent is told
from one on which nothing happens; the next goes on from the last version, which costs the API server little.
"""

import logging
import random
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import requests

from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes.api import REQUEST_FAILURES, ListPage, ResourceExpired, WatchEvent

Object = dict[str, Any]

_LIST_SECONDS = 120.0
_PAGE_SECONDS = 15.0  # of it: a server that fell silent is asked again soon
_WATCH_SECONDS = 15
_SILENCE_SECONDS = 5.0  # beyond the end that was asked for
_SHORTEST_WATCH_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 8.0
_CLOSE_SECONDS = 3.0
_UNAVAILABLE = {401, 403, 408, 429}  # and 500 and above: it is not the version that is refused
_log = logging.getLogger(__name__)


class ListWatch(Protocol):
    """What is asked of an API: :class:`runtime.kubernetes.api.KubernetesApi` has it."""

    def pages(self, path: str, deadline: Deadline, *, page_seconds: float, **query: str) -> Iterator[ListPage]:
        """Yield a list page after page, each within its seconds; raises ``Expired`` if the list grew too old."""
        ...

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        """Yield what happens from a version on; raises ``Expired`` where that is too old."""
        ...

    def abort(self) -> None:
        """End every request and watch that is under way: it raises."""
        ...


class ReflectorStore(Protocol):
    """What keeps the copy. Called by one thread."""

    def replace(self, objects: Iterable[Object]) -> None:
        """Take a whole list: what is not in it is gone. Nothing is taken for gone where reading it raises."""
        ...

    def put(self, changed: Object) -> None:
        """Take an object that is new or has changed."""
        ...

    def drop(self, deleted: Object) -> None:
        """Take an object away."""
        ...


class Reflector:
    """Keeps a mirror equal to what the API server has, whatever happens to the connection.

    Attributes:
        synced: set once the mirror has a whole list.
        lists: how often the whole list was read.
        failures: how often a list or a watch failed.
    """

    def __init__(self, api: ListWatch, path: str, mirror: ReflectorStore, **query: str) -> None:
        """Prepare; nothing is asked yet.

        Args:
            api: the API server.
            path: of the list, such as ``/api/v1/pods``.
            mirror: what keeps the copy.
            query: such as ``fieldSelector``.
        """
        self._api, self._path, self._mirror, self._query = api, path, mirror, query
        self._version = ""  # empty: a list is due
        self._pause = _FIRST_PAUSE_SECONDS
        self._heard_at = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.synced = threading.Event()
        self.lists = self.failures = 0

    def start(self) -> None:
        """Begin in the background."""
        name = f"reflector-{self._path.rpartition('/')[2]}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask for nothing more; see :meth:`join`."""
        self._stop.set()

    def join(self) -> None:
        """Have the API end what it is asked, of whomever, until nothing of this is under way; after :meth:`stop`."""
        until = time.monotonic() + _CLOSE_SECONDS
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until:
            self._api.abort()  # time and again: a request may have been on its way out
            self._thread.join(0.02)

    @property
    def age_seconds(self) -> float:
        """How long nothing has come from the API server: an event, or the end of a watch on which nothing happened."""
        return time.monotonic() - self._heard_at

    def _run(self) -> None:
        while not self._stop.wait(self.turn()):
            pass

    def turn(self) -> float:
        """Do :meth:`once`; return how many seconds to wait before the next turn, after failures ever more."""
        try:
            self.once()
        except Exception as error:  # noqa: BLE001  whatever it was, the copy is to follow again
            if self._stop.is_set():
                return 0.0
            self._failed(error)
            pause = self._pause * random.uniform(0.8, 1.2)  # noqa: S311  so that not all come back at once
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            return pause
        return 0.0

    def once(self) -> None:
        """List if a list is due, then watch until the server ends that.

        Raises:
            Exception: whatever asking, or keeping the copy, raises. The next call goes on from the last version, or
                with a new list where that is too old or the copy may not be whole.
        """
        if not self._version:
            self._list()
        version, self._version = self._version, ""  # whatever goes wrong with the copy, a list mends it
        try:
            version = self._watch(version)
        except _Broken as broken:
            self._version = broken.version
            raise broken.why from None
        self._version = version

    def _list(self) -> None:
        pages = _Pages(self._api, self._path, self._query)
        self._mirror.replace(pages)
        if not pages.version:
            raise UnexpectedResponse(f"{self._path} answers with a list of no version")
        self._version = pages.version
        self.lists += 1
        self._heard_at = time.monotonic()
        self.synced.set()

    def _watch(self, version: str) -> str:
        """Watch from a version on; return the last one when the server ends it.

        Raises:
            Expired: the version is too old.
            _Broken: the connection broke, or there was none; the copy is whole up to a version.
        """
        idle = _WATCH_SECONDS + _SILENCE_SECONDS
        query = {**self._query, "timeoutSeconds": str(_WATCH_SECONDS)}
        began, heard = time.monotonic(), False
        events = self._api.watch(self._path, version, idle, **query)
        while not self._stop.is_set():
            try:
                event = next(events, None)
            except REQUEST_FAILURES as error:
                if _refuses_version(error):
                    raise
                raise _Broken(version, error) from error
            self._heard_at = time.monotonic()
            lasted = self._heard_at - began
            if event is None:
                if not heard and lasted < _SHORTEST_WATCH_SECONDS:
                    raise _Broken(version, requests.ConnectionError("the watch ended as soon as it began"))
                self._pause = _FIRST_PAUSE_SECONDS
                break
            heard = True
            if event.type == "DELETED":
                self._mirror.drop(event.object)
            elif event.type != "BOOKMARK":
                self._mirror.put(event.object)
            version = event.resource_version or version
            if lasted >= _LONGEST_PAUSE_SECONDS:  # not at the first event: what fails at the second is paced too
                self._pause = _FIRST_PAUSE_SECONDS
        return version

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        extra = {"path": self._path, "error": f"{type(error).__name__}: {error}"}
        if isinstance(error, ResourceExpired):
            _log.info("the copy is too far behind and is listed anew", extra=extra)
        elif isinstance(error, REQUEST_FAILURES):
            _log.warning("the API server cannot be read and is tried again", extra=extra)
        else:
            _log.exception("the copy failed and is made anew", extra=extra)


def _refuses_version(error: Exception) -> bool:
    """Return whether a list is needed: the server answered, and would answer alike if asked to go on from there again.

    A connection that broke, a server that cannot answer now, a token that is not accepted say nothing of the version.
    """
    if isinstance(error, requests.HTTPError):
        status = 0 if error.response is None else error.response.status_code
        return status not in _UNAVAILABLE and status < 500
    return isinstance(error, UnexpectedResponse)


class _Broken(Exception):
    """A watch broke; the copy is whole up to ``version``."""

    def __init__(self, version: str, why: Exception) -> None:
        self.version, self.why = version, why
        super().__init__(str(why))


class _Pages:
    """A list's objects, one after the other, and its version once they were read."""

    def __init__(self, api: ListWatch, path: str, query: dict[str, str]) -> None:
        self._api, self._path, self._query = api, path, query
        self.version = ""

    def __iter__(self) -> Iterator[Object]:
        deadline = Deadline.after(_LIST_SECONDS)
        for page in self._api.pages(self._path, deadline, page_seconds=_PAGE_SECONDS, **self._query):
            yield from page.items
            self.version = page.resource_version
