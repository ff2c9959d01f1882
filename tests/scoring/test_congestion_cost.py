"""CongestionCost: place pods where congestion rises least."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from runtime.kubernetes.workloads import Owner
from scoring import (
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
from scoring.load.measured_resource import CPU_LOAD
from scoring.plugins.congestion import CongestedResource
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


def test_the_rise_follows_the_formula():
    """The rise is the sum of the formula's terms for CPU and memory, each with its target and power."""
    nodes, metrics = table(), snapshot(a=(40.0, 50.0), b=(60.0, 20.0))
    terms = CongestionCost().explain(pod(), nodes, metrics, "b").terms
    assert terms["cpu.rise"] == pytest.approx(rise(0.6, 0.25, 0.75, 8))
    assert terms["memory.rise"] == pytest.approx(rise(0.2, 0.125, 0.95, 16))
    requested = 0.01 * (0.25**8 + 0.125**8)
    assert terms["stranding"] == pytest.approx((0.25 - 0.125) / (0.25 + 0.125))
    assert terms["rise"] == pytest.approx((terms["cpu.rise"] + terms["memory.rise"] + requested) * 4 ** (1 / 3))


def test_the_smallest_rise_scores_100():
    """Scores fall from 100 to 0 with the logarithm of the rise."""
    nodes, metrics = table("abc"), snapshot(a=(20.0, 0.0), b=(40.0, 0.0), c=(80.0, 0.0))
    total = Profile.of(CongestionCost(CPU_ONLY)).score(pod(), nodes, metrics).total.tolist()
    rises = np.log2([rise(use, 0.25, 0.8, 8) for use in (0.2, 0.4, 0.8)])
    assert total == [100, int(100 * (rises[2] - rises[1]) / (rises[2] - rises[0])), 0]


def test_memory_that_would_run_out_outweighs_idle_cpu():
    """The resource closest to its target decides."""
    nodes, metrics = table(), snapshot(a=(10.0, 85.0), b=(60.0, 30.0))
    assert Profile.of(CongestionCost()).score(pod(cpu=200, memory=GIB), nodes, metrics).best() == "b"


def test_pods_in_flight_count():
    """A pod placed after the window adds its full expected use, a pod placed in the middle of the window half of it."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(50.0, 50.0))
    nodes.add(pod("late"), "a", END + 5)
    nodes.add(pod("half"), "b", (START + END) / 2)
    terms = CongestionCost().prepare(nodes, metrics).terms(pod())
    assert terms["cpu.missing_use"].tolist() == [1000, 500]
    assert terms["cpu.use"].tolist() == [3000, 2500]


def test_a_departed_pod_lowers_use_to_zero_at_most():
    """The use of a departed pod is subtracted from the average, but use never falls below 0."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(10.0, 50.0))
    for name in "ab":
        nodes.add(pod(f"gone-{name}"), name, START - 100)
        nodes.remove(pod(f"gone-{name}"), left_at=float(END))
    assert CongestionCost().prepare(nodes, metrics).terms(pod())["cpu.use"].tolist() == [1000, 0]


def test_levels_set_the_expected_use_of_pods():
    """The expected use of a pod is its request times its owner's level, or times the default level."""
    levels = UseLevels.of({WEB: {"cpu": 0.2}}, {"cpu": 0.5})
    plugin = CongestionCost(learnt=0).with_levels(levels)
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(50.0, 50.0))
    prepared = plugin.prepare(nodes, metrics)
    for owner, use in ((WEB, 200), (BATCH, 500), (None, 500)):
        terms = prepared.terms(pod(owner=owner))
        assert terms["cpu.pod_use"].tolist() == [[use]]
        assert terms["memory.pod_use"].tolist() == [[GIB]]


