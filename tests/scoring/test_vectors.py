"""Reference vectors: our scores equal those of the Go plugins. tests/data/vectors/README.md describes the fields."""

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from runtime.kubernetes import pod_demand
from runtime.kubernetes.pod_demand import RequestCache
from scoring import (
    Container,
    ImageLocality,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    Node,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeTable,
    Peaks,
    Pod,
    PowerModel,
    ResourceList,
    TargetLoadPacking,
    beta_distribution,
    plugin_from_config,
)
from scoring.go_math import round_half_away
from scoring.load.measured_resource import CPU_LOAD, MEMORY_LOAD
from scoring.plugins.image_locality import normalized_image_name
from scoring.plugins.node_resources_fit import ResourceWeight, ShapePoint, broken_linear
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

VECTORS = Path(__file__).parents[1] / "data" / "vectors"
NAN_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read(name):
    plain = VECTORS / f"{name}.jsonl"
    text = (
        plain.read_text() if plain.exists() else gzip.decompress((VECTORS / f"{name}.jsonl.gz").read_bytes()).decode()
    )
    return [json.loads(line) for line in text.splitlines()]


def of_function(name, *functions):
    return [row for row in read(name) if row.get("fn") in functions]


def upstream(plugin, *functions):
    return [row for row in of_function("upstream_tables", *functions) if row["plugin"] == plugin]


def with_valid_arguments(rows):
    """Return the rows whose arguments a plugin accepts: upstream, too, replaces or refuses negative arguments."""
    names = ("safeVarianceMargin", "safeVarianceSensitivity", "defaultRequestsMultiplier")
    return [row for row in rows if min(float(row["args"].get(name, 0)) for name in names) >= 0]


def for_each_row(rows):
    assert rows
    return pytest.mark.parametrize("row", rows, ids=[row["case"] for row in rows])


def containers(described):
    return tuple(
        Container(requests=ResourceList(c.get("requests")), limits=ResourceList(c.get("limits"))) for c in described
    )


def pod_of(described, name="pending"):
    return Pod(
        name=name,
        containers=containers(described["containers"]),
        init_containers=containers(described.get("init_containers", ())),
        overhead=ResourceList(described.get("overhead")),
    )


def node_of(row):
    described = row["node"]
    return Node(described["name"], ResourceList(described["capacity"]), ResourceList(described["allocatable"]))


def metrics_of(row, nodes):
    data = {}
    if "state" not in row:  # no data, another node's data, and a null list all leave the node without an entry
        metrics = [
            Metric(f"m{i}", m["type"], m["operator"], m.get("rollup", ""), m["value"])
            for i, m in enumerate(row["metrics"])
        ]
        data[row["node"]["name"]] = NodeMetrics(tuple(metrics))
    elif row["state"] == "node_absent":
        data["another-node"] = NodeMetrics((Metric("m", "CPU", "AVG", "", 50.0),))
    window = row.get("window", {"duration": "15m", "start": 0, "end": 900})
    snapshot = WatcherMetrics(window["end"], Window(**window), "vectors", data)
    return MetricsTable.align(snapshot, nodes, as_received=True)


def explain(plugin, row):
    """Score the row's node by score and by explain, compare the two, and return the explanation."""
    nodes = NodeTable([node_of(row)])
    for index, described in enumerate(row.get("node_pods", ())):
        nodes.add(pod_of(described, f"running-{index}"), node_of(row).name)
    for index, assigned in enumerate(row.get("assigned", ())):
        pod = pod_of(assigned["pod"], f"assigned-{index}")
        nodes.add(pod, node_of(row).name, placed_at=assigned["timestamp"])
    pod, metrics = pod_of(row["pod"]), metrics_of(row, nodes)
    explanation = plugin.explain(pod, nodes, metrics, row["node"]["name"])
    assert plugin.score(pod, nodes, metrics).tolist() == [explanation.score]
    assert explanation.line
    return explanation


def number(expected):
    return NAN_WORDS.get(expected, expected)


def close(expected, tolerance=2e-13):
    return pytest.approx(number(expected), rel=tolerance, abs=tolerance, nan_ok=True)


def tolerance_of_probability(shapes):
    """Return the difference allowed between two implementations of the incomplete beta function, by alpha + beta."""
    if shapes >= 1e6:
        return 1.0
    return 1e-11 if shapes < 1e4 else 1e-9


