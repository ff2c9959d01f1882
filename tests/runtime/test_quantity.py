"""Kubernetes quantities, against what k8s.io/apimachinery computed."""

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
def test_every_good_vector(read: Callable[[str], int], row: dict[str, Any]) -> None:
    """Each quantity has upstream's value and milli value, and 64 bits where that is larger."""
    text, expected = row["args"]["quantity"], row["expected"]
    assert read(text) == expected.get(read.__name__, 2**63 - 1 if not text.startswith("-") else -(2**63 - 1))


@pytest.mark.parametrize("row", [row for row in ROWS if not row["expected"]["ok"]], ids=lambda row: row["case"])
def test_every_bad_vector(row: dict[str, Any]) -> None:
    """Each is refused, as upstream does."""
    for read in (quantity.value, quantity.milli_value):
        with pytest.raises(ValueError, match="not a quantity"):
            read(row["args"]["quantity"])


def test_the_vectors_are_all_there() -> None:
    """The file has its 300 rows, good ones and bad ones."""
    assert len(ROWS) == 300
    assert {row["expected"]["ok"] for row in ROWS} == {True, False}


@pytest.mark.parametrize(
    ("number", "value", "milli"),
    [(2, 2, 2000), (0.25, 1, 250), (1e16, 10**16, 10**19 // 1000 * 1000), (-1.5, -2, -1500)],
)
def test_bare_numbers(number: float, value: int, milli: int) -> None:
    """A number is read as its text would be; results stop at 64 bits."""
    assert quantity.value(number) == value
    assert quantity.milli_value(number) == min(milli, 2**63 - 1)


@pytest.mark.parametrize(
    "text", ["", "m", "Gi", "1 Gi", " 1", "1\n", "1gi", "0x10", "1e", "--1", "1_0", "\u0661", "1" * 65]
)
def test_what_is_no_quantity(text: str) -> None:
    """Text of another form is refused, and the message shows no more than the beginning of it."""
    with pytest.raises(ValueError, match="not a quantity") as caught:
        quantity.value(text)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("number", [float("nan"), float("inf"), True])
def test_what_is_no_number(number: float) -> None:
    """NaN, infinity and booleans are refused."""
    with pytest.raises(ValueError, match="not a quantity"):
        quantity.value(number)


@given(st.integers(-(10**15), 10**15))
def test_milli_and_whole_agree(milli: int) -> None:
    """N thousandths are n as milli value, and n/1000 rounded away from zero as value."""
    text = f"{milli}m"
    assert quantity.milli_value(text) == milli
    away = -(-abs(milli) // 1000)
    assert quantity.value(text) == (away if milli >= 0 else -away)


def test_huge_exponents_do_not_hang() -> None:
    """An exponent of a billion is answered at once with the 64-bit limit, and its negative with one billionth up."""
    assert quantity.value("1e1000000000") == 2**63 - 1
    assert quantity.value("1e-1000000000") == 1
