"""Tests of the translation from labels to node names."""

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
def test_only_the_port_is_removed(label: str, name: str) -> None:
    """Only the port is removed; domains, addresses and unknown names are unchanged."""
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
def test_listed_node_is_found_by_its_labels(words: tuple[str, ...], name: str) -> None:
    """Name, address, address and port, longer and shorter forms all give the node's name."""
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
def test_uncertain_names_have_a_problem(words: tuple[str, ...], problem: str) -> None:
    """An ambiguous or unlisted label is not a node where nodes are listed, and the problem has the reason."""
    resolved = NAMES.resolve(*words)
    assert problem in resolved.problem
    assert not resolved.name


def test_a_list_of_other_machines_hides_no_node() -> None:
    """If not a single series fits a listed node, each keeps its own name, with a problem."""
    found = NAMES.resolve_all([("10.0.0.7:9100",), ("web-1",)])
    assert {each.name for each in found.values()} == {"10.0.0.7", "web-1"}
    assert all("4 nodes" in each.problem for each in found.values())
    found = NAMES.resolve_all([("10.0.0.7:9100",), ("web-1",), ("node-1",)])
    assert {each.name for each in found.values()} == {"", "node-1"}
    assert sum("4 nodes" in each.problem for each in found.values()) == 2


@pytest.mark.parametrize(
    "words", [("NODE-1",), ("", "Node-1:9100"), ("Node-2.Example.COM",), ("NODE-2",), ("EXPORTER-7:9100",)]
)
def test_host_names_have_no_case(words: tuple[str, ...]) -> None:
    """A listed name is found in any case, in the spelling of the list; without a list the spelling stays."""
    assert NAMES.resolve(*words) in (Resolved("node-1"), Resolved("node-2.example.com"))
    assert NodeNames(["Node-1"]).resolve("node-1") == Resolved("Node-1")
    assert NodeNames(["Node-1", "node-1"]).resolve("node-1") == Resolved("node-1")
    assert NodeNames.unknown().resolve("Node-1") == Resolved("Node-1")


def test_names_have_priority_over_addresses() -> None:
    """Without a list of nodes, an alias resolves an address, and a name with dots is unchanged."""
    names = NodeNames(aliases={"10.0.0.1:9100": ["worker-1"]})
    assert names.resolve("10.0.0.1:9100") == Resolved("worker-1")
    assert names.resolve("", "worker-2.example.com:9100") == Resolved("worker-2.example.com")
    assert names.resolve("10.0.0.2:9100", "worker-3") == Resolved("worker-3")


def test_shortened_names_stay_separate() -> None:
    """Two long names that would be shortened to one listed name are no node, with a problem each."""
    found = NAMES.resolve_all([("node-1.blue",), ("node-1.green:9100",)])
    assert {each.name for each in found.values()} == {""}
    assert all("not served" in each.problem for each in found.values())


def test_hosts_named_localhost_stay_separate() -> None:
    """Without a list of nodes, an alias shared by many hosts is not used."""
    names = NodeNames(aliases={f"10.0.0.{number}:9100": ["localhost"] for number in (1, 2)})
    found = names.resolve_all([("10.0.0.1:9100",), ("10.0.0.2:9100",)])
    assert {each.name for each in found.values()} == {"10.0.0.1", "10.0.0.2"}


def test_listed_node_may_have_several_addresses() -> None:
    """Two addresses of one listed node, and its name, give that node."""
    names = NodeNames(["node-1"], {"10.0.0.1": ["node-1"], "fd00::1": ["node-1"]})
    words = [("10.0.0.1:9100",), ("[fd00::1]:9100",), ("node-1",)]
    assert set(names.resolve_all(words).values()) == {Resolved("node-1")}
