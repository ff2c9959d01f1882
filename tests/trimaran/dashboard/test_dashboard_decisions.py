"""The dashboard's decisions, over a real extender, and labels of nodes, over an API server's answers."""

import json

import pytest
import requests
import yaml
from support.deciding import cluster, decide, extender
from support.fake_kubernetes import run_fake_kubernetes
from support.page import SCREEN, callback, callback_request, dashboard, watched_day
from support.servers import free_port, wait_until

pytest.importorskip("dash")

from client.service import ServiceClient
from runtime.kubernetes.credentials import UnusableAccess
from trimaran.dashboard import decisions, pod
from trimaran.dashboard.app import create_app
from trimaran.dashboard.components import matching
from trimaran.dashboard.data import Data
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.labels import Labels, of_file, offered, selector
from trimaran.dashboard.page_context import Beside, labels_from
from trimaran.dashboard.remote import OutsideReaders
from trimaran.extender.decisions.decisions_client import Extender, NoAnswer

NAMES = [f"node-{number}" for number in range(1, 31)]
PODS = 40


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A watcher, a cluster and an extender that was asked for 40 pods; yields their addresses and the cluster."""
    folder = tmp_path_factory.mktemp("decisions")
    with watched_day(folder, len(NAMES), minutes=30) as (service, _), cluster(folder, NAMES) as kubernetes:
        with extender(folder, kubernetes, service.url) as url:
            decide(url, kubernetes, NAMES, PODS)
            measured = lambda: sum(row["pods"] for row in requests.get(f"{url}/regret", timeout=5).json()["schedulers"])  # noqa: E731
            wait_until(lambda: measured() == PODS, "what came of all pods is known", 30)
            yield service.url, url, kubernetes


def texts(part):
    """Return the words of a part of the page, in their order."""
    if isinstance(part, list | tuple):
        return [text for each in part for text in texts(each)]
    if hasattr(part, "children"):
        return texts(part.children)
    return [] if part is None else [str(part)]


def each_of(part, id_, name="id"):
    """Return the parts of the page with this id, or all that have the property."""
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
        return [[" ".join(texts(cell)) for cell in shown.children]]
    return rows_of(shown.children) if hasattr(shown, "children") else []


def test_the_screen_shows_what_the_extender_says(running):
    """Every decision with its nodes, scores, place and regret, and the table of regrets, as the API has them."""
    asked = requests.get(f"{running[1]}/decisions?limit=500", timeout=5).json()["decisions"]
    assert len(asked) == PODS
    shown = {row[0]: row[1:] for row in rows_of(decisions._table(asked))}
    for each in asked:
        chosen, after = each["chosen"], each["after"]
        assert shown[each["pod"]][1:] == [
            "active", "scored", f"{each['best']['node']}, {each['best']['score']}",
            f"{chosen['node']}, {chosen['score']}",
            str(chosen["rank"]), str(chosen["margin"]), f"{after['regret']:+.1f}",
        ]  # fmt: skip
    (row,) = requests.get(f"{running[1]}/regret", timeout=5).json()["schedulers"]
    beside = Beside(decisions=Decisions(Extender(running[1])))
    screen = rows_of(decisions.layout(None, {}, beside))
    assert [
        row["scheduler"], row["mode"], str(PODS), str(row["same_node"]), f"{row['chosen_percent']:.1f}%",
        f"{row['best_percent']:.1f}%", f"{row['regret']:+.2f}", f"{row['regret_p95']:+.2f}", str(row["chosen_hot"]),
        str(row["best_hot"]),
    ] in screen  # fmt: skip


def test_places_are_counted(running):
    """Each pod that runs has one place among the scores of its candidates, apart for each mode."""
    asked = requests.get(f"{running[1]}/decisions", timeout=5).json()["decisions"]
    ranks = [each["chosen"]["rank"] for each in asked]
    counts = decisions.places(asked)["active"]
    assert counts["best"] == ranks.count(1) > 0
    assert counts["below 10"] == sum(rank > 10 for rank in ranks)
    assert sum(counts.values()) == PODS
    shadow = decisions.places([{**asked[0], "mode": "shadow"}, {**asked[1], "chosen": None}])
    assert {mode: sum(count.values()) for mode, count in shadow.items()} == {"shadow": 1}


def test_decisions_are_chosen_by_mode_and_name(running):
    """A text in the pod's name, and the mode."""
    asked = requests.get(f"{running[1]}/decisions", timeout=5).json()["decisions"]
    assert {each["pod"] for each in decisions.matching(asked, "all", "web-1")} == {
        f"default/web-{number}" for number in (1, *range(10, 20))
    }
    assert decisions.matching(asked, "shadow", "") == []
    assert len(decisions.matching(asked, "active", "")) == PODS


