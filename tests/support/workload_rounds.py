"""Rounds of pod use for tests of the learner: many workloads, with pods and revisions that change."""

import numpy as np

from watcher.usage.sources.pods import ContainerResources, PodKey, PodTemplate, RunningPod, RunningPods, Workload
from watcher.windows.container_use import ContainerUse

GIB = 2**30
START = 1_700_000_000
STEP = 86_400 // 2 + 3_600
"""Seconds from one round to the next: so that rounds are on many days and in all hours."""
_WORKLOADS, _PODS = 40, 200


def measured(number: int) -> tuple[ContainerUse, RunningPods]:
    """Return the use of containers in a round, and the running pods; always the same for a number."""
    dice = np.random.default_rng(number)
    workloads = dice.integers(0, _WORKLOADS, _PODS).tolist()
    templates = {
        each: PodTemplate(
            Workload("shop", "Deployment", f"web-{each}"),
            f"revision-{(number + each) // 10}",
            (ContainerResources("main", 100 * (1 + each), GIB), ContainerResources("proxy")),
        )
        for each in set(workloads)
    }
    running = {
        PodKey("shop", f"pod-{place}"): RunningPod(templates[each], float(START - 60 * place))
        for place, each in enumerate(workloads)
    }
    names = [key.name for key in running for _ in range(2)]
    use = ContainerUse(
        timestamp=START + STEP * number,
        window_seconds=300.0,
        namespaces=["shop"] * len(names),
        pods=names,
        containers=["main", "proxy"] * _PODS,
        cpu_cores=dice.gamma(2, 0.1, len(names)),
        memory_bytes=dice.uniform(0.1, 1, len(names)) * GIB,
    )
    return use, running
