"""A service that a test starts runs in the test's network."""

from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from control_plane.network import private_network
from support.servers import Service


@pytest.mark.server
def test_a_forked_service_is_in_the_network_of_the_thread_that_starts_it(
    watch: Callable[..., Service], tmp_path: Path
) -> None:
    """The server that forks services was started elsewhere; no network sees the services of the other."""
    outside = watch("--provider", "Fake")
    assert outside.wait_for("/livez").ok
    with private_network():
        inside = watch("--provider", "Fake", store=tmp_path / "other.sqlite")
        assert inside.wait_for("/livez").ok
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{outside.url}/livez", timeout=60)
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{inside.url}/livez", timeout=60)
    assert outside.get("/livez").ok
