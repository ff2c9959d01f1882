"""Dashboard without a browser: its values are the watcher's, and access is limited to viewers with a token."""

import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import requests
import yaml
from click.testing import CliRunner
from support.page import callback_request, dashboard, watched_day
from support.ports import nowhere
from support.servers import wait_until

pytest.importorskip("dash")

from client.errors import AccessDenied, NoMetrics
from client.service import ServiceClient
from runtime.settings.loading import setting_names
from trimaran.cli.main import main
from trimaran.dashboard import data_quality, nodes, plane, pod
from trimaran.dashboard.app import create_app
from trimaran.dashboard.components import matching_nodes
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.loads import resource_loads
from trimaran.dashboard.page_context import PageContext, check_files
from trimaran.dashboard.remote import RemoteAccess
from trimaran.dashboard.sessions import Sessions
from trimaran.dashboard.ttl_cache import TTLCache
from watcher.findings import Kind
from watcher.settings import WatcherSettings

pytestmark = pytest.mark.usefixtures("closed_sessions")

NODES, MINUTES = 40, 130
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Run a real watcher of 40 nodes with two hours of history."""
    with watched_day(tmp_path_factory.mktemp("day"), NODES, minutes=MINUTES) as (service, loads):
        yield service, loads


@pytest.fixture
def data(watched):
    """Return the data of one viewer."""
    with ServiceClient(watched[0].url) as client:
        yield DashboardData(client)


def filtered(data, labels=None, search="", pool="", label=""):
    return matching_nodes(data.snapshot(), labels or {}, search, pool, label)


def test_the_plot_shows_current_values(watched, data):
    """Mean and deviation of each node are those that the watcher serves; a search filters nodes."""
    served = requests.get(f"{watched[0].url}/watcher", timeout=60).json()["data"]
    loads = resource_loads(data, "CPU")
    names = filtered(data)
    mean, deviation, _ = plane.node_points(loads, names, None)
    assert set(names) == set(served)
    for name, x, y in zip(names, mean.tolist(), deviation.tolist(), strict=True):
        values = {m["operator"]: m["value"] for m in served[name]["metrics"] if m["type"] == "CPU"}
        assert (x, y) == pytest.approx((values["AVG"], values["STD"]))
    some = filtered(data, search="node-1")
    assert some == tuple(name for name in names if "node-1" in name)
    rows = [names.index(name) for name in some]
    assert plane.node_points(loads, some, None)[0].tolist() == mean[rows].tolist()
    assert filtered(data, pool="no such pool") == ()


@pytest.mark.parametrize("type_", ["no such", "x" * 60_000, "\0"])
def test_an_unknown_resource_is_not_cached(watched, type_):
    """An unknown resource is an error message; no history is read for it, as it would stay in the cache for ever."""
    requested = []

    class Client(ServiceClient):
        def history(self, **arguments):
            requested.append(arguments["type"])
            return super().history(**arguments)

    with Client(watched[0].url) as client:
        data = DashboardData(client)
        access = SimpleNamespace(admit=lambda _token: data)
        texts = {f"plane-{name}": {"value": ""} for name in ("pool", "label", "search")}
        inputs = {"plane-type": {"data": type_}, **texts, "plane-time": {"value": 0}}
        body = callback_request("..plane.figure...plane-status.children..", **inputs)
        body["state"] = [{"id": "plane-time", "property": "max", "value": 1}]
        answer = create_app(access).test_client().post("/_dash-update-component", json=body)
    assert (answer.status_code, requested) == (200, [])
    assert "Unknown resource" in answer.json["response"]["plane-status"]["children"]


@pytest.mark.parametrize("type_", ["CPU", "Memory"])
def test_the_plot_shows_past_values(watched, data, type_):
    """At each step the plot has the values of /history for both metrics."""
    query = {"type": type_, "since": "24h"}
    summary = [
        requests.get(f"{watched[0].url}/history", params={**query, "operator": operator}, timeout=60).json()
        for operator in ("AVG", "STD")
    ]
    for step in (summary[0]["steps"] - 20, summary[0]["steps"] - 3):
        names = filtered(data)
        mean, deviation, when = plane.node_points(resource_loads(data, type_), names, step)
        assert when == summary[0]["start"] + 300 * step
        for document, shown in zip(summary, (mean, deviation), strict=True):
            rows = dict(zip(document["nodes"], document["series"][0]["values"], strict=True))
            assert shown.tolist() == pytest.approx([rows[name][step] for name in names], abs=0.02)


def test_overlapping_dots_are_merged():
    """Beyond 1,000 nodes, every node is counted in a dot at its cell's mean; nodes with unknown values have no dot."""
    random_ = np.random.default_rng(3)
    mean = random_.uniform(20, 80, 5000).astype(np.float32)
    mean[7] = np.nan
    deviation = random_.normal(5, 1, 5000).astype(np.float32).clip(0)
    names = tuple(f"node-{number}" for number in range(5000))
    drawn = plane.merge_dots(names, mean, deviation, 10.0)
    counts = [int(text.split()[2]) + 1 if " and " in text else 1 for text in drawn["text"]]
    assert sum(counts) == 4999
    assert len(counts) < 3500
    assert np.average(drawn["x"], weights=counts) == pytest.approx(float(np.nanmean(mean)), abs=0.01)
    few = plane.merge_dots(names[:10], mean[:10], deviation[:10], 10.0)
    assert few["text"] == [*names[:7], *names[8:10]]


