"""KubeSchedulerConfigurations of every version, and the note for every key."""

import pytest
import yaml

from scoring import NodeResourcesFit, Peaks, PowerModel, read_configuration
from scoring.kubernetes_version import KUBERNETES_VERSIONS
from scoring.plugins.node_resources_fit import ResourceWeight, ShapePoint
from scoring.profiles.configuration.fields import UnknownPlugin


def read(text, version="v1", **options):
    header = f"apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n"
    return read_configuration(yaml.safe_load(header + text), **options)


def weights(configuration, scheduler_name=None):
    return {w.plugin.name: w.weight for w in configuration.profile(scheduler_name).plugins}


def notes_by_path(configuration):
    return {note.path: (note.status, note.detail) for note in configuration.notes}


OLD_RULES = {"TaintToleration": 1, "NodeAffinity": 1, "PodTopologySpread": 2, "InterPodAffinity": 1}
NEW_RULES = {"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2}
RESOURCES = {"NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1}
TRIMARAN = """
leaderElection: {leaderElect: false}
profiles:
- schedulerName: trimaran
  plugins:
    multiPoint:
      enabled:
      - name: LoadVariationRiskBalancing
        weight: 5
      disabled:
      - name: ImageLocality
    score:
      disabled:
      - name: NodeResourcesBalancedAllocation
    filter:
      enabled:
      - name: VolumeZone
  pluginConfig:
  - name: LoadVariationRiskBalancing
    args:
      safeVarianceMargin: 2
      safeVarianceSensitivity: -1
      watcherAddress: http://127.0.0.1:2020
      sensitivity: 3
  - name: TargetLoadPacking
    args: {targetUtilization: 50}
  - name: Coscheduling
    args: {permitWaitingTimeSeconds: 10}
"""


def test_a_profile_is_merged_with_the_defaults():
    """Defaults stay unless disabled for scoring or everywhere; enabled plugins are added with their weights."""
    configuration = read(TRIMARAN)
    assert weights(configuration, "trimaran") == {
        **NEW_RULES, "NodeResourcesFit": 1, "LoadVariationRiskBalancing": 5,
    }  # fmt: skip
    plugin = configuration.profile().plugins[-1].plugin
    assert (plugin.safe_variance_margin, plugin.safe_variance_sensitivity) == (2, 1)


def test_every_key_has_a_status():
    """Honored, changed, ignored and unknown keys have notes, with a reason unless the key is honored."""
    notes = notes_by_path(read(TRIMARAN))
    assert notes["profiles[0].plugins.multiPoint.enabled[0].weight"] == ("honored", "")
    assert notes["LoadVariationRiskBalancingArgs.safeVarianceMargin"] == ("honored", "")
    assert notes["LoadVariationRiskBalancingArgs.safeVarianceSensitivity"][0] == "changed"
    for path, detail in {
        "KubeSchedulerConfiguration.leaderElection": "not about scores",
        "profiles[0].plugins.filter": "not about scores; trimaran scheduler reads it",
        "profiles[0].plugins: VolumeBinding": "this score is not implemented; weight 1",
        "LoadVariationRiskBalancingArgs.watcherAddress": "the source of metrics is a setting of the client",
        "profiles[0].pluginConfig[1].args": "TargetLoadPacking is not enabled for scoring",
        "profiles[0].pluginConfig[2].args": "not about scores; trimaran scheduler reads it",
    }.items():
        assert notes[path] == ("ignored", detail)
    status, detail = notes["LoadVariationRiskBalancingArgs.sensitivity"]
    assert (status, detail) == ("unknown", "there is no such key; did you mean safeVarianceSensitivity?")


def leaves(value, path):
    """Yield the path of every leaf as notes spell it: a plugin's arguments start a path of their own."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{value['name']}Args" if key == "args" else f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path


def test_every_leaf_has_a_note():
    """Every leaf of a file has its own note or belongs to a key that is ignored as a whole."""
    configuration = read(TRIMARAN)
    notes = notes_by_path(configuration)
    ignored = tuple(path for path, (status, _) in notes.items() if status == "ignored")
    ignored += ("TargetLoadPackingArgs", "CoschedulingArgs")  # arguments of plugins that do not score here
    for profile_leaf in leaves(yaml.safe_load(TRIMARAN)["profiles"], "profiles"):
        assert profile_leaf in notes or profile_leaf.startswith(ignored), profile_leaf


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1beta1", {**RESOURCES, **OLD_RULES}),
        ("v1beta2", {**RESOURCES, **OLD_RULES}),
        ("v1beta3", {**RESOURCES, **NEW_RULES}),
        ("v1", {**RESOURCES, **NEW_RULES}),
    ],
)
def test_every_version_has_its_defaults(version, expected):
    """A file without profiles gives its version's default profile; notes name versions that are no longer supported."""
    configuration = read("", version)
    assert weights(configuration, "default-scheduler") == expected
    old = notes_by_path(configuration)["KubeSchedulerConfiguration.apiVersion"][0] == "changed"
    assert old == (version != "v1")


@pytest.mark.parametrize("kubernetes", KUBERNETES_VERSIONS)
def test_the_default_weights_are_those_of_the_kubernetes_version(kubernetes):
    """The weights are those of kube-scheduler's default_plugins.go; DynamicResources has a score from 1.35 on."""
    expected = {**NEW_RULES, **RESOURCES, "VolumeBinding": 1}
    if kubernetes not in {"1.33", "1.34"}:
        expected["DynamicResources"] = 2
    assert read("", kubernetes_version=kubernetes).weights == {"default-scheduler": expected}


def test_a_plugin_without_a_score_gets_no_weight():
    """At multiPoint kube-scheduler leaves such a plugin out of the scores; at score it does not start."""
    enabled = "profiles: [{{plugins: {{{0}: {{enabled: [{{name: {1}, weight: 7}}]}}}}}}]"
    assert "VolumeZone" not in read(enabled.format("multiPoint", "VolumeZone")).weights["default-scheduler"]
    for point, version, weight in (("multiPoint", "1.34", None), ("multiPoint", "1.37", 7), ("score", "1.35", 7)):
        configuration = read(enabled.format(point, "DynamicResources"), kubernetes_version=version)
        assert configuration.weights["default-scheduler"].get("DynamicResources") == weight
    for name, version in (("VolumeZone", "1.37"), ("DynamicResources", "1.34")):
        with pytest.raises(ValueError, match=rf"enabled\[0\]\.name: {name} .* {version}"):
            read(enabled.format("score", name), kubernetes_version=version)


def test_old_plugin_names_are_accepted():
    """Names from before v1beta2 become NodeResourcesFit with the matching strategy and arguments."""
    configuration = read(
        """
profiles:
- plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: RequestedToCapacityRatio, weight: 2}]
  pluginConfig:
  - name: RequestedToCapacityRatio
    args:
      shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
      resources: [{name: nvidia.com/gpu, weight: 3}]
""",
        "v1beta1",
    )
    [weighted] = configuration.profile().plugins
    resources = (ResourceWeight("nvidia.com/gpu", 3),)
    assert weighted.plugin == NodeResourcesFit(
        "RequestedToCapacityRatio", resources, (ShapePoint(0, 0), ShapePoint(100, 10))
    )
    assert weighted.weight == 2
    assert notes_by_path(configuration)["profiles[0].plugins: RequestedToCapacityRatio"][0] == "changed"


def test_an_old_plugin_name_replaces_the_new_one():
    """The old name, enabled together with the default NodeResourcesFit, selects the strategy and counts once."""
    text = "profiles: [{plugins: {score: {enabled: [{name: NodeResourcesMostAllocated, weight: 7}]}}}]"
    configuration = read(text, "v1beta2")
    assert weights(configuration)["NodeResourcesFit"] == 7
    plugin = next(w.plugin for w in configuration.profile().plugins if w.plugin.name == "NodeResourcesFit")
    assert plugin.strategy == "MostAllocated"


@pytest.mark.parametrize("key", ["nodePowerModel", "NodePowerModel"])
def test_peaks_accepts_both_spellings_of_its_key(key):
    """The documented key and the key of the Go type give the same power model."""
    text = f"""
profiles:
- plugins: {{score: {{enabled: [{{name: Peaks}}], disabled: [{{name: "*"}}]}}}}
  pluginConfig:
  - name: Peaks
    args: {{WatcherAddress: "http://w", {key}: {{n1: {{k0: 1, k1: -2.5, k2: 0.1}}}}}}
"""
    [weighted] = read(text).profile().plugins
    assert weighted.plugin == Peaks({"n1": PowerModel(1, -2.5, 0.1)})


def test_profiles_are_found_by_name():
    """The only profile needs no name; several need one, and the error of an unknown name lists those of the file."""
    text = "profiles: [{schedulerName: a}, {schedulerName: b}]"
    assert read(text).profile("b").scheduler_name == "b"
    with pytest.raises(ValueError, match="scheduler_name"):
        read(text).profile()
    with pytest.raises(KeyError, match=r"'c'.* a, b"):
        read(text).profile("c")
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    assert read_configuration(header).profile().scheduler_name == "default-scheduler"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles: {}", "KubeSchedulerConfiguration.profiles: must be a list of profiles"),
        ("profiles: [3]", r"profiles\[0\]: must be a mapping"),
        ("profiles: [{plugins: 3}]", r"profiles\[0\].plugins: must be a mapping"),
        ("profiles: [{plugins: {score: {enabled: 3}}}]", r"profiles\[0\].plugins.score.enabled: must be a list"),
        ("profiles: [{plugins: {score: {enabled: [{weight: 3}]}}}]", r"score.enabled\[0\].name: "),
        ("profiles: [{plugins: {score: {enabled: [{name: Peaks}, {name: Peaks}]}}}]", r"enabled\[1\].name: Peaks "),
        ("profiles: [{pluginConfig: [{name: Peaks}, {name: Peaks}]}]", r"pluginConfig\[1\].name: Peaks "),
        ("profiles: [{schedulerName: a}, {schedulerName: a}]", "two profiles .* 'a'"),
    ],
)
def test_invalid_files_are_refused(text, message):
    """The error starts with the path of the key and states the valid values."""
    with pytest.raises(ValueError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({}, "kind: must be KubeSchedulerConfiguration, got None"),
        ({"kind": "Pod"}, "kind: must be KubeSchedulerConfiguration, got 'Pod'"),
        ({"kind": "KubeSchedulerConfiguration", "apiVersion": "v1"}, "apiVersion: must be one of kubescheduler"),
        ({"kind": "KubeSchedulerConfiguration", "apiVersion": "kubescheduler.config.k8s.io/v2"}, "apiVersion: must be"),
    ],
)
def test_other_kinds_and_versions_are_refused(header, message):
    """A file of another kind, or of an unknown version, is refused."""
    with pytest.raises(ValueError, match=message):
        read_configuration(header)


