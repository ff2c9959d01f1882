"""Wrong use of the Python API: every mistake gets an error of ours that names it, never a wrong score."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from scoring import (
    Container,
    FallbackPolicy,
    MetricsTable,
    Node,
    NodeResourcesFit,
    NodeTable,
    Pod,
    Profile,
    ResourceList,
    ScorePlugin,
    TargetLoadPacking,
)

AMOUNTS = ResourceList({"cpu": 4000, "memory": 2**33})
POD = Pod(name="pending", containers=(Container(AMOUNTS),))


@pytest.fixture
def nodes() -> NodeTable:
    return NodeTable([Node("a", AMOUNTS, AMOUNTS), Node("b", AMOUNTS, AMOUNTS), Node("c", AMOUNTS, AMOUNTS)])


@dataclass(frozen=True)
class Given(ScorePlugin):
    """Plugin of a user, which returns what it is given."""

    terms: Any
    node: Any = None
    normalized: Any = None

    name: ClassVar[str] = "Given"
    normalizes: ClassVar[bool] = True

    def node_terms(self, nodes, metrics):
        return {} if self.node is None else self.node

    def pod_terms(self, pods, node, nodes, rows):
        return self.terms

    def normalize(self, scores):
        return scores if self.normalized is None else self.normalized

    def line(self, terms):
        return "given"


def ways_to_score(plugin, nodes):
    """Return the functions that return the totals: with and without explanations, with a mask, and for many pods."""
    prepared = Profile.of(plugin).prepare(nodes, MetricsTable.empty(nodes))
    every = np.ones(len(nodes), bool)
    return [
        lambda: prepared.score(POD).total,
        lambda: prepared.total(POD),
        lambda: prepared.total(POD, every),
        lambda: prepared.score_many([POD])[0],
    ]


@pytest.mark.parametrize(
    "scores",
    [
        np.array([1, 2, 3]),
        np.array([[1, 2, 3]]),
        np.array([1, 2, 3], np.int32),
        np.array([1, 2, 3], np.uint8),
        [1, 2, 3],
        [[1, 2, 3]],
    ],
)
def test_scores_of_any_integers_are_accepted(nodes, scores):
    """Integers of other types, and lists, are scores as well as int64 arrays."""
    for score in ways_to_score(Given({"score": scores}), nodes):
        assert score().tolist() == [1, 2, 3]
    for score in ways_to_score(Given({"score": np.int16(7)}), nodes):
        assert score().tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Given({"score": np.array([1.0, 2.5, 3.0])}), r"Given\.pod_terms: score"),
        (Given({"score": [1, np.nan, 3]}), r"Given\.pod_terms: score"),
        (Given({"score": np.array([True, False, True])}), r"Given\.pod_terms: score"),
        (Given({"score": np.array([1, 2, 3], np.uint64)}), r"Given\.pod_terms: score"),
        (Given({"score": ["1", "2", "3"]}), r"Given\.pod_terms: score"),
        (Given({"score": np.arange(2)}), r"Given\.pod_terms: score"),
        (Given({"score": np.zeros((3, 1), int)}), "pod_terms: score"),
        (Given({}), r"Given\.pod_terms: .*score"),
        (Given({"score": [0, 0, 0]}, normalized=np.array([0.5, 1, 2])), r"Given\.normalize"),
        (Given({"score": [0, 0, 0]}, normalized=np.arange(4)), r"Given\.normalize"),
        (Given({"score": [0, 101, 0]}), "Given scores 0 to 101"),
        (Given({"score": [0, -1, 0]}), "Given scores -1 to 0"),
        (Given({"score": [0, 0, 0]}, node={"x": np.arange(2)}), r"Given\.node_terms: x"),
        (Given({"score": [0, 0, 0]}, node={"x": 5}), r"Given\.node_terms: x"),
    ],
)
def test_wrong_scores_name_the_plugin(nodes, plugin, message):
    """Scores of another type or shape, or out of range, are an error with the plugin's name; nothing is truncated."""
    for number in range(4):
        with pytest.raises((TypeError, ValueError), match=message):
            ways_to_score(plugin, nodes)[number]()


@pytest.mark.parametrize("metrics", [None, {}, "http://trimaran:2020"])
@pytest.mark.parametrize("scored", [Profile.of(TargetLoadPacking()), TargetLoadPacking()])
def test_metrics_of_another_type_are_refused(nodes, scored, metrics):
    """The error lists what the metrics may be, and the way to score without metrics."""
    with pytest.raises(TypeError, match=r"^metrics: .*MetricsTable\.empty"):
        scored.score(POD, nodes, metrics)


def test_other_arguments_of_another_type_are_refused(nodes):
    """A dict is not a pod, and a list of nodes is not a table; the errors name the function that reads them."""
    metrics = MetricsTable.empty(nodes)
    for scored in (Profile.of(NodeResourcesFit()), NodeResourcesFit()):
        with pytest.raises(TypeError, match=r"^pod: .*Pod\.from_k8s"):
            scored.score({"kind": "Pod"}, nodes, metrics)
        with pytest.raises(TypeError, match=r"^nodes: .*NodeTable"):
            scored.score(POD, list(nodes.nodes), metrics)


@pytest.mark.parametrize(
    ("feasible", "message"),
    [(np.array([0, 1, 1]), "feasible"), ([1, 0, 1], "feasible"), (np.array([True, False]), "feasible")],
)
def test_a_mask_of_another_type_is_refused(nodes, feasible, message):
    """Integers would select rows instead of masking them."""
    prepared = Profile.of(NodeResourcesFit()).prepare(nodes, MetricsTable.empty(nodes))
    for score in (prepared.score, prepared.total):
        with pytest.raises((TypeError, ValueError), match=message):
            score(POD, feasible)
    assert prepared.score(POD, [True, False, True]).total.tolist()[1] == -1


def test_terms_of_any_type_are_explained(nodes):
    """Terms that are lists or numbers are shown, too."""
    profile = Profile.of(Given({"score": [1, 2, 3], "load": [0.5, 0.25, 0.75], "limit": 7}))
    explanation = profile.score(POD, nodes, MetricsTable.empty(nodes)).explain("b")
    assert explanation.parts[0][0].terms == {"load": 0.25, "limit": 7}


def test_unknown_nodes_have_no_explanation(nodes):
    """The error names the node, and is the same for a plugin and for a profile's scores."""
    profile, plugin = Profile.of(NodeResourcesFit()), NodeResourcesFit()
    scores = profile.score(POD, nodes, MetricsTable.empty(nodes))
    with pytest.raises(KeyError, match=r"'nobody'.* a, b, c"):
        scores.explain("nobody")
    with pytest.raises(KeyError, match="'nobody'"):
        plugin.explain(POD, nodes, MetricsTable.empty(nodes), "nobody")


def test_a_judgment_without_a_snapshot_scores(nodes):
    """None stands for "no snapshot" where a fallback policy decides."""
    judgment = FallbackPolicy().judge(nodes, None, 0.0)
    assert Profile.of(TargetLoadPacking()).score(POD, nodes, judgment).total.size == 3
