"""The plugin that manifests, chart, commands and pages use by default: the one whose figures the evidence shows."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trimaran.cli.main import main
from trimaran.plugins import DEFAULT_PLUGIN
from trimaran.scheduler.profiles.configuration import default_document
from trimaran.simulator.policies.catalogue import configuration_of

ROOT = Path(__file__).parents[2]
OURS = {"CongestionCost", "LoadVariationRiskBalancing", "LowRiskOverCommitment", "Peaks", "TargetLoadPacking"}
FILES = [path for path in (ROOT / "deploy").rglob("*.yaml") if "templates" not in path.parts]
MANIFESTS = [path for path in FILES if "plugins" in path.read_text()]
#: Pages that show a first installation, up to where they speak of other plugins.
PAGES = ("docs/extender.md", "docs/quick-start.md", "docs/adopt.md", "README.md")


def enabled(document: Any) -> list[str]:
    """Return the names of our plugins that a parsed file enables, in the texts that it embeds, too."""
    match document:
        case {"name": str(name), "weight": _}:
            return [name] if name in OURS else []
        case dict():
            return [name for value in document.values() for name in enabled(value)]
        case list():
            return [name for value in document for name in enabled(value)]
        case str() if "\nkind: KubeSchedulerConfiguration" in document:
            return enabled(yaml.safe_load(document))
    return []


@pytest.mark.parametrize("path", MANIFESTS, ids=[str(path.relative_to(ROOT / "deploy")) for path in MANIFESTS])
def test_manifests_and_chart_enable_it(path: Path) -> None:
    """Every manifest and the chart's values enable the plugin by default, and no other one of ours."""
    found = [name for document in yaml.safe_load_all(path.read_text()) for name in enabled(document)]
    assert set(found) <= {DEFAULT_PLUGIN}
    if path.name in {"extender.yaml", "scheduler.yaml", "standalone-scheduler.yaml", "values.yaml"}:
        assert found


@pytest.mark.parametrize("name", PAGES)
def test_pages_show_it(name: str) -> None:
    """Configurations and imports on the pages of a first installation name the plugin by default."""
    for block in re.findall(r"```(?:yaml|python)\n(.*?)```", (ROOT / name).read_text(), re.DOTALL):
        assert set(re.findall(r"\b[A-Z]\w+\b", block)) & OURS <= {DEFAULT_PLUGIN}


def test_commands_and_replays_use_it() -> None:
    """``trimaran score``, ``trimaran scheduler`` and the policies of the evidence use the plugin by default."""
    assert enabled(default_document("trimaran")) == [DEFAULT_PLUGIN]
    assert f"[default: {DEFAULT_PLUGIN}," in " ".join(CliRunner().invoke(main, ["score", "--help"]).stdout.split())
    assert f"**Which plugin?** [{DEFAULT_PLUGIN}]" in (ROOT / "docs/faq.md").read_text()


def test_the_replayed_file_is_the_one_that_is_installed() -> None:
    """The policies of the evidence score by the plugins and weights of the extender's manifest."""
    manifest = yaml.safe_load_all((ROOT / "deploy/kubernetes/extender.yaml").read_text())
    (installed,) = (
        yaml.safe_load(document["data"]["scheduler.yaml"]) for document in manifest if document["kind"] == "ConfigMap"
    )
    (profile,), (replayed,) = installed["profiles"], configuration_of(DEFAULT_PLUGIN)["profiles"]
    assert profile["plugins"] == replayed["plugins"]
    assert "pluginConfig" not in profile
