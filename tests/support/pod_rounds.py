"""Rounds of pod use in which pods come and go, for tests that keep the use of single pods."""

import numpy as np

from watcher.usage.sources.pods import ContainerResources, PodKey, PodTemplate, RunningPod, RunningPods, Workload
from watcher.windows.container_use import ContainerUse

BEGIN = 1_600_002_000 // 3600 * 3600
ROUND = 300
_GIB = 2**30
_TEMPLATES = [
    PodTemplate(Workload("shop", "Deployment", f"app-{number}"), f"r{number}", (ContainerResources("main", 500),))
    for number in range(3)
]


def a_pod(name: str, node: str) -> RunningPod:
    """Return a pod of the first workload."""
    return RunningPod(_TEMPLATES[0], None, f"uid-{name}", node)


def use_of_pods(timestamp: int, *rows: tuple[str, str, float, float], seconds: float = 300.0) -> ContainerUse:
    """Return the use of containers in the namespace shop: pod, container, cores and GiB."""
    pods, containers, cores, sizes = zip(*rows, strict=True)
    memory = np.array(sizes, np.float64) * _GIB
    return ContainerUse(timestamp, seconds, ["shop"] * len(rows), pods, containers, np.array(cores, np.float64), memory)


def pod_round(number: int, *, seconds: float = 300.0) -> tuple[ContainerUse, RunningPods]:
    """Return a round of pods of which some are new and others gone, on two nodes."""
    dice = np.random.default_rng(number)
    alive = [pod for pod in range(60) if (number // 40 + pod) % 3 or pod % 5 == 0]
    rows = [(str(pod), "main", float(dice.uniform(0, 4)), float(dice.uniform(0, 8))) for pod in alive]
    pods = {
        PodKey("shop", str(pod)): RunningPod(_TEMPLATES[pod % 3], None, f"uid-{pod}", f"n{1 + pod % 2}")
        for pod in alive
    }
    return use_of_pods(BEGIN + number * ROUND, *rows, seconds=seconds), pods
