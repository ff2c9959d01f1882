"""Dashboard in a real browser, with a real watcher of 1,000 nodes and a day of history."""

import re
import time
from datetime import UTC, datetime

import pytest
import requests
from support.deciding import cluster, decide, extender
from support.page import browser, dashboard, watched_day
from support.workload_days import fill_workloads

from client.service import ServiceClient
from trimaran.workload_advice import cpu_quantity

pytest.importorskip("dash")
NODES, WORKLOADS = 1000, 300
ONE_WORKLOAD = "shop/Deployment/web-0"
LABELLED = [f"node-{number}" for number in range(1, 151)]
PAGES = {
    "": "Overview",
    "cluster": "Cluster",
    "nodes": "Nodes",
    "nodes?node=node-7": "node-7",
    "workloads": "Workloads",
    "moves": "Moves",
    "pod": "Pod",
    "decisions": "Decisions",
}
pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Run watcher, cluster, extender, dashboard and browser; yields the addresses and the browser."""
    folder = tmp_path_factory.mktemp("page")
    fill_workloads(folder / "watcher.sqlite", WORKLOADS, int(time.time()) // 300 * 300 - 300)
    with (
        watched_day(folder, NODES, "--set", "workloads.enabled=false") as (service, _),
        cluster(folder, LABELLED) as kubernetes,
        extender(folder, kubernetes, service.url) as extender_url,
        dashboard(
            folder, service.url, "--extender", extender_url, "--cluster", KUBECONFIG=str(kubernetes.kube_config())
        ) as url,
        browser() as chromium,
    ):
        decide(extender_url, kubernetes, LABELLED, 30)
        yield service.url, url, chromium, extender_url


@pytest.fixture
def page(served):
    """Open a browser tab, and fail on errors, warnings and requests to other hosts."""
    tab = served[2].new_page(viewport={"width": 1280, "height": 900})
    tab.set_default_timeout(120_000)
    problems = []
    tab.on("console", lambda message: problems.append(message.text) if message.type in {"error", "warning"} else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    is_foreign = lambda request: not request.url.startswith((served[1], "data:", "blob:"))  # noqa: E731
    tab.on("request", lambda request: problems.append(request.url) if is_foreign(request) else None)
    yield tab
    tab.close()
    assert problems == []  # no error, no policy violation, no request to another host


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_drawn_and_accessible(served, page, path):
    """Each page has its title, and axe finds no serious violation."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.goto(f"{served[1]}/{path}")
    page.wait_for_selector(f"h2:has-text('{PAGES[path]}')")
    page.wait_for_load_state("networkidle")
    violations = axe.Axe().run(page).response["violations"]
    assert [each["id"] for each in violations if each["impact"] in {"serious", "critical"}] == []


