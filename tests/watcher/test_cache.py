"""The cache of published, encoded snapshots."""

import gzip
import math
import threading
from dataclasses import replace

import pytest

from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.publishing.cache import Cache, Published
from watcher.wire import Dialect


def snapshot(value: float = 20.5, timestamp: int = 1000) -> WatcherMetrics:
    """Return a snapshot of two nodes."""
    node = NodeMetrics(
        (Metric("cpu", "CPU", "AVG", "15m", value), Metric("mem", "Memory", "AVG", "15m", 1.0)), {}, {"pool": "a"}
    )
    return WatcherMetrics(timestamp, Window("15m", timestamp - 900, timestamp), "x", {"a": node, "b": node})


@pytest.mark.parametrize("default", Dialect)
@pytest.mark.parametrize("dialect", Dialect)
def test_bodies_match_the_encoder(default: Dialect, dialect: Dialect) -> None:
    """Each dialect's body equals the whole snapshot encoded at once, plain and compressed."""
    body = Published(snapshot(), default).body(dialect)
    assert body.identity == wire.encode(snapshot(), dialect)
    assert gzip.decompress(body.gzip) == body.identity


def test_columnar_body() -> None:
    """The columnar body equals the encoder's, plain and compressed; it is built at the first request, once."""
    published = Published(snapshot())
    assert None not in published._bodies
    body = published.body(None)
    assert body.identity == wire.encode_columns(snapshot())
    assert gzip.decompress(body.gzip) == body.identity
    assert published.body(None) is body


def test_entity_tags_differ_with_content_and_dialect() -> None:
    """Equal content has an equal tag; another value, dialect or form has another tag."""
    tags = {
        Published(snapshot()).body(None).etag,
        Published(snapshot()).body(Dialect.DOCUMENTED).etag,
        Published(snapshot()).body(Dialect.GO).etag,
        Published(snapshot(7)).body(Dialect.DOCUMENTED).etag,
    }
    assert len(tags) == 4
    assert Published(snapshot()).body(Dialect.GO).etag in tags


@pytest.mark.parametrize("dialect", Dialect)
def test_one_node(dialect: Dialect) -> None:
    """A node's body is the snapshot with that node alone, and None for an unknown node."""
    published = Published(snapshot())
    body = published.node_body("b", dialect)
    assert body is not None
    assert list(wire.decode(body).data) == ["b"]
    assert wire.decode(body).window == snapshot().window
    assert published.node_body("c", dialect) is None
    assert published.node_body("B", dialect) == body  # the name was spelled so before its node was listed


def test_a_body_is_built_once() -> None:
    """Repeated and concurrent requests get the same bytes object."""
    published = Published(snapshot())
    together = threading.Barrier(4)
    bodies = []

    def ask() -> None:
        together.wait(60)
        bodies.append(published.body(Dialect.GO))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(body) for body in bodies} == {id(published.body(Dialect.GO))}


def test_unchanged_nodes_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot made like a previous one encodes only the nodes that differ, with the same resulting bodies."""
    first = Published(snapshot())
    other = replace(snapshot(7).data["a"])
    second = replace(first.metrics, data={**first.metrics.data, "b": other, "c": other})
    encoded: list[str] = []
    encode = wire.encode_node
    monkeypatch.setattr(wire, "encode_node", lambda name, node: encoded.append(name) or encode(name, node))
    body = Published(second, like=first).body(Dialect.GO)
    assert encoded == ["b", "c"]
    assert body.identity == wire.encode(second, Dialect.GO)


def test_publishing_replaces_only_the_given_windows() -> None:
    """A window that is not published again keeps its snapshot."""
    cache = Cache(["15m", "5m"], 300)
    assert cache.get("15m") is None
    assert cache.publish({"15m": snapshot(1), "5m": snapshot(2)}, 1000) == {}
    cache.publish({"15m": snapshot(3)}, 1000)
    assert cache.get("15m").metrics == snapshot(3)  # type: ignore[union-attr]
    assert cache.get("5m").metrics.data["a"].metrics == snapshot(2).data["a"].metrics  # type: ignore[union-attr]


def test_encoding_failure_affects_only_its_window() -> None:
    """A snapshot with NaN is reported and not published; the other windows are published."""
    cache = Cache(["15m", "5m"], 300)
    cache.publish({"15m": snapshot(1)}, 1000)
    failures = cache.publish({"15m": snapshot(math.nan), "5m": snapshot(2)}, 1000)
    assert list(failures) == ["15m"]
    node = cache.get("15m").metrics.data["a"]  # type: ignore[union-attr]
    assert (node.metrics, node.metadata["grade"]) == (snapshot(1).data["a"].metrics, "last_good")
    assert cache.get("5m") is not None


def test_unchanged_snapshots_are_not_rebuilt() -> None:
    """Consecutive failed rounds, and windows without gaps, build no new bodies."""
    cache = Cache(["15m", "5m"], 300)
    cache.publish({"15m": snapshot(1)}, 1000)
    assert cache.served(None, 1000) is cache.get("15m")
    cache.publish({}, 1060)
    once = cache.get("15m")
    cache.publish({}, 1120)
    assert cache.get("15m") is once is cache.served(None, 1120)


def test_expired_metrics_are_not_served() -> None:
    """A read checks the expiry even without a new fetch: metrics are served at an age of 300 s, and not after it."""
    cache = Cache(["15m"], 300)
    cache.publish({"15m": snapshot(1)}, 1000)
    alone = replace(snapshot(2, 1200), data={"a": snapshot(2).data["a"]})
    cache.publish({"15m": alone}, 1200)
    assert list(cache.served(None, 1300).metrics.data) == ["a", "b"]  # type: ignore[union-attr]
    assert list(cache.served("15m", 1301).metrics.data) == ["a"]  # type: ignore[union-attr]
    assert list(cache.served(None, 1500).metrics.data) == ["a"]  # type: ignore[union-attr]
    assert cache.served(None, 1501) is None
