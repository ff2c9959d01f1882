"""Metrics of watcher, extender and node writer, the alert rules and the dashboard, in a real Prometheus."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import orjson
import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.deciding import cluster, extender
from support.extending import extender_args
from support.fake_kubernetes import FakeKubernetes, pod, rfc3339
from support.nodes_api import NodesApi
from support.scripted_api import SILENCE, ScriptedApi
from support.servers import Service, need_server, served_app, start_prometheus, wait_until

from runtime.kubernetes.api import ListPage
from runtime.server.access import AccessCheck
from runtime.settings.loading import load
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.rebalancer.worker import RebalancerWorker
from trimaran.scheduler.service.app import create_app
from trimaran.scheduler.service.telemetry import SchedulerTelemetry
from trimaran.soft_taints.settings import NodesSection, NodesSettings
from trimaran.soft_taints.worker import SoftTaintsWorker

ROOT = Path(__file__).parents[2]
GROUPS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]
DASHBOARD = json.loads((ROOT / "deploy/grafana/trimaran.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
MANUAL = (ROOT / "docs/operations.md").read_text()
TOKEN = "right-token-right-token"  # bearer token of the watcher
NAMES = ("node-1", "node-2", "node-3")  # nodes of the provider Fake


class Scraped(NamedTuple):
    """Running services, and the Prometheus that scrapes them."""

    prometheus: str
    targets: dict[str, str]  # by job

    def families(self, job: str) -> dict[str, Any]:
        """Return the metrics that a service exposes, by name."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        response = requests.get(f"{self.targets[job]}/metrics", headers=headers, timeout=60)
        response.raise_for_status()
        return {family.name: family for family in text_string_to_metric_families(response.text)}


class Writable(ScriptedApi):
    """API server in memory, with nodes, patches of nodes and Leases."""

    def __init__(self) -> None:
        self.stored = NodesApi(*NAMES)
        super().__init__([[ListPage(list(self.stored.nodes.values()), "1")]], [[SILENCE]])

    def send(self, *arguments: Any) -> Any:
        return self.stored.send(*arguments)

    def close(self) -> None:
        self.abort()


@contextmanager
def node_writer(watcher: str, token_file: Path) -> Iterator[str]:
    """Serve the worker of ``trimaran nodes``; yield its address."""
    flags = {
        "nodes.taints": True, "cluster.watcher": watcher, "cluster.watcher_token_file": str(token_file),
    }  # fmt: skip
    worker = SoftTaintsWorker(load(NodesSettings, flags).settings, [Writable()], AccessCheck())
    with patch.object(NodesSection, "interval_seconds", 0.5), closing(worker), served_app(worker.start()) as url:
        yield url


@contextmanager
def rebalancer(watcher: str, token_file: Path) -> Iterator[str]:
    """Serve the worker of ``trimaran rebalance``, which observes; yield its address."""
    flags = {"cluster.watcher": watcher, "cluster.watcher_token_file": str(token_file)}
    settings = load(RebalanceSettings, flags).settings
    worker = RebalancerWorker(settings, [Writable() for _ in range(3)], AccessCheck(), cycle_seconds=0.5)
    with closing(worker), served_app(worker.start()) as url:
        yield url


@contextmanager
def standalone() -> Iterator[str]:
    """Serve the metrics of a ``trimaran scheduler`` that leads; yield its address."""
    telemetry = SchedulerTelemetry()
    telemetry.watch(lambda: {"leads": 1.0, "load_known": 1.0}, dict)
    with served_app(create_app(telemetry, lambda: True, str, dict, None, AccessCheck())) as url:
        yield url


def schedule(url: str, kubernetes: FakeKubernetes, stop: threading.Event) -> None:
    """Ask for scores as kube-scheduler does, and bind each pod to the best node, until the end."""
    number = 0
    while not stop.wait(0.2):
        name = f"web-{number}"
        number += 1
        body = orjson.dumps(extender_args(*NAMES, pod=name))
        requests.post(f"{url}/filter", body, timeout=60).raise_for_status()
        scores = requests.post(f"{url}/prioritize", body, timeout=60).json()
        bound = pod(name, max(scores, key=lambda each: each["Score"])["Host"])
        bound["metadata"]["uid"] = f"uid-of-{name}"
        bound["spec"]["schedulerName"] = "load-aware"
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(time.time())}
        bound["status"]["conditions"] = [scheduled]
        kubernetes.put("pods", bound)


