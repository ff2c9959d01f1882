"""``trimaran top`` and ``trimaran score``, as a person calls them, against a watcher over HTTP."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from support.servers import reply, serving

from runtime.server.errors import encode_error
from runtime.terminal import by_load, painted
from trimaran.cli.main import main
from watcher import wire
from watcher.history import History, HistorySeries, Steps
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire.history import encode_history

POD = {
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
}
LOADS = {"node-1": 80.0, "node-2": 20.0, "node-3": 40.0}


def node(name: str) -> dict[str, object]:
    """Return a Node of 4 cores and 8 GiB."""
    amount = {"cpu": "4", "memory": "8Gi"}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"capacity": amount, "allocatable": amount}}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    """Try again at once: how long clients pause is tested with them."""
    monkeypatch.setattr("client.transport._FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def address():
    """A watcher that keeps 15m and 5m of three nodes."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        window = handler.path.partition("window=")[2] or "15m"
        if window not in {"15m", "5m"}:
            reply(handler, encode_error("unknown_window", "not kept"), 404)
            return
        now = int(time.time())
        data = {
            name: NodeMetrics(
                (
                    Metric("cpu", "CPU", "AVG", window, load),
                    Metric("cpu", "CPU", "STD", window, 5.0),
                    Metric("memory", "Memory", "Latest", window, 100 - load),
                ),
                metadata={"grade": "last_good"},
            )
            for name, load in LOADS.items()
        }
        reply(handler, wire.encode(WatcherMetrics(now, Window(window, now - 60, now), "Prometheus", data)))

    with serving(answer) as fake:
        yield fake.url


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    """Files as kubectl writes them: a pod, and a List of three nodes and one that is not measured."""
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    nodes = {"kind": "List", "items": [node(name) for name in [*LOADS, "node-9"]]}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(nodes))
    return {"pod": str(tmp_path / "pod.yaml"), "nodes": str(tmp_path / "nodes.yaml")}


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Call trimaran."""
    return CliRunner().invoke(main, arguments, input=stdin)


def test_top_shows_every_window_that_is_kept(address):
    """A row a node, a column a resource and window, deviation beside the average, the grade below."""
    result = run("top", "--watcher", address, "--windows", "15m,10m,5m")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == [
        "NODE", "CPU 15m", "CPU 5m", "MEMORY 15m", "MEMORY 5m", "AGE", "COVERAGE", "GRADE",
    ]  # fmt: skip
    assert "80.0% ±5.0" in lines[1]
    assert re.split(r"\s{2,}", lines[1])[-3:] in (["0s", "100%", "last_good"], ["1s", "100%", "last_good"])
    assert "20.0%" in lines[1]
    assert lines[-1] == "3 nodes from Prometheus, grade: last_good"


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("name", ["node-1", "node-2", "node-3"]),
        ("cpu", ["node-1", "node-3", "node-2"]),
        ("memory", ["node-2", "node-3", "node-1"]),
    ],
)
def test_top_sorts(address, by, order):
    """Rows are sorted by name, or the highest first by CPU or memory."""
    lines = run("top", "--watcher", address, "--sort", by).output.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == order


def test_top_writes_json(address):
    """--output json is an array of what the watcher answered."""
    document = json.loads(run("top", "--watcher", address, "--output", "json", "--windows", "5m").output)
    assert [metrics["window"]["duration"] for metrics in document] == ["5m"]
    assert document[0]["data"]["node-2"]["metrics"][0]["value"] == 20.0


def test_top_says_when_no_window_is_kept(address):
    """Windows that the watcher does not keep are an error of the call."""
    result = run("top", "--watcher", address, "--windows", "7m")
    assert result.exit_code == 2
    assert "not kept" in result.output


def test_top_shows_the_windows_that_are_there():
    """A window without metrics yet does not hide the others; when none has any, that is one line and status 1."""
    window = Window("5m", 1_700_000_000, 1_700_000_300)
    load = NodeMetrics((Metric("cpu", "CPU", "AVG", "5m", 20.0),))
    body = wire.encode(WatcherMetrics(window.end, window, "Prometheus", {"node-1": load}))
    nothing = encode_error("no_metrics", "no metrics yet")

    def answer(handler: BaseHTTPRequestHandler) -> None:
        there = handler.path.endswith("window=5m")
        reply(handler, body if there else nothing, 200 if there else 404)

    with serving(answer) as fake:
        shown = run("top", "--watcher", fake.url)
        empty = run("top", "--watcher", fake.url, "--windows", "15m")
    assert shown.exit_code == 0
    assert shown.output.splitlines()[0].split()[:4] == ["NODE", "CPU", "5m", "AGE"]
    assert (empty.exit_code, "no metrics yet" in empty.output) == (1, True)


def test_top_without_a_watcher_says_once_what_is_wrong():
    """This process watches by itself, which it says; the provider is down: one line, not the watcher's log too."""
    environment = {
        **os.environ,
        "METRICS_PROVIDER_NAME": "Prometheus",
        "METRICS_PROVIDER_ADDRESS": "http://127.0.0.1:9",
    }
    command = [sys.executable, "-m", "trimaran", "top"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    embedding, failure = done.stderr.splitlines()
    assert embedding == "trimaran: no --watcher (TRIMARAN_WATCHER_ADDRESS): embedding one that reads Prometheus"
    assert "Connection refused" in failure


def test_top_says_nothing_of_embedding_where_there_is_a_watcher(address, monkeypatch):
    """An address in the environment is as good as --watcher."""
    monkeypatch.setenv("TRIMARAN_WATCHER_ADDRESS", address)
    result = run("top")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("command", ["top", "score"])
def test_a_refusal_names_the_options(files, command, status):
    """The service's own words, and the options that give it what it wants."""
    refusal = encode_error("unauthorized", "a bearer token is needed")
    arguments = ["--pod", files["pod"], "--nodes", files["nodes"]] if command == "score" else []
    with serving(lambda handler: reply(handler, refusal, status)) as fake:
        result = run(command, "--watcher", fake.url, *arguments)
    assert result.exit_code == 1
    assert result.stderr.endswith(": a bearer token is needed; see --token-file and --client-certificate\n")


def test_top_says_that_nobody_listens():
    """A watcher that is not there is one line and status 1, no traceback."""
    result = run("top", "--watcher", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "cannot be reached" in result.output
    assert "Traceback" not in result.output


def test_score_ranks_with_reasons(address, files):
    """The least loaded node comes first, an unmeasured one last, each with a reason."""
    result = run("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"])
    assert result.exit_code == 0
    rows = [line.split(maxsplit=5) for line in result.output.splitlines()[3:7]]
    assert [row[1] for row in rows] == ["node-3", "node-2", "node-1", "node-9"]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[3:5] for row in rows] == [["yes", "last_good"]] * 3 + [["yes", "avoided"]]
    assert "its agent may have failed, so the minimum" in rows[-1][5]
    assert "LoadVariationRiskBalancing" in rows[0][5]
    counts, _, note = result.stdout.splitlines()[-3:]
    assert counts.startswith("1 avoided, 3 last_good (fallback open; ")
    assert note.startswith("Filtered by room, cordons, taints and node affinity; ")
    assert result.stderr == ""


