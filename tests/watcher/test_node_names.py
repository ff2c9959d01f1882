"""From a label to a node name."""

import pytest

from watcher.providers.node_names import NodeNames, Resolved, without_port


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


NAMES = NodeNames(
    ["node-1", "node-2.example.com", "node-3.example.com", "node-3.example.org"],
    {"10.0.0.1": ["node-1"], "10.0.0.9": ["node-1", "node-2.example.com"], "exporter-7:9100": ["node-2.example.com"]},
)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("node-1",), "node-1"),
        (("node-1:9100",), "node-1"),
        (("", "10.0.0.1:9100"), "node-1"),
        (("10.0.0.1",), "node-1"),
        (("exporter-7:9100",), "node-2.example.com"),
        (("node-2",), "node-2.example.com"),
        (("node-1.example.com",), "node-1"),
        (("unheard-of", "node-1:9100"), "node-1"),
    ],
)
def test_a_listed_node_is_found_by_all_its_words(words: tuple[str, ...], name: str) -> None:
    """Name, address, address and port, longer and shorter forms all lead to the node's name."""
    assert NAMES.resolve(*words) == Resolved(name)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("node-3",), "may be any of the nodes node-3.example.com, node-3.example.org"),
        (("10.0.0.9:9100",), "may be any of the nodes node-1, node-2.example.com"),
        (("10.0.0.7:9100",), "is not one of the 4 nodes"),
        ((), "no label"),
        (("", ""), "no label"),
    ],
)
def test_what_is_doubtful_is_said(words: tuple[str, ...], problem: str) -> None:
    """An ambiguous or unlisted word stays as it is, without its port, and says why."""
    resolved = NAMES.resolve(*words)
    assert problem in resolved.problem
    assert resolved.name == without_port(next(filter(None, words), ""))


def test_without_a_list_names_win_over_addresses() -> None:
    """Where no list of nodes is known, an alias resolves an address, and a name stays whatever dots it has."""
    names = NodeNames(aliases={"10.0.0.1:9100": ["worker-1"]})
    assert names.resolve("10.0.0.1:9100") == Resolved("worker-1")
    assert names.resolve("", "worker-2.example.com:9100") == Resolved("worker-2.example.com")
    assert names.resolve("10.0.0.2:9100", "worker-3") == Resolved("worker-3")


def test_cutting_never_makes_two_nodes_one() -> None:
    """Two long names that would both be cut to one listed name are kept apart, with a problem each."""
    found = NAMES.resolve_all([("node-1.blue",), ("node-1.green:9100",)])
    assert {each.name for each in found.values()} == {"node-1.blue", "node-1.green"}
    assert all("served under their own names" in each.problem for each in found.values())


def test_hosts_that_all_call_themselves_localhost_are_kept_apart() -> None:
    """Without a list of nodes, an alias that many hosts share is not believed."""
    names = NodeNames(aliases={f"10.0.0.{number}:9100": ["localhost"] for number in (1, 2)})
    found = names.resolve_all([("10.0.0.1:9100",), ("10.0.0.2:9100",)])
    assert {each.name for each in found.values()} == {"10.0.0.1", "10.0.0.2"}


def test_a_listed_node_may_have_several_addresses() -> None:
    """Two addresses of one listed node are that node, and so is its name."""
    names = NodeNames(["node-1"], {"10.0.0.1": ["node-1"], "fd00::1": ["node-1"]})
    words = [("10.0.0.1:9100",), ("[fd00::1]:9100",), ("node-1",)]
    assert set(names.resolve_all(words).values()) == {Resolved("node-1")}
