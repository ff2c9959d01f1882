"""The watcher's metrics, alert rules and dashboard, in a real Prometheus."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.servers import Service, free_port, need_server, start_prometheus, wait_until

ROOT = Path(__file__).parents[2]
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((ROOT / "deploy/grafana/trimaran.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
MANUAL = (ROOT / "docs/operations.md").read_text()
TOKEN = "right-token-right-token"  # bearer token of the scraped service


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A watcher with a token, and a Prometheus that scrapes it and has loaded the alert rules."""
    folder, port = tmp_path_factory.mktemp("operations"), free_port()
    (folder / "token").write_text(TOKEN)
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"},
        "rule_files": [str(ROOT / "deploy/prometheus/alerts.yml")],
        "scrape_configs": [
            {
                "job_name": "trimaran",
                "authorization": {"credentials_file": str(folder / "token")},
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            },
            {
                "job_name": "trimaran-nodes",
                "metrics_path": "/metrics/nodes",
                "honor_labels": True,
                "authorization": {"credentials_file": str(folder / "token")},
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            },
        ],
    }
    service = Service(
        folder / "watcher.sqlite", folder / "watch.log", port, "--provider", "Fake", "--interval", "0.3",
        TRIMARAN_SERVER__TOKEN=TOKEN,
    )  # fmt: skip
    try:
        service.wait_for("/readyz")
        service.get("/watcher")
        with start_prometheus(folder, yaml.safe_dump(config)) as url:
            # rate() needs two scrapes with different values, and an answered request before both.
            wait_until(lambda: query(url, "rate(trimaran_fetch_duration_seconds_count[5s]) > 0"), "it is scraped")
            wait_until(lambda: query(url, 'increase(trimaran_http_requests_total{route="/metrics"}[5s]) > 0'), "twice")
            yield service, url
    finally:
        service.close()


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the result of a PromQL expression."""
    answer = requests.get(f"{url}/api/v1/query", params={"query": expression}, timeout=10).json()
    assert answer["status"] == "success", (expression, answer)
    return list(answer["data"]["result"])


def families(service: Service) -> dict[str, Any]:
    """Return the metrics that the service exposes, by name."""
    text = service.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
    return {family.name: family for family in text_string_to_metric_families(text)}


def names(expression: str) -> set[str]:
    """Return the names of trimaran's metrics in an expression, without the suffixes of Prometheus' types."""
    matches = re.findall(r"\b(?:trimaran|process)_[a-z_]+", expression)
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in matches}


# -- metrics ------------------------------------------------------------------------------------------------------


def test_every_metric_is_documented(scraped: tuple[Service, str]) -> None:
    """docs/operations.md has a row for each metric, and no other rows."""
    exposed = {name for name in families(scraped[0]) if not name.endswith("_created")}
    rows = set(re.findall(r"^\| `((?:trimaran|process)_[a-z_]+)`", MANUAL, re.MULTILINE))
    assert {re.sub(r"_total$", "", name) for name in rows} == exposed


def test_number_of_series_does_not_grow_with_nodes(watch: Any, tmp_path: Path) -> None:
    """5,000 nodes have as many series as 3 nodes, and no metric contains a node's name."""
    counts = []
    for nodes in (3, 5000):
        service = watch("--provider", "Fake", "--set", f"fake.nodes={nodes}", store=tmp_path / f"{nodes}.sqlite")
        service.wait_for("/readyz", seconds=60)
        node = next(iter(service.get("/watcher").json()["data"]))
        for path in (f"/watcher/{node}", "/watcher/nobody", "/nowhere"):
            service.get(path)
        text = service.get("/metrics").text
        assert node not in text
        # Without the probe's series: its first answers may have been 503, which is another series.
        counts.append(sum(not line.startswith("#") and "/readyz" not in line for line in text.splitlines()))
    assert counts[0] == counts[1] < 500


def test_scrapes_authenticate_with_a_token(scraped: tuple[Service, str]) -> None:
    """Prometheus scrapes /metrics with a credentials file, and the target is up."""
    assert [result["value"][1] for result in query(scraped[1], 'up{job="trimaran"}')] == ["1"]


# -- alerts -------------------------------------------------------------------------------------------------------


def test_alert_rules_pass_their_unit_tests() -> None:
    """Promtool accepts the rules and their unit tests, and the tests name every alert."""
    promtool = need_server("promtool", "prometheus")
    rules = ROOT / "deploy/prometheus/alerts.yml"
    for command in (["check", "rules", str(rules)], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=ROOT / "tests/data", capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    tests = (ROOT / "tests/data/alerts_test.yml").read_text()
    assert [rule["alert"] for rule in ALERTS if f'"{rule["alert"]}"' not in tests] == ["TrimaranAbsent"]
    assert "alertname: TrimaranAbsent" in tests


def test_prometheus_loads_the_rules(scraped: tuple[Service, str]) -> None:
    """A running Prometheus reports each rule as healthy, and none fires for a healthy watcher."""
    (group,) = wait_until(
        lambda: [
            group
            for group in requests.get(f"{scraped[1]}/api/v1/rules", timeout=10).json()["data"]["groups"]
            if all(rule["health"] != "unknown" for rule in group["rules"])
        ],
        "the rules are evaluated",
    )
    assert {rule["name"]: rule["health"] for rule in group["rules"]} == {rule["alert"]: "ok" for rule in ALERTS}
    assert [rule["name"] for rule in group["rules"] if rule["state"] == "firing"] == []


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_every_alert_is_complete(scraped: tuple[Service, str], rule: dict[str, Any]) -> None:
    """An alert's metrics exist; it has a severity, a summary, a description, and a section in docs/operations.md."""
    assert names(rule["expr"]) <= families(scraped[0]).keys()
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


@pytest.mark.parametrize("target", TARGETS, ids=[target["expr"][:60] for target in TARGETS])
def test_every_panel_has_data(scraped: tuple[Service, str], target: dict[str, str]) -> None:
    """Each query of the dashboard returns numbers for a running watcher, with the labels of its legend."""
    expression = target["expr"]
    for name, value in {"$job": ".+", "$instance": ".+", "$node": "node-.+", "$__rate_interval": "5s"}.items():
        expression = expression.replace(name, value)
    result = wait_until(lambda: query(scraped[1], expression), expression)
    assert any(series["value"][1] != "NaN" for series in result), expression
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= result[0]["metric"].keys()


@pytest.mark.parametrize("name", ["job", "instance", "node"])
def test_every_variable_has_values(scraped: tuple[Service, str], name: str) -> None:
    """The values of a dashboard variable come from one of the watcher's metrics."""
    (variable,) = [candidate for candidate in DASHBOARD["templating"]["list"] if candidate["name"] == name]
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
    results = query(scraped[1], selector.replace("$job", ".+"))
    assert {result["metric"][label] for result in results} != set()


def test_node_exporter_scrape_config_is_valid(tmp_path: Path):
    """Promtool accepts the scrape configuration in docs/providers/prometheus.md.

    Debian builds Prometheus without Kubernetes service discovery, so static targets replace it here.
    """
    promtool = need_server("promtool", "prometheus")
    page = (ROOT / "docs/providers/prometheus.md").read_text()
    (recipe,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    discovery = "kubernetes_sd_configs: [{role: pod}]"
    assert discovery in recipe
    (tmp_path / "prometheus.yml").write_text(recipe.replace(discovery, "static_configs: [{targets: [node-1:9100]}]"))
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
