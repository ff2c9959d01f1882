"""Plugins built from arguments: defaults, errors with the argument's name, a note for every key."""

import pytest

from scoring import (
    Container,
    MetricsTable,
    Node,
    NodeTable,
    Pod,
    ResourceList,
    plugin_from_config,
    read_configuration,
)


@pytest.mark.parametrize(
    ("plugin", "arguments", "message"),
    [
        (
            "TargetLoadPacking",
            {"targetUtilization": 101},
            "TargetLoadPackingArgs.targetUtilization: must be from 1 to 100, got 101",
        ),
        ("TargetLoadPacking", {"targetUtilization": 40.5}, "TargetLoadPackingArgs.targetUtilization: must be a whole"),
        (
            "TargetLoadPacking",
            {"targetUtilization": float("nan")},
            "TargetLoadPackingArgs.targetUtilization: must be a",
        ),
        ("TargetLoadPacking", {"defaultRequestsMultiplier": "NaN"}, "Args.defaultRequestsMultiplier: must be finite"),
        (
            "TargetLoadPacking",
            {"defaultRequestsMultiplier": "-1"},
            "Args.defaultRequestsMultiplier: must be from 0 to 1,000, got -1",
        ),
        (
            "TargetLoadPacking",
            {"defaultRequestsMultiplier": "x"},
            "Args.defaultRequestsMultiplier: must be a number in",
        ),
        ("TargetLoadPacking", {"defaultRequests": {"cpu": "-1"}}, "Args.defaultRequests.cpu: must not be negative"),
        ("TargetLoadPacking", {"defaultRequests": 5}, "TargetLoadPackingArgs.defaultRequests: must be a mapping"),
        ("TargetLoadPacking", {"predictFrom": "hope"}, "TargetLoadPackingArgs.predictFrom: must be one of 'limits'"),
        ("LoadVariationRiskBalancing", {"safeVarianceMargin": float("nan")}, "Args.safeVarianceMargin: must be finite"),
        ("LoadVariationRiskBalancing", {"safeVarianceSensitivity": True}, "safeVarianceSensitivity: must be a number"),
        ("LoadVariationRiskBalancing", {"resources": ["tape"]}, r"Args.resources\[0\]: 'tape' has no measured load"),
        ("LowRiskOverCommitment", {"riskLimitWeights": {"cpu": float("nan")}}, "riskLimitWeights.cpu: must be finite"),
        ("LowRiskOverCommitment", {"riskLimitWeights": [1]}, "Args.riskLimitWeights: must be a mapping"),
        ("LowRiskOverCommitment", [], "LowRiskOverCommitmentArgs: must be a mapping"),
    ],
)
def test_invalid_arguments_are_refused(plugin, arguments, message):
    """The error starts with the argument's name and states the valid values."""
    with pytest.raises(ValueError, match=message):
        plugin_from_config(plugin, arguments)


def test_every_key_has_a_note():
    """Every key has a note with its status, and a reason unless the key is honored."""
    notes = []
    plugin = plugin_from_config(
        "LowRiskOverCommitment",
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "watcherAddress": "http://w:2020",
            "smoothingWindowSize": 0,
            "riskLimitWeights": {"cpu": 0.25, "memory": 7},
            "colour": "red",
        },
        notes,
    )
    assert plugin.smoothing_window_size == 5
    assert plugin.risk_limit_weights == {"cpu": 0.25, "memory": 0.5}
    assert {note.path.removeprefix("LowRiskOverCommitmentArgs."): note.status for note in notes} == {
        "apiVersion": "honored",
        "watcherAddress": "ignored",
        "smoothingWindowSize": "changed",
        "riskLimitWeights": "honored",
        "riskLimitWeights.cpu": "honored",
        "riskLimitWeights.memory": "changed",
        "colour": "unknown",
    }
    assert all(note.detail for note in notes if note.status != "honored")
    assert "unknown  LowRiskOverCommitmentArgs.colour: there is no such key" in map(str, notes)


def test_an_unknown_plugin_is_refused():
    """An unknown plugin name raises KeyError instead of selecting a default."""
    with pytest.raises(KeyError, match=r"no plugin is named 'NoSuchPlugin'\. Known plugins: CongestionCost, "):
        plugin_from_config("NoSuchPlugin")
    with pytest.raises(KeyError, match="'LoadVariationRisk'; did you mean LoadVariationRiskBalancing"):
        plugin_from_config("LoadVariationRisk")


@pytest.mark.parametrize(
    ("version", "score"), [("1.33", 100), ("1.35", 100), ("1.36", 75), ("v1.36.3", 75), ("v1.37.2", 75), (None, 75)]
)
def test_the_kubernetes_version_selects_the_rules(version, score):
    """The balance score of a plugin and of a profile follows the version, by default the newest known one."""
    chosen = {} if version is None else {"kubernetes_version": version}
    written = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    profile = read_configuration(written, **chosen).profile()
    amounts = ResourceList({"cpu": 4000, "memory": 4000})
    nodes = NodeTable([Node("n1", amounts, amounts)])
    pod = Pod(name="p", containers=(Container(ResourceList({"cpu": 1000, "memory": 1000})),))
    for plugin in (
        plugin_from_config("NodeResourcesBalancedAllocation", **chosen),
        next(w.plugin for w in profile.plugins if w.plugin.name == "NodeResourcesBalancedAllocation"),
    ):
        assert plugin.score(pod, nodes, MetricsTable.empty(nodes)).tolist() == [score]


@pytest.mark.parametrize("version", ["1.32", "1.38", "2", "", "1.370", None])
def test_an_unknown_kubernetes_version_is_refused(version):
    """The error lists the known versions."""
    written = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    for read in (
        lambda: plugin_from_config("NodeResourcesFit", kubernetes_version=version),
        lambda: read_configuration(written, kubernetes_version=version),
    ):
        with pytest.raises(ValueError, match=r"choose one of 1\.33, 1\.34, 1\.35, 1\.36, 1\.37"):
            read()


@pytest.mark.parametrize(
    ("plugin", "arguments", "message"),
    [
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": -1}]}},
            "must be at least 1, got -1",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}},
            "must be from 1 to 100, got 101",
        ),
        ("NodeResourcesFit", {"scoringStrategy": {"requestedToCapacityRatio": {"shape": [{}]}}}, "must be absent"),
        ("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "listed twice"),
        ("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu", "weight": 2}]}, "must be 1, got 2"),
        ("NodeResourcesAllocatable", {"resources": [{"name": "cpu", "weight": 0}]}, "must be at least 1, got 0"),
        ("NodeResourcesAllocatable", {"resources": [{"name": "cpu", "weight": -5}]}, "must be at least 1, got -5"),
    ],
)
def test_weights_that_upstream_refuses_are_refused(plugin, arguments, message):
    """Weights that kube-scheduler refuses at start are errors, with the path of the key."""
    with pytest.raises(ValueError, match=f"^{plugin}Args.*{message}"):
        plugin_from_config(plugin, arguments)


@pytest.mark.parametrize("weight", [-1, 2**31])
def test_a_plugin_weight_is_an_int32_above_0(weight):
    """A profile's weight outside that range is refused, because totals could overflow."""
    enabled = [{"name": "NodeResourcesFit", "weight": weight}]
    written = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"enabled": enabled}}}],
    }
    with pytest.raises(ValueError, match=r"profiles\[0\]\.plugins\.score\.enabled\[0\]\.weight: must "):
        read_configuration(written)
