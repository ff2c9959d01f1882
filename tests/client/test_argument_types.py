"""Arguments of another type raise at the call, with their name; none is an empty result."""

from collections.abc import Callable
from typing import Any

import pytest

from client import connect
from watcher.settings import ProviderSettings, Settings


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda client: client.pod_history("node-1"), "nodes"),
        (lambda client: client.pod_history(None), "nodes"),
        (lambda client: client.pod_history(["node-1"], "web"), "pods"),
        (lambda client: client.metrics(5), "window"),
        (lambda client: client.node_metrics(None), "node"),
        (lambda client: client.history(["node-1"]), "host"),
        (lambda client: client.history(type=5), "type"),
    ],
)
@pytest.mark.parametrize("address", ["http://127.0.0.1:9", None], ids=["service", "embedded"])
def test_an_argument_of_another_type_is_named(address: str | None, call: Callable[[Any], object], problem: str) -> None:
    """A name for a list of names would be taken for its letters, and find nothing."""
    settings = None if address else Settings(provider=ProviderSettings(name="Fake"))
    with connect(address, settings=settings) as client, pytest.raises(TypeError, match=problem):
        call(client)


def test_arguments_about_workloads_have_a_type() -> None:
    """A text is no workload, although it may have three letters."""
    with connect("http://127.0.0.1:9") as client:
        with pytest.raises(TypeError, match="workload:"):
            client.workload_detail("web")
        with pytest.raises(TypeError, match="namespace:"):
            client.workload_document(5)
    with pytest.raises(TypeError, match="address:"):
        connect(5)


def test_a_missing_ca_file_is_named_at_once() -> None:
    """Also for an address without TLS, where the file would never be read."""
    with pytest.raises(ValueError, match=r"ca_file: nowhere\.pem"):
        connect("http://127.0.0.1:9", ca_file="nowhere.pem")


def test_an_empty_address_is_no_embedded_watcher() -> None:
    """An address that was not set must not start a watcher of this machine."""
    with pytest.raises(ValueError, match="URL"):
        connect("")
