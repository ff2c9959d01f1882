"""Searches in a row that find a node: how many it takes to confirm the node, and how many to clear it."""

import pytest

from trimaran.rebalancer.bad_looks import BadLooks


@pytest.mark.parametrize(
    ("searches", "confirmed"),
    [
        ("BB", False),
        ("BBB", True),
        ("BBGB", False),  # not in a row
        ("BBGBB", False),
        ("BBGBBB", True),
        ("BBBG", True),  # one good search does not clear it
        ("BBBGBG", True),  # nor do two that are not in a row
        ("BBBGG", False),
        ("BBBGGBB", False),
    ],
)
def test_bad_searches_in_a_row_confirm_and_good_ones_clear(searches: str, confirmed: bool) -> None:
    """Three bad searches (B) in a row confirm a node, and two good ones (G) in a row clear it."""
    looks = BadLooks(3, 2)
    for each in searches:
        looks.observe(["node"] if each == "B" else [])
    assert looks.is_confirmed("node") is confirmed
    assert not looks.is_confirmed("other")


def test_searches_go_on_while_a_node_is_counted() -> None:
    """A node that was found needs the missing searches; a confirmed or cleared one needs none."""
    looks = BadLooks(2, 1)
    found = []
    for names in ((), ("node",), ("node",), ()):
        looks.observe(names)
        found.append((looks.is_counting, looks.missing("node")))
    assert found == [(False, 2), (True, 1), (False, 0), (False, 2)]


def test_a_pause_begins_the_count_again() -> None:
    """Searches before a pause no longer count."""
    looks = BadLooks(2, 2)
    for _ in range(2):
        looks.observe(["node"])
    looks.forget()
    assert not looks.is_confirmed("node")
    looks.observe(["node"])
    assert not looks.is_confirmed("node")