@pytest.mark.parametrize(
    "path", [*PAGES, "decisions?pod=default/web-7", "pod?pod=default/web-7", f"workloads?workload={ONE_WORKLOAD}"]
)
def test_every_page_fits_a_phone_in_dark_mode(served, page, path):
    """The page does not scroll sideways, and axe, which also checks contrast, finds no serious violation."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{served[1]}/{path}")
    page.wait_for_selector("h2")
    page.wait_for_load_state("networkidle")
    violations = axe.Axe().run(page).response["violations"]
    assert [each["id"] for each in violations if each["impact"] in {"serious", "critical"}] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_pod_of_a_decision_is_picked(served, page):
    """A pod is filled in by the link at a decision, and another one by its name, without reloading the page."""
    page.goto(f"{served[1]}/decisions?pod=default/web-7")
    page.click("text=Score this pod")
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(page.locator("#pod-pod")).to_have_value(re.compile("name: web-7"), timeout=120_000)
    page.fill("#pod-pick", "default/web-9")
    expect(page.locator("#pod-pod")).to_have_value(re.compile("name: web-9"), timeout=120_000)
    assert page.inner_text("#pod-status").startswith("default/web-9")


def test_the_plot_shows_all_nodes_at_any_time(served, page):
    """The plot has the watcher's present and past values of all nodes; a search filters nodes."""
    page.goto(f"{served[1]}/cluster")
    page.wait_for_selector(".plane .scatterlayer .point")
    assert page.inner_text("#plane-status").startswith(f"{NODES} of {NODES} nodes at ")
    now = page.inner_text("#plane-status")
    page.focus("#plane-time")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function("old => document.querySelector('#plane-status').innerText !== old", arg=now)
    page.wait_for_timeout(2000)
    status = page.inner_text("#plane-status")
    history = requests.get(f"{served[0]}/history", timeout=60).json()
    moment = datetime.strptime(status.split(" at ")[1][:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    step = int(moment.timestamp() - history["start"]) // 300
    assert history["steps"] - step in {3, 4}  # one more if a new step has begun since the page was loaded
    column = [row[step] for row in history["series"][0]["values"]]
    assert f"{moment:%H:%M:%S} UTC, {sum(column) / NODES:.1f}% on average" in status
    assert status.startswith(f"{NODES} of {NODES} nodes")
    risks = [f"risk 0.{number}" for number in range(1, 6)]
    assert page.locator(".plane .scatterlayer .textpoint").all_text_contents() == risks
    page.fill("#plane-search", "node-999")
    page.wait_for_function("() => document.querySelector('#plane-status').innerText.startsWith('1 of 1')")


def test_the_plot_is_filtered_by_labels(served, page):
    """A selector keeps the nodes with these labels; an invalid one is reported, and the plot does not change."""
    page.goto(f"{served[1]}/cluster")
    page.wait_for_selector(".plane .scatterlayer .point")
    page.fill("#plane-label", "pool=batch")
    count = len(LABELLED) // 3
    page.wait_for_function(
        "start => document.querySelector('#plane-status').innerText.startsWith(start)",
        arg=f"{count} of {count} nodes at ",
    )
    assert page.locator("#plane-label-suggestions option[value='pool=batch']").count() == 1
    page.fill("#plane-label", "pool in (batch)")
    page.wait_for_function("() => document.querySelector('#plane-status').innerText.includes('write key=value')")
    assert page.locator(".plane .scatterlayer .trace").first.locator(".point").count() == count


def test_decisions_are_those_of_the_extender(served, page):
    """The table's rows are the API's decisions; a pod's name links to the terms of its candidates."""
    page.goto(f"{served[1]}/decisions")
    page.fill("#decisions-search", "web-1")
    decided = requests.get(f"{served[3]}/decisions", timeout=60).json()["decisions"]
    wanted = {each["pod"]: each for each in decided if "web-1" in each["pod"]}
    page.wait_for_function(
        "start => document.querySelector('#decisions-status').innerText.startsWith(start)",
        arg=f"{len(wanted)} of the last",
    )
    rows = page.locator("#decisions-list div[aria-label='Last decisions'] tbody tr")
    shown = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    assert {cells[0]: cells[6] for cells in shown} == {pod: str(each["chosen"]["rank"]) for pod, each in wanted.items()}
    page.click("a:text-is('default/web-17')")
    page.wait_for_selector("h2:has-text('Placement of default/web-17')")
    explained = requests.get(f"{served[3]}/explain?pod=default/web-17", timeout=60).json()
    names = page.locator("div[aria-label^='Best candidates'] tbody th").all_inner_texts()
    assert names == [node["name"] for node in explained["nodes"]]


def test_the_table_shows_the_watchers_loads(served, page):
    """The table is filtered and sorted by name, and has the watcher's loads."""
    page.goto(f"{served[1]}/nodes?sort=name")
    page.wait_for_selector("#nodes-table td")
    page.fill("#nodes-search", "node-12")
    page.wait_for_function(
        "() => document.querySelector('#nodes-status').innerText.startsWith('11 nodes, page 1 of 1')"
    )
    cells = page.locator("#nodes-table tbody tr").first.locator("th, td").all_inner_texts()
    node = requests.get(f"{served[0]}/watcher/node-12", timeout=60).json()["data"]["node-12"]["metrics"]
    values = {(metric["type"], metric["operator"]): metric["value"] for metric in node}
    assert cells[0] == "node-12"
    assert cells[1] == f"{values['CPU', 'AVG']:.1f}% ±{values['CPU', 'STD']:.1f}"
    assert cells[4] == f"{values['Memory', 'AVG']:.1f}% ±{values['Memory', 'STD']:.1f}"


def test_workloads_are_sorted_filtered_and_paged(served, page):
    """Rows are the watcher's workloads, the largest waste first; filters, sorting and pages change them."""
    with ServiceClient(served[0]) as client:
        document = client.workload_document()
    waste = {
        f"{each['kind']}/{each['name']}": sum(one["wasted"]["cpu_cores"] for one in each["containers"])
        for each in document["workloads"]
    }
    first, *_ = sorted(waste, key=lambda name: -waste[name])
    page.goto(f"{served[1]}/workloads")
    page.wait_for_selector("#workloads-table td")
    assert page.inner_text("#workloads-status") == f"{WORKLOADS} workloads, page 1 of {-(-WORKLOADS // 50)}"
    assert page.locator("#workloads-table tbody th").first.inner_text() == first
    assert page.get_attribute("#totals-cpu", "src").count("polyline") == 3
    assert page.evaluate("document.querySelector('#totals-cpu').naturalWidth") > 0
    page.fill("#workloads-page", "2")
    page.wait_for_function("() => document.querySelector('#workloads-status').innerText.includes('page 2')")
    assert page.locator("#workloads-table tbody tr").count() == 50
    page.fill("#workloads-search", "CronJob/web")
    found = [name for name in waste if name.startswith("CronJob/web")]
    page.wait_for_function(
        "start => document.querySelector('#workloads-status').innerText.startsWith(start)",
        arg=f"{len(found)} workloads",
    )
    page.click("a:text-is('namespace')")
    page.wait_for_function("() => document.querySelector('#workloads-status').innerText.startsWith('10 namespaces')")
    page.click("#workloads-table a:text-is('shop')")
    page.wait_for_function("() => document.querySelector('#workloads-namespace').value === 'shop'")
    page.wait_for_function("() => document.querySelector('#workloads-status').innerText.startsWith('30 workloads')")


def test_a_workload_has_its_own_page(served, page):
    """A name links to the workload's requests, percentiles and hours, which are the watcher's; the link back works."""
    page.goto(f"{served[1]}/workloads?sort=name&namespace=shop")
    page.click("a:text-is('Deployment/web-0')")
    page.wait_for_selector("h2:has-text('Deployment/web-0 in shop')")
    served_item = requests.get(f"{served[0]}/workloads/{ONE_WORKLOAD}", timeout=60).json()
    rows = page.locator("div[aria-label='Use of one pod'] tbody tr")
    assert [row.locator("th").inner_text() for row in rows.all()] == [
        each["name"] for each in served_item["containers"]
    ]
    percentile = served_item["containers"][0]["cpu_cores_percentiles"]["99"]
    cells = rows.first.locator("th, td").all_inner_texts()
    assert cells[5] == cpu_quantity(percentile)
    page.click("summary")
    assert page.locator("div[aria-label^='Mean use'] tbody tr").count() == 24
    page.click("a:text-is('All workloads')")
    page.wait_for_selector("#workloads-table td")


def test_nodes_are_ranked_for_a_pod(served, page):
    """The nodes of the cluster are ranked by the extender's configuration, and so are pasted ones."""
    page.goto(f"{served[1]}/pod")
    page.click("#pod-score")
    count = len(LABELLED)
    page.wait_for_function(
        "start => document.querySelector('#pod-status').innerText.startsWith(start)",
        arg=f"default/web: {count} of {count} nodes are feasible; ",
    )
    amounts = "{cpu: '8', memory: 32Gi}"
    page.fill(
        "#pod-nodes",
        "\n---\n".join(
            f"kind: Node\nmetadata: {{name: {name}}}\nstatus: {{capacity: {amounts}, allocatable: {amounts}}}"
            for name in ("node-1", "node-17")
        ),
    )
    page.click("#pod-score")
    page.wait_for_function("() => document.querySelectorAll('#pod-ranking tbody tr').length === 2")
    assert set(page.locator("#pod-ranking tbody th").all_inner_texts()) == {"node-1", "node-17"}
    assert page.inner_text("#pod-status").startswith("default/web: 2 of 2 nodes are feasible; ")
