"""A node: containerd and a kubelet in namespaces and a control group of their own, at the paths of every machine.

The first process of its namespace of processes is the node's power: with it the kernel ends the kubelet, containerd,
its shims and all containers, and removes the node's mounts and network. The disk, the folder ``/var``, outlives that.
"""

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests
import yaml
from control_plane.builds import binary
from control_plane.processes import Process, children
from real_nodes.cgroups import PERIOD_MICROSECONDS, NodeGroup
from real_nodes.images import worker
from support.leaks import replaced

if TYPE_CHECKING:
    from real_nodes.cluster import RealCluster

#: Labels that say how much a node has, see :class:`real_nodes.cluster.RealCluster`.
CPU_LABEL, MEMORY_LABEL = "real-nodes.trimaran.io/cpu", "real-nodes.trimaran.io/memory"
#: What is left of a node's capacity for its system, apart from the threshold of eviction.
RESERVED_MILLICORES, EVICTION_MEBIBYTES = 50, 100
#: Time for which a node counts as short of memory after it was: long enough to be seen, short enough for a test.
PRESSURE_SECONDS = 45
#: Prefix of the addresses of nodes, and of their pods; the node's number follows.
NODES, PODS = "10.99.0.", "10.77."
KUBELET_PORT = 10250
_SPACES = ("--mount", "--cgroup", "--pid", "--net", "--uts")
_MIB = 2**20
# Sandboxes want a score of -998 for the killer of processes, which needs a capability that a container has not.
_CONTAINERD = """version = 2
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = 'registry.k8s.io/pause:3.10'
  disable_tcp_service = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '/usr/lib/cni'
    conf_dir = '/var/lib/cni/conf'
"""