@contextmanager
def services(folder: Path) -> Iterator[dict[str, str]]:
    """Run a watcher with a token, an extender that gets pods, and a node writer; yield their addresses by job."""
    token_file = folder / "token"
    token_file.write_text(TOKEN)
    service = Service(
        folder / "watcher.sqlite", folder / "watch.log", "--provider", "Fake", "--interval", "0.3",
        TRIMARAN_SERVER__TOKEN=TOKEN,
    )  # fmt: skip
    stop = threading.Event()
    try:
        service.wait_for("/readyz")
        settings = (
            f"cluster.watcher_token_file={token_file}", "extender.filter=open",
            "extender.learned_use=true",
        )  # fmt: skip
        with (
            cluster(folder, NAMES) as kubernetes,
            extender(folder, kubernetes, service.url, *settings) as url,
            node_writer(service.url, token_file) as writer,
            rebalancer(service.url, token_file) as mover,
            standalone() as placer,
        ):
            pods = threading.Thread(target=schedule, args=(url, kubernetes, stop))
            pods.start()
            try:
                yield {"trimaran": service.url, "trimaran-extender": url, "trimaran-writer": writer,
                       "trimaran-rebalancer": mover, "trimaran-standalone": placer}  # fmt: skip
            finally:
                stop.set()
                pods.join()
    finally:
        service.close()


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """The services, and a Prometheus that scrapes them and has loaded the alert rules."""
    need_server("prometheus")
    folder = tmp_path_factory.mktemp("operations")
    with services(folder) as targets:

        def job(name: str, address: str, **more: Any) -> dict[str, Any]:
            static = [{"targets": [address.removeprefix("http://")]}]
            token = {"credentials_file": str(folder / "token")}
            return {"job_name": name, "authorization": token, "static_configs": static, **more}

        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ROOT / "deploy/prometheus/alerts.yml")],
            "scrape_configs": [
                *(job(name, address) for name, address in targets.items()),
                job("trimaran-nodes", targets["trimaran"], metrics_path="/metrics/nodes", honor_labels=True),
            ],
        }
        headers = {"Authorization": f"Bearer {TOKEN}"}
        requests.get(f"{targets['trimaran']}/watcher", headers=headers, timeout=60).raise_for_status()
        with start_prometheus(folder, yaml.safe_dump(config)) as url:
            # rate() needs two scrapes with different values, and an answered request before both.
            wait_until(lambda: query(url, "rate(trimaran_fetch_duration_seconds_count[30s]) > 0"), "it is scraped")
            wait_until(lambda: query(url, 'increase(trimaran_http_requests_total{route="/metrics"}[30s]) > 0'), "twice")
            for wanted in ("rate(trimaran_extender_chosen_rank_count[30s]) > 0", "trimaran_nodes_known > 0"):
                wait_until(partial(query, url, wanted), wanted)
            yield Scraped(url, targets)


@pytest.fixture(scope="module")
def exposed(scraped: Scraped) -> set[str]:
    """Return the names of the metrics of all services, read once: fifty tests use them."""
    return {name for job in scraped.targets for name in scraped.families(job)}


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the result of a PromQL expression."""
    answer = requests.get(f"{url}/api/v1/query", params={"query": expression}, timeout=60).json()
    assert answer["status"] == "success", (expression, answer)
    return list(answer["data"]["result"])


def names(expression: str) -> set[str]:
    """Return the names of trimaran's metrics in an expression, without the suffixes of Prometheus' types."""
    matches = re.findall(r"\b(?:trimaran|process)_[a-z_]+", expression)
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in matches}


# -- metrics ------------------------------------------------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize(
    "job", ["trimaran", "trimaran-extender", "trimaran-writer", "trimaran-rebalancer", "trimaran-standalone"]
)
def test_every_metric_is_documented(scraped: Scraped, job: str) -> None:
    """Each metric of each service has a row in the docs."""
    exposed = {name for name in scraped.families(job) if not name.endswith("_created")}
    pages = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    assert exposed - rows(pages) == set()


@pytest.mark.server
def test_documented_metrics_exist(exposed: set[str]) -> None:
    """Each row of docs/operations.md is a metric of a running service."""
    assert rows(MANUAL) - exposed == set()


def rows(text: str) -> set[str]:
    """Return the metrics in the first column of tables, without the suffix of counters."""
    cells = re.findall(r"^\| (`(?:trimaran|process|scheduler)_[^|]+) \|", text, re.MULTILINE)
    found = [name for cell in cells for name in re.findall(r"`((?:trimaran|process|scheduler)_[a-z_]+)", cell)]
    return {re.sub(r"_total$", "", name) for name in found}


def test_number_of_series_does_not_grow_with_nodes(watch: Any, tmp_path: Path) -> None:
    """5,000 nodes have as many series as 3 nodes, and no metric contains a node's name."""
    counts = []
    for nodes in (3, 5000):
        service = watch("--provider", "Fake", "--set", f"fake.nodes={nodes}", store=tmp_path / f"{nodes}.sqlite")
        service.wait_for("/readyz")
        node = next(iter(service.get("/watcher").json()["data"]))
        for path in (f"/watcher/{node}", "/watcher/nobody", "/nowhere"):
            service.get(path)
        text = service.get("/metrics").text
        assert node not in text
        # Without the probe's series: its first answers may have been 503, which is another series.
        counts.append(sum(not line.startswith("#") and "/readyz" not in line for line in text.splitlines()))
    assert counts[0] == counts[1] < 500


@pytest.mark.server
def test_scrapes_authenticate_with_a_token(scraped: Scraped) -> None:
    """Prometheus scrapes /metrics with a credentials file, and the target is up."""
    up = "count(max_over_time(up[30s]) == 1)"  # single scrapes of a quarter of a second may fail on a busy machine
    assert [result["value"][1] for result in query(scraped.prometheus, up)] == ["6"]


