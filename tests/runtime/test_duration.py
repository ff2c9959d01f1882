"""Durations in the syntax of Prometheus."""

import pytest

from runtime import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300), ("90s", 90), ("15m", 900), ("6h", 21600), ("1h30m", 5400), ("1d", 86400), ("2w", 1209600),
     ("05m", 300), ("1w1d1h1m1s", 694861)],
)  # fmt: skip
def test_durations(text: str, seconds: int) -> None:
    """Units are read alone and combined in falling order."""
    assert duration.seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "0h0m", "15", "m", "-5m", "1.5h", "5 m", "5M", "1m1h", "5m5m", "5m\n",
             "\u0665m", "1" * 10 + "s", "x" * 10_000]
)  # fmt: skip
def test_other_texts_are_rejected(text: str) -> None:
    """Any other text, and zero, is rejected with a short message that has an example."""
    with pytest.raises(ValueError, match="15m") as caught:
        duration.seconds(text)
    assert len(str(caught.value)) < 120
