"""Reflector: keeps a copy of one kind of object up to date by listing, watching, and listing again when needed.

Works like client-go's reflector. The server ends each watch after a while, so that a broken connection can be told from
a cluster without changes. The next watch continues from the last version, which is cheap for the API server.
"""

import logging
import random
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes.api import REQUEST_FAILURES, KindNotServed, ListPage, ResourceExpired, WatchEvent
from runtime.kubernetes.rbac import needed_rule
from runtime.outage_log import OutageLog
from runtime.threads import start_thread

Object = dict[str, Any]

_LIST_SECONDS = 120.0
_PAGE_SECONDS = 15.0  # per page, so that a request to a silent server is soon repeated
_WATCH_SECONDS = 15
_SILENCE_SECONDS = 5.0  # after the time at which the server should have ended the watch
_MIN_WATCH_SECONDS = 1.0
_MIN_BACKOFF_SECONDS = 0.25
_MAX_BACKOFF_SECONDS = 8.0
_CLOSE_SECONDS = 3.0
_UNAVAILABLE = {401, 403, 408, 429}  # retried from the same version, as 5xx: a new version would be rejected, too
_log = logging.getLogger(__name__)


class ListWatch(Protocol):
    """Part of :class:`runtime.kubernetes.api.KubernetesApi` that a reflector needs, as a Protocol."""

    def pages(self, path: str, deadline: Deadline, *, page_seconds: float, **query: str) -> Iterator[ListPage]:
        """Yield a list page by page, each within ``page_seconds``; raise ``ResourceExpired`` if the list is too old."""
        ...

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        """Yield the events since a version; raise ``ResourceExpired`` if the version is too old."""
        ...

    def abort(self) -> None:
        """Cancel all current requests and watches; they raise."""
        ...


class ReflectorStore(Protocol):
    """Copy of the objects, which only the reflector's thread updates."""

    def replace(self, objects: Iterable[Object]) -> None:
        """Replace the copy with a full list. If iterating over the list raises, keep the old content."""
        ...

    def put(self, changed: Object) -> None:
        """Add an object, or replace it if it changed."""
        ...

    def drop(self, deleted: Object) -> None:
        """Remove an object."""
        ...


class ReflectorObserver(Protocol):
    """Further copy of the objects, so that several parts of a process share one list and watch.

    Only the reflector's thread calls it. After a failure of a store or an observer the objects are listed again.
    """

    def follow(self, objects: Iterable[Object]) -> Iterator[Object]:
        """Yield the objects of a full list, and replace the copy once all of them were taken."""
        ...

    def put(self, changed: Object) -> None:
        """Add an object, or replace it if it changed."""
        ...

    def drop(self, deleted: Object) -> None:
        """Remove an object."""
        ...


