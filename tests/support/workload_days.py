"""Learned use of made-up workloads in a watcher's store, for tests and benchmarks of the Workloads page."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runtime.kubernetes.workloads import Workload
from watcher.store import Store
from watcher.usage.history.pod_day import PodUseDay
from watcher.usage.learn.cluster_totals import PART, TotalsHistory
from watcher.usage.learn.learner import WorkloadLearner
from watcher.usage.learn.learner_state import save_state
from watcher.usage.learn.use_round import UseRound
from watcher.usage.sources.pods import ContainerResources, PodKey, PodTemplate, RunningPod
from watcher.usage.store import UsageTables
from watcher.windows.container_use import ContainerUse
from watcher.workload_table import ContainerKey

GIB = 2.0**30
_NAMESPACES = ("shop", "search", "payments", "media", "batch", "monitoring", "platform", "team-a", "team-b", "team-c")
_PROGRAMS = ("web", "api", "worker", "cache", "index", "ingest", "mailer", "gateway", "scheduler", "report")
_KINDS = ("Deployment", "Deployment", "Deployment", "StatefulSet", "DaemonSet", "CronJob")
_DAYS, _ROUNDS_A_DAY = 8, 8


def fill_workloads(path: Path, count: int, until: int, seed: int = 7) -> list[Workload]:
    """Write eight days of learned use, and a day of totals, to a store's file, as the rounds of the source Fake do.

    Args:
        path: the store's file; it is created if missing.
        count: number of workloads; every third has a container ``proxy`` next to ``main``.
        until: end of the last round in Unix seconds.
        seed: seed of the use.
    """
    dice = np.random.default_rng(seed)
    workloads = [
        Workload(
            _NAMESPACES[number % len(_NAMESPACES)],
            _KINDS[number % len(_KINDS)],
            f"{_PROGRAMS[number // 10 % len(_PROGRAMS)]}-{number}",
        )
        for number in range(count)
    ]
    keys = [ContainerKey(each, "main") for each in workloads]
    keys += [ContainerKey(each, "proxy") for each in workloads[::3]]
    size, one = len(keys), np.ones(len(keys))
    pods = 1.0 + dice.integers(0, 12, size)
    requests = np.stack([dice.choice([0.1, 0.25, 0.5, 1.0, 2.0, 4.0], size), dice.choice([0.25, 0.5, 1, 2, 8], size)])
    levels = np.stack([dice.lognormal(-1.4, 0.7, size), dice.uniform(0.2, 0.95, size)])
    learner = WorkloadLearner()
    rounds = _DAYS * _ROUNDS_A_DAY
    for number in range(rounds):
        time = until - 86400 // _ROUNDS_A_DAY * (rounds - 1 - number)
        wave = 1 + 0.4 * np.sin(2 * np.pi * time / 86400)
        use = requests * levels * np.stack([wave * dice.uniform(0.8, 1.2, size), one]) * [[1], [GIB]]
        learner.observe(
            UseRound(
                float(time), 300.0, keys, np.arange(size), np.ones(size, np.int64), pods, 300 * one, use,
                requests * [[1], [GIB]],
            )
        )  # fmt: skip
    store = Store(path)
    UsageTables(store, "Fake").save_state(
        lambda stored: {**save_state(learner, stored), PART: _totals(learner, until).part()}
    )
    store.close()
    return workloads


def fill_pods(path: Path, workloads: Sequence[Workload], nodes: int, until: int, pods_of_node: int = 6) -> None:
    """Write the use of pods of the workloads to a store's file: some on each of ``node-1``, ``node-2`` ..., in turn."""
    dice = np.random.default_rng(11)
    template = {each: PodTemplate(each, "r1", (ContainerResources("main", 500),)) for each in workloads}
    of = [workloads[number % len(workloads)] for number in range(nodes * pods_of_node)]
    names = [f"{workload.name}-{number:05d}" for number, workload in enumerate(of)]
    pods = {
        PodKey(workload.namespace, name): RunningPod(template[workload], None, name, f"node-{1 + number % nodes}")
        for number, (workload, name) in enumerate(zip(of, names, strict=True))
    }
    day, store = PodUseDay(), Store(path)
    for age in (2, 1, 0):
        use = ContainerUse(
            until - 300 * age, 300.0, [each.namespace for each in of], names, ["main"] * len(of),
            dice.lognormal(-1.4, 0.9, len(of)), dice.uniform(0.1, 4, len(of)) * GIB,
        )  # fmt: skip
        changes = day.observe(use, pods)
        assert changes is not None
        UsageTables(store, "Fake").save_pods(changes)
    store.close()


def _totals(learner: WorkloadLearner, until: int) -> TotalsHistory:
    """Return a day of totals that ends with those of the learner's containers; two pods of three fit the capacity."""
    table = learner.containers((0.9,))
    requested, used = (np.sum(each * table.pods, axis=1) for each in (table.requests, table.use))
    times = until - 300.0 * np.arange(287, -1, -1)
    wave = 1 + 0.3 * np.sin(2 * np.pi * (times - until) / 86400)
    steps = 1 - 0.06 * (times < until - 30_000) + 0.03 * (times < until - 60_000)
    rows = np.stack(
        [times, *(np.outer(1.25 * requested, np.ones(288))), *np.outer(requested, steps), *np.outer(used, wave)]
    )
    return TotalsHistory(rows.T)
