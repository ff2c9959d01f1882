"""CongestionCost: where congestion rises least."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from runtime.kubernetes.objects import Owner
from scoring import (
    CPU_LOAD,
    CongestedResource,
    CongestionCost,
    Container,
    Node,
    NodeTable,
    Pod,
    Profile,
    ResourceList,
    UseLevels,
    plugin_from_config,
)
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

GIB = 2**30
START, END = 1000, 1900
CPU_ONLY = (CongestedResource(CPU_LOAD, 80.0, 8.0),)
WEB, BATCH = Owner("ReplicaSet", "web"), Owner("Job", "batch")


def pod(name="pending", cpu=1000, memory=GIB, **fields):
    return Pod(name=name, containers=(Container(ResourceList({"cpu": cpu, "memory": memory})),), **fields)


def table(names="ab", cpu=4000):
    amounts = ResourceList({"cpu": cpu, "memory": 8 * GIB})
    return NodeTable([Node(name, amounts, amounts) for name in names])


def snapshot(**loads):
    data = {
        name: NodeMetrics(
            tuple(Metric("m", kind, "AVG", "15m", value) for kind, value in zip(("CPU", "Memory"), load, strict=True))
        )
        for name, load in loads.items()
    }
    return WatcherMetrics(END, Window("15m", START, END), "test", data)


def rise(use, added, target, power):
    return ((use + added) / target) ** power - (use / target) ** power


def test_the_rise_is_that_of_the_convex_cost():
    """The terms are the formula's, summed over CPU and memory, each with its target and power."""
    nodes, metrics = table(), snapshot(a=(40.0, 50.0), b=(60.0, 20.0))
    terms = CongestionCost().explain(pod(), nodes, metrics, "b").terms
    assert terms["cpu.rise"] == pytest.approx(rise(0.6, 0.25, 0.75, 8))
    assert terms["memory.rise"] == pytest.approx(rise(0.2, 0.125, 0.95, 16))
    requested = 0.01 * (0.25**8 + 0.125**8)
    assert terms["rise"] == pytest.approx(terms["cpu.rise"] + terms["memory.rise"] + requested)


def test_the_smallest_rise_scores_100():
    """Scores go from 100 down to 0 by the logarithm of the rise."""
    nodes, metrics = table("abc"), snapshot(a=(20.0, 0.0), b=(40.0, 0.0), c=(80.0, 0.0))
    total = Profile.of(CongestionCost(CPU_ONLY)).score(pod(), nodes, metrics).total.tolist()
    rises = np.log2([rise(use, 0.25, 0.8, 8) for use in (0.2, 0.4, 0.8)])
    assert total == [100, int(100 * (rises[2] - rises[1]) / (rises[2] - rises[0])), 0]


def test_memory_that_would_run_out_outweighs_idle_cpu():
    """The resource that is closest to its target decides."""
    nodes, metrics = table(), snapshot(a=(10.0, 85.0), b=(60.0, 30.0))
    assert Profile.of(CongestionCost()).score(pod(cpu=200, memory=GIB), nodes, metrics).best() == "b"


def test_pods_in_flight_count():
    """A pod that was placed after the window adds what is expected of it, one from the middle of the window half."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(50.0, 50.0))
    nodes.add(pod("late"), "a", END + 5)
    nodes.add(pod("half"), "b", (START + END) / 2)
    terms = CongestionCost().prepare(nodes, metrics).terms(pod())
    assert terms["cpu.missing_use"].tolist() == [1000, 500]
    assert terms["cpu.use"].tolist() == [3000, 2500]


def test_a_pod_that_left_makes_room_but_no_more_than_is_measured():
    """What left is taken off the average, which never falls below 0 by it."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(10.0, 50.0))
    for name in "ab":
        nodes.add(pod(f"gone-{name}"), name, START - 100)
        nodes.remove(pod(f"gone-{name}"), left_at=float(END))
    assert CongestionCost().prepare(nodes, metrics).terms(pod())["cpu.use"].tolist() == [1000, 0]


def test_levels_say_what_pods_use():
    """With levels a pod is expected to use its request times its owner's level, else times the default."""
    levels = UseLevels.of({WEB: {"cpu": 0.2}}, {"cpu": 0.5})
    plugin = CongestionCost(learnt=0).with_levels(levels)
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(50.0, 50.0))
    prepared = plugin.prepare(nodes, metrics)
    for owner, use in ((WEB, 200), (BATCH, 500), (None, 500)):
        terms = prepared.terms(pod(owner=owner))
        assert terms["cpu.pod_use"].tolist() == [[use]]
        assert terms["memory.pod_use"].tolist() == [[GIB]]


