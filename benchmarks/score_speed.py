"""How fast are the scores? Arrays against a plain loop over nodes, in the same run.

The plain loop is what one writes without arrays, as upstream does: for each node, find its metrics, its amounts and its
pods' sums, then compute. The tuned loop gets all that does not depend on the pod as numbers made in advance. Both loops
and the arrays must give the same scores, or the benchmark stops. Each figure is the median of five rounds; times are of
the processor, so that other work on the machine disturbs less, and a ratio is of times from one round.

    make bench                                  all sizes
    python benchmarks/score_speed.py 1000       one size
"""

import math
import platform
import statistics
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import scipy
from scipy.special import betainc

from scoring import (
    Container,
    ImageLocality,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    Node,
    NodeResourcesAllocatable,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeTable,
    Peaks,
    Pod,
    PodState,
    PowerModel,
    Profile,
    ResourceList,
    TailRisk,
    TargetLoadPacking,
)
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

RUNS = 5
SIZES = (1_000, 5_000, 100_000)
PODS_PER_NODE = 2
WINDOW = Window("15m", 1_700_000_000, 1_700_000_900)


def cluster(size: int) -> tuple[list[Node], list[Pod], WatcherMetrics]:
    """Make a cluster of some sizes of node, loads from idle to hot, always the same."""
    rng = np.random.default_rng(903)
    nodes, pods, data = [], [], {}
    for i in range(size):
        cores, gib = [(8, 32), (16, 64), (64, 256)][i % 3]
        capacity = ResourceList({"cpu": cores * 1000, "memory": gib << 30})
        allocatable = ResourceList({"cpu": cores * 1000 - 100, "memory": (gib - 1) << 30})
        images = {f"image-{k}:latest": (100 + k) << 20 for k in rng.choice(20, 3, replace=False)}
        nodes.append(Node(f"node-{i}", capacity, allocatable, images))
        for k in range(PODS_PER_NODE):
            request = ResourceList({"cpu": int(rng.integers(100, 2000)), "memory": int(rng.integers(1, 9)) << 28})
            limit = ResourceList({name: int(amount * rng.uniform(1, 4)) for name, amount in request.items()})
            pods.append(Pod(name=f"pod-{i}-{k}", containers=(Container(request, limit),), node_name=f"node-{i}"))
        values = [
            Metric("load", kind, operator, "15m", float(rng.uniform(low, high)))
            for kind in ("CPU", "Memory")
            for operator, low, high in (("AVG", 5, 80), ("STD", 0.5, 15))
        ]
        data[f"node-{i}"] = NodeMetrics(tuple(values))
    return nodes, pods, WatcherMetrics(WINDOW.end, WINDOW, "benchmark", data)


def pending_pods(count: int) -> list[Pod]:
    """Make pods to place, of many sizes."""
    rng = np.random.default_rng(904)
    return [
        Pod(
            name=f"pending-{i}",
            containers=(
                Container(
                    ResourceList({"cpu": int(rng.integers(100, 4000)), "memory": int(rng.integers(1, 33)) << 27}),
                    ResourceList({"cpu": 4000, "memory": 8 << 30}),
                    image=f"image-{i % 20}",
                ),
            ),
        )
        for i in range(count)
    ]


def round_half_away(x: float) -> int:
    """Round as Go."""
    return math.floor(x + 0.5)  # good enough here: the scores are not negative


# The loops. `rows` yields a tuple of Python numbers a node: what the plugin's node terms hold.


def loop_target_load_packing(plugin, rows, pod, _nodes):
    demand, target = plugin.predicted_use(pod), plugin.target_utilization
    scores = []
    for measured, capacity, use, missing in rows:
        if not measured:
            scores.append(0)
            continue
        percent = 100 * (use + demand + missing) / capacity if capacity else 0.0
        if percent > 100:
            scores.append(0)
        elif percent > target:
            scores.append(round_half_away(target * (100 - percent) / (100 - target)))
        else:
            scores.append(round_half_away((100 - target) * percent / target + target))
    return scores


