"""Past use of pods and moves of a large cluster: keeping a round, serving it by node, a plan of 100 moves, and a look.

There are 5,000 nodes of 8 cores and 100,000 pods of 8,000 workloads, with a day of use. Each part is a process of its
own; memory is the highest of its whole life, with the interpreter and its imports. The baseline is the copy of a round
into an index by pod, which is plain Python.

    python benchmarks/moves.py [--pods 100000] [--nodes 5000] [--moves 100]
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import NOW, Table, options

from runtime.kubernetes.objects import CachedRequests, Container, Node, Pod, ResourceList
from runtime.kubernetes.workloads import Workload
from scoring import NodeTable
from trimaran.planning.moves import MoveCosts, MovePlanner, MoveProblem
from trimaran.planning.moves.past import expected_cpu, expected_memory
from trimaran.rebalancer.bad_looks import BadLooks
from trimaran.rebalancer.eligibility import WorkloadState
from trimaran.rebalancer.facts import NodeFacts, PodFacts, WorkloadFacts
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.plan import plan_moves
from trimaran.rebalancer.rules import CapLimits, MoveRules, NodeRules
from watcher.pod_use_table import HOURS, PERIODS, STEPS, Float16s, PodUseTable
from watcher.store import Store
from watcher.usage.history.persistent_pod_use import PersistentPodUse
from watcher.usage.sources.pods import PodKey, PodTemplate, RunningPod
from watcher.windows.container_use import ContainerUse
from watcher.wire.pod_use import decode_pod_use, encode_pod_use

GIB, WORKLOADS, ROUNDS, NODES_PER_REQUEST = 2**30, 8_000, 5, 100


def keep(pods: int, nodes: int, _moves: int) -> dict[str, float]:
    """Return the processor seconds of keeping a round, of a restart and of serving nodes."""
    templates = [
        PodTemplate(Workload(f"ns-{number % 200}", "Deployment", f"web-{number}"), "5d4f", ())
        for number in range(WORKLOADS)
    ]
    names = [
        (templates[number % WORKLOADS].workload.namespace, f"web-6d8f7c9b5-{number:06d}") for number in range(pods)
    ]
    running = {
        PodKey(*name): RunningPod(templates[number % WORKLOADS], 0.0, f"{number:08d}-uid", f"node-{number % nodes}")
        for number, name in enumerate(names)
    }
    dice = np.random.default_rng(1)
    namespaces, pod_names = zip(*names, strict=True)
    begin = NOW // 3600 * 3600
    times: dict[str, list[float]] = {"copy into an index by pod (baseline)": [], "keep and store a round": []}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store.db")
        keeping = PersistentPodUse(store, "x", dict)
        for number in range(ROUNDS + 1):
            use = ContainerUse(begin + 300 * (number + 1), 300.0, namespaces, pod_names, ["main"] * pods,
                               dice.gamma(2, 0.2, pods), dice.uniform(0.2, 0.8, pods) * GIB)  # fmt: skip
            start = time.process_time()
            index: dict[tuple[str, str], int] = {}
            for name in zip(use.namespaces, use.pods, strict=True):
                index.setdefault(name, len(index))
            copied = time.process_time()
            keeping.observe(use, running)
            if number:  # the first round creates the rows of all pods
                times["copy into an index by pod (baseline)"].append(copied - start)
                times["keep and store a round"].append(time.process_time() - copied)
        wanted = [f"node-{number}" for number in range(NODES_PER_REQUEST)]
        start = time.process_time()
        table = keeping.table(wanted)
        body = encode_pod_use(table)
        times[f"serve {len(table):,} pods on {NODES_PER_REQUEST} nodes"] = [time.process_time() - start]
        start = time.process_time()
        decode_pod_use(body)
        times["decode them"] = [time.process_time() - start]
        start = time.process_time()
        PersistentPodUse(store, "x", dict).table(wanted)
        times["load after a restart, with an hour"] = [time.process_time() - start]
        store.close()
    return {name: float(np.median(took)) for name, took in times.items()}


def drawn_use(dice: np.random.Generator, pods: int, nodes: int) -> tuple[Float16s, Float16s]:
    """Return the use of pods over a day, which is 60 % of the nodes' CPU and 50 % of their memory."""
    cpu, memory = np.empty((pods, STEPS), np.float16), np.empty((pods, PERIODS), np.float16)
    for chunk in np.array_split(np.arange(pods), 100):
        mean = dice.gamma(1.0, 8 * nodes * 0.6 / pods, chunk.size)[:, None]
        cpu[chunk] = mean * dice.gamma(2.0, 0.5, (chunk.size, STEPS))
        memory[chunk] = dice.gamma(2.0, 32 * nodes * 0.25 / pods, chunk.size)[:, None]
    return cpu, memory