@for_each_row(with_valid_arguments(read("lvrb") + upstream("LoadVariationRiskBalancing", None)))
def test_load_variation_risk_balancing(row):
    """The score and every intermediate value equal upstream's."""
    args, expected = row["args"], row["expected"]
    plugin = LoadVariationRiskBalancing(args["safeVarianceMargin"], args["safeVarianceSensitivity"])
    explanation = explain(plugin, row)
    assert explanation.score == expected["score"]
    for resource in ("cpu", "memory"):
        assert explanation.terms[f"{resource}.valid"] == (resource in expected)
        if resource in expected:
            stats = expected[resource]
            assert explanation.terms[f"{resource}.allocatable"] == stats["capacity"]
            assert explanation.terms[f"{resource}.request"] == stats["req"]
            for ours, theirs in (("average_use", "used_avg"), ("deviation_use", "used_stdev")):
                assert explanation.terms[f"{resource}.{ours}"] == max(min(stats[theirs], stats["capacity"]), 0)
            assert explanation.terms[f"{resource}.score"] == close(stats["score"])
            for name in ("mu", "sigma", "risk"):
                if name in stats:
                    assert explanation.terms[f"{resource}.{name}"] == close(stats[name])


@for_each_row(with_valid_arguments(read("lvrb_compute_score") + upstream("LoadVariationRiskBalancing", "computeScore")))
def test_load_variation_risk_balancing_of_statistics(row):
    """The formula alone equals upstream's computeScore for any finite statistics."""
    stats, expected = row["args"]["stats"], row["expected"]
    plugin = LoadVariationRiskBalancing(row["args"]["safeVarianceMargin"], row["args"]["safeVarianceSensitivity"])
    capacity = np.array([stats["capacity"]])
    deviation = np.maximum(np.minimum(stats["used_stdev"], capacity), 0)
    average = np.maximum(np.minimum(stats["used_avg"], capacity), 0)
    mu, sigma = plugin.mu(average, np.array([stats["req"]]), capacity), plugin.sigma(deviation, capacity)
    raw = (1 - (mu + sigma) / 2) * 100 if capacity > 0 else np.zeros(1)
    assert round_half_away(raw) == expected["score"]
    assert raw == close(expected["raw"])


@for_each_row(with_valid_arguments(read("tlp") + upstream("TargetLoadPacking", None)))
def test_target_load_packing(row):
    """The score and every intermediate value equal upstream's."""
    args, expected = row["args"], row["expected"]
    default = args["defaultRequests"].get("cpu", 0)
    plugin = TargetLoadPacking(args["targetUtilization"], default, float(args["defaultRequestsMultiplier"]))
    explanation = explain(plugin, row)
    assert explanation.score == expected["score"]
    for ours, theirs in {
        "predicted_use": "pod_cpu_milli",
        "measured_use": "node_util_milli",
        "missing_use": "missing_milli",
        "predicted_percent": "predicted_percent",
    }.items():
        if theirs in expected:
            assert explanation.terms[ours] == expected[theirs]


def low_risk(args):
    return LowRiskOverCommitment(args["smoothingWindowSize"], args.get("riskLimitWeights", {}))


@for_each_row(read("lroc") + upstream("LowRiskOverCommitment", None))
def test_low_risk_over_commitment(row):
    """Sums, fit, risks and score equal upstream's.

    Resources whose distribution is too narrow for upstream's incomplete beta function (alpha + beta >= 1e6: its series
    stops after 300 terms) are compared up to the fit; test_narrow_beta_distribution covers them.
    """
    expected = row["expected"]
    explanation = explain(low_risk(row["args"]), row)
    terms = explanation.terms
    narrow = False
    for resource in ("cpu", "memory"):
        if "node_requests" in expected:
            assert terms[f"{resource}.request"] == expected["node_requests"][resource]
            assert terms[f"{resource}.limit"] == expected["node_limits"][resource]
            assert terms[f"{resource}.request_minus_pod"] == expected["node_requests_minus_pod"][resource]
            assert terms[f"{resource}.limit_minus_pod"] == expected["node_limits_minus_pod"][resource]
        risks = expected.get(resource, {})
        shapes = number(risks.get("alpha", 0)) + number(risks.get("beta", 0))
        narrow |= shapes >= 1e6
        for ours, theirs, tolerance in (
            ("risk_limit", "risk_limit", 0),
            ("mu", "mu", 2e-13),
            ("sigma", "sigma", 2e-13),
            ("threshold", "alloc_threshold", 0),
            ("alpha", "alpha", 1e-9),
            ("beta", "beta", 1e-9),
            ("probability", "alloc_prob", tolerance_of_probability(shapes)),
            ("risk_load", "risk_load", tolerance_of_probability(shapes)),
            ("risk", "risk", tolerance_of_probability(shapes)),
        ):
            if theirs in risks:
                assert terms[f"{resource}.{ours}"] == close(risks[theirs], tolerance), ours
    assert narrow == expected.get("large_shape", False)
    if not narrow:
        assert explanation.score == expected["score"]


