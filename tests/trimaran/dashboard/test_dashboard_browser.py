"""The page in a real browser, over a real watcher with 5,000 nodes and a day of history."""

import re
from datetime import UTC, datetime

import pytest
import requests
from support.deciding import cluster, decide, extender
from support.page import browser, dashboard, watched_day

pytest.importorskip("dash")
NODES = 5000
LABELLED = [f"node-{number}" for number in range(1, 151)]
SCREENS = {"": "Cluster", "nodes": "Nodes", "trust": "Trust", "pod": "Pod", "decisions": "Decisions"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A watcher and its page, over a cluster of some of the nodes and its extender; yields addresses and a browser."""
    folder = tmp_path_factory.mktemp("page")
    with (
        watched_day(folder, NODES) as (service, _),
        cluster(folder, LABELLED) as kubernetes,
        extender(folder, kubernetes, service.url) as decided,
        dashboard(
            folder, service.url, "--extender", decided, "--cluster", KUBECONFIG=str(kubernetes.kube_config())
        ) as url,
        browser() as chromium,
    ):
        decide(decided, kubernetes, LABELLED, 30)
        yield service.url, url, chromium, decided


@pytest.fixture
def page(served):
    """A tab that remembers what went wrong in it."""
    tab = served[2].new_page(viewport={"width": 1280, "height": 900})
    tab.set_default_timeout(120_000)
    wrong = []
    tab.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    outside = lambda request: not request.url.startswith((served[1], "data:", "blob:"))  # noqa: E731
    tab.on("request", lambda request: wrong.append(request.url) if outside(request) else None)
    yield tab
    tab.close()
    assert wrong == []  # no error, nothing that the policy forbids, no request to another host


@pytest.mark.parametrize("path", SCREENS)
def test_every_screen_is_drawn_and_accessible(served, page, path):
    """Its title is there, and axe finds nothing serious."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.goto(f"{served[1]}/{path}")
    page.wait_for_selector(f"h2:has-text('{SCREENS[path]}')")
    page.wait_for_load_state("networkidle")
    found = axe.Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []


@pytest.mark.parametrize("path", [*SCREENS, "decisions?pod=default/web-7", "pod?pod=default/web-7"])
def test_every_screen_fits_a_telephone_in_the_dark(served, page, path):
    """Nothing but tables is wider than the screen, and axe, which judges contrast too, finds nothing serious."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{served[1]}/{path}")
    page.wait_for_selector("h2")
    page.wait_for_load_state("networkidle")
    found = axe.Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_pod_is_picked(served, page):
    """From an explained decision by a link, then another one by its name; without reloading the page."""
    page.goto(f"{served[1]}/decisions?pod=default/web-7")
    page.click("text=Score it again")
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator("#pod-pod")).to_have_value(re.compile("name: web-7"), timeout=120_000)
    page.fill("#pod-pick", "default/web-9")
    expect(page.locator("#pod-pod")).to_have_value(re.compile("name: web-9"), timeout=120_000)
    assert page.inner_text("#pod-said").startswith("default/web-9")


def test_the_plane_shows_all_nodes_at_any_time(served, page):
    """What is drawn is as much as the watcher says, now and then; the search leaves others out."""
    page.goto(served[1])
    page.wait_for_selector(".plane .scatterlayer .point")
    assert page.inner_text("#plane-said").startswith(f"{NODES} of {NODES} nodes at ")
    now = page.inner_text("#plane-said")
    page.focus("#plane-time")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function("said => document.querySelector('#plane-said').innerText !== said", arg=now)
    page.wait_for_timeout(2000)
    said = page.inner_text("#plane-said")
    history = requests.get(f"{served[0]}/history", timeout=60).json()
    moment = datetime.strptime(said.split(" at ")[1][:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    step = int(moment.timestamp() - history["start"]) // 300
    assert history["steps"] - step in {3, 4}  # one more where five minutes are over since the page was loaded
    column = [row[step] for row in history["series"][0]["values"]]
    assert f"{moment:%H:%M:%S} UTC, {sum(column) / NODES:.1f}% on average" in said
    assert said.startswith(f"{NODES} of {NODES} nodes")
    risks = [f"risk 0.{number}" for number in range(1, 6)]
    assert page.locator(".plane .scatterlayer .textpoint").all_text_contents() == risks
    page.fill("#plane-search", "node-4999")
    page.wait_for_function("() => document.querySelector('#plane-said').innerText.startsWith('1 of 1')")


def test_the_plane_is_filtered_by_labels(served, page):
    """A selector leaves the nodes that the cluster labels so; one that is none is said, and the plane stays."""
    page.goto(served[1])
    page.wait_for_selector(".plane .scatterlayer .point")
    page.fill("#plane-label", "pool=batch")
    count = len(LABELLED) // 3
    page.wait_for_function(
        "said => document.querySelector('#plane-said').innerText.startsWith(said)", arg=f"{count} of {count} nodes at "
    )
    assert page.locator("#plane-label-there option[value='pool=batch']").count() == 1
    page.fill("#plane-label", "pool in (batch)")
    page.wait_for_function("() => document.querySelector('#plane-said').innerText.includes('write key=value')")
    assert page.locator(".plane .scatterlayer .trace").first.locator(".point").count() == count


def test_decisions_are_those_of_the_extender(served, page):
    """The table's rows are the API's decisions; a pod's name leads to the terms of its candidates."""
    page.goto(f"{served[1]}/decisions")
    page.fill("#decisions-search", "web-1")
    decided = requests.get(f"{served[3]}/decisions", timeout=10).json()["decisions"]
    wanted = {each["pod"]: each for each in decided if "web-1" in each["pod"]}
    page.wait_for_function(
        "said => document.querySelector('#decisions-said').innerText.startsWith(said)", arg=f"{len(wanted)} of the last"
    )
    rows = page.locator("#decisions-shown div[aria-label='The last decisions'] tbody tr")
    shown = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    assert {cells[0]: cells[6] for cells in shown} == {pod: str(each["chosen"]["rank"]) for pod, each in wanted.items()}
    page.click("a:text-is('default/web-17')")
    page.wait_for_selector("h2:has-text('Why default/web-17')")
    explained = requests.get(f"{served[3]}/explain?pod=default/web-17", timeout=10).json()
    names = page.locator("div[aria-label^='The best candidates'] tbody th").all_inner_texts()
    assert names == [node["name"] for node in explained["nodes"]]


def test_the_table_shows_what_the_watcher_says(served, page):
    """The first row by name, its loads, and the page's number."""
    page.goto(f"{served[1]}/nodes?sort=name")
    page.wait_for_selector("#nodes-table td")
    page.fill("#nodes-search", "node-123")
    page.wait_for_function("() => document.querySelector('#nodes-said').innerText.startsWith('11 nodes, page 1 of 1')")
    cells = page.locator("#nodes-table tbody tr").first.locator("th, td").all_inner_texts()
    node = requests.get(f"{served[0]}/watcher/node-123", timeout=10).json()["data"]["node-123"]["metrics"]
    values = {(metric["type"], metric["operator"]): metric["value"] for metric in node}
    assert cells[0] == "node-123"
    assert cells[1] == f"{values['CPU', 'AVG']:.1f}% ±{values['CPU', 'STD']:.1f}"
    assert cells[4] == f"{values['Memory', 'AVG']:.1f}% ±{values['Memory', 'STD']:.1f}"


def test_a_pod_is_ranked(served, page):
    """Pasted nodes are ranked; what cannot be used is said in words."""
    page.goto(f"{served[1]}/pod")
    page.click("#pod-score")
    page.wait_for_function("() => document.querySelector('#pod-said').innerText.includes('paste the nodes')")
    amounts = "{cpu: '8', memory: 32Gi}"
    page.fill(
        "#pod-nodes",
        "\n---\n".join(
            f"kind: Node\nmetadata: {{name: {name}}}\nstatus: {{capacity: {amounts}, allocatable: {amounts}}}"
            for name in ("node-1", "node-17")
        ),
    )
    page.click("#pod-score")
    page.wait_for_selector("#pod-ranking tbody tr")
    assert page.locator("#pod-ranking tbody th").all_inner_texts() == ["node-1", "node-17"]
    assert page.inner_text("#pod-said") == "default/web: 2 of 2 nodes are feasible"
