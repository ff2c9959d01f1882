"""docs/settings.md says every setting."""

import re
from pathlib import Path

import pytest
import yaml

from runtime.settings.loading import FILE_VARIABLE, display, environment_variable, load, setting_names
from trimaran.extender.settings import ExtenderSection
from trimaran.soft_taints.settings import NodesSection
from watcher.settings import UPSTREAM_VARIABLES, WatcherSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHART = yaml.safe_load((ROOT / "deploy/helm/trimaran/values.yaml").read_text(encoding="utf-8"))
TEXT = (DOCS / "settings.md").read_text(encoding="utf-8")
ROWS = {
    row[0].strip("`"): row[1:]
    for line in TEXT.splitlines()
    if line.startswith("| `") and (row := [cell.strip() for cell in line.strip("|").split(" | ")])
}
COMPUTED = {"provider.name", "provider.address", "host.node_name", "store.path", "watch.default_window"}


@pytest.mark.parametrize("name", list(setting_names(WatcherSettings)))
def test_each_setting_has_its_row(name: str) -> None:
    """A setting's row has its variables, ours and upstream's, its default and its meaning."""
    variables, default, meaning = (cell.strip() for cell in ROWS[name])
    upstream = [theirs for theirs, ours in UPSTREAM_VARIABLES.items() if ours == name]
    assert re.findall(r"`([A-Z_]+)`", variables) == [environment_variable(name), *upstream]
    assert meaning
    section, _, key = name.partition(".")
    value = display(getattr(getattr(load(WatcherSettings).settings, section), key))
    if name not in COMPUTED and value:
        assert default == f"`{value.lower() if value in {'True', 'False'} else value}`"


def test_no_row_is_left_over() -> None:
    """What is documented exists."""
    assert set(ROWS) == set(setting_names(WatcherSettings))


def test_the_files_variable_is_documented() -> None:
    """The environment_variable that names the settings file is in the text."""
    assert FILE_VARIABLE in TEXT


def test_every_page_names_settings_that_exist() -> None:
    """What looks like a setting of one of the sections is one, or a value of the chart: nobody is sent astray."""
    known = {
        *setting_names(WatcherSettings),
        *(f"extender.{key}" for key in ExtenderSection.model_fields),
        *(f"nodes.{key}" for key in NodesSection.model_fields),
        *(f"{part}.{key}" for part, values in CHART.items() if isinstance(values, dict) for key in values),
    }
    sections = {name.partition(".")[0] for name in known}
    pages = [page for page in DOCS.rglob("*.md") if page.name != "scores.md"]  # where nodes is a variable
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"`([a-z_]+\.[a-z_]+)(?: = [^`]*)?`", page.read_text(encoding="utf-8"))
        if name.partition(".")[0] in sections and not name.endswith((".md", ".csv", ".yaml"))
    }
    assert ("troubleshooting.md", "nodes.hot_percent") in named
    assert {(page, name) for page, name in named if name not in known} == set()


def test_the_migration_page_has_every_variable_of_load_watcher() -> None:
    """Each stands in a row with the setting that it became."""
    rows = [line for line in (DOCS / "migration.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for theirs, ours in UPSTREAM_VARIABLES.items():
        (row,) = [row for row in rows if f"`{theirs}`" in row]
        assert f"`{ours}`" in row
