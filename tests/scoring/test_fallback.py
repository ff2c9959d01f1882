"""Fallback scores of nodes without usable measurements, by example and as properties of any cluster."""

import doctest
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring import (
    INFEASIBLE,
    Container,
    FallbackPolicy,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    Node,
    NodeResourcesFit,
    NodeTable,
    Peaks,
    Pod,
    PowerModel,
    Profile,
    ResourceList,
    TargetLoadPacking,
)
from scoring.plugins.node_resources_fit import fits
from scoring.profiles.fallback import NodeGrade
from watcher.model import Grade, Metric, NodeMetrics, WatcherMetrics, Window

NOW = 10_000
LONG_AGO = NOW - 86_400
NAMES = ("a", "b", "c", "d")
CLOSED = FallbackPolicy(fail="closed")
PLUGINS = (
    TargetLoadPacking(),
    LoadVariationRiskBalancing(),
    LowRiskOverCommitment(),
    Peaks({name: PowerModel(100, 1, 0.05) for name in NAMES}),
)


def node(name, created_at=LONG_AGO):
    amounts = ResourceList({"cpu": 4000, "memory": 2**33})
    return Node(name, amounts, amounts, created_at=created_at)


def pod(name="pending", cpu=1000, memory=2**30, **fields):
    return Pod(name=name, containers=(Container(ResourceList({"cpu": cpu, "memory": memory})),), **fields)


def load(percent, *types, **metadata):
    types = types or ("CPU", "Memory")
    return NodeMetrics(tuple(Metric("m", kind, "AVG", "15m", percent) for kind in types), {}, metadata)


def snapshot(end=NOW, **nodes):
    return WatcherMetrics(end, Window("15m", end - 900, end), "test", nodes)


def cluster(*missing, pods=(), **created_at):
    """Return four nodes and a snapshot without the missing ones."""
    nodes = NodeTable([node(name, created_at.get(name, LONG_AGO)) for name in NAMES], pods)
    return nodes, snapshot(**{name: load(20.0 + 10 * i) for i, name in enumerate(NAMES) if name not in missing})


def scored(nodes, received, policy=None, plugin=PLUGINS[0], pending=None, now=NOW):
    policy = policy or FallbackPolicy()
    return Profile.of(plugin).score(pending or pod(), nodes, policy.judge(nodes, received, now))


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_nothing_changes_while_all_nodes_are_measured(plugin):
    """Scores, explanations and normalization of a complete snapshot are the same with and without fallback."""
    nodes, received = cluster()
    with_fallback, without = scored(nodes, received, plugin=plugin), Profile.of(plugin).score(pod(), nodes, received)
    assert with_fallback.total.tolist() == without.total.tolist()
    assert with_fallback.grades.tolist() == ["measured"] * 4
    assert without.grades.tolist() == [""] * 4
    for name in NAMES:
        lines, plain = str(with_fallback.explain(name)).splitlines(), str(without.explain(name)).splitlines()
        assert lines == [f"{plain[0]} (measured)", *plain[1:]]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_node_whose_agent_failed_scores_the_minimum(plugin):
    """A node that should be measured but is not scores 0, and does not affect the scores of the others."""
    nodes, received = cluster("b")
    scores = scored(nodes, received, plugin=plugin)
    others = NodeTable([node(name) for name in "acd"])
    assert scores.total[1] == 0
    assert scores.total[[0, 2, 3]].tolist() == Profile.of(plugin).score(pod(), others, received).total.tolist()
    assert scores.grades.tolist() == ["measured", "avoided", "measured", "measured"]
    assert scores.explain("b").grade == "avoided"
    assert "the minimum" in str(scores.explain("b"))


def test_plugins_that_read_no_metrics_keep_their_scores():
    """Only scores by load are replaced; in-tree scores of an avoided node still count."""
    nodes, received = cluster("b")
    fit = NodeResourcesFit()
    scores = Profile.of(PLUGINS[0], fit).score(pod(), nodes, FallbackPolicy().judge(nodes, received, NOW))
    assert scores.total[1] == fit.score(pod(), nodes, received)[1] > 0


@pytest.mark.parametrize("plugin", PLUGINS[:2], ids=lambda plugin: plugin.name)
def test_a_new_node_without_pods_counts_as_idle(plugin):
    """A node that joined a minute ago and has no pods scores like a node measured at 0 percent."""
    nodes, received = cluster("b", b=NOW - 60)
    idle = replace(received, data={**received.data, "b": load(0.0)})
    assert scored(nodes, received, plugin=plugin).total.tolist() == scored(nodes, idle, plugin=plugin).total.tolist()
    assert scored(nodes, received).grades[1] == "predicted"


