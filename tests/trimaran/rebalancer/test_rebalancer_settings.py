"""Settings of the rebalancer: documented, effective, and with a test for each protection that they belong to."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import SettingsError
from runtime.settings.loading import load
from trimaran.rebalancer.rules import MoveRules
from trimaran.rebalancer.settings import RebalanceSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/rebalancer.md").read_text()
SECTION = load(RebalanceSettings).settings.rebalance
#: Settings with the rule of each, written out: read from the settings, two swapped rules would pass.
RULES_OF = {
    "min_gain": "min_gain",
    "source_percent": "nodes.source_percent",
    "target_percent": "nodes.target_percent",
    "source_taint": "nodes.source_taint",
    "percent_per_hour": "caps.percent_per_hour",
    "moves_per_hour": "caps.per_hour",
    "moves_per_day": "caps.per_day",
    "namespace_moves_per_hour": "caps.namespace_per_hour",
    "namespaces": "pods.namespaces",
    "excluded_namespaces": "pods.excluded_namespaces",
    "excluded_labels": "pods.excluded_labels",
    "brake_failures": "brake.max_failures",
}


def test_the_defaults_are_those_of_the_rules() -> None:
    """Without settings the rules have their own defaults."""
    assert SECTION.rules() == MoveRules()


def leaves(rules: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the rules by their path, such as ``pods.jobs``."""
    found: dict[str, Any] = {}
    for name, value in rules.items():
        found |= leaves(value, f"{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def test_each_rule_with_a_setting_is_tested() -> None:
    """The list above has every setting of a rule."""
    assert list(type(SECTION).rule_paths()) == list(RULES_OF)


@pytest.mark.parametrize("name", RULES_OF)
def test_each_setting_changes_its_own_rules(name: str) -> None:
    """Another value of a setting is the value of the rule that it belongs to, and of no other."""
    value = getattr(SECTION, name)
    other: Any = not value if isinstance(value, bool) else "other" if isinstance(value, str | list) else value + 1
    other = 0.05 if name == "percent_per_hour" else other
    changed = leaves(asdict(load(RebalanceSettings, {f"rebalance.{name}": other}).settings.rebalance.rules()))
    usual = leaves(asdict(MoveRules()))
    expected = other if not isinstance(value, list) else type(usual[RULES_OF[name]])([other])
    assert {path: now for path, now in changed.items() if now != usual[path]} == {RULES_OF[name]: expected}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            {"rebalance.triggers": "time,moon"},
            "must be one or more of time, load, nodes, pods, fragmentation, got 'moon'",
        ),
        ({"rebalance.target_percent": 90}, "target_percent 90 must be below source_percent 80"),
        ({"rebalance.mode": "on"}, "rebalance.mode"),
    ],
)
def test_wrong_settings_are_named(flags: dict[str, object], problem: str) -> None:
    """A wrong setting is refused with its name and the possible values."""
    with pytest.raises(SettingsError, match=problem):
        load(RebalanceSettings, flags)


def test_each_protection_has_a_setting_and_a_test() -> None:
    """The table of the 18 protections has a setting or a fixed limit for each, and settings and tests that exist."""
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(1, 19))
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    for _, _, settings, proofs in rows:
        assert settings
        for setting in re.findall(r"`([a-z_]+)`", settings):
            assert setting in type(SECTION).model_fields
        for proof in re.findall(r"`(test_\w+)`", proofs):
            assert f"def {proof}(" in tests
