"""Hooks of mkdocs for ``make docs``: links to files outside of this folder lead to pages of the site, too.

The pages are written for the repository, where links such as ``../CHANGELOG.md`` and ``../examples/scheduler.py`` work.
Each file outside of ``docs/`` that a page links to becomes a page below ``repository/``: Markdown unchanged, notebooks
cell by cell, and source as text. Links are rewritten to these pages. Broken links stay unchanged, and strict mode
reports them.
"""

import json
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_log = logging.getLogger("mkdocs.hooks.elsewhere")  # strict mode counts warnings of mkdocs' loggers only
_ELSEWHERE = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
_CODE_OR_LINK = re.compile(
    r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence) *$|\]\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every file of the repository that a page links to, directly or through other such files."""
    from mkdocs.structure.files import File  # only where the site is built

    seen: set[str] = set()
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    while waiting:
        for target in _targets(waiting.pop()):
            if target not in seen and not target.startswith("docs/") and (ROOT / target).is_file():
                seen.add(target)
                waiting.append(target)
                files.append(File.generated(config, _page(target), content=_content(target)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite the links of a page to the pages of their files."""
    here = page.file.src_uri
    source = _source(here)

    def turned(match: re.Match[str]) -> str:
        target = match["path"] and _target(source, match["path"])
        if not target or not (ROOT / target).is_file():
            return match[0]
        there = target.removeprefix("docs/") if target.startswith("docs/") else _page(target)
        return f"]({posixpath.relpath(there, posixpath.dirname(here))}{match['anchor'] or ''})"

    return _CODE_OR_LINK.sub(turned, markdown) if source.endswith(".md") else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Remove the shell's prompt, which site.css adds, so that readers copy only the commands."""
    return html.replace('<span class="gp">$ </span>', '<span class="gp"></span>')


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Warn of a page that loads anything from another host, which would learn the reader's pages; label the search."""
    for match in _ELSEWHERE.finditer(output):
        _log.warning("%s loads from another host: %s", page.file.src_uri, match[0])
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def _page(path: str) -> str:
    """Return the path of a repository file's page, relative to ``docs/``."""
    return f"repository/{path}" if path.endswith((".md", ".svg")) else f"repository/{path}.md"


def _source(page: str) -> str:
    """Return the repository file of a page."""
    if not page.startswith("repository/"):
        return f"docs/{page}"
    path = page.removeprefix("repository/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def _content(path: str) -> str:
    """Return the page of a file: Markdown and images unchanged, a notebook's cells, or other text in a code block."""
    text = (ROOT / path).read_text(encoding="utf-8")
    match Path(path).suffix:
        case ".md" | ".svg":
            return text
        case ".ipynb":
            cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
            return "\n\n".join(words if kind == "markdown" else _block("python", words) for kind, words in cells)
        case suffix:
            language = {".py": "python"}.get(suffix, suffix.removeprefix("."))
            return f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n{_block(language, text)}"


def _block(language: str, text: str) -> str:
    return f"````````{language}\n{text}\n````````\n"


def _targets(source: str) -> Iterator[str]:
    """Yield the files that a Markdown file links to."""
    if source.endswith(".md"):
        for match in _CODE_OR_LINK.finditer((ROOT / source).read_text(encoding="utf-8")):
            if match["path"] and (target := _target(source, match["path"])):
                yield target


def _target(source: str, link: str) -> str | None:
    """Return the path in the repository that a link of a file leads to, or None if it leaves the repository."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return None if target.startswith("..") else target
