"""Settings that there are no longer: refused by every program that reads their section, with what holds instead."""

import pytest

from runtime.errors import SettingsError
from runtime.settings.loading import load, setting_names
from trimaran.extender.settings import ExtenderSettings
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.scheduler.service.settings import SchedulerSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import Settings, WatcherSettings
from watcher.settings.removed import REMOVED

MODELS: dict[str, type[Settings]] = {
    "extender": ExtenderSettings, "nodes": NodesSettings, "rebalance": RebalanceSettings,
    "scheduler": SchedulerSettings,
}  # fmt: skip
MOST_SETTINGS = 161


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_setting_is_refused_with_what_holds_instead(name: str) -> None:
    """The error has the name, its origin and the reason, and no similar name; no setting has the name."""
    model = MODELS.get(name.partition(".")[0], WatcherSettings)
    assert name not in set(setting_names(model))
    with pytest.raises(SettingsError) as caught:
        load(model, {name: "1"})
    assert caught.value.problems == (f"{name} (command line): is no longer a setting: {REMOVED[name]}",)


def test_there_are_no_more_settings_than_a_person_can_know() -> None:
    """The number of settings of all programs only shrinks: a new one takes another one's place."""
    names = {name for model in (*MODELS.values(), WatcherSettings) for name in setting_names(model)}
    assert len(names) <= MOST_SETTINGS
