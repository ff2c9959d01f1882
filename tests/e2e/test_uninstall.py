"""``helm uninstall`` clears the nodes: Helm, the controllers of Kubernetes, and the chart's own pods as processes."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.api import path_of
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.controllers import ControllerManager
from control_plane.node_writer import HOT, NODES, QUICK, SECTION, annotated, clear, create_nodes, tainted, watching
from control_plane.pod_processes import PodProcesses
from control_plane.rights import was_forbidden
from control_plane.varied import varied
from support.servers import Service, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_network")]

CHART = Path(__file__).parents[2] / "deploy/helm/trimaran"
VALUES = "nodes.enabled=true,nodes.replicas=1,nodes.windows={15m},dashboard.inWatcher=false"
RELEASE = ("trimaran", "--namespace", "trimaran")
PORT = 2020  # of the watcher, in the chart


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with the release's namespace, and nodes."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trimaran"}})
        create_nodes(cluster)
        yield cluster


def helm(cluster: ControlPlane, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [binary("helm"), "--kubeconfig", cluster.kubeconfig(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def install(cluster: ControlPlane, *arguments: str) -> None:
    done = helm(cluster, "install", *RELEASE, CHART, "--set", VALUES, *arguments)
    assert done.returncode == 0, done.stderr


def objects_left(cluster: ControlPlane) -> list[str]:
    """Return the names of the chart's objects that exist, of kinds that the node writer and its Job have."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    paths = (
        "/api/v1/serviceaccounts", "/apis/apps/v1/deployments", "/apis/batch/v1/jobs",
        *(f"{rbac}/{kind}" for kind in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")),
    )  # fmt: skip
    ours = {"labelSelector": "app.kubernetes.io/name=trimaran"}
    return [each["metadata"]["name"] for path in paths for each in cluster.api.items(path, **ours)]


def test_uninstalling_clears_the_nodes(cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path) -> None:
    """The hook's Job waits for the writer that is being stopped, clears all nodes, and leaves no objects."""
    with (
        watching(watch, tmp_path, port=PORT),
        ControllerManager(cluster),
        PodProcesses(cluster, "trimaran", "nodes", "nodes-clear", program=varied(SECTION, QUICK)) as pods,
    ):
        install(cluster)
        wait_until(lambda: tainted(cluster) == set(HOT) and len(annotated(cluster)) == NODES, "nodes are marked")
        done = helm(cluster, "uninstall", *RELEASE)
        assert done.returncode == 0, done.stderr + pods.output("nodes-clear")
        assert (tainted(cluster), annotated(cluster), objects_left(cluster)) == (set(), {}, [])
        assert f"of {NODES} nodes, {len(HOT)} lost the taint" in pods.output("nodes-clear")
        # The writer gets some, as its account is deleted before it ends.
        assert not was_forbidden(pods.output("nodes-clear"))


def test_a_failed_job_does_not_keep_the_release(cluster: ControlPlane) -> None:
    """If the Job fails Helm says so; the release is gone, and the Job stays, without its account's rights."""
    namespace = "/apis/batch/v1/namespaces/trimaran/jobs/trimaran-nodes-clear"
    install(cluster)
    command = [binary("helm"), "--kubeconfig", cluster.kubeconfig(), "uninstall", *RELEASE]

    def started() -> bool:
        with suppress(requests.HTTPError):
            return bool(cluster.api.get(namespace))
        return False

    reason = {"reason": "DeadlineExceeded", "message": "was active longer than specified deadline"}
    conditions = [{"type": kind, "status": "True", **reason} for kind in ("FailureTarget", "Failed")]
    status = {"conditions": conditions, "startTime": "2026-11-25T13:00:00Z"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as uninstalling:
        wait_until(started, "the Job exists")
        cluster.api.patch(f"{namespace}/status", {"status": status})
        _, error = uninstalling.communicate(timeout=60)
    assert uninstalling.returncode != 0
    assert "trimaran-nodes-clear" in error or "deadline" in error, error
    assert helm(cluster, "list", "--all", "-q", "--namespace", "trimaran").stdout == ""
    assert cluster.api.get(namespace)["spec"]["activeDeadlineSeconds"] == 240
    assert objects_left(cluster) == ["trimaran-nodes-clear"]  # the Job alone
    install(cluster)  # a Job of an earlier removal is not in the way


def test_the_job_can_be_switched_off(cluster: ControlPlane) -> None:
    """Without clearOnUninstall, and without hooks, nothing is created when the release is removed."""
    cluster.api.patch("/api/v1/nodes/node-1", {"metadata": {"annotations": {"load.trimaran.io/15m": "cpu=40"}}})
    for at_install, at_removal in ((("--set", "nodes.clearOnUninstall=false"), ()), ((), ("--no-hooks",))):
        install(cluster, *at_install)
        done = helm(cluster, "uninstall", *RELEASE, *at_removal)
        assert (done.returncode, objects_left(cluster)) == (0, []), done.stderr
        assert annotated(cluster).keys() == {"node-1"}


def rendered_hooks() -> list[dict[str, Any]]:
    """Return the objects of the hook, in Helm's order."""
    command = [binary("helm"), "template", *RELEASE, CHART, "--kube-version", "1.37.0", "--set", VALUES]
    command += ["--show-only", "templates/nodes-clear.yaml"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [each for each in yaml.safe_load_all(text) if each]


def test_each_right_of_the_job_is_needed(cluster: ControlPlane) -> None:
    """With its account the command succeeds without a 403; without any single verb it gets one."""
    *rights, job = rendered_hooks()
    assert job["kind"] == "Job"
    for each in rights:
        cluster.api.create(each)
    kubeconfig = cluster.kubeconfig(token=cluster.service_account("trimaran", "trimaran-nodes-clear").token)
    lease = "/apis/coordination.k8s.io/v1/namespaces/trimaran/leases/trimaran-nodes"

    def run() -> "subprocess.CompletedProcess[str]":
        taint = {"key": "trimaran.io/hot", "value": "true", "effect": "PreferNoSchedule"}
        cluster.api.patch("/api/v1/nodes/node-1", {"spec": {"taints": [taint]}})
        return clear(kubeconfig)

    for _ in range(2):  # with a Lease to create, and with one to update
        done = run()
        assert (done.returncode, was_forbidden(done.stderr), tainted(cluster)) == (0, False, set()), done.stderr
    roles = [each for each in rights if each["kind"] in {"Role", "ClusterRole"}]
    removed = [
        (role, number, verb) for role in roles for number, rule in enumerate(role["rules"]) for verb in rule["verbs"]
    ]
    assert len(removed) == 6
    for role, number, verb in removed:
        rules = [dict(each) for each in role["rules"]]
        rules[number]["verbs"] = [each for each in rules[number]["verbs"] if each != verb] or ["none"]
        cluster.api.patch(path_of(role), {"rules": rules})
        if rules[number]["resources"] == ["leases"] and verb == "create":
            cluster.api.delete(lease)
        assert was_forbidden(run().stderr), f"without {verb} of {rules[number]['resources']}"
        cluster.api.patch(path_of(role), {"rules": role["rules"]})
        run()  # creates the Lease again
