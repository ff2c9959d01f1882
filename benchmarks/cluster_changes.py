"""What does a change of the cluster cost? Pods placed in turn, nodes that come and go, a scheduler's candidates.

The baselines, in the same run: for pods in turn there is none here (benchmarks/README.md has the figures of earlier
commits beside them); for nodes that come, go and change it is a table made anew, with all that was prepared for it; for
candidates the same question about every node. Scores are compared, and the benchmark stops where they differ.

    python benchmarks/cluster_changes.py             everything
    python benchmarks/cluster_changes.py in-turn     only pods placed in turn
"""

import itertools
import statistics
import sys
import time

from score_speed import WINDOW, cluster, machine, pending_pods

from scoring import (
    FallbackPolicy,
    ImageLocality,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    MetricsTable,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeTable,
    Profile,
    TargetLoadPacking,
)

ROUNDS = 15
PODS = 100
NOW = WINDOW.end + 10
LOAD = LoadVariationRiskBalancing()
IN_TREE = (NodeResourcesFit(), NodeResourcesBalancedAllocation(), ImageLocality())
PROFILES = {
    "LoadVariationRiskBalancing": [LOAD],
    "the same, countRecentPods": [LoadVariationRiskBalancing(count_recent_pods=True)],
    "TargetLoadPacking": [TargetLoadPacking()],
    "LowRiskOverCommitment": [LowRiskOverCommitment()],
    "kube-scheduler's three and LoadVariationRiskBalancing": [*IN_TREE, LOAD],
}


def in_turn() -> None:
    """Print what a score and an assumed pod cost, each score seeing the pods before it."""
    print("\n## Score, assume, score, ...\n\nMicroseconds of the processor a pod; the best of 15 rounds of 100 pods.\n")
    print("| profile | nodes | score | assume | together |\n|---|---:|---:|---:|---:|")
    for (name, plugins), size in itertools.product(PROFILES.items(), (60, 1_000, 5_000)):
        described, running, snapshot = cluster(size)
        nodes = NodeTable(described, running)
        metrics, pods, rounds = MetricsTable.align(snapshot, nodes), pending_pods(PODS), []
        for _ in range(ROUNDS):
            scoring = assuming = 0.0
            with nodes.transaction() as plan:
                prepared = Profile.of(*plugins).prepare(plan, metrics)
                for pod in pods:
                    began = time.process_time()
                    best = prepared.score(pod).best()
                    scored = time.process_time()
                    plan.assume(pod, best)
                    assuming += time.process_time() - scored
                    scoring += scored - began
                for pod in pods:
                    plan.remove(pod)
            rounds.append((scoring + assuming, scoring, assuming))
        together, scoring, assuming = (1e6 * seconds / PODS for seconds in min(rounds))
        print(f"| {name} | {size:,} | {scoring:.0f} | {assuming:.0f} | {together:.0f} |")


def transactions() -> None:
    """Print what an empty transaction costs, with few and with many pods."""
    print("\n## A transaction, begun and kept, 5,000 nodes\n\n| pods | us |\n|---:|---:|")
    described, running, _ = cluster(5_000)
    for times in (1, 10):
        pods = [type(pod)(f"{pod.name}-{i}", containers=pod.containers, node_name=pod.node_name)
                for pod in running for i in range(times)]  # fmt: skip
        nodes = NodeTable(described, pods)

        def transaction(nodes=nodes):
            with nodes.transaction():
                pass

        print(f"| {len(pods):,} | {1e6 * median(transaction):.0f} |")


def churn() -> None:
    """Print what one node of 5,000 costs that comes, goes or changes, beside making all anew."""
    described, running, snapshot = cluster(5_000)
    *described, joining = described
    running = [pod for pod in running if pod.node_name != joining.name]
    renewed = type(described[7])(described[7].name, joining.capacity, joining.allocatable, joining.images)
    [pod] = pending_pods(1)
    steps = {
        "a node comes": lambda table: table.add_nodes([joining]),
        "a node changes": lambda table: table.add_nodes([renewed]),
        "a node goes": lambda table: table.remove_nodes([joining.name]),
    }
    print(
        "\n## One node of 5,000, 10,000 pods\n\nMedians of 15; the table, then with what was prepared and one score.\n"
    )
    print("| change | table, ms | score after it, ms | all anew, ms | anew/followed |\n|---|---:|---:|---:|---:|")
    for name, plugins in PROFILES.items():
        profile, nodes = Profile.of(*plugins), NodeTable(described, running)
        prepared = profile.prepare(nodes, FallbackPolicy().judge(nodes, snapshot, NOW))
        prepared.score(pod)
        times = {step: [] for step in steps}
        for _, (step, change) in itertools.product(range(ROUNDS), steps.items()):
            began = time.process_time()
            change(nodes)
            changed = time.process_time()
            scores = prepared.score(pod)
            times[step].append((changed - began, time.process_time() - changed))
        began = time.process_time()
        fresh = NodeTable(nodes.nodes, running)
        anew = profile.prepare(fresh, FallbackPolicy().judge(fresh, snapshot, NOW)).score(pod)
        took = time.process_time() - began
        assert anew.total.tolist() == scores.total.tolist(), "the scores differ"
        for step, rounds in times.items():
            table, follow = (1e3 * statistics.median(seconds) for seconds in zip(*rounds, strict=True))
            ratio = 1e3 * took / (table + follow)
            print(f"| {name}: {step} | {table:.2f} | {follow:.2f} | {1e3 * took:.0f} | {ratio:.0f} |")


def candidates() -> None:
    """Print what it takes to score 500 of 5,000 nodes by name, a pod being placed after each score."""
    described, running, snapshot = cluster(5_000)
    names = [[f"node-{(start + 10 * i) % 5_000}" for i in range(500)] for start in range(10)]
    print("\n## 500 of 5,000 nodes by name, with judgment, a pod placed after each score\n")
    print("Processor time of 2,000 scores, in turn with scores of all nodes.\n")
    print("| profile | p50, us | p99, us | all nodes, p50, us |\n|---|---:|---:|---:|")
    for name, plugins in PROFILES.items():
        nodes = NodeTable(described, running)
        prepared = Profile.of(*plugins).prepare(nodes, FallbackPolicy().judge(nodes, snapshot, NOW))
        some, every = [], []
        for index, pod in enumerate(pending_pods(2_000)):
            asked = names[index % len(names)]
            began = time.process_time()
            scores = prepared.score(pod, among=asked)
            some.append(time.process_time() - began)
            nodes.assume(pod, scores.best())
            began = time.process_time()
            whole = prepared.score(pod)
            every.append(time.process_time() - began)
            if index % 100 == 0:
                nodes.remove(pod)
                asked_again, whole = prepared.score(pod, among=asked), prepared.score(pod)
                assert asked_again.total.tolist() == whole.total[nodes.rows_of(asked)].tolist(), "the scores differ"
        p50, p99 = (1e6 * statistics.quantiles(some, n=100)[place] for place in (49, 98))
        print(f"| {name} | {p50:.0f} | {p99:.0f} | {1e6 * statistics.median(every):.0f} |")


def median(act) -> float:
    """Return the median processor time of a call, in seconds."""
    times = []
    for _ in range(200):
        began = time.process_time()
        act()
        times.append(time.process_time() - began)
    return statistics.median(times)


if __name__ == "__main__":
    print(f"# Changes of the cluster\n\n{machine()}")
    in_turn()
    if sys.argv[1:] != ["in-turn"]:
        transactions()
        churn()
        candidates()
