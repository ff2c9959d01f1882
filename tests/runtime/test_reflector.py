"""A copy of what an API server has, whatever goes wrong on the way."""

import logging
import threading
from collections.abc import Iterable
from typing import Any

import pytest
import requests
from support.scripted_api import SILENCE, ScriptedApi, event, page, refusal

from runtime.http.credentials import UnusableToken
from runtime.http.session import UnexpectedResponse
from runtime.kubernetes import reflector as module
from runtime.kubernetes.api import ResourceExpired
from runtime.kubernetes.reflector import Reflector

FIRST, LONGEST = 0.25, 8.0
LIST = [page("10", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})]


class Copy:
    """The names of what there is; ``fails`` is raised at each put."""

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


def reflect(api: ScriptedApi, **query: str) -> tuple[Reflector, Copy]:
    """Return what is tested, and its copy."""
    copy = Copy()
    return Reflector(api, "/api/v1/nodes", copy, **query), copy


def test_a_watch_goes_on_from_the_list_and_from_each_event() -> None:
    """Pages make one copy, events change it, and the next watch goes on from the last event's version."""
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
    assert api.asked == ["list", "10", "13"]
    assert api.queries[0] == {"fieldSelector": "x"}
    assert api.queries[1].keys() == {"fieldSelector", "timeoutSeconds"}
    assert reflector.lists == 1
    assert reflector.synced.is_set()


def test_a_bookmark_advances_the_version_and_nothing_else() -> None:
    """A watch goes on from a bookmark, whose object has no name."""
    api = ScriptedApi([LIST], [[event("BOOKMARK", "90")], [event("BOOKMARK", "95")]])
    reflector, copy = reflect(api)
    reflector.list_and_watch()
    reflector.list_and_watch()
    assert copy.names == {"a", "b"}
    assert api.asked == ["list", "10", "90"]


def test_a_list_that_expires_between_its_pages_is_listed_anew() -> None:
    """410 in a list's middle: no half copy counts as whole, and the next turn lists from the start."""
    api = ScriptedApi(
        [[*LIST, ResourceExpired("too old")], [page("20", {"metadata": {"name": "c"}})]], [[event("BOOKMARK", "21")]]
    )
    reflector, copy = reflect(api)
    assert reflector.run_once() > 0
    assert not reflector.synced.is_set()
    assert reflector.run_once() == 0
    assert copy.names == {"c"}
    assert api.asked == ["list", "list", "20"]


@pytest.mark.parametrize(
    "watch",
    [
        [ResourceExpired("too old")],
        [event("ADDED", "11", name="x"), ResourceExpired("compacted")],
        [event("ADDED", "11", name="x"), UnexpectedResponse("the watch failed: internal error")],
        [refusal(400)],
        [refusal(404)],
    ],
)
def test_a_version_that_is_refused_is_listed_anew(watch: list[Any]) -> None:
    """At the start of a watch or as an event: deletes that were missed meanwhile are in the next list."""
    api = ScriptedApi([LIST, [page("20", {"metadata": {"name": "b"}})]], [watch, [event("BOOKMARK", "21")]])
    reflector, copy = reflect(api)
    assert reflector.run_once() > 0
    assert reflector.run_once() == 0
    assert copy.names == {"b"}
    assert api.asked[-2:] == ["list", "20"]
    assert reflector.lists == 2


@pytest.mark.parametrize(
    "fault",
    [
        requests.ConnectionError("cut"), requests.Timeout("silent"), ConnectionResetError(), UnusableToken("no token"),
        refusal(401), refusal(403), refusal(429), refusal(500), refusal(503),
    ],
)  # fmt: skip
def test_a_broken_watch_goes_on_from_its_last_event(fault: Exception) -> None:
    """What says nothing of the version costs no list, and no event is lost."""
    api = ScriptedApi([LIST], [[event("ADDED", "11", name="c"), fault], [event("DELETED", "12", name="a")]])
    reflector, copy = reflect(api)
    assert reflector.run_once() > 0
    assert reflector.run_once() == 0
    assert copy.names == {"b", "c"}
    assert api.asked == ["list", "10", "11"]
    assert (reflector.lists, reflector.failures) == (1, 1)


