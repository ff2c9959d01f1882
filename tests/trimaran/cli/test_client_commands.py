"""``trimaran top`` and ``trimaran score`` with a watcher over HTTP."""

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
from support.refusals import check_refusal
from support.servers import reply, serving

from runtime.server.errors import encode_error
from runtime.terminal import colorize, load_color
from trimaran.cli import top
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
    """Retry without a pause: pauses are tested with the client."""
    monkeypatch.setattr("client.transport._FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def address():
    """Serve a watcher with windows 15m and 5m of three nodes."""

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
    """Write files in kubectl's format: a pod, three measured nodes and one without metrics."""
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    nodes = {"kind": "List", "items": [node(name) for name in [*LOADS, "node-9"]]}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(nodes))
    return {"pod": str(tmp_path / "pod.yaml"), "nodes": str(tmp_path / "nodes.yaml")}


BY_LOAD = ("--plugin", "LoadVariationRiskBalancing")


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Call trimaran."""
    return CliRunner().invoke(main, arguments, input=stdin)


def test_top_shows_every_available_window(address):
    """The table has a row per node, and a column per resource and window with average and deviation."""
    result = run("top", "--watcher", address, "--windows", "15m,10m,5m")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == [
        "NODE", "CPU 15m", "CPU 5m", "MEMORY 15m", "MEMORY 5m", "AGE", "COVERAGE", "GRADE",
    ]  # fmt: skip
    assert "████████·· 80.0% ±5.0   80.0% ±5.0   ██········ 20.0%   20.0%" in lines[1]
    assert re.split(r"\s{2,}", lines[1])[-3:] in (["0s", "100%", "last_good"], ["1s", "100%", "last_good"])
    assert "20.0%" in lines[1]
    assert lines[-1] == "3 nodes from Prometheus, grade: last_good"


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("name", ["node-1", "node-2", "node-3"]),
        ("load", ["node-1", "node-2", "node-3"]),
        ("cpu", ["node-1", "node-3", "node-2"]),
        ("memory", ["node-2", "node-3", "node-1"]),
    ],
)
def test_top_sorts(address, by, order):
    """Rows are sorted by name, or by CPU or memory with the highest load first."""
    lines = run("top", "--watcher", address, "--sort", by).output.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == order


def test_top_shows_the_hottest_nodes_first():
    """By default the node with the highest CPU or memory is first, and nodes without values are last."""
    now = int(time.time())
    loads = {"node-1": (10, 20), "node-2": (30, 35), "node-3": (40, 95.5), "node-4": (90, 5)}
    data = {
        name: NodeMetrics((Metric("c", "CPU", "AVG", "5m", cpu), Metric("m", "Memory", "AVG", "5m", memory)))
        for name, (cpu, memory) in loads.items()
    }
    data["node-0"] = NodeMetrics((Metric("p", "CPUPressure", "AVG", "5m", 99.0),))
    data["node-1"] = NodeMetrics((*data["node-1"].metrics, Metric("f", "IOFullPressure", "AVG", "5m", 7.0)))
    snapshot = WatcherMetrics(now, Window("5m", now - 300, now), "Prometheus", data)
    with serving(lambda handler: reply(handler, wire.encode(snapshot))) as fake:
        lines = run("top", "--watcher", fake.url, "--windows", "5m").output.splitlines()
        wide = run("top", "--watcher", fake.url, "--windows", "5m", "-o", "wide").output
    assert [line.split()[0] for line in lines[1:6]] == ["node-3", "node-4", "node-2", "node-1", "node-0"]
    assert re.split(r"\s{2,}", lines[0])[1:4] == ["CPU 5m", "MEMORY 5m", "CPUPRESSURE 5m"]
    assert "█████████▌ 95.5%" in lines[1]
    assert "·········· -" in lines[5]
    assert ("IOFULLPRESSURE" in lines[0], "IOFULLPRESSURE" in wide) == (False, True)


def test_top_watch_shows_what_fits_on_the_terminal(address, monkeypatch):
    """With --watch the first nodes fill the terminal, and a line counts the others."""

    def stop(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("trimaran.cli.top._sleep", stop)
    monkeypatch.setattr("trimaran.cli.top._visible_rows", lambda: 2)
    lines = run("top", "--watcher", address, "--watch").output.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["node-1", "node-2", "..."]
    assert lines[3] == "... and 1 more"
    assert lines[5].startswith("3 nodes")


def test_top_writes_json(address):
    """--output json is an array of the watcher's snapshots."""
    document = json.loads(run("top", "--watcher", address, "--output", "json", "--windows", "5m").output)
    assert [metrics["window"]["duration"] for metrics in document] == ["5m"]
    assert document[0]["data"]["node-2"]["metrics"][0]["value"] == 20.0