def test_the_plot_has_a_text_summary():
    """The summary has the number of nodes, the time, the average, and the number of nodes at risk."""
    mean, deviation = np.array([90, 40, np.nan], np.float32), np.array([75, 0, 0], np.float32)
    summary = plane.summary(mean, deviation, 0)
    assert all(part in summary for part in ("2 of 3", "1970-01-01 00:00:00 UTC", "65.0%", "1 above risk 0.4"))


def test_nodes_are_sorted(data):
    """Nodes are sorted by name, or highest load first; every order has all nodes."""
    names = nodes.sorted_names(data, filtered(data), "CPU")
    averages = [data.snapshot()[name].cpu.avg for name in names]
    assert averages == sorted(averages, reverse=True)
    some = filtered(data, search="node-3")
    assert nodes.sorted_names(data, some, "name") == sorted(name for name in names if "node-3" in name)
    for sort in ("age", "coverage", "grade", "findings"):
        assert set(nodes.sorted_names(data, names, sort)) == set(names)


def test_every_node_is_counted_once(data):
    """Each node is counted in one cell of freshness and grade."""
    assert sum(data_quality.freshness_counts(data.snapshot(), time.time()).values()) == NODES
    assert set(data_quality.freshness_counts(data.snapshot(), time.time() + 400)) == {("older", "measured")}
    snapshot = data.snapshot()
    name, node = next(iter(snapshot.data.items()))
    cpu_only = replace(node, metrics=tuple(metric for metric in node.metrics if metric.type == "CPU"))
    lost = replace(snapshot, data={**snapshot.data, name: cpu_only})
    assert data_quality.freshness_counts(lost, time.time() + 400) == {
        ("older", "measured"): NODES - 1,
        ("older", "incomplete"): 1,
    }


@pytest.mark.parametrize("prefix", ["", "/dashboard"])
def test_the_address_of_a_merged_page_leads_to_the_overview(prefix):
    """/trust, whose tables are on the Overview, redirects there, also below a prefix."""
    client = create_app(RemoteAccess("http://127.0.0.1:1"), prefix=prefix).test_client()
    answer = client.get("/trust")
    assert (answer.status_code, answer.headers["Location"]) == (308, f"{prefix}/")


