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
    with pytest.raises(KeyError, match="'NoSuchPlugin'"):
        plugin_from_config("NoSuchPlugin")
    with pytest.raises(KeyError, match=r"'LoadVariationRisk'.* LoadVariationRiskBalancing"):
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
        with pytest.raises(ValueError, match=r"1\.33, 1\.34, 1\.35, 1\.36, 1\.37"):
            read()


@pytest.mark.parametrize("weight", [-1, 2**31])
def test_a_plugin_weight_is_an_int32_above_0(weight):
    """A profile's weight outside that range is refused, because totals could overflow."""
    enabled = [{"name": "NodeResourcesFit", "weight": weight}]
    written = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"enabled": enabled}}}],
    }
    with pytest.raises(ValueError, match=r"profiles\[0\]\.plugins\.score\.enabled\[0\]\.weight:"):
        read_configuration(written)
