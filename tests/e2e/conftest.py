"""Fixture of all tests with a control plane."""

from collections.abc import Iterator

import pytest
from control_plane import api

#: Modules that take minutes.
_LONG = {
    "test_extender", "test_faults", "test_field_trial", "test_live_replay", "test_plugin_oracle", "test_rights",
    "test_scheduler_faults", "test_uninstall",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long modules, so that the others do not end minutes before them."""
    items.sort(key=lambda item: not (item.path.stem in _LONG and item.path.parent.name == "e2e"))


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    """Close the connections that a test's requests have left in clients, also in those of wider fixtures."""
    yield
    for each in list(api.clients):
        each.close()