def test_learned_and_measured_use_are_mixed():
    """The use of a node is the weighted mean of its pods' expected use and the measured use."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(50.0, 50.0))
    nodes.add(pod("old", cpu=3000, owner=WEB), "a", START - 100)
    profile = Profile.of(CongestionCost(CPU_ONLY, learnt=0.25))
    levels = UseLevels.of({WEB: {"cpu": 0.5}})
    terms = profile.prepare(nodes, metrics, levels).score(pod()).plugins["CongestionCost"].terms
    assert terms["cpu.use"].tolist() == [0.75 * 2000 + 0.25 * 1500, 0.75 * 2000]
    without = profile.prepare(nodes, metrics).score(pod()).plugins["CongestionCost"].terms
    assert without["cpu.use"].tolist() == [2000, 2000]


def test_pods_of_the_same_owner_raise_the_cost():
    """Every pod of the same owner on a node raises its cost; crowding 1 ignores owners."""
    nodes, metrics = table(), snapshot(a=(40.0, 10.0), b=(45.0, 10.0))
    nodes.add(pod("first", owner=WEB), "a", START - 100)
    assert Profile.of(CongestionCost()).score(pod(owner=WEB), nodes, metrics).best() == "b"
    assert Profile.of(CongestionCost()).score(pod(owner=BATCH), nodes, metrics).best() == "a"
    assert Profile.of(CongestionCost(crowding=1)).score(pod(owner=WEB), nodes, metrics).best() == "a"
    explained = CongestionCost().explain(pod(owner=WEB), nodes, metrics, "a")
    assert explained.terms["same_owner"] == 1
    assert ", 1 of this owner are there" in explained.line


def test_requests_break_ties_between_equal_loads():
    """The node with the least requests wins at equal load; a pod without requests adds no cost."""
    nodes, metrics = table(), snapshot(a=(40.0, 30.0), b=(40.0, 30.0))
    nodes.add(pod("there", cpu=100, memory=6 * GIB), "a", START - 100)
    terms = CongestionCost().prepare(nodes, metrics).terms(pod())
    rises = 0.01 * ((7 / 8) ** 8 - (6 / 8) ** 8), 0.01 * (1 / 8) ** 8
    assert terms["memory.requested_rise"][0] == pytest.approx(rises)
    assert Profile.of(CongestionCost(stranding=1)).score(pod(), nodes, metrics).best() == "b"
    free = CongestionCost().prepare(nodes, metrics).terms(Pod(name="free"))
    assert free["memory.requested_rise"].tolist() == [[0, 0]]


def test_pods_use_the_room_that_others_leave():
    """A pod of much CPU goes where memory is requested, one of much memory where CPU is, and an even one by load."""
    nodes, metrics = table(cpu=8000), snapshot(a=(45.0, 50.0), b=(40.0, 50.0))
    nodes.add(pod("memory", cpu=1000, memory=6 * GIB), "a", START - 100)
    nodes.add(pod("cpu", cpu=6000, memory=GIB), "b", START - 100)

    def best(cpu, memory, **arguments):
        plugin = CongestionCost(crowding=1, **arguments)
        return Profile.of(plugin).score(pod(cpu=cpu, memory=memory), nodes, metrics).best()

    asked = {"cpu": (200, GIB // 100), "memory": (10, GIB // 5), "even": (200, GIB // 5)}
    assert {name: best(*amounts) for name, amounts in asked.items()} == {"cpu": "a", "memory": "b", "even": "b"}
    assert {name: best(*amounts, stranding=1) for name, amounts in asked.items()} == dict.fromkeys(asked, "b")


def test_stranded_room_counts_alike_for_small_and_large_pods():
    """A pod of a thousandth of the size has the same term: 1 where it only makes, -1 where it only uses such room."""
    nodes, metrics = table(cpu=8000), snapshot(a=(45.0, 50.0), b=(40.0, 50.0))
    nodes.add(pod("memory", cpu=0, memory=6 * GIB), "a", START - 100)
    prepared = CongestionCost().prepare(nodes, metrics)

    def stranding(cpu, memory):
        return prepared.terms(pod(cpu=cpu, memory=memory))["stranding"][0].tolist()

    assert stranding(2000, 0) == [-1, 1]
    assert stranding(0, GIB) == [1, 1]
    assert stranding(2000, 2 * GIB) == pytest.approx([0, 0], abs=1e-5)
    assert stranding(2, 2 * GIB // 1000) == pytest.approx([0, 0], abs=1e-5)
    assert stranding(3000, GIB) == pytest.approx(stranding(6, 2 * GIB // 1000), abs=1e-5)
    assert stranding(0, 0) == stranding(0, 1) == [0, 0]


def test_crowding_depends_on_the_requested_share_of_cpu():
    """Crowding counts the requests of the owner's pods relative to the node's CPU, up to a twentieth of it."""
    amounts = [ResourceList({"cpu": cpu, "memory": 8 * GIB}) for cpu in (4000, 8000, 4000, 4000)]
    nodes = NodeTable(Node(name, each, each) for name, each in zip("abcd", amounts, strict=True))
    for name, cpu in (("a", 160), ("b", 160), ("c", 80), ("d", 800)):
        nodes.add(pod(f"on-{name}", cpu=cpu, owner=WEB), name, START - 100)
    nodes.add(pod("other", cpu=800, owner=BATCH), "c", START - 100)
    terms = CongestionCost(crowding=2).prepare(nodes, snapshot(a=(40.0, 10.0))).terms(pod(owner=WEB))
    assert terms["crowding"][0] == pytest.approx([2**0.8, 2**0.4, 2**0.4, 2])
    nodes.remove(pod("on-a"))
    nodes.add(Pod(name="says-nothing", containers=(Container(),), owner=WEB), "a", START - 100)
    after = CongestionCost(crowding=2).prepare(nodes, snapshot(a=(40.0, 10.0))).terms(pod(owner=WEB))
    assert after["crowding"][0, 0] == pytest.approx(2**0.5)  # 100m for a container without a request


def test_a_workload_on_every_node_is_placed_by_load():
    """A workload with pods on every node is not spread by number: the cool node gets the pod, although it has more."""
    nodes = table(cpu=8000)
    for number in range(8):
        nodes.add(pod(f"web-{number}", cpu=500, memory=GIB // 10, owner=WEB), "a" if number else "b", START - 100)
    scores = Profile.of(CongestionCost()).score(
        pod(cpu=500, memory=GIB // 10, owner=WEB), nodes, snapshot(a=(30.0, 20.0), b=(70.0, 20.0))
    )
    assert scores.best() == "a"


def with_deviation(level=0.5, deviation=0.25):
    """Return levels of half the request, with a deviation of a quarter, for all owners."""
    return UseLevels.of({}, {"cpu": level}, {}, {"cpu": deviation})


def test_deviations_of_one_owner_add_up():
    """The variance of a node's use is the sum of the squared total deviations of each owner's pods."""
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
    """Cached requests of a row match the current pods, for several tables in turn."""
    levels, nodes = UseLevels.of({WEB: {"cpu": 0.2}}), table()
    for name in ("one", "two"):
        nodes.add(pod(name, owner=WEB), "a", START - 100)
    with nodes.transaction() as plan:
        plan.remove(pod("one"))
        plan.add(pod("three", owner=BATCH), "a", START)
        means = [levels.expected_on(each, np.array([0]), "cpu")[0].item() for each in (nodes, plan, nodes)]
    assert means == pytest.approx([400, 1200, 400])
    nodes.remove(pod("two"))
    nodes.remove(pod("three"))
    assert levels.expected_on(nodes, np.array([0]), "cpu")[0] == 0


def test_deviations_give_the_cost_of_a_normal_distribution():
    """The cost is the probability of exceeding the target plus the expected excess, with a minimum deviation."""
    nodes, metrics = table(), snapshot(a=(50.0, 50.0), b=(60.0, 50.0))
    nodes.add(pod("there", owner=WEB), "b", START - 100)
    plugin = CongestionCost(CPU_ONLY, learnt=0).with_levels(with_deviation())
    terms = plugin.prepare(nodes, metrics).terms(pod(owner=WEB))

    def cost(mean, deviation):
        use = norm(mean, np.hypot(deviation, 0.05 * 0.8))
        excess = quad(lambda x: (x - 1) * use.pdf(x), 1, 2)[0]
        return use.sf(0.8) + 5 * excess + 1e-4 * (mean / 0.8) ** 8

    deviation = 0.25 / 4
    expected = [
        cost(0.5 + 0.125, deviation) - cost(0.5, 0),
        cost(0.6 + 0.125, 2 * deviation) - cost(0.6, deviation),
    ]
    assert terms["cpu.rise"][0] == pytest.approx(expected, rel=1e-6)
    assert terms["cpu.deviation"][0] == pytest.approx([1000 * 0.25, 1000 * 0.5])


def test_memory_has_a_smaller_minimum_deviation():
    """At nine tenths of the target, memory costs less than CPU because its minimum deviation is smaller."""
    nodes, metrics = table(), snapshot(a=(67.5, 85.5), b=(10.0, 10.0))
    steady = UseLevels.of({}, {}, {}, {"cpu": 0.0, "memory": 0.0})
    terms = CongestionCost(learnt=0, crowding=1).with_levels(steady).prepare(nodes, metrics).terms(pod())
    costs = terms["cpu.cost"][0], terms["memory.cost"][0]
    assert costs == pytest.approx([norm.sf(0.1 / 0.05), norm.sf(0.1 / 0.03)], rel=0.3)


def test_deviations_spread_the_pods_of_an_owner():
    """Deviations make an owner's pods cost more on the same node; without them, the node with the lowest load wins."""
    nodes, metrics = table(), snapshot(a=(50.0, 10.0), b=(55.0, 10.0))
    nodes.add(pod("first", cpu=2000, owner=WEB), "a", START - 100)
    profile = Profile.of(CongestionCost(learnt=0, crowding=1))
    for deviation, best in ((0.4, "b"), (0.0, "a")):
        prepared = profile.prepare(nodes, metrics, with_deviation(deviation=deviation))
        assert prepared.score(pod(owner=WEB)).best() == best


