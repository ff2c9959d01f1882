"""The page at ``/`` of a watcher: for browsers alone, loaded at the first look, behind the watcher's own access."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import requests
from support.certificates import Authority
from support.page import SCREEN, browser, callback
from support.servers import Service, check_error, free_port

pytest.importorskip("dash")

TOKEN = "0123456789abcdef"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@contextmanager
def watching(folder, *settings, nodes=12, **environment):
    """Run a watcher of made-up nodes; yields its service."""
    arguments = [each for setting in (f"fake.nodes={nodes}", *settings) for each in ("--set", setting)]
    service = Service(
        folder / "watcher.sqlite", folder / "log", free_port(), "--provider", "Fake", *arguments, **environment
    )
    if any(setting.startswith("server.certificate") for setting in settings):
        service.url = service.url.replace("http:", "https:")
    try:
        yield service
    finally:
        service.terminate()


@pytest.fixture(scope="module")
def open_watcher(tmp_path_factory):
    """A watcher that asks nobody for anything."""
    with watching(tmp_path_factory.mktemp("open")) as service:
        service.wait_for("/readyz")
        yield service


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, text/html;q=0.9", "nonsense"])
def test_all_but_browsers_get_json(open_watcher, accept):
    """Who takes everything alike, as curl does, gets the index, and a cache knows what it depends on."""
    answer = open_watcher.get("/", headers={"Accept": accept})
    assert answer.json()["service"] == "trimaran watcher"
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", "/dashboard"])
def test_browsers_are_sent_to_the_page(open_watcher, path):
    """They get HTML with all of its parts below one path, and the policy of the page; the API is as it was."""
    sent = open_watcher.get(path, headers=BROWSER, allow_redirects=False)
    assert (sent.status_code, sent.headers["Location"], sent.headers["Vary"]) == (302, "/dashboard/", "Accept")
    page = open_watcher.get(path, headers=BROWSER)
    assert "<title>trimaran</title>" in page.text
    assert 'src="/' not in page.text.replace('src="/dashboard/', "")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert open_watcher.get("/watcher", headers=BROWSER).headers["Content-Type"] == "application/json"
    check_error(open_watcher.get("/dashboards", headers=BROWSER), 404, "not_found")
    check_error(requests.post(f"{open_watcher.url}/", headers=BROWSER, timeout=10), 405, "method_not_allowed")
    assert 'route="/dashboard",status="200"' in open_watcher.get("/metrics").text


def test_the_page_shows_what_is_served(open_watcher):
    """The table's first row has the loads of the API."""
    shown = callback(
        f"{open_watcher.url}/dashboard", "..nodes-table.children...nodes-status.children..",
        **{"nodes-search": {"value": ""}, "nodes-pool": {"value": ""}, "nodes-label": {"value": ""},
           "nodes-sort": {"data": "name"}, "nodes-page": {"value": 1}},
    )  # fmt: skip
    load = {
        (each["type"], each["operator"]): each["value"]
        for each in open_watcher.get("/watcher/node-1").json()["data"]["node-1"]["metrics"]
    }
    text = shown.content.decode()
    assert f"{load['CPU', 'AVG']:.1f}% ±{load['CPU', 'STD']:.1f}" in text
    assert "12 nodes, page 1 of 1" in text


def test_what_is_beside_the_watcher_is_told_by_settings(tmp_path, monkeypatch):
    """An extender that is named has its screen, also when it is down; no way to the cluster costs the labels alone."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    extender = f"http://127.0.0.1:{free_port()}"
    with watching(tmp_path, f"dashboard.extender={extender}", "dashboard.cluster=true") as service:
        service.wait_for("/readyz")
        place = {"pathname": "/dashboard/decisions", "search": ""}
        shown = callback(f"{service.url}/dashboard", SCREEN, location=place).text
        assert f"the extender at {extender}".replace("/", "\\u002f") in shown
        assert '"children":"Decisions","href"' in shown
    assert "dashboard.cluster" in (tmp_path / "log").read_text()


def test_what_the_page_waits_for_holds_up_nobody_else(tmp_path):
    """With all of its threads at an extender that never answers, probes and JSON are there all the same."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        extender = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with watching(tmp_path, "server.threads=1", f"dashboard.extender={extender}") as service:
            service.wait_for("/readyz")
            place = {"pathname": "/dashboard/decisions", "search": ""}
            looks = pool.submit(callback, f"{service.url}/dashboard", SCREEN, location=place)
            with silent.accept()[0]:
                assert service.get("/livez").json() == {"alive": True}
                assert service.get("/").json()["service"] == "trimaran watcher"
                assert not looks.done()
            assert f"the extender at {extender}".replace("/", "\\u002f") in looks.result().text


def test_without_it_browsers_get_json(tmp_path):
    """Where what the page needs is missing, or the setting says no, everything is as it was before there was one."""
    (tmp_path / "hidden" / "dash").mkdir(parents=True)
    (tmp_path / "hidden" / "dash" / "__init__.py").write_text("raise ModuleNotFoundError('no dash', name='dash')")
    for settings, environment in (((), {"PYTHONPATH": str(tmp_path / "hidden")}), (["dashboard.enabled=false"], {})):
        with watching(tmp_path, *settings, **environment) as service:
            service.wait_for("/readyz")
            assert service.get("/", headers=BROWSER).json()["service"] == "trimaran watcher"
            check_error(service.get("/dashboard/", headers=BROWSER), 404, "not_found")
    assert "trimaran[dashboard]" in (tmp_path / "log").read_text()