def test_score_picks_no_node_that_the_pod_cannot_go_to(address, files, tmp_path):
    """Cordoned, tainted and full nodes come last and without a score, with what keeps the pod off."""
    out = [node("node-2"), node("node-3"), node("small")]
    out[0]["spec"] = {"unschedulable": True}
    out[1]["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    out[2]["status"] = {"capacity": {"cpu": "100m"}, "allocatable": {"cpu": "100m"}}
    (tmp_path / "some.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [*out, node("node-1")]}))
    result = run("score", "--watcher", address, "--pod", files["pod"], "--nodes", str(tmp_path / "some.yaml"))
    rows = [line.split()[1:5] for line in result.output.splitlines()[3:7]]
    assert (rows[0][0], rows[0][2]) == ("node-1", "yes")
    assert rows[0][1] != "-"
    assert sorted(rows[1:]) == [
        ["node-2", "-", "no:", "constraints"], ["node-3", "-", "no:", "constraints"], ["small", "-", "no:", "room"],
    ]  # fmt: skip
    some = str(tmp_path / "some.yaml")
    document = json.loads(
        run("score", "--watcher", address, "--pod", files["pod"], "--nodes", some, "-o", "json").stdout
    )
    assert {each["name"]: each.get("obstacle") for each in document["nodes"]} == {
        "node-1": None, "node-2": "constraints", "node-3": "constraints", "small": "room",
    }  # fmt: skip


def test_score_says_that_no_name_matches(address, files, tmp_path):
    """Nodes of another cluster, or of other names, are most likely a mistake: the watcher's names are told."""
    (tmp_path / "others.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [node("10.0.0.1")]}))
    result = run("score", "--watcher", address, "--pod", files["pod"], "--nodes", str(tmp_path / "others.yaml"))
    assert result.exit_code == 0
    assert "knows none of these nodes; the ones it knows are named node-1, node-2, node-3\n" in result.stderr


@pytest.mark.parametrize(
    ("options", "affected"),
    [
        (("--plugin", "LowRiskOverCommitment"), "LowRiskOverCommitment"),
        (("--plugin", "TargetLoadPacking"), "TargetLoadPacking"),
        (("--watcher", "http://127.0.0.1:1"), "allocation"),
        ((), ""),
    ],
)
def test_score_says_what_needs_the_pods(address, files, tmp_path, options, affected):
    """Without --pods a score that goes by the pods on a node takes it for empty, which is said; once."""
    arguments = ("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"], *options)
    words = f"without --pods all nodes count as empty, which matters to {affected}\n"
    assert (words in run(*arguments).stderr) == bool(affected)
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [POD]}))
    assert "without --pods" not in run(*arguments, "--pods", str(tmp_path / "pods.yaml")).stderr