def test_learnt_use_is_mixed_with_what_is_measured():
    """A node's use is a share of what its pods are expected to use, the rest what is measured."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(50.0, 50.0))
    nodes.add(pod("old", cpu=3000, owner=WEB), "a", START - 100)
    profile = Profile.of(CongestionCost(CPU_ONLY, learnt=0.25))
    levels = UseLevels.of({WEB: {"cpu": 0.5}})
    terms = profile.prepare(nodes, metrics, levels).score(pod()).plugins["CongestionCost"].terms
    assert terms["cpu.use"].tolist() == [0.75 * 2000 + 0.25 * 1500, 0.75 * 2000]
    without = profile.prepare(nodes, metrics).score(pod()).plugins["CongestionCost"].terms
    assert without["cpu.use"].tolist() == [2000, 2000]


def test_pods_of_one_owner_keep_apart():
    """Each pod of the same owner that is there makes a node dearer; crowding 1 does not look."""
    nodes, metrics = table(), snapshot(a=(40.0, 10.0), b=(45.0, 10.0))
    nodes.add(pod("first", owner=WEB), "a", START - 100)
    assert Profile.of(CongestionCost()).score(pod(owner=WEB), nodes, metrics).best() == "b"
    assert Profile.of(CongestionCost()).score(pod(owner=BATCH), nodes, metrics).best() == "a"
    assert Profile.of(CongestionCost(crowding=1)).score(pod(owner=WEB), nodes, metrics).best() == "a"
    explained = CongestionCost().explain(pod(owner=WEB), nodes, metrics, "a")
    assert explained.terms["same_owner"] == 1
    assert explained.line.endswith(", 1 of this owner are there")


def test_a_node_that_has_room_for_requests_is_kept_for_later():
    """Of nodes that are as cool, the one with the least requested takes a pod; requests of nothing change nothing."""
    nodes, metrics = table(), snapshot(a=(40.0, 30.0), b=(40.0, 30.0))
    nodes.add(pod("there", cpu=100, memory=6 * GIB), "a", START - 100)
    terms = CongestionCost().prepare(nodes, metrics).terms(pod())
    rises = 0.01 * ((7 / 8) ** 8 - (6 / 8) ** 8), 0.01 * (1 / 8) ** 8
    assert terms["memory.requested_rise"][0] == pytest.approx(rises)
    assert Profile.of(CongestionCost()).score(pod(), nodes, metrics).best() == "b"
    free = CongestionCost().prepare(nodes, metrics).terms(Pod(name="free"))
    assert free["memory.requested_rise"].tolist() == [[0, 0]]


def test_pods_of_an_owner_count_by_what_they_request_of_the_node():
    """A large node may take more of an owner than a small one, and small pods more than large ones."""
    amounts = [ResourceList({"cpu": cpu, "memory": 8 * GIB}) for cpu in (4000, 8000, 4000)]
    nodes = NodeTable(Node(name, each, each) for name, each in zip("abc", amounts, strict=True))
    for name, cpu in (("a", 800), ("b", 800), ("c", 400)):
        nodes.add(pod(f"on-{name}", cpu=cpu, owner=WEB), name, START - 100)
    nodes.add(pod("other", cpu=800, owner=BATCH), "c", START - 100)
    terms = CongestionCost(crowding=2).prepare(nodes, snapshot(a=(40.0, 10.0))).terms(pod(owner=WEB))
    assert terms["crowding"][0] == pytest.approx([2**4, 2**2, 2**2])
    nodes.remove(pod("on-a"))
    nodes.add(Pod(name="says-nothing", containers=(Container(),), owner=WEB), "a", START - 100)
    again = CongestionCost(crowding=2).prepare(nodes, snapshot(a=(40.0, 10.0))).terms(pod(owner=WEB))
    assert again["crowding"][0, 0] == pytest.approx(2**0.5)  # 100m, as kube-scheduler spreads it


def certain(level=0.5, deviation=0.25):
    """Return levels with deviations: everybody uses half of the request, give or take a quarter."""
    return UseLevels.of({}, {"cpu": level}, {}, {"cpu": deviation})


def test_deviations_of_one_owner_add_up():
    """What the pods on a node use has the sum of their means, and the squares of each owner's summed deviations."""
    levels = UseLevels.of({WEB: {"cpu": 0.2}}, {"cpu": 0.5}, {WEB: {"cpu": 0.1}}, {"cpu": 0.3})
    nodes = table()
    for name, owner in (("one", WEB), ("two", WEB), ("three", BATCH), ("four", None)):
        nodes.add(pod(name, owner=owner), "a", START - 100)
    nodes.add_nodes(table("b").nodes)
    rows = np.array([1, 0])
    mean, variance = levels.expected_on(nodes, rows, "cpu")
    assert mean == pytest.approx([0, 2 * 200 + 2 * 500])
    assert variance == pytest.approx([0, (100 + 100) ** 2 + 300**2 + 300**2])
    mean, variance = levels.expected_on(nodes, rows, "memory")
    assert mean == pytest.approx([0, nodes.requests("memory")[0]])
    assert (variance == 0).all()
    assert [len(each) for each in levels.expected_on(nodes, rows[:0], "cpu")] == [0, 0]