class Node:
    """A node of a :class:`RealCluster`, whose capacity is the quota of its control group.

    Args:
        cluster: cluster of the node.
        number: number of the node, which is part of its name and addresses.
        cores: capacity.
        memory_mebibytes: capacity; about 150 MiB of it are needed by kubelet and containerd.
        period_microseconds: length of the period of the node's quota.

    Attributes:
        name: name of the node.
        cores: capacity.
        memory_mebibytes: capacity.
        address: address of the node.
        group: control group of the node.
        kubelet: process of the kubelet.
        containerd: process of containerd.
    """

    kubelet: Process
    containerd: Process
    _init: Process

    def __init__(
        self, cluster: "RealCluster", number: int, cores: float, memory_mebibytes: int,
        period_microseconds: int = PERIOD_MICROSECONDS,
    ) -> None:  # fmt: skip
        self.name, self.cores, self.memory_mebibytes = f"node-{number}", cores, memory_mebibytes
        self.address = f"{NODES}{number}"
        self.group = NodeGroup(self.name, cores, memory_mebibytes, period_microseconds)
        self._cluster, self._number = cluster, number
        self._folder = cluster.folder / self.name
        self._disk = self._folder / "var"
        self._disk.mkdir(parents=True)
        self._path = f"/api/v1/nodes/{self.name}"
        self._processes: list[Process] = []
        certificate = cluster.certificates.issue(
            f"system:node:{self.name}", organization="system:nodes", addresses=[self.address]
        )
        self._certificate = certificate
        self._write("kubelet.yaml", yaml.safe_dump(self._kubelet_settings(certificate)))
        self._write("containerd.toml", _CONTAINERD)
        self._write("meminfo", f"MemTotal: {memory_mebibytes << 10} kB\nSwapTotal: 0 kB\n")

    def start(self) -> None:
        """Start the node, also after :meth:`kill`; it is not yet Ready."""
        if not os.path.ismount(self._disk):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", self.name, self._disk], check=True)
            self._fill_disk()
        self._write("kubeconfig", yaml.safe_dump(self._kubeconfig()))
        self.group.create()
        with replaced(self._init.pid) if hasattr(self, "_init") else contextlib.nullcontext():
            self._boot()

    def _boot(self) -> None:
        self._begin()
        self._connect()
        self.containerd = self.run("containerd", "--config", self._folder / "containerd.toml")
        self.containerd.wait_until(lambda: self._root("/run/containerd/containerd.sock").exists(), "containerd listens")
        self.call("ctr", "--namespace", "k8s.io", "images", "import", self._cluster.images)
        self.kubelet = self.run(
            binary("kubelet"), "--config", self._folder / "kubelet.yaml", "--kubeconfig", self._folder / "kubeconfig",
            "--node-ip", self.address, "--cert-dir", "/var/lib/kubelet/pki", "--v", "2",
            "--node-labels", f"{CPU_LABEL}={round(1000 * self.cores)}m,{MEMORY_LABEL}={self.memory_mebibytes}Mi",
        )  # fmt: skip

    def is_ready(self) -> bool:
        """Return whether the API has the node, Ready and without taints, with the policy's capacity."""
        with contextlib.suppress(requests.HTTPError):
            node = self._cluster.api.get(self._path)
            ready = any((each["type"], each["status"]) == ("Ready", "True") for each in node["status"]["conditions"])
            return ready and "taints" not in node["spec"]
        return False

    def kill(self) -> None:
        """Take the node's power: all its processes end at once, without a word to the API; the disk stays."""
        for process in (getattr(self, "_init", None), *self._processes):
            if process is not None:
                process.kill()
        self._processes.clear()
        self.group.remove()

    def close(self) -> None:
        """End the node, and remove its disk."""
        self.kill()
        subprocess.run(["umount", "--quiet", "--lazy", self._disk], check=False)

    def run(self, *command: str | Path) -> Process:
        """Start a program on the node; its log is in the node's folder."""
        process = Process(self._inside(command), self._folder / f"{Path(command[0]).name}.log")
        self._processes.append(process)
        return process

    def call(self, *command: str | Path) -> str:
        """Run a program on the node to its end; return its output."""
        done = subprocess.run(self._inside(command), capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{self.name}: {command[0]}: {done.stderr[-2000:]}"
        return done.stdout

    def _inside(self, command: tuple[str | Path, ...]) -> list[str]:
        enter = f'{self.group.entering()} && exec nsenter --target {self._pid} {" ".join(_SPACES)} -- "$@"'
        return ["sh", "-c", enter, "sh", *map(str, command)]

    def _begin(self) -> None:
        """Start the first process, which mounts what the node sees."""
        mounts = [
            self.group.mounting(), f"hostname {self.name}", "ip link set lo up", "mount -t tmpfs tmpfs /run",
            "mkdir /run/lock", f"mount --bind {self._disk} /var", f"mount --bind {self._folder}/meminfo /proc/meminfo",
            "echo 1 > /proc/sys/net/ipv4/ip_forward", f"exec {worker()}",
        ]  # fmt: skip
        spaces = [*_SPACES, "--fork", "--kill-child", "--mount-proc"]
        enter = f'{self.group.entering(first=True)} && exec unshare {" ".join(spaces)} sh -c "$0"'
        self._init = Process(["sh", "-c", enter, " && ".join(mounts)], self._folder / "init.log")
        self._init.wait_until(lambda: "ready" in self._init.output, f"{self.name} begins")
        (self._pid,) = children(self._init.pid)

    def _connect(self) -> None:
        """Connect the node to the bridge of all nodes."""
        link, inside = f"veth-{self._number}", ["nsenter", "--target", str(self._pid), "--net"]
        pods = f"{PODS}{self._number}.0/24"
        # The namespace of an earlier node, and with it this link, ends some time after the last process in it.
        subprocess.run(["ip", "link", "delete", link], check=False, stderr=subprocess.DEVNULL)
        for command in (
            ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(self._pid)],
            ["ip", "link", "set", link, "master", self._cluster.BRIDGE, "up"],
            [*inside, "ip", "address", "add", f"{self.address}/24", "dev", "eth0"],
            [*inside, "ip", "link", "set", "eth0", "up"],
            [*inside, "ip", "route", "add", "default", "via", self._cluster.ADDRESS],
            ["ip", "route", "replace", pods, "via", self.address],
        ):
            subprocess.run(command, check=True)

    def set_connected(self, connected: bool) -> None:
        """Cut the node's network, or restore it; its containers go on."""
        state = "up" if connected else "down"
        subprocess.run(["ip", "link", "set", f"veth-{self._number}", state], check=True)

    def _root(self, path: str) -> Path:
        return Path(f"/proc/{self._pid}/root{path}")

    def _fill_disk(self) -> None:
        for name in ("lib/cni/conf", "log/pods", "tmp"):
            (self._disk / name).mkdir(parents=True)
        (self._disk / "run").symlink_to("/run")
        ranges = [[{"subnet": f"{PODS}{self._number}.0/24"}]]
        bridge = {
            "type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False,
            "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
        }  # fmt: skip
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (self._disk / "lib/cni/conf/pods.conflist").write_text(json.dumps(network))

    def _kubeconfig(self) -> dict[str, Any]:
        cluster = {"server": self._cluster.url, "certificate-authority": str(self._cluster.certificates.certificate)}
        user = {"client-certificate": str(self._certificate), "client-key": str(self._certificate)}
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}], "users": [{"name": "node", "user": user}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "node"}}],
        }  # fmt: skip

    def _kubelet_settings(self, certificate: Path) -> dict[str, Any]:
        # A kubelet has the cores of the machine for its own; the rest is reserved.
        reserved = 1000 * (os.cpu_count() or 1) - round(1000 * self.cores) + RESERVED_MILLICORES
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.address, "port": KUBELET_PORT, "healthzPort": 0, "readOnlyPort": 0,
            "cgroupDriver": "cgroupfs", "failCgroupV1": False, "failSwapOn": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "authentication": {"x509": {"clientCAFile": str(self._cluster.certificates.certificate)}},
            "tlsCertFile": str(certificate), "tlsPrivateKeyFile": str(certificate),
            "evictionHard": {"memory.available": f"{EVICTION_MEBIBYTES}Mi"},
            "evictionPressureTransitionPeriod": f"{PRESSURE_SECONDS}s",
            "systemReserved": {"cpu": f"{reserved}m"}, "enforceNodeAllocatable": ["pods"],
            "nodeStatusUpdateFrequency": "4s", "nodeLeaseDurationSeconds": 12, "makeIPTablesUtilChains": False,
            "maxPods": 50,
        }  # fmt: skip

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)
