"""Fixture of all tests with real nodes."""

from collections.abc import Iterator

import pytest
from control_plane import api


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    """Close the connections that a test's requests have left in clients, also in those of wider fixtures."""
    yield
    for each in list(api.clients):
        each.close()