@pytest.mark.parametrize("plugin", PLUGINS[:2], ids=lambda plugin: plugin.name)
@pytest.mark.parametrize("placed_seconds_ago", [200, 30, 0])
def test_a_new_node_is_predicted_from_the_requests_of_its_pods(plugin, placed_seconds_ago):
    """New pods on a new node count once with their requests, however recent they are: here half of both resources."""
    new = pod("new", 2000, 2**32, node_name="b", scheduled_at=NOW - placed_seconds_ago)
    nodes, received = cluster("b", b=NOW - 250, pods=[new])
    half = replace(received, data={**received.data, "b": load(50.0)})
    without_pods = cluster(b=NOW - 250)[0]
    expected = Profile.of(plugin).score(pod(), without_pods, half)
    assert scored(nodes, received, plugin=plugin).total.tolist() == expected.total.tolist()


def test_an_assumed_pod_on_a_new_node_is_counted_once():
    """A pod assumed before or after the judgment is counted once, by the plugin."""
    nodes, received = cluster("b", b=NOW - 60)
    measured = {**received.data, "b": load(0.0)}
    before, after = NodeTable(nodes.nodes), NodeTable(nodes.nodes)
    before.assume(pod("new"), "b")
    prepared = Profile.of(PLUGINS[0]).prepare(after, FallbackPolicy().judge(after, received, NOW))
    after.assume(pod("new"), "b")
    expected = PLUGINS[0].score(pod(), before, replace(received, data=measured)).tolist()
    assert scored(before, received).total.tolist() == expected
    assert prepared.score(pod()).total.tolist() == expected


@pytest.mark.parametrize("scheduled_at", [None, LONG_AGO, NOW - 301])
def test_a_new_node_with_long_running_pods_is_avoided(scheduled_at):
    """A new node scores the minimum if a pod of it is older than the settling time, or of unknown age."""
    old = pod("old", node_name="b", scheduled_at=scheduled_at)
    nodes, received = cluster("b", b=NOW - 60, pods=[old])
    scores = scored(nodes, received)
    assert (scores.grades[1], scores.total[1]) == ("avoided", 0)
    assert "with 1 long-running pods" in str(scores.explain("b"))


@pytest.mark.parametrize("created_at", [None, NOW - 301])
def test_a_node_that_is_not_known_to_be_new_is_avoided(created_at):
    """A node without pods is avoided if it is older than the settling time, or of unknown age."""
    nodes, received = cluster("b", b=created_at)
    assert scored(nodes, received).grades[1] == "avoided"


@pytest.mark.parametrize("received", [None, snapshot(), snapshot(NOW - 301, a=load(1.0)), snapshot(NOW + 301)])
def test_an_outage_scores_all_nodes_by_allocation(received):
    """Without a fresh snapshot, the node with the highest requests that the pod fits on wins.

    A node without enough free resources for the pod scores 0.
    """
    pods = [pod(f"p{i}", cpu, node_name=name) for i, (name, cpu) in enumerate([("b", 2000), ("c", 3500), ("d", 500)])]
    nodes = NodeTable([node(name) for name in NAMES], pods)
    scores = scored(nodes, received)
    assert scores.grades.tolist() == ["allocation"] * 4
    assert scores.best() == "b"
    assert scores.total[2] == 0
    fit = NodeResourcesFit("MostAllocated").score(pod(), nodes, MetricsTable.empty(nodes))
    assert scores.total.tolist() == np.where(fits(pod(), nodes), fit, 0).tolist()
    assert "by allocation" in str(scores.explain("b"))


def test_scores_by_allocation_follow_placements():
    """Placements of a plan during an outage count for the next pod."""
    nodes = NodeTable([node(name) for name in NAMES])
    with nodes.transaction() as plan:
        prepared = Profile.of(PLUGINS[0]).prepare(plan, FallbackPolicy().judge(plan, None, NOW))
        plan.assume(pod("first"), "c")
        assert prepared.score(pod("second")).best() == "c"


def test_more_than_half_bad_nodes_give_neutral_scores():
    """Two bad nodes of four are avoided; three bad nodes give all nodes the same score by load."""
    assert scored(*cluster("a", "b")).grades.tolist() == ["avoided"] * 2 + ["measured"] * 2
    nodes, received = cluster("a", "b", "c")
    for plugin in PLUGINS:
        scores = scored(nodes, received, plugin=plugin)
        assert len(set(scores.total.tolist())) == 1
        assert scores.grades.tolist() == ["neutral"] * 4
    assert "3 of 4 nodes" in str(scores.explain("d"))


def test_new_nodes_do_not_count_as_bad():
    """New nodes without pods are predicted, even if they are more than half of the cluster."""
    nodes, received = cluster("a", "b", "c", a=NOW - 60, b=NOW - 60, c=NOW - 60)
    assert scored(nodes, received).grades.tolist() == ["predicted"] * 3 + ["measured"]