def test_levels_follow_the_pods_of_a_node():
    """What is kept of a row is that of the pods that are there, whichever table it was asked for last."""
    levels, nodes = UseLevels.of({WEB: {"cpu": 0.2}}), table()
    for name in ("one", "two"):
        nodes.add(pod(name, owner=WEB), "a", START - 100)
    with nodes.transaction() as plan:
        plan.remove(pod("one"))
        plan.add(pod("three", owner=BATCH), "a", START)
        seen = [levels.expected_on(each, np.array([0]), "cpu")[0].item() for each in (nodes, plan, nodes)]
    assert seen == pytest.approx([400, 1200, 400])
    nodes.remove(pod("two"))
    nodes.remove(pod("three"))
    assert levels.expected_on(nodes, np.array([0]), "cpu")[0] == 0


def test_with_deviations_the_cost_is_what_to_expect_of_a_normal_use():
    """It is how likely use is above the target, and what is above capacity; nothing is surer than a twentieth."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(60.0, 50.0))
    nodes.add(pod("there", owner=WEB), "b", START - 100)
    plugin = CongestionCost(CPU_ONLY, learnt=0).with_levels(certain())
    terms = plugin.prepare(nodes, metrics).terms(pod(owner=WEB))

    def cost(mean, deviation):
        use = norm(mean, np.hypot(deviation, 0.05 * 0.8))
        excess = quad(lambda x: (x - 1) * use.pdf(x), 1, 2)[0]
        return use.sf(0.8) + 5 * excess + 1e-4 * (mean / 0.8) ** 8

    own = 0.25 / 4
    expected = [cost(0.5 + 0.125, own) - cost(0.5, 0), cost(0.6 + 0.125, 2 * own) - cost(0.6, own)]
    assert terms["cpu.rise"][0] == pytest.approx(expected, rel=1e-6)
    assert terms["cpu.deviation"][0] == pytest.approx([1000 * 0.25, 1000 * 0.5])


def test_memory_is_surer_than_cpu():
    """A node at nine tenths of its target for memory will do; one at nine tenths of its target for CPU may be hot."""
    nodes, metrics = table(), snapshot(a=(67.5, 85.5), b=(10.0, 10.0))
    steady = UseLevels.of({}, {}, {}, {"cpu": 0.0, "memory": 0.0})
    terms = CongestionCost(learnt=0, crowding=1).with_levels(steady).prepare(nodes, metrics).terms(pod())
    costs = terms["cpu.cost"][0], terms["memory.cost"][0]
    assert costs == pytest.approx([norm.sf(0.1 / 0.05), norm.sf(0.1 / 0.03)], rel=0.3)


def test_pods_that_stray_together_keep_apart():
    """With deviations an owner's pods are dearer together, and steady ones go where it is coolest."""
    nodes, metrics = table(), snapshot(a=(50.0, 10.0), b=(55.0, 10.0))
    nodes.add(pod("first", cpu=2000, owner=WEB), "a", START - 100)
    profile = Profile.of(CongestionCost(learnt=0, crowding=1))
    for deviation, best in ((0.4, "b"), (0.0, "a")):
        prepared = profile.prepare(nodes, metrics, certain(deviation=deviation))
        assert prepared.score(pod(owner=WEB)).best() == best


