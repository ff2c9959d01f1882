"""Decisions page with a real extender, and node labels with a fake API server."""

import json
from copy import deepcopy

import pytest
import requests
import yaml
from support.deciding import cluster, decide, extender
from support.extending import CONFIGURATION
from support.fake_kubernetes import run_fake_kubernetes
from support.page import SCREEN, callback, callback_request, dashboard, watched_day
from support.ports import closed_port, nowhere
from support.servers import wait_until

pytest.importorskip("dash")

from client.service import ServiceClient
from runtime.http.credentials import InvalidApiServerConfig
from runtime.http.json_service import JsonService, ServiceUnavailable
from trimaran.dashboard import decisions, pod
from trimaran.dashboard.app import create_app
from trimaran.dashboard.components import matching_nodes
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.labels import NodeLabels, common_labels, nodes_from_file, parse_selector
from trimaran.dashboard.page_context import PageContext, labels_of_file, open_cluster
from trimaran.dashboard.remote import RemoteAccess
from trimaran.extender.profiles import Profiles

pytestmark = pytest.mark.usefixtures("closed_sessions")

NAMES = [f"node-{number}" for number in range(1, 31)]
PODS = 40


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Run a watcher, a cluster and an extender that scored 40 pods; yields their addresses and the cluster."""
    folder = tmp_path_factory.mktemp("decisions")
    with watched_day(folder, len(NAMES), minutes=30) as (service, _), cluster(folder, NAMES) as kubernetes:
        with extender(folder, kubernetes, service.url) as url:
            decide(url, kubernetes, NAMES, PODS)
            measured = lambda: sum(row["pods"] for row in requests.get(f"{url}/regret", timeout=5).json()["schedulers"])  # noqa: E731
            wait_until(lambda: measured() == PODS, "the regret of all pods is known")
            yield service.url, url, kubernetes


def texts(part):
    """Return the texts of a component, in order."""
    if isinstance(part, list | tuple):
        return [text for each in part for text in texts(each)]
    if hasattr(part, "children"):
        return texts(part.children)
    return [] if part is None else [str(part)]


def each_of(part, id_, name="id"):
    """Return the components with this id, or all that have the property."""
    if isinstance(part, list | tuple):
        return [found for each in part for found in each_of(each, id_, name)]
    has = getattr(part, name, None)
    found = [part] if has is not None and id_ in {None, has} else []
    return found + (each_of(part.children, id_, name) if hasattr(part, "children") else [])


def rows_of(shown):
    """Return the cells of each table's rows."""
    if isinstance(shown, list | tuple):
        return [row for each in shown for row in rows_of(each)]
    if type(shown).__name__ == "Tr":
        return [["".join(texts(cell)) for cell in shown.children]]
    return rows_of(shown.children) if hasattr(shown, "children") else []


def test_the_page_shows_the_extenders_decisions(running):
    """The page has every decision of the API with nodes, scores, rank and regret, and the regret by scheduler."""
    recent = requests.get(f"{running[1]}/decisions?limit=500", timeout=60).json()["decisions"]
    assert len(recent) == PODS
    shown = {row[0]: row[1:] for row in rows_of(decisions._table(recent))}
    for each in recent:
        chosen, after = each["chosen"], each["after"]
        assert shown[each["pod"]][1:] == [
            "active", "scored", f"{each['best']['node']}, {each['best']['score']}",
            f"{chosen['node']}, {chosen['score']}",
            str(chosen["rank"]), str(chosen["margin"]), f"{after['regret']:+.1f}",
        ]  # fmt: skip
    (row,) = requests.get(f"{running[1]}/regret", timeout=60).json()["schedulers"]
    context = PageContext(decisions=Decisions(JsonService("extender", running[1])))
    page = rows_of(decisions.layout(None, {}, context))
    assert [
        row["scheduler"], row["mode"], str(PODS), str(row["same_node"]), f"{row['chosen_percent']:.1f}%",
        f"{row['best_percent']:.1f}%", f"{row['regret']:+.2f}", f"{row['regret_p95']:+.2f}", str(row["chosen_hot"]),
        str(row["best_hot"]),
    ] in page  # fmt: skip


