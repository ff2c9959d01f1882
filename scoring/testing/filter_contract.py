"""Contract of plugins that filter nodes, tested with random clusters and pods of several sizes."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.workloads import Owner
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import FilterPlugin, FilterVerdict, verdict_of
from scoring.table.node_table import NodeTable
from scoring.testing.contract import random_cluster, random_pod

_SEEDS = range(5)
_PODS = 8


class FilterContract:
    """Suite for a filter plugin: derive a class ``Test...`` from it.

    Attributes:
        plugin: the plugin, with arguments that make it refuse some nodes.
    """

    plugin: ClassVar[FilterPlugin]

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_a_verdict_has_a_mask_and_reasons(self, seed: int) -> None:
        """A verdict has a mask with a Boolean for each node, and each refused node has reasons."""
        table, pods = _cluster(seed)
        for verdict in (_verdict(self.plugin, pod, table) for pod in pods):
            for field in ("allowed", "unresolvable"):
                mask = getattr(verdict, field)
                if mask is not None:
                    assert mask.dtype == np.bool_, f"{field} must be of bool, got {mask.dtype}"
                    assert mask.shape == (len(table),), f"{field} must have a Boolean for each of {len(table)} rows"
            for index in np.flatnonzero(~verdict.allowed).tolist():
                reasons = verdict.reasons(index)
                assert reasons, f"the refused node {table.names[index]} has no reason"
                assert all(reason.strip() for reason in reasons), f"a reason of {table.names[index]} is empty"

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_selected_rows_have_the_same_verdict(self, seed: int) -> None:
        """The verdict for selected rows, in any order, equals that for the same rows of the whole table."""
        table, pods = _cluster(seed)
        rows = np.random.default_rng(seed).permutation(len(table))[: len(table) // 2]
        for pod in pods:
            whole, some = _verdict(self.plugin, pod, table), _verdict(self.plugin, pod, table, rows)
            assert some.allowed.tolist() == whole.allowed[rows].tolist(), (
                f"the verdict for rows={rows.tolist()} is not allowed[rows] of all rows: does filter() use its rows?"
            )
            for index in np.flatnonzero(~some.allowed).tolist():
                assert some.reasons(index) == whole.reasons(int(rows[index])), (
                    f"the reason of {table.names[rows[index]]} depends on the rows: why() gets an index in the mask"
                )

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_is_a_pure_function(self, seed: int) -> None:
        """A filter does not change the table, and its verdict depends on nothing but the pod and the table's state."""
        table, pods = _cluster(seed)
        version = table.version
        before = [_verdict(self.plugin, pod, table).allowed.tolist() for pod in pods]
        assert table.version == version, "filter() has changed the node table"
        table.assume(random_pod(np.random.default_rng(seed + 200), "placed"), table.names[seed])
        changed = [_verdict(self.plugin, pod, table).allowed.tolist() for pod in pods]
        assert changed == [_verdict(self.plugin, pod, table.copy()).allowed.tolist() for pod in pods], (
            "a copy of the table has another verdict: does filter() keep values of a table?"
        )
        fresh, _ = _cluster(seed)
        assert before == [_verdict(self.plugin, pod, fresh).allowed.tolist() for pod in reversed(pods)][::-1], (
            "the same pods in another order have other verdicts: does filter() keep what it saw?"
        )

    def test_refuses_and_allows_nodes(self) -> None:
        """Some nodes are refused and some are allowed, as otherwise the suite tests nothing."""
        masks = [_verdict(self.plugin, pod, table).allowed for table, pods in map(_cluster, _SEEDS) for pod in pods]
        assert any(mask.any() for mask in masks), "every node is refused for each pod: choose arguments that allow one"
        assert not all(mask.all() for mask in masks), "no node is refused: choose arguments with which some are"

    def test_filters_a_cluster_without_nodes(self) -> None:
        """A table without nodes has an empty verdict."""
        _, pods = _cluster(0)
        assert _verdict(self.plugin, pods[0], NodeTable([])).allowed.tolist() == []


def _cluster(seed: int) -> tuple[NodeTable, list[Pod]]:
    """Return a cluster, and pods with one of three owners or none; the owners' pods also run on half of the nodes."""
    table, _, pod = random_cluster(seed)
    rng = np.random.default_rng(seed + 100)
    for number, name in enumerate(table.names[::2]):
        table.assume(_owned(random_pod(rng, f"owned-{number}"), number), name)
    return table, [pod, *(_owned(random_pod(rng, f"other-{number}"), number) for number in range(_PODS))]


def _owned(pod: Pod, number: int) -> Pod:
    """Return a pod with one of three owners and the owner's label; every fourth pod is returned without an owner."""
    if number % 4 == 3:
        return pod
    app = f"app-{number % 4}"
    return replace(pod, owner=Owner("ReplicaSet", app), labels={"app": app})


def _verdict(plugin: FilterPlugin, pod: Pod, table: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict:
    """Return the verdict of a filter; if the filter skips the pod, a verdict that allows every node."""
    verdict = verdict_of(plugin, pod, table, rows)
    size = len(np.arange(len(table))[rows])
    return FilterVerdict(np.ones(size, np.bool_), "") if verdict is None else verdict