def test_data_quality_lists_each_finding(data):
    """Findings of one kind stand singly, with their node and window, below the table by kind."""
    findings = [{"kind": "stale", "node": f"node-{number}", "window": "5m", "message": "old"} for number in (1, 2)]
    fake = SimpleNamespace(windows=data.windows, snapshot=data.snapshot, findings=lambda: findings)
    shown = str(data_quality.data_quality(fake, time.time()))
    assert all(text in shown for text in ("node-1", "node-2", "Providers", "Number of nodes by grade and age"))


def test_the_windows_are_those_of_the_watcher():
    """The loads are those of the watcher's windows that have metrics, in its order."""

    def metrics(window):
        if window == "5h":
            raise NoMetrics("no metrics yet")
        return window

    client = SimpleNamespace(windows=lambda: ("30m", "5h", "1h"), metrics=metrics)
    assert [*DashboardData(client).windows()] == ["30m", "1h"]


def test_providers_are_shown_by_window(data):
    """Each window has its provider, number of nodes, age and problems; findings about single nodes are left out."""
    findings = [
        {"kind": "fetch_failed", "node": "", "window": "10m", "message": "no answer"},
        {"kind": "fell_back", "node": "", "window": "", "message": "another one was asked"},
        {"kind": "stale", "node": "node-1", "window": "5m", "message": "old"},
    ]
    fake = SimpleNamespace(windows=data.windows, findings=lambda: findings)
    now = data.snapshot().window.end + 7
    rows = {window: rest for window, *rest in data_quality.provider_rows(fake, now)}
    assert rows.keys() == {"15m", "10m", "5m"}
    assert rows["15m"] == ["Fake", str(NODES), "7 s", "another one was asked"]
    assert (rows["10m"][3], rows["5m"][3]) == ("no answer; another one was asked", "another one was asked")


def test_health_and_findings_are_of_the_same_time():
    """An outage that begins between two pages does not show a healthy watcher with failed fetches."""
    now, down = [0.0], []
    client = SimpleNamespace(
        health=lambda: tuple(down), findings=lambda: [{"kind": "fetch_failed", "message": why} for why in down]
    )
    data = DashboardData(client, lambda: now[0])
    assert (data.health(), data.findings()) == ((), [])
    down.append("no route")
    for now[0] in (5.0, 9.0, 11.0, 12.0):
        assert bool(data.findings()) == bool(data.health()) == (now[0] > 10)
    data = DashboardData(client, lambda: now[0])
    assert data.findings() != []
    down.clear()
    assert data.health() == ("no route",)


def test_kinds_of_findings_name_settings():
    """The settings that kinds of findings name exist; a kind without any has a dash."""
    existing = set(setting_names(WatcherSettings))
    for settings in data_quality.RELATED_SETTINGS.values():
        assert set(settings.split(", ")) <= existing
    assert data_quality.related_settings("of a later version") == data_quality.related_settings(Kind.SPIKE) == "-"


def test_a_pod_is_scored_as_on_the_command_line(watched, data, tmp_path):
    """The Pod page ranks nodes as ``trimaran score`` does with the same files."""
    amounts = {"cpu": "8", "memory": "32Gi"}
    items = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}}
        for name in data.snapshot().data
    ]
    texts = {"nodes": json.dumps({"kind": "List", "items": items}), "pod": pod._POD, "config": pod._CONFIGURATION}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    scores, _ = pod.score_pod(data, texts["pod"], texts["config"], "", PageContext(nodes_file=tmp_path / "nodes"))
    pasted, _ = pod.score_pod(data, texts["pod"], texts["config"], texts["nodes"], PageContext())
    assert scores.ranking() == pasted.ranking()
    spread = texts["config"].replace("LoadVariationRiskBalancing, weight", "PodTopologySpread, weight")
    _, notes = pod.score_pod(data, texts["pod"], spread, texts["nodes"], PageContext())
    assert ["Services" in note for note in notes] == [True]
    files = [f"--{name}={tmp_path / name}" for name in texts]
    result = CliRunner().invoke(main, ["score", "--watcher", watched[0].url, *files, "-o", "json"])
    ranked = yaml.safe_load(result.stdout)["nodes"]
    assert [(each["name"], each["score"]) for each in ranked] == scores.ranking()
    for bad in (("", texts["config"], texts["nodes"]), (texts["pod"], "a: [", texts["nodes"]), (texts["pod"], "", "")):
        with pytest.raises(ValueError):  # noqa: PT011  the page shows it, whatever its text
            pod.score_pod(data, *bad, PageContext())


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("kind", ["aliases", "nested levels"])
def test_yaml_that_expands_or_is_deep_is_refused(data, place, kind):
    """Aliases that expand to gigabytes, and 63 KB of nested sequences, are refused in each of the three texts."""
    grows = "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmnop"))
    texts = [pod._POD, pod._CONFIGURATION, "kind: Node\nmetadata: {name: a}"]
    texts[place] = f"a: &a [x, x]\n{grows}" if kind == "aliases" else "- " * 32_000
    with pytest.raises(ValueError, match=kind):
        pod.score_pod(data, *texts, PageContext())


