"""Reflector with a scripted API server that fails in all ways."""

import json
import logging
import threading
from collections.abc import Iterable
from typing import Any

import pytest
import requests
from support.scripted_api import SILENCE, ScriptedApi, event, http_error, page
from support.threads import started

from runtime.http.credentials import UnusableToken
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes import reflector as module
from runtime.kubernetes.api import ResourceExpired
from runtime.kubernetes.reflector import Reflector

FIRST, LONGEST = 0.25, 8.0
LIST = [page("10", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})]


class Copy:
    """Store of the objects' names; ``fails`` is raised by each put."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.fails: Exception | None = None

    def replace(self, objects: Iterable[dict[str, Any]]) -> None:
        self.names = {each["metadata"]["name"] for each in objects}

    def put(self, changed: dict[str, Any]) -> None:
        if self.fails is not None:
            raise self.fails
        self.names.add(changed["metadata"]["name"])

    def drop(self, deleted: dict[str, Any]) -> None:
        self.names.discard(deleted["metadata"]["name"])


@pytest.fixture(autouse=True)
def scripted_watches_are_regular(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the end of a script as the regular end of a watch, although it takes no time."""
    monkeypatch.setattr(module, "_MIN_WATCH_SECONDS", 0.0)


def reflect(api: ScriptedApi, **query: str) -> tuple[Reflector, Copy]:
    """Return a reflector and its store."""
    copy = Copy()
    return Reflector(api, "/api/v1/nodes", copy, **query), copy


def test_a_watch_continues_from_the_list_and_from_each_event() -> None:
    """A list's pages and a watch's events change the copy, and the next watch continues from the last event."""
    changes = [event("ADDED", "11", name="d"), event("MODIFIED", "12", name="a"), event("DELETED", "13", name="b")]
    lists = [
        [page("10", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}), page("10", {"metadata": {"name": "c"}})]
    ]
    api = ScriptedApi(lists, [changes, [event("ADDED", "14", name="e")]])
    reflector, copy = reflect(api, fieldSelector="x")
    reflector.list_and_watch()
    assert copy.names == {"a", "c", "d"}
    reflector.list_and_watch()
    assert copy.names == {"a", "c", "d", "e"}
    assert api.requests_seen == ["list", "10", "13"]
    assert api.queries[0] == {"fieldSelector": "x"}
    assert api.queries[1].keys() == {"fieldSelector", "timeoutSeconds"}
    assert reflector.lists == 1
    assert reflector.synced.is_set()


def test_a_bookmark_changes_only_the_version() -> None:
    """A bookmark changes the version to continue from, but not the copy."""
    api = ScriptedApi([LIST], [[event("BOOKMARK", "90")], [event("BOOKMARK", "95")]])
    reflector, copy = reflect(api)
    reflector.list_and_watch()
    reflector.list_and_watch()
    assert copy.names == {"a", "b"}
    assert api.requests_seen == ["list", "10", "90"]


def test_a_list_that_expires_between_pages_is_repeated() -> None:
    """A list that expires between two pages changes nothing, and is read again from the start."""
    api = ScriptedApi(
        [[*LIST, ResourceExpired("too old")], [page("20", {"metadata": {"name": "c"}})]], [[event("BOOKMARK", "21")]]
    )
    reflector, copy = reflect(api)
    assert reflector.run_once() > 0
    assert not reflector.synced.is_set()
    assert reflector.run_once() == 0
    assert copy.names == {"c"}
    assert api.requests_seen == ["list", "list", "20"]


@pytest.mark.parametrize(
    "watch",
    [
        [ResourceExpired("too old")],
        [event("ADDED", "11", name="x"), ResourceExpired("compacted")],
        [event("ADDED", "11", name="x"), UnexpectedResponse("the watch failed: internal error")],
        [http_error(400)],
        [http_error(404)],
    ],
)
def test_a_rejected_version_causes_a_list(watch: list[Any]) -> None:
    """A rejected version causes a new list, so that no missed deletion is lost."""
    api = ScriptedApi([LIST, [page("20", {"metadata": {"name": "b"}})]], [watch, [event("BOOKMARK", "21")]])
    reflector, copy = reflect(api)
    assert reflector.run_once() > 0
    assert reflector.run_once() == 0
    assert copy.names == {"b"}
    assert api.requests_seen[-2:] == ["list", "20"]
    assert reflector.lists == 2


@pytest.mark.parametrize(
    "fault",
    [
        requests.ConnectionError("cut"), requests.Timeout("silent"), ConnectionResetError(), UnusableToken("no token"),
        http_error(401), http_error(403), http_error(429), http_error(500), http_error(503),
    ],
)  # fmt: skip
def test_a_broken_watch_continues_from_its_last_event(fault: Exception) -> None:
    """A failure that does not depend on the version causes no list and loses no event."""
    api = ScriptedApi([LIST], [[event("ADDED", "11", name="c"), fault], [event("DELETED", "12", name="a")]])
    reflector, copy = reflect(api)
    assert reflector.run_once() > 0
    assert reflector.run_once() == 0
    assert copy.names == {"b", "c"}
    assert api.requests_seen == ["list", "10", "11"]
    assert (reflector.lists, reflector.failures) == (1, 1)


