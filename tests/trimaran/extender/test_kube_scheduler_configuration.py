"""Rendering of a KubeSchedulerConfiguration for a stock kube-scheduler, and validation of an existing one."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trimaran.cli.main import main
from trimaran.extender.kube_scheduler import ExtenderEndpoint, render_config, validate_config
from trimaran.extender.profiles import Profiles

URL = "http://127.0.0.1:2021"
TRIMARAN = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: trimaran
  plugins:
    multiPoint:
      enabled: [{name: LowRiskOverCommitment}]
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}, {name: NodeResourcesFit}]
      enabled: [{name: LowRiskOverCommitment, weight: 2}, {name: LoadVariationRiskBalancing, weight: 1}]
  pluginConfig:
  - {name: LowRiskOverCommitment, args: {smoothingWindowSize: 5}}
  - {name: PodTopologySpread, args: {defaultingType: System}}
- schedulerName: packing
  plugins:
    score:
      enabled: [{name: TargetLoadPacking, weight: 2}, {name: NodeResourcesFit, weight: 3}]
- schedulerName: default-scheduler
"""


@pytest.fixture
def document() -> dict[str, Any]:
    return yaml.safe_load(TRIMARAN)


def weights(rendered: dict[str, Any], number: int) -> dict[str, int]:
    """Return the weights of the scoring plugins in a rendered profile."""
    score = rendered["profiles"][number]["plugins"]["score"]
    assert score["disabled"] == [{"name": "*"}]
    return {each["name"]: each["weight"] for each in score["enabled"]}


def test_plugins_keep_their_relative_weights(document) -> None:
    """In every profile the in-tree weights are scaled so that all plugins keep their relative weights."""
    rendered, profiles = render_config(document, ExtenderEndpoint(URL)), Profiles.read(document)
    weight = rendered["extenders"][0]["weight"]
    assert weight == 6  # the least common multiple of 3 and 2
    for number, name in enumerate(("trimaran", "packing")):
        by_plugin = weights(rendered, number)
        ours = profiles.by_scheduler[name]
        point = weight * 10 / ours.weight  # of a plugin with weight 1
        assert by_plugin["TaintToleration"] == 3 * point
        assert by_plugin["NodeAffinity"] == 2 * point
        assert by_plugin["ImageLocality"] == point
    assert weights(rendered, 1)["NodeResourcesFit"] == 3 * weight * 10 / 2  # in the file, so it is scaled too


def test_the_safety_net_scores_with_weight_1(document) -> None:
    """Plugins of the safety net score with weight 1 if the file does not name them, and always filter."""
    by_plugin = weights(render_config(document, ExtenderEndpoint(URL)), 0)
    assert (by_plugin["NodeResourcesFit"], by_plugin["NodeResourcesBalancedAllocation"]) == (1, 1)
    without = render_config(document, ExtenderEndpoint(URL), safety_net=False)
    assert weights(without, 0).keys().isdisjoint({"NodeResourcesFit", "NodeResourcesBalancedAllocation"})
    assert "NodeResourcesBalancedAllocation" not in weights(without, 1)
    assert "disabled" not in without["profiles"][0]["plugins"]["multiPoint"]


def test_our_plugins_are_removed_and_the_rest_is_kept(document) -> None:
    """Plugins that a stock kube-scheduler lacks are removed with their arguments, and everything else is kept."""
    rendered = render_config(document, ExtenderEndpoint(URL))
    text = yaml.safe_dump(rendered)
    assert "LowRiskOverCommitment" not in text
    assert "LoadVariationRiskBalancing" not in text
    assert rendered["leaderElection"] == {"leaderElect": False}
    assert [each["name"] for each in rendered["profiles"][0]["pluginConfig"]] == ["PodTopologySpread"]
    assert rendered["profiles"][2] == {"schedulerName": "default-scheduler"}
    assert document == yaml.safe_load(TRIMARAN)


def test_the_extender_entry_is_safe(document) -> None:
    """The entry has a timeout, is ignorable, sends names, and verifies the certificate."""
    endpoint = ExtenderEndpoint(
        "https://extender:2021/", ca_file="/etc/ca.crt", certificate="/etc/c.crt", key="/etc/c.key"
    )
    (entry,) = render_config(document, endpoint)["extenders"]
    assert entry == {
        "urlPrefix": "https://extender:2021", "prioritizeVerb": "prioritize", "weight": 6, "httpTimeout": "500ms",
        "nodeCacheCapable": True, "ignorable": True, "enableHTTPS": True,
        "tlsConfig": {"caFile": "/etc/ca.crt", "certFile": "/etc/c.crt", "keyFile": "/etc/c.key"},
    }  # fmt: skip