@for_each_row(upstream("LowRiskOverCommitment", "computeRisk"))
def test_low_risk_over_commitment_risk(row):
    """One resource's risk equals upstream's computeRisk for given sums."""
    args, resource, expected = row["args"], row["args"]["resource"], row["expected"]
    nodes = NodeTable([node_of(row)])

    def amounts(name):
        return ResourceList({resource: args[name][resource]})

    def difference(name):
        return ResourceList({resource: args[name][resource] - args[f"{name}_minus_pod"][resource]})

    running = Container(amounts("node_requests_minus_pod"), amounts("node_limits_minus_pod"))
    nodes.add(Pod(name="running", containers=(running,)), "node-A")
    pending = Pod(name="pending", containers=(Container(difference("node_requests"), difference("node_limits")),))
    load = {"cpu": CPU_LOAD, "memory": MEMORY_LOAD}[resource]
    plugin = LowRiskOverCommitment(args["smoothingWindowSize"], args["riskLimitWeights"], (load,))
    terms = plugin.explain(pending, nodes, metrics_of(row, nodes), "node-A").terms
    assert terms[f"{resource}.risk_limit"] == expected["risk_limit"]
    assert terms[f"{resource}.risk_load"] == expected["risk_load"]
    assert terms[f"{resource}.risk"] == expected["risk"]


@for_each_row(
    of_function("beta", "ComputeProbability", "MatchMoments", "DistributionFunction", "GetMaxVariance")
    + upstream("LowRiskOverCommitment", "MatchMoments", "DistributionFunction", "GetMaxVariance")
)
def test_beta_distribution(row):
    """Fit, distribution and limits equal upstream's, except where upstream truncates its series (large shapes)."""
    args, expected = row["args"], row["expected"]
    if row["fn"] == "GetMaxVariance":
        assert beta_distribution.max_variance(args["m1"]) == expected["value"]
    elif row["fn"] == "DistributionFunction":
        p = beta_distribution.distribution(args["alpha"], args["beta"], args["x"])
        assert p == close(expected["p"], 1e-9)
    elif row["fn"] == "MatchMoments":
        fit = beta_distribution.match_moments(args["m1"], args["m2"])
        assert bool(fit.fitted) == expected["ok"]
        if expected["ok"]:
            assert (float(fit.alpha), float(fit.beta)) == (close(expected["alpha"]), close(expected["beta"]))
    else:
        p, fit = beta_distribution.probability_at_most(args["mu"], args["sigma"], args["threshold"])
        assert bool(fit.fitted) == expected["fitted"]
        shapes = 0.0
        if expected["fitted"]:
            assert (float(fit.alpha), float(fit.beta)) == (close(expected["alpha"]), close(expected["beta"]))
            shapes = float(fit.alpha + fit.beta)
        tolerance = 1e-7 if row["tag"] == "edge:small_shape" else tolerance_of_probability(shapes)
        assert float(p) == close(expected["p"], tolerance)


def test_narrow_beta_distribution():
    """The distribution approximates the normal distribution where upstream truncates its series."""
    sigmas = np.array([1e-4, 1e-5, 1e-6])[:, None]
    for mu in (0.1, 0.5, 0.9):
        z = np.linspace(-3, 3, 13)
        p, fit = beta_distribution.probability_at_most(mu, sigmas, mu + z * sigmas)
        assert np.all(fit.alpha + fit.beta >= 1e6)
        normal = [0.5 * (1 + math.erf(x / math.sqrt(2))) for x in z]
        assert np.abs(p - normal).max() < 2e-4


def described(row):
    args = row["args"]
    metrics = row["metrics"] if "metrics" in row else args["metrics"]
    nodes = NodeTable([node_of(row)] if "node" in row else [Node("node-1")])
    return nodes, metrics_of({**row, "node": {"name": nodes.names[0]}, "metrics": metrics}, nodes)


@for_each_row(of_function("resourcestats", "GetResourceData"))
def test_resource_data(row):
    """The choice among several metrics of a node equals upstream's."""
    _, metrics = described(row)
    use, expected = metrics.of(row["args"]["type"]), row["expected"]
    assert (bool(use.valid[0]), use.average[0], use.deviation[0]) == (
        expected["valid"],
        expected["avg"],
        expected["std"],
    )