def test_top_refuses_unknown_windows(address):
    """Windows that the watcher does not have are a usage error."""
    check_refusal(run("top", "--watcher", address, "--windows", "7m"), "not kept")


@pytest.mark.parametrize("arguments", [(), ("node-1",)])
def test_top_shows_the_windows_of_the_watcher(arguments):
    """Without --windows the columns are the windows that the watcher is configured with."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        window = handler.path.partition("window=")[2]
        if handler.path == "/watcher/health":
            reply(handler, b'{"status": "ok", "reasons": [], "age_seconds": {"30m": 1.0, "1h": 1.0}}')
        elif window in {"30m", "1h"}:
            load = NodeMetrics((Metric("cpu", "CPU", "AVG", window, 20.0),))
            covered = Window(window, 1_700_000_000, 1_700_001_800)
            reply(handler, wire.encode(WatcherMetrics(covered.end, covered, "Prometheus", {"node-1": load})))
        else:
            reply(handler, encode_error("unknown_window", "not kept"), 404)

    with serving(answer) as fake:
        result = run("top", *arguments, "--watcher", fake.url, "--sort", "cpu")
    assert result.exit_code == 0, result.output
    header = next(line for line in result.output.splitlines() if "30m" in line)
    assert re.findall(r"\b\d+[mh]\b", header) == ["30m", "1h"]


def test_top_shows_windows_with_metrics():
    """A window without metrics does not hide the others; if none has metrics, the status is 1."""
    window = Window("5m", 1_700_000_000, 1_700_000_300)
    load = NodeMetrics((Metric("cpu", "CPU", "AVG", "5m", 20.0),))
    body = wire.encode(WatcherMetrics(window.end, window, "Prometheus", {"node-1": load}))
    nothing = encode_error("no_metrics", "no metrics yet")

    def answer(handler: BaseHTTPRequestHandler) -> None:
        there = handler.path.endswith("window=5m")
        reply(handler, body if there else nothing, 200 if there else 404)

    with serving(answer) as fake:
        shown = run("top", "--watcher", fake.url, "--windows", "15m,10m,5m")
        empty = run("top", "--watcher", fake.url, "--windows", "15m")
    assert shown.exit_code == 0
    assert shown.output.splitlines()[0].split()[:4] == ["NODE", "CPU", "5m", "AGE"]
    check_refusal(empty, "no metrics yet", status=1)


def test_top_with_an_embedded_watcher_reports_an_error_once():
    """The embedded watcher is announced; a provider that is down is one line, without the watcher's log."""
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


def test_the_watcher_address_may_come_from_the_environment(address, monkeypatch):
    """With an address in the environment no watcher is embedded or announced."""
    monkeypatch.setenv("TRIMARAN_WATCHER_ADDRESS", address)
    result = run("top")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("command", ["top", "score"])
def test_a_refusal_names_the_options(files, command, status):
    """A refusal is printed with the service's message and the options for credentials."""
    refusal = encode_error("unauthorized", "a bearer token is needed")
    arguments = ["--pod", files["pod"], "--nodes", files["nodes"]] if command == "score" else []
    with serving(lambda handler: reply(handler, refusal, status)) as fake:
        result = run(command, "--watcher", fake.url, *arguments)
    assert result.exit_code == 1
    assert result.stderr.endswith(": a bearer token is needed; see --token-file and --client-certificate\n")


