"""Kubernetes quantities, compared with k8s.io/apimachinery."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes import quantity

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "vectors" / "quantities.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("row", [row for row in ROWS if row["expected"]["ok"]], ids=lambda row: row["case"])
@pytest.mark.parametrize("read", [quantity.value, quantity.milli_value])
def test_valid_quantities_match_upstream(read: Callable[[str], int], row: dict[str, Any]) -> None:
    """A quantity has upstream's value and milli value, limited to 64 bits."""
    text, expected = row["args"]["quantity"], row["expected"]
    assert read(text) == expected.get(read.__name__, 2**63 - 1 if not text.startswith("-") else -(2**63 - 1))


@pytest.mark.parametrize("row", [row for row in ROWS if not row["expected"]["ok"]], ids=lambda row: row["case"])
def test_invalid_quantities_match_upstream(row: dict[str, Any]) -> None:
    """A quantity that upstream rejects is rejected."""
    for read in (quantity.value, quantity.milli_value):
        with pytest.raises(ValueError, match="not a quantity"):
            read(row["args"]["quantity"])


def test_the_file_of_vectors_is_complete() -> None:
    """The file has 300 rows, with valid and invalid quantities."""
    assert len(ROWS) == 300
    assert {row["expected"]["ok"] for row in ROWS} == {True, False}


@pytest.mark.parametrize(
    ("number", "value", "milli"),
    [(2, 2, 2000), (0.25, 1, 250), (1e16, 10**16, 10**19 // 1000 * 1000), (-1.5, -2, -1500)],
)
def test_numbers(number: float, value: int, milli: int) -> None:
    """A number is read as its text would be, and the result is limited to 64 bits."""
    assert quantity.value(number) == value
    assert quantity.milli_value(number) == min(milli, 2**63 - 1)


@pytest.mark.parametrize(
    "written",
    ["", "m", "Gi", "1 Gi", " 1", "1\n", "1gi", "0x10", "1e", "--1", "1_0", "\u0661", "1" * 65, float("nan"),
     float("inf"), True],
)  # fmt: skip
def test_other_values_are_rejected(written: str | float) -> None:
    """Other texts, NaN, infinity and booleans are rejected with a message that quotes only the beginning."""
    with pytest.raises(ValueError, match="not a quantity") as caught:
        quantity.value(written)
    assert len(str(caught.value)) < 100


@given(st.integers(-(10**15), 10**15))
def test_value_is_the_rounded_milli_value(milli: int) -> None:
    """The value is the milli value divided by 1000, rounded away from zero."""
    text = f"{milli}m"
    assert quantity.milli_value(text) == milli
    away = -(-abs(milli) // 1000)
    assert quantity.value(text) == (away if milli >= 0 else -away)


def test_huge_exponents_do_not_hang() -> None:
    """A huge exponent gives the 64-bit limit at once, and a huge negative one is rounded up to 1."""
    assert quantity.value("1e1000000000") == 2**63 - 1
    assert quantity.value("1e-1000000000") == 1