RESOURCE_STATISTICS = of_function("resourcestats", "CreateResourceStats") + upstream("trimaran", "CreateResourceStats")


@for_each_row(RESOURCE_STATISTICS)
def test_resources_with_statistics(row):
    """A resource has statistics exactly if upstream finds some."""
    _, metrics = described(row)
    assert bool(metrics.of(row["args"]["type"]).valid[0]) == row["expected"]["valid"]


@for_each_row([row for row in RESOURCE_STATISTICS if row["expected"]["valid"]])
def test_resource_statistics(row):
    """Statistics of a resource equal upstream's."""
    nodes, metrics = described(row)
    args, expected = row["args"], row["expected"]
    load = {"cpu": CPU_LOAD, "memory": MEMORY_LOAD}[args["resource"]]
    pod = Pod(containers=(Container(ResourceList(args["pod_request"])),))
    terms = LoadVariationRiskBalancing(resources=(load,)).explain(pod, nodes, metrics, nodes.names[0]).terms
    assert terms[f"{load.name}.allocatable"] == expected["stats"]["capacity"]
    assert terms[f"{load.name}.request"] == expected["stats"]["req"]
    for name in ("mu", "sigma"):
        if 0 <= expected["stats"]["used_avg"] <= expected["stats"]["capacity"]:  # else bounded by computeScore first
            assert terms[f"{load.name}.{name}"] == close(expected[name])


@for_each_row(of_function("resourcestats", "GetMuSigma") + upstream("trimaran", "GetMuSigma"))
def test_mu_and_sigma(row):
    """The mean with the pod and the deviation, in parts of capacity, equal upstream's."""
    args, expected = row["args"], row["expected"]
    capacity = np.array([args["capacity"]], dtype=float)
    plugin = LoadVariationRiskBalancing()
    if args["req"] >= 0:
        mu = plugin.mu(np.array([args["used_avg"]]), np.array([args["req"]]), capacity)
        assert mu == close(expected["mu"])
    assert plugin.sigma(np.array([args["used_stdev"]]), capacity) == close(expected["sigma"])


@for_each_row(of_function("resourcestats", "PodResources") + upstream("trimaran", "PodResources"))
def test_pod_resources(row):
    """Requests and limits of a pod equal upstream's."""
    pod, expected = pod_of(row["pod"]), row["expected"]
    for resource in ("cpu", "memory"):
        assert pod_demand.requests(pod, resource) == expected["requests"][resource]
        assert pod_demand.limits(pod, resource) == expected["limits_raised"][resource]


@for_each_row(
    of_function("resourcestats", "GetNodeRequestsAndLimits") + upstream("trimaran", "GetNodeRequestsAndLimits")
)
def test_node_requests_and_limits(row):
    """Sums over a node's pods, with and without the pending pod, equal upstream's."""
    terms = explain(LowRiskOverCommitment(), {**row, "metrics": []}).terms
    expected = row["expected"]
    for resource in ("cpu", "memory"):
        assert terms[f"{resource}.request"] == expected["node_requests"][resource]
        assert terms[f"{resource}.limit"] == expected["node_limits"][resource]
        assert terms[f"{resource}.request_minus_pod"] == expected["node_requests_minus_pod"][resource]
        assert terms[f"{resource}.limit_minus_pod"] == expected["node_limits_minus_pod"][resource]
        assert terms[f"{resource}.allocatable"] == expected["node_capacity"][resource]


def with_quantities(args):
    if "defaultRequests" in args:
        return {
            **args,
            "defaultRequests": {k: f"{v}m" if k == "cpu" else v for k, v in args["defaultRequests"].items()},
        }
    return args


def fails_later(row):
    expected = row["expected"]
    return expected.get("targetUtilization", 0) > 100 or expected.get("defaultRequestsMultiplier") == ""


DEFAULTS = of_function("args_defaults", "TargetLoadPacking", "LoadVariationRiskBalancing", "LowRiskOverCommitment")


@for_each_row([row for row in DEFAULTS if fails_later(row)])
def test_arguments_that_fail_later_upstream_are_refused(row):
    """Arguments that make upstream fail during scoring are refused when read."""
    with pytest.raises(ValueError, match=r"TargetLoadPackingArgs\.(targetUtilization|defaultRequestsMultiplier)"):
        plugin_from_config(row["fn"], with_quantities(row["args"]))


