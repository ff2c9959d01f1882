"""From a label to a node name."""

import pytest

from watcher.node_names import without_port


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("node-1", "node-1"),
        ("node-1:9100", "node-1"),
        ("node-1.example.com:9100", "node-1.example.com"),
        ("node-1.example.com", "node-1.example.com"),
        ("10.0.0.1:9100", "10.0.0.1"),
        ("[fe80::1]:9100", "fe80::1"),
        ("fe80::1", "fe80::1"),
        ("node-1:", "node-1:"),
        ("node-1:metrics", "node-1:metrics"),
        (":9100", ":9100"),
        ("", ""),
    ],
)
def test_only_a_port_is_cut_off(label: str, name: str) -> None:
    """A port goes; domains, addresses and anything unknown stay as they are."""
    assert without_port(label) == name
