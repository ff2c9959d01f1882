"""The pages about scores say what the code does."""

import doctest
import runpy
from pathlib import Path

import pytest

from scoring import PLUGINS
from scoring.configuration.plugins import RENAMED

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS / "scores.md", *sorted((DOCS / "scores").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_examples_give_what_they_show(page):
    """Every example of a page, run in order, prints what stands under it."""
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_plugin_is_documented():
    """The overview names every plugin."""
    overview = PAGES[0].read_text()
    assert [name for name in PLUGINS.difference(RENAMED) if name not in overview] == []


def test_pictures_are_current():
    """The pictures in the repository are what the script draws from the scores today."""
    script = runpy.run_path(str(DOCS / "scores" / "draw.py"))
    assert len(script["PICTURES"]) == len(PAGES) - 1
    for name, draw in script["PICTURES"].items():
        assert (DOCS / "scores" / f"{name}.svg").read_text() == draw(), f"run docs/scores/draw.py: {name} has changed"