@for_each_row([row for row in DEFAULTS if not fails_later(row)])
def test_defaults(row):
    """Arguments from a configuration get upstream's defaults."""
    expected = row["expected"]
    plugin = plugin_from_config(row["fn"], with_quantities(row["args"]))
    if isinstance(plugin, TargetLoadPacking):
        assert plugin.target_utilization == expected["targetUtilization"]
        assert plugin.default_requests_multiplier == float(expected["defaultRequestsMultiplier"])
        assert plugin.default_requests == expected["defaultRequests"].get("cpu", 0)
    elif isinstance(plugin, LoadVariationRiskBalancing):
        assert plugin.safe_variance_margin == expected["safeVarianceMargin"]
        assert plugin.safe_variance_sensitivity == expected["safeVarianceSensitivity"]
    else:
        assert plugin.smoothing_window_size == expected["smoothingWindowSize"]
        assert {**plugin.risk_limit_weights, **expected["riskLimitWeights"]} == plugin.risk_limit_weights


@for_each_row(read("peaks") + upstream("Peaks", None))
def test_peaks(row):
    """The raw score equals upstream's up to the last digits of the exponential function."""
    args, expected = row["args"], row["expected"]
    models = {name: PowerModel(**model) for name, model in args["nodePowerModel"].items()}
    explanation = explain(Peaks(models), row)
    tolerance = max(1e3, 1e-12 * abs(expected["score"]))
    assert abs(explanation.score - expected["score"]) <= tolerance
    if "pod_cpu_milli" in expected:
        assert explanation.terms["request"] == expected["pod_cpu_milli"]
    if "power_jump" in expected:
        assert explanation.terms["predicted_percent"] == expected["predicted_percent"]
        assert explanation.terms["rise_watts"] == close(expected["power_jump"], 1e-13)


@for_each_row(read("peaks_normalize") + upstream("Peaks", "NormalizeScore"))
def test_peaks_normalization(row):
    """Normalized scores equal upstream's, and the raw scores are not modified."""
    scores = np.array(row["args"]["scores"], np.int64)
    assert Peaks().normalize(scores).tolist() == row["expected"]["scores"]
    assert scores.tolist() == row["args"]["scores"]


IN_TREE = json.loads((VECTORS / "intree.json").read_text())


def facts(group):
    return pytest.mark.parametrize("fact", IN_TREE[group], ids=lambda fact: fact.get("name", str(fact)[:60]))


def table_of_fact(fact, running):
    """Return a table of one node with the fact's amounts and its pods' requests, per resource in the fact's unit."""
    names = ["cpu", "memory", "example.com/foo"][: len(fact["alloc"])]
    node = Node("node", allocatable=ResourceList(dict(zip(names, fact["alloc"], strict=True))))
    nodes = NodeTable([node])
    amounts = ResourceList(dict(zip(names, running, strict=True)))
    nodes.add(Pod(name="running", containers=(Container(amounts),)), "node")
    return names, nodes


def score_of_fact(plugin, fact, running):
    """Return the score of a pod that requests the amounts of ``req`` that are not in ``running``."""
    names, nodes = table_of_fact(fact, running)
    pending = {n: total - r for n, total, r in zip(names, fact["req"], running, strict=True)}
    pod = Pod(name="pending", containers=(Container(ResourceList(pending)),))
    explanation = plugin.explain(pod, nodes, MetricsTable.empty(nodes), "node")
    assert explanation.line
    return explanation.score


def weights_of_fact(fact):
    names = ["cpu", "memory", "example.com/foo"]
    if len(fact["w"]) == 1 or fact["name"].startswith(("multi", "62.5")):  # extended resources only
        return tuple(ResourceWeight(f"example.com/{i}", w) for i, w in enumerate(fact["w"]))
    return tuple(ResourceWeight(n, w) for n, w in zip(names, fact["w"], strict=False))


@facts("LeastAllocated")
def test_least_allocated(fact):
    """Scores of LeastAllocated equal those in kube-scheduler's tests."""
    plugin = NodeResourcesFit("LeastAllocated", weights_of_fact(fact))
    assert score_of_fact(plugin, fact, [0] * len(fact["req"])) == fact["score"]


