"""Tests of the lookup of providers by name."""

import sys

import pytest

from watcher.errors import SettingsError
from watcher.providers.base import open_provider
from watcher.settings import ProviderSettings, Settings


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider whose package is not installed is refused with the command that installs it."""
    monkeypatch.setitem(sys.modules, "signalfx", None)
    for name in [each for each in sys.modules if each.startswith(("signalfx.", "watcher.providers.signalfx"))]:
        monkeypatch.delitem(sys.modules, name)  # other tests of this process may have imported it
    with pytest.raises(SettingsError, match=r"SignalFx .*pip install 'signalfx>="):
        open_provider(Settings(provider=ProviderSettings(name="SignalFx", token="0123456789abcdef")))