def test_score_without_fallback_is_upstreams(address, files):
    """--fallback off has no grades, and a node without metrics scores 0 because it has none."""
    result = run("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"], "--fallback", "off")
    lines = result.output.splitlines()
    assert lines[2].split() == ["RANK", "NODE", "SCORE", "FEASIBLE", "WHY"]
    assert lines[6].split(maxsplit=3)[1:3] == ["node-9", "0"]
    assert "no metrics, so the minimum" in lines[6]


def test_score_with_fail_closed_places_on_measured_nodes_only(address, files):
    """--fallback closed ranks nodes without metrics last, without a score."""
    arguments = ("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"])
    result = run(*arguments, "--fallback", "closed")
    assert result.output.splitlines()[6].split()[1:6] == ["node-9", "-", "no:", "metrics", "avoided"]
    document = json.loads(run(*arguments, "--fallback", "closed", "--output", "json").output)
    assert document["nodes"][-1]["score"] is None
    assert document["grades"] == {"last_good": 3, "avoided": 1}


def test_score_without_a_watcher_goes_by_allocation(files):
    """When nobody listens the fullest node that fits is best, and the reason is on standard error; off: status 1."""
    arguments = ("score", "--watcher", "http://127.0.0.1:1", "--pod", files["pod"], "--nodes", files["nodes"])
    result = run(*arguments)
    assert result.exit_code == 0
    assert "no metrics: the watcher at http://127.0.0.1:1 cannot be reached" in result.stderr
    assert "shop/web, by allocation: " in result.stdout
    assert {line.split()[4] for line in result.stdout.splitlines()[3:7]} == {"allocation"}
    document = json.loads(run(*arguments, "--output", "json").stdout)
    assert (document["window"], document["grades"]) == (None, {"allocation": 4})
    assert run(*arguments, "--fallback", "off").exit_code == 1


