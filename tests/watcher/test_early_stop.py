"""SIGTERM before the server has started."""

import os
import signal

import pytest
from click.testing import CliRunner

from trimaran.cli.main import main
from watcher import commands


@pytest.fixture(autouse=True)
def _no_signal_ends_the_test_run():
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the command did not handle the signal"))
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_watch_cleanly_before_the_server_has_its_handlers(monkeypatch):
    """SIGTERM ends ``trimaran watch`` with status 0 even before the server has installed its signal handlers.

    PID 1 of a container ignores SIGTERM unless it has a handler, and would be killed after the grace period.
    """
    monkeypatch.setattr(commands, "load_or_exit", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert CliRunner().invoke(main, ["watch"]).exit_code == 0
