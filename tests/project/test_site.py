"""What makes a site of the documentation, and keeps its pages readable without it; `make docs` checks the links."""

import re
import runpy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([
    *(path for folder in ("docs", "research") for path in (ROOT / folder).rglob("*.md")),
    *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md",
])  # fmt: skip
HOOKS = runpy.run_path(str(ROOT / "docs" / "mkdocs_hooks.py"))


def on_site(page: str, markdown: str) -> str:
    """Return a page's text as the site has it."""
    return HOOKS["on_page_markdown"](markdown, page=SimpleNamespace(file=SimpleNamespace(src_uri=page)))


@pytest.mark.parametrize(
    ("page", "written", "turned"),
    [
        ("api.md", "[a](scores.md#arguments)", "[a](scores.md#arguments)"),
        ("api.md", "[a](../CHANGELOG.md)", "[a](repository/CHANGELOG.md)"),
        ("clusters/kind.md", "[a](../deploy.md)", "[a](../deploy.md)"),
        ("cluster.md", "[a](../scoring/table/node_table.py)", "[a](repository/scoring/table/node_table.py.md)"),
        ("repository/benchmarks/README.md", "[a](../docs/placement.md)", "[a](../../placement.md)"),
        ("repository/CHANGELOG.md", "[a](docs/scores/peaks.md)", "[a](../scores/peaks.md)"),
        ("repository/research/tbesk/README.md", "![a](figure-2.svg)", "![a](figure-2.svg)"),
        ("api.md", "[a](https://example.com/x.md) [b](#history)", "[a](https://example.com/x.md) [b](#history)"),
        ("api.md", "```\n[a](../CHANGELOG.md)\n```", "```\n[a](../CHANGELOG.md)\n```"),
        ("api.md", "[a](../nowhere.md)", "[a](../nowhere.md)"),
        ("repository/examples/scheduler.py.md", "[a](../README.md)", "[a](../README.md)"),
    ],
)
def test_links_lead_to_pages_of_the_site(page: str, written: str, turned: str) -> None:
    """Files outside of docs/ have pages; what is code, elsewhere or nowhere is left alone."""
    assert on_site(page, written) == turned


def test_source_and_notebooks_become_pages() -> None:
    """A file's text is a block of its language, a notebook its cells."""
    source = HOOKS["_content"]("scoring/plugins/base.py")
    assert "# scoring/plugins/base.py\n\n````````python\n" in source
    assert (ROOT / "scoring/plugins/base.py").read_text() in source
    notebook = HOOKS["_content"]("examples/notebook.ipynb")
    assert "## The last day" in notebook
    assert "````````python\nsnapshot = watcher.metrics()\nsnapshot\n````````" in notebook


def test_what_is_loaded_from_elsewhere_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A font or script of another host is a warning, which strict mode counts; links that are followed are none."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri="api.md"))
    HOOKS["on_post_page"]('<a href="https://example.com">x</a><script src="assets/x.js"></script>', page=page)
    assert not caplog.records
    HOOKS["on_post_page"]('<link rel="stylesheet" href="https://fonts.example.com/x.css">', page=page)
    (record,) = caplog.records
    assert "api.md loads from another host: <link" in record.message
    assert record.name.startswith("mkdocs.")


def test_what_is_copied_is_a_command() -> None:
    """The shell's prompt is drawn by the style sheet; Python's stays, as it tells input from output."""
    block = '<span class="gp">$ </span>trimaran top\n<span class="gp">&gt;&gt;&gt; </span>1'
    turned = HOOKS["on_page_content"](block)
    assert re.sub(r"<[^>]+>", "", turned) == "trimaran top\n&gt;&gt;&gt; 1"
    assert ".gp:empty::before" in (ROOT / "docs" / "site.css").read_text()


@pytest.mark.parametrize("package", ["client", "scoring", "watcher"])
def test_the_reference_has_every_export(package: str) -> None:
    """What a package exports stands on its page, each name once, and nothing that it does not export."""
    text = (ROOT / "docs" / "reference" / f"{package}.md").read_text()
    names = re.findall(rf"^::: {package}\.([A-Z]\w*|[a-z_]+)$", text, re.MULTILINE)
    modules = {"errors"} if package == "watcher" else set()
    assert sorted(set(names) - modules) == sorted(import_module(package).__all__)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_reads_alike_everywhere(page: Path) -> None:
    """The site's Markdown wants an empty line before lists and tables, and blocks within lists four spaces in."""
    text = re.sub(
        r"^( *)```.*?^\1```$", lambda block: f"{block[1]}CODE", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    wrong, before, listed = [], "", False
    for number, line in enumerate(text.splitlines(), 1):
        item = re.match(r"( *)(?:[-*]|\d+\.) ", line)
        row = line.startswith("|")
        if item and before.strip() and not listed:
            wrong.append((number, "a list right after text"))
        if row and before.strip() and not before.startswith("|"):
            wrong.append((number, "a table right after text"))
        if listed and not before.strip() and re.match(r" {1,3}\S", line):
            wrong.append((number, "a block in a list, not four spaces in"))
        listed = bool(item) or (listed and (not line.strip() or line.startswith(" ")))
        before = line
    assert wrong == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_of_the_parts_is_drawn_by_its_script(theme: str) -> None:
    """docs/images/parts-*.svg are the output of docs/draw_parts.py."""
    script = runpy.run_path(str(ROOT / "docs" / "draw_parts.py"))
    picture = (ROOT / "docs" / "images" / f"parts-{theme}.svg").read_text()
    assert picture == script["drawing"](script["THEMES"][theme]), "run docs/draw_parts.py"
