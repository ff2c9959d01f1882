"""Fixtures of tests with a control plane."""

import contextlib
import os
from collections.abc import Iterator

import pytest
from control_plane import api
from control_plane.network import private_network

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


@pytest.fixture
def own_network() -> Iterator[None]:
    """Run the test and what it starts in a network of its own: manifests have ports that other tests use meanwhile.

    Only root may create one; others share the machine's, and must run one such test at a time.
    """
    with private_network() if os.geteuid() == 0 else contextlib.nullcontext():
        yield