def test_top_reads_the_past_of_a_provider(monkeypatch, tmp_path):
    """Without a watcher, --provider and --last say what is read; with one they are refused."""
    file = tmp_path / "loads.json"
    file.write_text(json.dumps({"node-9": {"cpu": {"average": 42}, "memory": {"average": 40}}}))
    monkeypatch.setenv("TRIMARAN_FAKE__FILE", str(file))
    done = CliRunner().invoke(main, ["top", "--provider", "Fake", "--last", "2h"])
    assert done.exit_code == 0, done.output
    assert re.search(r"CPU (2h|7200s)", done.stdout)
    assert re.search(r"node-9 .*42\.0%", done.stdout)
    check_refusal(CliRunner().invoke(main, ["top", "--watcher", "http://127.0.0.1:1", "--last", "2h"]), "--watcher")


def test_top_reports_an_unreachable_watcher():
    """An unreachable watcher is one line and status 1, without a traceback."""
    check_refusal(run("top", "--watcher", "http://127.0.0.1:1"), "http://127.0.0.1:1", status=1)


def test_score_ranks_with_reasons(address, files):
    """The least loaded node is first, a node without metrics last, each with a reason."""
    result = run("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"], *BY_LOAD)
    assert result.exit_code == 0
    rows = [line.split(maxsplit=5) for line in result.output.splitlines()[3:7]]
    assert [row[1] for row in rows] == ["node-3", "node-2", "node-1", "node-9"]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[3:5] for row in rows] == [["yes", "last_good"]] * 3 + [["yes", "avoided"]]
    assert "the minimum" in rows[-1][5]
    assert "LoadVariationRiskBalancing" in rows[0][5]
    counts, _, note = result.stdout.splitlines()[-3:]
    assert counts.startswith("1 avoided, 3 last_good ")
    assert note.startswith("Filtered by ")
    assert result.stderr == ""


def test_score_ranks_infeasible_nodes_last(address, files, tmp_path):
    """Cordoned, tainted and full nodes are last, without a score and with their obstacle."""
    out = [node("node-2"), node("node-3"), node("small")]
    out[0]["spec"] = {"unschedulable": True}
    out[1]["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    out[2]["status"] = {"capacity": {"cpu": "100m"}, "allocatable": {"cpu": "100m"}}
    (tmp_path / "some.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [*out, node("node-1")]}))
    some = str(tmp_path / "some.yaml")
    result = run("score", "--watcher", address, "--pod", files["pod"], "--nodes", some, *BY_LOAD)
    rows = [line.split()[1:5] for line in result.output.splitlines()[3:7]]
    assert (rows[0][0], rows[0][2]) == ("node-1", "yes")
    assert rows[0][1] != "-"
    assert sorted(rows[1:]) == [
        ["node-2", "-", "no:", "constraints"], ["node-3", "-", "no:", "constraints"], ["small", "-", "no:", "room"],
    ]  # fmt: skip
    document = json.loads(
        run("score", "--watcher", address, "--pod", files["pod"], "--nodes", some, "-o", "json").stdout
    )
    assert {each["name"]: each.get("obstacle") for each in document["nodes"]} == {
        "node-1": None, "node-2": "constraints", "node-3": "constraints", "small": "room",
    }  # fmt: skip


def test_score_warns_if_no_node_name_matches(address, files, tmp_path):
    """If the watcher has none of the nodes, a warning lists the names of the watcher's nodes."""
    (tmp_path / "others.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [node("10.0.0.1")]}))
    result = run("score", "--watcher", address, "--pod", files["pod"], "--nodes", str(tmp_path / "others.yaml"))
    assert result.exit_code == 0
    assert "node-1, node-2, node-3\n" in result.stderr


@pytest.mark.parametrize(
    ("options", "affected"),
    [
        (("--plugin", "LowRiskOverCommitment"), "LowRiskOverCommitment"),
        (("--plugin", "TargetLoadPacking"), "TargetLoadPacking"),
        (("--watcher", "http://127.0.0.1:1", "--plugin", "LoadVariationRiskBalancing"), "allocation"),
        (("--plugin", "LoadVariationRiskBalancing"), ""),
        ((), "CongestionCost"),
    ],
)
def test_score_warns_about_missing_pods(address, files, tmp_path, options, affected):
    """Without --pods all nodes count as empty; a warning names the scores that depend on pods."""
    arguments = ("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"], *options)
    words = f"without --pods all nodes count as empty, which affects {affected}\n"
    assert (words in run(*arguments).stderr) == bool(affected)
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [POD]}))
    assert "without --pods" not in run(*arguments, "--pods", str(tmp_path / "pods.yaml")).stderr


