"""``trimaran place --live --bind`` with a real API server and only the documented rights."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from control_plane.api import Api, Object
from control_plane.cluster import ControlPlane
from control_plane.manifests import container, node, pod

from trimaran.cli.main import main

pytestmark = pytest.mark.e2e

RACKS = "topology.example.com/rack"
GANG = "scheduling.x-k8s.io/pod-group"
RIGHTS = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of six nodes in three racks, one node full, without a scheduler."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.api.create(*(node(f"node-{number}", labels={RACKS: f"rack-{number // 2}"}) for number in range(6)))
        cluster.api.create(pod("full", container(requests={"cpu": "4", "memory": "16Gi"}), nodeName="node-0"))
        for name, rules in (("placer", RIGHTS), ("reader", RIGHTS[:1])):
            create_account(cluster.api, name, rules)
        yield cluster


def create_account(api: Api, name: str, rules: list[Object]) -> None:
    """Create a service account with these RBAC rules."""
    group = "rbac.authorization.k8s.io"
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
    api.create({"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    api.create({
        "apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    })  # fmt: skip


@pytest.fixture
def place(cluster: ControlPlane):
    """Return a function that runs ``trimaran place --live`` with an account, for pods of one scheduler."""

    def call(scheduler: str, *arguments: str, account: str = "placer") -> Result:
        token = cluster.service_account("default", account).token
        options = ["--live", "--kube-config", str(cluster.kubeconfig(token=token)), "--scheduler", scheduler]
        return CliRunner().invoke(main, ["place", *options, "--rounds", "200", *arguments])

    return call


def pending_pod(name: str, scheduler: str, gang: str = "", cpu: str = "1") -> Object:
    """Return a pod that waits for ``trimaran place``."""
    manifest = pod(name, container(requests={"cpu": cpu, "memory": "4Gi"}), schedulerName=scheduler)
    if gang:
        manifest["metadata"]["labels"] = {GANG: gang}
    return manifest


def places(api: Api, scheduler: str) -> dict[str, str]:
    """Return the node of each pod of a scheduler, "" for a pending pod."""
    items = api.items("/api/v1/namespaces/default/pods")
    return {
        each["metadata"]["name"]: each["spec"].get("nodeName", "")
        for each in items
        if each["spec"]["schedulerName"] == scheduler
    }


def test_a_dry_run_changes_nothing_and_bind_binds_the_plan(cluster: ControlPlane, place) -> None:
    """Without --bind no pod is bound; with --bind each pod is bound by the plan, none to the full node."""
    cluster.api.create(*(pending_pod(f"batch-{number}", "batch") for number in range(10)))
    dry = place("batch", "--output", "json")
    assert dry.exit_code == 0, dry.output
    assert len(json.loads(dry.stdout)["plan"]) == 10
    assert set(places(cluster.api, "batch").values()) == {""}
    done = place("batch", "--bind", "--output", "json")
    assert done.exit_code == 0, done.output
    plan = {name.removeprefix("default/"): node_name for name, node_name in json.loads(done.stdout)["plan"].items()}
    assert places(cluster.api, "batch") == plan
    assert set(plan.values()) == {f"node-{number}" for number in range(1, 6)}
    again = place("batch")
    assert again.exit_code == 2
    assert "no pods that wait" in again.output


def test_a_gang_goes_to_one_rack(cluster: ControlPlane, place) -> None:
    """All pods of a gang are bound to nodes of one rack, and a huge pod fits nowhere: status 1, as for any such pod."""
    cluster.api.create(*(pending_pod(f"gang-{number}", "gangs", gang="a") for number in range(3)))
    cluster.api.create(pending_pod("huge", "gangs", cpu="1e18"))  # any user may request this much
    done = place("gangs", "--bind", "--gangs-within", RACKS)
    assert done.exit_code == 1, done.output
    assert "3 of 3 pods are bound" in done.output
    assert "unplaced: default/huge: it fits on no node" in done.output
    assert len({int(name[-1]) // 2 for name in places(cluster.api, "gangs").values() if name}) == 1
    cluster.api.delete("/api/v1/namespaces/default/pods/huge")


def test_the_api_accepts_a_plan_file(cluster: ControlPlane, place, tmp_path: Path) -> None:
    """The API accepts the Bindings of --write; the UID in a Binding protects a new pod of the same name."""
    cluster.api.create(pending_pod("filed", "files", cpu="100m"), pending_pod("renewed", "files", cpu="100m"))
    assert place("files", "--write", str(tmp_path / "plan.yaml")).exit_code == 0
    cluster.api.delete("/api/v1/namespaces/default/pods/renewed")
    cluster.api.create(pending_pod("renewed", "files", cpu="100m"))
    by_name = {each["metadata"]["name"]: each for each in yaml.safe_load((tmp_path / "plan.yaml").read_text())["items"]}
    cluster.api.request("POST", "/api/v1/namespaces/default/bindings", json=by_name["filed"])
    with pytest.raises(OSError, match="409"):
        cluster.api.request("POST", "/api/v1/namespaces/default/pods/renewed/binding", json=by_name["renewed"])
    assert places(cluster.api, "files") == {"filed": by_name["filed"]["target"]["name"], "renewed": ""}


def test_a_missing_right_to_bind_is_reported(cluster: ControlPlane, place) -> None:
    """Without the right to bind, the command names it, exits with status 1 and binds nothing."""
    cluster.api.create(pending_pod("refused", "nobody", cpu="100m"))
    result = place("nobody", "--bind", account="reader")
    assert result.exit_code == 1
    assert "binding needs the right to create pods/binding" in result.output
    assert "Traceback" not in result.output
    assert places(cluster.api, "nobody") == {"refused": ""}


def test_a_pod_bound_by_another_scheduler_does_not_affect_others(cluster: ControlPlane, tmp_path: Path) -> None:
    """With an outdated list of pods the bound pod is reported with the API's error, and the other pod is bound."""
    cluster.api.create(*(pending_pod(f"raced-{number}", "race", cpu="100m") for number in range(2)))
    pods = cluster.api.items("/api/v1/namespaces/default/pods")
    for name, items in (("nodes", cluster.api.items("/api/v1/nodes")), ("pods", pods)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"items": items}))
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "raced-0"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"},
    }  # fmt: skip
    cluster.api.request("POST", "/api/v1/namespaces/default/pods/raced-0/binding", json=binding)
    files = ["--nodes", str(tmp_path / "nodes.yaml"), "--pods", str(tmp_path / "pods.yaml"), "--scheduler", "race"]
    result = CliRunner().invoke(
        main, ["place", *files, "--bind", "--kube-config", str(cluster.kubeconfig()), "--rounds", "50"]
    )
    assert result.exit_code == 1
    assert "not bound: default/raced-0" in result.output
    assert "already assigned" in result.output
    assert "1 of 2 pods are bound" in result.output
    assert places(cluster.api, "race")["raced-1"]
