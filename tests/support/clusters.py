"""Hypothesis strategies for random clusters, pods and plugin arguments, with many edge cases."""

import numpy as np
from hypothesis import strategies as st

from scoring import Container, Node, NodeTable, Pod, ResourceList, plugin_from_config
from scoring.kubernetes_version import KUBERNETES_VERSIONS
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "trimaran.io/network", "trimaran.io/disk")
TYPES = ("CPU", "Memory", "GPU", "Bandwidth", "Storage")
OPERATORS = ("AVG", "STD", "Latest", "P90", "P95", "P99", "MAX", "")
IMAGES = tuple(f"image-{i}:latest" for i in range(4))


class Maker:
    """Generator of random clusters and pods from a seed: amounts may be absent, zero or full, and metrics missing."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def chance(self, probability):
        return self.rng.random() < probability

    def amounts(self):
        ranges = {"cpu": 9000, "memory": 2**36, "nvidia.com/gpu": 8, "trimaran.io/network": 10**10, "pods": 250}
        ranges["trimaran.io/disk"] = 10**10
        some = {name: int(self.rng.integers(0, most)) for name, most in ranges.items() if self.chance(0.7)}
        return ResourceList({name: 0 if self.chance(0.1) else amount for name, amount in some.items()})

    def containers(self, most):
        return tuple(
            Container(
                self.amounts() if self.chance(0.8) else ResourceList(),
                self.amounts() if self.chance(0.6) else ResourceList(),
                image=str(self.rng.choice(IMAGES)),
                restartable=self.chance(0.5),
            )
            for _ in range(self.rng.integers(0, most + 1))
        )

    def pod(self, name):
        return Pod(
            name=name,
            containers=self.containers(3),
            init_containers=self.containers(1),
            image_volumes=(str(self.rng.choice(IMAGES)),) if self.chance(0.2) else (),
            overhead=self.amounts() if self.chance(0.2) else ResourceList(),
            terminating=self.chance(0.3),
            scheduled_at=float(self.rng.integers(600, 1200)) if self.chance(0.7) else None,
        )

    def metrics(self):
        values = [
            Metric("m", kind, operator, "15m", float(self.rng.choice([0.0, 50.0, 100.0, self.rng.uniform(-5, 150)])))
            for kind in TYPES
            for operator in OPERATORS
            if self.chance(0.5)
        ]
        return NodeMetrics(tuple(values))

    def cluster(self):
        size = int(self.rng.integers(1, 6))
        sizes = {name: int(self.rng.integers(1, 2**31)) for name in IMAGES}
        nodes = []
        for i in range(size):
            images = {name: sizes[name] for name in IMAGES if self.chance(0.4)}
            nodes.append(Node(f"n{i}", self.amounts(), self.amounts(), images))
        table = NodeTable(nodes)
        for i in range(self.rng.integers(0, 7)):
            table.add(self.pod(f"running-{i}"), f"n{self.rng.integers(0, size)}")
        if self.chance(0.5):
            table.nominate(self.pod("nominated"), f"n{self.rng.integers(0, size)}")
        data = {node.name: self.metrics() for node in nodes if self.chance(0.85)}
        return table, WatcherMetrics(900, Window("15m", 0, 900), "test", data)


makers = st.integers(0, 2**32).map(Maker)


weights = st.dictionaries(st.sampled_from(RESOURCES), st.floats(-1, 2), max_size=3)
measured = st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=4, unique=True)
resource_weights = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(RESOURCES)}, optional={"weight": st.integers(0, 100)}),
    max_size=4,
    unique_by=lambda entry: entry["name"],
)
positive_weights = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(RESOURCES)}, optional={"weight": st.integers(1, 100)}),
    max_size=4,
    unique_by=lambda entry: entry["name"],
)
shapes = st.lists(
    st.fixed_dictionaries({"utilization": st.integers(0, 100), "score": st.integers(0, 10)}),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point["utilization"],
).map(lambda points: sorted(points, key=lambda point: point["utilization"]))
power = st.fixed_dictionaries({"k0": st.floats(0, 500), "k1": st.floats(-200, 200), "k2": st.floats(-0.08, 0.08)})
spread_constraints = st.lists(
    st.fixed_dictionaries(
        {
            "maxSkew": st.integers(1, 3),
            "topologyKey": st.sampled_from(["kubernetes.io/hostname", "zone"]),
            "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        }
    ),
    max_size=3,
    unique_by=lambda entry: (entry["topologyKey"], entry["whenUnsatisfiable"]),
)
ARGUMENTS = {
    "TaintToleration": st.just({}),
    "NodeAffinity": st.just({}),
    "PodTopologySpread": spread_constraints.map(
        lambda listed: {"defaultConstraints": listed, "defaultingType": "List"} if listed else {}
    ),
    "InterPodAffinity": st.fixed_dictionaries(
        {},
        optional={"hardPodAffinityWeight": st.integers(0, 100), "ignorePreferredTermsOfExistingPods": st.booleans()},
    ),
    "TargetLoadPacking": st.fixed_dictionaries(
        {},
        optional={
            "targetUtilization": st.integers(-1, 100),
            "defaultRequests": st.fixed_dictionaries({}, optional={"cpu": st.just("250m"), "memory": st.just("1Gi")}),
            "defaultRequestsMultiplier": st.sampled_from(["0", "1", "1.5", "2.25"]),
            "resource": st.sampled_from(["cpu", "memory"]),
            "predictFrom": st.sampled_from(["limits", "requests"]),
            "percentile": st.sampled_from(["", "P90", "MAX"]),
            "countRecentPods": st.booleans(),
        },
    ),
    "LoadVariationRiskBalancing": st.fixed_dictionaries(
        {},
        optional={
            "safeVarianceMargin": st.floats(-1, 1e6),
            "safeVarianceSensitivity": st.floats(-1, 1e6),
            "formula": st.sampled_from(["trimaran", "kep"]),
            "balance": st.sampled_from(["risk", "load", "variability", "relative-variability"]),
            "percentile": st.sampled_from(["", "P90", "P99"]),
            "countRecentPods": st.booleans(),
            "resources": measured,
        },
    ),
    "LowRiskOverCommitment": st.fixed_dictionaries(
        {},
        optional={
            "smoothingWindowSize": st.integers(-1, 100),
            "riskLimitWeights": weights,
            "countRecentPods": st.booleans(),
            "resources": measured,
            "distribution": st.sampled_from(["fitted", "measured"]),
        },
    ),
    "Peaks": st.fixed_dictionaries(
        {"nodePowerModel": st.dictionaries(st.sampled_from([f"n{i}" for i in range(5)]), power)},
        optional={"missing": st.sampled_from(["best", "worst"]), "countRecentPods": st.booleans()},
    ),
    "CongestionCost": st.fixed_dictionaries(
        {},
        optional={
            "resources": st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(RESOURCES)},
                    optional={"target": st.floats(1, 100), "power": st.floats(1, 64)},
                ),
                max_size=4,
                unique_by=lambda entry: entry["name"],
            ),
            "learnt": st.floats(0, 1),
            "crowding": st.floats(1, 1000),
            "stranding": st.floats(1, 1000),
        },
    ),
    "NodeResourcesFit": st.one_of(
        st.fixed_dictionaries(
            {
                "scoringStrategy": st.fixed_dictionaries(
                    {"type": st.sampled_from(["LeastAllocated", "MostAllocated"]), "resources": resource_weights}
                )
            }
        ),
        st.fixed_dictionaries(
            {
                "scoringStrategy": st.fixed_dictionaries(
                    {
                        "type": st.just("RequestedToCapacityRatio"),
                        "resources": resource_weights,
                        "requestedToCapacityRatio": st.fixed_dictionaries({"shape": shapes}),
                    }
                )
            }
        ),
    ),
    "NodeResourcesBalancedAllocation": st.fixed_dictionaries(
        {},
        optional={
            "resources": st.lists(st.sampled_from(RESOURCES), unique=True).map(
                lambda names: [{"name": n} for n in names]
            ),
        },
    ),
    "NodeResourcesAllocatable": st.fixed_dictionaries(
        {}, optional={"mode": st.sampled_from(["Least", "Most"]), "resources": positive_weights}
    ),
    "NodeResourcesLeastAllocated": st.fixed_dictionaries({}, optional={"resources": resource_weights}),
    "NodeResourcesMostAllocated": st.fixed_dictionaries({}, optional={"resources": resource_weights}),
    "RequestedToCapacityRatio": st.fixed_dictionaries({"shape": shapes}, optional={"resources": resource_weights}),
    "ImageLocality": st.just({}),
    "PodState": st.just({}),
}

# A version for each set of rules of the plugins that score differently by version.
RULES_CHANGED = {"NodeResourcesBalancedAllocation": ("1.35", "1.37"), "ImageLocality": ("1.35", "1.36", "1.37")}

plugins = st.fixed_dictionaries(ARGUMENTS).map(
    lambda arguments: [
        plugin_from_config(name, written, kubernetes_version=version)
        for name, written in arguments.items()
        for version in RULES_CHANGED.get(name, KUBERNETES_VERSIONS[-1:])
    ]
)
