"""The model: frozen values with promised names."""

import dataclasses

import pytest

import watcher
from watcher.model import Grade, Metric, MetricType, NodeMetrics, Operator, WatcherMetrics, Window


def test_what_the_package_exports() -> None:
    """``watcher`` exports the model and nothing else."""
    assert watcher.__all__ == ["Grade", "Metric", "MetricType", "NodeMetrics", "Operator", "WatcherMetrics", "Window"]


def test_the_words_are_those_of_the_wire() -> None:
    """Types, operators and grades are the words that are written, pinned here."""
    assert [*map(str, MetricType)] == ["CPU", "Memory", "Bandwidth", "Storage", "Energy", "GPU"]
    assert [*map(str, Operator)] == ["AVG", "STD", "Latest", "P90", "P95", "P99", "MAX"]
    assert [*map(str, Grade)] == ["shorter_window", "last_good"]


@pytest.mark.parametrize(
    "thing",
    [
        Metric("n", "CPU", "AVG", "15m", 1.0),
        Window("15m", 0, 900),
        NodeMetrics(()),
        WatcherMetrics(900, Window("15m", 0, 900), "x", {}),
    ],
)
def test_everything_is_frozen(thing: object) -> None:
    """No attribute can be set, neither an existing nor a new one."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, dataclasses.fields(thing)[0].name, None)  # type: ignore[arg-type]
    with pytest.raises((AttributeError, TypeError)):
        thing.anything = 1  # type: ignore[attr-defined]


def test_equal_content_is_equal() -> None:
    """Two snapshots with the same content are equal, so that copies can be compared."""

    def build() -> WatcherMetrics:
        node = NodeMetrics((Metric("n", "CPU", "AVG", "15m", 1.0),), {"step": "15s"}, {"pool": "a"})
        return WatcherMetrics(900, Window("15m", 0, 900), "x", {"a": node})

    assert build() == build()
    assert build() != dataclasses.replace(build(), timestamp=901)


def test_nodes_do_not_share_their_defaults() -> None:
    """Tags and metadata default to a mapping of each node's own."""
    assert NodeMetrics(()).tags is not NodeMetrics(()).tags
