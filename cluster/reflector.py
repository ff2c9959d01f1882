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

from watcher.transport.gather import Deadline
from watcher.transport.kubernetes import Event, Expired, Page

Object = dict[str, Any]

_LIST_SECONDS = 120.0
_WATCH_SECONDS = 15
_SILENCE_SECONDS = 5.0  # beyond the end that was asked for
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 8.0
_CLOSE_SECONDS = 3.0
_log = logging.getLogger(__name__)


class ListWatch(Protocol):
    """What is asked of an API: :class:`watcher.transport.kubernetes.KubernetesApi` has it."""

    def pages(self, path: str, deadline: Deadline, **query: str) -> Iterator[Page]:
        """Yield a list page after page; raises ``Expired`` where it changed too much between two pages."""
        ...

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[Event]:
        """Yield what happens from a version on; raises ``Expired`` where that is too old."""
        ...


class Mirror(Protocol):
    """What keeps the copy. Called by one thread."""

    def replace(self, objects: Iterable[Object]) -> None:
        """Take a whole list: what is not in it is gone. Nothing is changed where reading it raises."""
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

    def __init__(self, api: ListWatch, path: str, mirror: Mirror, **query: str) -> None:
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
        """Stop; whoever owns the API ends its requests first, so that none is waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    @property
    def age_seconds(self) -> float:
        """How long nothing has come from the API server: an event, or the end of a watch on which nothing happened."""
        return time.monotonic() - self._heard_at

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.once()
            except Exception as error:  # noqa: BLE001  whatever it was, the copy is to follow again
                if self._stop.is_set():
                    return
                self._failed(error)
                self._stop.wait(self._pause * random.uniform(0.8, 1.2))  # noqa: S311  so that not all come back at once
                self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

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
        except Expired:
            _log.info("the watch is too far behind and lists anew", extra={"path": self._path})
            return
        except _Broken as broken:
            self._version = broken.version
            raise broken.why from None
        self._version = version

    def _list(self) -> None:
        deadline = Deadline.after(_LIST_SECONDS)
        pages = _Pages(self._api.pages(self._path, deadline, **self._query))
        try:
            self._mirror.replace(pages.objects())
        except Expired:  # it changed while it was read: all at once then, as client-go does
            pages = _Pages(self._api.pages(self._path, deadline, limit="", **self._query))
            self._mirror.replace(pages.objects())
        self._version = pages.version
        self.lists += 1
        self._heard()
        self.synced.set()

    def _watch(self, version: str) -> str:
        """Watch from a version on; return the last one when the server ends it.

        Raises:
            Expired: the version is too old.
            _Broken: the connection broke; the copy is whole up to a version.
        """
        idle = _WATCH_SECONDS + _SILENCE_SECONDS
        query = {**self._query, "timeoutSeconds": str(_WATCH_SECONDS)}
        events = self._api.watch(self._path, version, idle, **query)
        while not self._stop.is_set():
            try:
                event = next(events, None)
            except Expired:
                raise
            except (requests.RequestException, OSError) as error:
                raise _Broken(version, error) from error
            self._heard()
            if event is None:
                break
            if event.type == "DELETED":
                self._mirror.drop(event.object)
            elif event.type != "BOOKMARK":
                self._mirror.put(event.object)
            version = event.resource_version or version
        return version

    def _heard(self) -> None:
        self._heard_at = time.monotonic()
        self._pause = _FIRST_PAUSE_SECONDS

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        extra = {"path": self._path, "error": f"{type(error).__name__}: {error}"}
        if isinstance(error, requests.RequestException | OSError):
            _log.warning("the API server cannot be read and is tried again", extra=extra)
        else:
            _log.exception("the copy failed and is made anew", extra=extra)


class _Broken(Exception):
    """A watch broke; the copy is whole up to ``version``."""

    def __init__(self, version: str, why: Exception) -> None:
        self.version, self.why = version, why
        super().__init__(str(why))


class _Pages:
    """A list's objects, one after the other, and its version once they were read."""

    def __init__(self, pages: Iterator[Page]) -> None:
        self._pages = pages
        self.version = ""

    def objects(self) -> Iterator[Object]:
        for page in self._pages:
            yield from page.items
            self.version = page.resource_version