def loop_load_variation(_plugin, rows, pod, _nodes):
    requests = pod.containers[0].requests
    demands = requests["cpu"], requests["memory"] / 1024 / 1024
    scores = []
    for cpu_valid, cpu, cpu_use, cpu_sigma, memory_valid, memory, memory_use, memory_sigma in rows:
        parts = []
        for valid, allocatable, use, sigma, demand in (
            (cpu_valid, cpu, cpu_use, cpu_sigma, demands[0]),
            (memory_valid, memory, memory_use, memory_sigma, demands[1]),
        ):
            if valid:
                mu = min(max((use + demand) / allocatable, 0), 1) if allocatable > 0 else 0
                parts.append((1 - (mu + sigma) / 2) * 100)
        scores.append(round_half_away(min(parts, default=0)))
    return scores


def loop_low_risk(_plugin, rows, pod, _nodes):
    container = pod.containers[0]
    demands = [
        (container.requests[name], max(container.limits[name], container.requests[name])) for name in ("cpu", "memory")
    ]
    scores = []
    for measured, *parts in rows:
        if not measured:
            scores.append(0)
            continue
        largest = 0.0
        for (allocatable, requests, limits, risk_load), (request, limit) in zip(
            (parts[:4], parts[4:]), demands, strict=True
        ):
            total_request, total_limit = min(requests + request, allocatable), limits + limit
            risk_limit = 0.0
            if total_limit > allocatable:
                risk_limit = (total_limit - allocatable) / (total_limit - total_request)
            largest = max(largest, min(max(0.5 * risk_limit + 0.5 * risk_load, 0), 1))
        scores.append(round_half_away((1 - largest) * 100))
    return scores


def loop_peaks(_plugin, rows, pod, _nodes):
    demand = pod.containers[0].requests["cpu"]
    scores = []
    for measured, capacity, use, k1, k2, now in rows:
        percent = 100 * (use + demand) / capacity if capacity else 0.0
        scores.append(int(k1 * (math.exp(k2 * percent) - now) * 1e15) if measured and percent <= 100 else 0)
    return scores


