"""Movers of running pods in a live run: ``trimaran rebalance`` as it ships, and the descheduler as docs/nodes.md says.

The rebalancer acts with the rights of its manifests. Only its share of moves and the cap of a namespace are set, as a
trace has one namespace. The descheduler runs every five minutes of the trace, and leaves the pods of jobs alone.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from control_plane.cluster import ControlPlane
from control_plane.descheduler import descheduler_command, documented_policy
from control_plane.moving import MANIFESTS
from control_plane.processes import Process
from control_plane.rights import grant_rights
from divided import SPEED_VARIABLE

MOVES_PERCENT: Mapping[str, float] = {"moves": 0.1, "more-moves": 1.0}
"""Share of the pods that the rebalancer moves per hour, percent, by the simulator's suffix of a policy."""
LOW_NODE_UTILIZATION = "low-node-utilization"
MOVERS = (*MOVES_PERCENT, LOW_NODE_UTILIZATION)
_DESCHEDULING_SECONDS = 300
_SERVICES = {"matchExpressions": [{"key": "pod-template-hash", "operator": "Exists"}]}


@contextmanager
def moving(
    mover: str, cluster: ControlPlane, watcher: str, program: tuple[str, ...], speed: int, folder: Path
) -> Iterator[None]:
    """Run a mover until the block ends.

    Args:
        mover: one of :data:`MOVERS`.
        cluster: cluster whose pods move.
        watcher: address of the watcher.
        program: command of ``trimaran`` with divided durations.
        speed: minutes of the trace in a minute of life.
        folder: folder for ``rebalancer.json``, the state and the metrics of the rebalancer at the end.
    """
    if mover == LOW_NODE_UTILIZATION:
        policy = documented_policy(watcher)
        evictor = {"name": "DefaultEvictor", "args": {"labelSelector": _SERVICES}}
        policy["profiles"][0]["pluginConfig"].append(evictor)
        interval = f"{_DESCHEDULING_SECONDS / speed:g}s"
        command, environment = descheduler_command(cluster, policy, interval)
        process = Process(command, cluster.folder / "descheduler.log", environment)
        try:
            yield
        finally:
            process.kill()
        return
    grant_rights(cluster, *MANIFESTS)
    token = cluster.service_account("trimaran", "trimaran-rebalancer").token
    command = [
        *program, "rebalance", "--mode", "act", "--watcher", watcher, "--port", "0",
        "--kube-config", str(cluster.kubeconfig("rebalancer", token=token)),
        "--set", f"rebalance.percent_per_hour={MOVES_PERCENT[mover]:g}",
        "--set", "rebalance.namespace_moves_per_hour=1000",
    ]  # fmt: skip
    process = Process(command, cluster.folder / "rebalancer.log", {SPEED_VARIABLE: str(speed)})
    try:
        process.wait_until(lambda: requests.get(f"{process.url}/readyz", timeout=5).ok, "the rebalancer is ready")
        yield
        (folder / "rebalancer.json").write_text(json.dumps(_state(process.url), indent=1))
    finally:
        process.terminate()


def _state(url: str) -> dict[str, Any]:
    """Return the state and the metrics of a rebalancer."""
    lines = requests.get(f"{url}/metrics", timeout=30).text.splitlines()
    series = (line.rpartition(" ") for line in lines if line.startswith("trimaran_rebalancer"))
    metrics = {name: float(value) for name, _, value in series}
    return {"status": requests.get(f"{url}/status", timeout=30).json(), "metrics": metrics}