def test_an_overloaded_node_costs_more_than_a_warm_one():
    """Load far above the target causes throttling, so another pod costs more there than on a node below its target."""
    nodes, metrics = table(), snapshot(a=(100.0, 10.0), b=(60.0, 10.0))
    nodes.add(pod("first", owner=BATCH), "a", END + 5)
    prepared = Profile.of(CongestionCost(learnt=0)).prepare(nodes, metrics, with_deviation())
    assert prepared.score(pod(owner=WEB)).best() == "b"


@pytest.mark.parametrize("deviations", [{}, {"cpu": 0.3}])
def test_a_prepared_profile_follows_its_table(deviations):
    """Scores after changes of pods and nodes equal the scores of a newly prepared profile."""
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
    fresh = profile.prepare(nodes, metrics, levels)
    for owner in (WEB, BATCH):
        assert prepared.score(pod(owner=owner)).ranking() == fresh.score(pod(owner=owner)).ranking()


def test_a_node_without_metrics_scores_0():
    """A node without metrics is left out of the normalization, and its explanation names the reason."""
    nodes, metrics = table("abc"), snapshot(a=(40.0, 10.0), b=(60.0, 10.0))
    scores = Profile.of(CongestionCost()).score(pod(), nodes, metrics)
    assert scores.total.tolist() == [100, 0, 0]
    assert scores.explain("c").parts[0][0].line == "no metrics, so the minimum"


