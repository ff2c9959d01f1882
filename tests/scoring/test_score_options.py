"""Examples of the upstream proposals, and options that upstream does not have, all off by default."""

import numpy as np
import pytest

from scoring import (
    Container,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    Node,
    NodeTable,
    Peaks,
    Pod,
    PowerModel,
    Profile,
    ResourceList,
    TargetLoadPacking,
    plugin_from_config,
)
from scoring.load import measured_distribution
from scoring.load.measured_resource import CPU_LOAD, DISK_LOAD, GPU_LOAD, NETWORK_LOAD
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

GIB = 2**30


def node(name, cpu=4000, memory=8 * GIB, **more):
    amounts = ResourceList({"cpu": cpu, "memory": memory, **more})
    return Node(name, amounts, amounts)


def pod(requests=None, limits=None, name="pending", **fields):
    container = Container(ResourceList(requests or {}), ResourceList(limits or {}))
    return Pod(name=name, containers=(container,), **fields)


def snapshot(**by_node):
    data = {
        name: NodeMetrics(
            tuple(Metric("m", kind, operator, "15m", value) for (kind, operator), value in metrics.items())
        )
        for name, metrics in by_node.items()
    }
    return WatcherMetrics(900, Window("15m", 0, 900), "test", data)


def cpu(average, deviation=0.0, **percentiles):
    return {
        ("CPU", "AVG"): average,
        ("CPU", "STD"): deviation,
        **{("CPU", operator): value for operator, value in percentiles.items()},
    }


def test_kep_example_of_target_load_packing():
    """KEP 61's example gives 75, 100 and 25: target 50, one, two and three of four cores in use, an empty pod."""
    nodes = NodeTable([node("n1"), node("n2"), node("n3")])
    loads = snapshot(n1=cpu(25.0), n2=cpu(50.0), n3=cpu(75.0))
    assert TargetLoadPacking(50).score(Pod(), nodes, loads).tolist() == [75, 100, 25]


def kep_loads():
    def metrics(m_cpu, v_cpu, m_memory, v_memory):
        return {
            ("CPU", "AVG"): 100 * m_cpu / 4,
            ("CPU", "STD"): 100 * v_cpu / 4,
            ("Memory", "AVG"): 100 * m_memory / 8,
            ("Memory", "STD"): 100 * v_memory / 8,
        }

    return snapshot(n1=metrics(0.8, 3.2, 1.6, 4.8), n2=metrics(2.0, 0.04, 6.4, 0.004), n3=metrics(1.2, 0.4, 3.2, 0.4))


def test_kep_example_of_load_variation():
    """KEP 61's formula gives the scores of its example: 0, 7 and 43."""
    nodes = NodeTable([node("n1"), node("n2"), node("n3")])
    plugin = LoadVariationRiskBalancing(formula="kep")
    pending = pod({"cpu": 500, "memory": GIB})
    assert plugin.score(pending, nodes, kep_loads()).tolist() == [0, 7, 43]
    assert Profile.of(plugin).score(pending, nodes, kep_loads()).best() == "n3"


def test_kep_margin_multiplies_the_deviation():
    """The proposal's margin is a factor on the deviation; with 0, only the load counts."""
    nodes = NodeTable([node("n1"), node("n2"), node("n3")])
    plugin = LoadVariationRiskBalancing(safe_variance_margin=0, formula="kep")
    assert plugin.score(Pod(), nodes, kep_loads()).tolist() == [80, 20, 60]


@pytest.mark.parametrize(
    ("balance", "scores"),
    [
        ("risk", [75, 70]),  # (40 + 10) / 2 and (20 + 40) / 2
        ("load", [60, 80]),
        ("variability", [90, 60]),
        ("relative-variability", [75, 0]),  # 10 / 40; 40 / 20 is capped at 1
    ],
)
def test_four_ways_to_balance(balance, scores):
    """Each value of ``balance`` selects load, variability, relative variability or the risk from both."""
    nodes = NodeTable([node("steady"), node("jumpy")])
    loads = snapshot(steady=cpu(40.0, 10.0), jumpy=cpu(20.0, 40.0))
    assert LoadVariationRiskBalancing(balance=balance).score(Pod(), nodes, loads).tolist() == scores


def test_load_variation_by_percentile():
    """The deviation is computed from the percentile if the node has it, else from STD."""
    nodes = NodeTable([node("tail"), node("plain")])
    loads = snapshot(tail=cpu(20.0, 1.0, P95=20 + 1.6448536269514722 * 30), plain=cpu(20.0, 30.0))
    scores = LoadVariationRiskBalancing(percentile="P95").score(Pod(), nodes, loads)
    assert scores.tolist() == [75, 75]