SET = "profiles: [{{plugins: {{{0}: {{{1}: [{{name: {2}}}]}}}}}}]"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (SET.format("score", "enabled", "TargetLoadPackng"), "profiles[0].plugins.score.enabled[0].name"),
        (SET.format("score", "disabled", "TargetLoadPackng"), "profiles[0].plugins.score.disabled[0].name"),
        (SET.format("multiPoint", "enabled", "TargetLoadPackng"), "profiles[0].plugins.multiPoint.enabled[0].name"),
        (SET.format("preScore", "enabled", "TargetLoadPackng"), "profiles[0].plugins.preScore.enabled[0].name"),
        ("profiles: [{pluginConfig: [{name: TargetLoadPackng}]}]", "profiles[0].pluginConfig[0].name"),
    ],
)
def test_a_misspelt_plugin_is_refused(text, path):
    """kube-scheduler does not start with such a file, or ignores the entry; the error suggests the right name."""
    with pytest.raises(UnknownPlugin, match=r"'TargetLoadPackng' .*TargetLoadPacking") as refused:
        read(text)
    assert str(refused.value).startswith(f"{path}: ")
    assert refused.value.name == "TargetLoadPackng"
    for allow in (["TargetLoadPackng"], None):
        assert read(text, allow=allow).profile()


def test_a_plugin_of_another_version_is_refused():
    """GangScheduling exists from Kubernetes 1.35 on; plugins that were removed are accepted in old files only."""
    text = SET.format("permit", "enabled", "GangScheduling")
    assert read(text).enabled == {"GangScheduling"}
    with pytest.raises(ValueError, match=r"1\.34 .*GangScheduling"):
        read(text, kubernetes_version="1.34")
    text = SET.format("filter", "enabled", "EBSLimits")
    assert read(text, "v1beta1").enabled == {"EBSLimits"}
    with pytest.raises(ValueError, match="'EBSLimits'"):
        read(text)


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ("profile: []", "KubeSchedulerConfiguration.profile", "profiles"),
        ("profiles: [{plugins: {scores: {}}}]", "profiles[0].plugins.scores", "score"),
    ],
)
def test_a_misspelt_key_is_unknown(text, path, hint):
    """A misspelt key outside the arguments has a note, too, instead of "not about scores"."""
    assert notes_by_path(read(text))[path] == ("unknown", f"there is no such key; did you mean {hint}?")
