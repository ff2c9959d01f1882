"""Lists of a kind that the cluster may not have."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import requests
from support.waiting import wait_until

from runtime.http.gather import Deadline
from runtime.kubernetes.api import ListPage, ResourceExpired, WatchEvent
from runtime.kubernetes.optional_lists import OptionalLists
from runtime.kubernetes.reflector import Reflector


class Served:
    """API server with some lists; the others are answered by a status."""

    def __init__(self, *paths: str, status: int = 404) -> None:
        self.paths, self.status = set(paths), status

    def pages(self, path: str, deadline: Deadline, *, page_seconds: float, **query: str) -> Iterator[ListPage]:
        if path not in self.paths:
            response = requests.Response()
            response.status_code = self.status
            raise requests.HTTPError(response=response)
        yield ListPage([{"path": path}], "7")

    def watch(self, path: str, resource_version: str, idle_seconds: float, **query: str) -> Iterator[WatchEvent]:
        yield WatchEvent("ADDED", {"path": path}, "8")

    def abort(self) -> None:
        pass


class CacheOfLists:
    """Store of a reflector, which takes lists."""

    def replace(self, objects: Iterable[Any]) -> None:
        assert list(objects) == []

    def put(self, changed: Any) -> None:
        pass

    def drop(self, deleted: Any) -> None:
        pass


def listed(lists: OptionalLists) -> list[ListPage]:
    return list(lists.pages("/v1beta1", Deadline.after(5.0), page_seconds=5.0))


def test_the_first_version_that_is_served_is_read() -> None:
    """An older version is listed and watched where the newer one is not served."""
    lists = OptionalLists(Served("/v1alpha2"), ("/v1alpha2",))
    assert listed(lists) == [ListPage([{"path": "/v1alpha2"}], "7")]
    assert [event.object for event in lists.watch("/v1beta1", "7", 5.0)] == [{"path": "/v1alpha2"}]


def test_a_kind_that_is_not_served_has_no_objects_and_is_looked_for_again() -> None:
    """The list is empty, and the watch ends after a while so that the kind is listed again."""
    api = Served()
    lists = OptionalLists(api, look_seconds=0.01)
    (page,) = listed(lists)
    assert page.items == []
    with pytest.raises(ResourceExpired):
        list(lists.watch("/v1beta1", page.resource_version, 5.0))
    api.paths.add("/v1beta1")
    assert listed(lists) == [ListPage([{"path": "/v1beta1"}], "7")]


def test_a_kind_that_is_not_served_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line when a kind is missing, however often it is looked for, and one when it is there."""
    caplog.set_level("INFO")
    api = Served()
    lists = OptionalLists(api, look_seconds=0.01)
    for _ in range(3):
        listed(lists)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the API server does not serve a kind"]
    api.paths.add("/v1beta1")
    for _ in range(2):
        listed(lists)
    assert [record.message for record in caplog.records[1:]] == ["the API server now serves a kind that was missing"]
    caplog.clear()
    reflector = Reflector(OptionalLists(Served(), look_seconds=0.01), "/v1beta1", CacheOfLists())
    reflector.start()
    wait_until(lambda: reflector.lists > 1, "the kind is looked for again")
    assert reflector.failure == ""
    reflector.stop()
    reflector.join()
    assert len(caplog.records) == 1


def test_a_missing_right_is_an_error() -> None:
    """A list that is served and forbidden does not count as empty."""
    with pytest.raises(requests.HTTPError):
        listed(OptionalLists(Served(status=403)))
