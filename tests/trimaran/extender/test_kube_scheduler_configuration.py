"""The KubeSchedulerConfiguration that is written for a stock kube-scheduler, and the check of one that exists."""

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


def weights(made: dict[str, Any], number: int) -> dict[str, int]:
    """Return what scores in a profile that was render_config."""
    score = made["profiles"][number]["plugins"]["score"]
    assert score["disabled"] == [{"name": "*"}]
    return {each["name"]: each["weight"] for each in score["enabled"]}


def test_plugins_weigh_what_the_file_says(document) -> None:
    """In-tree weights are multiplied so that theirs and ours stand to each other as in the file, in every profile."""
    made, profiles = render_config(document, ExtenderEndpoint(URL)), Profiles.read(document)
    weight = made["extenders"][0]["weight"]
    assert weight == 6  # the least common multiple of 3 and 2
    for number, name in enumerate(("trimaran", "packing")):
        whole = weights(made, number)
        ours = profiles.by_scheduler[name]
        a_point_of_ours = weight * 10 / ours.weight  # of a plugin with weight 1
        assert whole["TaintToleration"] == 3 * a_point_of_ours
        assert whole["NodeAffinity"] == 2 * a_point_of_ours
        assert whole["ImageLocality"] == a_point_of_ours
    assert weights(made, 1)["NodeResourcesFit"] == 3 * weight * 10 / 2  # named in the file, so it weighs what that says


def test_the_safety_net_scores_at_weight_1(document) -> None:
    """What the file does not enable by name keeps scoring, and is never disabled where it filters."""
    whole = weights(render_config(document, ExtenderEndpoint(URL)), 0)
    assert (whole["NodeResourcesFit"], whole["NodeResourcesBalancedAllocation"]) == (1, 1)
    without = render_config(document, ExtenderEndpoint(URL), safety_net=False)
    assert weights(without, 0).keys().isdisjoint({"NodeResourcesFit", "NodeResourcesBalancedAllocation"})
    assert "NodeResourcesBalancedAllocation" not in weights(without, 1)
    assert "disabled" not in without["profiles"][0]["plugins"]["multiPoint"]


def test_our_plugins_leave_the_file_and_the_rest_stays(document) -> None:
    """A stock kube-scheduler would not start with plugins that it does not have; what else is written is kept."""
    made = render_config(document, ExtenderEndpoint(URL))
    text = yaml.safe_dump(made)
    assert "LowRiskOverCommitment" not in text
    assert "LoadVariationRiskBalancing" not in text
    assert made["leaderElection"] == {"leaderElect": False}
    assert [each["name"] for each in made["profiles"][0]["pluginConfig"]] == ["PodTopologySpread"]
    assert made["profiles"][2] == {"schedulerName": "default-scheduler"}
    assert document == yaml.safe_load(TRIMARAN)


def test_the_extender_is_asked_safely(document) -> None:
    """The entry is bounded, ignorable, by names, and verified."""
    way = ExtenderEndpoint("https://extender:2021/", ca_file="/etc/ca.crt", certificate="/etc/c.crt", key="/etc/c.key")
    (entry,) = render_config(document, way)["extenders"]
    assert entry == {
        "urlPrefix": "https://extender:2021", "prioritizeVerb": "prioritize", "weight": 6, "httpTimeout": "500ms",
        "nodeCacheCapable": True, "ignorable": True, "enableHTTPS": True,
        "tlsConfig": {"caFile": "/etc/ca.crt", "certFile": "/etc/c.crt", "keyFile": "/etc/c.key"},
    }  # fmt: skip


def test_other_extenders_are_kept_and_ours_is_replaced(document) -> None:
    """Writing what was render_config changes ours alone."""
    document["extenders"] = [{"urlPrefix": "http://other", "filterVerb": "filter"}, {"urlPrefix": URL, "weight": 99}]
    urls = [
        (each["urlPrefix"], each.get("weight")) for each in render_config(document, ExtenderEndpoint(URL))["extenders"]
    ]
    assert urls == [("http://other", None), (URL, 6)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "https://extender:2021"}, "--ca-file"),
        ({"url": URL, "ca_file": "/etc/ca.crt"}, "of no use"),
        ({"url": "extender:2021"}, "looks like"),
        ({"url": URL, "timeout_ms": 501}, "1 to 500 ms"),
        ({"url": URL, "timeout_ms": 0}, "1 to 500 ms"),
    ],
)
def test_a_way_that_is_not_safe_is_refused(options, why: str) -> None:
    """What would be silently insecure, or hold up every pod, is not render_config."""
    with pytest.raises(ValueError, match=why):
        ExtenderEndpoint(**options)


def test_a_version_that_is_gone_is_refused(document) -> None:
    """Its plugins and defaults are gone too, so weights could not be kept."""
    with pytest.raises(ValueError, match="no longer reads"):
        render_config({**document, "apiVersion": "kubescheduler.config.k8s.io/v1beta2"}, ExtenderEndpoint(URL))


def test_what_is_written_passes_the_check(document) -> None:
    """The check has nothing to say of what the same program wrote."""
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
def test_each_danger_of_an_extender_is_named(document, change, named: str) -> None:
    """A setting that would hold pods up, skip them, or trust anybody is told by its name."""
    made = render_config(document, ExtenderEndpoint(URL))
    made["extenders"][0] |= change
    (problem,) = validate_config(made)
    assert problem.startswith(f"extenders[0].{named}")


def test_a_time_limit_of_several_units_is_read(document) -> None:
    """Go writes 0.4 s in many ways."""
    made = render_config(document, ExtenderEndpoint(URL))
    for text in ("400ms", "0.4s", ".4s", "399ms1000us"):
        made["extenders"][0]["httpTimeout"] = text
        assert list(validate_config(made)) == []


def test_a_file_that_would_not_work_is_told(document) -> None:
    """Plugins of ours, a filter that is gone, and no extender at all."""
    document["profiles"][0]["plugins"]["multiPoint"]["disabled"] = [{"name": "NodeResourcesFit"}]
    found = list(validate_config(document))
    assert any("profiles[0].plugins.score: a stock kube-scheduler has no plugin LowRisk" in each for each in found)
    assert any("profiles[0].pluginConfig" in each for each in found)
    assert any("profiles[0].plugins.multiPoint: NodeResourcesFit is disabled at all points" in each for each in found)
    assert "extenders: none prioritizes" in found


def test_the_command_writes_and_checks(tmp_path) -> None:
    """What ``trimaran extender config`` writes it accepts; its input it does not."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(TRIMARAN)
    run = CliRunner().invoke
    done = run(main, ["extender", "config", str(file)])
    assert done.exit_code == 0
    target = tmp_path / "stock.yaml"
    target.write_text(done.output)
    assert run(main, ["extender", "config", "--check", str(target)]).exit_code == 0
    checked = run(main, ["extender", "config", "--check", str(file)])
    assert checked.exit_code == 1
    assert "extenders: none prioritizes" in checked.output
    assert run(main, ["extender", "config", "--check", str(target), "--url", "http://other"]).exit_code == 1


@pytest.mark.parametrize("content", ["", "[]", "a: [", "kind: Pod", "\x00"])
def test_what_is_no_configuration_is_told(tmp_path, content: str) -> None:
    """Status 2 and one line that names the file."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(content)
    done = CliRunner().invoke(main, ["extender", "config", str(file)])
    assert done.exit_code == 2
    assert str(file) in done.output
