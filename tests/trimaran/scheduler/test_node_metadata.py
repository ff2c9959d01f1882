"""NodeMetadata: scores by a number or a time in a label or annotation of the nodes."""

import numpy as np
import pytest

from runtime.kubernetes.objects import Node
from scoring import MetricsTable, NodeTable, Pod
from scoring.profiles.configuration.fields import FieldReader
from trimaran.scheduler.plugins.node_metadata import NodeMetadata
from trimaran.scheduler.profiles.configuration import read_setup

KEY = "example.com/value"


def scores(plugin: NodeMetadata, values: list[str | None]) -> list[int]:
    """Return the normalized score of nodes with these labels."""
    labels = [{} if value is None else {KEY: value} for value in values]
    table = NodeTable(Node(f"n{number}", labels=each) for number, each in enumerate(labels))
    return plugin.normalize(plugin.score(Pod("p"), table, MetricsTable.empty(table))).tolist()


@pytest.mark.parametrize(
    ("strategy", "values", "expected"),
    [
        ("Highest", ["10", "20", "40", None, "x"], [1, 34, 100, 0, 0]),
        ("Lowest", ["10", "20", "40", None, "x"], [100, 67, 1, 0, 0]),
        ("Highest", ["1.9", "-1.9", "inf", "nan", "1e30"], [100, 1, 0, 0, 0]),
        ("Highest", ["7", "7.5", None], [1, 1, 0]),
        ("Highest", [None, "x"], [0, 0]),
        ("Highest", ["9e18", "-9e18", "0"], [100, 1, 50]),
    ],
)
def test_numbers_are_rescaled_from_1_to_100(strategy: str, values: list[str | None], expected: list[int]) -> None:
    """Numbers are truncated; a missing or invalid one scores 0; amounts near 64 bits do not overflow."""
    assert scores(NodeMetadata(KEY, scoring_strategy=strategy), values) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "strategy", "values", "expected"),
    [
        ("", "Newest", ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-02T00:00:00Z"], [1, 1, 100]),
        ("", "Oldest", ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z", "yesterday"], [100, 1, 0]),
        ("2006-01-02_15-04", "Newest", ["2026-01-01_10-30", "2026-01-01_11-30", "2026-01-01"], [1, 100, 0]),
    ],
)
def test_times_are_read_by_a_layout_of_go(
    layout: str, strategy: str, values: list[str | None], expected: list[int]
) -> None:
    """Times are RFC 3339, or have the layout in Go's notation; without a zone they are UTC."""
    plugin = NodeMetadata(KEY, "Label", "Timestamp", strategy, layout)  # type: ignore[arg-type]
    assert scores(plugin, values) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "metadataKey: must not be empty"),
        ({"metadataKey": "a", "metadataSource": "Spec"}, "metadataSource"),
        ({"metadataKey": "a", "metadataType": "Timestamp"}, "scoringStrategy: must be Newest or Oldest"),
        ({"metadataKey": "a", "scoringStrategy": "Newest"}, "scoringStrategy: must be Highest or Lowest"),
        ({"metadataKey": "a", "kay": 1}, "args.kay"),
    ],
)
def test_wrong_arguments_are_errors_that_name_the_key(arguments: dict[str, object], message: str) -> None:
    """A missing key, an unknown word, a strategy of the other type and an unknown argument are errors."""
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        NodeMetadata.from_config(FieldReader("args", arguments))


def test_only_the_annotation_of_the_arguments_is_kept() -> None:
    """A profile says which annotation of nodes is read; the scheduler keeps no other."""
    args = {"metadataKey": KEY, "metadataSource": "Annotation"}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "plugins": {"score": {"enabled": [{"name": "NodeMetadata"}], "disabled": [{"name": "*"}]}},
            "pluginConfig": [{"name": "NodeMetadata", "args": args}],
        }],
    }  # fmt: skip
    setup = read_setup(document)
    manifest = {"kind": "Node", "metadata": {"name": "n", "annotations": {KEY: "3", "other": "4"}}}
    node = Node.from_k8s(manifest, setup.annotations)
    assert node.annotations == {KEY: "3"}
    (weighted,) = setup.profiles[0].scores.plugins
    table = NodeTable([node])
    assert weighted.plugin.score(Pod("p"), table, MetricsTable.empty(table)) == np.array([3])
    assert weighted.plugin.explain(Pod("p"), table, MetricsTable.empty(table), "n").line == (
        f"annotation {KEY}: 3; Highest is best"
    )
