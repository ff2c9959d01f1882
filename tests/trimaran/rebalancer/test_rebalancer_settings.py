"""Settings of the rebalancer: documented, effective, and with a test for each protection that they belong to."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
#: Rules of each setting, by their path.
RULES_OF: dict[str, tuple[str, ...]] = {
    "min_gain": ("min_gain",),
    "startup_seconds": ("startup",),
    "holdout_percent": ("holdout_percent",),
    "timeout_seconds": ("timeout",),
    "measure_seconds": ("measure",),
    "max_age_seconds": ("max_age",),
    "percent_per_hour": ("caps.percent_per_hour",),
    "moves_per_hour": ("caps.per_hour",),
    "moves_per_day": ("caps.per_day",),
    "open_moves": ("caps.open_moves",),
    "node_moves_per_hour": ("caps.node_per_hour",),
    "namespace_moves_per_hour": ("caps.namespace_per_hour",),
    "workload_moves_per_hour": ("caps.workload_per_hour",),
    "pod_cooldown_seconds": ("cooldowns.pod",),
    "workload_cooldown_seconds": ("cooldowns.workload",),
    "node_cooldown_seconds": ("cooldowns.node",),
    "refusal_seconds": ("cooldowns.refusal",),
    "min_age_seconds": ("pods.min_age",),
    "min_replicas": ("pods.min_replicas",),
    "scaler_quiet_seconds": ("pods.scaler_quiet",),
    "namespaces": ("pods.namespaces",),
    "excluded_namespaces": ("pods.excluded_namespaces",),
    "excluded_labels": ("pods.excluded_labels",),
    "protected_priority": ("pods.protected_priority",),
    "max_pod_percent": ("pods.max_pod_percent",),
    "jobs": ("pods.jobs",),
    "local_storage": ("pods.local_storage",),
    "volumes": ("pods.volumes",),
    "cordoned": ("nodes.cordoned",),
    "source_percent": ("nodes.source_percent",),
    "target_percent": ("nodes.target_percent",),
    "bad_looks": ("nodes.bad_looks",),
    "good_looks": ("nodes.good_looks",),
    "source_taint": ("nodes.source_taint",),
    "max_disagreement_percent": ("nodes.max_disagreement",),
    "brake_failures": ("brake.max_failures",),
    "brake_unschedulable_seconds": ("brake.unschedulable",),
    "brake_restarts": ("brake.max_restarts",),
    "brake_factor": ("brake.max_unready_factor", "brake.max_pending_factor"),
}


def test_each_setting_is_documented() -> None:
    """Every setting of the section has one row in the docs, with its variable and default."""
    check_each_setting_is_documented("rebalancer.md", "rebalance", SECTION)


def test_the_defaults_are_those_of_the_rules() -> None:
    """Without settings the rules have their own defaults."""
    assert SECTION.rules() == MoveRules()


def leaves(rules: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the rules by their path, such as ``pods.jobs``."""
    found: dict[str, Any] = {}
    for name, value in rules.items():
        found |= leaves(value, f"{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def test_each_setting_has_its_rules() -> None:
    """The table has every setting that is a rule."""
    assert RULES_OF.keys() == set(type(SECTION).model_fields) - _OTHERS


@pytest.mark.parametrize("name", RULES_OF)
def test_each_setting_changes_its_own_rules(name: str) -> None:
    """Another value of a setting is the value of the rules that it belongs to, and of no others."""
    value = getattr(SECTION, name)
    other: Any = not value if isinstance(value, bool) else "other" if isinstance(value, str | list) else value + 1
    other = 0.05 if name == "percent_per_hour" else other
    changed = leaves(asdict(load(RebalanceSettings, {f"rebalance.{name}": other}).settings.rebalance.rules()))
    usual = leaves(asdict(MoveRules()))
    expected = other if not isinstance(value, list) else type(usual[RULES_OF[name][0]])([other])
    assert {path: now for path, now in changed.items() if now != usual[path]} == dict.fromkeys(RULES_OF[name], expected)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"rebalance.triggers": "time,moon"}, "must be some of time, load, nodes, pods, fragmentation, got 'moon'"),
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
