"""Hot pod-minutes of a replay by class of pod.

- ``large``: the 95th percentile of the pod's recorded CPU use is a tenth of the mean node's CPU or more; other pods are
  ``small``.
- ``job``, or ``service``.
- ``new``: the history does not have the pod's owner on any day; other pods are ``recurring``.
- ``placed_first``: the pod was placed in the first 20 minutes of its owner, which begin with the owner's first pod in
  the replay; all minutes of the pod. Other pods are ``placed_later``.
- ``first_20``: the minutes of all pods in the first 20 minutes of their owner; other minutes are ``later``.

A minute is hot if the CPU use of the pod's node is at or above 80 percent. Only minutes after the warm-up count, so an
owner that began before it has few ``first_20`` minutes or none.
"""

from collections.abc import Iterator

import numpy as np

from scoring.arrays import Float64s
from trimaran.simulator.replay import ReplayOutcome
from trimaran.traces.history import TraceHistory
from trimaran.traces.trace import Trace

FIRST_MINUTES, LARGE, HOT = 20, 0.1, 0.8
NAMES = (
    "total", "large", "small", "job", "service", "new", "recurring", "placed_first", "placed_later", "first_20",
    "later",
)  # fmt: skip


def by_class(outcome: ReplayOutcome, history: TraceHistory | None) -> dict[str, float]:
    """Return ``hot_CLASS`` and ``all_CLASS``, pod-minutes on hot and on all nodes, of each class and in total.

    Args:
        outcome: outcome of a replay.
        history: history of the trace, also if the replay had none.
    """
    cluster, warm_up = outcome.cluster, outcome.cluster.trace.warm_up_minutes
    hot = cluster.ledger.cpu_milli >= HOT * cluster.ledger.capacity[0][:, None]
    before = np.concatenate([np.zeros((len(hot), 1)), np.cumsum(hot, axis=1)], axis=1)
    amounts = {f"{kind}_{name}": 0.0 for kind in ("hot", "all") for name in NAMES}
    for node, begin, end, names in _spans(outcome, history):
        first = max(begin, warm_up)
        for name in names if first < end else ():
            amounts[f"hot_{name}"] += float(before[node, end] - before[node, first])
            amounts[f"all_{name}"] += end - first
    return amounts


def _spans(outcome: ReplayOutcome, history: TraceHistory | None) -> Iterator[tuple[int, int, int, tuple[str, ...]]]:
    """Yield each run, divided at the end of its owner's first minutes: node, begin, end and the classes."""
    cluster, trace = outcome.cluster, outcome.cluster.trace
    owners = list(zip(trace.owner_kinds, trace.owners, strict=True))
    known = set() if history is None else set(zip(history.owner_kinds, history.owners, strict=True))
    large = high_use(trace) >= LARGE * trace.cpu_capacity_milli.mean()
    first: dict[tuple[str, str], int] = {}
    for run in cluster.pod_runs:  # in the order of their start
        owner = owners[run.pod]
        last = first.setdefault(owner, run.start) + FIRST_MINUTES
        names = (
            "total",
            "large" if large[run.pod] else "small",
            "job" if cluster.is_job(run.pod) else "service",
            "recurring" if owner in known else "new",
            "placed_first" if run.start < last else "placed_later",
        )
        between = min(max(last, run.start), run.end)
        yield run.node, run.start, between, (*names, "first_20")
        yield run.node, between, run.end, (*names, "later")


def high_use(trace: Trace) -> Float64s:
    """Return the 95th percentile of each pod's recorded CPU use, millicores, shape (pods,)."""
    lives = np.diff(trace.use.offsets).tolist()
    uses = (trace.usage(pod, 0, life)[0] for pod, life in enumerate(lives))
    return np.array([np.percentile(use, 95) if len(use) else 0.0 for use in uses])
