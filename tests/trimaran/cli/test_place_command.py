"""``trimaran place`` on files, against a watcher over HTTP, and against an API server."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from support.placing import NODES, node, pod
from support.refusals import check_refusal
from support.scripted_api import SILENCE, ScriptedApi, page
from support.servers import reply, serving

from runtime.kubernetes.paths import NODES as NODE_LIST
from runtime.kubernetes.paths import PODS
from runtime.server.errors import encode_error
from scoring import NodeTable
from trimaran.cli import place as commands
from trimaran.cli.main import main
from trimaran.planning import planner
from trimaran.planning.cluster import read_batch, read_pending_pods
from trimaran.planning.exact import ExactResult
from trimaran.planning.problem import cost
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

PEAKS = {"node-0": 90.0, "node-1": 10.0, "node-2": 10.0}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def placing(folder: Path, nodes: list[object], pods: list[object]) -> list[str]:
    """Write nodes and pods to files; return the arguments of a quick search."""
    for name, items in (("nodes", nodes), ("pods", pods)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"kind": "List", "items": items}))
    return ["place", "--nodes", str(folder / "nodes.yaml"), "--pods", str(folder / "pods.yaml"), "--rounds", "50"]


@pytest.fixture
def place(tmp_path):
    """Return a function that runs ``trimaran place`` on nodes and pods in files, with a quick, reproducible search."""

    def call(nodes: list[object], pods: list[object], *arguments: str) -> Result:
        return CliRunner().invoke(main, [*placing(tmp_path, nodes, pods), *arguments])

    return call


def kube_config(folder: Path, url: str) -> str:
    """Write a kubeconfig for an API server without credentials; return its path."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(config))
    return str(file)