def test_one_decision_is_explained(running):
    """Its candidates with the terms of their scores, and which one was chosen; a pod that nobody knows is said."""
    found = requests.get(f"{running[1]}/explain?pod=default/web-7", timeout=5).json()
    beside = Beside(decisions=Decisions(Extender(running[1])))
    rows = {row[0]: row for row in rows_of(decisions.layout(None, {"pod": "default/web-7"}, beside))}
    for node in found["nodes"]:
        plugin = node["plugins"][0]
        assert rows[node["name"]] == [
            node["name"], "yes" if node["chosen"] else "", str(node["answered"]), node["grade"],
            f"{plugin['score']}: {plugin['why']}",
        ]  # fmt: skip
    assert sum(node["chosen"] for node in found["nodes"]) == 1
    unknown = texts(decisions.layout(None, {"pod": "default/nobody"}, beside))
    assert "no decision for pod default/nobody is kept, and it is on no node" in unknown


def test_a_pod_of_a_decision_is_picked(running):
    """Its name is offered, and what it asks for is filled in, also from the decision's own link; scores take it."""
    decided = Decisions(Extender(running[1]))
    screen = pod.layout(None, {"pod": "default/web-7"}, Beside(decisions=decided))
    (box,) = each_of(screen, "pod-pod")
    written = yaml.safe_load(box.value)
    assert written["metadata"] == {"name": "web-7", "namespace": "default"}
    assert written["spec"]["containers"] == [{"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]
    (offered_,) = each_of(screen, "pod-pick-there")
    assert len(offered_.children) == PODS
    (link,) = each_of(decisions.layout(None, {"pod": "default/web-7"}, Beside(decisions=decided)), None, "href")[:1]
    assert link.href == "pod?pod=default%2Fweb-7"
    app = create_app(OutsideReaders(running[0]), Beside(decisions=decided)).test_client()
    (output,) = (each["output"] for each in app.get("/_dash-dependencies").json if "pod-pod.value" in each["output"])
    request = callback_request(output, **{"pod-pick": {"value": "default/web-3"}})
    answer = app.post("/_dash-update-component", json=request)
    assert "name: web-3" in answer.json["response"]["pod-pod"]["value"]
    request["inputs"][0]["value"] = "default/web-"
    assert app.post("/_dash-update-component", json=request).status_code == 204


def test_what_cannot_be_picked_is_said(running):
    """A pod that is not known, and an extender that is down, leave what is there."""
    decided = Decisions(Extender(running[1]))
    written, said = pod.picked(decided, "default/nobody")
    assert (written, "no decision for pod default/nobody" in said) == ("", True)
    down = Beside(decisions=Decisions(Extender(f"http://127.0.0.1:{free_port()}")))
    screen = pod.layout(None, {"pod": "default/web-7"}, down)
    assert each_of(screen, "pod-pod")[0].value == pod._POD
    assert any("the extender at" in text for text in texts(screen))


def test_how_much_may_be_pasted_is_said():
    """The page in a watcher takes less than the page by itself."""
    for beside, said in ((Beside(most_pasted_bytes=65536), "At most 64 KB"), (Beside(), "At most 8,192 KB")):
        assert said in " ".join(texts(pod.layout(None, {}, beside)))


def test_an_extender_that_does_not_answer_is_said():
    """The screen is there, and says why it is empty."""
    beside = Beside(decisions=Decisions(Extender(f"http://127.0.0.1:{free_port()}")))
    assert any("the extender at http://127.0.0.1" in text for text in texts(decisions.layout(None, {}, beside)))
    with pytest.raises(NoAnswer):
        beside.decisions.recent()


def test_the_command_names_the_extender(running, tmp_path):
    """``--extender`` adds the screen, which is not there without; ``--cluster`` reads labels as kubectl would."""
    config = str(running[2].kube_config())
    with dashboard(tmp_path, running[0], "--extender", running[1], "--cluster", KUBECONFIG=config) as url:
        ways = callback(url, SCREEN, place={"pathname": "/decisions", "search": ""}).text
        assert "Regret by scheduler" in ways
        assert '"children":"Decisions","href"' in ways
        assert '"pool=spot"' in callback(url, SCREEN, place={"pathname": "/", "search": ""}).text
    without = create_app(OutsideReaders(running[0])).test_client()
    asked = callback_request(SCREEN, place={"pathname": "/decisions", "search": ""})
    shown = without.post("/_dash-update-component", json=asked)
    assert (shown.status_code, "Decisions" in shown.text, "Cluster" in shown.text) == (200, False, True)


def test_nodes_are_chosen_by_labels_of_the_cluster(running):
    """A selector takes the nodes that the API server says have the labels; pairs of many nodes are offered."""
    with ServiceClient(running[0]) as client:
        snapshot = Data(client).snapshot()
        labels = labels_from(cluster=True, kube_config=running[2].kube_config()).of(snapshot)
    chosen = matching(snapshot, labels, "", "", "pool=batch,topology.kubernetes.io/zone!=zone-0")
    assert (
        set(chosen)
        == {
            name
            for name, node in running[2].nodes.items()
            if node["metadata"]["labels"]["pool"] == "batch"
            and node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-1"
        }
        != set()
    )
    assert "pool=spot" in offered(labels)
    assert not any("hostname" in pair for pair in offered(labels))


def test_labels_stay_when_the_cluster_is_gone(tmp_path, kubernetes_folder, caplog):
    """They are those that were read last, and the log says that no more come."""
    with run_fake_kubernetes(kubernetes_folder) as kubernetes, watched_day(tmp_path, 3, minutes=3) as (service, _):
        with ServiceClient(service.url) as client:
            data = Data(client)
            kubernetes.put("nodes", {"metadata": {"name": "node-1", "labels": {"disk": "ssd"}}})
            labels = labels_from(cluster=True, kube_config=kubernetes.kube_config())
            assert labels.of(data.snapshot())["node-1"]["disk"] == "ssd"
            kubernetes.tokens.clear()
            labels._kept._values.clear()
            assert labels.of(data.snapshot())["node-1"]["disk"] == "ssd"
    assert "the labels of nodes cannot be read" in caplog.text


def test_labels_of_a_file_and_of_the_watcher(running, tmp_path):
    """Without a cluster a file of nodes has them, or the watcher's metadata is all there is."""
    file = tmp_path / "nodes.yaml"
    file.write_text(json.dumps({"kind": "Node", "metadata": {"name": "node-2", "labels": {"disk": "ssd"}}}))
    with ServiceClient(running[0]) as client:
        snapshot = Data(client).snapshot()
    assert matching(snapshot, Labels(of_file(file)).of(snapshot), "", "", "disk") == ("node-2",)
    assert labels_from(cluster=False, nodes_file=file).of(snapshot)["node-2"]["disk"] == "ssd"
    assert matching(snapshot, Labels().of(snapshot), "", "", "disk") == ()


def test_no_way_to_the_cluster_is_said(monkeypatch, tmp_path):
    """Where there is no kubeconfig and this is no pod, ``--cluster`` cannot be had."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(UnusableAccess, match="KUBECONFIG"):
        labels_from(cluster=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "abc"), ("zone=1", "a"), ("zone == 1", "a"), ("zone!=1", "bc"), ("zone", "ab"), ("!zone", "c"),
        ("zone,spot", "b"), ("spot=", "b"), ("zone=1, !spot", "a"), ("x/y.z=v-1", "c"),
    ],
)  # fmt: skip
def test_selectors_are_as_kubectl_has_them(text, expected):
    """Terms by commas must all hold; an absent label is not equal to anything."""
    labels = {"a": {"zone": "1"}, "b": {"zone": "2", "spot": ""}, "c": {"x/y.z": "v-1"}}
    assert "".join(name for name, each in labels.items() if selector(text)(each)) == expected


@pytest.mark.parametrize("text", ["a=b=c", "zone in (1)", "=", "a b", "!a=b"])
def test_what_is_no_selector_is_said(text):
    """With how to write one."""
    with pytest.raises(ValueError, match="write key=value"):
        selector(text)


def test_a_selector_is_no_longer_than_anybody_writes_it():
    """Each term is held against every node, so that one text could take the processor for minutes."""
    assert selector(",".join(["!x"] * 600))({})
    with pytest.raises(ValueError, match="2000 characters"):
        selector(",".join(["!x"] * 20_000))


def test_an_address_is_shown_without_its_password():
    """Whoever looks at the page reads why the extender cannot be asked."""
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(NoAnswer, match=f"the extender at http://{address}: Connection refused"):
        Extender(f"http://user:password@{address}").ask("/decisions")
