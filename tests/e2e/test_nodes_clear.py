"""Clearing of nodes on a real control plane, and the end of annotations with their window."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.node_writer import HOT, NODES, Writer, annotated, clear, create_account_and_nodes, tainted, watching
from support.servers import Service, wait_until

pytestmark = pytest.mark.e2e

LEASE = "/apis/coordination.k8s.io/v1/namespaces/trimaran/leases/trimaran-nodes"
KEY = "load.trimaran.io/15m"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with the service account of the shipped manifests."""
    with ControlPlane(tmp_path) as cluster:
        create_account_and_nodes(cluster)
        yield cluster


def kubectl(cluster: ControlPlane, *arguments: str) -> str:
    command = [binary("kubectl"), "--kubeconfig", cluster.kubeconfig(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def is_marked(cluster: ControlPlane) -> bool:
    return tainted(cluster) == set(HOT) and len(annotated(cluster)) == NODES


def test_clear_respects_a_running_writer(cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path) -> None:
    """A running leader is named and nothing changes; once it has stopped, exactly what is reported changes."""
    token = cluster.service_account("trimaran", "trimaran-nodes").token
    with watching(watch, tmp_path) as (watcher, _):
        writer = Writer(cluster, watcher, token).wait()
        try:
            wait_until(lambda: is_marked(cluster), "the nodes are marked")
            holder = cluster.api.get(LEASE)["spec"]["holderIdentity"]
            refused = clear(cluster.kubeconfig())
            assert refused.returncode == 1
            assert holder in refused.stderr
            assert "kubectl -n trimaran scale deployment trimaran-nodes --replicas=0; or use --force" in refused.stderr
            assert is_marked(cluster)
            writer.process.terminate()
            done = clear(cluster.kubeconfig())
            assert (done.returncode, tainted(cluster), annotated(cluster)) == (0, set(), {})
            expected = f"trimaran: of {NODES} nodes, {len(HOT)} lost the taint and {NODES} lost their load annotations"
            assert done.stdout.splitlines() == [expected]
            again = clear(cluster.kubeconfig())
            assert f"of {NODES} nodes, 0 lost the taint and 0 lost" in again.stdout
            check_events(cluster)
            replica = Writer(cluster, watcher, token).wait()  # as one that Kubernetes has not stopped yet
            try:
                wait_until(lambda: replica.metric("process_cpu_seconds_total") > 0, "the replica runs")
                with pytest.raises(pytest.fail.Exception):  # two Leases long
                    wait_until(lambda: tainted(cluster), "the replica writes", 6)
            finally:
                replica.process.terminate()
        finally:
            writer.process.terminate()


def check_events(cluster: ControlPlane) -> None:
    """Check that kubectl shows when and why the taint of a hot node was set and removed."""
    selector = f"involvedObject.kind=Node,involvedObject.name={HOT[0]}"
    listed = kubectl(cluster, "get", "events", "--field-selector", selector, "-o", "json")
    events = {each["reason"]: each["message"] for each in json.loads(listed)["items"]}
    begin = "Taint trimaran.io/hot set: load 95 %, at or above nodes.hot_percent (80 %) since 20"
    assert events["NodeHot"].startswith(begin)
    assert events["NodeNotHot"] == "Taint trimaran.io/hot removed: trimaran nodes --clear"
    described = kubectl(cluster, "describe", "node", HOT[0])
    assert begin in described.partition("Events:")[2]


def test_clear_names_missing_rights(cluster: ControlPlane) -> None:
    """Without rights to the Lease, to list or to patch nodes, the missing rule is named, and nothing changes."""
    for number in range(3):
        marks = {"metadata": {"annotations": {KEY: "cpu=40"}}}
        cluster.api.patch(f"/api/v1/nodes/node-{number}", marks)
    nothing = cluster.kubeconfig(token=cluster.create_account("nothing").token)
    reading = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    lists = cluster.kubeconfig(token=cluster.create_account("lists", reading).token)
    for kubeconfig, arguments, rule in (
        (nothing, (), 'a Role in the namespace trimaran bound to this user needs the rule {apiGroups: ["coordination'),
        (nothing, ("--force",), '{apiGroups: [""], resources: ["nodes"], verbs: ["list", "patch"]}'),
        (lists, ("--force",), '{apiGroups: [""], resources: ["nodes"], verbs: ["patch"]}'),
    ):
        done = clear(kubeconfig, *arguments)
        assert done.returncode == 1
        assert rule in done.stderr, done.stderr
    assert "0 lost the taint and 0 lost their load annotations; 403" in done.stderr
    assert '"node-0" is forbidden' in done.stderr
    assert "node-1" not in done.stderr  # it stopped at the first
    assert len(annotated(cluster)) == 3


def test_force_clears_under_a_held_lease(cluster: ControlPlane) -> None:
    """``--force`` does not ask for the Lease, and works in a cluster without the Lease's namespace."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    metadata = {"name": "trimaran-nodes", "namespace": "trimaran"}
    cluster.api.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    for arguments in (("--force",), ("--set", "cluster.lease_namespace=gone")):
        cluster.api.patch("/api/v1/nodes/node-1", {"metadata": {"annotations": {KEY: "cpu=40", "theirs": "kept"}}})
        done = clear(cluster.kubeconfig(), *arguments)
        assert (done.returncode, annotated(cluster)) == (0, {}), done.stderr
        assert f"of {NODES} nodes, 0 lost the taint and 1 lost their load annotations" in done.stdout
    assert cluster.api.get("/api/v1/nodes/node-1")["metadata"]["annotations"]["theirs"] == "kept"
    assert cluster.api.get(LEASE)["spec"]["holderIdentity"] == "somebody"


def test_annotations_end_with_their_window(
    cluster: ControlPlane, watch: Callable[..., Service], tmp_path: Path
) -> None:
    """Annotations bear the time of the measurement, and vanish in an outage and with a change of the windows."""
    token = cluster.service_account("trimaran", "trimaran-nodes").token
    with watching(watch, tmp_path) as (watcher, _):
        short = {"max_age_seconds": 5, "refresh_seconds": 2}
        writer = Writer(cluster, watcher, token, short, windows="15m,5m").wait()
        try:
            wait_until(lambda: len(annotated(cluster)) == NODES, "the nodes are annotated")
            first = wait_until(lambda: annotated(cluster)["node-1"].get(KEY), "the window is annotated")
            measured = requests.get(f"{watcher}/watcher", timeout=60).json()["timestamp"]
            assert first.startswith("cpu=30,memory=30,at=20")
            assert measured > 0
            wait_until(lambda: annotated(cluster)["node-1"][KEY] != first, "the time is renewed")
            writer.process.terminate()
            writer = Writer(cluster, watcher, token, short, windows="5m").wait()
            wait_until(lambda: KEY not in annotated(cluster)["node-1"], "the window that is not configured is gone")
            assert "load.trimaran.io/5m" in annotated(cluster)["node-1"]
            (tmp_path / "loads.json").unlink()
            wait_until(lambda: not annotated(cluster), "without metrics no annotation is left", 90)
        finally:
            writer.process.terminate()
