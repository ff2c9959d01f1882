"""Cost of changes to a cluster: pods placed one after another, nodes that come and go, scores of some nodes only.

The times are processor time, which other work on the machine disturbs less. Rows and their baselines:

- Score all nodes for a pod and assume the pod on the best node; the next score counts it. Best of 15 rounds of 100
  pods. No baseline: compare with another version of this project.
- A transaction that changes nothing; baseline: the same with a tenth of the pods.
- One node of 5,000 is added, changed or removed, and a pod is scored; median of 15. Baseline: a new node table,
  judgment and profile.
- Score 500 of 5,000 nodes, given by name, and place the pod; baseline: score all nodes.

In the last two rows, the scores of both ways are compared, and the benchmark stops if they differ.

    python benchmarks/cluster_changes.py             everything
    python benchmarks/cluster_changes.py in-turn     only pods placed in turn
"""

import itertools
import statistics
import sys
import time

from common import Table, processor_ms
from score_speed import KUBE_SCHEDULER, LOAD, WINDOW, cluster, pending_pods

from scoring import (
    FallbackPolicy,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    NodeTable,
    Profile,
    TargetLoadPacking,
)

ROUNDS = 15
PODS = 100
NOW = WINDOW.end + 10
PROFILES = {
    "LoadVariationRiskBalancing": [LOAD],
    "LoadVariationRiskBalancing, countRecentPods": [LoadVariationRiskBalancing(count_recent_pods=True)],
    "TargetLoadPacking": [TargetLoadPacking()],
    "LowRiskOverCommitment": [LowRiskOverCommitment()],
    "kube-scheduler's three and LoadVariationRiskBalancing": [*KUBE_SCHEDULER, LOAD],
}


def place_in_turn(table: Table) -> None:
    """Print the time to score all nodes for a pod and to assume the pod, for each profile and number of nodes."""
    for (name, plugins), size in itertools.product(PROFILES.items(), (60, 1_000, 5_000)):
        described, running, snapshot = cluster(size)
        nodes = NodeTable(described, running)
        metrics, pods, rounds = MetricsTable.align(snapshot, nodes), pending_pods(PODS), []
        for _ in range(ROUNDS):
            scoring = assuming = 0.0
            with nodes.transaction() as plan:
                prepared = Profile.of(*plugins).prepare(plan, metrics)
                for pod in pods:
                    start = time.process_time()
                    best = prepared.score(pod).best()
                    scored = time.process_time()
                    plan.assume(pod, best)
                    assuming += time.process_time() - scored
                    scoring += scored - start
                for pod in pods:
                    plan.remove(pod)
            rounds.append((scoring + assuming, scoring, assuming))
        total, scoring, assuming = (1e6 * seconds / PODS for seconds in min(rounds))
        table.row(name, f"score + assume: {scoring:.0f} + {assuming:.0f}", f"{size:,}", f"{total:.0f}", "", "", "")


def begin_transactions(table: Table) -> None:
    """Print the time of a transaction that changes nothing, with 10,000 and with 100,000 pods."""
    described, running, _ = cluster(5_000)
    baseline = 0.0
    for copies in (1, 10):
        pods = [type(pod)(f"{pod.name}-{i}", containers=pod.containers, node_name=pod.node_name)
                for pod in running for i in range(copies)]  # fmt: skip
        nodes = NodeTable(described, pods)

        def transaction(nodes=nodes):
            with nodes.transaction():
                pass

        took = 1000 * statistics.median(processor_ms(transaction) for _ in range(200))
        compared = (f"{baseline:.0f}", f"{baseline / took:.2f}") if baseline else ("", "")
        table.row("any", f"a transaction, {len(pods):,} pods", "5,000", f"{took:.0f}", "", *compared)
        baseline = took


def change_nodes(table: Table) -> None:
    """Print the time to add, change or remove one node of 5,000 and to score a pod afterwards."""
    described, running, snapshot = cluster(5_000)
    *described, joining = described
    running = [pod for pod in running if pod.node_name != joining.name]
    changed = type(described[7])(described[7].name, joining.capacity, joining.allocatable, joining.images)
    [pod] = pending_pods(1)
    steps = {
        "a node comes": lambda nodes: nodes.add_nodes([joining]),
        "a node changes": lambda nodes: nodes.add_nodes([changed]),
        "a node goes": lambda nodes: nodes.remove_nodes([joining.name]),
    }
    for name, plugins in PROFILES.items():
        profile, nodes = Profile.of(*plugins), NodeTable(described, running)
        prepared = profile.prepare(nodes, FallbackPolicy().judge(nodes, snapshot, NOW))
        prepared.score(pod)
        times = {step: [] for step in steps}
        for _, (step, change) in itertools.product(range(ROUNDS), steps.items()):
            start = time.process_time()
            change(nodes)
            table_done = time.process_time()
            scores = prepared.score(pod)
            times[step].append((table_done - start, time.process_time() - table_done))
        start = time.process_time()
        fresh = NodeTable(nodes.nodes, running)
        fresh_scores = profile.prepare(fresh, FallbackPolicy().judge(fresh, snapshot, NOW)).score(pod)
        rebuilt = 1e6 * (time.process_time() - start)
        assert fresh_scores.total.tolist() == scores.total.tolist(), "the scores differ"
        for step, rounds in times.items():
            change, score = (1e6 * statistics.median(seconds) for seconds in zip(*rounds, strict=True))
            measured = f"{step}: table + score: {change:.0f} + {score:.0f}"
            ratio = rebuilt / (change + score)
            table.row(name, measured, "5,000", f"{change + score:.0f}", "", f"{rebuilt:.0f}", f"{ratio:.0f}")


def score_candidates(table: Table) -> None:
    """Print the time to score 500 of 5,000 nodes, given by name, and the time to score all nodes."""
    described, running, snapshot = cluster(5_000)
    names = [[f"node-{(start + 10 * i) % 5_000}" for i in range(500)] for start in range(10)]
    for name, plugins in PROFILES.items():
        nodes = NodeTable(described, running)
        prepared = Profile.of(*plugins).prepare(nodes, FallbackPolicy().judge(nodes, snapshot, NOW))
        some, every = [], []
        for index, pod in enumerate(pending_pods(2_000)):
            candidates = names[index % len(names)]
            start = time.process_time()
            scores = prepared.score(pod, among=candidates)
            some.append(time.process_time() - start)
            nodes.assume(pod, scores.best())
            every.append(processor_ms(lambda pod=pod, prepared=prepared: prepared.score(pod)))
            if index % 100 == 0:
                nodes.remove(pod)
                again, whole = prepared.score(pod, among=candidates), prepared.score(pod)
                assert again.total.tolist() == whole.total[nodes.rows_of(candidates)].tolist(), "the scores differ"
        p50, p99 = (1e6 * statistics.quantiles(some, n=100)[place] for place in (49, 98))
        whole = 1000 * statistics.median(every)
        table.row(name, "500 candidates", "5,000", f"{p50:.0f}", f"{p99:.0f}", f"{whole:.0f}", f"{whole / p50:.2f}")


def main() -> None:
    """Run the benchmark and print its table."""
    columns = ("profile", "change", "nodes", "us", "p99, us", "baseline, us", "baseline/ours")
    table = Table("2 pods a node, processor time", columns, text_columns=2)
    place_in_turn(table)
    if sys.argv[1:] != ["in-turn"]:
        begin_transactions(table)
        change_nodes(table)
        score_candidates(table)


if __name__ == "__main__":
    main()