@pytest.fixture
def watcher():
    """Address of a watcher that keeps the window 24h with peaks, and no other."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        window = handler.path.partition("window=")[2]
        if window != "24h":
            reply(handler, encode_error("unknown_window", "not kept"), 404)
            return
        now = int(time.time())
        data = {
            name: NodeMetrics((
                Metric("cpu", "CPU", "AVG", window, 5.0), Metric("cpu", "CPU", "MAX", window, peak),
                Metric("memory", "Memory", "AVG", window, 10.0),
            ))
            for name, peak in PEAKS.items()
        }  # fmt: skip
        reply(handler, wire.encode(WatcherMetrics(now, Window(window, now - 60, now), "Prometheus", data)))

    with serving(answer) as fake:
        yield fake.url


def test_the_output_has_the_plan_and_its_quality(place) -> None:
    """It lists each pod with its node, a table with the gap, and the dry run; the status is 0."""
    result = place(NODES, [pod(f"web-{number}") for number in range(8)])
    assert result.exit_code == 0, result.output
    assert result.output.count("shop/web-") == 8
    assert "GAP" in result.output
    assert "local-search" in result.output
    assert "8 pods on 4 nodes" in result.output
    assert "less than 0.0" in result.output
    assert "8 pods would" in result.output


def test_json_has_the_plan_and_all_methods(place) -> None:
    """It has plan, bound, gap, and measures of every method; the plan is as even as possible."""
    result = place(NODES, [pod(f"web-{number}") for number in range(8)], "--output", "json", "--compare")
    document = json.loads(result.stdout)
    assert sorted(document["plan"].values()) == sorted(2 * [f"node-{number}" for number in range(4)])
    assert document["methods"].keys() == {"local-search", "lra", "bra"}
    assert document["methods"]["local-search"]["cost"] >= document["bound"]
    assert document["gap"] == pytest.approx(0, abs=1e-6)


def test_json_is_not_read_as_yaml(tmp_path, monkeypatch) -> None:
    """A YAML parser would take a hundred times as long: minutes for 20,000 pods."""
    for name, items in (("nodes", NODES), ("pods", [pod("web")])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"kind": "List", "items": items}))
    monkeypatch.setattr(yaml, "load_all", lambda *_, **__: pytest.fail("was read as YAML"))
    files = ["--nodes", str(tmp_path / "nodes.json"), "--pods", str(tmp_path / "pods.json")]
    result = CliRunner().invoke(main, ["place", *files, "--rounds", "1"])
    assert result.exit_code == 0, result.output
    assert "shop/web" in result.output


def test_the_bound_has_its_own_time_limit(place) -> None:
    """The output names --bound-seconds if the bound ran out of time, and not because the search was short."""
    pods = [pod(f"web-{number}") for number in range(8)]
    early = place(NODES, pods, "--bound-seconds", "0")
    assert "--bound-seconds" in early.output
    assert json.loads(place(NODES, pods, "--bound-seconds", "0", "--output", "json").stdout)["bound_exact"] is False
    for enough in (place(NODES, pods, "--seconds", "0.1"), place(NODES, pods)):
        assert "--bound-seconds" not in enough.output
    assert json.loads(place(NODES, pods, "--output", "json").stdout)["bound_exact"] is True
    assert "'--bound-seconds': nan" in place(NODES, pods, "--bound-seconds", "nan").output


def test_if_no_pod_fits_the_empty_plan_is_the_best(place) -> None:
    """The bound is exact then: a greater --bound-seconds would not help."""
    result = place(NODES, [pod("old", "4", "2Gi", nodeName="node-3"), pod("huge", "1000")])
    assert result.exit_code == 1
    assert "unplaced: shop/huge" in result.output
    assert "--bound-seconds" not in result.output
    document = json.loads(place(NODES, [pod("huge", "1000")], "--output", "json").stdout)
    assert (document["bound"], document["bound_exact"], document["gap"]) == (0, True, 0)


def test_progress_is_shown_only_on_a_terminal(place, monkeypatch) -> None:
    """Standard error names each step and its time limit on a terminal; it is empty in a pipe."""
    pods = [pod(f"web-{number}") for number in range(8)]
    assert place(NODES, pods).stderr == ""
    monkeypatch.setattr(commands, "_on_terminal", lambda: True)
    result = place(NODES, pods, "--output", "json")
    assert re.findall(r"\d+ s", result.stderr) == ["60 s", "20 s"]
    assert json.loads(result.stdout)["unplaced"] == {}


def test_a_long_search_shows_its_gap(place, monkeypatch) -> None:
    """A terminal gets the gap so far now and then."""
    monkeypatch.setattr(commands, "_on_terminal", lambda: True)
    monkeypatch.setattr(planner, "_REPORT_SECONDS", 0.0)
    pods = [pod(f"web-{number}", f"{number + 1}00m") for number in range(8)]
    messages = place(NODES, pods).stderr
    assert re.search(r"^trimaran: after 0 s: [0-9.]+% above the lower bound$", messages, re.MULTILINE)


def test_many_pods_get_a_longer_search(place, monkeypatch) -> None:
    """The default of --seconds is 20 s for up to 2,000 pods and 230 s for 20,000, as the help says."""
    assert [planner.default_seconds(pods) for pods in (1, 2_000, 20_000)] == [20, 20, 230]
    assert "1 per 86 pods above 2,000" in " ".join(place(NODES, [pod("web")], "--help").output.split())
    monkeypatch.setattr(commands, "_on_terminal", lambda: True)
    monkeypatch.setattr(commands, "default_seconds", lambda pods: 100 + pods)
    assert "101 s" in place(NODES, [pod("web")]).stderr
    assert "30 s" in place(NODES, [pod("web")], "--seconds", "30").stderr


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ([pod("a", gang="g"), pod("b", gang="g")], "--exact does not support gangs; leave --exact out"),
        ([pod(f"web-{number}") for number in range(251)], "251 pods on 4 nodes are too many for --exact"),
    ],
)
def test_the_exact_search_refuses_a_problem_before_the_search(place, monkeypatch, pods, message) -> None:
    """The local search, which comes before, does not run."""
    monkeypatch.setattr(planner, "local_search", lambda *_: pytest.fail("searched"))
    check_refusal(place(NODES, pods, "--exact", "--bound-seconds", "0"), message)


@pytest.mark.parametrize(("proven", "better"), [(True, False), (True, True), (False, False), (False, True)])
def test_the_output_names_the_method_and_the_proof(place, monkeypatch, proven: bool, better: bool) -> None:
    """It names the method that found the plan, and the option to change if time ran out before a proof."""

    def solve(problem, start, **_limits: object) -> ExactResult:
        value = cost(problem, start, 1.0)
        return ExactResult(start, value / 2 if better else value, value / 4, proven)

    monkeypatch.setattr(planner, "check_solvable", lambda _problem: None)
    monkeypatch.setattr(planner, "solve_exactly", solve)
    pods = [pod("a", "1", "1Gi"), pod("b", "2", "2Gi"), pod("c", "1", "9Gi")]
    output = place(NODES, pods, "--exact").output
    assert ("milp" in output, "local-search" in output) == (better, not better)
    assert ("--seconds" in output) is not proven
    document = json.loads(place(NODES, pods, "--exact", "--output", "json").stdout)
    assert document["bound_exact"] is proven
    assert list(document["methods"]) == ["milp" if better else "local-search"]


def test_the_plan_is_written_as_bindings(place, tmp_path) -> None:
    """The file is for kubectl create, and replaces the list of pods."""
    result = place(NODES, [pod("web", nodeSelector={"rack": "rack-1"})], "--write", str(tmp_path / "plan.yaml"))
    assert "shop/web" not in result.output
    (binding,) = yaml.safe_load((tmp_path / "plan.yaml").read_text())["items"]
    assert binding["kind"] == "Binding"
    assert binding["metadata"] == {"name": "web", "namespace": "shop"}
    assert binding["target"]["name"] in {"node-2", "node-3"}


def test_a_file_that_cannot_be_written_is_refused_before_the_search(place, monkeypatch) -> None:
    """A refusal after the search would lose the plan."""
    monkeypatch.setattr(commands, "make_plan", lambda *_, **__: pytest.fail("searched"))
    check_refusal(place(NODES, [pod("web")], "--write", "/dev/null/plan.yaml"), "/dev/null/plan.yaml")


def test_measured_peaks_count(place, watcher) -> None:
    """A node with a high peak gets no pod, although its average is low and no pod requests anything there."""
    pods = [pod(f"web-{number}", "1", "4Gi") for number in range(6)]
    result = place(NODES[:3], pods, "--watcher", watcher, "--output", "json")
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["plan"].values()) == {"node-1", "node-2"}
    without = place(NODES[:3], pods, "--output", "json")
    assert set(json.loads(without.stdout)["plan"].values()) == {"node-0", "node-1", "node-2"}


def test_an_unknown_window_is_refused(place, watcher) -> None:
    """The error names the watcher's settings for windows; the status is 2."""
    result = place(NODES, [pod("web")], "--watcher", watcher, "--window", "6h")
    check_refusal(result, "watch.windows", "watch.operators")


