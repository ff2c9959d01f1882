"""Rendering of a KubeSchedulerConfiguration for a stock kube-scheduler, and validation of an existing one."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from scoring import read_configuration
from scoring.kubernetes_version import KUBERNETES_VERSIONS, default_score_weights
from trimaran.cli.main import main
from trimaran.extender.kube_scheduler import (
    ExtenderEndpoint,
    disabled_defaults,
    in_tree_by_scheduler,
    render_config,
    validate_config,
)
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


def weights(rendered: dict[str, Any], number: int) -> Mapping[str, int]:
    """Return the weights of all plugins that score in a rendered profile, as kube-scheduler merges them."""
    name = rendered["profiles"][number]["schedulerName"]
    return read_configuration(rendered, allow=None).weights[name]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_stock_weights_are_written_times_10(document, version: str) -> None:
    """Every default plugin of the version has ten times its weight, also in a profile without plugins of ours."""
    rendered = render_config(document, ExtenderEndpoint(URL), version)
    stock = default_score_weights(version)
    removed = {"NodeResourcesBalancedAllocation", "NodeResourcesFit"}
    expected = [
        {name: 10 * weight for name, weight in stock.items() if name not in removed},
        {name: 10 * weight for name, weight in stock.items()} | {"NodeResourcesFit": 30},
        {name: 10 * weight for name, weight in stock.items()},
    ]
    for number, by_name in enumerate(expected):
        score = rendered["profiles"][number]["plugins"]["score"]
        assert {each["name"]: each["weight"] for each in score["enabled"]} == by_name
        assert {"name": "*"} not in score.get("disabled", [])
    assert rendered["extenders"][0]["weight"] == 1


def test_defaults_score_where_only_our_plugins_would(document) -> None:
    """``disabled: "*"`` in favor of our plugins is dropped: without them no plugin would score while we do not act."""
    document["profiles"][1]["plugins"]["score"] = {
        "disabled": [{"name": "*"}], "enabled": [{"name": "TargetLoadPacking"}],
    }  # fmt: skip
    rendered = render_config(document, ExtenderEndpoint(URL))
    assert weights(rendered, 1) == weights(rendered, 2)
    assert "disabled" not in rendered["profiles"][1]["plugins"]["score"]


def test_a_list_of_in_tree_plugins_is_kept(document) -> None:
    """``disabled: "*"`` with in-tree plugins of the user's choice: these alone score, with ten times their weights."""
    document["profiles"][1]["plugins"]["score"] = {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": "TargetLoadPacking"}, {"name": "NodeAffinity", "weight": 7}, {"name": "Own"}],
    }
    rendered = render_config(document, ExtenderEndpoint(URL), allow=["Own"])
    assert weights(rendered, 1) == {"NodeAffinity": 70, "Own": 10}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("TargetLoadPackng", "did you mean TargetLoadPacking?"),
        (
            "Coscheduling",
            "has no plugin Coscheduling and does not start; if yours has it, add --allow Coscheduling",
        ),
    ],
)
def test_a_file_that_stops_kube_scheduler_is_not_written(document, name, error) -> None:
    """A misspelt plugin, and one that only another kube-scheduler has, are refused unless they are allowed."""
    document["profiles"][1]["plugins"]["multiPoint"] = {"enabled": [{"name": name}]}
    with pytest.raises(ValueError, match=re.escape(error)):
        render_config(document, ExtenderEndpoint(URL))
    rendered = render_config(document, ExtenderEndpoint(URL), allow=[name])
    assert rendered["profiles"][1]["plugins"]["multiPoint"]["enabled"] == [{"name": name, "weight": 10}]
    assert list(validate_config(rendered, allow=[name])) == []
    assert in_tree_by_scheduler(Profiles.read(document, allow=[name])).keys() == {
        "trimaran", "packing", "default-scheduler",
    }  # fmt: skip


def test_plugins_of_the_users_own_keep_their_place(document) -> None:
    """A plugin at multiPoint, which may not score, gets its weight times 10 there; one disabled at score stays so."""
    plugins = document["profiles"][1]["plugins"]
    plugins["multiPoint"] = {"enabled": [{"name": "Gang"}, {"name": "Own", "weight": 2}, {"name": "Off"}]}
    plugins["score"]["disabled"] = [{"name": "Off"}]
    own = ["Gang", "Own", "Off"]
    rendered = render_config(document, ExtenderEndpoint(URL), allow=own)["profiles"][1]["plugins"]
    assert rendered["multiPoint"]["enabled"] == [
        {"name": "Gang", "weight": 10}, {"name": "Own", "weight": 20}, {"name": "Off"},
    ]  # fmt: skip
    assert {"Gang", "Own", "Off"}.isdisjoint(each["name"] for each in rendered["score"]["enabled"])
    assert rendered["score"]["disabled"] == [{"name": "Off"}]