def test_where_it_is_broken_browsers_get_json(tmp_path):
    """What it needs may be there in a version that does not fit: the log says so once, and all else is answered."""
    (tmp_path / "hidden" / "dash").mkdir(parents=True)
    (tmp_path / "hidden" / "dash" / "__init__.py").write_text("raise AttributeError('dash is broken')")
    with watching(tmp_path, PYTHONPATH=str(tmp_path / "hidden")) as service:
        service.wait_for("/readyz")
        for _ in range(2):
            assert service.get("/", headers=BROWSER).json()["service"] == "trimaran watcher"
            check_error(service.get("/dashboard/", headers=BROWSER), 404, "not_found")
    assert (tmp_path / "log").read_text().count("AttributeError: dash is broken") == 1


def test_it_costs_nothing_before_the_first_look():
    """A service that answers, also at ``/``, has imported nothing of it; with a browser's first look it is there."""
    program = f"""
import sys, tempfile, pathlib
from runtime.server.access import AccessCheck
from watcher.api.service import WatcherService
from watcher.settings import FakeSettings, ProviderSettings, StoreSettings, WatcherSettings
from werkzeug.test import Client
store = StoreSettings(path=pathlib.Path(tempfile.mkdtemp()) / "store")
settings = WatcherSettings(provider=ProviderSettings(name="Fake"), fake=FakeSettings(nodes=3), store=store)
service = WatcherService(settings, AccessCheck())
client = Client(service.start())
client.get("/"), client.get("/livez"), client.get("/watcher")
before = [name for name in ("dash", "plotly", "trimaran.dashboard") if name in sys.modules]
client.get("/", headers={BROWSER!r})
after = [name for name in ("dash", "plotly", "trimaran.dashboard") if name in sys.modules]
service.stop()
print(before, after)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[] ['dash', 'plotly', 'trimaran.dashboard']"


def test_who_has_no_token_is_asked_for_it(tmp_path, monkeypatch):
    """The form is all there is before it; a cookie then opens the page alone, and a token in a header does too."""
    authority = Authority(tmp_path, "authority")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
    certificate = f"server.certificate={authority.issue('server')}"
    with watching(tmp_path, certificate, f"server.token={TOKEN}") as service:
        service.wait_for("/livez")
        with requests.Session() as session:
            check_error(service.get("/"), 401, "unauthorized")
            asked = session.get(f"{service.url}/", headers=BROWSER, timeout=30)
            assert (asked.status_code, 'type="password"' in asked.text) == (401, True)
            for path in ("nodes", "_dash-layout", "_dash-dependencies"):
                refused = session.get(f"{service.url}/dashboard/{path}", timeout=10)
                assert (refused.status_code, "node-1" in refused.text) == (401, False)
            login = f"{service.url}/dashboard/login"
            assert session.post(login, data={"token": "not the right one"}, timeout=10).status_code == 401
            right = session.post(login, data={"token": TOKEN}, timeout=10, allow_redirects=False)
            assert (right.status_code, right.headers["Location"]) == (303, "/dashboard/")
            parts = {part.strip() for part in right.headers["Set-Cookie"].split(";")}
            assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/dashboard/"} <= parts
            assert TOKEN not in right.headers["Set-Cookie"]
            assert session.get(f"{service.url}/dashboard/_dash-layout", timeout=10).status_code == 200
            check_error(session.get(f"{service.url}/watcher", timeout=10), 401, "unauthorized")
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert service.get("/dashboard/_dash-layout", headers=bearer).status_code == 200


def test_whom_the_watcher_refuses_the_page_does_not_admit(tmp_path, monkeypatch):
    """Where client certificates are asked for, there is no form; and the port for /compat answers nothing else."""
    authority = Authority(tmp_path, "authority")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
    certificates = [
        f"server.certificate={authority.issue('server')}", f"server.client_ca_file={authority.certificate}"
    ]  # fmt: skip
    port = free_port()
    with watching(tmp_path, *certificates, f"server.compat_port={port}") as service:
        service.wait_for("/livez")
        for path in ("/", "/dashboard/", "/dashboard/_dash-layout", "/dashboard/login"):
            check_error(service.get(path, headers=BROWSER), 403, "forbidden")
            other = requests.get(f"http://127.0.0.1:{port}{path}", headers=BROWSER, timeout=10)
            check_error(other, 404, "not_found")
        assert "<title>trimaran</title>" in service.get("/", headers=BROWSER, cert=str(authority.issue("reader"))).text


@pytest.mark.slow
def test_a_browser_looks_at_every_screen(tmp_path):
    """With the token, which is asked for once; nothing goes wrong in it, and nothing is asked of anybody else."""
    with watching(tmp_path, f"server.token={TOKEN}") as service, browser() as chromium:
        service.wait_for("/readyz")
        tab = chromium.new_page()
        wrong = []
        tab.on("console", lambda said: wrong.append(said.text) if said.type in {"error", "warning"} else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        outside = lambda asked: not asked.url.startswith((f"{service.url}/dashboard/", "data:", "blob:"))  # noqa: E731
        tab.on("request", lambda asked: wrong.append(asked.url) if outside(asked) else None)
        tab.goto(service.url)
        tab.fill("#token", TOKEN)
        assert [each.split("/")[-1] for each in wrong[:1]] == [""]  # where it began
        assert ["401" in each for each in wrong[1:]] == [True]  # the browser's own word of the form's status
        wrong.clear()
        tab.click("button")
        tab.wait_for_selector(".plane .scatterlayer .point")
        for title in ("Nodes", "Trust", "Pod", "Cluster"):
            tab.click(f"nav a:has-text('{title}')")
            tab.wait_for_selector(f"h2:text-is('{title}')")
            assert "/dashboard/" in tab.url
        tab.reload()
        tab.wait_for_selector(".plane .scatterlayer .point")
        assert wrong == []
