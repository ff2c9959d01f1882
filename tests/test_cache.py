"""The published snapshots, encoded."""

import gzip
import json
import math
import threading

import pytest

from watcher import wire
from watcher.cache import Cache, Published
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire import Dialect


def snapshot(value: float = 20.5, timestamp: int = 1000) -> WatcherMetrics:
    """Return a snapshot of two nodes."""
    node = NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", value),), {}, {"pool": "a"})
    return WatcherMetrics(timestamp, Window("15m", timestamp - 900, timestamp), "x", {"a": node, "b": node})


@pytest.mark.parametrize("default", Dialect)
@pytest.mark.parametrize("dialect", Dialect)
def test_bodies_are_what_the_wire_encodes(default: Dialect, dialect: Dialect) -> None:
    """Either dialect's body equals the whole encoded at once, compressed and not, whichever is built first."""
    body = Published(snapshot(), default).body(dialect)
    assert body.identity == wire.encode(snapshot(), dialect)
    assert gzip.decompress(body.gzip) == body.identity


def test_entity_tags_differ_with_content_and_dialect() -> None:
    """Equal content has an equal tag; another value or dialect has another."""
    tags = {
        Published(snapshot()).body(Dialect.DOCUMENTED).etag,
        Published(snapshot()).body(Dialect.GO).etag,
        Published(snapshot(7)).body(Dialect.DOCUMENTED).etag,
    }
    assert len(tags) == 3
    assert Published(snapshot()).body(Dialect.GO).etag in tags


@pytest.mark.parametrize("dialect", Dialect)
def test_one_node(dialect: Dialect) -> None:
    """A node's body is the snapshot with that node alone; there is none for an unknown node."""
    published = Published(snapshot())
    body = published.node_body("b", dialect)
    assert body is not None
    assert list(wire.decode(body).data) == ["b"]
    assert wire.decode(body).window == snapshot().window
    assert published.node_body("c", dialect) is None


def test_a_body_is_built_once() -> None:
    """The same bytes are handed out again, also to requests that come at the same time."""
    published = Published(snapshot())
    together = threading.Barrier(4)
    bodies = []

    def ask() -> None:
        together.wait(5)
        bodies.append(published.body(Dialect.GO))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(body) for body in bodies} == {id(published.body(Dialect.GO))}


def test_a_grade_is_added_to_every_node() -> None:
    """graded() gives the same snapshot with the grade beside what the metadata had, and leaves the original alone."""
    published = Published(snapshot())
    graded = published.graded("last_good")
    assert graded is published.graded("last_good")
    data = json.loads(graded.body(Dialect.DOCUMENTED).identity)["data"]
    assert [node["metadata"] for node in data.values()] == [{"pool": "a", "grade": "last_good"}] * 2
    assert b"grade" not in published.body(Dialect.DOCUMENTED).identity


def test_publishing_replaces_only_what_is_given() -> None:
    """A window that is not published again keeps its snapshot."""
    cache = Cache()
    assert cache.get("15m") is None
    assert cache.publish({"15m": snapshot(1), "5m": snapshot(2)}) == {}
    cache.publish({"15m": snapshot(3)})
    assert [cache.get(name).metrics for name in ("15m", "5m")] == [snapshot(3), snapshot(2)]  # type: ignore[union-attr]


def test_what_cannot_be_encoded_costs_only_its_window() -> None:
    """A snapshot with NaN is not published and reported; the other windows are published all the same."""
    cache = Cache()
    cache.publish({"15m": snapshot(1)})
    failures = cache.publish({"15m": snapshot(math.nan), "5m": snapshot(2)})
    assert list(failures) == ["15m"]
    assert cache.get("15m").metrics == snapshot(1)  # type: ignore[union-attr]
    assert cache.get("5m") is not None