def test_score_without_fallback_is_that_of_the_go_plugins(address, files):
    """--fallback off has no grades, and a node without metrics scores 0."""
    arguments = ("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"], *BY_LOAD)
    result = run(*arguments, "--fallback", "off")
    lines = result.output.splitlines()
    assert lines[2].split() == ["RANK", "NODE", "SCORE", "FEASIBLE", "WHY"]
    assert lines[6].split(maxsplit=3)[1:3] == ["node-9", "0"]
    assert "no metrics, so the minimum" in lines[6]


@pytest.mark.parametrize("form", ["text", "json"])
def test_fallback_closed_ranks_nothing_without_metrics(files, form):
    """Without metrics no node may get a pod: --fallback closed prints no ranks, names the reason, and has status 1."""
    arguments = ("score", "--pod", files["pod"], "--nodes", files["nodes"], "--fallback", "closed", "--output", form)
    with serving(lambda handler: reply(handler, encode_error("no_metrics", "nothing was fetched"), 404)) as fake:
        result = run(*arguments, "--watcher", fake.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no metrics" in result.stderr
    assert "--fallback open" in result.stderr


def test_fallback_closed_excludes_nodes_without_metrics(address, files):
    """--fallback closed ranks nodes without metrics last, without a score."""
    arguments = ("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"], *BY_LOAD)
    result = run(*arguments, "--fallback", "closed")
    assert result.output.splitlines()[6].split()[1:6] == ["node-9", "-", "no:", "metrics", "avoided"]
    document = json.loads(run(*arguments, "--fallback", "closed", "--output", "json").output)
    assert document["nodes"][-1]["score"] is None
    assert document["grades"] == {"last_good": 3, "avoided": 1}


def test_score_without_a_watcher_goes_by_allocation(files):
    """Without a watcher nodes are scored by allocation, with a warning; with --fallback off the status is 1."""
    arguments = ("score", "--watcher", "http://127.0.0.1:1", "--pod", files["pod"], "--nodes", files["nodes"])
    result = run(*arguments)
    assert result.exit_code == 0
    assert "http://127.0.0.1:1" in result.stderr
    assert "shop/web, by allocation: " in result.stdout
    assert {line.split()[4] for line in result.stdout.splitlines()[3:7]} == {"allocation"}
    document = json.loads(run(*arguments, "--output", "json").stdout)
    assert (document["window"], document["grades"]) == (None, {"allocation": 4})
    assert run(*arguments, "--fallback", "off").exit_code == 1


def test_score_adds_the_scores_of_several_plugins(address, files):
    """Scores of several plugins are added, and each plugin has a reason."""
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
        ("kind: Node", "bad.yaml: expected a Pod or one of Deployment, "),
        ("kind: Pod\nspec: {containers: [{resources: {requests: {cpu: much}}}]}", "much"),
        ("kind: Pod\nmetadata: {name: a}\nspec: {overhead: much}", "spec.overhead: must be a mapping"),
        ("kind: Pod\nspec: {containers: web}", "spec.containers: must be a list"),
        ("kind: Pod\nmetadata: {creationTimestamp: 2024-13-45}", "bad.yaml is neither"),
        ("kind: Deployment\nspec: {template: 5}", "spec.template"),
    ],
)
def test_score_names_an_invalid_file(address, files, tmp_path: Path, content: str | None, message: str):
    """An invalid file is named with the problem, and status 2."""
    bad = tmp_path / "bad.yaml"
    if content is not None:
        bad.write_text(content)
    check_refusal(run("score", "--watcher", address, "--pod", str(bad), "--nodes", files["nodes"]), message)