def plan(pods: int, nodes: int, moves: int) -> dict[str, float]:
    """Return the processor seconds of the expectation and of the plan, with the intervals of all gains."""
    dice = np.random.default_rng(1)
    capacity = np.array([[8.0] * nodes, [32.0] * nodes])
    rows = dice.integers(nodes, size=pods)
    requests = np.array([dice.uniform(0.1, 1.0, pods), dice.uniform(0.1, 3.0, pods)]) * 8 * nodes / pods
    free = capacity - np.array([np.bincount(rows, request, nodes) for request in requests])
    cpu, memory = drawn_use(dice, pods, nodes)
    services = np.zeros(pods, np.bool_)
    start = time.process_time()
    cpu, memory = expected_cpu(cpu, services, 12, 0.75), expected_memory(memory, services)
    expected = time.process_time()
    problem = MoveProblem(capacity, free, rows, requests, cpu, memory, ~services)
    found = MovePlanner(problem, MoveCosts(), 0.01).best(moves)
    planned = time.process_time()
    return {"expect use": expected - start, f"plan {len(found)} moves": planned - expected}


def look(pods: int, nodes: int, moves: int) -> dict[str, float]:
    """Return the processor seconds of a look of the rebalancer, with a plan of that many moves under all limits."""
    gc.set_threshold(100_000)  # as in every command
    dice = np.random.default_rng(1)
    amounts = ResourceList({"cpu": 8000, "memory": 32 * GIB})
    names, rows = [f"node-{number}" for number in range(nodes)], dice.integers(nodes, size=pods)
    table = NodeTable(Node(name, amounts, amounts) for name in names)
    workloads = [Workload(f"ns-{number % 200}", "Deployment", f"web-{number}") for number in range(WORKLOADS)]
    of_pods = [workloads[number % WORKLOADS] for number in range(pods)]
    facts = {f"uid-{number}": PodFacts(created_at=1.0, ready_at=10.0) for number in range(pods)}
    # The pods of a workload request the same, and the reader of pods lets them share what is computed of it.
    shares = (dice.uniform([0.1, 0.1], [1.0, 3.0], (WORKLOADS, 2)) * 8 * nodes / pods).tolist()
    containers = [
        (Container(requests=ResourceList({"cpu": round(1000 * cores), "memory": round(gib * GIB)})),)
        for cores, gib in shares
    ]
    cached = [CachedRequests() for _ in workloads]
    for number in range(pods):
        kind = number % WORKLOADS
        workload, on = of_pods[number], names[rows[number]]
        table.add(Pod(f"web-{number}", workload.namespace, f"uid-{number}", containers[kind], node_name=on,
                      workload=workload, cached_requests=cached[kind]), on, placed_at=0.0)  # fmt: skip
    cpu, memory = drawn_use(dice, pods, nodes)
    loads = 100 / 8 * np.bincount(rows, cpu[:, -3:].mean(axis=1, dtype=np.float64), nodes)
    use = PodUseTable(
        NOW, tuple(facts), ("",) * pods, ("",) * pods, of_pods, ("",) * pods, np.full(pods, NOW - 86400.0),
        np.full(pods, float(NOW)), cpu, memory, np.zeros((2, pods, HOURS), np.float16),
    )  # fmt: skip
    state = WorkloadState({workload: WorkloadFacts(pods // WORKLOADS) for workload in workloads})
    seen = ClusterLook(table, facts, dict.fromkeys(names, NodeFacts()), (), state, use,
                       dict(zip(names, loads.tolist(), strict=True)), (NOW - 900.0, NOW), NOW)  # fmt: skip
    caps = CapLimits(
        percent_per_hour=100, per_hour=moves, per_day=moves, open_moves=moves, node_per_hour=100,
        namespace_per_hour=moves, workload_per_hour=100,
    )  # fmt: skip
    rules = MoveRules(caps=caps, nodes=NodeRules(bad_looks=1))
    start = time.process_time()
    found = plan_moves(seen, (), rules, BadLooks(1, 1)).moves
    return {f"whole look, {len(found)} moves": time.process_time() - start}


def peak_megabytes() -> float:
    """Return the highest memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


PARTS = {"keep": keep, "plan": plan, "look": look}


def main() -> None:
    """Run each part in a process of its own and print the table."""
    size = options(__doc__, pods=100_000, nodes=5_000, moves=100)
    table = Table(f"{size.nodes:,} nodes, {size.pods:,} pods", ("step", "processor, s", "peak MB of the process"))
    for part in PARTS:
        command = [sys.executable, __file__, "--part", part, str(size.pods), str(size.nodes), str(size.moves)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        steps, megabytes = json.loads(output.splitlines()[-1])
        for step, seconds in steps.items():
            table.row(step, f"{seconds:.2f}", f"{megabytes:.0f}")


if __name__ == "__main__":
    if "--part" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--part")
        parser.add_argument("sizes", nargs=3, type=int)
        given = parser.parse_args()
        pods, nodes, moves = given.sizes
        steps = PARTS[given.part](pods, nodes, moves)
        print(json.dumps([steps, peak_megabytes()]))
    else:
        main()
