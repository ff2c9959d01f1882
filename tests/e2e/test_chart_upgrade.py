"""Upgrades of the chart, and its policies for clusters that deny egress, with Helm itself."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import builds

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[2] / "deploy/helm/trimaran"
RELEASED = Path(__file__).parent / "values-0.1.0.yaml"
PARTS = ("scheduler", "extender", "nodes", "dashboard")
ALL = ",".join(f"{part}.enabled=true" for part in PARTS)
Objects = dict[tuple[str, str], dict[str, Any]]


def render(*arguments: str | Path) -> Objects:
    """Return the objects of the chart, by kind and name."""
    place = ("--kube-version", "1.37.0", "--namespace", "trimaran")
    command = [builds.binary("helm"), "template", "trimaran", CHART, *place, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout) if each}


def new_values(now: Mapping[str, Any], released: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the values that a release does not have, such as ``nodes.clearOnUninstall``."""
    for name, value in now.items():
        if name not in released:
            yield path + name
        elif isinstance(value, dict) and isinstance(released[name], dict):
            yield from new_values(value, released[name], f"{path}{name}.")


def test_an_upgrade_keeps_the_values_of_the_last_release() -> None:
    """The last release's values are accepted, and render the same with ``--reuse-values``, which adds no new ones."""
    now = yaml.safe_load((CHART / "values.yaml").read_text())
    added = sorted(new_values(now, yaml.safe_load(RELEASED.read_text())))
    assert added == [
        "dashboard.alerts", "dashboard.pods", "dashboard.rebalancer", "dashboard.scheduler", "guards",
        "networkPolicy.egress", "nodes.clearOnUninstall", "rebalancer", "standalone",
    ]  # fmt: skip
    renewed = render("--values", RELEASED, "--set", ALL)
    assert ("Job", "trimaran-nodes-clear") in renewed
    reused = render("--values", RELEASED, "--set", ALL, "--set", ",".join(f"{name}=null" for name in added))
    hooks = [name for name in renewed if "nodes-clear" in name[1]]
    assert reused == {name: each for name, each in renewed.items() if name not in hooks}


def egress(*values: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rules of the egress policies by component."""
    objects = render("--set", ",".join(["networkPolicy.egress.enabled=true", *values]))
    policies = [each for (kind, _), each in objects.items() if kind == "NetworkPolicy"]
    return {
        each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: each["spec"]["egress"]
        for each in policies
        if each["spec"]["policyTypes"] == ["Egress"]
    }


def ports(rules: list[dict[str, Any]]) -> set[int]:
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_each_part_may_connect_to_what_it_needs() -> None:
    """Every part has a policy with DNS, the API, and the watcher or the provider, and nothing else."""
    rules = egress(ALL, "provider.name=Prometheus", "provider.address=http://prometheus.monitoring:9091/path")
    kubernetes = {53, 443, 6443}
    assert {name: ports(each) for name, each in rules.items()} == {
        "watcher": {*kubernetes, 9091},
        **{part: {*kubernetes, 2020} for part in PARTS},
        "nodes-clear": kubernetes,
    }
    for part in PARTS:
        (peer,) = (each["to"] for each in rules[part] if ports([each]) == {2020})
        labels = peer[0]["podSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == "watcher"
    deployments = {name for kind, name in render("--set", ALL) if kind == "Deployment"}
    assert {f"trimaran-{name}" for name in rules} - {"trimaran-nodes-clear"} == deployments


@pytest.mark.parametrize(
    ("values", "component", "port"),
    [
        ("provider.name=Prometheus", "watcher", 9090),
        ("provider.name=InfluxDB", "watcher", 8086),
        ("provider.name=Prometheus,provider.address=http://prometheus", "watcher", 80),
        ("dashboard.extender.address=https://extender:2021", "watcher", 2021),
        ("dashboard.extender.address=https://extender:2021", "dashboard", 2021),
        ("dashboard.rebalancer.address=http://rebalancer:2024", "watcher", 2024),
        ("dashboard.alerts.address=http://prometheus:9090", "dashboard", 9090),
        ("networkPolicy.egress.watcher[0].ports[0].port=5000", "watcher", 5000),
        ("extender.settings.extender\\.trial_prometheus=http://p:9090", "extender", 9090),
        ("networkPolicy.egress.apiServerPorts={16443}", "watcher", 16443),
    ],
)
def test_egress_follows_the_values(values: str, component: str, port: int) -> None:
    """Addresses in the values open their port, and other values add or replace rules."""
    assert port in ports(egress(ALL, values)[component])
    assert port not in ports(egress(ALL)[component])


def test_the_api_servers_address_can_be_named() -> None:
    """With ``apiServer`` the API's ports are open for these addresses only; by default there is no egress policy."""
    rules = egress("networkPolicy.egress.apiServer[0].ipBlock.cidr=10.0.0.1/32")["watcher"]
    (peer,) = (each["to"] for each in rules if ports([each]) == {443, 6443})
    assert peer == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert [name for kind, name in render("--set", ALL) if kind == "NetworkPolicy"] == ["trimaran-extender"]