# -- one node, and data quality ---------------------------------------------------------------------------------------


@pytest.fixture
def graded():
    """Serve a watcher with nodes of every grade, and a history of node-1."""
    now = int(time.time())
    window = Window("15m", now - 900, now)
    metadata = {
        "node-1": {"pool": "blue"},
        "node-2": {"coverage": 0.6},
        "node-3": {"grade": "last_good", "window_end": now - 240},
        "node-4": {"suspect": "frozen"},
        "node-5": {"grade": "unchecked"},
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
        elif "window=" not in query or "window=15m" in query:
            some = {name: node for name, node in data.items() if not host or name == host[1]}
            reply(handler, wire.encode(replace(snapshot, data=some)))
        else:
            reply(handler, encode_error("unknown_window", "not kept"), 404)

    with serving(answer) as fake:
        yield fake.url


def test_top_shows_age_coverage_and_grade(graded):
    """The table has age, coverage and grade of each node; -o wide adds suspect reasons, pools and percentiles."""
    lines = run("top", "--watcher", graded, "-o", "wide", "--sort", "name").output.splitlines()
    rows = [re.split(r"\s{2,}", line) for line in lines[1:6]]
    assert [row[3:] for row in rows] == [
        ["100%", "measured", "-", "blue"], ["60%", "measured", "-", "-"], ["100%", "last_good", "-", "-"],
        ["100%", "suspect", "frozen", "-"], ["?", "unchecked", "-", "-"],
    ]  # fmt: skip
    assert rows[0][1] == "10.0% p95 95.5"
    assert rows[2][2] == "4m"


@pytest.mark.parametrize(
    ("by", "first"),
    [("age", "node-3"), ("coverage", "node-2"), ("grade", "node-3"), ("cpu", "node-5"), ("cpu-std", "")],
)
def test_top_sorts_by_data_quality(graded, by, first):
    """The oldest, least covered and worst graded node is first."""
    result = run("top", "--watcher", graded, "--sort", by)
    assert result.exit_code == 0
    assert result.output.splitlines()[1].startswith(first)


def test_top_grades_a_node_that_lost_one_of_two_metrics():
    """A node without memory, which the others have, is incomplete and not measured, and the worst but for missing."""
    now = int(time.time())
    cpu, memory = Metric("c", "CPU", "AVG", "15m", 10.0), Metric("m", "Memory", "AVG", "15m", 20.0)
    data = {
        "node-1": NodeMetrics((cpu, memory)),
        "node-2": NodeMetrics((cpu,)),
        "node-3": NodeMetrics((cpu, memory), metadata={"grade": "last_good"}),
        "node-4": NodeMetrics((cpu, replace(memory, operator="STD"))),
    }
    snapshot = WatcherMetrics(now, Window("15m", now - 900, now), "Prometheus", data)
    with serving(lambda handler: reply(handler, wire.encode(snapshot))) as fake:
        lines = run("top", "--watcher", fake.url, "--windows", "15m", "--sort", "grade").output.splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines[1:5]] == [
        ("node-2", "incomplete"), ("node-4", "incomplete"), ("node-3", "last_good"), ("node-1", "measured"),
    ]  # fmt: skip
    assert lines[-1] == "4 nodes from Prometheus, grade: incomplete, last_good"


def test_top_of_one_node(graded):
    """One node is shown with all values, its metadata, and its last day if there is a history."""
    result = run("top", "node-1", "--watcher", graded)
    assert result.exit_code == 0
    assert "CPU AVG   10.00%" in result.output
    assert "CPU P95   95.50%" in result.output
    assert "pool: blue" in result.output
    line = result.output.splitlines()[-1].partition("|")[2].partition("|")[0]
    assert (len(line), line[4], line[-1]) == (48, " ", "█")
    without = run("top", "node-3", "--watcher", graded)
    assert (without.exit_code, "24 h" in without.output) == (0, False)
    check_refusal(run("top", "nobody", "--watcher", graded), "no such node", status=1)


