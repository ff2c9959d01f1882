"""Tests of the control plane's programs when another process has taken the port that they were given."""

import socket
from itertools import chain
from pathlib import Path

import pytest
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.manifests import node
from control_plane.scheduler import Scheduler
from control_plane.usage import Kwok
from support import ports
from support.waiting import wait_until

pytestmark = pytest.mark.e2e


def test_programs_start_again_on_other_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program runs although its first port is in use; nodes that exist already get KWOK's other port."""
    free = ports.free_port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]

        def take(*numbers: int) -> None:
            monkeypatch.setattr(ports, "free_port", chain(numbers, iter(free, None)).__next__)

        take(free(), taken, free(), free(), taken)  # etcd's second port, then the API server's
        with ControlPlane(tmp_path) as cluster:
            kubelets = Kwok(cluster)
            cluster.api.create(kubelets.for_kwok(node("node-0")))
            with socket.create_server(("127.0.0.1", kubelet_port(cluster))) as other, kubelets:
                wait_until(lambda: kubelet_port(cluster) != other.getsockname()[1], "the node has the other port")
                take(taken)
                with Scheduler(cluster, [{"schedulerName": "default-scheduler"}]) as scheduler:
                    take(taken)
                    with ControllerManager(cluster) as controllers:
                        assert scheduler.process.status is controllers.process.status is None


def kubelet_port(cluster: ControlPlane) -> int:
    """Return the port of the node's kubelet."""
    port: int = cluster.api.get("/api/v1/nodes/node-0")["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    return port
