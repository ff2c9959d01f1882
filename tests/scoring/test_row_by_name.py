"""Rows of many names at once: always what a dictionary says."""

import random

import numpy as np
import pytest

from scoring.table.row_by_name import RowByName


@pytest.mark.parametrize("count", [1, 999, 1_000, 5_000])
def test_many_names_are_found_as_one_by_one(count: int) -> None:
    """In any order, each as often as it is asked for, however many there are; also those that share a slot."""
    names = [f"node-{number}" for number in range(count)]
    rows = RowByName(zip(names, range(count), strict=True))
    asked = random.Random(1).choices(names, k=3_000)
    assert rows.rows_of(asked).tolist() == [rows[name] for name in asked]
    assert rows.rows_of(()).tolist() == []


@pytest.mark.parametrize("count", [10, 5_000])
def test_a_name_that_is_not_there_is_named(count: int) -> None:
    """Whatever slot it falls into, a free one or another name's."""
    rows = RowByName((f"node-{number}", number) for number in range(count))
    for number in range(500):
        with pytest.raises(KeyError, match=f"other-{number}"):
            rows.rows_of(["node-1", f"other-{number}"])


def test_names_that_share_a_slot_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many slots as names a third of them find theirs taken, and are looked up by the dictionary."""
    monkeypatch.setattr("scoring.table.row_by_name._SLOTS_PER_NAME", 1)
    names = [f"node-{number}" for number in range(2_000)]
    rows = RowByName(zip(names, range(2_000), strict=True))
    taken = rows._table[:, 0] != np.arange(len(rows._table)) ^ 1
    assert taken.sum() < 1_500
    assert rows.rows_of(names).tolist() == list(range(2_000))
