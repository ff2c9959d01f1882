"""The page without a browser: what it shows is what the watcher says, and who may look."""

import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import requests
import yaml
from click.testing import CliRunner
from support.page import callback_request, dashboard, watched_day
from support.servers import free_port, wait_until

pytest.importorskip("dash")

from client.errors import AccessDenied
from client.service import ServiceClient
from runtime.settings.loading import every_setting
from trimaran.cli.main import main
from trimaran.dashboard import nodes, plane, pod, trust
from trimaran.dashboard.app import create_app
from trimaran.dashboard.components import matching
from trimaran.dashboard.data import Data
from trimaran.dashboard.loads import loads_of
from trimaran.dashboard.remote import OutsideReaders
from trimaran.dashboard.result_store import Kept
from trimaran.dashboard.sessions import Sessions
from watcher.findings import Kind

NODES, MINUTES = 40, 130
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A real watcher of 40 nodes that has seen two hours."""
    with watched_day(tmp_path_factory.mktemp("day"), NODES, minutes=MINUTES) as (service, loads):
        yield service, loads


@pytest.fixture
def data(watched):
    """What a reader sees."""
    with ServiceClient(watched[0].url) as client:
        yield Data(client)


def chosen(data, labels=None, search="", pool="", label=""):
    return matching(data.snapshot(), labels or {}, search, pool, label)


def test_the_plane_shows_the_present(watched, data):
    """Mean and deviation of each node are those that the watcher serves; a search leaves others out."""
    served = requests.get(f"{watched[0].url}/watcher", timeout=10).json()["data"]
    loads = loads_of(data, "CPU")
    names = chosen(data)
    mean, deviation, _ = plane.points(loads, names, None)
    assert set(names) == set(served)
    for name, x, y in zip(names, mean.tolist(), deviation.tolist(), strict=True):
        values = {m["operator"]: m["value"] for m in served[name]["metrics"] if m["type"] == "CPU"}
        assert (x, y) == pytest.approx((values["AVG"], values["STD"]))
    some = chosen(data, search="node-1")
    assert some == tuple(name for name in names if "node-1" in name)
    rows = [names.index(name) for name in some]
    assert plane.points(loads, some, None)[0].tolist() == mean[rows].tolist()
    assert chosen(data, pool="no such pool") == ()


@pytest.mark.parametrize("type_", ["no such", "x" * 60_000, {"a": 1}, None])
def test_a_resource_that_there_is_not_is_not_kept(watched, type_):
    """Whoever makes up resources is told so, and nothing is read or made for them, as it would never be forgotten."""
    asked = []

    class Client(ServiceClient):
        def history(self, **of):
            asked.append(of["type"])
            return super().history(**of)

    with Client(watched[0].url) as client:
        data = Data(client)
        readers = SimpleNamespace(admit=lambda _token: data)
        texts = {f"plane-{name}": {"value": ""} for name in ("pool", "label", "search")}
        inputs = {"plane-type": {"data": type_}, **texts, "plane-time": {"value": 0}}
        body = callback_request("..plane.figure...plane-said.children..", **inputs)
        body["state"] = [{"id": "plane-time", "property": "max", "value": 1}]
        answer = create_app(readers).test_client().post("/_dash-update-component", json=body)
    assert (answer.status_code, asked) == (200, [])
    assert "There is no resource" in answer.json["response"]["plane-said"]["children"]


@pytest.mark.parametrize("type_", ["CPU", "Memory"])
def test_the_plane_shows_the_past(watched, data, type_):
    """At each step it has what /history says of both metrics."""
    asked = {"type": type_, "since": "24h"}
    said = [
        requests.get(f"{watched[0].url}/history", params={**asked, "operator": operator}, timeout=10).json()
        for operator in ("AVG", "STD")
    ]
    for step in (said[0]["steps"] - 20, said[0]["steps"] - 3):
        names = chosen(data)
        mean, deviation, when = plane.points(loads_of(data, type_), names, step)
        assert when == said[0]["start"] + 300 * step
        for document, shown in zip(said, (mean, deviation), strict=True):
            rows = dict(zip(document["nodes"], document["series"][0]["values"], strict=True))
            assert shown.tolist() == pytest.approx([rows[name][step] for name in names], abs=0.02)


def test_dots_that_lie_on_each_other_are_one():
    """Beyond 1,000 nodes none is lost: larger dots have more of them, at their mean; unknown nodes have none."""
    random_ = np.random.default_rng(3)
    mean = random_.uniform(20, 80, 5000).astype(np.float32)
    mean[7] = np.nan
    deviation = random_.normal(5, 1, 5000).astype(np.float32).clip(0)
    names = tuple(f"node-{number}" for number in range(5000))
    drawn = plane.merged(names, mean, deviation, 10.0)
    counts = [int(text.split()[2]) + 1 if " and " in text else 1 for text in drawn["text"]]
    assert sum(counts) == 4999
    assert len(counts) < 3500
    assert np.average(drawn["x"], weights=counts) == pytest.approx(float(np.nanmean(mean)), abs=0.01)
    few = plane.merged(names[:10], mean[:10], deviation[:10], 10.0)
    assert few["text"] == [*names[:7], *names[8:10]]


def test_what_the_plane_shows_is_said_in_words():
    """For those who do not see it: how many nodes, when, the average, and how many are at risk."""
    mean, deviation = np.array([90, 40, np.nan], np.float32), np.array([75, 0, 0], np.float32)
    assert (
        plane.said(mean, deviation, 0) == "2 of 3 nodes at 1970-01-01 00:00:00 UTC, 65.0% on average; 1 above risk 0.4"
    )


def test_nodes_are_sorted(data):
    """By name, or the highest load first; a search and a page limit what is shown."""
    names = nodes.in_order(data, chosen(data), "CPU")
    averages = [data.snapshot()[name].cpu.avg for name in names]
    assert averages == sorted(averages, reverse=True)
    some = chosen(data, search="node-3")
    assert nodes.in_order(data, some, "name") == sorted(name for name in names if "node-3" in name)
    for sort in ("age", "coverage", "grade", "findings"):
        assert set(nodes.in_order(data, names, sort)) == set(names)


def test_trust_counts_every_node(data):
    """Each node is in one field of freshness and grade."""
    assert sum(trust.by_freshness(data.snapshot(), time.time()).values()) == NODES
    assert set(trust.by_freshness(data.snapshot(), time.time() + 400)) == {("older", "measured")}


def test_providers_are_shown_by_window(data):
    """Where each window came from, of how many nodes, how old; what is wrong with one node is not the provider's."""
    found = [
        {"kind": "fetch_failed", "node": "", "window": "10m", "message": "no answer"},
        {"kind": "fell_back", "node": "", "window": "", "message": "another one was asked"},
        {"kind": "stale", "node": "node-1", "window": "5m", "message": "old"},
    ]
    known = SimpleNamespace(windows=data.windows, findings=lambda: found)
    now = data.snapshot().window.end + 7
    rows = {window: rest for window, *rest in trust.providers(known, now)}
    assert rows.keys() == {"15m", "10m", "5m"}
    assert rows["15m"] == ["Fake", str(NODES), "7 s", "another one was asked"]
    assert (rows["10m"][3], rows["5m"][3]) == ("no answer; another one was asked", "another one was asked")