@facts("MostAllocated")
def test_most_allocated(fact):
    """Scores of MostAllocated equal those in kube-scheduler's tests."""
    if fact["name"].startswith("nonzero"):
        fact = {
            **fact,
            "alloc": [fact["alloc"][0], fact["alloc"][1] << 20],
            "req": [fact["req"][0], fact["req"][1] << 20],
        }
    plugin = NodeResourcesFit("MostAllocated", weights_of_fact(fact))
    assert score_of_fact(plugin, fact, [0] * len(fact["req"])) == fact["score"]


@facts("RequestedToCapacityRatio")
def test_requested_to_capacity_ratio(fact):
    """Scores of RequestedToCapacityRatio equal those in kube-scheduler's tests."""
    weights = weights_of_fact(fact)
    node = Node("node", allocatable=ResourceList({w.name: a for w, a in zip(weights, fact["alloc"], strict=True)}))
    nodes = NodeTable([node])
    pod = Pod(containers=(Container(ResourceList({w.name: r for w, r in zip(weights, fact["req"], strict=True)})),))
    shape = tuple(ShapePoint(*point) for point in fact["shape"])
    plugin = NodeResourcesFit("RequestedToCapacityRatio", weights, shape)
    assert plugin.score(pod, nodes, MetricsTable.empty(nodes)).tolist() == [fact["score"]]


@facts("BrokenLinear")
def test_broken_linear(fact):
    """The function truncates toward zero between its points and is constant outside."""
    utilization, expected = np.array(fact["points"]).T
    assert broken_linear(fact["shape"], utilization).tolist() == expected.tolist()


@facts("BalancedAllocation")
def test_balanced_allocation(fact):
    """Balance scores equal those in kube-scheduler's tests."""
    resources = weights_of_fact({**fact, "w": [1] * len(fact["alloc"]), "name": ""})
    plugin = NodeResourcesBalancedAllocation(resources, kubernetes_version="1.34")
    assert score_of_fact(plugin, fact, [0] * len(fact["req"])) == fact["score"]


@pytest.mark.parametrize("fact", IN_TREE["BalancedAllocation_delta_2026"]["rows"])
def test_balanced_allocation_difference(fact):
    """Newer versions score the change of the balance by the pod."""
    plugin = NodeResourcesBalancedAllocation(kubernetes_version="1.36")
    assert score_of_fact(plugin, fact, fact["req_without"]) == fact["score"]


@facts("ImageLocality")
def test_image_locality(fact):
    """Image scores equal those in kube-scheduler's tests."""
    images = {f"image-{i}:latest": mib << 20 for i, (mib, _) in enumerate(fact["images_MiB_nodes"])}
    having = [nodes for _, nodes in fact["images_MiB_nodes"]]
    nodes = NodeTable(
        Node(f"n{row}", images={n: s for (n, s), k in zip(images.items(), having, strict=True) if row < k})
        for row in range(fact["total_nodes"])
    )
    wanted = [*images, *["elsewhere"] * (fact["containers_incl_init"] - len(images))]
    pod = Pod(containers=tuple(Container(image=name.removesuffix(":latest")) for name in wanted))
    assert ImageLocality().score(pod, nodes, MetricsTable.empty(nodes))[0] == fact["score"]


@pytest.mark.parametrize(("version", "score"), [("1.33", 0), ("1.35", 0), ("1.36", 48), ("1.37", 24)])
def test_image_volumes(version, score):
    """A volume that is an image of 500 MiB counts from 1.36 on; from 1.37 on it raises the limit by 1000 MiB, too."""
    plugin = plugin_from_config("ImageLocality", kubernetes_version=version)
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "m", "image": {"reference": "model"}}]
    pod = Pod.from_k8s({"spec": {"containers": [{"image": "elsewhere"}], "volumes": volumes}})
    nodes = NodeTable([Node("n", images={"model:latest": 500 << 20})])
    assert plugin.score(pod, nodes, MetricsTable.empty(nodes)).tolist() == [score]


def test_pods_with_other_images_do_not_share_their_amounts():
    """Scores that are kept for replicas are not those of a pod with another image volume."""
    lookup = RequestCache().lookup
    pods = [
        Pod.from_k8s({"metadata": {"name": "a"}, "spec": {"volumes": [{"image": {"reference": image}}]}}, lookup)
        for image in ("a:1", "b:1", "a:1")
    ]
    assert pods[0].cached_requests is pods[2].cached_requests
    assert pods[0].cached_requests is not pods[1].cached_requests


@pytest.mark.parametrize(("name", "normalized"), IN_TREE["normalizedImageName"])
def test_image_names(name, normalized):
    """A name without a tag means ``latest``; a registry's port is not a tag."""
    assert normalized_image_name(name) == normalized
