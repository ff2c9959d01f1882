"""Contract of plugins that filter nodes, tested with random clusters and pods of several sizes."""

from typing import ClassVar

import numpy as np
import pytest

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin, FilterVerdict, verdict_of
from scoring.table.node_table import NodeTable
from scoring.testing.contract import random_cluster, random_pod

_SEEDS = range(5)
_PODS = 8


class FilterContract:
    """Suite for a filter plugin: derive a class ``Test...`` from it.

    Attributes:
        plugin: the plugin with its arguments, with which it refuses some nodes.
    """

    plugin: ClassVar[FilterPlugin]

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_a_verdict_has_a_mask_and_reasons(self, seed: int) -> None:
        """A verdict has a mask with a Boolean for each node, and each refused node has reasons."""
        table, pods = _cluster(seed)
        for verdict in (_verdict(self.plugin, pod, table) for pod in pods):
            for mask in (verdict.allowed, *(() if verdict.unresolvable is None else (verdict.unresolvable,))):
                assert mask.dtype == np.bool_
                assert mask.shape == (len(table),)
            for index in np.flatnonzero(~verdict.allowed).tolist():
                reasons = verdict.reasons(index)
                assert reasons
                assert all(reason.strip() for reason in reasons)

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_selected_rows_have_the_same_verdict(self, seed: int) -> None:
        """Some rows, in any order, have the verdicts and reasons of the whole table, in this order."""
        table, pods = _cluster(seed)
        rows = np.random.default_rng(seed).permutation(len(table))[: len(table) // 2]
        for pod in pods:
            whole, some = _verdict(self.plugin, pod, table), _verdict(self.plugin, pod, table, rows)
            assert some.allowed.tolist() == whole.allowed[rows].tolist()
            for index in np.flatnonzero(~some.allowed).tolist():
                assert some.reasons(index) == whole.reasons(int(rows[index]))

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_is_a_pure_function(self, seed: int) -> None:
        """A filter does not change the table, and its verdict depends on nothing but the pod and the table's state."""
        table, pods = _cluster(seed)
        version = table.version
        before = [_verdict(self.plugin, pod, table).allowed.tolist() for pod in pods]
        assert table.version == version
        table.assume(random_pod(np.random.default_rng(seed + 200), "placed"), table.names[seed])
        changed = [_verdict(self.plugin, pod, table).allowed.tolist() for pod in pods]
        assert changed == [_verdict(self.plugin, pod, table.copy()).allowed.tolist() for pod in pods]
        fresh, _ = _cluster(seed)
        assert before == [_verdict(self.plugin, pod, fresh).allowed.tolist() for pod in reversed(pods)][::-1]

    def test_refuses_and_allows_nodes(self) -> None:
        """Some nodes are refused and some are allowed, as otherwise the suite tests nothing."""
        masks = [_verdict(self.plugin, pod, table).allowed for table, pods in map(_cluster, _SEEDS) for pod in pods]
        assert any(mask.any() for mask in masks)
        assert not all(mask.all() for mask in masks)

    def test_filters_a_cluster_without_nodes(self) -> None:
        """A table without nodes has an empty verdict."""
        _, pods = _cluster(0)
        assert _verdict(self.plugin, pods[0], NodeTable([])).allowed.tolist() == []


def _cluster(seed: int) -> tuple[NodeTable, list[Pod]]:
    table, _, pod = random_cluster(seed)
    rng = np.random.default_rng(seed + 100)
    return table, [pod, *(random_pod(rng, f"other-{number}") for number in range(_PODS))]


def _verdict(plugin: FilterPlugin, pod: Pod, table: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict:
    """Return the verdict of a filter; one that allows every node if it skips the pod."""
    verdict = verdict_of(plugin, pod, table, rows)
    size = len(np.arange(len(table))[rows])
    return FilterVerdict(np.ones(size, np.bool_), "") if verdict is None else verdict
