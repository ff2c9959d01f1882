"""Tests of pairs of nodes that report the same series, with one fetch a minute."""

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from watcher.quality.duplicates import Duplicates

START = 1_700_000_000


def pairs(fetches: Iterable[Mapping[str, tuple[float, float]]]) -> list[list[tuple[str, str, float]]]:
    """Return the pairs in each fetch of averages and deviations, with the fetch since which their nodes are equal."""
    detector, result = Duplicates(), []
    for fetch, nodes in enumerate(fetches):
        names, values = list(nodes), np.array([*nodes.values()], float)
        found = detector.judge(START + 60 * fetch, names, values)
        result.append([(names[one], names[two], (since - START) / 60) for one, two, since in found])
    return result


@pytest.mark.parametrize(("step", "first"), [(1.0, 7), (-2.0, 7), (0.5, 12), (0.0, 16)])
def test_six_changes_to_equal_values_are_evidence(step: float, first: int) -> None:
    """A pair is found after six changes by at least 1 percent, since its first fetch with equal values."""
    equal = ({"a": (40 + step * fetch, 2), "c": (70 - fetch, 3), "b": (40 + step * fetch, 2)} for fetch in range(1, 16))
    found = pairs([{"a": (40, 2), "c": (70, 3), "b": (50, 2)}, *equal])
    assert found == [[]] * first + [[("a", "b", 1)]] * (16 - first)


def test_another_deviation_ends_the_evidence() -> None:
    """A fetch with equal averages but another deviation ends the evidence; the pair counts from the next fetch."""
    found = pairs({"a": (20 + fetch, 2), "b": (20 + fetch, 2.5 if fetch == 6 else 2)} for fetch in range(14))
    assert found == [[]] * 6 + [[]] * 7 + [[("a", "b", 7)]]


def test_only_pairs_are_found() -> None:
    """Pairs are found in any order of the nodes; idle nodes and three equal ones are not pairs, but may become one."""
    loads = {"a": 20, "i": 0, "b": 30, "c": 20, "d": 50, "e": 30, "j": 0, "f": 50}
    fetches = [
        {node: (load + fetch if load else 5 * (fetch % 2), 2) for node, load in loads.items()}
        | {"k": (30 + fetch if fetch in {3, 4} else 90, 2)}
        for fetch in range(9)
    ]
    two = [("a", "c", 0), ("d", "f", 0)]
    assert pairs(fetches) == [[]] * 6 + [two] * 2 + [[two[0], ("b", "e", 0), two[1]]]


def test_pair_follows_its_nodes() -> None:
    """Evidence stays with the nodes if the order of the nodes changes, and when the pair is absent for a fetch."""
    orders = ["cab"] * 3 + ["cba"] * 4 + ["bad", "d", "dba"]
    fetches = [{node: (90, 9) if node in "cd" else (20 + fetch, 2) for node in orders[fetch]} for fetch in range(10)]
    assert pairs(fetches) == [[]] * 6 + [[("b", "a", 0)]] * 2 + [[], [("b", "a", 0)]]
