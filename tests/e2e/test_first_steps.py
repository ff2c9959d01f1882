"""The first steps in docs/clusters/kind.md, from an empty machine to shadow mode: its own commands in order, timed.

The test replaces kind, the controllers and the kubelet: it starts the control plane and the metrics server, creates
the pods of a Deployment, and runs the containers of the manifests with their commands, files and accounts.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod
from control_plane.pods import PodRunner
from control_plane.processes import Process
from control_plane.usage import CPU_ANNOTATION, MEMORY_ANNOTATION, Kwok, MetricsServer
from support.servers import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_network")]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/clusters/kind.md").read_text()
NODES = 4
WATCHER, EXTENDER = "http://127.0.0.1:2020", "http://127.0.0.1:2021"
# Commands that need a full cluster: kind itself, images, rollouts by controllers, port forwarding by the kubelet.
ELSEWHERE = ("kind ", "make image", "rollout status", "port-forward", "metrics-server")


def documented() -> list[str]:
    """Return the page's commands, each on one line, without comments."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [re.sub(r"\s{2,}#.*$", "", line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]


class User:
    """A user with a shell that finds kubectl and trimaran."""

    def __init__(self, cluster: ControlPlane) -> None:
        folders = [str(binary("kubectl").parent), str(Path(sys.executable).parent), os.environ["PATH"]]
        kubeconfig = str(cluster.kubeconfig())
        self._environment = {**os.environ, "PATH": os.pathsep.join(folders), "KUBECONFIG": kubeconfig}
        self._folder = cluster.folder
        (self._folder / "deploy").symlink_to(ROOT / "deploy")

    def run(self, command: str) -> str:
        """Run a command in the shell; return its output."""
        done = subprocess.run(
            ["bash", "-ec", command], cwd=self._folder, env=self._environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


class Stopwatch:
    """Durations of the steps, as a table."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps[title] = time.monotonic() - began

    def table(self) -> str:
        lines = [f"{seconds:6.1f} s  {title}" for title, seconds in self.steps.items()]
        return "\n".join([*lines, f"{sum(self.steps.values()):6.1f} s  in total"])


@contextmanager
def pod_processes(cluster: ControlPlane, name: str, **environment: str) -> Iterator[list[Process]]:
    """Run all containers of a manifest's pod as a kubelet would; yield their processes."""
    documents = [each for each in yaml.safe_load_all((ROOT / f"deploy/kubernetes/{name}.yaml").read_text()) if each]
    inside = PodRunner(cluster, documents)
    processes = []
    try:
        for each in inside.spec["containers"]:
            program = [str(binary("kube-scheduler")), *each["command"][1:]] if "command" in each else None
            command = program or [sys.executable, "-m", "trimaran", *each.get("args", ["watch"])]
            variables = {variable["name"]: variable["value"] for variable in each.get("env", ())}
            processes.append(inside.run(*command, **variables, **environment))
        yield processes
    finally:
        for process in processes:
            process.terminate()


def create_pods(cluster: ControlPlane, deployment: str) -> None:
    """Create the pods of a Deployment, as its controllers would."""
    spec = cluster.api.get(f"/apis/apps/v1/namespaces/default/deployments/{deployment}")["spec"]
    for number in range(spec["replicas"]):
        replica = pod(f"{deployment}-{number}", **spec["template"]["spec"])
        replica["spec"] = spec["template"]["spec"]
        cluster.api.create(
            {**replica, "metadata": {**replica["metadata"], "labels": spec["template"]["metadata"]["labels"]}}
        )


def test_a_new_user_gets_from_nothing_to_shadow_mode(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Every documented command works and has its effect: pods are placed in shadow mode, and one is explained."""
    watch, commands = Stopwatch(), [each for each in documented() if not any(word in each for word in ELSEWHERE)]
    apply = next(each for each in commands if each.startswith("kubectl apply"))
    later = commands[commands.index(apply) + 1 :]
    with ExitStack() as stack:
        with watch.step("the cluster answers (in place of kind create cluster)"):
            cluster = stack.enter_context(ControlPlane(tmp_path))
            busy = run_nodes(stack, cluster)
        user = User(cluster)
        with watch.step("the metrics server knows every node"):
            stack.enter_context(MetricsServer(cluster, 15)).wait_for(NODES)
        with watch.step(apply):
            user.run(apply)
        with watch.step("the watcher is ready: two samples of the metrics server"):
            (process,) = stack.enter_context(pod_processes(cluster, "watcher", **image_environment(tmp_path)))
            process.wait_until(lambda: ready(WATCHER), "the watcher is ready", 150)
        with watch.step("kube-scheduler and the extender are ready"):
            processes = stack.enter_context(pod_processes(cluster, "scheduler"))
            processes[1].wait_until(lambda: ready(EXTENDER), "the extender is ready")
        with watch.step("five pods are placed, in shadow, and one is explained"):
            explanations = [command for command in later if command.startswith("trimaran ")]
            for command in later[: later.index(explanations[0])]:
                user.run(command)
            create_pods(cluster, "web")
            wait_until(lambda: len(placed(cluster)) == 5, "all pods are placed")
            explained, _ = (user.run(command) for command in explanations)
        assert "shadow" in explained
        assert busy in user.run("trimaran top --watcher http://127.0.0.1:2020")
    record_property("figures", watch.table())  # docs/adopt.md quotes the table
    assert sum(watch.steps.values()) < 600


def run_nodes(stack: ExitStack, cluster: ControlPlane) -> str:
    """Simulate nodes with KWOK, one of them busy; return the busy node's name."""
    kubelets = Kwok(cluster)
    cluster.api.create(*(kubelets.for_kwok(node(f"node-{number}")) for number in range(NODES)))
    stack.enter_context(kubelets)
    default = {"name": "default", "namespace": "default"}  # usually created by a controller
    cluster.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": default})
    use = {CPU_ANNOTATION: "3", MEMORY_ANNOTATION: "8Gi"}
    system = [
        pod(f"system-{n}", container(), annotations=use if n == 1 else {CPU_ANNOTATION: "300m"}, nodeName=f"node-{n}")
        for n in range(NODES)
    ]
    cluster.api.create(*system)
    return "node-1"


def image_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of the image, with a store in the test's folder."""
    text = (ROOT / "Dockerfile").read_text()
    variables = dict(re.findall(r"(TRIMARAN_(?:SERVER|LOG)\w+)=(\S+)", text))
    return {**variables, "TRIMARAN_STORE__PATH": str(folder / "volume.sqlite")}


def ready(url: str) -> bool:
    return requests.get(f"{url}/readyz", timeout=60).ok


def placed(cluster: ControlPlane) -> list[str]:
    pods: list[dict[str, Any]] = cluster.api.items("/api/v1/namespaces/default/pods", labelSelector="app=web")
    return [each["spec"]["nodeName"] for each in pods if each["spec"].get("nodeName")]
