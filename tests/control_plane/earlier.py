"""The code of an earlier version, from the history of this repository, as processes next to those of today."""

import subprocess
import sys
from pathlib import Path

from control_plane.cluster import ControlPlane
from control_plane.moving import QUICK, RebalancerProcess
from control_plane.node_writer import Writer
from control_plane.processes import Process, numbered

ROOT = Path(__file__).parents[2]
#: What stands for version 0.1; tests/data/earlier has files that it wrote.
COMMIT = "486406a7"
_PACKAGES = ("runtime", "watcher", "client", "scoring", "trimaran")
#: What were settings then: today rules, which tests change as constants.
_QUICK_THEN = {
    **QUICK, "interval_seconds": 0.3, "bad_looks": 1, "min_age_seconds": 0, "node_moves_per_hour": 10,
    "workload_cooldown_seconds": 0, "node_cooldown_seconds": 0, "holdout_percent": 0, "lease_seconds": 6,
    "scaler_quiet_seconds": 0,
}  # fmt: skip


def unpack(folder: Path) -> Path:
    """Write the packages of the earlier version into a folder; return the folder."""
    folder.mkdir(exist_ok=True)
    packed = subprocess.run(["git", "archive", COMMIT, *_PACKAGES], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        raise RuntimeError(f"{packed.stderr.decode()}: the whole history is needed, see git fetch --unshallow")
    subprocess.run(["tar", "--extract", "--directory", folder], input=packed.stdout, check=True)
    return folder


class Earlier:
    """The earlier version in a folder.

    Args:
        folder: folder for its code.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = unpack(folder)

    def command(self, *words: str) -> list[str]:
        """Return a command that runs a Python program with its code."""
        return ["env", f"--chdir={self._folder}", f"PYTHONPATH={self._folder}", sys.executable, *words]

    def run(self, *words: str) -> str:
        """Run a Python program with its code; return what that prints."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rebalancer(self, cluster: ControlPlane, watcher: str, *, server: str = "") -> RebalancerProcess:
        """Start its rebalancer in mode act, with the rights of today's manifests."""
        return _EarlierRebalancer(self, cluster, watcher, server)

    def node_writer(self, cluster: ControlPlane, watcher: str, token: str) -> Writer:
        """Start its ``trimaran nodes``, which writes taints."""
        return _EarlierWriter(self, cluster, watcher, token)


class _EarlierWriter(Writer):
    def __init__(self, earlier: Earlier, cluster: ControlPlane, watcher: str, token: str) -> None:
        command = earlier.command(
            "-m", "trimaran", "nodes", "--taints", "--windows", "15m", "--watcher", watcher, "--port", "0",
            "--kube-config", str(cluster.kubeconfig("nodes", token=token)),
        )  # fmt: skip
        for name, value in {"interval_seconds": 0.5, "lease_seconds": 3, "min_hot_seconds": 1}.items():
            command += ["--set", f"nodes.{name}={value}"]
        self.process = Process(command, numbered(cluster.folder, "earlier.log"))


class _EarlierRebalancer(RebalancerProcess):
    def __init__(self, earlier: Earlier, cluster: ControlPlane, watcher: str, server: str) -> None:
        token = cluster.service_account("trimaran", "trimaran-rebalancer").token
        command = earlier.command(
            "-m", "trimaran", "rebalance", "--mode", "act", "--watcher", watcher, "--port", "0",
            "--kube-config", str(cluster.kubeconfig("rebalancer", token=token, server=server)),
        )  # fmt: skip
        for name, value in _QUICK_THEN.items():
            command += ["--set", f"rebalance.{name}={value}"]
        self.process = Process(command, numbered(cluster.folder, "earlier.log"), {"TRIMARAN_LOG__FORMAT": "json"})
