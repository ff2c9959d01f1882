"""Contract of filters: a sound filter passes it, and each broken filter fails a test of it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from scoring import FilterPlugin, FilterVerdict
from scoring.plugins.base import EVERY_ROW
from scoring.plugins.filtering import PluginResultError
from scoring.testing import FilterContract


@dataclass(frozen=True)
class AtMost(FilterPlugin):
    """Sound filter: at most a number of pods on a node."""

    most: int = 1
    name: ClassVar[str] = "AtMost"

    def filter(self, pod, nodes, rows=EVERY_ROW):
        return FilterVerdict((nodes.pod_counts < self.most)[rows], "node(s) had enough pods")


class TestSound(FilterContract):
    """The contract holds for a sound filter."""

    plugin = AtMost()


class Numbers(AtMost):
    """Broken filter: its mask has numbers."""

    def filter(self, pod, nodes, rows=EVERY_ROW):
        return FilterVerdict((nodes.pod_counts < self.most)[rows].astype(np.int64), "full")


class Silent(AtMost):
    """Broken filter: it gives no reason."""

    def filter(self, pod, nodes, rows=EVERY_ROW):
        return FilterVerdict((nodes.pod_counts < self.most)[rows], lambda _: ())


class Sorting(AtMost):
    """Broken filter: it ignores the order of the rows."""

    def filter(self, pod, nodes, rows=EVERY_ROW):
        allowed = nodes.pod_counts < self.most
        return FilterVerdict(allowed if rows is EVERY_ROW else allowed[np.sort(rows)], "full")


class Counting(AtMost):
    """Broken filter: its verdict depends on how often it was called."""

    calls: ClassVar[list[int]] = []

    def filter(self, pod, nodes, rows=EVERY_ROW):
        self.calls.append(1)
        return FilterVerdict(((nodes.pod_counts + len(self.calls)) % 2 == 0)[rows], "full")


class Open(AtMost):
    """Filter with arguments that refuse nothing, so that the suite tests nothing."""

    def filter(self, pod, nodes, rows=EVERY_ROW):
        return None


@pytest.mark.parametrize(
    ("plugin", "test", "arguments"),
    [
        (Numbers(), "test_a_verdict_has_a_mask_and_reasons", (0,)),
        (Silent(), "test_a_verdict_has_a_mask_and_reasons", (0,)),
        (Sorting(), "test_selected_rows_have_the_same_verdict", (0,)),
        (Counting(), "test_is_a_pure_function", (0,)),
        (Open(), "test_refuses_and_allows_nodes", ()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AtMost) else None,
)
def test_a_broken_filter_fails(plugin, test, arguments):
    """Each mistake fails the test that describes it."""
    suite = type("Suite", (FilterContract,), {"plugin": plugin})()
    with pytest.raises((AssertionError, PluginResultError)):
        getattr(suite, test)(*arguments)