def test_score_adds_the_scores_of_several_plugins(address, files):
    """With several plugins the scores are added, and each one's reason stands on a line."""
    names = ("TargetLoadPacking", "LowRiskOverCommitment")
    plugins = [word for name in names for word in ("--plugin", name)]
    result = run(
        "score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"], "--output", "json", *plugins
    )
    for ranked in json.loads(result.stdout)["nodes"]:
        assert [part["name"] for part in ranked["plugins"]] == list(names)
        assert ranked["score"] == sum(part["score"] for part in ranked["plugins"])
        assert all(part["why"] for part in ranked["plugins"])


def test_score_reads_the_pod_from_standard_input(address, files):
    """``kubectl get pod -o json | trimaran score --pod -`` works."""
    result = run("score", "--watcher", address, "--pod", "-", "--nodes", files["nodes"], stdin=json.dumps(POD))
    assert result.exit_code == 0
    assert "shop/web" in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("a: [", "neither YAML nor JSON"),
        ("", "holds no Pod"),
        ("- 1", "should hold Pod"),
        ("kind: Node", "should hold Pod"),
        ("kind: Pod\nspec: {containers: [{resources: {requests: {cpu: much}}}]}", "much"),
        ("kind: Pod\nspec: {overhead: much}", "spec.overhead: must be a mapping"),
        ("kind: Pod\nspec: {containers: web}", "spec.containers: must be a list"),
        ("kind: Pod\nmetadata: {creationTimestamp: 2024-13-45}", "bad.yaml is neither"),
    ],
)
def test_score_names_a_bad_file(address, files, tmp_path: Path, content: str | None, message: str):
    """A file that cannot be used is named, with what is wrong, and status 2."""
    bad = tmp_path / "bad.yaml"
    if content is not None:
        bad.write_text(content)
    result = run("score", "--watcher", address, "--pod", str(bad), "--nodes", files["nodes"])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


# -- one node, and what a person looks for ---------------------------------------------------------------------------


