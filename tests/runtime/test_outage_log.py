"""Log lines of an outage."""

import logging
from types import SimpleNamespace

import pytest

from runtime.outage_log import OutageLog


@pytest.fixture
def clock() -> SimpleNamespace:
    """Return a clock that the test sets."""
    return SimpleNamespace(now=1000.0)


@pytest.fixture
def log(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> OutageLog:
    """Return the log of an action."""
    caplog.set_level(logging.INFO)
    return OutageLog(logging.getLogger("action"), "it fails", "it works again", lambda: clock.now)


def test_reminders_come_at_growing_intervals(
    log: OutageLog, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure every 15 seconds for 5 hours is logged at its begin, after 1, 3, 7 minutes, and so on, then hourly."""
    for second in range(0, 5 * 3600, 15):
        clock.now = 1000.0 + second
        log.failed(f"no answer within {second} s")
    minutes = [(getattr(record, "failing_seconds", 0)) // 60 for record in caplog.records]
    assert minutes == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_a_new_cause_and_the_recovery_are_logged(
    log: OutageLog, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Each cause is logged once, also when causes alternate; the end is logged once; a new outage is logged."""
    log.worked()
    for cause in ("refused", "refused", "no route", "refused", "no route"):
        clock.now += 5
        log.failed(cause, where="here")
    log.worked()
    log.worked()
    log.failed("refused")
    assert [(record.message, getattr(record, "error", "")) for record in caplog.records] == [
        ("it fails", "refused"), ("it fails", "no route"), ("it works again", ""), ("it fails", "refused"),
    ]  # fmt: skip
    assert vars(caplog.records[0])["where"] == "here"
    assert vars(caplog.records[2])["failed_seconds"] == 20