def test_nodes_without_metrics_count_by_requests(place, watcher) -> None:
    """A note gives their number; the other nodes count as measured."""
    running = pod("old", "7", "28Gi", nodeName="node-3")
    result = place(NODES, [running, *(pod(f"web-{number}", "1", "4Gi") for number in range(4))], "--watcher", watcher)
    assert "1 of 4 nodes" in result.output


def test_gangs_and_racks(place) -> None:
    """The pods of a gang go to one rack; each pod of a gang that fits into no rack is reported, with status 1."""
    pods = [pod(f"a-{number}", "4", "8Gi", gang="a") for number in range(4)]
    result = place(NODES, pods, "--gangs-within", "rack", "--output", "json")
    racks = {{"0": 0, "1": 0, "2": 1, "3": 1}[name[-1]] for name in json.loads(result.stdout)["plan"].values()}
    assert len(racks) == 1
    more = [*pods, pod("a-4", "4", "8Gi", gang="a")]
    result = place(NODES, more, "--gangs-within", "rack")
    assert result.exit_code == 1
    assert result.output.count("its gang does not fit as a whole") == 5
    assert place(NODES, more).exit_code == 0
    check_refusal(place(NODES, more, "--gangs-within", "zone"), "'zone'")


def test_a_gang_of_two_schedulers_is_left_to_the_scheduler(place) -> None:
    """The reason is shown; the selected scheduler's other pods are placed."""
    pods = [
        pod("a-0", gang="a", schedulerName="batch"), pod("a-1", gang="a"), pod("b-0", gang="b", schedulerName="batch"),
        pod("alone", schedulerName="batch"), pod("other"),
    ]  # fmt: skip
    result = place(NODES, pods, "--scheduler", "batch", "--output", "json")
    assert set(json.loads(result.stdout)["plan"]) == {"shop/b-0", "shop/alone"}
    output = place(NODES, pods, "--scheduler", "batch").output
    assert "shop/a-0: shop/a-1" in output
    assert "whole gangs" in output


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, "podAntiAffinity"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            "topology",
        ),
        ({"schedulingGates": [{"name": "quota"}]}, "schedulingGates"),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, "volume 'data'"),
        ({"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}, "hostPort"),
    ],
)
def test_pods_that_only_the_scheduler_can_place_are_left_to_it(place, spec, reason: str) -> None:
    """The reason is shown, and the rest of the gang is left too."""
    pods = [pod("odd", gang="a", **spec), pod("even", gang="a"), pod("alone")]
    result = place(NODES, pods)
    assert result.exit_code == 0, result.output
    assert reason in result.output
    assert "shop/even: shop/odd" in result.output
    assert "dry run: 1 pods" in result.output


