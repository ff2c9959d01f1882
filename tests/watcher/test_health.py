"""Reasons and warnings of the health report."""

import contextlib
from collections.abc import Iterator

import pytest

from watcher.findings import Finding, Kind
from watcher.pipeline import health
from watcher.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with contextlib.closing(Store(None)) as opened:
        yield opened


def test_windows_with_the_same_reason_share_a_line() -> None:
    """Windows that failed for the same reason share one line; other windows have their own."""
    reasons = health.reasons(
        {"15m": "no route", "10m": "no route", "5m": "refused"}, [], {"15m": 400.4}, ["15m", "10m", "5m"]
    )
    assert reasons == (
        "windows 15m, 10m: no route",
        "window 5m: refused",
        "window 15m: the last metrics are 400 s old",
        "windows 10m, 5m: no metrics yet",
    )
    assert health.reasons({}, [Finding(Kind.SPIKE, "60 points", "15m", "a")], {"15m": 3.0}, []) == ()


def test_a_failed_source_is_a_reason_while_earlier_samples_suffice() -> None:
    """A window that is served from earlier samples of a source that fails now is not healthy."""
    findings = [Finding(Kind.FETCH_FAILED, "no new samples: no route", window) for window in ("15m", "10m")]
    assert health.reasons({"10m": "no route"}, findings, {"15m": 3.0, "10m": 63.0}, []) == (
        "window 10m: no route",
        "window 15m: no new samples: no route",
    )


@pytest.mark.parametrize(
    ("count", "shown"), [(2, "(n0, 5m; n1, 5m)"), (7, "(n0, 5m; n1, 5m; n2, 5m; n3, 5m; n4, 5m; ...)")]
)
def test_warnings_name_nodes_and_windows(store: Store, count: int, shown: str) -> None:
    """Equal findings become one warning with a few nodes and windows; failed fetches are reasons, not warnings."""
    findings = [Finding(Kind.LOW_COVERAGE, "only 22% has samples", "5m", f"n{number}") for number in range(count)]
    findings += [Finding(Kind.FETCH_FAILED, "no route", "15m"), Finding(Kind.FELL_BACK, "the second answered")]
    assert health.warnings(store, findings) == (
        "fell_back: the second answered",
        f"low_coverage: only 22% has samples {shown}",
    )


def test_warnings_are_bounded(store: Store) -> None:
    """The report has at most ten different warnings."""
    findings = [Finding(Kind.SPIKE, f"{number} points", "5m", "a") for number in range(100)]
    assert len(health.warnings(store, findings)) == 10
