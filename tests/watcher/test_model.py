"""The model: immutable values with fixed names."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

import watcher
from watcher.model import Grade, Metric, MetricType, NodeColumns, NodeMetrics, Operator, WatcherMetrics, Window


def test_package_exports() -> None:
    """``watcher`` exports the model and the history, and nothing else."""
    assert watcher.__all__ == [
        "Grade", "History", "HistorySeries", "Load", "Metric", "MetricType", "NodeMetrics", "Operator", "Steps",
        "WatcherMetrics", "Window",
    ]  # fmt: skip


def test_enum_values_match_the_wire() -> None:
    """Types, operators and grades have the values that are written to JSON."""
    assert [*map(str, MetricType)] == [
        "CPU", "Memory", "Bandwidth", "Storage", "Energy", "GPU",
        "CPUPressure", "MemoryPressure", "IOPressure", "MemoryFullPressure", "IOFullPressure",
    ]  # fmt: skip
    assert [*map(str, Operator)] == ["AVG", "STD", "Latest", "P90", "P95", "P99", "MAX"]
    assert [*map(str, Grade)] == ["shorter_window", "last_good", "unchecked"]


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
    """Setting an attribute, existing or new, raises an error."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, dataclasses.fields(thing)[0].name, None)  # type: ignore[arg-type]
    with pytest.raises((AttributeError, TypeError)):
        thing.anything = 1  # type: ignore[attr-defined]


def test_equal_content_is_equal() -> None:
    """Two snapshots with the same content are equal."""

    def build() -> WatcherMetrics:
        node = NodeMetrics((Metric("n", "CPU", "AVG", "15m", 1.0),), {"step": "15s"}, {"pool": "a"})
        return WatcherMetrics(900, Window("15m", 0, 900), "x", {"a": node})

    assert build() == build()
    assert build() != dataclasses.replace(build(), timestamp=901)


def test_nodes_do_not_share_their_defaults() -> None:
    """Tags and metadata default to a separate mapping for each node."""
    assert NodeMetrics(()).tags is not NodeMetrics(()).tags


# -- columns ------------------------------------------------------------------------------------------------------

AVG, STD = ("n", "CPU", "AVG", "15m"), ("n", "CPU", "STD", "15m")


def columns() -> NodeColumns:
    """Return three nodes in two groups."""
    groups = [(["a", "b"], [AVG, STD], [[1, 2], [0.1, 0.2]]), (["c"], [STD, AVG], [[0.3], [3]])]
    return NodeColumns(groups, {"a": {"step": "15s"}}, {"c": {"pool": "x"}})


def nodes() -> dict[str, NodeMetrics]:
    """Return the nodes of ``columns()`` as objects."""
    return {
        "a": NodeMetrics((Metric(*AVG, 1.0), Metric(*STD, 0.1)), {"step": "15s"}),
        "b": NodeMetrics((Metric(*AVG, 2.0), Metric(*STD, 0.2))),
        "c": NodeMetrics((Metric(*STD, 0.3), Metric(*AVG, 3.0)), {}, {"pool": "x"}),
    }


def test_columns_equal_a_mapping_of_nodes() -> None:
    """Columns are a mapping of nodes, equal to the same nodes as objects, and can be built from them."""
    assert columns() == nodes() == columns()
    assert nodes() == NodeColumns.of(nodes()) == columns()
    assert [*columns()] == ["a", "b", "c"]
    assert (len(columns()), "a" in columns(), "z" in columns(), columns().get("z")) == (3, True, False, None)
    assert columns() != {**nodes(), "b": nodes()["a"]}
    with pytest.raises(KeyError):
        columns()["z"]


def test_columns_of_columns_are_themselves() -> None:
    """NodeColumns.of returns columns unchanged."""
    whole = columns()
    assert NodeColumns.of(whole) is whole


def test_a_node_of_columns_stays_the_same_object() -> None:
    """Reading a node twice returns the same object, since callers detect unchanged nodes by identity."""
    whole = columns()
    assert whole["a"] is whole["a"] is dict(whole)["a"]


def test_columns_can_be_pickled_and_copied() -> None:
    """Pickling and copying columns returns equal columns."""
    assert pickle.loads(pickle.dumps(columns())) == columns() == copy.deepcopy(columns())


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ((["a", "b"], [AVG], [[1]]), "series 1 does not have one value for each of 2 nodes"),
        ((["a", "b"], [AVG, STD], [[1], [2, 3, 4]]), "series 1 does not have"),
        ((["a"], [AVG], []), "the values do not fit 1 series"),
        ((["a"], [AVG], [[1], [2]]), "the values do not fit 1 series"),
        ((["a", "a"], [AVG], [[1, 2]]), "in two groups"),
    ],
)
def test_columns_of_wrong_length_are_refused(group: Any, words: str) -> None:
    """Columns whose lengths do not match their names and series, or with a duplicate node, raise ValueError."""
    with pytest.raises(ValueError, match=words):
        NodeColumns([group], {}, {})


@pytest.mark.parametrize("data", [nodes(), columns()], ids=["objects", "columns"])
def test_metadata_of_all_nodes(data: Mapping[str, NodeMetrics]) -> None:
    """A snapshot's metadata has the nodes that have any, without building node objects from columns."""
    assert WatcherMetrics(900, Window("15m", 0, 900), "x", data).metadata == {"c": {"pool": "x"}}
    assert not isinstance(data, NodeColumns) or not data._created