def test_ranks_are_counted(running):
    """Each running pod counts once, by the rank of its node among the candidates, separately for each mode."""
    recent = requests.get(f"{running[1]}/decisions", timeout=60).json()["decisions"]
    ranks = [each["chosen"]["rank"] for each in recent]
    counts = decisions.rank_counts(recent)["active"]
    assert counts["best"] == ranks.count(1) > 0
    assert counts["below 10"] == sum(rank > 10 for rank in ranks)
    assert sum(counts.values()) == PODS
    shadow = decisions.rank_counts([{**recent[0], "mode": "shadow"}, {**recent[1], "chosen": None}])
    assert {mode: sum(count.values()) for mode, count in shadow.items()} == {"shadow": 1}


def test_decisions_are_filtered_by_mode_and_name(running):
    """Decisions are filtered by a part of the pod's name and by mode."""
    recent = requests.get(f"{running[1]}/decisions", timeout=60).json()["decisions"]
    assert {each["pod"] for each in decisions.matching_decisions(recent, "all", "web-1")} == {
        f"default/web-{number}" for number in (1, *range(10, 20))
    }
    assert decisions.matching_decisions(recent, "shadow", "") == []
    assert len(decisions.matching_decisions(recent, "active", "")) == PODS


def test_one_decision_is_explained(running):
    """The explanation has the candidates with their terms and the chosen node; an unknown pod is an error message."""
    decision = requests.get(f"{running[1]}/explain?pod=default/web-7", timeout=60).json()
    context = PageContext(decisions=Decisions(JsonService("extender", running[1])))
    rows = {row[0]: row for row in rows_of(decisions.layout(None, {"pod": "default/web-7"}, context))}
    for node in decision["nodes"]:
        plugin = node["plugins"][0]
        assert rows[node["name"]] == [
            node["name"], "yes" if node["chosen"] else "", str(node["answered"]), node["grade"],
            f"{plugin['score']}: {plugin['why']}",
        ]  # fmt: skip
    assert sum(node["chosen"] for node in decision["nodes"]) == 1
    unknown = texts(decisions.layout(None, {"pod": "default/nobody"}, context))
    assert any("default/nobody" in text for text in unknown)


