"""The watcher's page at ``/``: for browsers only, loaded at the first visit, with the watcher's access control."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import requests
from support.certificates import Authority
from support.page import SCREEN, browser, callback
from support.ports import nowhere
from support.servers import Service, check_error

pytest.importorskip("dash")

TOKEN = "0123456789abcdef"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@contextmanager
def watching(folder, *settings, nodes=12, **environment):
    """Run a watcher of fake nodes, and yield its service."""
    arguments = [argument for setting in (f"fake.nodes={nodes}", *settings) for argument in ("--set", setting)]
    service = Service(folder / "watcher.sqlite", folder / "log", "--provider", "Fake", *arguments, **environment)
    try:
        yield service
    finally:
        service.terminate()


@pytest.fixture(scope="module")
def open_watcher(tmp_path_factory):
    """A watcher without access control."""
    with watching(tmp_path_factory.mktemp("open")) as service:
        service.wait_for("/readyz")
        yield service


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, text/html;q=0.9", "nonsense"])
def test_other_clients_get_json(open_watcher, accept):
    """Clients that do not prefer HTML, such as curl, get the JSON index, with Vary: Accept."""
    answer = open_watcher.get("/", headers={"Accept": accept})
    assert answer.json()["service"] == "trimaran watcher"
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", "/dashboard"])
def test_browsers_are_sent_to_the_page(open_watcher, path):
    """Browsers get the page, with all of its parts below /dashboard/ and its own policy; the API is unchanged."""
    sent = open_watcher.get(path, headers=BROWSER, allow_redirects=False)
    assert (sent.status_code, sent.headers["Location"], sent.headers["Vary"]) == (302, "/dashboard/", "Accept")
    page = open_watcher.get(path, headers=BROWSER)
    assert "<title>trimaran</title>" in page.text
    assert 'src="/' not in page.text.replace('src="/dashboard/', "")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert open_watcher.get("/watcher", headers=BROWSER).headers["Content-Type"] == "application/json"
    check_error(open_watcher.get("/dashboards", headers=BROWSER), 404, "not_found")
    check_error(requests.post(f"{open_watcher.url}/", headers=BROWSER, timeout=60), 405, "method_not_allowed")
    assert 'route="/dashboard",status="200"' in open_watcher.get("/metrics").text


def test_the_page_shows_the_served_loads(open_watcher):
    """The first row of the page's table has the loads of the API."""
    shown = callback(
        f"{open_watcher.url}/dashboard", "..nodes-table.children...nodes-status.children..",
        **{"nodes-search": {"value": ""}, "nodes-pool": {"value": ""}, "nodes-label": {"value": ""},
           "nodes-sort": {"data": "name"}, "nodes-page": {"value": 1}},
    )  # fmt: skip
    load = {
        (metric["type"], metric["operator"]): metric["value"]
        for metric in open_watcher.get("/watcher/node-1").json()["data"]["node-1"]["metrics"]
    }
    text = shown.content.decode()
    assert f"{load['CPU', 'AVG']:.1f}% ±{load['CPU', 'STD']:.1f}" in text
    assert "12 nodes, page 1 of 1" in text


def test_settings_add_the_extender_and_the_cluster(tmp_path, monkeypatch):
    """A configured extender has a screen, even if it is down; an unreachable cluster removes only the labels."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    extender = nowhere()
    with watching(tmp_path, f"dashboard.extender={extender}", "dashboard.cluster=true") as service:
        service.wait_for("/readyz")
        place = {"pathname": "/dashboard/decisions", "search": ""}
        shown = callback(f"{service.url}/dashboard", SCREEN, location=place).text
        assert f"the extender at {extender}".replace("/", "\\u002f") in shown
        assert '"children":"Decisions","href"' in shown
    assert "dashboard.cluster" in (tmp_path / "log").read_text()


def test_a_slow_page_does_not_delay_the_api(tmp_path):
    """While a page waits for an extender that never answers, probes and JSON are still answered."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        extender = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with watching(tmp_path, "server.threads=1", f"dashboard.extender={extender}") as service:
            service.wait_for("/readyz")
            place = {"pathname": "/dashboard/decisions", "search": ""}
            page_request = pool.submit(callback, f"{service.url}/dashboard", SCREEN, location=place)
            with silent.accept()[0]:
                assert service.get("/livez").json() == {"alive": True}
                assert service.get("/").json()["service"] == "trimaran watcher"
                assert not page_request.done()
            assert f"the extender at {extender}".replace("/", "\\u002f") in page_request.result().text


def test_without_the_page_browsers_get_json(tmp_path):
    """Without the page's dependencies, or with dashboard.enabled=false, browsers get the JSON index."""
    (tmp_path / "hidden" / "dash").mkdir(parents=True)
    (tmp_path / "hidden" / "dash" / "__init__.py").write_text("raise ModuleNotFoundError('no dash', name='dash')")
    for settings, environment in (((), {"PYTHONPATH": str(tmp_path / "hidden")}), (["dashboard.enabled=false"], {})):
        with watching(tmp_path, *settings, **environment) as service:
            service.wait_for("/readyz")
            assert service.get("/", headers=BROWSER).json()["service"] == "trimaran watcher"
            check_error(service.get("/dashboard/", headers=BROWSER), 404, "not_found")
    assert "pip install" in (tmp_path / "log").read_text()