def test_every_finding_has_what_mends_it():
    """Each kind has settings, all of which there are."""
    there = set(every_setting())
    assert set(trust.MENDING) == set(Kind)
    for settings in trust.MENDING.values():
        assert set(settings.split(", ")) <= there
    assert trust.mending("of a later version") == "-"


def test_a_pod_is_scored_as_on_the_command_line(watched, data, tmp_path):
    """The page's ranking is that of ``trimaran score`` with the same files."""
    amounts = {"cpu": "8", "memory": "32Gi"}
    items = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}}
        for name in data.snapshot().data
    ]
    texts = {"nodes": json.dumps({"kind": "List", "items": items}), "pod": pod._POD, "config": pod._CONFIGURATION}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    scores = pod.scored(data, texts["pod"], texts["config"], "", tmp_path / "nodes", None)
    pasted = pod.scored(data, texts["pod"], texts["config"], texts["nodes"], None, None)
    assert scores.ranking() == pasted.ranking()
    files = [f"--{name}={tmp_path / name}" for name in texts]
    result = CliRunner().invoke(main, ["score", "--watcher", watched[0].url, *files, "-o", "json"])
    ranked = yaml.safe_load(result.stdout)["nodes"]
    assert [(each["name"], each["score"]) for each in ranked] == scores.ranking()
    for bad in (("", texts["config"], texts["nodes"]), (texts["pod"], "a: [", texts["nodes"]), (texts["pod"], "", "")):
        with pytest.raises((ValueError, yaml.YAMLError)):
            pod.scored(data, *bad, None, None)


def test_pasted_text_cannot_grow(data):
    """A few lines with aliases that would become gigabytes are refused, in each of the three texts; a mere * is not."""
    grows = "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefgh"))
    bomb = f"a: &a [x, x]\n{grows}"
    for texts in ((bomb, pod._CONFIGURATION, "x"), (pod._POD, bomb, "x"), (pod._POD, pod._CONFIGURATION, bomb)):
        with pytest.raises(ValueError, match="aliases"):
            pod.scored(data, *texts, None, None)
    pod._refuse_aliases(pod._CONFIGURATION + "# a & b")


