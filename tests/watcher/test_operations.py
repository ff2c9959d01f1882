"""What operators watch the watcher with: its metrics, the alert rules and the dashboard, in a real Prometheus."""

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
TOKEN = "right-token-right-token"  # of the service that is scraped


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
            # Rates need two scrapes that differ, and an answered request before both.
            wait_until(lambda: query(url, "rate(trimaran_fetch_duration_seconds_count[5s]) > 0"), "it is scraped")
            wait_until(lambda: query(url, 'increase(trimaran_http_requests_total{route="/metrics"}[5s]) > 0'), "twice")
            yield service, url
    finally:
        service.close()


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return what Prometheus answers to an expression."""
    answer = requests.get(f"{url}/api/v1/query", params={"query": expression}, timeout=10).json()
    assert answer["status"] == "success", (expression, answer)
    return list(answer["data"]["result"])


def families(service: Service) -> dict[str, Any]:
    """Return the metrics that the service exposes, by name."""
    text = service.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
    return {family.name: family for family in text_string_to_metric_families(text)}


def names(expression: str) -> set[str]:
    """Return the names of our metrics in an expression, without what Prometheus' types append."""
    found = re.findall(r"\b(?:trimaran|process)_[a-z_]+", expression)
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in found}


# -- metrics ------------------------------------------------------------------------------------------------------


def test_every_metric_is_explained(scraped: tuple[Service, str]) -> None:
    """docs/operations.md has a row for each metric, and for none that is not there."""
    exposed = {name for name in families(scraped[0]) if not name.endswith("_created")}
    rows = set(re.findall(r"^\| `((?:trimaran|process)_[a-z_]+)`", MANUAL, re.MULTILINE))
    assert {re.sub(r"_total$", "", name) for name in rows} == exposed


def test_the_series_stay_few(watch: Any, tmp_path: Path) -> None:
    """5,000 nodes have as many series as 3, and node names are nowhere."""
    counts = []
    for nodes in (3, 5000):
        service = watch("--provider", "Fake", "--set", f"fake.nodes={nodes}", store=tmp_path / f"{nodes}.sqlite")
        service.wait_for("/readyz", seconds=60)
        node = next(iter(service.get("/watcher").json()["data"]))
        for path in (f"/watcher/{node}", "/watcher/nobody", "/nowhere"):
            service.get(path)
        text = service.get("/metrics").text
        assert node not in text
        # Without those of the probe, which may have said "not yet" at first.
        counts.append(sum(not line.startswith("#") and "/readyz" not in line for line in text.splitlines()))
    assert counts[0] == counts[1] < 500


def test_scrapes_are_admitted_by_their_token(scraped: tuple[Service, str]) -> None:
    """Prometheus' own way to send a token opens /metrics, and the target is up."""
    assert [result["value"][1] for result in query(scraped[1], 'up{job="trimaran"}')] == ["1"]


# -- alerts -------------------------------------------------------------------------------------------------------


def test_the_rules_fire_when_they_should_and_only_then() -> None:
    """The rules and their unit tests, which name every alert, are accepted by promtool."""
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
    """In a running Prometheus each rule is healthy; over a watcher that is well none fires."""
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
def test_an_alert_can_be_acted_on(scraped: tuple[Service, str], rule: dict[str, Any]) -> None:
    """Its metrics exist, it has a severity and words, and docs/operations.md a section with its name."""
    assert names(rule["expr"]) <= families(scraped[0]).keys()
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description"}
    assert f"### {rule['alert']}\n" in MANUAL


def test_no_alert_is_explained_that_is_not_there() -> None:
    """The sections about alerts are those of the rules."""
    assert re.findall(r"^### (Trimaran\w+)$", MANUAL, re.MULTILINE) == [rule["alert"] for rule in ALERTS]


# -- the dashboard ------------------------------------------------------------------------------------------------


def test_the_dashboard_is_what_grafana_s_provisioning_reads() -> None:
    """A uid and a title, no id of another Grafana, unique panels within the grid that do not overlap."""
    assert DASHBOARD["uid"]
    assert DASHBOARD["title"]
    assert "id" not in DASHBOARD
    assert DASHBOARD["schemaVersion"] >= 36
    assert "__inputs" not in DASHBOARD  # only the import by hand fills them in
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0


def test_the_dashboard_works_with_any_data_source() -> None:
    """Every panel and variable asks the data source that is chosen, and every query only the chosen instances."""
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["job"]["datasource"] == variables["instance"]["datasource"] == chosen
    for panel in PANELS:
        assert panel["datasource"] == chosen
        for target in panel["targets"]:
            assert target["datasource"] == chosen
            selectors = dict(re.findall(r"\b((?:trimaran|process)_[a-z_]+)(\{[^}]*\})?", target["expr"]))
            for name, selector in selectors.items():  # of a node the label instance is the node's name
                of_node = name.startswith("trimaran_node_")
                assert selector.startswith('{instance=~"$node"' if of_node else '{job=~"$job", instance=~"$instance"}')
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            assert used <= {*variables, "__rate_interval"}


@pytest.mark.parametrize("target", TARGETS, ids=[target["expr"][:60] for target in TARGETS])
def test_every_panel_has_data(scraped: tuple[Service, str], target: dict[str, str]) -> None:
    """Each query returns numbers from a Prometheus that scrapes a running watcher, and the labels of its legend."""
    expression = target["expr"]
    for name, value in {"$job": ".+", "$instance": ".+", "$node": "node-.+", "$__rate_interval": "5s"}.items():
        expression = expression.replace(name, value)
    result = wait_until(lambda: query(scraped[1], expression), expression)
    assert any(each["value"][1] != "NaN" for each in result), expression
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= result[0]["metric"].keys()


@pytest.mark.parametrize("name", ["job", "instance", "node"])
def test_every_variable_has_values(scraped: tuple[Service, str], name: str) -> None:
    """The choices of a variable come from a metric that the watcher has."""
    (variable,) = [each for each in DASHBOARD["templating"]["list"] if each["name"] == name]
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
    results = query(scraped[1], selector.replace("$job", ".+"))
    assert {result["metric"][label] for result in results} != set()


def test_the_recipe_for_a_plain_node_exporter_is_a_configuration(tmp_path: Path):
    """The scrape configuration in docs/providers/prometheus.md is accepted by promtool.

    Debian's is built without Kubernetes' discovery: targets that are written down stand in for it.
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