def test_other_extenders_are_kept_and_ours_is_replaced(document) -> None:
    """Rendering again replaces our extender, and keeps the others."""
    document["extenders"] = [{"urlPrefix": "http://other", "filterVerb": "filter"}, {"urlPrefix": URL, "weight": 99}]
    urls = [
        (each["urlPrefix"], each.get("weight")) for each in render_config(document, ExtenderEndpoint(URL))["extenders"]
    ]
    assert urls == [("http://other", None), (URL, 6)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "https://extender:2021"}, "--ca-file"),
        ({"url": URL, "ca_file": "/etc/ca.crt"}, "need an https URL"),
        ({"url": "extender:2021"}, "must look like"),
        ({"url": URL, "timeout_ms": 501}, "1 to 500 ms"),
        ({"url": URL, "timeout_ms": 0}, "1 to 500 ms"),
    ],
)
def test_an_unsafe_endpoint_is_refused(options, why: str) -> None:
    """An endpoint that would be insecure, or delay every pod, is an error."""
    with pytest.raises(ValueError, match=why):
        ExtenderEndpoint(**options)


def test_an_old_api_version_is_refused(document) -> None:
    """An API version with other plugins and defaults is an error."""
    with pytest.raises(ValueError, match="no longer supports"):
        render_config({**document, "apiVersion": "kubescheduler.config.k8s.io/v1beta2"}, ExtenderEndpoint(URL))


def test_a_rendered_file_is_valid(document) -> None:
    """A rendered file has no problems."""
    assert list(validate_config(render_config(document, ExtenderEndpoint(URL)))) == []
    secure = ExtenderEndpoint("https://extender:2021", ca_file="/etc/ca.crt")
    assert list(validate_config(render_config(document, secure), secure.url)) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"httpTimeout": "5s"}, "httpTimeout"),
        ({"httpTimeout": None}, "httpTimeout"),
        ({"httpTimeout": "0s"}, "httpTimeout"),
        ({"httpTimeout": "soon"}, "httpTimeout"),
        ({"ignorable": False}, "ignorable"),
        ({"nodeCacheCapable": None}, "nodeCacheCapable"),
        ({"managedResources": [{"name": "nvidia.com/gpu"}]}, "managedResources"),
        ({"enableHTTPS": True}, "enableHTTPS"),
        ({"urlPrefix": "https://extender", "enableHTTPS": True}, "tlsConfig"),
        ({"urlPrefix": "https://e", "enableHTTPS": True, "tlsConfig": {"caFile": "f", "insecure": True}}, "tlsConfig"),
        ({"prioritizeVerb": "score"}, "prioritizeVerb"),
        ({"weight": 0}, "weight"),
    ],
)
def test_each_unsafe_field_of_an_extender_is_reported(document, change, named: str) -> None:
    """A field that would delay pods, skip pods or trust any server is reported by name."""
    rendered = render_config(document, ExtenderEndpoint(URL))
    rendered["extenders"][0] |= change
    (problem,) = validate_config(rendered)
    assert problem.startswith(f"extenders[0].{named}")


def test_a_timeout_is_read_in_any_notation(document) -> None:
    """A timeout of 0.4 s is valid in each of Go's notations."""
    rendered = render_config(document, ExtenderEndpoint(URL))
    for text in ("400ms", "0.4s", ".4s", "399ms1000us"):
        rendered["extenders"][0]["httpTimeout"] = text
        assert list(validate_config(rendered)) == []


def test_an_unusable_file_has_problems(document) -> None:
    """Plugins of ours, a disabled NodeResourcesFit and a missing extender are reported."""
    document["profiles"][0]["plugins"]["multiPoint"]["disabled"] = [{"name": "NodeResourcesFit"}]
    problems = list(validate_config(document))
    assert any("profiles[0].plugins.score: a stock kube-scheduler has no plugin LowRisk" in each for each in problems)
    assert any("profiles[0].pluginConfig" in each for each in problems)
    assert any(
        "profiles[0].plugins.multiPoint: NodeResourcesFit is disabled at all extension points" in each
        for each in problems
    )
    assert "extenders: no extender has a prioritizeVerb" in problems


def test_the_command_renders_and_validates(tmp_path) -> None:
    """``trimaran extender config --check`` accepts a rendered file, and refuses its input."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(TRIMARAN)
    invoke = CliRunner().invoke
    rendered = invoke(main, ["extender", "config", str(file)])
    assert rendered.exit_code == 0
    target = tmp_path / "stock.yaml"
    target.write_text(rendered.output)
    assert invoke(main, ["extender", "config", "--check", str(target)]).exit_code == 0
    checked = invoke(main, ["extender", "config", "--check", str(file)])
    assert checked.exit_code == 1
    assert "extenders: no extender has a prioritizeVerb" in checked.output
    assert invoke(main, ["extender", "config", "--check", str(target), "--url", "http://other"]).exit_code == 1


@pytest.mark.parametrize("content", ["", "[]", "a: [", "kind: Pod", "\x00"])
def test_an_invalid_file_is_reported(tmp_path, content: str) -> None:
    """An invalid file ends the command with status 2 and an error that names the file."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(content)
    done = CliRunner().invoke(main, ["extender", "config", str(file)])
    assert done.exit_code == 2
    assert str(file) in done.output