@pytest.mark.parametrize(
    ("missing", "created_at", "grades"),
    [
        ("", {}, ["measured"] * 4),
        ("b", {}, ["measured", "avoided", "measured", "measured"]),
        ("b", {"b": NOW - 60}, ["measured", "predicted", "measured", "measured"]),
        ("abc", {}, ["neutral"] * 4),
        ("abcd", {}, ["allocation"] * 4),
    ],
)
def test_fail_closed_places_on_measured_nodes_only(missing, created_at, grades):
    """Nodes that are not measured are infeasible; in the last two cases all nodes are."""
    nodes, received = cluster(*missing, **created_at)
    scores = scored(nodes, received, CLOSED)
    assert scores.grades.tolist() == grades
    assert [total == INFEASIBLE for total in scores.total] == [grade != "measured" for grade in grades]
    assert (scored(nodes, received).total != INFEASIBLE).all(), "fail-open refuses no node"


@pytest.mark.parametrize("grade", ["shorter_window", "last_good", "of_the_future"])
def test_the_watchers_grades_are_kept(grade):
    """A node with replaced values counts as measured and keeps the watcher's grade."""
    nodes, received = cluster()
    received = replace(received, data={**received.data, "b": load(30.0, grade=grade)})
    assert scored(nodes, received).grades.tolist() == ["measured", grade, "measured", "measured"]


@pytest.mark.parametrize(("end", "grade"), [(NOW - 300, "last_good"), (NOW - 301, "avoided")])
def test_a_single_node_expires_by_its_own_time(end, grade):
    """A last good value that is too old on arrival counts as missing."""
    nodes, received = cluster()
    last_good = load(30.0, grade="last_good", window_start=end - 900, window_end=end)
    received = replace(received, data={**received.data, "b": last_good})
    assert scored(nodes, received).grades[1] == grade


def test_only_cpu_and_memory_are_required():
    """A node without a GPU metric is measured; a node without Memory is not, unless no node has Memory."""
    nodes, received = cluster()
    gpu = {**received.data, "a": load(20.0, "CPU", "Memory", "GPU")}
    assert scored(nodes, replace(received, data=gpu)).grades.tolist() == ["measured"] * 4
    no_memory = {**received.data, "b": load(30.0, "CPU")}
    assert scored(nodes, replace(received, data=no_memory)).grades[1] == "avoided"
    cpu_only = {name: load(20.0, "CPU") for name in NAMES}
    assert scored(nodes, replace(received, data=cpu_only)).grades.tolist() == ["measured"] * 4


def test_grades_can_be_counted():
    """The judgment counts nodes by grade, and lists the predicted ones."""
    nodes, received = cluster("b", "c", c=NOW - 60)
    judgment = FallbackPolicy().judge(nodes, received, NOW)
    assert judgment.counts() == {"measured": 2, "avoided": 1, "predicted": 1}
    assert judgment.predicted.tolist() == [2]


def test_a_judgment_of_other_nodes_is_refused():
    """A judgment cannot be used for a table with other nodes."""
    nodes, received = cluster()
    judgment = FallbackPolicy().judge(nodes, received, NOW)
    with pytest.raises(ValueError, match="aligned"):
        Profile.of(PLUGINS[0]).prepare(NodeTable([node("x")]), judgment)


def test_the_documentation_is_correct():
    """The examples of docs/fallback.md give the output shown, and its table has the default values."""
    page = Path(__file__).parents[2] / "docs" / "fallback.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines()]
    defaults = {row[0]: row[2] for row in rows if len(row) == 4 and row[1] == "FallbackPolicy"}
    written = asdict(FallbackPolicy())
    assert defaults.keys() == written.keys()
    assert FallbackPolicy().best_fit.strategy in defaults.pop("best_fit")
    assert defaults == {name: f"{written[name]}" for name in defaults}
    assert {row[1] for row in rows if len(row) == 4} >= {*NodeGrade, *Grade}


# -- properties of any cluster ------------------------------------------------------------------------------

AGES = st.sampled_from([None, 0, 60, 299, 301, 86_400])
LOADS = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 100), st.sampled_from([("CPU", "Memory"), ("CPU",), ("GPU",)]), st.sampled_from([0, 400])),
)
CLUSTERS = st.lists(st.tuples(AGES, LOADS, st.lists(AGES, max_size=2)), min_size=1, max_size=6)