def test_top_watch_repeats_until_ctrl_c(graded, monkeypatch):
    """--watch repeats the table after the interval, which is a duration, until Ctrl-C."""
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("trimaran.cli.top._sleep", sleep)
    result = run("top", "--watcher", graded, "--watch", "--interval", "2m")
    assert slept == [120, 120]
    assert result.output.count("NODE") == 2
    assert run("top", "--watcher", graded, "--interval", "soon").exit_code == 2


def test_json_and_yaml_are_equal(graded, address, files):
    """-o yaml and -o json have the same content."""
    score = ("score", "--watcher", address, "--pod", files["pod"], "--nodes", files["nodes"])
    for arguments in (("top", "--watcher", graded), ("top", "node-1", "--watcher", graded), score):
        as_json, as_yaml = (yaml.safe_load(run(*arguments, "-o", form).stdout) for form in ("json", "yaml"))
        for document in (as_json, as_yaml):  # the fake watcher uses the current time
            for part in document if isinstance(document, list) else [document]:
                part.pop("timestamp", None)
                part.pop("window")
        assert as_json == as_yaml


def test_color_is_for_terminals(monkeypatch):
    """Output has color on a terminal only, and never with NO_COLOR."""
    assert colorize("hot", "red") == "hot"
    monkeypatch.setattr("runtime.terminal._is_terminal", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colorize("hot", "red") == "\x1b[31mhot\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert colorize("hot", "red") == "hot"
    assert [load_color(percent) for percent in (10, 80, 95)] == [None, "yellow", "red"]


# -- whole configurations ---------------------------------------------------------------------------------------------

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: careful
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: TargetLoadPacking, weight: 3}, {name: NodeResourcesFit}, {name: VolumeBinding, weight: 2}]
  pluginConfig:
  - name: TargetLoadPacking
    args: {targetUtilization: 60}
- schedulerName: other
  plugins: {score: {disabled: [{name: "*"}]}}
