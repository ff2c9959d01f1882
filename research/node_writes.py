"""Number of writes of `trimaran nodes` to the API server, for 5,000 nodes and an hour of real loads, replayed fast.

The load of each node is a random hour of a real host (``machine_traces``), averaged over 15 minutes. `trimaran nodes`
runs one cycle per minute with its default settings, except for the budget of writes per minute: once with the hosts'
CPU alone, and once also with their memory, which is above 80 % on nearly all hosts. The API server is a fake in memory,
which merges patches and refuses old resource versions. A taint that is set again on a node within half an hour counts
as a flap.

    python research/node_writes.py FOLDER
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from machine_traces import LOADERS, Floats
from support.nodes_api import NodesApi

from trimaran.soft_taints.annotations import AnnotatedLoad
from trimaran.soft_taints.hysteresis import HotNodeRule
from trimaran.soft_taints.node_state import NodeState, NodeStateCache
from trimaran.soft_taints.writer import NodeWriter, WritePlan
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

NODES, MINUTES, WINDOW, SEED = 5000, 60, 15, 7
BUDGETS = (60, 300)


def shapes(folder: Path) -> Floats:
    """Return the 15-minute averages of CPU and memory of random hours of hosts, shape (2, nodes, minutes)."""
    trace = LOADERS["alibaba"](folder)
    both = np.stack([trace.samples["CPU"], trace.samples["Memory"]])
    sums = np.cumsum(np.nan_to_num(both), axis=2)
    known = np.cumsum(~np.isnan(both), axis=2)
    means = (sums[..., WINDOW:] - sums[..., :-WINDOW]) / np.maximum(known[..., WINDOW:] - known[..., :-WINDOW], 1)
    dice = np.random.default_rng(SEED)
    whole = (known[0, :, WINDOW:] - known[0, :, :-WINDOW]) == WINDOW
    drawn = []
    while len(drawn) < NODES:
        host, start = dice.integers(means.shape[1]), dice.integers(means.shape[2] - MINUTES)
        if whole[host, start : start + MINUTES].all():
            drawn.append(means[:, host, start : start + MINUTES])
    return np.stack(drawn, axis=1)


def snapshot(loads: Floats, now: int) -> WatcherMetrics:
    """Return a watcher's snapshot of some loads.

    Args:
        loads: CPU, or CPU and memory, of each node in percent, shape (kinds, nodes).
        now: end of the window, Unix seconds.
    """
    nodes = {
        f"node-{n}": NodeMetrics(
            tuple(Metric(kind, kind, "AVG", "15m", value) for kind, value in zip(("CPU", "Memory"), both, strict=False))
        )
        for n, both in enumerate(loads.T.tolist())
    }
    return WatcherMetrics(now, Window("15m", now - 60 * WINDOW, now), "replay", nodes)


class ReplayedWatcher:
    """Fake watcher that serves the loads of the minute ``minute``, which a caller sets.

    Args:
        loads: CPU, or CPU and memory, of each node in percent, shape (kinds, nodes, minutes).
    """

    def __init__(self, loads: Floats) -> None:
        self.loads, self.minute = loads, 0
        self._snapshots: dict[int, WatcherMetrics] = {}

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the snapshot of the current minute; the window is ignored."""
        del window
        if self.minute not in self._snapshots:
            self._snapshots = {self.minute: snapshot(self.loads[..., self.minute], 60 * self.minute)}
        return self._snapshots[self.minute]


def replay(loads: Floats, budget: float) -> str:
    """Run `trimaran nodes` for an hour of loads; return a Markdown row with the writes.

    Args:
        loads: CPU, or CPU and memory, of each node in percent, shape (kinds, nodes, minutes).
        budget: writes per minute that are allowed.
    """
    api, watcher, mirror = NodesApi(*(f"node-{n}" for n in range(NODES))), ReplayedWatcher(loads), NodeStateCache()
    mirror.replace(api.nodes.values())
    plan = WritePlan(rule=HotNodeRule(), windows=("15m",), writes_per_minute=budget)
    writer = NodeWriter(
        api, mirror, watcher, plan, clock=lambda: 60.0 * watcher.minute, monotonic=lambda: 60.0 * watcher.minute
    )
    most, before, flaps, ended = 0, 0, 0, dict[str, int]()
    hot: set[str] = set()
    set_on: Counter[str] = Counter()
    for minute in range(MINUTES):
        watcher.minute = minute
        writer.run_cycle()
        most, before = max(most, len(api.writes) - before), len(api.writes)
        now = {name for name, node in api.nodes.items() if NodeState.from_k8s(node).is_tainted(plan.taint_key)}
        flaps += sum(minute - ended[name] < 30 for name in now - hot if name in ended)
        ended |= dict.fromkeys(hot - now, minute)
        set_on.update(now - hot)
        hot = now
    counts = writer.counts
    return (
        f"| {'CPU' if len(loads) == 1 else 'CPU, memory'} | {budget:g} | {len(api.writes):,} | {most} | "
        f"{counts.taints:,} | {sum(set_on.values()):,} | {flaps} | {max(set_on.values(), default=0)} | "
        f"{len(hot):,} | {percent_wrong(api, loads[..., -1]):.1f} |"
    )


def percent_wrong(api: NodesApi, loads: Floats) -> float:
    """Return the percentage of nodes whose load annotation is missing or differs from the load by more than 10 points.

    Args:
        api: API server with the annotated nodes.
        loads: CPU, or CPU and memory, of each node in percent, shape (kinds, nodes).
    """
    bad = 0
    for n, values in enumerate(loads.T.tolist()):
        annotation = (api.nodes[f"node-{n}"]["metadata"].get("annotations") or {}).get("load.trimaran.io/15m", "")
        shown = list(AnnotatedLoad.parse(annotation).loads.values())
        bad += len(shown) < len(values) or any(abs(one - other) > 10 for one, other in zip(shown, values, strict=True))
    return 100 * bad / NODES


def main() -> None:
    """Print a row for each budget of writes per minute, with CPU alone and with CPU and memory."""
    loads = shapes(Path(sys.argv[1]))
    hot = [f"{(load[:, -1] >= 80).sum():,} by {name}" for name, load in zip(("CPU", "memory"), loads, strict=True)]
    print(f"{NODES:,} nodes, {MINUTES} minutes; at 80 % or more at the end: {', '.join(hot)}")
    head = (
        "load of", "budget a minute", "writes", "most in a minute", "taint writes", "taints set",
        "set again within 30 min", "most often on one node", "hot at the end", "annotations off by two steps, %",
    )  # fmt: skip
    print("|", " | ".join(head), "|\n|---", "|---:" * (len(head) - 1), "|", sep="")
    for kinds in (1, 2):
        for budget in BUDGETS:
            print(replay(loads[:kinds], budget), flush=True)


if __name__ == "__main__":
    main()