def test_target_load_packing_by_requests():
    """With ``predict_from="requests"``, a high limit does not raise a pod's predicted use."""
    nodes = NodeTable([node("n")])
    loads = snapshot(n=cpu(0.0))
    generous = pod({"cpu": 400}, {"cpu": 4000})
    terms = [
        TargetLoadPacking(predict_from=source).explain(generous, nodes, loads, "n").terms["predicted_use"]
        for source in ("limits", "requests")
    ]
    assert terms == [4000, 600]
    limit_only = TargetLoadPacking(predict_from="requests").predicted_use(pod({}, {"cpu": 700}))
    assert limit_only == 700


def test_target_load_packing_on_memory():
    """Packing on memory uses Memory metrics, memory capacity and memory requests."""
    nodes = NodeTable([node("n", memory=8 * GIB)])
    loads = snapshot(n={("CPU", "AVG"): 99.0, ("Memory", "AVG"): 25.0})
    plugin = TargetLoadPacking(50, resource="memory")
    assert plugin.score(pod({}, {"memory": 2 * GIB}), nodes, loads).tolist() == [100]


def test_target_load_packing_by_percentile():
    """The percentile replaces the average; a node without it keeps the average."""
    nodes = NodeTable([node("bursty"), node("plain")])
    loads = snapshot(bursty=cpu(10.0, P95=40.0), plain=cpu(40.0))
    assert TargetLoadPacking(percentile="P95").score(Pod(), nodes, loads).tolist() == [100, 100]


def test_assumed_pods_count_until_they_are_measured():
    """An assumed pod adds its predicted use, a pod bound long before the window's end does not."""
    nodes = NodeTable([node("n")])
    loads = snapshot(n=cpu(0.0))
    new = pod({}, {"cpu": 1000}, name="new")
    plugin = TargetLoadPacking(50)
    nodes.assume(new, "n")
    assert plugin.score(Pod(), nodes, loads).tolist() == [75]
    for scheduled_at, score in ((841.0, 75), (840.0, 50), (840.9, 50)):
        nodes.add(pod({}, {"cpu": 1000}, name="new", scheduled_at=scheduled_at), "n")
        assert plugin.score(Pod(), nodes, loads).tolist() == [score]


def test_low_risk_from_measured_percentiles():
    """The load's risk follows from the percentiles: use exceeds the requests 5 percent of the time."""
    nodes = NodeTable([node("n")], [pod({"cpu": 2000}, {"cpu": 4000}, name="old", node_name="n")])
    loads = snapshot(n=cpu(20.0, 1.0, P90=40.0, P95=50.0, P99=80.0, MAX=90.0))
    plugin = LowRiskOverCommitment(distribution="measured", resources=(CPU_LOAD,))
    terms = plugin.explain(pod({"cpu": 100}, {"cpu": 100}), nodes, loads, "n").terms
    assert terms["cpu.risk_load"] == pytest.approx(0.05)
    assert LowRiskOverCommitment().explain(pod({"cpu": 1}), nodes, loads, "n").terms["cpu.risk_load"] < 1e-6


def test_peaks_with_missing_worst():
    """With ``missing="worst"``, unmeasured, unmodeled and full nodes score 0, while upstream gives them 100."""
    nodes = NodeTable([node("cheap"), node("dear"), node("silent"), node("full"), node("unmodeled")])
    models = {
        name: PowerModel(100, 10, k2)
        for name, k2 in (("cheap", 0.01), ("dear", 0.03), ("silent", 0.01), ("full", 0.01))
    }
    loads = snapshot(cheap=cpu(20.0), dear=cpu(20.0), full=cpu(99.0), unmodeled=cpu(20.0))
    pending = pod({"cpu": 400})
    upstream = Profile.of(Peaks(models)).score(pending, nodes, loads)
    worst = Profile.of(Peaks(models, missing="worst")).score(pending, nodes, loads)
    assert upstream.total[2:].tolist() == [100, 100, 100]
    assert worst.total.tolist() == [100, 0, 0, 0, 0]
    assert "best node" in upstream.explain("silent").parts[0][0].line
    for name, reason in (("silent", "no CPU metric"), ("full", "over 100%"), ("unmodeled", "no power model")):
        assert reason in str(worst.explain(name))


def test_peaks_with_missing_worst_and_no_valid_node():
    """All nodes score 0 if none can be scored; a single valid node scores 100."""
    nodes = NodeTable([node("a"), node("b")])
    plugin = Peaks({"a": PowerModel(1, 1, 0.01)}, missing="worst")
    assert Profile.of(plugin).score(Pod(), nodes, snapshot()).total.tolist() == [0, 0]
    assert Profile.of(plugin).score(Pod(), nodes, snapshot(a=cpu(1.0))).total.tolist() == [100, 0]