"""


@pytest.fixture
def configured(files, tmp_path) -> tuple[str, ...]:
    """Return arguments to score by a configuration."""
    (tmp_path / "scheduler.yaml").write_text(CONFIGURATION)
    return ("--config", str(tmp_path / "scheduler.yaml"), "--pod", files["pod"], "--nodes", files["nodes"])


def test_score_by_a_whole_configuration(address, configured):
    """All plugins of the profile score with weights and arguments; a warning names unavailable plugins."""
    result = run("score", "--watcher", address, *configured, "--scheduler", "careful", "-o", "json")
    assert result.exit_code == 0
    assert "2 x VolumeBinding\n" in result.stderr
    document = json.loads(result.stdout)
    assert document["weights"] == {"TargetLoadPacking": 3, "NodeResourcesFit": 1}
    for each in document["nodes"]:
        packing, fit = each["plugins"]
        assert each["score"] == 3 * packing["score"] + fit["score"]
        assert each["feasible"] is True
    assert document["nodes"][0]["name"] == "node-3"
    wide = run("score", "--watcher", address, *configured, "--scheduler", "careful", "-o", "wide").stdout.splitlines()
    assert re.split(r"\s{2,}", wide[2])[5:] == ["3 x TargetLoadPacking", "1 x NodeResourcesFit"]


def test_score_refuses_unknown_keys(address, files, tmp_path):
    """As kube-scheduler does; the message has the file, the line and the key."""
    file = tmp_path / "wrong.yaml"
    file.write_text(CONFIGURATION.replace("targetUtilization", "targetUtilisation"))
    options = ("--config", str(file), "--pod", files["pod"], "--nodes", files["nodes"], "--scheduler", "careful")
    result = run("score", "--watcher", address, *options)
    check_refusal(result, f"{file}, line 12: TargetLoadPackingArgs.targetUtilisation")


def test_score_explains(address, configured):
    """--explain prints the terms of each score under each node."""
    result = run("score", "--watcher", address, *configured, "--scheduler", "careful", "--explain")
    block = result.stdout.partition("\nnode-3: ")[2].splitlines()
    assert block[1].startswith("  3 x ")
    assert "TargetLoadPacking" in block[1]
    assert block[2].startswith("      ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "several profiles (careful, other): select one with --scheduler"),
        (("--scheduler", "none"), "no profile for scheduler 'none'"),
        (("--scheduler", "other"), "has no known score plugin"),
        (("--scheduler", "careful", "--kubernetes-version", "1.2"), "Kubernetes version '1.2' is not known"),
        (
            ("--plugin", "TargetLoad"),
            "--plugin TargetLoad: unknown plugin; did you mean TargetLoadPacking? Plugins are: Co",
        ),
    ],
)
def test_score_reports_configuration_errors(address, configured, options, words):
    """Each configuration error is one message with status 2."""
    check_refusal(run("score", "--watcher", address, *configured, *options), words)
    check_refusal(run("score", "--watcher", address, *configured[2:], "--scheduler", "x"), "--config")


@pytest.mark.parametrize(
    ("plugin", "version", "is_reported"),
    [
        ("NodeResourcesBalancedAllocation", None, True),
        ("ImageLocality", None, True),
        ("ImageLocality", "v1.37.5", False),  # as API servers write it
        ("NodeResourcesFit", None, False),
    ],
)
def test_the_newest_rules_are_reported_where_they_matter(address, configured, plugin, version, is_reported):
    """Without --kubernetes-version the newest rules are used, which is reported if a plugin's rules changed."""
    Path(configured[1]).write_text(CONFIGURATION.replace("NodeResourcesFit", plugin))
    chosen = () if version is None else ("--kubernetes-version", version)
    result = run("score", "--watcher", address, *configured, "--scheduler", "careful", *chosen)
    assert result.exit_code == 0, result.output
    assert ("--kubernetes-version" in result.stderr) == is_reported


@pytest.mark.parametrize(
    ("kind", "path"), [("Deployment", ()), ("StatefulSet", ()), ("Job", ()), ("CronJob", ("jobTemplate", "spec"))]
)
def test_score_accepts_workloads(address, files, tmp_path, kind, path):
    """A workload is scored as a pod of its template."""
    spec = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}}
    for key in reversed(path):
        spec = {key: spec}
    workload = {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    (tmp_path / "workload.yaml").write_text(yaml.safe_dump(workload))
    arguments = ("score", "--watcher", address, "--nodes", files["nodes"], "-o", "json", "--pod")
    made, plain = (json.loads(run(*arguments, file).stdout) for file in (str(tmp_path / "workload.yaml"), files["pod"]))
    assert made["pod"] == "shop/web"
    assert made["nodes"] == plain["nodes"]


def test_age_and_grade_count_every_window() -> None:
    """AGE is that of the newest sample of any window, and a window with another grade is named."""
    older, newer = (WatcherMetrics(0, Window(name, 0, end), "", {}) for name, end in (("15m", 900), ("5m", 1000)))
    good, stale = (NodeMetrics((), metadata={"grade": grade} if grade else {}) for grade in ("", "last_good"))
    late = NodeMetrics((), metadata={"grade": "last_good", "window_end": 700})
    snapshots = {
        "15m": replace(older, data={"a": good, "b": good, "c": late, "d": stale}),
        "5m": replace(newer, data={"a": good, "b": stale, "c": late}),
    }
    assert top._grades(snapshots) == {
        "a": "measured",
        "b": "5m: last_good",
        "c": "last_good",
        "d": "15m: last_good, 5m: missing",
    }
    assert [top._age(snapshots, name, 1010.0) for name in "abcd"] == [10.0, 10.0, 310.0, 110.0]
    ranks = {name: top._grade_rank(grade) for name, grade in top._grades(snapshots).items()}
    assert ranks["a"] > ranks["b"] == ranks["c"] > ranks["d"] == 0
