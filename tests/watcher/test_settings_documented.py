"""docs/settings.md documents every setting."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from support.documented import check_each_setting_is_documented

from runtime.settings.loading import FILE_VARIABLE, display, environment_variable, load, setting_names
from trimaran.cluster.settings import ClusterSection
from trimaran.extender.settings import ExtenderSection
from trimaran.rebalancer.settings import RebalanceSection
from trimaran.scheduler.service.settings import SchedulerSection
from trimaran.soft_taints.settings import NodesSection
from watcher.settings import UPSTREAM_VARIABLES, WatcherSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHART = yaml.safe_load((ROOT / "deploy/helm/trimaran/values.yaml").read_text(encoding="utf-8"))
TEXT = (DOCS / "settings.md").read_text(encoding="utf-8").partition("## Removed")[0]
ROWS = {
    row[0].strip("`"): row[1:]
    for line in TEXT.splitlines()
    if line.startswith("| `")
    and not line.startswith("| `cluster.")
    and (row := [cell.strip() for cell in line.strip("|").split(" | ")])
}
COMPUTED = {"provider.name", "provider.address", "host.node_name", "store.path", "watch.default_window"}


@pytest.mark.parametrize("name", list(setting_names(WatcherSettings)))
def test_each_setting_has_its_row(name: str) -> None:
    """A setting's row has its environment variables, including load-watcher's, its default and its meaning."""
    variables, default, meaning = (cell.strip() for cell in ROWS[name])
    upstream = [theirs for theirs, ours in UPSTREAM_VARIABLES.items() if ours == name]
    assert re.findall(r"`([A-Z_]+)`", variables) == [environment_variable(name), *upstream]
    assert meaning
    section, _, key = name.partition(".")
    value = display(getattr(getattr(load(WatcherSettings).settings, section), key))
    if name not in COMPUTED and value:
        assert default == f"`{value.lower() if value in {'True', 'False'} else value}`"


def test_documented_settings_exist() -> None:
    """Every documented setting exists."""
    assert set(ROWS) == set(setting_names(WatcherSettings))


@pytest.mark.parametrize(
    ("page", "name", "section"),
    [
        ("settings.md", "cluster", ClusterSection()),
        ("extender.md", "extender", ExtenderSection()),
        ("nodes.md", "nodes", NodesSection()),
        ("rebalancer.md", "rebalance", RebalanceSection()),
        ("scheduler.md", "scheduler", SchedulerSection()),
    ],
)
def test_the_sections_of_other_programs_are_documented(page: str, name: str, section: BaseModel) -> None:
    """Every setting of a section has one row in the docs, with its variable and default."""
    check_each_setting_is_documented(page, name, section)


def test_the_files_variable_is_documented() -> None:
    """The environment variable that names the settings file is documented."""
    assert FILE_VARIABLE in TEXT


def test_every_page_names_settings_that_exist() -> None:
    """Every name on a page that looks like a setting is a setting or a value of the Helm chart."""
    known = {
        *setting_names(WatcherSettings),
        *(f"cluster.{key}" for key in ClusterSection.model_fields),
        *(f"extender.{key}" for key in ExtenderSection.model_fields),
        *(f"nodes.{key}" for key in NodesSection.model_fields),
        *(f"scheduler.{key}" for key in SchedulerSection.model_fields),
        *(f"rebalance.{key}" for key in RebalanceSection.model_fields),
        *(f"{part}.{key}" for part, values in CHART.items() if isinstance(values, dict) for key in values),
    }
    sections = {name.partition(".")[0] for name in known}
    pages = [page for page in DOCS.rglob("*.md") if page.name != "scores.md"]  # in scores.md, nodes is a variable
    texts = {page: TEXT if page.name == "settings.md" else page.read_text(encoding="utf-8") for page in pages}
    named = {
        (page.name, name)
        for page, text in texts.items()
        for name in re.findall(r"`([a-z_]+\.[a-z_]+)(?: = [^`]*)?`", text)
        if name.partition(".")[0] in sections and not name.endswith((".md", ".csv", ".yaml"))
    }
    assert ("troubleshooting.md", "nodes.hot_percent") in named
    assert {(page, name) for page, name in named if name not in known} == set()


def test_the_migration_page_has_every_variable_of_load_watcher() -> None:
    """docs/migration.md has a row for each variable of load-watcher, with the setting that replaces it."""
    rows = [line for line in (DOCS / "migration.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for theirs, ours in UPSTREAM_VARIABLES.items():
        (row,) = [row for row in rows if f"`{theirs}`" in row]
        assert f"`{ours}`" in row
