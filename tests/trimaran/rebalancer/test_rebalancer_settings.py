"""Settings of the rebalancer: documented, effective, and with a test for each protection that they belong to."""

import re
from pathlib import Path

import pytest
from support.documented import check_each_setting_is_documented

from runtime.errors import SettingsError
from runtime.settings.loading import load
from trimaran.rebalancer.rules import MoveRules
from trimaran.rebalancer.settings import RebalanceSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/rebalancer.md").read_text()
SECTION = load(RebalanceSettings).settings.rebalance
#: Settings that are no rules of moves.
_OTHERS = {
    "mode", "triggers", "search_seconds", "interval_seconds", "hot_percent", "watcher", "watcher_token_file",
    "watcher_ca_file", "kube_config", "kube_context", "lease_namespace", "lease_name", "lease_seconds",
}  # fmt: skip


def test_each_setting_is_documented() -> None:
    """Every setting of the section has one row in the docs, with its variable and default."""
    check_each_setting_is_documented("rebalancer.md", "rebalance", SECTION)


def test_the_defaults_are_those_of_the_rules() -> None:
    """Without settings the rules have their own defaults."""
    assert SECTION.rules() == MoveRules()


@pytest.mark.parametrize("name", sorted(set(type(SECTION).model_fields) - _OTHERS))
def test_each_rule_has_an_effect(name: str) -> None:
    """Another value of the setting gives other rules."""
    value = getattr(SECTION, name)
    other: object = not value if isinstance(value, bool) else "other" if isinstance(value, str | list) else value + 1
    other = 0.05 if name == "percent_per_hour" else other
    assert load(RebalanceSettings, {f"rebalance.{name}": other}).settings.rebalance.rules() != MoveRules()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"rebalance.triggers": "time,moon"}, "must be some of time, load, nodes, pods, fragmentation, got moon"),
        ({"rebalance.target_percent": 90}, "target_percent 90 must be below source_percent 80"),
        ({"rebalance.mode": "on"}, "rebalance.mode"),
    ],
)
def test_wrong_settings_are_named(flags: dict[str, object], problem: str) -> None:
    """A wrong setting is refused with its name and the possible values."""
    with pytest.raises(SettingsError, match=problem):
        load(RebalanceSettings, flags)


def test_each_protection_has_a_setting_and_a_test() -> None:
    """The table of the 18 protections names settings and tests that exist."""
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(1, 19))
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    named = 0
    for _, _, settings, proofs in rows:
        for setting in re.findall(r"`([a-z_]+)`", settings):
            assert setting in type(SECTION).model_fields
            named += 1
        for proof in re.findall(r"`(test_\w+)`", proofs):
            assert f"def {proof}(" in tests
    assert named > 30