def test_a_node_that_is_hot_anyway_takes_no_more():
    """More on a node far above its target makes it throttle, so it is dearer than on one that may become hot."""
    nodes, metrics = table(), snapshot(a=(100.0, 10.0), b=(60.0, 10.0))
    nodes.add(pod("first", owner=BATCH), "a", END + 5)
    prepared = Profile.of(CongestionCost(learnt=0)).prepare(nodes, metrics, certain())
    assert prepared.score(pod(owner=WEB)).best() == "b"


@pytest.mark.parametrize("deviations", [{}, {"cpu": 0.3}])
def test_it_follows_its_table(deviations):
    """After pods come and go, and nodes join and leave, scores are those of a plugin prepared anew."""
    nodes, metrics = table("abc"), snapshot(a=(40.0, 10.0), b=(45.0, 10.0), c=(20.0, 60.0), d=(5.0, 5.0))
    profile = Profile.of(CongestionCost())
    levels = UseLevels.of({WEB: {"cpu": 0.3, "memory": 0.7}}, {"cpu": 0.4}, {}, deviations)
    prepared = profile.prepare(nodes, metrics, levels)
    prepared.score(pod())
    nodes.add(pod("one", owner=WEB), "c", END - 100)
    nodes.add(pod("two", owner=WEB), "a", END + 100)
    nodes.add_nodes(table("d").nodes)
    nodes.remove_nodes(["b"])
    nodes.remove(pod("one"), left_at=float(END))
    again = profile.prepare(nodes, metrics, levels)
    for owner in (WEB, BATCH):
        assert prepared.score(pod(owner=owner)).ranking() == again.score(pod(owner=owner)).ranking()


def test_a_node_without_metrics_scores_0_and_moves_nobody():
    """It has no part in the normalization, and an explanation says why."""
    nodes, metrics = table("abc"), snapshot(a=(40.0, 10.0), b=(60.0, 10.0))
    scores = Profile.of(CongestionCost()).score(pod(), nodes, metrics)
    assert scores.total.tolist() == [100, 0, 0]
    assert scores.explain("c").parts[0][0].line == "no metrics, so the minimum"


def test_equal_nodes_score_alike():
    """When every node's congestion rises equally all score 100."""
    nodes, metrics = table(), snapshot(a=(40.0, 10.0), b=(40.0, 10.0))
    assert Profile.of(CongestionCost()).score(pod(), nodes, metrics).total.tolist() == [100, 100]


def test_an_explanation_names_every_resource():
    """The sentence says how full each resource would be, its target and what it costs."""
    nodes, metrics = table(), snapshot(a=(50.0, 25.0), b=(1.0, 1.0))
    line = CongestionCost().explain(pod(), nodes, metrics, "a").line
    assert line.startswith("congestion rises by 0.961: cpu 75.0% of capacity with the pod, target 75%, rises by 0.961")
    assert "memory 37.5% of capacity with the pod, target 95%" in line


def test_arguments_are_read():
    """Resources with target and power, the learnt share and crowding come from a configuration."""
    plugin = plugin_from_config(
        "CongestionCost",
        {"resources": [{"name": "cpu", "target": 70, "power": 4}, {"name": "memory"}], "learnt": 0.2, "crowding": 2},
    )
    assert plugin == CongestionCost((CongestedResource(CPU_LOAD, 70.0, 4.0), CongestionCost().resources[1]), 0.2, 2.0)
    assert plugin_from_config("CongestionCost") == CongestionCost()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"resources": [{"name": "cpu", "target": 0}]}, r"resources\[0\]\.target: must be above 0 and at most 100"),
        ({"resources": [{"name": "cpu", "power": 0.5}]}, r"resources\[0\]\.power: must be from 1 to 64, got 0\.5"),
        ({"resources": [{"name": "pods"}]}, r"resources\[0\]\.name: 'pods' has no measured load"),
        ({"resources": [{"name": "cpu"}, {"name": "cpu"}]}, r"resources\[1\]\.name: cpu is listed twice"),
        ({"learnt": 1.5}, r"CongestionCostArgs\.learnt: must be at most 1, got 1\.5"),
        ({"crowding": 0}, r"CongestionCostArgs\.crowding: must be from 1 to 1000, got 0"),
    ],
)
def test_arguments_without_meaning_are_refused(arguments, said):
    """The message starts with the argument's name."""
    with pytest.raises(ValueError, match=said):
        plugin_from_config("CongestionCost", arguments)
