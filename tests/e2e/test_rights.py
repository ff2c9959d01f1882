"""Accounts of extender, watcher, scheduler and dashboard in deploy/kubernetes: each verb is needed.

test_deploy.py and test_container.py check that the accounts have no other rights; test_nodes.py checks the account of
``trimaran nodes``.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from control_plane.builds import binary
from control_plane.cluster import ControlPlane
from control_plane.manifests import node, pod
from control_plane.pods import PodRunner
from control_plane.processes import Process, numbered
from control_plane.rights import was_forbidden
from control_plane.usage import CPU_ANNOTATION, Kwok, MetricsServer
from support.ports import nowhere
from support.servers import wait_until

from trimaran.dashboard.page_context import open_cluster
from watcher.model import WatcherMetrics, Window

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_network")]

MANIFESTS = Path(__file__).parents[2] / "deploy/kubernetes"
MANIFEST, SCHEDULER = MANIFESTS / "extender.yaml", MANIFESTS / "scheduler.yaml"
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
GROUP = "/apis/rbac.authorization.k8s.io/v1"
ROLES = (f"{GROUP}/clusterroles/trimaran-extender", f"{GROUP}/namespaces/trimaran/roles/trimaran-extender")
WATCHER_ROLE = f"{GROUP}/clusterroles/trimaran-watcher"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with the service accounts of the shipped manifests."""
    with ControlPlane(tmp_path) as cluster:
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trimaran"}})
        for file in (MANIFESTS / "watcher.yaml", MANIFEST, SCHEDULER, MANIFESTS / "dashboard.yaml"):
            for manifest in yaml.safe_load_all(file.read_text()):
                if manifest["kind"] in RIGHTS:
                    cluster.api.create(manifest)
        yield cluster


class ExtenderClient:
    """A client of an extender without a watcher; its requests need every right of the extender's account."""

    def __init__(self, cluster: ControlPlane, url: str, process: Process) -> None:
        self._cluster = cluster
        self._url = url
        self._process = process
        self._reader = cluster.service_account("default", "reader").token

    def explain(self) -> requests.Response:
        headers = {"Authorization": f"Bearer {self._reader}"}
        return requests.get(f"{self._url}/explain", {"pod": "default/web"}, headers=headers, timeout=60)

    def is_refused(self) -> bool:
        with suppress(requests.RequestException):  # the extender is still starting
            arguments = {"Pod": pod("web"), "NodeNames": ["node-0", "node-1"]}
            requests.post(f"{self._url}/prioritize", json=arguments, timeout=60).raise_for_status()
            self.explain()
        return was_forbidden(self._process.log.read_text())

    def names_the_rule(self, resource: str) -> bool:
        """Return whether /readyz has the API server's refusal to list a resource, and the rule to add."""
        text = requests.get(f"{self._url}/readyz", timeout=60).json().get("error", {}).get("message", "")
        account = "system:serviceaccount:trimaran:trimaran-extender"
        refusal = f'User "{account}" cannot list resource "{resource}"'
        return refusal in text and f'resources: ["{resource}"], verbs: ["list", "watch"]' in text

    def did_everything(self) -> bool:
        self.is_refused()
        events = self._cluster.api.items("/api/v1/namespaces/trimaran/events")
        ready = requests.get(f"{self._url}/readyz", timeout=60).ok
        return ready and self.explain().status_code == 200 and events != []