def loop_fit(plugin, rows, pod, _nodes):
    requests = pod.containers[0].requests
    demands = requests["cpu"], requests["memory"]
    scores = []
    for cpu, cpu_requested, memory, memory_requested in rows:
        total = weights = 0
        for allocatable, requested, demand in (
            (cpu, cpu_requested, demands[0]),
            (memory, memory_requested, demands[1]),
        ):
            if allocatable == 0:
                continue
            asked = requested + demand
            if plugin.strategy == "LeastAllocated":
                score = 0 if asked > allocatable else (allocatable - asked) * 100 // allocatable
            elif plugin.strategy == "MostAllocated":
                score = min(asked, allocatable) * 100 // allocatable
            else:
                score = min(asked, allocatable) * 100 // allocatable  # the default shape is a straight line
                if score == 0:
                    continue
            total, weights = total + score, weights + 1
        if plugin.strategy == "RequestedToCapacityRatio":
            scores.append(round_half_away(total / weights) if weights else 0)
        else:
            scores.append(total // weights if weights else 0)
    return scores


def balance(cpu, cpu_requested, memory, memory_requested):
    parts = []
    if cpu:
        parts.append(min(cpu_requested / cpu, 1))
    if memory:
        parts.append(min(memory_requested / memory, 1))
    std = abs(parts[0] - parts[1]) / 2 if len(parts) == 2 else 0
    return int((1 - std) * 100)


def loop_balanced(_plugin, rows, pod, _nodes):
    requests = pod.containers[0].requests
    cpu_demand, memory_demand = requests["cpu"], requests["memory"]
    scores = []
    for cpu, cpu_requested, memory, memory_requested, without in rows:
        score = balance(cpu, cpu_requested + cpu_demand, memory, memory_requested + memory_demand)
        scores.append(50 + (50 + score - without) // 2)
    return scores


def loop_images(_plugin, _rows, pod, nodes):
    names = [container.image + ":latest" for container in pod.containers]
    having = {name: len(nodes.image(name)[0]) for name in names}
    total_nodes, limit = len(nodes), (1000 << 20) * len(names)
    scores = []
    for node in nodes.nodes:
        scaled = sum(int(node.images[n] * (having[n] / total_nodes)) for n in names if n in node.images)
        scores.append(100 * (min(max(scaled, 23 << 20), limit) - (23 << 20)) // (limit - (23 << 20)))
    return scores


def loop_tail_risk(_plugin, rows, pod, _nodes):
    requests = pod.containers[0].requests
    demands = requests["cpu"], requests["memory"]
    scores = []
    for measured, *parts in rows:
        none_exceeds = 1.0
        for (valid, capacity, mu, sigma, missing), demand in zip((parts[:5], parts[5:]), demands, strict=True):
            if not valid:
                continue
            threshold = 1 - (missing + demand) / capacity
            if threshold < 0:
                at_most = 0.0
            elif mu == 0 or (sigma == 0 and mu <= threshold):
                at_most = 1.0
            elif sigma == 0:
                at_most = 0.0
            else:
                variance = (sigma * sigma + mu * mu) - mu * mu
                spread = mu * (1 - mu) / variance - 1
                at_most = float(betainc(mu * spread, (1 - mu) * spread, threshold))
            none_exceeds *= at_most
        scores.append(round_half_away(none_exceeds * 100) if measured else 0)
    return scores


def loop_allocatable(_plugin, rows, _pod, _nodes):
    return [-((memory + (cpu << 20)) // ((1 << 20) + 1)) for memory, cpu in rows]


def loop_pod_state(_plugin, rows, _pod, _nodes):
    return [terminating - nominated for terminating, nominated in rows]


# What the plain loop does before it can compute: read a node's numbers.


class Cluster:
    """What a scheduler has without arrays: nodes, metrics by name, and each node's sums over its pods."""

    def __init__(self, nodes: NodeTable, snapshot: WatcherMetrics, risk_load: dict[str, tuple[float, float]]) -> None:
        self.nodes = nodes.nodes
        self.metrics = snapshot.data
        self.requests = {n: tuple(int(nodes.requests(r)[i]) for r in BOTH) for i, n in enumerate(nodes.names)}
        self.limits = {n: tuple(int(nodes.limits(r)[i]) for r in BOTH) for i, n in enumerate(nodes.names)}
        self.risk_load = risk_load

    def measured(self, node: Node, kind: str) -> tuple[bool, float, float]:
        """Find average and deviation as upstream does."""
        found, average, deviation = False, 0.0, 0.0
        entry = self.metrics.get(node.name)
        for metric in entry.metrics if entry else ():
            if metric.type == kind:
                found = True
                if metric.operator == "AVG":
                    average = metric.value
                elif metric.operator == "STD":
                    deviation = metric.value
        return found, average, deviation


BOTH = ("cpu", "memory")
KINDS = (("cpu", "CPU", 1.0), ("memory", "Memory", 1 / 1024 / 1024))


def read_target_load_packing(_plugin, cluster, node):
    found, average, _ = cluster.measured(node, "CPU")
    capacity = node.capacity["cpu"]
    return found, capacity, average / 100 * capacity, 0


def read_load_variation(plugin, cluster, node):
    numbers = []
    for resource, kind, scale in KINDS:
        found, average, deviation = cluster.measured(node, kind)
        allocatable = node.allocatable[resource] * scale
        sigma = min(max(deviation * allocatable / 100 / allocatable, 0), 1) if allocatable > 0 else 0
        sigma = min(sigma ** (1 / plugin.safe_variance_sensitivity) * plugin.safe_variance_margin, 1)
        numbers += [found, allocatable, average * allocatable / 100, sigma]
    return numbers


def read_low_risk(_plugin, cluster, node):
    requests, limits, risk_load = (sums[node.name] for sums in (cluster.requests, cluster.limits, cluster.risk_load))
    numbers = [node.name in cluster.metrics]
    for i, resource in enumerate(BOTH):
        numbers += [node.allocatable[resource], requests[i], limits[i], risk_load[i]]
    return numbers


def read_peaks(plugin, cluster, node):
    found, average, _ = cluster.measured(node, "CPU")
    capacity, model = node.capacity["cpu"], plugin.node_power_model[node.name]
    return found, capacity, average / 100 * capacity, model.k1, model.k2, math.exp(model.k2 * average)


def read_requested(_plugin, cluster, node):
    requests = cluster.requests[node.name]
    return node.allocatable["cpu"], requests[0], node.allocatable["memory"], requests[1]


def read_balanced(plugin, plain, node):
    requested = read_requested(plugin, plain, node)
    return *requested, balance(*requested)


def read_tail_risk(_plugin, cluster, node):
    numbers = [node.name in cluster.metrics]
    for resource, kind, _ in KINDS:
        found, average, deviation = cluster.measured(node, kind)
        mu = min(average / 100, 1)
        sigma = min(min(deviation / 100, 1) * math.sqrt(5.0), math.sqrt(mu * (1 - mu) * 0.99))
        numbers += [found, node.capacity[resource], mu, sigma, 0]
    return numbers


def read_allocatable(_plugin, _cluster, node):
    return node.allocatable["memory"], node.allocatable["cpu"]


def read_nothing(_plugin, _cluster, _node):
    return 0, 0


def of_both(*terms: str) -> list[str]:
    """Name terms of both resources."""
    return [f"{resource}.{term}" for resource in BOTH for term in terms]


def cases(nodes: NodeTable):
    """Yield a name, the plugin, its reading, its loop, and the node terms that the tuned loop gets."""
    models = {name: PowerModel(471.7, -91.5, -0.0719) for name in nodes.names}
    requested = of_both("allocatable", "requested")
    low_risk = ["measured", *of_both("allocatable", "pod_requests", "limit_minus_pod", "risk_load")]
    yield from (
        (plugin.name + suffix, plugin, read, loop, columns)
        for plugin, suffix, read, loop, columns in (
            (
                TargetLoadPacking(),
                "",
                read_target_load_packing,
                loop_target_load_packing,
                ["measured", "capacity", "measured_use", "missing_use"],
            ),
            (
                LoadVariationRiskBalancing(),
                "",
                read_load_variation,
                loop_load_variation,
                of_both("valid", "allocatable", "average_use", "sigma"),
            ),
            (LowRiskOverCommitment(), "", read_low_risk, loop_low_risk, low_risk),
            (
                Peaks(models),
                "",
                read_peaks,
                loop_peaks,
                ["measured", "capacity", "measured_use", "k1", "k2", "power_now"],
            ),
            *(
                (NodeResourcesFit(strategy), f" {strategy}", read_requested, loop_fit, requested)
                for strategy in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
            ),
            (
                NodeResourcesBalancedAllocation(),
                "",
                read_balanced,
                loop_balanced,
                [*requested, "balance_without_pod"],
            ),
            (ImageLocality(), "", read_nothing, loop_images, []),
            (
                NodeResourcesAllocatable(),
                "",
                read_allocatable,
                loop_allocatable,
                ["memory.allocatable", "cpu.allocatable"],
            ),
            (PodState(), "", read_nothing, loop_pod_state, ["terminating", "nominated"]),
            (
                TailRisk(),
                "",
                read_tail_risk,
                loop_tail_risk,
                ["measured", *of_both("valid", "capacity", "mu", "sigma", "missing")],
            ),
        )
    )


def seconds(call, calls: int = 1) -> float:
    """Return the median over five rounds of the processor time of one call."""
    return statistics.median(once(call, calls) for _ in range(RUNS))


def once(call, calls: int = 1) -> float:
    """Return the processor time of one call, from several in a row."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def peak_bytes(call) -> int:
    """Return how much memory a call takes at its peak, its result included."""
    tracemalloc.start()
    kept = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    return peak


def machine() -> str:
    """Describe the machine."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return (
        f"{model}, {sum(line.startswith('processor') for line in lines)} processors, {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}"
    )


def compare(size: int) -> None:
    """Print the figures for one size of cluster."""
    described, running, snapshot = cluster(size)
    start = time.perf_counter()
    nodes = NodeTable(described, running)
    built = time.perf_counter() - start
    align_seconds = seconds(lambda: MetricsTable.align(snapshot, nodes))
    metrics = MetricsTable.align(snapshot, nodes)
    [pod] = pending_pods(1)
    print(f"\n## {size:,} nodes, {len(running):,} pods\n")
    print(f"Table built in {built:.2f} s ({built / len(running) * 1e6:.0f} us a pod),", end=" ")
    print(f"{peak_bytes(lambda: NodeTable(described, running)) / size:,.0f} bytes a node with its pods' entries.")
    print(f"Snapshot aligned in {align_seconds * 1e3:.1f} ms,", end=" ")
    print(f"{peak_bytes(lambda: MetricsTable.align(snapshot, nodes)) / size:,.0f} bytes a node at the peak.\n")
    print("| score | once per snapshot, ms | plain loop, ns/node | tuned loop, ns/node | arrays, ns/node |", end=" ")
    print("plain/arrays | tuned/arrays | peak, bytes/node |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    low_risk = LowRiskOverCommitment().node_terms(nodes, metrics)
    loads = zip(low_risk["cpu.risk_load"].tolist(), low_risk["memory.risk_load"].tolist(), strict=True)
    plain = Cluster(nodes, snapshot, dict(zip(nodes.names, loads, strict=True)))
    for name, plugin, read, loop, columns in cases(nodes):
        prepared = plugin.prepare(nodes, metrics)
        prepare = seconds(lambda plugin=plugin: plugin.prepare(nodes, metrics))
        terms = prepared.terms(pod)
        rows = list(zip(*(np.broadcast_to(terms[column], (1, size))[0].tolist() for column in columns), strict=True))

        def tuned_loop(plugin=plugin, loop=loop, rows=rows):
            return loop(plugin, rows, pod, nodes)

        def plain_loop(plugin=plugin, loop=loop, read=read):
            return loop(plugin, (read(plugin, plain, node) for node in plain.nodes), pod, nodes)

        def arrays(prepared=prepared):
            return prepared.score(pod)

        scores = arrays().tolist()
        tolerance = 1e-9 if name == "Peaks" else 0  # two exponential functions: the last of 17 digits
        for loop_of_scores in (plain_loop, tuned_loop):
            assert np.allclose(scores, loop_of_scores(), rtol=tolerance, atol=0), f"{name}: the scores differ"
        calls = max(1, 100_000 // size)
        rounds = [(once(plain_loop), once(tuned_loop), once(arrays, calls)) for _ in range(RUNS)]
        slow, tuned, fast = (statistics.median(times) / size * 1e9 for times in zip(*rounds, strict=True))
        to_plain, to_tuned = (statistics.median(times[i] / times[2] for times in rounds) for i in (0, 1))
        print(
            f"| {name} | {prepare * 1e3:.2f} | {slow:,.0f} | {tuned:,.0f} | {fast:,.1f} | {to_plain:,.0f} | "
            f"{to_tuned:,.0f} | {peak_bytes(arrays) / size:,.0f} |"
        )


def many_pods() -> None:
    """Print the figures for many pods in one call."""
    described, running, snapshot = cluster(5_000)
    nodes = NodeTable(described, running)
    metrics = MetricsTable.align(snapshot, nodes)
    pods = pending_pods(1_000)
    print("\n## 1,000 pods x 5,000 nodes in one call\n")
    print("| profile | seconds | ns per node and pod | peak, MB |")
    print("|---|---:|---:|---:|")
    in_tree = NodeResourcesFit(), NodeResourcesBalancedAllocation(), ImageLocality()
    for name, plugins in (
        ("TargetLoadPacking", [TargetLoadPacking()]),
        ("LoadVariationRiskBalancing", [LoadVariationRiskBalancing()]),
        ("LowRiskOverCommitment", [LowRiskOverCommitment()]),
        ("kube-scheduler's three resource scores", in_tree),
        ("those three and LoadVariationRiskBalancing", [*in_tree, LoadVariationRiskBalancing()]),
    ):
        prepared = Profile.of(*plugins).prepare(nodes, metrics)
        took = seconds(lambda prepared=prepared: prepared.score_many(pods))
        memory = peak_bytes(lambda prepared=prepared: prepared.score_many(pods))
        print(f"| {name} | {took:.2f} | {took / 5e6 * 1e9:.1f} | {memory / 1e6:.0f} |")

    profile = Profile.of(*in_tree, LoadVariationRiskBalancing())

    def place_all() -> None:
        plan = nodes.copy()  # what a transaction yields; never committed, so every run starts alike
        prepared = profile.prepare(plan, metrics)
        for pod in pods:
            plan.assume(pod, prepared.score(pod).best())

    took = seconds(place_all)
    print(f"\nPlacing them one after another, each seeing those before it: {took / 1_000 * 1e6:,.0f} us a pod.")


if __name__ == "__main__":
    print(f"# Speed of scores\n\n{machine()}")
    for wanted in map(int, sys.argv[1:]) if len(sys.argv) > 1 else SIZES:
        compare(wanted)
    if len(sys.argv) == 1:
        many_pods()
