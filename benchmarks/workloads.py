"""Learning what workloads use: one round of all containers, its state in the store, and the levels that scores use.

There are 100,000 pods of 8,000 workloads, a third of them with a second container, and 14 days of one round a day have
been learned before, in each of which a container's use is spread over its own bins. The baseline is the copy of the
round from the columns of a provider to the learner's input, which is plain Python.

    python benchmarks/workloads.py [--pods 100000] [--workloads 8000] [--rounds 5]
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from common import NOW, Table, options, processor_ms

from runtime.kubernetes.workloads import Workload
from scoring import UseLevels
from watcher.store import Store
from watcher.windows.container_use import ContainerUse
from watcher.workloads.learner import WorkloadLearner
from watcher.workloads.learner_state import load_state, save_state
from watcher.workloads.pods import DAYS, ContainerResources, PodKey, PodTemplate, RunningPod, RunningPods
from watcher.workloads.use_round import use_round

GIB, DAY = 2**30, 86_400


def cluster(pods: int, workloads: int) -> tuple[RunningPods, list[tuple[str, str]]]:
    """Return the running pods, and the names of the pods and containers."""
    dice = np.random.default_rng(1)
    templates = [
        PodTemplate(
            Workload(f"ns-{number % 200}", "Deployment", f"web-{number}"),
            "5d4f",
            tuple(ContainerResources(name, 500, GIB) for name in ("main", "proxy")[: 1 + (number % 3 == 0)]),
        )
        for number in range(workloads)
    ]
    # A few workloads have most of the pods, and each has at least one.
    sizes = dice.zipf(1.3, pods) % workloads
    sizes[:workloads] = np.arange(workloads)
    running = {
        PodKey(templates[number].workload.namespace, f"pod-{place}"): RunningPod(templates[number], 0.0)
        for place, number in enumerate(sizes.tolist())
    }
    return running, [(*key, each.name) for key, pod in running.items() for each in pod.template.containers]


def measured(names: list[tuple[str, str, str]], timestamp: int) -> ContainerUse:
    """Return the use of all containers at a time."""
    dice = np.random.default_rng(timestamp)
    namespaces, pods, containers = zip(*names, strict=True)
    cores = dice.gamma(2, 0.2, len(names))
    return ContainerUse(timestamp, 300.0, namespaces, pods, containers, cores, dice.uniform(0.2, 0.8, len(names)) * GIB)


def main() -> None:
    """Run the benchmark and print its table."""
    size = options(__doc__, pods=100_000, workloads=8_000, rounds=5)
    running, names = cluster(size.pods, size.workloads)
    learner = WorkloadLearner()
    for day in range(DAYS):
        learner.observe(use_round(measured(names, NOW + DAY * day), running, learner.time))
    title = f"{size.pods:,} pods, {len(names):,} containers, {size.workloads:,} workloads, after {DAYS} days"
    table = Table(title, ("step", "processor, ms", "times the baseline"))
    begin = NOW + DAY * (DAYS - 1)
    use = [measured(names, begin + 300 * number) for number in range(1, size.rounds + 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store = Store(path)
        store.save_workloads("x", lambda stored: save_state(learner, stored))
        memory = psutil.Process().memory_info().rss
        times: dict[str, list[float]] = {}
        levels = None
        for each in use:
            start = time.process_time()
            round_ = use_round(each, running, learner.time)
            copied = time.process_time()
            learner.observe(round_)
            learned = time.process_time()
            store.save_workloads("x", lambda stored: save_state(learner, stored))
            saved = time.process_time()
            result = learner.table()
            levels = UseLevels.of_workloads(result, levels)
            read = time.process_time()
            for step, took in (
                ("copy to the learner's input (baseline)", copied - start), ("learn", learned - copied),
                ("store the state", saved - learned), ("table and levels", read - saved),
            ):  # fmt: skip
                times.setdefault(step, []).append(1000 * took)
        grown = psutil.Process().memory_info().rss - memory
        store.close()
        file_size = path.stat().st_size
        store = Store(path)
        times["percentiles of all containers"] = [processor_ms(learner.containers)]
        times["load after a restart"] = [processor_ms(lambda: load_state(store.load_workloads("x"), 50_000))]
        store.close()
    base = float(np.median(times["copy to the learner's input (baseline)"]))
    for step, took in times.items():
        table.row(step, f"{np.median(took):.0f}", f"{np.median(took) / base:.1f}")
    packed = sum(sum(part.nbytes for part in day) for _, day in learner.past)
    held = learner.rows.nbytes + packed
    a_container, a_workload = held / len(learner.keys), held / size.workloads
    print(
        f"\nlearner: {held / 2**20:.0f} MiB; {a_workload:.0f} bytes a workload, {a_container:.0f} a container, of which"
        f" {learner.rows.itemsize} are a row; file {file_size / 2**20:.0f} MiB;"
        f" memory grew by {grown / 2**20:.0f} MiB in {size.rounds} rounds"
    )


if __name__ == "__main__":
    main()
