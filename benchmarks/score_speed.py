"""Time to score every node for one pod: computed over arrays, and by a plain loop over the nodes (the baseline).

The plain loop is code without arrays, as upstream's: for each node it looks up the metrics, the amounts and the sums
over the pods, then computes the score. Loop and arrays must give the same scores, or the benchmark stops. Figures are
medians of five rounds in processor time, which other work on the machine disturbs less; a ratio is of times from one
round. The column "once per snapshot" is the time of ``prepare`` without the alignment of metrics; the other columns do
not include it. The last rows have no loop: building a node table, aligning a snapshot, and scoring for 1,000 pods.

    python benchmarks/score_speed.py            all sizes
    python benchmarks/score_speed.py 1000       one size, without the 1,000 pods
"""

import math
import statistics
import sys

import numpy as np
from common import Table, in_turns, median_ratio, peak_bytes, processor_ms

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
    TargetLoadPacking,
)
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

ROUNDS = 5
BOTH = ("cpu", "memory")
SIZES = (1_000, 5_000, 100_000)
PODS_PER_NODE = 2
WINDOW = Window("15m", 1_700_000_000, 1_700_000_900)
LOAD = LoadVariationRiskBalancing()
KUBE_SCHEDULER = (NodeResourcesFit(), NodeResourcesBalancedAllocation(), ImageLocality())
MANY_PODS = {
    "TargetLoadPacking": [TargetLoadPacking()],
    "LoadVariationRiskBalancing": [LOAD],
    "LowRiskOverCommitment": [LowRiskOverCommitment()],
    "kube-scheduler's three resource scores": KUBE_SCHEDULER,
    "those three and LoadVariationRiskBalancing": [*KUBE_SCHEDULER, LOAD],
}


def cluster(size: int) -> tuple[list[Node], list[Pod], WatcherMetrics]:
    """Return the nodes, pods and snapshot of a generated cluster with loads from 5 to 80 %; the same in every run.

    Args:
        size: number of nodes, which have one of three sizes.
    """
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
    """Return pods to place, with random requests; the same in every run."""
    rng = np.random.default_rng(904)
    pods = []
    for i in range(count):
        request = ResourceList({"cpu": int(rng.integers(100, 4000)), "memory": int(rng.integers(1, 33)) << 27})
        limit = ResourceList({"cpu": 4000, "memory": 8 << 30})
        pods.append(Pod(name=f"pending-{i}", containers=(Container(request, limit, image=f"image-{i % 20}"),)))
    return pods


def round_half_away(x: float) -> int:
    """Round a number that is not negative to the nearest integer, halves up, as Go does for scores."""
    return math.floor(x + 0.5)


# -- the loops: ``rows`` yields a tuple of Python numbers a node ------------------------------------------------------


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
        both = ((cpu_valid, cpu, cpu_use, cpu_sigma, demands[0]),
                (memory_valid, memory, memory_use, memory_sigma, demands[1]))  # fmt: skip
        for valid, allocatable, use, sigma, demand in both:
            if valid:
                mu = min(max((use + demand) / allocatable, 0), 1) if allocatable > 0 else 0
                parts.append((1 - (mu + sigma) / 2) * 100)
        scores.append(round_half_away(min(parts, default=0)))
    return scores


