"""Configuration files and programs in the documentation: they can be used unchanged."""

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from runtime.settings.loading import load
from scoring import read_configuration
from trimaran.extender.settings import ExtenderSettings

ROOT = Path(__file__).parents[2]


class Block(NamedTuple):
    """A code block of a page, without its indentation."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(language: str) -> list[Block]:
    """Return the code blocks of a language in README.md and docs/."""
    result = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^( *)```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
            lines = (line.removeprefix(match[1]) for line in match[2].splitlines())
            result.append(Block(str(page.relative_to(ROOT)), text.count("\n", 0, match.start()) + 1, "\n".join(lines)))
    assert result
    return result


@pytest.mark.parametrize("block", [block for block in blocks("toml") if "[project" not in block.text], ids=str)
def test_settings_files_can_be_used(block: Block, tmp_path: Path) -> None:
    """Each settings file is valid for the watcher or the extender."""
    file = tmp_path / "settings.toml"
    file.write_text(block.text)
    load(ExtenderSettings, {}, file)  # these include the watcher's settings


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_yaml(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each YAML block can be parsed, and scheduler configurations have no unknown keys."""
    for document in yaml.safe_load_all(block.text):
        if isinstance(document, dict) and document.get("kind") == "KubeSchedulerConfiguration":
            monkeypatch.syspath_prepend(str(ROOT / "examples" / "plugin"))
            example = importlib.import_module("trimaran_cool_memory").CoolMemory
            notes = read_configuration(document, plugins=[example]).notes
            assert [note for note in notes if note.status == "unknown"] == []


@pytest.mark.parametrize("block", [block for block in blocks("python") if ">>>" not in block.text], ids=str)
def test_python_is_python(block: Block) -> None:
    """Each Python block compiles and imports existing names; other tests run the blocks with ``>>>``."""
    compile(block.text, str(block), "exec")
    for module, names in re.findall(r"^from (\S+) import ([\w, ]+)$", block.text, re.MULTILINE):
        if (ROOT / module.partition(".")[0]).is_dir():
            imported = importlib.import_module(module)
            assert [name for name in names.split(", ") if not hasattr(imported, name)] == []


def test_the_documented_sizes_equal_the_charts() -> None:
    """docs/sizing.md lists the requests and limits of the chart's sizes."""
    sizes = yaml.safe_load((ROOT / "deploy/helm/trimaran/files/sizes.yaml").read_text())["watcher"]
    chart = {
        name: (size["requests"]["memory"], size["limits"]["memory"], size["requests"]["cpu"])
        for name, size in sizes.items()
    }
    page = (ROOT / "docs" / "sizing.md").read_text().replace(",", "")
    rows = re.findall(r"^\| .* \| (\d+) MiB (\d+) MiB \| (\d+m) \| `(\w+)` \|$", page, re.MULTILINE)
    assert {name: (f"{ask}Mi", f"{most}Mi", cpu) for ask, most, cpu, name in rows} == chart
