"""Rows of many names at once: equal to a dictionary's lookups."""

import random

import numpy as np
import pytest

from scoring.table.row_by_name import RowByName


@pytest.mark.parametrize("count", [1, 999, 1_000, 5_000])
def test_many_lookups_equal_single_lookups(count: int) -> None:
    """Rows are correct for names in any order, repeated names and names that share a slot."""
    names = [f"node-{number}" for number in range(count)]
    rows = RowByName(zip(names, range(count), strict=True))
    choices = random.Random(1).choices(names, k=3_000)
    assert rows.rows_of(choices).tolist() == [rows[name] for name in choices]
    assert rows.rows_of(()).tolist() == []


@pytest.mark.parametrize("count", [10, 5_000])
def test_an_unknown_name_is_refused(count: int) -> None:
    """The error has the unknown name, whether its slot is empty or taken."""
    rows = RowByName((f"node-{number}", number) for number in range(count))
    for number in range(500):
        with pytest.raises(KeyError, match=f"other-{number}"):
            rows.rows_of(["node-1", f"other-{number}"])


def test_colliding_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names without a slot of their own are looked up in the dictionary, here a third of all."""
    monkeypatch.setattr("scoring.table.row_by_name._SLOTS_PER_NAME", 1)
    names = [f"node-{number}" for number in range(2_000)]
    rows = RowByName(zip(names, range(2_000), strict=True))
    used_slots = rows._table[:, 0] != np.arange(len(rows._table)) ^ 1
    assert used_slots.sum() < 1_500
    assert rows.rows_of(names).tolist() == list(range(2_000))