@pytest.fixture
def doubtful():
    """A watcher with nodes of every grade; it keeps a history of node-1."""
    now = int(time.time())
    window = Window("15m", now - 900, now)
    metadata = {
        "node-1": {"pool": "blue"},
        "node-2": {"coverage": 0.6},
        "node-3": {"grade": "last_good", "window_end": now - 240},
        "node-4": {"suspect": "frozen"},
    }
    data = {
        name: NodeMetrics(
            (Metric("c", "CPU", "AVG", "15m", 10.0 * int(name[-1])), Metric("c", "CPU", "P95", "15m", 95.5)), {}, each
        )
        for name, each in metadata.items()
    }
    snapshot = WatcherMetrics(now, window, "Prometheus", data)
    steps = Steps(now // 1800 * 1800 - 48 * 1800, 1800, 49)
    values = np.linspace(0, 100, 49, dtype=np.float32)[None, :].copy()
    values[0, 5] = np.nan
    day = History(("node-1",), steps, (HistorySeries("c", "CPU", "AVG", values),))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        host = re.search(r"host=([^&]*)", query)
        if path == "/history":
            body = b"".join(encode_history(day)) if host and host[1] == "node-1" else b""
            reply(handler, body or encode_error("unknown_node", "none"), 200 if body else 404)
        elif host and host[1] not in data:
            reply(handler, encode_error("unknown_node", "no such node"), 404)
        elif "window=15m" in query:
            some = {name: node for name, node in data.items() if not host or name == host[1]}
            reply(handler, wire.encode(replace(snapshot, data=some)))
        else:
            reply(handler, encode_error("unknown_window", "not kept"), 404)

    with serving(answer) as fake:
        yield fake.url


def test_top_admits_doubt(doubtful):
    """Age, coverage and grade of each node stand beside its load; wide has what is suspect, pool and percentiles."""
    lines = run("top", "--watcher", doubtful, "-o", "wide").output.splitlines()
    rows = [re.split(r"\s{2,}", line) for line in lines[1:5]]
    assert [row[3:] for row in rows] == [
        ["100%", "measured", "-", "blue"], ["60%", "measured", "-", "-"], ["100%", "last_good", "-", "-"],
        ["100%", "suspect", "frozen", "-"],
    ]  # fmt: skip
    assert rows[0][1] == "10.0% p95 95.5"
    assert rows[2][2] == "4m"


@pytest.mark.parametrize(
    ("by", "first"),
    [("age", "node-3"), ("coverage", "node-2"), ("grade", "node-3"), ("cpu", "node-4"), ("cpu-std", "")],
)
def test_top_sorts_by_doubt(doubtful, by, first):
    """The oldest, the least covered and the worst grade come first; what is not known comes last."""
    result = run("top", "--watcher", doubtful, "--sort", by)
    assert result.exit_code == 0
    assert result.output.splitlines()[1].startswith(first)


def test_top_of_one_node(doubtful):
    """All its values, its metadata, and a line of its day where there is a history."""
    result = run("top", "node-1", "--watcher", doubtful)
    assert result.exit_code == 0
    assert "CPU AVG   10.00%" in result.output
    assert "CPU P95   95.50%" in result.output
    assert "pool: blue" in result.output
    line = result.output.splitlines()[-1].partition("|")[2].partition("|")[0]
    assert (len(line), line[4], line[-1]) == (48, " ", "█")
    without = run("top", "node-3", "--watcher", doubtful)
    assert (without.exit_code, "24 h" in without.output) == (0, False)
    nobody = run("top", "nobody", "--watcher", doubtful)
    assert (nobody.exit_code, "no such node" in nobody.output) == (1, True)


def test_top_watches_until_it_is_stopped(doubtful, monkeypatch):
    """--watch shows it again after the interval, which is a duration; Ctrl-C ends it."""
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("trimaran.cli.top._sleep", sleep)
    result = run("top", "--watcher", doubtful, "--watch", "--interval", "2m")
    assert slept == [120, 120]
    assert result.output.count("NODE") == 2
    assert run("top", "--watcher", doubtful, "--interval", "soon").exit_code == 2


def test_documents_are_alike(doubtful, address, files):
    """-o yaml is what -o json is."""
    score = ("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"])
    for arguments in (("top", "--watcher", doubtful), ("top", "node-1", "--watcher", doubtful), score):
        as_json, as_yaml = (yaml.safe_load(run(*arguments, "-o", form).stdout) for form in ("json", "yaml"))
        for each in (as_json, as_yaml):  # the fake makes what it answers at each request
            for part in each if isinstance(each, list) else [each]:
                part.pop("timestamp", None)
                part.pop("window")
        assert as_json == as_yaml


def test_color_is_for_terminals(monkeypatch):
    """In a pipe there is none, nor where NO_COLOR asks for none."""
    assert painted("hot", "red") == "hot"
    monkeypatch.setattr("runtime.terminal._is_terminal", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted("hot", "red") == "\x1b[31mhot\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("hot", "red") == "hot"
    assert [by_load(percent) for percent in (10, 80, 95)] == [None, "yellow", "red"]


# -- whole configurations ---------------------------------------------------------------------------------------------

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: careful
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: TargetLoadPacking, weight: 3}, {name: NodeResourcesFit}, {name: InterPodAffinity, weight: 2}]
  pluginConfig:
  - name: TargetLoadPacking
    args: {targetUtilization: 60}
- schedulerName: other
  plugins: {score: {disabled: [{name: "*"}]}}