def test_a_pod_of_a_decision_is_picked(running):
    """Pods are suggested by name, and their manifests are filled in, also by the decision's link."""
    decided = Decisions(JsonService("extender", running[1]))
    page = pod.layout(None, {"pod": "default/web-7"}, PageContext(decisions=decided))
    (box,) = each_of(page, "pod-pod")
    manifest = yaml.safe_load(box.value)
    assert manifest["metadata"] == {"name": "web-7", "namespace": "default"}
    assert manifest["spec"]["containers"] == [{"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]
    (suggestions,) = each_of(page, "pod-pick-suggestions")
    assert len(suggestions.children) == PODS
    links = each_of(decisions.layout(None, {"pod": "default/web-7"}, PageContext(decisions=decided)), None, "href")
    assert "pod?pod=default%2Fweb-7" in [link.href for link in links]
    app = create_app(RemoteAccess(running[0]), PageContext(decisions=decided)).test_client()
    (output,) = (each["output"] for each in app.get("/_dash-dependencies").json if "pod-pod.value" in each["output"])
    request = callback_request(output, **{"pod-pick": {"value": "default/web-3"}})
    answer = app.post("/_dash-update-component", json=request)
    assert "name: web-3" in answer.json["response"]["pod-pod"]["value"]
    request["inputs"][0]["value"] = "default/web-"
    assert app.post("/_dash-update-component", json=request).status_code == 204


def test_a_pod_that_cannot_be_picked_is_reported(running):
    """An unknown pod and an extender that is down are error messages; the pod's text does not change."""
    decided = Decisions(JsonService("extender", running[1]))
    manifest, status = pod.manifest_text(PageContext(decisions=decided), "default/nobody")
    assert (manifest, "default/nobody" in status) == ("", True)
    down = PageContext(decisions=Decisions(JsonService("extender", nowhere())))
    page = pod.layout(None, {"pod": "default/web-7"}, down)
    assert each_of(page, "pod-pod")[0].value == pod._POD
    assert any("the extender at" in text for text in texts(page))


def test_the_page_begins_with_the_extenders_configuration(running):
    """The configuration is the one that the extender scores by, without tokens; without an extender, an example."""
    decided = PageContext(decisions=Decisions(JsonService("extender", running[1])))
    (box,) = each_of(pod.layout(None, {}, decided), "pod-configuration")
    assert yaml.safe_load(box.value)["profiles"][0]["plugins"] == CONFIGURATION["profiles"][0]["plugins"]
    (example,) = each_of(pod.layout(None, {}, PageContext()), "pod-configuration")
    assert example.value == pod._CONFIGURATION
    arguments = [
        {"name": "TargetLoadPacking", "args": {"metricProvider": {"token": "secret"}, "targetUtilization": 60}}
    ]
    document = {"profiles": [{**CONFIGURATION["profiles"][0], "pluginConfig": arguments}], "clientConnection": {}}
    shown = Profiles.read({**CONFIGURATION, **document}, allow=None).scoring_document()
    assert shown["profiles"][0]["pluginConfig"] == [{"name": "TargetLoadPacking", "args": {"targetUtilization": 60}}]
    assert "clientConnection" not in shown


def test_a_pod_is_scored_on_the_live_cluster(running):
    """Pods that wait are suggested and filled in; nodes and pods come from the API server; a refusal has the remedy."""
    _, live = open_cluster(running[2].kube_config())
    context = PageContext(cluster=live)
    waiting = {
        **deepcopy(running[2].pods["default/web-3"]),
        "metadata": {"name": "waits", "namespace": "default", "uid": "w"},
    }
    waiting["spec"] = {key: value for key, value in waiting["spec"].items() if key != "nodeName"}
    running[2].put("pods", waiting)
    try:
        assert "default/waits" in pod.pod_names(context)[0]
        manifest, status = pod.manifest_text(context, "default/web-3")
        assert (yaml.safe_load(manifest)["metadata"]["name"], "from the cluster, with" in status) == ("web-3", True)
        assert "nodeName" not in manifest
        with ServiceClient(running[0]) as client:
            scores, _ = pod.score_pod(DashboardData(client), manifest, pod._CONFIGURATION, "", context)
        assert set(scores.names) == set(NAMES)
        assert list(scores.plugins) == ["LoadVariationRiskBalancing", "TargetLoadPacking"]
        with ServiceClient(running[0]) as client:  # a file with several profiles: that of the pod's scheduler
            scores, _ = pod.score_pod(DashboardData(client), manifest, json.dumps(CONFIGURATION), "", context)
        assert scores.plugins["LoadVariationRiskBalancing"].weighted.weight == 1
        assert pod.manifest_text(context, "default/none") == ("", "the API server has no pod default/none")
        running[2].forbidden.add(("", "pods", "list"))
        _, refused = open_cluster(running[2].kube_config())
        with pytest.raises(ValueError, match="list pods"):
            refused.table()
    finally:
        running[2].forbidden.clear()
        running[2].delete("pods", waiting)


def test_the_size_limit_is_shown():
    """The dashboard in a watcher accepts less text than a dashboard in its own process."""
    for context, limit in (
        (PageContext(max_request_bytes=65536), "at most 64 KB"),
        (PageContext(), "at most 8,192 KB"),
    ):
        assert limit in " ".join(texts(pod.layout(None, {}, context)))


def test_an_extender_that_does_not_answer_is_reported():
    """The page is served with an error message."""
    context = PageContext(decisions=Decisions(JsonService("extender", nowhere())))
    assert any("the extender at http://127.0.0.1" in text for text in texts(decisions.layout(None, {}, context)))
    with pytest.raises(ServiceUnavailable):
        context.decisions.recent()


def test_the_extender_option_adds_the_decisions_page(running, tmp_path):
    """The page exists only with ``--extender``; ``--cluster`` reads labels from the API server."""
    config = str(running[2].kube_config())
    with dashboard(tmp_path, running[0], "--extender", running[1], "--cluster", KUBECONFIG=config) as url:
        page = callback(url, SCREEN, location={"pathname": "/decisions", "search": ""}).text
        assert "regret" in page
        assert '"children":"Decisions","href"' in page
        assert '"pool=spot"' in callback(url, SCREEN, location={"pathname": "/cluster", "search": ""}).text
    without = create_app(RemoteAccess(running[0])).test_client()
    request = callback_request(SCREEN, location={"pathname": "/decisions", "search": ""})
    shown = without.post("/_dash-update-component", json=request)
    assert (shown.status_code, "Decisions" in shown.text, "Overview" in shown.text) == (200, False, True)


def test_nodes_are_filtered_by_labels_of_the_cluster(running):
    """A selector matches the labels of the API server; labels of several nodes are suggested."""
    with ServiceClient(running[0]) as client:
        snapshot = DashboardData(client).snapshot()
        labels = open_cluster(running[2].kube_config())[0].by_node(snapshot)
    selected = matching_nodes(snapshot, labels, "", "", "pool=batch,topology.kubernetes.io/zone!=zone-0")
    assert (
        set(selected)
        == {
            name
            for name, node in running[2].nodes.items()
            if node["metadata"]["labels"]["pool"] == "batch"
            and node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-1"
        }
        != set()
    )
    assert "pool=spot" in common_labels(labels)
    assert not any("hostname" in pair for pair in common_labels(labels))


def test_labels_stay_when_the_cluster_is_gone(tmp_path, kubernetes_folder, caplog):
    """The last known labels are used, and the failure is logged."""
    with run_fake_kubernetes(kubernetes_folder) as kubernetes, watched_day(tmp_path, 3, minutes=3) as (service, _):
        with ServiceClient(service.url) as client:
            data = DashboardData(client)
            kubernetes.put("nodes", {"metadata": {"name": "node-1", "labels": {"disk": "ssd"}}})
            labels = open_cluster(kubernetes.kube_config())[0]
            assert labels.by_node(data.snapshot())["node-1"]["disk"] == "ssd"
            kubernetes.tokens.clear()
            labels._cache._values.clear()
            assert labels.by_node(data.snapshot())["node-1"]["disk"] == "ssd"
    assert "node labels" in caplog.text


def test_labels_of_a_file_and_of_the_watcher(running, tmp_path):
    """Without a cluster, labels come from a file of nodes, or from the watcher's metadata alone."""
    file = tmp_path / "nodes.yaml"
    file.write_text(json.dumps({"kind": "Node", "metadata": {"name": "node-2", "labels": {"disk": "ssd"}}}))
    with ServiceClient(running[0]) as client:
        snapshot = DashboardData(client).snapshot()
    assert matching_nodes(snapshot, NodeLabels(nodes_from_file(file)).by_node(snapshot), "", "", "disk") == ("node-2",)
    assert labels_of_file(file).by_node(snapshot)["node-2"]["disk"] == "ssd"
    assert matching_nodes(snapshot, NodeLabels().by_node(snapshot), "", "", "disk") == ()


def test_missing_cluster_credentials_are_reported(monkeypatch, tmp_path):
    """Without a kubeconfig and outside a pod, ``--cluster`` is an error that names KUBECONFIG."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InvalidApiServerConfig, match="KUBECONFIG"):
        open_cluster()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "abc"), ("zone=1", "a"), ("zone == 1", "a"), ("zone!=1", "bc"), ("zone", "ab"), ("!zone", "c"),
        ("zone,spot", "b"), ("spot=", "b"), ("zone=1, !spot", "a"), ("x/y.z=v-1", "c"),
    ],
)  # fmt: skip
def test_selectors_follow_kubectl(text, expected):
    """All terms between commas must hold; an absent label equals no value."""
    labels = {"a": {"zone": "1"}, "b": {"zone": "2", "spot": ""}, "c": {"x/y.z": "v-1"}}
    assert "".join(name for name, each in labels.items() if parse_selector(text)(each)) == expected


@pytest.mark.parametrize("text", ["a=b=c", "zone in (1)", "=", "a b", "!a=b"])
def test_an_invalid_selector_is_refused(text):
    """The error message has the syntax of selectors."""
    with pytest.raises(ValueError, match="write key=value"):
        parse_selector(text)


def test_a_selector_has_a_maximum_length():
    """An overlong selector is refused: evaluating it for every node could take minutes."""
    assert parse_selector(",".join(["!x"] * 600))({})
    with pytest.raises(ValueError, match="2000 characters"):
        parse_selector(",".join(["!x"] * 20_000))


def test_errors_show_an_address_without_its_password():
    """The error about an unreachable extender, which viewers see, has no credentials."""
    address = f"127.0.0.1:{closed_port()}"
    with pytest.raises(ServiceUnavailable, match=f"http://{address}: "):
        JsonService("extender", f"http://user:password@{address}").get("/decisions")
