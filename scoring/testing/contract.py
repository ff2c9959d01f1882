"""Contract of score plugins, tested with random clusters in which metrics and requests may be absent, zero or full."""

from dataclasses import FrozenInstanceError, fields
from typing import Any, ClassVar

import numpy as np
import pytest

from runtime.kubernetes.objects import Container, Node, Pod, ResourceList
from scoring.arguments import check_arguments
from scoring.load.metrics_table import MetricsTable
from scoring.plugins.base import ScorePlugin
from scoring.profiles.configuration.fields import ConfigNote, camel
from scoring.profiles.configuration.plugins import plugin_from_config, plugin_names
from scoring.profiles.profile import Profile
from scoring.table.node_table import NodeTable
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window

_SEEDS = range(5)
_NODES = 30
_WINDOW = Window("15m", 600, 1500)


class PluginContract:
    """Suite for a score plugin: derive a class ``Test...`` from it.

    Attributes:
        plugin: the plugin with its arguments.
    """

    plugin: ClassVar[ScorePlugin]

    def test_is_a_frozen_dataclass(self) -> None:
        """The plugin is a dataclass that cannot be changed, and its arguments have the annotated types."""
        check_arguments(self.plugin)
        for name in _arguments(self.plugin):
            with pytest.raises(FrozenInstanceError):
                setattr(self.plugin, name, None)

    def test_can_be_named_in_a_configuration(self) -> None:
        """The name is not taken; the arguments of a file make the same plugin, and an unknown key is reported."""
        kind, notes = type(self.plugin), list[ConfigNote]()
        if hasattr(kind, "from_config"):
            assert kind.name in plugin_names([kind])
            return
        arguments = {camel(name): value for name, value in _arguments(self.plugin).items()}
        read = plugin_from_config(kind.name, {**arguments, "noSuchKey": 1}, notes, plugins=[kind])
        assert read == self.plugin
        assert [note.path for note in notes if note.status == "unknown"] == [f"{kind.name}Args.noSuchKey"]

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_scores_are_from_0_to_100(self, seed: int) -> None:
        """Scores after normalization are integers from 0 to 100, with and without metrics."""
        table, metrics, pod = random_cluster(seed)
        for known in (MetricsTable.align(metrics, table), MetricsTable.empty(table)):
            total = Profile.of(self.plugin).score(pod, table, known).total
            assert total.min() >= 0
            assert total.max() <= 100

    def test_a_plugin_that_reads_metrics_depends_on_them(self) -> None:
        """With ``reads_metrics`` the metrics change a score, in one of several clusters."""
        if not self.plugin.reads_metrics:
            return
        raw = []
        for seed in _SEEDS:
            table, metrics, pod = random_cluster(seed)
            raw.append([self.plugin.score(pod, table, each).tolist() for each in (metrics, MetricsTable.empty(table))])
        assert any(measured != unknown for measured, unknown in raw), (
            "reads_metrics is true, but no metric changes a score: is the metric type spelled as in MetricType?"
        )

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_pods_are_scored_independently(self, seed: int) -> None:
        """Pods that are scored together have the same scores as pods that are scored one by one."""
        table, metrics, pod = random_cluster(seed)
        pods = [pod, random_pod(np.random.default_rng(seed + 100), "other")]
        prepared = self.plugin.prepare(table, metrics)
        assert prepared.score_many(pods).tolist() == [prepared.score(each).tolist() for each in pods]

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_selected_rows_have_the_same_scores(self, seed: int) -> None:
        """Scores of a subset of rows equal those from the whole table."""
        table, metrics, pod = random_cluster(seed)
        rows = np.random.default_rng(seed).permutation(_NODES)[: _NODES // 2]
        prepared = self.plugin.prepare(table, metrics)
        some = np.broadcast_to(prepared.raw(pod, rows), (1, len(rows)))[0]
        assert some.tolist() == prepared.score(pod)[rows].tolist()

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_an_equal_score_is_that_of_every_node(self, seed: int) -> None:
        """A score that ``equal_score`` returns is that of every node after normalization."""
        table, metrics, pod = random_cluster(seed)
        equal = self.plugin.equal_score(pod, table)
        scores = set(self.plugin.normalize(self.plugin.score(pod, table, metrics)).tolist())
        assert equal is None or scores == {equal}

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_follows_changes_of_the_pods(self, seed: int) -> None:
        """After a pod is placed, the scores equal those of a plugin that is prepared again (``reads_pods``)."""
        table, metrics, pod = random_cluster(seed)
        prepared = self.plugin.prepare(table, metrics)
        prepared.score(pod)
        table.assume(random_pod(np.random.default_rng(seed + 200), "placed"), table.names[seed])
        assert prepared.score(pod).tolist() == self.plugin.prepare(table, metrics).score(pod).tolist()

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_explains_its_scores(self, seed: int) -> None:
        """The explanation of a node has its score and a line of text."""
        table, metrics, pod = random_cluster(seed)
        prepared = self.plugin.prepare(table, metrics)
        scores = prepared.score(pod)
        for row in (0, _NODES - 1):
            explanation = prepared.explain(pod, table.names[row])
            assert explanation.score == scores[row]
            assert explanation.line.strip()

    def test_a_cluster_without_nodes(self) -> None:
        """A table without nodes gives no scores."""
        _, metrics, pod = random_cluster(0)
        assert self.plugin.score(pod, NodeTable([]), metrics).tolist() == []


def _arguments(plugin: ScorePlugin) -> dict[str, Any]:
    """Return the arguments of a plugin by name.

    Raises:
        TypeError: the plugin is not a dataclass.
    """
    return {field.name: getattr(plugin, field.name) for field in fields(plugin)}  # type: ignore[arg-type]


def random_cluster(seed: int) -> tuple[NodeTable, WatcherMetrics, Pod]:
    """Return random nodes with pods, metrics of most of them, and a pending pod."""
    rng = np.random.default_rng(seed)
    sizes = [
        ResourceList({"cpu": int(rng.integers(1, 64)) * 1000, "memory": 2**34, "pods": 110}) for _ in range(_NODES)
    ]
    nodes = [Node(f"node-{number}", allocatable=size, capacity=size) for number, size in enumerate(sizes)]
    table = NodeTable(nodes)
    for number in range(_NODES):
        table.assume(random_pod(rng, f"running-{number}"), str(rng.choice(table.names)))
    measured = [name for name in table.names if rng.random() < 0.8]
    return (
        table,
        WatcherMetrics(1500, _WINDOW, "contract", {name: _load(rng) for name in measured}),
        random_pod(rng, "pending"),
    )


def random_pod(rng: np.random.Generator, name: str) -> Pod:
    """Return a pod with random requests, which may be 0."""
    requests = {"cpu": int(rng.choice([0, 100, 2000])), "memory": int(rng.choice([0, 2**28, 2**31]))}
    return Pod(name=name, containers=(Container(ResourceList(requests), ResourceList()),), scheduled_at=1000.0)


def _load(rng: np.random.Generator) -> NodeMetrics:
    kinds = [kind for kind in ("CPU", "Memory") if rng.random() < 0.9]
    values = [
        Metric(kind.lower(), kind, operator, "15m", float(rng.choice([0.0, 100.0, rng.uniform(0, 100)])))
        for kind in kinds
        for operator in ("AVG", "STD")
    ]
    return NodeMetrics(tuple(values))