@contextmanager
def running_extender(cluster: ControlPlane) -> Iterator[ExtenderClient]:
    """Run the extender with the manifest's configuration and account, without TLS; yield a client."""
    (data,) = (each["data"] for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ConfigMap")
    configuration = cluster.folder / "scheduler.yaml"
    configuration.write_text(data["scheduler.yaml"])
    token = cluster.service_account("trimaran", "trimaran-extender").token
    command = [
        sys.executable, "-m", "trimaran", "extender", "--config", str(configuration), "--port", "0",
        "--kube-config", str(cluster.kubeconfig("extender", token=token)), "--watcher", nowhere(),
        "--set", "extender.events_namespace=trimaran",
    ]  # fmt: skip
    process = Process(command, numbered(cluster.folder, "extender.log"))
    try:
        yield ExtenderClient(cluster, process.url, process)
    finally:
        process.kill()


def test_each_right_of_the_extender_is_needed(cluster: ControlPlane) -> None:
    """With all rights no request of the extender is refused; without any single verb one is."""
    cluster.create_account("reader", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    cluster.api.create(*(node(f"node-{number}") for number in range(2)))
    with running_extender(cluster) as extender:
        wait_until(extender.did_everything, "it follows the cluster, explains, and reports the outage")
        assert not extender.is_refused()
    removed = 0
    for path in ROLES:
        rules: list[dict[str, Any]] = cluster.api.get(path)["rules"]
        for number, resource, verb in [
            (number, resource, verb)
            for number, rule in enumerate(rules) for resource in rule["resources"] for verb in rule["verbs"]
        ]:  # fmt: skip
            cluster.api.patch(path, {"rules": without_verb(rules, number, resource, verb)})
            with running_extender(cluster) as extender:
                wait_until(extender.is_refused, f"without {verb} of {resource} it is refused")
                if verb == "list":
                    wait_until(partial(extender.names_the_rule, resource), f"/readyz names the rule for {resource}")
            cluster.api.patch(path, {"rules": rules})
            removed += 1
    assert removed == 7


def without_verb(rules: list[dict[str, Any]], number: int, resource: str, verb: str) -> list[dict[str, Any]]:
    """Return the rules without one verb of one resource."""
    rule = rules[number]
    others = [each for each in rule["resources"] if each != resource]
    verbs = [each for each in rule["verbs"] if each != verb]
    split = [{**rule, "resources": others}] if others else []
    split += [{**rule, "resources": [resource], "verbs": verbs}] if verbs else []
    return [*rules[:number], *split, *rules[number + 1 :]]


@contextmanager
def watching(cluster: ControlPlane, *arguments: str, token: str = "") -> Iterator[tuple[str, Process]]:
    """Run a watcher, by default of the metrics server and with its account's token; yield its address and process."""
    token = token or cluster.service_account("trimaran", "trimaran-watcher").token
    log = numbered(cluster.folder, "watcher.log")
    command = [
        sys.executable, "-m", "trimaran", "watch", "--interval", "1",
        *(arguments or ("--provider", "KubernetesMetricsServer")),
        "--set", f"provider.kube_config={cluster.kubeconfig('watcher', token=token)}", "--port", "0",
        "--store", str(log.with_suffix(".sqlite")),
    ]  # fmt: skip
    process = Process(command, log)
    try:
        yield process.url, process
    finally:
        process.kill()


def test_each_right_of_the_watcher_is_needed(cluster: ControlPlane) -> None:
    """Without any single right the watcher is refused; with all it serves nodes, also a new node."""
    kubelets = Kwok(cluster)

    def join(name: str) -> None:
        cluster.api.create(kubelets.for_kwok(node(name)))
        use = {CPU_ANNOTATION: "1"}
        cluster.api.create(pod(f"system-{name}", annotations=use, nodeName=name))

    join("node-0")
    with kubelets, MetricsServer(cluster) as metrics:
        metrics.wait_for(1)
        rules: list[dict[str, Any]] = cluster.api.get(WATCHER_ROLE)["rules"]
        rights = [
            (number, resource, verb)
            for number, rule in enumerate(rules) for resource in rule["resources"] for verb in rule["verbs"]
            if verb not in {"get", "create"}  # a new node, below; reviews, in the next test
        ]  # fmt: skip
        assert len(rights) == 11
        with ExitStack() as stack:  # at the same time, because some rights are needed only after a while
            logs = {}
            for number, resource, verb in rights:
                others = without_verb(rules, number, resource, verb)
                account = cluster.create_account(f"without-{verb}-{resource}-{number}", *others)
                _, process = stack.enter_context(watching(cluster, token=account.token))
                logs[f"without {verb} of {resource} it is refused"] = process.log
            for refused, log in logs.items():
                wait_until(lambda log=log: was_forbidden(log.read_text()), refused)
        with watching(cluster) as (url, process):
            process.wait_until(lambda: requests.get(f"{url}/watcher/node-0", timeout=5).ok, "it serves a node")
            join("node-1")
            process.wait_until(lambda: requests.get(f"{url}/watcher/node-1", timeout=5).ok, "it serves a new node", 90)
            assert not was_forbidden(process.log.read_text())
            cluster.api.patch(WATCHER_ROLE, {"rules": without_verb(rules, 0, "nodes", "get")})
            join("node-2")
            process.wait_until(
                lambda: was_forbidden(process.log.read_text()), "the request for a new node is refused", 90
            )


def test_workloads_are_shown_by_namespace(cluster: ControlPlane) -> None:
    """A reader sees the workloads whose pods it may list, by both reviews; without either right nobody sees any."""
    lists = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    rules: list[dict[str, Any]] = cluster.api.get(WATCHER_ROLE)["rules"]
    everything, some, nothing = (
        cluster.create_account("all", lists),
        *map(cluster.create_account, ("some", "nothing")),
    )
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "some", "namespace": "default"}}
    subject = {"kind": "ServiceAccount", "name": "some", "namespace": "default"}
    of_role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some"}
    cluster.api.create(
        {**role, "kind": "Role", "rules": [lists]},
        {**role, "kind": "RoleBinding", "roleRef": of_role, "subjects": [subject]},
    )
    with watching(cluster, "--provider", "Fake", "--set", "workloads.access=review") as (url, process):

        def answer(token: str, path: str = "/workloads") -> requests.Response:
            return requests.get(f"{url}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=60)

        process.wait_until(lambda: answer(everything.token).status_code == 200, "the first round is complete")
        assert "omitted" not in answer(everything.token).json()
        page = answer(some.token).json()
        assert {item["namespace"] for item in page["workloads"]} == {"default"}
        assert "omitted" in page
        assert answer(nothing.token).status_code == answer(some.token, "/workloads?namespace=shop").status_code == 403
        assert answer(nothing.token, "/workloads/totals").status_code in {200, 404}
        assert answer("made-up").status_code == requests.get(f"{url}/workloads", timeout=60).status_code == 401
        assert requests.get(f"{url}/watcher", timeout=60).ok
    for missing in ("tokenreviews", "subjectaccessreviews"):
        cluster.api.patch(WATCHER_ROLE, {"rules": [rule for rule in rules if rule["resources"] != [missing]]})
        with watching(cluster, "--provider", "Fake", "--set", "workloads.access=review") as (url, process):

            def is_refused(url: str = url, process: Process = process) -> bool:
                with suppress(requests.RequestException):
                    headers = {"Authorization": f"Bearer {everything.token}"}
                    answer = requests.get(f"{url}/workloads", headers=headers, timeout=60)
                    return answer.status_code == 503 and was_forbidden(process.log.read_text())
                return False

            wait_until(is_refused, f"without {missing} nobody sees workloads")


def test_each_right_of_the_scheduler_is_needed(cluster: ControlPlane) -> None:
    """Without a verb on its Lease, or without the authentication reader role, the scheduler is refused."""
    inside = PodRunner(cluster, [each for each in yaml.safe_load_all(SCHEDULER.read_text()) if each])
    program, *arguments = inside.spec["containers"][0]["command"]
    role = f"{GROUP}/namespaces/trimaran/roles/trimaran-scheduler"
    (rule,) = cluster.api.get(role)["rules"]

    def check_refused(message: str) -> None:
        process = inside.run(str(binary(program)), *arguments)
        refusals = lambda: [line for line in process.log.read_text().splitlines() if "forbidden" in line]  # noqa: E731
        try:
            process.wait_until(lambda: any(message in line for line in refusals()), f"it is refused: {message}")
        finally:
            process.kill()

    for verb in rule["verbs"]:
        others = [each for each in rule["verbs"] if each != verb]
        cluster.api.patch(role, {"rules": [{**rule, "verbs": others}]})
        check_refused(f'cannot {verb} resource \\"leases\\"')
    cluster.api.patch(role, {"rules": [rule]})
    cluster.api.delete(f"{GROUP}/namespaces/kube-system/rolebindings/trimaran-scheduler-authentication-reader")
    check_refused("extension-apiserver-authentication")


@pytest.mark.usefixtures("closed_sessions")
def test_the_dashboard_may_only_list_nodes(cluster: ControlPlane) -> None:
    """The dashboard reads node labels with this verb only, and cannot read pods, secrets or a single node."""
    cluster.api.create(node("node-0", labels={"zone": "a"}))
    account = cluster.service_account("trimaran", "trimaran-dashboard")
    role = f"{GROUP}/clusterroles/trimaran-dashboard"
    nothing = WatcherMetrics(0, Window("15m", 0, 0), "", {})

    def labels() -> dict[str, str]:
        read = open_cluster(cluster.kubeconfig("dashboard", token=account.token))[0]
        return dict(read.by_node(nothing).get("node-0", {}))

    wait_until(lambda: labels().get("zone") == "a", "the dashboard has labels")
    for path in ("/api/v1/pods", "/api/v1/namespaces/trimaran/secrets", "/api/v1/nodes/node-0"):
        with pytest.raises(requests.HTTPError) as refusal:
            account.get(path)
        assert refusal.value.response.status_code == 403, path
    (rule,) = cluster.api.get(role)["rules"]
    assert rule["verbs"] == ["list"]
    cluster.api.patch(role, {"rules": []})
    wait_until(lambda: labels() == {}, "without the right there are none")