def test_a_weight_beyond_an_int32_is_refused(document) -> None:
    """A weight that does not fit an int32 when multiplied by 10 is an error that names the plugin."""
    entry = {"name": "NodeAffinity", "weight": (2**31 - 1) // 10}
    document["profiles"][2]["plugins"] = {"score": {"enabled": [entry]}}
    assert weights(render_config(document, ExtenderEndpoint(URL)), 2)["NodeAffinity"] == 2147483640
    entry["weight"] += 1
    with pytest.raises(ValueError, match=r"profiles\[2\]\.plugins: NodeAffinity .* 214748365"):
        render_config(document, ExtenderEndpoint(URL))


def test_plugins_that_stay_off_are_named(document) -> None:
    """Default plugins that the file disables by name are listed, because they do not score in shadow either."""
    assert list(disabled_defaults(document)) == [
        "profiles[0].plugins.score.disabled: NodeResourcesFit, NodeResourcesBalancedAllocation"
    ]


def test_our_plugins_are_removed_and_the_rest_is_kept(document) -> None:
    """Plugins that a stock kube-scheduler lacks are removed with their arguments, and everything else is kept."""
    rendered = render_config(document, ExtenderEndpoint(URL))
    text = yaml.safe_dump(rendered)
    assert "LowRiskOverCommitment" not in text
    assert "LoadVariationRiskBalancing" not in text
    assert rendered["leaderElection"] == {"leaderElect": False}
    assert [each["name"] for each in rendered["profiles"][0]["pluginConfig"]] == ["PodTopologySpread"]
    assert document == yaml.safe_load(TRIMARAN)


def test_the_extender_entry_is_safe(document) -> None:
    """The entry has a timeout, is ignorable, sends names, and verifies the certificate."""
    endpoint = ExtenderEndpoint(
        "https://extender:2021/", ca_file="/etc/ca.crt", certificate="/etc/c.crt", key="/etc/c.key"
    )
    (entry,) = render_config(document, endpoint)["extenders"]
    assert entry == {
        "urlPrefix": "https://extender:2021", "prioritizeVerb": "prioritize", "weight": 1, "httpTimeout": "500ms",
        "nodeCacheCapable": True, "ignorable": True, "enableHTTPS": True,
        "tlsConfig": {"caFile": "/etc/ca.crt", "certFile": "/etc/c.crt", "keyFile": "/etc/c.key"},
    }  # fmt: skip


def test_other_extenders_are_kept_and_ours_is_replaced(document) -> None:
    """Rendering replaces our extender, and keeps the others; those that score have ten times their weight."""
    document["extenders"] = [
        {"urlPrefix": "http://filter", "filterVerb": "filter"},
        {"urlPrefix": "http://score", "prioritizeVerb": "score", "weight": 3},
        {"urlPrefix": f"{URL}/", "weight": 99},
    ]
    urls = [
        (each["urlPrefix"], each.get("weight")) for each in render_config(document, ExtenderEndpoint(URL))["extenders"]
    ]
    assert urls == [("http://filter", None), ("http://score", 30), (URL, 1)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"extenders": {}}, "extenders:"),
        ({"extenders": ["http://score"]}, "extenders:"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta2"}, "no longer supports"),
        *(
            ({"extenders": [{"urlPrefix": "http://s", "prioritizeVerb": "s", **weight}]}, r"extenders\[0\]\.weight")
            for weight in ({}, *({"weight": each} for each in (None, 0, -3, "5", 1.5, True, 2**31)))
        ),
    ],
)
def test_an_unusable_file_is_refused(document, changes, why: str) -> None:
    """kube-scheduler does not start with such a file, or has other defaults, and no weight is guessed."""
    with pytest.raises(ValueError, match=why):
        render_config({**document, **changes}, ExtenderEndpoint(URL))


def test_a_rendered_file_is_not_rendered_again(document) -> None:
    """The weights of a rendered file, to which a plugin was added, are not multiplied by 10 once more."""
    rendered = render_config(document, ExtenderEndpoint(URL))
    with pytest.raises(ValueError, match="no profile"):
        render_config(rendered, ExtenderEndpoint(URL))
    rendered["profiles"][2]["plugins"]["score"]["enabled"].append({"name": "TargetLoadPacking", "weight": 1})
    with pytest.raises(ValueError, match="multiples of 10"):
        render_config(rendered, ExtenderEndpoint(URL))


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


def test_a_rendered_file_is_valid(document) -> None:
    """A rendered file has no problems."""
    assert list(validate_config(render_config(document, ExtenderEndpoint(URL)))) == []
    secure = ExtenderEndpoint("https://extender:2021", ca_file="/etc/ca.crt")
    assert list(validate_config(render_config(document, secure), secure.url)) == []


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_a_file_is_validated_by_its_version(document, version: str, tmp_path) -> None:
    """A file for an older kube-scheduler need not name plugins that score by default in newer ones."""
    rendered = render_config(document, ExtenderEndpoint(URL), version)
    assert list(validate_config(rendered, kubernetes_version=version)) == []
    file = tmp_path / "stock.yaml"
    file.write_text(yaml.safe_dump(rendered))
    done = CliRunner().invoke(main, ["extender", "config", "--check", str(file), "--kubernetes-version", version])
    assert (done.exit_code, done.stdout) == (0, "the configuration is valid, and uses the extender\n")
    without = CliRunner().invoke(main, ["extender", "config", "--check", str(file)])
    assert "no --kubernetes-version" in without.stderr


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