def build(rows, age):
    """Return nodes with pods and a snapshot, from rows of (age of the node, load, ages of its pods)."""
    nodes = NodeTable(
        [node(f"n{i}", None if created is None else NOW - created) for i, (created, _, _) in enumerate(rows)],
        [
            pod(f"p{i}-{j}", node_name=f"n{i}", scheduled_at=None if placed is None else NOW - placed)
            for i, (_, _, pods) in enumerate(rows)
            for j, placed in enumerate(pods)
        ],
    )
    data = {}
    for i, (_, measured, _) in enumerate(rows):
        if measured is not None:
            percent, types, behind = measured
            metadata = {"grade": "last_good", "window_start": 0, "window_end": NOW - behind} if behind else {}
            data[f"n{i}"] = load(float(percent), *types, **metadata)
    return nodes, None if age is None else snapshot(NOW - age, **data)


@settings(max_examples=3 * settings.default.max_examples)
@given(CLUSTERS, st.sampled_from([None, 0, 300, 301]), st.sampled_from(["open", "closed"]))
def test_the_rules_hold_for_any_cluster(rows, age, fail):
    """Grades are not mixed, scores stay in range, and each grade has its score.

    In an outage all nodes have the grade allocation; with more than half bad, all are neutral. Otherwise bad nodes
    score 0, and measured nodes score exactly as without fallback. Fail-closed makes all other nodes infeasible. Totals
    of many pods at once equal the totals of single pods.
    """
    nodes, received = build(rows, age)
    judgment = FallbackPolicy(fail=fail).judge(nodes, received, NOW)
    grades = set(judgment.grades)
    profile = Profile.of(*PLUGINS[:2])
    prepared = profile.prepare(nodes, judgment)
    scores = prepared.score(pod())
    measured = ~np.isin(judgment.grades.astype(str), ["avoided", "allocation", "neutral", "predicted"])
    assert scores.total.tolist() == prepared.score_many([pod("x"), pod("y")])[1].tolist()
    if received is None or age > 300 or not received.data:
        assert grades == {"allocation"}
    elif "neutral" in grades:
        assert grades == {"neutral"}
    else:
        assert "allocation" not in grades
        assert 2 * judgment.counts()["avoided"] <= len(nodes)
    if fail == "closed":
        assert (scores.total[~measured] == INFEASIBLE).all()
    else:
        assert scores.total.min() >= 0
        assert (scores.total[judgment.grades == "avoided"] == 0).all()
        if grades == {"neutral"}:
            assert len(set(scores.total.tolist())) == 1
    if measured.any():
        plain = profile.score(pod(), nodes, received)
        assert scores.total[measured].tolist() == plain.total[measured].tolist()
    for row, name in enumerate(nodes.names):
        assert scores.explain(name).grade == judgment.grades[row]
        assert bool(judgment.reasons[row]) is not measured[row]


@given(CLUSTERS)
def test_judging_is_pure(rows):
    """Two judgments of the same data have the same grades, and the table is not modified."""
    nodes, received = build(rows, 0)
    version = nodes.version
    policy = FallbackPolicy()
    first, second = policy.judge(nodes, received, NOW), policy.judge(nodes, received, NOW)
    assert first.grades.tolist() == second.grades.tolist()
    assert nodes.version == version


def test_suspect_values_are_not_trusted():
    """A suspect node is avoided unless the policy trusts it; with too many suspect nodes, all are neutral."""
    table = NodeTable([node(name) for name in NAMES])
    data = {name: load(30) for name in NAMES} | {"b": load(5, suspect="frozen,stale")}
    judgment = FallbackPolicy().judge(table, snapshot(**data), NOW)
    assert judgment.grades.tolist() == ["measured", "avoided", "measured", "measured"]
    assert judgment.reasons[1] == "the watcher suspects its values: frozen,stale"
    trusting = FallbackPolicy(trust_suspect=True).judge(table, snapshot(**data), NOW)
    assert trusting.grades.tolist() == ["measured"] * 4
    all_suspect = {name: load(0.5, suspect="wrong_scale") for name in NAMES}
    assert set(FallbackPolicy().judge(table, snapshot(**all_suspect), NOW).grades) == {"neutral"}


@pytest.mark.parametrize("grade", ["neutral", "allocation", "avoided", 7, ["last_good"]])
def test_a_payload_cannot_select_the_fallback_rule(grade):
    """A grade of the fallback itself, or one that is not a string, is ignored in a payload."""
    table = NodeTable([node("a")])
    judgment = FallbackPolicy().judge(table, snapshot(a=load(30, grade=grade)), NOW)
    assert judgment.grades.tolist() == ["measured"]


@pytest.mark.parametrize(
    "wrong",
    [{"fail": "Closed"}, {"fail": None}, {"bad_ratio": 5}, {"bad_ratio": float("nan")}, {"max_age_seconds": -1},
     {"max_age_seconds": float("nan")}, {"settling_seconds": -0.1}],
)  # fmt: skip
def test_an_invalid_policy_is_refused(wrong):
    """A misspelled word or a value out of range raises an error instead of failing open silently."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FallbackPolicy(**wrong)