def test_browsers_are_told_what_to_load(watched):
    """Scripts are ours alone, none is made of text, and nobody frames the page."""
    client = create_app(OutsideReaders(watched[0].url)).test_client()
    answer = client.get("/")
    assert answer.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'self' 'sha256-")
    assert "unsafe" not in policy["script-src"]
    assert b"//cdn" not in answer.data


def test_probes_do_not_wait_for_the_watcher(tmp_path):
    """With all threads at a watcher that never answers, who asks whether the page lives is told at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(20) as pool:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with dashboard(tmp_path, address) as url:
            looks = [pool.submit(requests.get, url, timeout=60) for _ in range(20)]
            silent.settimeout(60)
            with silent.accept()[0]:  # the watcher is asked
                for path in ("/livez", "/readyz", "/healthz"):
                    answer = requests.get(f"{url}{path}", timeout=5)
                    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
                assert not any(look.done() for look in looks)


def test_a_token_is_asked_for_once_and_kept_here(tmp_path):
    """Without it there is nothing but the form; with it a cookie that no script and no other site can use."""
    with watched_day(tmp_path, 3, minutes=3, *("--set", f"server.token={TOKEN}")) as (service, _):  # noqa: B026
        client = create_app(OutsideReaders(service.url), secure=True).test_client()
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


def test_who_waited_for_what_fails_need_not_wait_again():
    """They get the same failure, not one after the other an attempt of their own; who comes later gets a new one."""
    kept, came, attempts = Kept(), [], []

    class Lock:
        def __init__(self, lock):
            self.lock = lock

        def __enter__(self):
            came.append(self)
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    def fail():
        attempts.append(1)
        wait_until(lambda: len(came) == 3, "the others wait")
        raise ValueError("down")

    kept._lock = Lock(kept._lock)
    with ThreadPoolExecutor(3) as pool:
        looks = [pool.submit(kept.read, "key", 60, fail) for _ in range(3)]
    assert ([str(each.exception()) for each in looks], len(attempts)) == (["down"] * 3, 1)
    assert kept.read("key", 60, lambda: "up") == "up"


def test_a_token_is_kept_only_where_it_is_asked_for(watched):
    """Whoever reaches the page can fill its memory with what he makes up neither where none is asked for, nor else."""
    for address in (watched[0].url, f"http://127.0.0.1:{free_port()}"):  # one that is open, and one that is down
        answer = create_app(OutsideReaders(address)).test_client().post("/login", data={"token": "made up"})
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (303, False)
    asked = []

    def admit(token):
        asked.append(token)
        raise AccessDenied("a token is needed")

    client = create_app(SimpleNamespace(admit=admit)).test_client()
    assert client.post("/login", data={"token": "x" * 8001}).status_code == 401
    assert asked == [None]


def test_sessions_end():
    """After twelve hours, and the oldest beyond a thousand."""
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first = sessions.begin("a")
    assert sessions.token(first) == "a"
    assert sessions.token("") is None
    now[0] = 12 * 3600
    assert sessions.token(first) is None
    names = [sessions.begin(str(number)) for number in range(1001)]
    assert sessions.token(names[0]) is None
    assert sessions.token(names[1]) == "1"


def test_the_command_serves_it(watched, tmp_path):
    """``trimaran dashboard`` answers, and ends with SIGTERM."""
    with dashboard(tmp_path, watched[0].url) as url:
        answer = requests.get(url, timeout=20)
        assert answer.status_code == 200
        assert "<title>trimaran</title>" in answer.text
    assert "Traceback" not in (tmp_path / "dashboard.log").read_text()


def test_what_is_missing_is_said():
    """Without the extra, and with an address that is none: one line and status 2."""
    result = CliRunner().invoke(main, ["dashboard", "--watcher", "nowhere"])
    assert (result.exit_code, "a watcher's address looks like" in result.output) == (2, True)
    command = ["dashboard", "--watcher", "http://127.0.0.1:1", "--extender", "nowhere"]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "--extender" in result.output, "must start with http://" in result.output) == (
        2,
        True,
        True,
    )
    program = "import sys; sys.modules['dash'] = None; from trimaran.cli.main import main; main()"
    command = [sys.executable, "-c", program, "dashboard", "--watcher", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "the page needs dash: pip install 'trimaran[dashboard]'" in done.stderr) == (2, True)


def test_a_watcher_that_is_down_is_said(tmp_path: Path):
    """The screens say why there is nothing to see."""
    with ServiceClient("http://127.0.0.1:1", retries=0) as client:
        assert Data(client).health() != ()
    app = create_app(OutsideReaders("http://127.0.0.1:1"))
    assert app.test_client().get("/").status_code == 200