"""


@pytest.fixture
def configured(files, tmp_path) -> tuple[str, ...]:
    """Arguments that score by a configuration."""
    (tmp_path / "scheduler.yaml").write_text(CONFIGURATION)
    return ("--config", str(tmp_path / "scheduler.yaml"), "--pod", files["pod"], "--nodes", files["nodes"])


def test_score_by_a_whole_configuration(address, configured):
    """All plugins of the profile count, with their weights and arguments; what cannot be scored here is said."""
    result = run("score", "--watcher", address, *configured, "--scheduler", "careful", "-o", "json")
    assert result.exit_code == 0
    assert "not scored here, though kube-scheduler does: 2 x InterPodAffinity\n" in result.stderr
    document = json.loads(result.stdout)
    assert document["weights"] == {"TargetLoadPacking": 3, "NodeResourcesFit": 1}
    for each in document["nodes"]:
        packing, fit = each["plugins"]
        assert each["score"] == 3 * packing["score"] + fit["score"]
        assert each["feasible"] is True
    assert document["nodes"][0]["name"] == "node-3"
    wide = run("score", "--watcher", address, *configured, "--scheduler", "careful", "-o", "wide").stdout.splitlines()
    assert re.split(r"\s{2,}", wide[2])[5:] == ["3 x TargetLoadPacking", "1 x NodeResourcesFit"]


def test_score_explains(address, configured):
    """--explain writes the terms of each score under each node."""
    result = run("score", "--watcher", address, *configured, "--scheduler", "careful", "--explain")
    block = result.stdout.partition("\nnode-3: ")[2].splitlines()
    assert block[1].startswith("  3 x ")
    assert "TargetLoadPacking" in block[1]
    assert block[2].startswith("      ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "which profile? There are several: careful, other"),
        (("--scheduler", "none"), "no profile for scheduler 'none'"),
        (("--scheduler", "other"), "has no score that we know"),
        (("--scheduler", "careful", "--kubernetes-version", "1.2"), "Kubernetes version '1.2' is not known"),
        (("--plugin", "TargetLoadPacking"), "leave --plugin out"),
    ],
)
def test_score_names_what_is_wrong_with_the_configuration(address, configured, options, words):
    """Each is one message and status 2."""
    result = run("score", "--watcher", address, *configured, *options)
    assert result.exit_code == 2
    assert words in result.output


def test_the_kubernetes_version_counts(address, configured):
    """--kubernetes-version takes what the API server says, and a profile needs --config."""
    result = run(
        "score", "--watcher", address, *configured, "--scheduler", "careful", "--kubernetes-version", "v1.33.5"
    )
    assert result.exit_code == 0
    assert run("score", "--watcher", address, *configured[2:], "--scheduler", "x").exit_code == 2


@pytest.mark.parametrize(
    ("kind", "path"), [("Deployment", ()), ("StatefulSet", ()), ("Job", ()), ("CronJob", ("jobTemplate", "spec"))]
)
def test_score_takes_templates(address, files, tmp_path, kind, path):
    """A Deployment and its like are scored as the pods that they make."""
    spec = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}}
    for key in reversed(path):
        spec = {key: spec}
    workload = {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    (tmp_path / "workload.yaml").write_text(yaml.safe_dump(workload))
    arguments = ("score", "--watcher", address, "--nodes", files["nodes"], "-o", "json", "--pod")
    made, plain = (json.loads(run(*arguments, file).stdout) for file in (str(tmp_path / "workload.yaml"), files["pod"]))
    assert made["pod"] == "shop/web"
    assert made["nodes"] == plain["nodes"]


def test_score_says_that_a_workload_has_no_template(address, files, tmp_path):
    """It is named, with where the template should be."""
    (tmp_path / "bad.yaml").write_text("kind: Deployment\nspec: {template: 5}")
    result = run("score", "--watcher", address, "--pod", str(tmp_path / "bad.yaml"), "--nodes", files["nodes"])
    assert result.exit_code == 2
    assert "the Deployment has no pod template at spec.template" in result.output