def loop_low_risk(_plugin, rows, pod, _nodes):
    container = pod.containers[0]
    demands = [(container.requests[name], max(container.limits[name], container.requests[name])) for name in BOTH]
    scores = []
    for measured, *parts in rows:
        if not measured:
            scores.append(0)
            continue
        largest = 0.0
        both = zip((parts[:4], parts[4:]), demands, strict=True)
        for (allocatable, requests, limits, risk_load), (request, limit) in both:
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
            total_requested = requested + demand
            if plugin.strategy == "LeastAllocated":
                score = 0 if total_requested > allocatable else (allocatable - total_requested) * 100 // allocatable
            elif plugin.strategy == "MostAllocated":
                score = min(total_requested, allocatable) * 100 // allocatable
            else:
                score = min(total_requested, allocatable) * 100 // allocatable  # the default shape is a straight line
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
    nodes_with = {name: len(nodes.image(name)[0]) for name in names}
    total_nodes, limit = len(nodes), (1000 << 20) * len(names)
    scores = []
    for node in nodes.nodes:
        scaled = sum(int(node.images[n] * (nodes_with[n] / total_nodes)) for n in names if n in node.images)
        scores.append(100 * (min(max(scaled, 23 << 20), limit) - (23 << 20)) // (limit - (23 << 20)))
    return scores


def loop_allocatable(_plugin, rows, _pod, _nodes):
    return [-((memory + (cpu << 20)) // ((1 << 20) + 1)) for memory, cpu in rows]


def loop_pod_state(_plugin, rows, _pod, _nodes):
    return [terminating - nominated for terminating, nominated in rows]


# -- the numbers of a node, which the loops compute with --------------------------------------------------------------


class PlainCluster:
    """Data of the plain loop, the benchmark's baseline, as a scheduler without NumPy keeps it.

    It consists of the nodes, their metrics by node name, and the sums over the pods of each node.

    Args:
        nodes: node table to take nodes and sums from.
        snapshot: snapshot to take metrics from.
        risk_load: risk of the CPU and of the memory load by node name, which LowRiskOverCommitment computes once per
            snapshot.
    """

    def __init__(self, nodes: NodeTable, snapshot: WatcherMetrics, risk_load: dict[str, tuple[float, float]]) -> None:
        self.nodes = nodes.nodes
        self.metrics = snapshot.data
        self.requests = {n: tuple(int(nodes.requests(r)[i]) for r in BOTH) for i, n in enumerate(nodes.names)}
        self.limits = {n: tuple(int(nodes.limits(r)[i]) for r in BOTH) for i, n in enumerate(nodes.names)}
        self.risk_load = risk_load

    def measured(self, node: Node, kind: str) -> tuple[bool, float, float]:
        """Return whether a node has metrics of a type, the average and the deviation, by a search as in upstream.

        Args:
            node: the node.
            kind: metric type, such as ``CPU``.
        """
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


def read_allocatable(_plugin, _cluster, node):
    return node.allocatable["memory"], node.allocatable["cpu"]


def read_nothing(_plugin, _cluster, _node):
    return 0, 0


#: Name of the row -> plugin, function that reads a node's numbers, and loop over these numbers that computes scores.
CASES = {
    "TargetLoadPacking": (TargetLoadPacking(), read_target_load_packing, loop_target_load_packing),
    "LoadVariationRiskBalancing": (LOAD, read_load_variation, loop_load_variation),
    "LowRiskOverCommitment": (LowRiskOverCommitment(), read_low_risk, loop_low_risk),
    "Peaks": (None, read_peaks, loop_peaks),  # its power models are by node
    **{
        f"NodeResourcesFit {strategy}": (NodeResourcesFit(strategy), read_requested, loop_fit)
        for strategy in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
    },
    "NodeResourcesBalancedAllocation": (NodeResourcesBalancedAllocation(), read_balanced, loop_balanced),
    "ImageLocality": (ImageLocality(), read_nothing, loop_images),
    "NodeResourcesAllocatable": (NodeResourcesAllocatable(), read_allocatable, loop_allocatable),
    "PodState": (PodState(), read_nothing, loop_pod_state),
}


def figures(call, size: int, repeat: int = 1) -> tuple[str, str]:
    """Return processor time and peak memory of a call, divided by ``size``, as texts in ns and in bytes."""
    milliseconds = statistics.median(processor_ms(call, repeat) for _ in range(ROUNDS))
    return f"{1e6 * milliseconds / size:,.1f}", f"{peak_bytes(call) / size:,.0f}"


def compare(table: Table, size: int) -> None:
    """Print the rows for a cluster with ``size`` nodes: one row per plugin, then table and alignment."""
    described, running, snapshot = cluster(size)
    nodes = NodeTable(described, running)
    metrics = MetricsTable.align(snapshot, nodes)
    [pod] = pending_pods(1)
    low_risk = LowRiskOverCommitment().node_terms(nodes, metrics)
    loads = zip(low_risk["cpu.risk_load"].tolist(), low_risk["memory.risk_load"].tolist(), strict=True)
    plain = PlainCluster(nodes, snapshot, dict(zip(nodes.names, loads, strict=True)))
    models = {name: PowerModel(471.7, -91.5, -0.0719) for name in nodes.names}
    for name, (given, read, loop) in CASES.items():
        plugin = given or Peaks(models)
        prepared = plugin.prepare(nodes, metrics)
        prepare = statistics.median(processor_ms(lambda p=plugin: p.prepare(nodes, metrics)) for _ in range(ROUNDS))

        def plain_loop(plugin=plugin, loop=loop, read=read):
            return loop(plugin, (read(plugin, plain, node) for node in plain.nodes), pod, nodes)

        def arrays(prepared=prepared):
            return prepared.score(pod)

        tolerance = 1e-9 if name == "Peaks" else 0  # two exponential functions differ in the last of 17 digits
        assert np.allclose(arrays().tolist(), plain_loop(), rtol=tolerance, atol=0), f"{name}: the scores differ"
        repeats = {plain_loop: 1, arrays: max(1, 100_000 // size)}
        calls = {"plain": plain_loop, "arrays": arrays}
        times = in_turns(calls, ROUNDS, lambda call, repeats=repeats: processor_ms(call, repeats[call]))
        slow, fast = (1e6 * statistics.median(times[kind]) / size for kind in calls)
        ratio = median_ratio(times["plain"], times["arrays"])
        peak = peak_bytes(arrays) / size
        table.row(f"{size:,}", name, f"{prepare:.2f}", f"{slow:,.0f}", f"{fast:,.1f}", f"{ratio:,.0f}", f"{peak:,.0f}")
    building, peak = figures(lambda: NodeTable(described, running), size)
    table.row(f"{size:,}", f"NodeTable, built with {len(running):,} pods", "", "", building, "", peak)
    aligning, peak = figures(lambda: MetricsTable.align(snapshot, nodes), size)
    table.row(f"{size:,}", "MetricsTable, a snapshot aligned", "", "", aligning, "", peak)


def score_many_pods(table: Table) -> None:
    """Print the rows for 1,000 pods on 5,000 nodes: scored in one call, and placed one after another."""
    described, running, snapshot = cluster(5_000)
    nodes = NodeTable(described, running)
    metrics, pods = MetricsTable.align(snapshot, nodes), pending_pods(1_000)
    for name, plugins in MANY_PODS.items():
        prepared = Profile.of(*plugins).prepare(nodes, metrics)
        time, peak = figures(lambda prepared=prepared: prepared.score_many(pods), 5_000 * len(pods))
        table.row("5,000", f"1,000 pods in one call, a pod: {name}", "", "", time, "", peak)

    def place_all() -> None:
        plan = nodes.copy()  # never committed, so that every run starts alike
        prepared = Profile.of(*KUBE_SCHEDULER, LOAD).prepare(plan, metrics)
        for pod in pods:
            plan.assume(pod, prepared.score(pod).best())

    time = 1e6 * statistics.median(processor_ms(place_all) for _ in range(ROUNDS)) / (5_000 * len(pods))
    table.row("5,000", "1,000 pods placed in turn, a pod: those three and LoadVariationRiskBalancing",
              "", "", f"{time:,.1f}", "", "")  # fmt: skip


def main() -> None:
    """Run the benchmark and print its table."""
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    columns = ("nodes", "score", "once per snapshot, ms", "plain loop, ns/node", "arrays, ns/node", "plain/arrays",
               "peak, bytes/node")  # fmt: skip
    table = Table(f"{PODS_PER_NODE} pods a node, medians of {ROUNDS} rounds", columns, text_columns=2)
    for size in sizes:
        compare(table, size)
    if len(sys.argv) == 1:
        score_many_pods(table)


if __name__ == "__main__":
    main()