def test_pods_of_other_schedulers_are_ignored(place) -> None:
    """--scheduler selects pods by schedulerName; bound and finished pods are never placed."""
    mine = pod("mine", schedulerName="batch")
    finished = {**pod("done", schedulerName="batch"), "status": {"phase": "Succeeded"}}
    result = place(NODES, [mine, finished, pod("theirs")], "--scheduler", "batch", "--output", "json")
    assert list(json.loads(result.stdout)["plan"]) == ["shop/mine"]


def test_allocatable_is_never_exceeded() -> None:
    """Low metrics do not help, since the kubelet would refuse the pod. The number of pods counts too."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "1"}
    nodes = [node("node-0"), {**node("node-1"), "status": {"capacity": amounts, "allocatable": amounts}}]
    pods = [pod("old", "7", "1Gi", nodeName="node-0"), pod("a", "2"), pod("b", "2")]
    metrics = (Metric("c", "CPU", "MAX", "24h", 1.0), Metric("m", "Memory", "MAX", "24h", 1.0))
    peaks = WatcherMetrics(1, Window("24h", 0, 1), "x", {name: NodeMetrics(metrics) for name in ("node-0", "node-1")})
    batch = read_batch(NodeTable.from_k8s(nodes, pods), *read_pending_pods(pods), peaks=peaks)
    fits = (batch.problem.demand[0] <= batch.problem.limit).all(axis=1)
    assert fits.tolist() == [False, True]
    both = batch.problem.demand.sum(axis=0) <= batch.problem.limit[1]
    assert not both.all()


@pytest.mark.parametrize(
    ("nodes", "pods", "arguments", "named"),
    [
        (NODES, [pod("web", nodeName="node-1")], [], "no pods that wait"),
        (NODES, [pod("web", cpu="many")], [], "spec.containers[0]"),
        (NODES, [pod("web")], ["--limit", "0"], "--limit"),
        (NODES, [pod("web")], ["--limit", "nan"], "--limit"),
        (NODES, [pod("web")], ["--live"], "give --nodes and --pods, or --live"),
        (NODES, [pod("web")], ["--bind"], "--kube-config"),
        ([*NODES, NODES[0]], [pod("web")], [], NODES[0]["metadata"]["name"]),
        (NODES, [pod("web"), pod("web")], [], "shop/web"),
        ([node("bare", cpu="0")], [pod("web")], [], "status.capacity"),
    ],
)
def test_bad_input_is_one_line_and_status_2(place, nodes, pods, arguments, named: str) -> None:
    """The error names the fault, without a traceback."""
    check_refusal(place(nodes, pods, *arguments), named)


def test_pods_that_fit_nowhere_are_reported(place) -> None:
    """A pod larger than every node, or allowed on none, gives status 1; the others are placed."""
    result = place(NODES, [pod("huge", "64"), pod("lost", nodeSelector={"rack": "none"}), pod("web")])
    assert result.exit_code == 1
    assert "unplaced: shop/huge: " in result.output
    assert "unplaced: shop/lost: " in result.output
    assert "shop/web" in result.output


def test_a_malformed_pod_of_the_cluster_affects_only_its_gang() -> None:
    """The pod and its gang are left to the scheduler; a malformed pod of another scheduler is ignored."""
    pods = [
        pod("huge", cpu="much", gang="g"), pod("second", gang="g"), pod("web"),
        pod("foreign", cpu="much", schedulerName="other"), pod("gone", cpu="much"),
    ]  # fmt: skip
    pods[-1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for each in pods:
        each["spec"].setdefault("schedulerName", "batch")
    pending, skipped = read_pending_pods(pods, "batch", skip_unreadable=True)
    assert [each.name for each in pending] == ["shop/web"]
    assert skipped.keys() == {"shop/huge", "shop/second"}
    assert "spec.containers[0].resources.requests.cpu: " in skipped["shop/huge"]
    assert skipped["shop/second"].startswith("shop/huge, of its gang")
    with pytest.raises(ValueError, match="shop/huge"):
        read_pending_pods(pods, "batch")


def test_a_node_with_an_unreadable_pod_gets_no_pods(capsys: pytest.CaptureFixture[str]) -> None:
    """Its free CPU is unknown, so the node is left out of the plan, with a message."""
    bad = pod("bad", cpu="much", nodeName="node-0")
    scripts = {
        path: ScriptedApi([[page("1", *objects)]], [[SILENCE]]) for path, objects in ((NODE_LIST, NODES), (PODS, [bad]))
    }
    api: Any = SimpleNamespace(
        list_items=lambda *_, **__: [pod("web")],
        pages=lambda path, *rest, **query: scripts[path].pages(path, *rest, **query),
        watch=lambda path, *rest, **query: scripts[path].watch(path, *rest, **query),
        abort=lambda: [each.abort() for each in scripts.values()],
    )
    nodes, (pending, _) = commands._from_api(api, lambda: nullcontext(api), "")
    assert nodes.names == tuple(each["metadata"]["name"] for each in NODES[1:])
    assert [each.name for each in pending] == ["shop/web"]
    assert "node-0 gets no pods: pod shop/bad " in capsys.readouterr().err


def test_a_node_without_cpu_affects_only_itself(place) -> None:
    """A note names it, no pod is placed there, and the other nodes are balanced by CPU as before."""
    result = place([*NODES, node("bare", cpu="0")], [pod("web")])
    assert result.exit_code == 0, result.output
    assert "1 of 5 nodes" in result.output
    assert "1 pods on 4 nodes" in result.output


def test_pods_that_request_nothing_are_spread(place) -> None:
    """Every plan costs the same for such pods, and still they do not share one node."""
    result = place(NODES, [pod(f"idle-{number}", "0", "0") for number in range(8)], "--output", "json")
    assert result.exit_code == 0, result.output
    assert sorted(json.loads(result.stdout)["plan"].values()) == sorted(2 * [f"node-{number}" for number in range(4)])


@pytest.mark.parametrize("ending", ["401", "hang up"])
def test_a_stopped_binding_reports_the_bound_pods(place, tmp_path, ending: str) -> None:
    """A refused pod fails alone; after a 401 or a lost connection the remaining pods are reported as not tried."""
    statuses = iter([201, 403, 500])

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        status = next(statuses, 401)
        if status == 401 and ending == "hang up":
            handler.close_connection = True
        else:
            reply(handler, {"kind": "Status", "message": f"answer {status}"}, status)

    pods = [pod(f"web-{number}", gang="web") for number in range(6)]
    with serving(answer) as api:
        result = place(NODES, pods, "--bind", "--kube-config", kube_config(tmp_path, api.url))
        assert len(api.requests) == 4
    check_refusal(result, status=1)
    assert re.search(r"shop/web-1 to node-\d: 403 Forbidden: answer 403: binding needs the right", result.output)
    assert re.search(r"shop/web-2 to node-\d: 500 ", result.output)
    why = "401 Unauthorized: answer 401" if ending == "401" else "the Kubernetes API cannot be used: .+"
    assert re.search(rf"shop/web-3 to node-\d: {why}\n", result.output)
    assert len(re.findall(rf"not bound: shop/web-[45] to node-\d: not tried: {why}\n", result.output)) == 2
    assert "gang shop/web is bound in part\n1 of 6 pods are bound\n" in result.output


def test_ctrl_c_reports_the_bound_pods(tmp_path) -> None:
    """The pod whose answer is missing may or may not be bound; the remaining pods are not tried."""
    third, given_up = threading.Event(), threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if len(api.requests) == 3:
            third.set()
            given_up.wait(20)
        reply(handler, {"kind": "Status"}, 201)

    with serving(answer) as api:
        arguments = placing(tmp_path, NODES, [pod(f"web-{number}") for number in range(5)])
        command = [sys.executable, "-m", "trimaran", *arguments, "--bind", "--kube-config"]
        # A shell starts background jobs with SIGINT ignored, which the command would inherit.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [*command, kube_config(tmp_path, api.url)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        signal.signal(signal.SIGINT, before)
        with process:
            assert third.wait(60)
            # A person is not faster. Python notices a signal that arrives just before a system call only after it,
            # and the process may be about to wait for the response.
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        given_up.set()
        assert len(api.requests) == 3
    assert process.returncode == 1, output
    why = "interrupted: the pod may or may not be bound"
    assert re.search(rf"shop/web-2 to node-\d: {why}\n", output)
    assert len(re.findall(rf"not bound: shop/web-[34] to node-\d: not tried: {why}\n", output)) == 2
    assert "2 of 5 pods" in output
    assert "Traceback" not in output
