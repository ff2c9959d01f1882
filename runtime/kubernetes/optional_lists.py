"""ListWatch of a kind of object that the API server may not serve, or only in an older version.

A kind that is not served counts as an empty list. The kind is listed again once a minute, so that a
CustomResourceDefinition that is installed later takes effect without a restart.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import requests

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import KindNotServed, ListPage, WatchEvent
from runtime.kubernetes.reflector import ListWatch

_ABSENT: Final = "not served"  # resource version of the empty list
_LOOK_SECONDS = 60.0
_log = logging.getLogger(__name__)
_BOOKMARK_SECONDS = 10.0


class OptionalLists:
    """ListWatch that reads the newest version of a kind that the API server serves.

    Args:
        api: client of the API server.
        older_paths: paths of the list in other versions, which are read if the newest one is not served.
        look_seconds: time after which a kind that is not served is listed again.
    """

    def __init__(self, api: ListWatch, older_paths: Sequence[str] = (), look_seconds: float = _LOOK_SECONDS) -> None:
        self._api, self._older_paths, self._seconds = api, tuple(older_paths), look_seconds
        self._served, self._is_absent = "", False
        self._aborted = threading.Event()

    def pages(self, path: str, deadline: Deadline, *, page_seconds: float, **query: str) -> Iterator[ListPage]:
        """Yield a list page by page; one empty page if it is not served in any version."""
        for each in (path, *self._older_paths):
            try:
                yield from self._api.pages(each, deadline, page_seconds=page_seconds, **query)
            except requests.HTTPError as error:
                if describe(error).status == requests.codes.not_found:
                    continue
                raise
            if self._is_absent:
                _log.info("the API server now serves a kind that was missing", extra={"path": each})
            self._served, self._is_absent = each, False
            return
        if not self._is_absent:  # once, not each minute
            _log.info(
                "the API server does not serve a kind: there are no such objects until its definition is installed",
                extra={"path": path},
            )
        self._is_absent = True
        yield ListPage([], _ABSENT)

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        """Yield the events since a resource version; bookmarks while the kind is not served."""
        if resource_version != _ABSENT:
            yield from self._api.watch(self._served or path, resource_version, idle_seconds, **query)
            return
        waited = 0.0
        while waited < self._seconds and not self._aborted.wait(min(_BOOKMARK_SECONDS, self._seconds)):
            waited += _BOOKMARK_SECONDS
            yield WatchEvent("BOOKMARK", {}, _ABSENT)
        raise KindNotServed(f"the API server did not serve {path}; listing it again")

    def abort(self) -> None:
        """Cancel all current requests and watches of the client."""
        self._aborted.set()
        self._api.abort()
