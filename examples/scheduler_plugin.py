"""A scheduler plugin in Python: where should the next pods go, by what nodes really use?

    python examples/scheduler_plugin.py                                  # embeds a watcher, in this process
    python examples/scheduler_plugin.py --watcher http://127.0.0.1:2020  # reads one that runs as a service

The plugin below is what you would put into your own scheduler: it keeps a fresh copy of the load in the background,
and places a whole gang of pods or none of it, counting each placed pod at once instead of when it is first measured.
"""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from client import ClientError, Collector, WatcherClient, connect
from scoring import LoadVariationRiskBalancing, MetricsTable, NodeTable, Pod


class LoadAwarePlacement:
    """Places pods on the nodes where load and its variation leave most room."""

    def __init__(self, watcher: WatcherClient) -> None:
        self.load = Collector(watcher, interval_seconds=30, max_age_seconds=120)
        self.plugin = LoadVariationRiskBalancing(count_recent_pods=True)

    def start(self) -> None:
        """Begin to collect; needed once."""
        self.load.start()

    def stop(self) -> None:
        """Stop collecting."""
        self.load.close()

    def place(self, gang: Iterable[Pod], nodes: NodeTable) -> dict[str, str]:
        """Return a node for every pod of the gang, by name; the table then counts them.

        Raises:
            ClientError: there is no load to go by, or it is too old.
            LookupError: no node is feasible for some pod.
        """
        snapshot = self.load.snapshot()
        placed = {}
        with nodes.transaction() as plan:  # all or nothing
            prepared = self.plugin.prepare(plan, MetricsTable.align(snapshot, plan))
            for pod in gang:
                feasible = plan.feasible(pod)  # it fits, and neither cordon, taint nor selector keeps it off
                if not feasible.any():
                    raise LookupError(f"no feasible node for pod {pod.name}")
                best = plan.names[int(np.where(feasible, prepared.score(pod), -1).argmax())]
                print(prepared.explain(pod, best))
                plan.assume(pod, best)
                placed[pod.name] = best
        return placed


def main() -> int:
    """Place two pods on the nodes that the watcher knows, and say why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watcher", help="the watcher's address; without one, this process watches by itself")
    options = parser.parse_args()

    try:
        watcher = connect(options.watcher)
    except ValueError as error:
        parser.error(str(error))
    placement = LoadAwarePlacement(watcher)
    placement.start()
    try:
        # In a scheduler, nodes come from its own cache: NodeTable.from_k8s takes what the Kubernetes client returns.
        nodes = NodeTable.from_k8s([_node(name) for name in placement.load.snapshot().data], [])
        print(placement.place([Pod.from_k8s(_pod(name)) for name in ("web-0", "web-1")], nodes))
    except (ClientError, LookupError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        placement.stop()
    return 0


def _node(name: str) -> dict[str, Any]:
    amount = {"cpu": "4", "memory": "16Gi"}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"capacity": amount, "allocatable": amount}}


def _pod(name: str) -> dict[str, Any]:
    requests = {"cpu": "500m", "memory": "1Gi"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "web", "resources": {"requests": requests}}]},
    }


if __name__ == "__main__":
    sys.exit(main())