class Reflector:
    """Background thread that keeps a store equal to the API server's objects, and survives failures.

    Attributes:
        synced: set once the store has a full list.
        lists: number of full lists that were read.
        seen_version: resource version up to which the store is complete; 0 before the first list.
        failures: number of failed lists and watches.
        failure: reason of the last failure, with the remedy where one is known; "" if the last request succeeded.
        was_heard: whether the API server has ever answered a request.
    """

    def __init__(self, api: ListWatch, path: str, store: ReflectorStore, **query: str) -> None:
        """Create the reflector; no request is sent yet.

        Args:
            api: client of the API server.
            path: path of the list, such as ``/api/v1/pods``.
            store: the copy.
            query: parameters such as ``fieldSelector``.
        """
        self._api, self._path, self._store, self._query = api, path, store, query
        self._observers: list[ReflectorObserver] = []
        self._version = ""  # resource version to watch from; empty if a list is due
        self._backoff = _MIN_BACKOFF_SECONDS
        self._random = random.SystemRandom()  # keeps no state: forked processes must not retry in step
        self._last_response_at = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.synced = threading.Event()
        self.was_heard = False
        self.lists = self.failures = self.seen_version = 0
        self._outage = OutageLog(_log, "the API server cannot be read; retrying", "the API server is read again")
        self.failure = ""

    def add_observer(self, observer: ReflectorObserver) -> None:
        """Update a further copy, too. Call this before :meth:`start`, so that the copy gets the first list."""
        self._observers.append(observer)

    def start(self) -> None:
        """Start the thread."""
        name = f"reflector-{self._path.rpartition('/')[2]}"
        self._thread = start_thread(self._run, name)

    def stop(self) -> None:
        """Ask the thread to stop; see :meth:`join`."""
        self._stop.set()

    def join(self) -> None:
        """Wait a few seconds for the thread to end, after :meth:`stop`. Cancels all requests of the API client."""
        until = time.monotonic() + _CLOSE_SECONDS
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until:
            self._api.abort()  # repeatedly, because a request may have started since the last call
            self._thread.join(0.02)

    @property
    def age_seconds(self) -> float:
        """Seconds since the API server's last sign of life: a list, an event, or the regular end of a watch.

        Before the first sign of life, the seconds since the creation of the reflector.
        """
        return time.monotonic() - self._last_response_at

    def _run(self) -> None:
        while not self._stop.wait(self.run_once()):
            pass

    def run_once(self) -> float:
        """Call :meth:`list_and_watch`; return the backoff in seconds: 0 after success, growing with each failure."""
        try:
            self.list_and_watch()
        except Exception as error:  # noqa: BLE001  the reflector must survive every failure
            if self._stop.is_set():
                return 0.0
            self._failed(error)
            pause = self._backoff * self._random.uniform(0.8, 1.2)
            self._backoff = min(2 * self._backoff, _MAX_BACKOFF_SECONDS)
            return pause
        self._outage.worked()
        return 0.0

    def list_and_watch(self) -> None:
        """List if a list is due, then watch until the server ends the watch.

        Raises:
            Exception: any failure of a request or of the store. The next call continues from the last version, or
                lists again if the version is too old or the copy may be incomplete.
        """
        if not self._version:
            self._list()
        version, self._version = self._version, ""  # if the store fails, the next call lists again
        try:
            version = self._watch(version)
        except _BrokenWatch as broken:
            self._version = broken.version
            raise broken.cause from None
        self._version = version

    def _list(self) -> None:
        pages = _ListObjects(self._api, self._path, self._query)
        objects: Iterable[Object] = pages
        for observer in self._observers:
            objects = observer.follow(objects)
        self._store.replace(objects)
        if not pages.version:
            raise UnexpectedResponse(f"the list {self._path} has no resource version")
        self._version = pages.version
        self.seen_version = version_number(pages.version)
        self.lists += 1
        self._last_response_at, self.failure, self.was_heard = time.monotonic(), "", True
        self.synced.set()
        self._outage.worked()

    def _watch(self, version: str) -> str:
        """Watch from a version until the server ends the watch; return the last version.

        Raises:
            ResourceExpired: the version is too old.
            _BrokenWatch: the connection failed; the copy is complete up to a version.
        """
        idle = _WATCH_SECONDS + _SILENCE_SECONDS
        query = {**self._query, "timeoutSeconds": str(_WATCH_SECONDS)}
        started_at = time.monotonic()
        events = self._api.watch(self._path, version, idle, **query)
        while not self._stop.is_set():
            try:
                event = next(events, None)
            except REQUEST_FAILURES as error:
                if _refuses_version(error):
                    raise
                raise _BrokenWatch(version, error) from error
            self._last_response_at, self.failure = time.monotonic(), ""
            duration = self._last_response_at - started_at
            if event is None:
                if duration < _MIN_WATCH_SECONDS:  # without a backoff, watches that end at once would flood the server
                    raise _BrokenWatch(version, requests.ConnectionError(f"the watch ended after {duration:.3f} s"))
                self._backoff = _MIN_BACKOFF_SECONDS
                break
            copies: list[ReflectorStore | ReflectorObserver] = [self._store, *self._observers]
            for copy in copies:
                if event.type == "DELETED":
                    copy.drop(event.object)
                elif event.type != "BOOKMARK":
                    copy.put(event.object)
            version = event.resource_version or version
            self.seen_version = version_number(version)
            if duration >= _MAX_BACKOFF_SECONDS:  # reset late, since a watch that keeps failing early must back off
                self._backoff = _MIN_BACKOFF_SECONDS
        return version

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        failure = describe(error)
        reason = failure.reason
        self.was_heard |= failure.status > 0
        if failure.status == requests.codes.forbidden:
            # The API server's message has the verb, the resource and the account.
            reason += f"; {needed_rule(self._path, 'list', 'watch')}"
        if isinstance(error, KindNotServed):  # OptionalLists has logged it
            return
        self.failure = reason
        if isinstance(error, ResourceExpired):
            extra = {"path": self._path, "error": reason}
            _log.info("the resource version is too old; listing the objects again", extra=extra)
        elif isinstance(error, REQUEST_FAILURES):
            self._outage.failed(reason, path=self._path)
        else:
            _log.exception("the cached objects could not be updated; listing them again", extra={"path": self._path})


def version_number(version: object) -> int:
    """Return a resource version as a number, by which versions of one kind of object are ordered; 0 if not a number.

    Kubernetes guarantees this order, and decimal digits, since 1.35 (KEP-5504); etcd has always given it.
    """
    text = str(version)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _refuses_version(error: Exception) -> bool:
    """Return whether the objects must be listed, because the server would reject a watch from this version again.

    Broken connections, unavailable servers and rejected tokens do not depend on the version.
    """
    if isinstance(error, requests.HTTPError):
        status = 0 if error.response is None else error.response.status_code
        return status not in _UNAVAILABLE and status < 500
    return isinstance(error, UnexpectedResponse)


class _BrokenWatch(Exception):
    """A watch failed; the copy is complete up to ``version``."""

    def __init__(self, version: str, cause: Exception) -> None:
        self.version, self.cause = version, cause
        super().__init__(str(cause))


class _ListObjects:
    """Iterable of a list's objects, with the list's version after the iteration."""

    def __init__(self, api: ListWatch, path: str, query: dict[str, str]) -> None:
        self._api, self._path, self._query = api, path, query
        self.version = ""

    def __iter__(self) -> Iterator[Object]:
        deadline = Deadline.after(_LIST_SECONDS)
        for page in self._api.pages(self._path, deadline, page_seconds=_PAGE_SECONDS, **self._query):
            yield from page.items
            self.version = page.resource_version
