"""Time until all gangs run: ``trimaran scheduler`` and the scheduler of scheduler-plugins, on one control plane.

There are 1,000 empty nodes and 100 gangs of 32 pods, which are pending when a scheduler starts. Both place gangs by
Coscheduling, and look at all nodes; ours has kube-scheduler's scores and no load. The time is from the first pod that a
scheduler has placed, by its own metrics, to the last.

    python benchmarks/gangs.py [--nodes 1000] [--gangs 100] [--size 32] [--rounds 1]
"""

import statistics
import sys
import tempfile
from pathlib import Path

import yaml
from common import Table, options
from control_plane.cluster import ControlPlane
from control_plane.gang_scenarios import RESOURCES
from control_plane.manifests import container, node, pod
from control_plane.plugin_oracle import ALL_RIGHTS, define
from control_plane.processes import Process
from control_plane.scheduler import Scheduler
from scheduler_rate import NAME, Bench, Measurement
from support.ports import nowhere
from support.servers import wait_until

GROUP = "scheduling.x-k8s.io"
GROUPS = f"/apis/{GROUP}/v1alpha1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
PROFILE = {
    "schedulerName": NAME,
    "plugins": {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    },
}


class GangBench(Bench):
    """Control plane with nodes, and the two schedulers."""

    def __init__(self, cluster: ControlPlane, gangs: int, size: int) -> None:
        super().__init__(cluster, "", gangs * size)
        self._gangs, self._size = gangs, size
        self.runs = {"scheduler-plugins": self._upstream, "ours": self._ours}

    def measure_gangs(self, run: str) -> Measurement:
        """Create the gangs, let a scheduler place them, and delete them."""
        api = self._cluster.api
        metadata = [{"name": f"gang-{number}", "namespace": "default"} for number in range(self._gangs)]
        group = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "PodGroup", "spec": {"minMember": self._size}}
        api.create(*({**group, "metadata": each} for each in metadata))
        amounts = {"cpu": "500m", "memory": "64Mi"}
        pods = []
        for gang in range(self._gangs):
            for member in range(self._size):
                made = pod(f"pod-{gang}-{member}", container(requests=amounts), schedulerName=NAME)
                made["metadata"]["labels"] = {f"{GROUP}/pod-group": f"gang-{gang}"}
                pods.append(made)
        api.create(*pods)
        try:
            return self.runs[run]()
        finally:
            api.delete(PODS)
            api.delete(GROUPS)
            wait_until(lambda: not api.items(PODS), "no pod is left", 120)

    def _upstream(self) -> Measurement:
        starting = Scheduler(self._cluster, [PROFILE], "trimaran-scheduler", 2)
        with starting as scheduler:
            token = {"Authorization": f"Bearer {self._cluster.api.token}"}
            authority = str(self._cluster.certificates.certificate)
            return self._watch(scheduler.process, f"{scheduler.url}/metrics", verify=authority, headers=token)

    def _ours(self) -> Measurement:
        file = self._cluster.folder / "ours.yaml"
        version = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        file.write_text(yaml.safe_dump({**version, "profiles": [PROFILE]}))
        command = [
            sys.executable, "-m", "trimaran", "scheduler", "--config", file, "--watcher", nowhere(),
            "--port", "0", "--kube-config", str(self._cluster.kubeconfig()),
            "--set", "scheduler.lease_namespace=default",
        ]  # fmt: skip
        process = Process(command, self._cluster.folder / "ours.log")
        try:
            return self._watch(process, f"{process.url}/metrics")
        finally:
            process.terminate()


def main() -> None:
    """Run the benchmark and print its table."""
    chosen = options(__doc__, nodes=1_000, gangs=100, size=32, rounds=1)
    title = f"{chosen.gangs} gangs of {chosen.size} pods, {chosen.nodes:,} nodes, median of {chosen.rounds} rounds"
    table = Table(title, ("scheduler", "until the last start, s", "pods a second", "its processor time, ms a pod"))
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as cluster:
        cluster.api.create(ALL_RIGHTS)
        define(cluster.api, RESOURCES)
        cluster.api.create(*(node(f"node-{number}", "32", "128Gi") for number in range(chosen.nodes)))
        bench = GangBench(cluster, chosen.gangs, chosen.size)
        for run in bench.runs:
            results = [bench.measure_gangs(run) for _ in range(chosen.rounds)]
            rate = statistics.median(each.rate for each in results)
            processor = statistics.median(each.processor_ms for each in results)
            table.row(run, f"{chosen.gangs * chosen.size / rate:.1f}", f"{rate:.0f}", f"{processor:.2f}")


if __name__ == "__main__":
    main()
