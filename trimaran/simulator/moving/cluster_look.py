"""State of a replayed cluster as the live rebalancer reads it from the API server and from the watcher.

A pod keeps its identity when it moves, so its lineage is the pod itself. A moved pod is not Ready before it works. A
workload wants as many replicas as it has pods, and a pod in the queue is a replica that is pending.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.workloads import Workload
from trimaran.rebalancer.eligibility import WorkloadState
from trimaran.rebalancer.facts import NodeFacts, PodBarrier, PodFacts, WorkloadFacts
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.measured_use import cpu_loads
from trimaran.simulator.cluster import Cluster, PodRun
from trimaran.simulator.moving.past_use import DAY_MINUTES, PastUse
from trimaran.simulator.windows import unix_seconds
from watcher.model import WatcherMetrics
from watcher.pod_use_table import STEP_SECONDS, STEPS, PodUseTable

_JOB, _WAITS = frozenset({PodBarrier.JOB}), frozenset({PodBarrier.NOT_READY})


def cluster_look(cluster: Cluster, metrics: WatcherMetrics, past: PastUse) -> ClusterLook:
    """Return the state of the cluster in the current minute.

    Args:
        cluster: the simulated cluster.
        metrics: metrics of the nodes.
        past: past use of the pods; its ``known_steps`` was called in this minute.
    """
    runs = list(cluster.running.values())
    waiting = [queued.pod for queued in cluster.queue.values() if queued.ready <= cluster.minute]
    facts = {cluster.pods[run.pod].uid: _facts(cluster, run) for run in runs}
    facts |= {pod.uid: PodFacts(barriers=_WAITS) for pod in waiting}
    return ClusterLook(
        table=cluster.nodes,
        pods=facts,
        nodes=dict.fromkeys(cluster.nodes.names, NodeFacts()),
        pending=waiting,
        state=WorkloadState(_workloads((*cluster.pods.values(), *waiting))),
        use=_use(cluster, runs, past),
        measured=cpu_loads(metrics),
        window=(float(metrics.window.start), float(metrics.window.end)),
        now=cluster.now,
    )


def _facts(cluster: Cluster, run: PodRun) -> PodFacts:
    """Return the facts of a running pod."""
    barriers = _JOB if cluster.jobs[run.pod] else frozenset()
    if run.works > cluster.minute:
        return PodFacts(created_at=float(unix_seconds(run.start)), barriers=barriers | _WAITS)
    return PodFacts(float(unix_seconds(run.start)), float(unix_seconds(run.works)), barriers=barriers)


def _workloads(pods: Iterable[Pod]) -> dict[Workload, WorkloadFacts]:
    """Return the facts of each pod's workload: it wants as many replicas as it has pods."""
    counts = Counter(pod.workload for pod in pods if pod.workload is not None)
    return {workload: WorkloadFacts(count) for workload, count in counts.items()}


def _use(cluster: Cluster, runs: list[PodRun], past: PastUse) -> PodUseTable:
    """Return the past use of the running pods."""
    cpu, memory = past.measured(runs, STEPS)
    pods = [cluster.pods[run.pod] for run in runs]
    until = float(past.known_until)
    since = np.full(len(runs), until - past.known_steps(DAY_MINUTES) * STEP_SECONDS)
    return PodUseTable(
        timestamp=until,
        uids=tuple(pod.uid for pod in pods),
        names=tuple(f"{pod.namespace}/{pod.name}" for pod in pods),
        nodes=("",) * len(runs),
        workloads=tuple(pod.workload or Workload("", "", "") for pod in pods),
        revisions=("",) * len(runs),
        since=since,
        last_seen=np.full(len(runs), until),
        cpu_cores=cpu,
        memory_gib=memory,
        courses=past.courses(runs).astype(np.float16),
    )
