"""The documentation's site and its Markdown; ``make docs`` checks the links."""

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
    """Return a page's Markdown after the site's hooks."""
    return HOOKS["on_page_markdown"](markdown, page=SimpleNamespace(file=SimpleNamespace(src_uri=page)))


@pytest.mark.parametrize(
    ("page", "markdown", "expected"),
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
def test_links_lead_to_pages_of_the_site(page: str, markdown: str, expected: str) -> None:
    """Links to files outside docs/ lead to their pages; code, external and broken links do not change."""
    assert on_site(page, markdown) == expected


def test_source_and_notebooks_become_pages() -> None:
    """A source file becomes a code block, and a notebook its cells."""
    source = HOOKS["_content"]("scoring/plugins/base.py")
    assert "# scoring/plugins/base.py\n\n````````python\n" in source
    assert (ROOT / "scoring/plugins/base.py").read_text() in source
    notebook = HOOKS["_content"]("examples/notebook.ipynb")
    assert "## The last day" in notebook
    assert "````````python\nsnapshot = watcher.metrics()\nsnapshot\n````````" in notebook


def test_resources_of_other_hosts_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Fonts and scripts from other hosts cause a warning, an error in strict mode; ordinary links do not."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri="api.md"))
    HOOKS["on_post_page"]('<a href="https://example.com">x</a><script src="assets/x.js"></script>', page=page)
    assert not caplog.records
    HOOKS["on_post_page"]('<link rel="stylesheet" href="https://fonts.example.com/x.css">', page=page)
    (record,) = caplog.records
    assert "api.md loads from another host: <link" in record.message
    assert record.name.startswith("mkdocs.")


def test_copied_text_has_no_shell_prompt() -> None:
    """The style sheet draws the shell's prompt; Python's stays in the text to separate input from output."""
    block = '<span class="gp">$ </span>trimaran top\n<span class="gp">&gt;&gt;&gt; </span>1'
    changed = HOOKS["on_page_content"](block)
    assert re.sub(r"<[^>]+>", "", changed) == "trimaran top\n&gt;&gt;&gt; 1"
    assert ".gp:empty::before" in (ROOT / "docs" / "site.css").read_text()


@pytest.mark.parametrize("package", ["client", "scoring", "watcher"])
def test_the_reference_has_every_export(package: str) -> None:
    """A package's page lists exactly its exports, each once."""
    text = (ROOT / "docs" / "reference" / f"{package}.md").read_text()
    names = re.findall(rf"^::: {package}\.([A-Z]\w*|[a-z_]+)$", text, re.MULTILINE)
    modules = {"errors"} if package == "watcher" else set()
    assert sorted(set(names) - modules) == sorted(import_module(package).__all__)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_renders_the_same_everywhere(page: Path) -> None:
    """The page has empty lines before lists and tables, and indents blocks in lists by four spaces."""
    text = re.sub(
        r"^( *)```.*?^\1```$", lambda block: f"{block[1]}CODE", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    wrong, before, in_list = [], "", False
    for number, line in enumerate(text.splitlines(), 1):
        item = re.match(r"( *)(?:[-*]|\d+\.) ", line)
        row = line.startswith("|")
        if item and before.strip() and not in_list:
            wrong.append((number, "a list right after text"))
        if row and before.strip() and not before.startswith("|"):
            wrong.append((number, "a table right after text"))
        if in_list and not before.strip() and re.match(r" {1,3}\S", line):
            wrong.append((number, "a block in a list, not four spaces in"))
        in_list = bool(item) or (in_list and (not line.strip() or line.startswith(" ")))
        before = line
    assert wrong == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_of_the_parts_matches_its_script(theme: str) -> None:
    """docs/images/parts-*.svg equal the output of docs/draw_parts.py."""
    script = runpy.run_path(str(ROOT / "docs" / "draw_parts.py"))
    picture = (ROOT / "docs" / "images" / f"parts-{theme}.svg").read_text()
    assert picture == script["drawing"](script["THEMES"][theme]), "run docs/draw_parts.py"