def test_a_copy_that_fails_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    """An event that the copy could not take may have left it half changed: a list mends it, and the log says why."""
    api = ScriptedApi([LIST], [[event("ADDED", "11", name="c")], [event("BOOKMARK", "12")]])
    reflector, copy = reflect(api)
    copy.fails = KeyError("a bug")
    with caplog.at_level(logging.ERROR):
        assert reflector.run_once() > 0
    assert "the copy failed" in caplog.text
    copy.fails = None
    assert reflector.run_once() == 0
    assert api.asked == ["list", "10", "list", "10"]


def test_a_list_without_a_version_is_no_list() -> None:
    """A watch from no version would start anywhere."""
    reflector, _ = reflect(ScriptedApi([[page("")]], [[]]))
    with pytest.raises(UnexpectedResponse, match="the list /api/v1/nodes has no resource version"):
        reflector.list_and_watch()
    assert not reflector.synced.is_set()


def test_pauses_double_up_to_a_bound_and_start_over_once_a_watch_held() -> None:
    """Failures are retried ever later; a watch that the server ended in its own time resets that."""
    faults: list[list[Any]] = [[refusal(503)] for _ in range(7)]
    api = ScriptedApi([LIST], [*faults, [event("BOOKMARK", "11")], [refusal(503)]])
    reflector, _ = reflect(api)
    expected = [min(FIRST * 2**number, LONGEST) for number in range(7)]
    assert [reflector.run_once() for _ in range(7)] == [pytest.approx(each, rel=0.21) for each in expected]
    assert reflector.run_once() == 0
    assert reflector.run_once() == pytest.approx(FIRST, rel=0.21)


@pytest.mark.parametrize(
    "watch", [[ResourceExpired("always")], [], [event("ADDED", "11", name="c"), ResourceExpired("always")]]
)
def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_tight_loop(watch: list[Any]) -> None:
    """Neither a list that works nor an event in between takes the pauses away."""
    reflector, _ = reflect(ScriptedApi([LIST], [watch]))
    assert [reflector.run_once() for _ in range(6)][-1] == pytest.approx(LONGEST, rel=0.21)


@pytest.mark.parametrize(
    ("lists", "watches"),
    [([[*LIST, SILENCE]], []), ([LIST], [[SILENCE]]), ([LIST], [[event("ADDED", "11", name="c"), SILENCE]])],
    ids=["listing", "watching", "between events"],
)
def test_stop_ends_what_is_under_way(lists: list[Any], watches: list[Any]) -> None:
    """A list or a watch on which nothing comes is ended, and no failure is counted for it."""
    api = ScriptedApi(lists, watches)
    reflector, _ = reflect(api)
    reflector.start()
    assert api.silent.wait(10)
    reflector.stop()
    reflector.join()
    assert not of_reflectors()
    assert reflector.failures == 0


def test_stop_ends_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest pause is not waited for."""
    monkeypatch.setattr(module, "_MIN_BACKOFF_SECONDS", 3600.0)
    paused = threading.Event()
    reflector, _ = reflect(ScriptedApi([[refusal(503)]]))
    turn = reflector.run_once
    monkeypatch.setattr(reflector, "run_once", lambda: (turn(), paused.set())[0])
    reflector.start()
    assert paused.wait(10)
    reflector.stop()
    reflector.join()
    assert not of_reflectors()


def test_stop_before_start_returns() -> None:
    """There is nothing to wait for."""
    reflector, _ = reflect(ScriptedApi())
    reflector.stop()
    reflector.join()


def of_reflectors() -> list[threading.Thread]:
    """Return the threads of reflectors that are there."""
    return [each for each in threading.enumerate() if each.name.startswith("reflector-")]