def test_a_missing_permission_is_named_with_its_rule(caplog: pytest.LogCaptureFixture) -> None:
    """For a 403 the log has the API server's message, with verb, resource and account, and the missing RBAC rule."""
    refusal = http_error(403)
    message = 'nodes is forbidden: User "system:serviceaccount:a:b" cannot list resource "nodes"'
    refusal.response._content = json.dumps({"message": message}).encode()
    reflector, _ = reflect(ScriptedApi([[refusal]]))
    with caplog.at_level(logging.WARNING):
        assert reflector.run_once() > 0
    error = caplog.records[-1].error
    assert reflector.failure == error
    assert message in error
    assert error.endswith('{apiGroups: [""], resources: ["nodes"], verbs: ["list", "watch"]}')


def test_an_outage_is_logged_once_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Failures for the same reason are logged once, the recovery once; the reason is known until then."""
    api = ScriptedApi([[http_error(503)], [http_error(503)], [http_error(503)], LIST], [[event("BOOKMARK", "11")]])
    reflector, _ = reflect(api)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert reflector.run_once() > 0
            assert "503" in reflector.failure
        assert reflector.run_once() == 0
    assert reflector.failure == ""
    assert [record.message for record in caplog.records] == [
        "the API server cannot be read; retrying", "the API server is read again",
    ]  # fmt: skip


def test_a_failing_store_is_listed_again(caplog: pytest.LogCaptureFixture) -> None:
    """A list follows after the store failed to process an event, and the log has the reason."""
    api = ScriptedApi([LIST], [[event("ADDED", "11", name="c")], [event("BOOKMARK", "12")]])
    reflector, copy = reflect(api)
    copy.fails = KeyError("a bug")
    with caplog.at_level(logging.ERROR):
        assert reflector.run_once() > 0
    assert "the cached objects could not be updated" in caplog.text
    copy.fails = None
    assert reflector.run_once() == 0
    assert api.requests_seen == ["list", "10", "list", "10"]


def test_a_list_without_a_version_is_rejected() -> None:
    """A list without a resource version is rejected, because a watch could not continue from it."""
    reflector, _ = reflect(ScriptedApi([[page("")]], [[]]))
    with pytest.raises(UnexpectedResponse, match="/api/v1/nodes"):
        reflector.list_and_watch()
    assert not reflector.synced.is_set()


def test_the_backoff_grows_and_is_reset_by_a_regular_watch() -> None:
    """The backoff doubles up to a limit, and is reset by a watch that the server ended regularly."""
    faults: list[list[Any]] = [[http_error(503)] for _ in range(7)]
    api = ScriptedApi([LIST], [*faults, [event("BOOKMARK", "11")], [http_error(503)]])
    reflector, _ = reflect(api)
    expected = [min(FIRST * 2**number, LONGEST) for number in range(7)]
    assert [reflector.run_once() for _ in range(7)] == [pytest.approx(each, rel=0.21) for each in expected]
    assert reflector.run_once() == 0
    assert reflector.run_once() == pytest.approx(FIRST, rel=0.21)


@pytest.mark.parametrize(
    "watch",
    [
        [ResourceExpired("always")],
        [],
        [event("ADDED", "11", name="c")],
        [event("BOOKMARK", "11")],
        [event("ADDED", "11", name="c"), ResourceExpired("always")],
    ],
)
def test_watches_that_end_at_once_keep_the_backoff(watch: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a successful list nor a single event resets the backoff."""
    monkeypatch.setattr(module, "_MIN_WATCH_SECONDS", 1.0)
    reflector, _ = reflect(ScriptedApi([LIST], [watch]))
    assert [reflector.run_once() for _ in range(6)][-1] == pytest.approx(LONGEST, rel=0.21)


@pytest.mark.parametrize(
    ("lists", "watches"),
    [([[*LIST, SILENCE]], []), ([LIST], [[SILENCE]]), ([LIST], [[event("ADDED", "11", name="c"), SILENCE]])],
    ids=["listing", "watching", "between events"],
)
def test_stop_cancels_a_silent_list_or_watch(lists: list[Any], watches: list[Any]) -> None:
    """stop() and join() cancel a silent list or watch, which is not counted as a failure."""
    api = ScriptedApi(lists, watches)
    reflector, _ = reflect(api)
    reflector.start()
    assert api.silent.wait(10)
    reflector.stop()
    reflector.join()
    assert not started("reflector-")
    assert reflector.failures == 0


def test_stop_ends_a_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """stop() ends the wait of a backoff."""
    monkeypatch.setattr(module, "_MIN_BACKOFF_SECONDS", 3600.0)
    paused = threading.Event()
    reflector, _ = reflect(ScriptedApi([[http_error(503)]]))
    turn = reflector.run_once
    monkeypatch.setattr(reflector, "run_once", lambda: (turn(), paused.set())[0])
    reflector.start()
    assert paused.wait(10)
    reflector.stop()
    reflector.join()
    assert not started("reflector-")


def test_stop_before_start_returns() -> None:
    """stop() and join() return at once before start()."""
    reflector, _ = reflect(ScriptedApi())
    reflector.stop()
    reflector.join()
