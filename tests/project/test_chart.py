"""The Helm chart without Helm: its values, schema, version, and copies of shared files."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

import trimaran
from runtime.settings.loading import setting_names
from scoring.kubernetes_version import LATEST_VERSION, default_score_weights
from trimaran.extender.profiles import IN_TREE, Profiles, our_plugins
from trimaran.extender.settings import ExtenderSettings
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.scheduler.service.settings import SchedulerSettings
from trimaran.simulator.policies.catalogue import configuration_of
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import WatcherSettings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/trimaran"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
#: Values of the chart; it writes them to the settings file, which the extender reloads.
CHART_VALUES = ("mode", "canary", "filter")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_default_values_match_the_schema():
    """The default values are valid, and values and schema have the same keys."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)
    assert set(SCHEMA["properties"]) == {*VALUES, "global"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 2}, {"replicas": -1}, {"replicas": "2"}, {"size": "huge"}, {"settings": {"windows": "5m"}},
        {"provider": {"name": "", "address": ""}}, {"provider": {"name": "Prometheus", "address": "prometheus:9090"}},
        {"nodes": {"enabled": "yes"}}, {"rebalancer": {"mode": "on"}}, {"nodes": {"taints": False, "windows": []}},
        {"platform": "aws"}, {"standalone": {"mode": "on"}}, {"standalone": {"profiles": []}},
        {"scheduler": {"plugins": []}}, {"scheduler": {"plugins": [{"name": "Peaks: x", "weight": 1}]}},
        {"extender": {"mode": "on"}}, {"extender": {"canary": 101}}, {"extender": {"settings": {"extender.canary": 5}}},
        {"readersSecret": {"name": "x"}}, {"dashboard": {"extender": {"address": "extender:2021"}}},
        {"dashboard": {"extender": {"tokenSecret": {"name": "x"}}}}, {"dashboard": {"inWatcher": "yes"}},
        {"store": {"sizeLimit": "much"}}, {"serviceMonitor": {"interval": "often"}},
    ],
)  # fmt: skip
def test_wrong_values_are_refused(wrong):
    """The schema refuses unknown names and values of the wrong type."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate({**copy.deepcopy(VALUES), **wrong})


def test_values_accept_every_setting():
    """The values accept every setting by name, except the reloaded settings, which are values of the chart."""
    parts = {"scheduler": ExtenderSettings, "extender": ExtenderSettings, "nodes": NodesSettings,
             "rebalancer": RebalanceSettings, "standalone": SchedulerSettings}  # fmt: skip
    values = {**VALUES, "settings": dict.fromkeys(setting_names(WatcherSettings), "x")}
    for part, settings in parts.items():
        accepted = dict.fromkeys(set(setting_names(settings)) - {f"extender.{key}" for key in CHART_VALUES}, "x")
        values[part] = {**VALUES[part], "settings": accepted}
    jsonschema.Draft7Validator(SCHEMA).validate(values)


def values_with(plugin):
    """Return the default values with a plugin for the extender."""
    plugins = {"plugins": [{"name": plugin, "weight": 1}]}
    return {**VALUES, **{part: {**VALUES[part], **plugins} for part in ("scheduler", "extender")}}


@pytest.mark.parametrize("plugin", [*sorted(our_plugins()), "CoolMemory", "example.com_Mine-2"])
def test_the_schema_accepts_included_and_installed_plugins(plugin):
    """The values take every plugin of the extender, and names of plugins that only the image has."""
    jsonschema.Draft7Validator(SCHEMA).validate(values_with(plugin))


@pytest.mark.parametrize("plugin", sorted({*default_score_weights(LATEST_VERSION), *IN_TREE}))
def test_the_schema_refuses_kube_schedulers_own_plugins(plugin):
    """A plugin of kube-scheduler would have no effect there: it belongs in a complete configuration."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(values_with(plugin))


def test_the_extender_names_a_misspelled_plugin():
    """The schema cannot know the plugins of an image; at its start the extender suggests the right name."""
    jsonschema.Draft7Validator(SCHEMA).validate(values_with("PodStat"))
    with pytest.raises(ValueError, match=r"'PodStat' .* PodState"):
        Profiles.read(configuration_of("PodStat"))


def test_the_default_values_change_nothing():
    """By default only the watcher is enabled, and the other components would start in shadow mode."""
    assert [VALUES[part]["enabled"] for part in ("scheduler", "extender", "nodes", "dashboard")] == [False] * 4
    assert {VALUES[part]["mode"] for part in ("scheduler", "extender")} == {"shadow"}


def test_the_chart_has_our_version():
    """The versions of the chart and of its application equal the package's version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == trimaran.__version__


def test_the_charts_alerts_and_dashboard_equal_the_shared_files():
    """The chart's copies equal the files in deploy/, because Helm packs only the chart's folder."""
    for name, home in (("alerts.yml", "prometheus/alerts.yml"), ("grafana.json", "grafana/trimaran.json")):
        assert (CHART / "files" / name).read_bytes() == (ROOT / "deploy" / home).read_bytes()


def test_the_kustomize_component_of_the_scheduler_equals_its_manifest():
    """The component has a copy, because Kustomize reads no file outside the folder; the base must not have it."""
    copy = ROOT / "deploy/kustomize/components/standalone/standalone-scheduler.yaml"
    assert copy.read_bytes() == (ROOT / "deploy/kubernetes/standalone-scheduler.yaml").read_bytes()


def test_the_prometheus_rule_equals_the_alerts():
    """The PrometheusRule equals the alerts file, from which Kustomize cannot generate it."""
    rule = yaml.safe_load((ROOT / "deploy/prometheus/prometheus-rule.yaml").read_text())
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