@pytest.mark.parametrize(
    ("load", "kind", "resource"),
    [
        (GPU_LOAD, "GPU", "nvidia.com/gpu"),
        (NETWORK_LOAD, "Bandwidth", "trimaran.io/network"),
        (DISK_LOAD, "Storage", "trimaran.io/disk"),
    ],
)
@pytest.mark.parametrize("plugin", [LoadVariationRiskBalancing, LowRiskOverCommitment])
def test_other_resources_count_like_cpu(plugin, load, kind, resource):
    """GPU, network and disk give exactly the score of CPU with the same amounts."""
    scores = []
    for measured, metric, name in ((CPU_LOAD, "CPU", "cpu"), (load, kind, resource)):
        amounts = ResourceList({name: 8000})
        running = pod({name: 3000}, {name: 6000}, name="old", node_name="n")
        nodes = NodeTable([Node("n", amounts, amounts)], [running])
        loads = snapshot(n={(metric, "AVG"): 60.0, (metric, "STD"): 8.0})
        pending = pod({name: 1000}, {name: 5000})
        scores.append(plugin(resources=(measured,)).score(pending, nodes, loads).tolist())
    assert scores[0] == scores[1]
    assert 0 < scores[0][0] < 100


def test_demand_from_an_annotation():
    """Annotations of a pod and a node set demand and capacity of resources that Kubernetes does not have."""
    annotated = {"annotations": {"trimaran.io/network": "250M"}}
    described = {"metadata": {"name": "n", "annotations": {"trimaran.io/network": "1G"}}, "status": {}}
    nodes = NodeTable.from_k8s([described])
    pending = Pod.from_k8s({"metadata": {"name": "p", **annotated}, "spec": {"containers": []}})
    loads = snapshot(n={("Bandwidth", "AVG"): 25.0})
    assert LoadVariationRiskBalancing(resources=(NETWORK_LOAD,)).score(pending, nodes, loads).tolist() == [75]
    nodes.assume(pending, "n")
    assert nodes.requests("trimaran.io/network").tolist() == [250_000_000]


def test_a_measured_distribution_is_linear_between_the_percentiles():
    """Half of the use is below the mean; above the maximum there is none."""
    points = {"P90": 0.4, "P95": 0.5, "P99": 0.8, "MAX": 0.9}
    measured = {name: np.array([value]) for name, value in points.items()}
    at_most = [
        float(measured_distribution.probability_at_most(np.array([0.2]), measured, np.array([threshold]))[0])
        for threshold in (0.1, 0.2, 0.45, 0.5, 0.85, 0.9, 1.0)
    ]
    assert at_most == pytest.approx([0.25, 0.5, 0.925, 0.95, 0.995, 1.0, 1.0])


def test_a_measured_distribution_without_a_maximum_decays():
    """Beyond the last percentile the tail decays at the rate of the last two percentiles."""
    measured = {
        name: np.array([value]) for name, value in {"P90": 0.4, "P95": np.nan, "P99": 0.6, "MAX": np.nan}.items()
    }
    at_most = measured_distribution.probability_at_most(np.array([0.2]), measured, np.array([0.8]))
    assert 1 - at_most == pytest.approx([0.001])


def test_target_load_packing_by_several_resources():
    """The score is the mean by weight over the measured resources of the node, and the explanation lists them."""
    amounts = ResourceList({"cpu": 4000, "memory": 4 << 30})
    table = NodeTable(Node(name, amounts, amounts) for name in ("both", "cpu-only", "dark"))
    cpu, memory = (Metric("m", kind, "AVG", "15m", value) for kind, value in (("CPU", 25.0), ("Memory", 75.0)))
    data = {"both": NodeMetrics((cpu, memory)), "cpu-only": NodeMetrics((cpu,))}
    loads = WatcherMetrics(900, Window("15m", 0, 900), "test", data)
    written = {"targetUtilization": 50, "resources": [{"name": "cpu", "weight": 3}, {"name": "memory"}]}
    plugin = plugin_from_config("TargetLoadPacking", written)
    assert plugin.score(Pod(name="empty"), table, loads).tolist() == [(3 * 75 + 25 + 2) // 4, 75, 0]
    line = plugin.explain(Pod(name="empty"), table, loads, "both").line
    assert "cpu (weight 3) scores 75.0" in line
    assert "memory (weight 1) scores 25.0" in line
    assert TargetLoadPacking(50).score(Pod(), table, loads).tolist() == [75, 75, 0]
    with pytest.raises(ValueError, match=r"TargetLoadPackingArgs\.resources\[0\]\.name: "):
        plugin_from_config("TargetLoadPacking", {"resources": [{"name": "pods"}]})