def test_equal_nodes_score_100():
    """All nodes score 100 if congestion rises equally everywhere."""
    nodes, metrics = table(), snapshot(a=(40.0, 10.0), b=(40.0, 10.0))
    assert Profile.of(CongestionCost()).score(pod(), nodes, metrics).total.tolist() == [100, 100]


def test_an_explanation_names_every_resource():
    """The sentence has each resource's utilization, target and cost."""
    nodes, metrics = table(), snapshot(a=(50.0, 25.0), b=(1.0, 1.0))
    line = CongestionCost().explain(pod(), nodes, metrics, "a").line
    assert line.startswith("congestion rises by 1.53: cpu 75.0%")
    assert line.endswith(", stranded room +0.33")
    assert "memory 37.5%" in line


def test_arguments_are_read():
    """A configuration sets resources with target and power, the learned share and crowding."""
    plugin = plugin_from_config(
        "CongestionCost",
        {"resources": [{"name": "cpu", "target": 70, "power": 4}, {"name": "memory"}], "learnt": 0.2, "crowding": 2},
    )
    assert plugin == CongestionCost((CongestedResource(CPU_LOAD, 70.0, 4.0), CongestionCost().resources[1]), 0.2, 2.0)
    assert plugin_from_config("CongestionCost") == CongestionCost()
