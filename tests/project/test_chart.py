"""The Helm chart without Helm: its values, its schema, its version, and that it ships what lies beside it."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

import trimaran
from runtime.settings.loading import setting_names
from trimaran.extender.profiles import OURS
from trimaran.extender.settings import ExtenderSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import WatcherSettings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/trimaran"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
OWN = ("mode", "canary", "filter")  # values of the chart, which it writes into the file that is read anew
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_usual_values_are_those_of_the_schema():
    """They are valid, and each value is in the schema and the other way round."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)
    assert set(SCHEMA["properties"]) == {*VALUES, "global"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 2}, {"replicas": -1}, {"replicas": "2"}, {"size": "huge"}, {"settings": {"windows": "5m"}},
        {"provider": {"name": "", "address": ""}}, {"provider": {"name": "Prometheus", "address": "prometheus:9090"}},
        {"nodes": {"enabled": "yes"}}, {"nodes": {"taints": False, "windows": []}}, {"platform": "aws"},
        {"scheduler": {"plugins": []}}, {"scheduler": {"plugins": [{"name": "Peeks", "weight": 1}]}},
        {"extender": {"mode": "on"}}, {"extender": {"canary": 101}}, {"extender": {"settings": {"extender.canary": 5}}},
        {"readersSecret": {"name": "x"}}, {"dashboard": {"extender": {"address": "extender:2021"}}},
        {"dashboard": {"extender": {"tokenSecret": {"name": "x"}}}}, {"dashboard": {"inWatcher": "yes"}},
        {"store": {"sizeLimit": "much"}}, {"serviceMonitor": {"interval": "often"}},
    ],
)  # fmt: skip
def test_wrong_values_are_refused(wrong):
    """A name that is not known, and a value of the wrong kind, do not pass."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate({**copy.deepcopy(VALUES), **wrong})


def test_any_setting_may_be_given():
    """Every setting's name is one that the values take; those that are read anew are values of their own."""
    parts = {"scheduler": ExtenderSettings, "extender": ExtenderSettings, "nodes": NodesSettings}
    values = {**VALUES, "settings": dict.fromkeys(setting_names(WatcherSettings), "x")}
    for part, settings in parts.items():
        given = dict.fromkeys(set(setting_names(settings)) - {f"extender.{key}" for key in OWN}, "x")
        values[part] = {**VALUES[part], "settings": given}
    jsonschema.Draft7Validator(SCHEMA).validate(values)


def test_the_plugins_are_ours():
    """The schema takes each plugin that the extender scores by, and no other."""
    named = SCHEMA["definitions"]["plugins"]["items"]["properties"]["name"]["enum"]
    assert named == sorted(OURS)


def test_the_usual_values_act_on_nothing():
    """Every part but the watcher is off, and would begin in shadow."""
    assert [VALUES[part]["enabled"] for part in ("scheduler", "extender", "nodes", "dashboard")] == [False] * 4
    assert {VALUES[part]["mode"] for part in ("scheduler", "extender")} == {"shadow"}


def test_the_chart_has_our_version():
    """Chart and application are those of the package."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == trimaran.__version__


def test_alerts_and_dashboard_are_the_ones_that_there_are():
    """Helm packs what is in the chart's folder alone: its copies are equal to what lies beside it."""
    for name, home in (("alerts.yml", "prometheus/alerts.yml"), ("grafana.json", "grafana/trimaran.json")):
        assert (CHART / "files" / name).read_bytes() == (ROOT / "deploy" / home).read_bytes()


def test_the_operators_rules_are_the_alerts():
    """Kustomize has no way to make a PrometheusRule of the file: its copy is equal."""
    rule = yaml.safe_load((ROOT / "deploy/prometheus/prometheus-rule.yaml").read_text())
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
