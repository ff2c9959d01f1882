"""Fixtures of all tests with real nodes."""

from collections.abc import Iterator

import pytest
from control_plane import api
from real_nodes.cluster import RealCluster
from real_nodes.recorder import Recorder


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    """Close the connections that a test's requests have left in clients, also in those of wider fixtures."""
    yield
    for each in list(api.clients):
        each.close()


@pytest.fixture(scope="module")
def recorder(cluster: RealCluster) -> Iterator[Recorder]:
    """A recorder of what the nodes and pods of the module's cluster use."""
    with Recorder(cluster) as recorder:
        yield recorder