# -- alerts -------------------------------------------------------------------------------------------------------


@pytest.mark.server
def test_alert_rules_pass_their_unit_tests() -> None:
    """Promtool accepts the rules and their unit tests, and the tests name every alert."""
    promtool = need_server("promtool")
    rules = ROOT / "deploy/prometheus/alerts.yml"
    for command in (["check", "rules", str(rules)], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=ROOT / "tests/data", capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    tests = (ROOT / "tests/data/alerts_test.yml").read_text()
    assert [rule["alert"] for rule in ALERTS if f'"{rule["alert"]}"' not in tests] == ["TrimaranAbsent"]
    assert "alertname: TrimaranAbsent" in tests


@pytest.mark.server
def test_prometheus_loads_the_rules(scraped: Scraped) -> None:
    """A running Prometheus reports each rule as healthy, and none fires for healthy services."""

    def evaluated() -> list[dict[str, Any]]:
        groups = requests.get(f"{scraped.prometheus}/api/v1/rules", timeout=60).json()["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = wait_until(evaluated, "the rules are evaluated")
    assert {rule["name"]: rule["health"] for rule in rules} == {rule["alert"]: "ok" for rule in ALERTS}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


@pytest.mark.server
@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_every_alert_is_complete(exposed: set[str], rule: dict[str, Any]) -> None:
    """An alert's metrics exist; it has a severity, a summary, a description, and a section in docs/operations.md."""
    assert names(rule["expr"]) <= exposed
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description"}
    assert f"### {rule['alert']}\n" in MANUAL


def test_documented_alerts_exist() -> None:
    """The manual's sections about alerts match the rules."""
    assert re.findall(r"^### (Trimaran\w+)$", MANUAL, re.MULTILINE) == [rule["alert"] for rule in ALERTS]


# -- the dashboard ------------------------------------------------------------------------------------------------


def test_dashboard_can_be_provisioned() -> None:
    """The dashboard has a uid, a title and no id; its panels are unique, within the grid, and do not overlap."""
    assert DASHBOARD["uid"]
    assert DASHBOARD["title"]
    assert "id" not in DASHBOARD
    assert DASHBOARD["schemaVersion"] >= 36
    assert "__inputs" not in DASHBOARD  # Grafana fills them in at a manual import only
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    occupied: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        assert not cells & occupied, panel["title"]
        occupied |= cells
    for panel in PANELS:
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0


def test_the_dashboard_works_with_any_data_source() -> None:
    """Panels and variables use the selected data source, and queries filter by the selected instances."""
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["job"]["datasource"] == variables["instance"]["datasource"] == chosen
    for panel in PANELS:
        assert panel["datasource"] == chosen
        for target in panel["targets"]:
            assert target["datasource"] == chosen
            selectors = dict(re.findall(r"\b((?:trimaran|process)_[a-z_]+)(\{[^}]*\})?", target["expr"]))
            for name, selector in selectors.items():  # in a node's metrics, the label instance is the node's name
                of_node = name.startswith("trimaran_node_")
                assert selector.startswith('{instance=~"$node"' if of_node else '{job=~"$job", instance=~"$instance"}')
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            assert used <= {*variables, "__rate_interval"}


@pytest.mark.server
@pytest.mark.parametrize("target", TARGETS, ids=[target["expr"][:60] for target in TARGETS])
def test_every_panel_has_data(scraped: Scraped, target: dict[str, str]) -> None:
    """Each query of the dashboard returns numbers for running services, with the labels of its legend."""
    expression = target["expr"]
    for name, value in {"$job": ".+", "$instance": ".+", "$node": "node-.+", "$__rate_interval": "30s"}.items():
        expression = expression.replace(name, value)
    result = wait_until(lambda: query(scraped.prometheus, expression), expression)
    assert any(series["value"][1] != "NaN" for series in result), expression
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= result[0]["metric"].keys()


@pytest.mark.server
@pytest.mark.parametrize("name", ["job", "instance", "node"])
def test_every_variable_has_values(scraped: Scraped, name: str) -> None:
    """The values of a dashboard variable come from metrics of the services."""
    (variable,) = [candidate for candidate in DASHBOARD["templating"]["list"] if candidate["name"] == name]
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
    results = query(scraped.prometheus, selector.replace("$job", ".+"))
    assert {result["metric"][label] for result in results} != set()


@pytest.mark.server
def test_node_exporter_scrape_config_is_valid(tmp_path: Path):
    """Promtool accepts the scrape configuration in docs/providers/prometheus.md.

    Debian builds Prometheus without Kubernetes service discovery, so static targets replace it here.
    """
    promtool = need_server("promtool")
    page = (ROOT / "docs/providers/prometheus.md").read_text()
    (recipe,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    discovery = "kubernetes_sd_configs: [{role: pod}]"
    assert discovery in recipe
    (tmp_path / "prometheus.yml").write_text(recipe.replace(discovery, "static_configs: [{targets: [node-1:9100]}]"))
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