def test_the_content_security_policy_is_strict(watched):
    """Only own scripts may run, none of them from text, and nothing is loaded from other hosts."""
    client = create_app(RemoteAccess(watched[0].url)).test_client()
    answer = client.get("/")
    assert answer.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'self' 'sha256-")
    assert "unsafe" not in policy["script-src"]
    assert b"//cdn" not in answer.data


def test_probes_do_not_wait_for_the_watcher(tmp_path):
    """Probes are answered at once while all threads wait for a watcher that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(20) as pool:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with dashboard(tmp_path, address) as url:
            visits = [pool.submit(requests.get, url, timeout=60) for _ in range(20)]
            silent.settimeout(60)
            with silent.accept()[0]:  # a thread has sent its request
                for path in ("/livez", "/readyz", "/healthz"):
                    answer = requests.get(f"{url}{path}", timeout=60)
                    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
                assert not any(visit.done() for visit in visits)


def test_login_with_a_token_sets_a_session_cookie(tmp_path):
    """Without a token only the form is served; login sets a cookie that scripts and other sites cannot use."""
    with watched_day(tmp_path, 3, minutes=3, *("--set", f"server.token={TOKEN}")) as (service, _):  # noqa: B026
        client = create_app(RemoteAccess(service.url), secure=True).test_client()
        for path in ("/", "/nodes", "/loginx", "/_dash-layout", "/_dash-dependencies"):
            answer = client.get(path)
            assert answer.status_code == 401
            assert b"node-1" not in answer.data
        assert client.post("/_dash-update-component", json={}).status_code == 401
        assert b'type="password"' in client.get("/").data
        wrong = client.post("/login", data={"token": "not the right one"})
        assert (wrong.status_code, "Set-Cookie" in wrong.headers) == (401, False)
        right = client.post("/login", data={"token": TOKEN})
        assert (right.status_code, right.headers["Location"]) == (303, "/")
        cookie = right.headers["Set-Cookie"]
        assert {"HttpOnly", "Secure", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}
        assert TOKEN not in cookie
        answer = client.get("/", base_url="https://localhost")
        assert answer.status_code == 200
        assert TOKEN.encode() not in answer.data


def test_concurrent_callers_share_a_failed_load():
    """Callers that wait for a failing load get its error without a retry each; a later call loads again."""
    cache, entered, attempts = TTLCache(), [], []

    class Lock:
        def __init__(self, lock):
            self.lock = lock

        def __enter__(self):
            entered.append(self)
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    def fail():
        attempts.append(1)
        wait_until(lambda: len(entered) == 3, "the others wait")
        raise ValueError("down")

    cache._locks["key"] = Lock(cache._locks["key"])
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(cache.get, "key", 60, fail) for _ in range(3)]
    assert ([str(call.exception()) for call in calls], len(attempts)) == (["down"] * 3, 1)
    assert cache.get("key", 60, lambda: "up") == "up"


def test_an_old_value_is_returned_while_a_new_one_is_loaded():
    """In the stale time callers get the old value at once, and one thread loads; a failure there is raised later."""
    now, entered, go_on = [0.0], threading.Event(), threading.Event()
    cache = TTLCache(lambda: now[0])

    def slow():
        entered.set()
        assert go_on.wait(10)
        return "new"

    def fail():
        raise ValueError("down")

    assert cache.get("key", 60, lambda: "old", 120) == "old"
    now[0] = 61.0
    assert [cache.get("key", 60, slow, 120) for _ in range(3)] == ["old"] * 3
    assert entered.wait(10)
    assert cache.get("other", 60, lambda: "not delayed") == "not delayed"
    go_on.set()
    wait_until(lambda: cache.get("key", 60, slow, 120) == "new", "the new value is there")
    now[0] = 130.0
    assert cache.get("key", 60, fail, 120) == "new"
    now[0] = 300.0
    with pytest.raises(ValueError, match="down"):
        cache.get("key", 60, fail, 120)


def test_made_up_tokens_take_no_memory(watched):
    """A token is stored only if the watcher needs one and accepts it; overlong tokens are refused without a request."""
    for address in (watched[0].url, nowhere()):  # an open watcher, and none at all
        answer = create_app(RemoteAccess(address)).test_client().post("/login", data={"token": "made up"})
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (303, False)
    tried = []

    def admit(token):
        tried.append(token)
        raise AccessDenied("a token is needed")

    client = create_app(SimpleNamespace(admit=admit)).test_client()
    assert client.post("/login", data={"token": "x" * 8001}).status_code == 401
    assert tried == [None]


def test_sessions_expire():
    """A session ends after twelve hours; beyond a thousand sessions the oldest is dropped."""
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first = sessions.create("a")
    assert sessions.token(first) == "a"
    assert sessions.token("") is None
    now[0] = 12 * 3600
    assert sessions.token(first) is None
    names = [sessions.create(str(number)) for number in range(1001)]
    assert sessions.token(names[0]) is None
    assert sessions.token(names[1]) == "1"


def test_bad_options_are_one_line_and_status_2():
    """An invalid address and a missing extra are an error message and status 2."""
    result = CliRunner().invoke(main, ["dashboard", "--watcher", "nowhere"])
    assert (result.exit_code, "address" in result.output) == (2, True)
    command = ["dashboard", "--watcher", "http://127.0.0.1:1", "--extender", "nowhere"]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "--extender" in result.output) == (2, True)
    program = "import sys; sys.modules['dash'] = None; from trimaran.cli.main import main; main()"
    command = [sys.executable, "-c", program, "dashboard", "--watcher", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "pip install 'dash>=" in done.stderr) == (2, True)


@pytest.mark.parametrize("option", ["--nodes", "--pods"])
@pytest.mark.parametrize("content", [None, "a: [1\nb: }", "{kind: Service, metadata: {name: a}}"])
def test_a_wrong_file_is_one_line_and_status_2(tmp_path, option, content):
    """A file that is missing, is broken or holds other objects is an error at the start that names the file."""
    file = tmp_path / "objects.yaml"
    if content:
        file.write_text(content)
    result = CliRunner().invoke(main, ["dashboard", "--watcher", "http://127.0.0.1:1", option, str(file)])
    assert (result.exit_code, str(file) in result.output, result.output.count("\n")) == (2, True, 1)


def test_a_node_without_a_name_is_refused_at_the_start(tmp_path):
    """The error names the file and the field."""
    file = tmp_path / "nodes.yaml"
    file.write_text("{kind: Node, metadata: {}}")
    with pytest.raises(ValueError, match=r"nodes\.yaml: node: metadata\.name"):
        check_files(file, None)


def test_a_watcher_that_is_down_is_reported(tmp_path: Path):
    """The dashboard is served, and the watcher's health has a reason."""
    with ServiceClient("http://127.0.0.1:1", retries=0) as client:
        assert DashboardData(client).health() != ()
    app = create_app(RemoteAccess("http://127.0.0.1:1"))
    assert app.test_client().get("/").status_code == 200
