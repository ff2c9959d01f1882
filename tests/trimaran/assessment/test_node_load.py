"""Tests of hot nodes, missing metrics and the file of the nodes' use."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimaran.assessment import node_load
from trimaran.assessment.model import utc_text
from trimaran.traces.node_use import NODE_USE, NodeUse, read_node_use, write_node_use
from trimaran.traces.problems import TraceError
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace

BEGIN = 1_900_000_000 // 3600 * 3600
MINUTES = 600


def use(**loads: float | list[tuple[int, float]]) -> NodeUse:
    """Return the use of nodes: each a constant, or values that hold from a minute on."""
    cpu = np.empty((len(loads), MINUTES))
    for row, load in enumerate(loads.values()):
        for minute, value in [(0, load)] if isinstance(load, int | float) else load:
            cpu[row, minute:] = value
    return NodeUse(tuple(loads), BEGIN, cpu, np.where(np.isnan(cpu), np.nan, 0.2))


def test_a_hot_node_is_hot_since_its_last_pause() -> None:
    """Half an hour below 80 percent ends a hot time, a shorter pause does not; a node that is cool now has none."""
    found = node_load.hot_nodes(
        use(
            pause=[(0, 0.9), (100, 0.2), (300, 0.9), (350, 0.2), (360, 0.95)],
            cooled=[(0, 0.9), (200, 0.2)],
            cool=0.5,
            unknown=math.nan,
        )
    )
    assert [(each.node, each.since) for each in found] == [("pause", BEGIN + 60 * 304), ("cooled", None)]
    assert found[0].peak_percent == pytest.approx(95)
    assert found[1].hot_share == pytest.approx(200 / 600, abs=0.01)


def test_missing_metrics_are_named_with_their_time() -> None:
    """A node that was never measured, one that is no longer, and a gap of all nodes."""
    loads = use(good=0.3, never=math.nan, gone=[(0, 0.3), (400, math.nan)])
    loads.cpu[:, 100:130] = math.nan
    found = {each.subject: each.message for each in (*node_load.problems(loads), *node_load.gaps(loads))}
    assert found.keys() == {"Prometheus", "never", "gone"}
    assert "30 minutes" in found["Prometheus"]
    assert utc_text(BEGIN + 60 * 399) in found["gone"]


def test_a_node_short_of_memory_is_a_problem() -> None:
    """Half an hour with 90 percent of the memory in use, or more, is named; less is not."""
    loads = use(full=0.3, brief=0.3)
    loads.memory[0, 100:140] = 0.95
    loads.memory[1, 100:120] = 0.95
    assert [each.subject for each in node_load.problems(loads)] == ["full"]


def test_the_heat_is_that_of_the_busiest_nodes() -> None:
    """The means of each hour; None for an hour without measurements."""
    heat = node_load.heat(use(calm=0.1, busy=[(0, 0.5), (60, math.nan), (120, 0.7)]))
    assert list(heat) == ["busy", "calm"]
    assert heat["busy"][:3] == [50.0, None, 70.0]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Synthetic(0, 3, 120, 0).trace()


def test_the_use_of_nodes_is_read_as_written(trace: Trace, tmp_path: Path) -> None:
    """Shares come back with the precision of the file; without a file there is no use."""
    assert read_node_use(tmp_path, trace) is None
    written = NodeUse(trace.nodes, BEGIN, np.full((3, 120), 0.25), np.full((3, 120), math.nan))
    write_node_use(written, tmp_path)
    read = read_node_use(tmp_path, trace)
    assert read is not None
    assert (read.begin, read.nodes) == (BEGIN, trace.nodes)
    np.testing.assert_array_equal(read.cpu, written.cpu)
    np.testing.assert_array_equal(read.memory, written.memory)


@pytest.mark.parametrize(
    "change",
    [{"cpu": np.full((2, 120), 0.1)}, {"cpu": np.full((3, 120), -0.1)}, {"memory": np.full((3, 120), np.inf)},
     {"begin": -1}, {"begin": 2**41}],
)  # fmt: skip
def test_use_that_does_not_fit_is_refused(trace: Trace, tmp_path: Path, change: dict[str, object]) -> None:
    """Another shape, negative or infinite shares, and impossible times are errors that name the file."""
    written = NodeUse(trace.nodes, BEGIN, np.full((3, 120), 0.25), np.full((3, 120), 0.25))
    write_node_use(replace(written, **change), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TraceError, match=NODE_USE):
        read_node_use(tmp_path, trace)


def test_a_file_of_another_kind_is_refused(trace: Trace, tmp_path: Path) -> None:
    """A text with the name of the file is an error, too."""
    (tmp_path / NODE_USE).write_text("not an archive")
    with pytest.raises(TraceError, match=NODE_USE):
        read_node_use(tmp_path, trace)
