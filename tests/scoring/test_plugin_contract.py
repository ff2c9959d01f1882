"""Contract of score plugins: sound plugins pass it, and each broken plugin fails a test of it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from scoring import (
    CongestionCost,
    LoadVariationRiskBalancing,
    MetricsTable,
    Node,
    NodeTable,
    Pod,
    Profile,
    ScorePlugin,
    TargetLoadPacking,
)
from scoring.testing import PluginContract

INCLUDED = (TargetLoadPacking(), LoadVariationRiskBalancing(), CongestionCost())


@dataclass(frozen=True)
class FewPods(ScorePlugin):
    """Sound plugin: it prefers nodes with few pods."""

    most: int = 10
    name: ClassVar[str] = "FewPods"

    def node_terms(self, nodes, metrics):
        return {"pods": nodes.pod_counts.copy()}

    def pod_terms(self, pods, node, nodes, rows):
        return {"score": np.maximum(0, 100 - 100 * node["pods"] // self.most)}

    def line(self, terms):
        return f"{terms['pods']} pods"


class TestSound(PluginContract):
    """The contract holds for a sound plugin."""

    plugin = FewPods()


@dataclass(frozen=True)
class TooHigh(FewPods):
    """Broken plugin: scores above 100."""

    def pod_terms(self, pods, node, nodes, rows):
        return {"score": 101 + node["pods"]}


@dataclass(frozen=True)
class Stale(FewPods):
    """Broken plugin: it says that it does not read pods, but it does."""

    reads_pods: ClassVar[bool] = False


@dataclass(frozen=True)
class Whole(FewPods):
    """Broken plugin: it compares the selected nodes with each other."""

    def pod_terms(self, pods, node, nodes, rows):
        return {"score": np.arange(node["pods"].size, dtype=np.int64)}


@dataclass(frozen=True)
class Summing(FewPods):
    """Broken plugin: the score depends on the number of pods that are scored at once."""

    def pod_terms(self, pods, node, nodes, rows):
        return {"score": np.minimum(100, len(pods) + node["pods"])}


@dataclass(frozen=True)
class Taken(FewPods):
    """Broken plugin: it has the name of another plugin."""

    name: ClassVar[str] = "CongestionCost"


@dataclass(frozen=True)
class Silent(FewPods):
    """Broken plugin: it explains nothing."""

    def line(self, terms):
        return ""


@dataclass(frozen=True)
class Misspelled(FewPods):
    """Broken plugin: it asks for a metric type that no node has."""

    metric_type: str = "Brandwidth"
    reads_metrics: ClassVar[bool] = True

    def node_terms(self, nodes, metrics):
        return {"pods": metrics.of(self.metric_type).average.astype(np.int64)}


@dataclass(frozen=True)
class MisspelledKey(Misspelled):
    """Broken plugin: it reads the mapping itself."""

    def node_terms(self, nodes, metrics):
        use = metrics.use.get(self.metric_type)
        return {"pods": nodes.pod_counts * 0 if use is None else use.average}


@dataclass
class Changeable(ScorePlugin):
    """Broken plugin: it is not frozen."""

    most: int = 10
    name: ClassVar[str] = "Changeable"
    node_terms, pod_terms, line = FewPods.node_terms, FewPods.pod_terms, FewPods.line


def suite(plugin):
    """Return the contract of a plugin."""
    return type("Suite", (PluginContract,), {"plugin": plugin})()


@pytest.mark.parametrize(
    ("plugin", "test"),
    [
        (TooHigh(), "test_scores_are_from_0_to_100"),
        (Stale(), "test_follows_changes_of_the_pods"),
        (Whole(), "test_selected_rows_have_the_same_scores"),
        (Summing(), "test_pods_are_scored_independently"),
        (Silent(), "test_explains_its_scores"),
        (Misspelled(metric_type="Power"), "test_a_plugin_that_reads_metrics_depends_on_them"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_broken_plugin_fails(plugin, test):
    """Each mistake fails the test that describes it."""
    with pytest.raises((AssertionError, ValueError)):
        getattr(suite(plugin), test)(*([] if "depends_on" in test else [0]))


def test_a_wrong_declaration_fails():
    """A taken name, a class that is not frozen and a wrong argument fail."""
    with pytest.raises(ValueError, match="CongestionCost"):
        suite(Taken()).test_can_be_named_in_a_configuration()
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        suite(Changeable()).test_is_a_frozen_dataclass()
    with pytest.raises(ValueError, match="most:"):
        suite(FewPods("many")).test_is_a_frozen_dataclass()


@pytest.mark.parametrize("plugin", INCLUDED, ids=lambda plugin: plugin.name)
def test_included_plugins_pass(plugin):
    """The tests of scores hold for included plugins."""
    for name in ("scores_are_from_0_to_100", "pods_are_scored_independently", "selected_rows_have_the_same_scores",
                 "follows_changes_of_the_pods", "explains_its_scores"):  # fmt: skip
        getattr(suite(plugin), f"test_{name}")(1)


@pytest.mark.parametrize("kind", [Misspelled, MisspelledKey])
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("cpu", "CPU"), ("memory", "Memory"), ("MEMORY", "Memory"), ("Brandwidth", "Bandwidth"),
        ("cpu_pressure", "CPUPressure"), ("gpu", "GPU"),
    ],
)  # fmt: skip
def test_a_misspelled_metric_type_is_refused_when_the_profile_is_built(kind, written, meant):
    """In a cycle the type would count as not measured; so a trial score finds it."""
    with pytest.raises(ValueError, match=f"FewPods: .*'{written}'.*{meant}"):
        Profile.of(kind(metric_type=written))


@pytest.mark.parametrize("metric_type", ["CPU", "CPUPressure", "Power", "Requests"])
def test_a_known_or_new_metric_type_is_not_refused(metric_type):
    """Watchers may have metric types of their own, and in a cycle an unknown one is not measured."""
    table = NodeTable([Node("a")])
    profile = Profile.of(Misspelled(metric_type=metric_type))
    assert profile.score(Pod("web"), table, MetricsTable.empty(table)).total.tolist() == [100]
    assert not MetricsTable.empty(table).of("cpu").valid.any()


def test_other_errors_of_a_plugin_are_left_to_the_cycle():
    """A plugin that fails on the made-up node may work on the real ones."""
    assert Profile.of(FewPods(most=0)).plugins[0].plugin == FewPods(most=0)
