"""Scheduler plugin in Python that places pods by the actual use of nodes.

    python examples/scheduler_plugin.py                                  # embeds a watcher in this process
    python examples/scheduler_plugin.py --watcher http://127.0.0.1:2020  # reads a watcher that runs as a service

Use this class in a scheduler of your own. It keeps a fresh copy of the load in the background, and places a whole gang
of pods or none of it. Each placed pod counts at once, before any measurement shows it.
"""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from client import ClientError, Collector, WatcherClient, connect
from scoring import LoadVariationRiskBalancing, MetricsTable, NodeTable, Pod


class LoadAwarePlacement:
    """Placement of gangs on the nodes with the lowest load and variation."""

    def __init__(self, watcher: WatcherClient) -> None:
        self.load = Collector(watcher, interval_seconds=30, max_age_seconds=120)
        self.plugin = LoadVariationRiskBalancing(count_recent_pods=True)

    def start(self) -> None:
        """Start to collect; call it once."""
        self.load.start()

    def stop(self) -> None:
        """Stop collecting."""
        self.load.close()

    def place(self, gang: Iterable[Pod], nodes: NodeTable) -> dict[str, str]:
        """Return the node of each pod of the gang, by pod name; the table then counts the pods.

        Raises:
            ClientError: there is no load, or it is too old.
            LookupError: a pod has no feasible node.
        """
        snapshot = self.load.snapshot()
        placed = {}
        with nodes.transaction() as plan:  # all or nothing
            prepared = self.plugin.prepare(plan, MetricsTable.align(snapshot, plan))
            for pod in gang:
                feasible = plan.feasible(pod)  # resources, cordons, taints and selectors permit it
                if not feasible.any():
                    raise LookupError(f"no feasible node for pod {pod.name}")
                best = plan.names[int(np.where(feasible, prepared.score(pod), -1).argmax())]
                print(prepared.explain(pod, best))
                plan.assume(pod, best)
                placed[pod.name] = best
        return placed


def main() -> int:
    """Place two pods on the nodes of the watcher, and print the reasons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watcher", help="address of a watcher; without it, this process embeds a watcher")
    options = parser.parse_args()

    try:
        watcher = connect(options.watcher)
    except ValueError as error:
        parser.error(str(error))
    placement = LoadAwarePlacement(watcher)
    placement.start()
    try:
        # A scheduler has nodes in its own cache: NodeTable.from_k8s accepts the Kubernetes client's objects.
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