def test_with_a_broken_dependency_browsers_get_json(tmp_path):
    """An incompatible version of a dependency is logged once, and everything except the page works."""
    (tmp_path / "hidden" / "dash").mkdir(parents=True)
    (tmp_path / "hidden" / "dash" / "__init__.py").write_text("raise AttributeError('dash is broken')")
    with watching(tmp_path, PYTHONPATH=str(tmp_path / "hidden")) as service:
        service.wait_for("/readyz")
        for _ in range(2):
            assert service.get("/", headers=BROWSER).json()["service"] == "trimaran watcher"
            check_error(service.get("/dashboard/", headers=BROWSER), 404, "not_found")
    assert (tmp_path / "log").read_text().count("AttributeError: dash is broken") == 1


def test_the_page_is_imported_at_the_first_visit(tmp_path):
    """The service imports the page's modules at the first visit of a browser, and not for other requests."""
    program = f"""
import sys, pathlib
from runtime.server.access import AccessCheck
from watcher.api.service import WatcherService
from watcher.settings import FakeSettings, ProviderSettings, StoreSettings, WatcherSettings
from werkzeug.test import Client
store = StoreSettings(path=pathlib.Path("store"))
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
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[] ['dash', 'plotly', 'trimaran.dashboard']"


def test_login_with_a_token(tmp_path, monkeypatch):
    """Without a token there is only the login form; its cookie opens the page alone, as does a token in a header."""
    authority = Authority(tmp_path, "authority")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
    certificate = f"server.certificate={authority.issue('server')}"
    with watching(tmp_path, certificate, f"server.token={TOKEN}") as service:
        service.wait_for("/livez")
        with requests.Session() as session:
            check_error(service.get("/"), 401, "unauthorized")
            login_form = session.get(f"{service.url}/", headers=BROWSER, timeout=60)
            assert (login_form.status_code, 'type="password"' in login_form.text) == (401, True)
            for path in ("nodes", "_dash-layout", "_dash-dependencies"):
                refused = session.get(f"{service.url}/dashboard/{path}", timeout=60)
                assert (refused.status_code, "node-1" in refused.text) == (401, False)
            login = f"{service.url}/dashboard/login"
            assert session.post(login, data={"token": "not the right one"}, timeout=60).status_code == 401
            accepted = session.post(login, data={"token": TOKEN}, timeout=60, allow_redirects=False)
            assert (accepted.status_code, accepted.headers["Location"]) == (303, "/dashboard/")
            parts = {part.strip() for part in accepted.headers["Set-Cookie"].split(";")}
            assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/dashboard/"} <= parts
            assert TOKEN not in accepted.headers["Set-Cookie"]
            assert session.get(f"{service.url}/dashboard/_dash-layout", timeout=60).status_code == 200
            check_error(session.get(f"{service.url}/watcher", timeout=60), 401, "unauthorized")
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert service.get("/dashboard/_dash-layout", headers=bearer).status_code == 200


def test_client_certificates_protect_the_page(tmp_path, monkeypatch):
    """With required client certificates there is no login form, and the port for /compat does not serve the page."""
    authority = Authority(tmp_path, "authority")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
    certificates = [
        f"server.certificate={authority.issue('server')}", f"server.client_ca_file={authority.certificate}"
    ]  # fmt: skip
    with watching(tmp_path, *certificates, "server.compat_port=0") as service:
        service.wait_for("/livez")
        compat = service.logged_url("compat_url")
        for path in ("/", "/dashboard/", "/dashboard/_dash-layout", "/dashboard/login"):
            check_error(service.get(path, headers=BROWSER), 403, "forbidden")
            other = requests.get(f"{compat}{path}", headers=BROWSER, timeout=60)
            check_error(other, 404, "not_found")
        assert "<title>trimaran</title>" in service.get("/", headers=BROWSER, cert=str(authority.issue("reader"))).text


@pytest.mark.server
@pytest.mark.slow
def test_every_screen_in_a_browser(tmp_path):
    """A browser logs in once and shows every screen, without errors or requests to other hosts."""
    with watching(tmp_path, f"server.token={TOKEN}") as service, browser() as chromium:
        service.wait_for("/readyz")
        tab = chromium.new_page()
        wrong = []
        tab.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        outside = lambda request: not request.url.startswith((f"{service.url}/dashboard/", "data:", "blob:"))  # noqa: E731
        tab.on("request", lambda request: wrong.append(request.url) if outside(request) else None)
        tab.goto(service.url)
        tab.fill("#token", TOKEN)
        assert [url.split("/")[-1] for url in wrong[:1]] == [""]  # the first address, outside of /dashboard/
        assert ["401" in message for message in wrong[1:]] == [True]  # the browser logs the login form's status
        wrong.clear()
        tab.click("button")
        tab.wait_for_selector("#overview-watcher table")
        for title in ("Nodes", "Pod", "Cluster"):
            tab.click(f"nav a:has-text('{title}')")
            tab.wait_for_selector(f"h2:text-is('{title}')")
            assert "/dashboard/" in tab.url
        tab.reload()
        tab.wait_for_selector(".plane .scatterlayer .point")
        assert wrong == []
