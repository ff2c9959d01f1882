"""Fixture of all tests with a control plane."""

from collections.abc import Iterator

import pytest
from control_plane.api import close_all


@pytest.fixture(autouse=True)
def _connections_of_one_test() -> Iterator[None]:
    """Close what a test has opened to a control plane that outlives it."""
    yield
    close_all()
