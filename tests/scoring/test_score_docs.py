"""Documentation of the scores: examples and pictures match the code."""

import doctest
import runpy
from pathlib import Path

import pytest

from scoring.profiles.configuration.plugins import PLUGINS, RENAMED

DOCS = Path(__file__).parents[2] / "docs"
PLUGIN_PAGES = sorted((DOCS / "scores").glob("*.md"))
PAGES = [DOCS / "scores.md", DOCS / "four-ways.md", *PLUGIN_PAGES]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_examples_of_the_documentation_are_correct(page):
    """Every example of a page prints the output shown below it."""
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_plugin_is_documented():
    """The overview names every plugin."""
    overview = PAGES[0].read_text()
    assert [name for name in PLUGINS.difference(RENAMED) if name not in overview] == []


def test_pictures_are_current():
    """The pictures in the repository are identical to the script's output."""
    script = runpy.run_path(str(DOCS / "scores" / "draw.py"))
    assert len(script["PICTURES"]) == len(PLUGIN_PAGES)
    for name, draw in script["PICTURES"].items():
        assert (DOCS / "scores" / f"{name}.svg").read_text() == draw(), f"run docs/scores/draw.py: {name} has changed"


def test_the_picture_of_the_four_ways_is_drawn_from_the_scores():
    """The picture matches the script's output and the page's figures, and every node is the best for one way."""
    script = runpy.run_path(str(DOCS / "draw_four_ways.py"))
    picture = (DOCS / "images" / "four-ways.svg").read_text()
    assert picture == script["draw"](), "run docs/draw_four_ways.py: the scores have changed"
    page = (DOCS / "four-ways.md").read_text()
    names = [spot.name for spot in script["NODES"]]
    favorites = set()
    for way in script["WAYS"]:
        values = script["scores"](way.plugin, script["NODES"]).tolist()
        favorites.add(names[values.index(max(values))])
        assert all(f">{name} {value}</text>" in picture for name, value in zip(names, values, strict=True))
        assert " ".join(map(str, values)) in " ".join(page.replace(",", "").split())
    assert favorites == set(names)