def test_weights_that_are_not_times_10_are_reported(document) -> None:
    """A file with stock weights would let the extender count ten times as much as it should."""
    rendered = render_config(document, ExtenderEndpoint(URL))
    rendered["profiles"][1]["plugins"]["score"]["enabled"][0]["weight"] = 3
    (problem,) = validate_config(rendered)
    assert problem.startswith("profiles[1].plugins: TaintToleration ")


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
    assert any("profiles[0].plugins.score: " in each for each in problems)
    assert any("profiles[0].pluginConfig" in each for each in problems)
    assert any("profiles[0].plugins.multiPoint: NodeResourcesFit " in each for each in problems)
    assert "extenders: no extender has a prioritizeVerb" in problems


def test_the_command_renders_and_validates(tmp_path) -> None:
    """``trimaran extender config --check`` accepts a rendered file, and refuses its input."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(TRIMARAN)
    invoke = CliRunner().invoke
    rendered = invoke(main, ["extender", "config", str(file), "--kubernetes-version", "1.37"])
    assert rendered.exit_code == 0
    assert "profiles[0].plugins.score.disabled: NodeResourcesFit, NodeResourcesBalancedAllocation" in rendered.stderr
    target = tmp_path / "stock.yaml"
    target.write_text(rendered.stdout)
    assert invoke(main, ["extender", "config", "--check", str(target)]).exit_code == 0
    checked = invoke(main, ["extender", "config", "--check", str(file)])
    assert checked.exit_code == 1
    assert "extenders: " in checked.output
    assert invoke(main, ["extender", "config", "--check", str(target), "--url", "http://other"]).exit_code == 1


@pytest.mark.parametrize("content", ["", "[]", "a: [", "kind: Pod", "\x00"])
def test_an_invalid_file_is_reported(tmp_path, content: str) -> None:
    """An invalid file ends the command with status 2 and an error that names the file."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(content)
    done = CliRunner().invoke(main, ["extender", "config", str(file), "--kubernetes-version", "1.37"])
    assert done.exit_code == 2
    assert str(file) in done.output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--kubernetes-version is needed"),
        (("--kubernetes-version", "1.20"), "1.20"),
        (("--configz", "-"), "--configz needs --check"),
    ],
)
def test_missing_options_are_named(tmp_path, options: tuple[str, ...], named: str) -> None:
    """The version of kube-scheduler is never guessed, as the defaults differ between versions."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(TRIMARAN)
    done = CliRunner().invoke(main, ["extender", "config", str(file), *options])
    assert done.exit_code == 2
    assert named in done.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TRIMARAN + "podInitialBackoffSeconds: 20\n", "podMaxBackoffSeconds: "),
        (TRIMARAN + "extenders: [{urlPrefix: http://e, enableHttps: true}]\n", "extenders[0].enableHttps"),
        (TRIMARAN + "extenders: [{urlPrefix: http://e, tlsConfig: text}]\n", "extenders[0].tlsConfig: "),
        (TRIMARAN.replace("{defaultingType: System}", "{defaultingTyp: System}"), "args.defaultingTyp"),
    ],
)
def test_a_file_with_which_kube_scheduler_does_not_start_is_refused(tmp_path, text, problem) -> None:
    """``extender config`` does not write it, and ``--check`` reports it, by the same rules as ``config check``."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    for option in ((), ("--check",)):
        done = CliRunner().invoke(main, ["extender", "config", str(file), "--kubernetes-version", "1.37", *option])
        assert done.exit_code == (1 if option else 2)
        assert problem in done.output
        assert "kube-scheduler does not start with this file" in done.output


def test_what_is_not_known_is_not_valid(tmp_path) -> None:
    """``--check`` does not call a file valid of which kube-scheduler reads other files, and names these."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(TRIMARAN)
    command = ["extender", "config", str(file), "--kubernetes-version", "1.37"]
    secure = CliRunner().invoke(main, [*command, "--url", "https://e:2021", "--ca-file", "/etc/ca.crt"])
    assert "extenders[0].tlsConfig.caFile: " in secure.stderr
    file.write_text(secure.stdout)
    done = CliRunner().invoke(main, [*command, "--check"])
    assert done.exit_code == 0
    assert done.stdout.startswith("no problem")


def test_arguments_that_kube_scheduler_ignores_may_have_any_type(document) -> None:
    """A list as arguments of TaintToleration stays in the rendered file, and does not stop the extender."""
    entry = {"name": "TaintToleration", "args": [1]}
    document["profiles"][0]["pluginConfig"].append(entry)
    assert Profiles.read(document).scoring_document()["profiles"][0]["schedulerName"] == "trimaran"
    assert entry in render_config(document, ExtenderEndpoint(URL))["profiles"][0]["pluginConfig"]
