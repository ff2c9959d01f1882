"""Trimaran's command line with the durations of the load divided, and with a journal of the extender's decisions.

    TRIMARAN_LIVE_REPLAY_SPEED=20 [TRIMARAN_LIVE_REPLAY_JOURNAL=FILE] python divided.py watch|extender|rebalance ...

The shipped defaults stay in force; only what measures the load is divided: windows, intervals, ages, the learner's
memory, the steps of the pods' past use, and the hours of caps, pauses and gains of moves. Deadlines, timeouts, leases
and backoff are those of life.
"""

import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from journal import Journal

from runtime import duration
from runtime.settings import loading
from watcher.findings import Action

SPEED_VARIABLE, JOURNAL_VARIABLE = "TRIMARAN_LIVE_REPLAY_SPEED", "TRIMARAN_LIVE_REPLAY_JOURNAL"
#: Settings of the load, by section.
_SETTINGS = {
    "watch": ("interval_seconds", "sample_interval_seconds", "expiry_seconds"),
    "quality": ("missing_seconds", "stale_seconds", "frozen_seconds", "frozen_resting_seconds"),
    "workloads": ("interval_seconds",),
    "extender": ("refresh_seconds", "workloads_refresh_seconds", "max_age_seconds"),
    "rebalance": ("search_seconds",),
}  # fmt: skip
#: A cluster that fills up from empty looks anomalous: detectors only report it, as during the simulator's warm-up.
_FALSE_ALARMS = ("wrong_scale_action", "flatline_action", "duplicate_node_action")
#: Constants of the load, by module; a module comes before those that import its constants.
_CONSTANTS = {
    "watcher.pod_use_table": ("STEP_SECONDS",),
    "watcher.usage.learn.past_days": ("MEMORY_MINUTES",),
    "watcher.usage.learn.learner": (
        "RECENT_SECONDS", "_PRIOR_MINUTES", "_HOUR_MEMORY_MINUTES", "_UNKNOWN_MINUTES",
        "_LEVEL_SECONDS", "_LEAST_LEVEL_SECONDS", "_CLOCK_JITTER_SECONDS", "_HOUR",
    ),
    "trimaran.cluster.workload_use": ("MAX_AGE_SECONDS",),
}  # fmt: skip
#: Durations among the rules of moves, by their group.
_MOVE_RULES = {
    "": ("max_age", "measure"), "pods": ("min_age", "scaler_quiet"), "cooldowns": ("pod", "workload", "node"),
}  # fmt: skip
#: Constants of the load that only the rebalancer has.
_MOVE_CONSTANTS = {
    "trimaran.rebalancer.rules": ("CYCLE_SECONDS",),
    "trimaran.rebalancer.caps": ("HOUR", "DAY"),
    "trimaran.rebalancer.outcomes": ("_LATE",),
}


def divided_windows(windows: list[str], speed: float) -> list[str]:
    """Return windows that are as long in a faster world; a speed that divides 300 keeps whole seconds."""
    return [f"{duration.seconds(window) / speed:g}s" for window in windows]


def _divided(settings: Any, speed: float) -> Any:
    changes: dict[str, Any] = {}
    for name, keys in _SETTINGS.items():
        section = getattr(settings, name, None)
        if section is not None:
            values: dict[str, Any] = {key: getattr(section, key) / speed for key in keys}
            if name == "watch":
                values["windows"] = divided_windows(section.windows, speed)
            if name == "quality":
                values |= dict.fromkeys(_FALSE_ALARMS, Action.REPORTED)
            changes[name] = section.model_copy(update=values)
    return settings.model_copy(update=changes)


def divide_constants(speed: float, command: str) -> None:
    """Divide the constants of the load in this process; call it before other modules import them."""
    for name, constants in (_CONSTANTS | (_MOVE_CONSTANTS if command == "rebalance" else {})).items():
        module = import_module(name)
        for constant in constants:
            value = getattr(module, constant)
            setattr(module, constant, type(value)(value / speed))
    if command == "rebalance":
        rules = import_module("trimaran.rebalancer.rules")
        rules.RULES = _divided_rules(rules.RULES, speed)


def _divided_rules(rules: Any, speed: float) -> Any:
    for group, names in _MOVE_RULES.items():
        part = getattr(rules, group) if group else rules
        part = replace(part, **{name: getattr(part, name) / speed for name in names})
        rules = replace(rules, **{group: part}) if group else part
    return rules


def main() -> None:
    """Run the command line."""
    speed, load = float(os.environ[SPEED_VARIABLE]), loading.load

    def divided_load(*arguments: Any, **options: Any) -> Any:
        loaded = load(*arguments, **options)
        return replace(loaded, settings=_divided(loaded.settings, speed))

    loading.load = divided_load  # before the commands import it
    divide_constants(speed, sys.argv[1])
    if journal := os.environ.get(JOURNAL_VARIABLE):
        Journal(Path(journal)).attach()
    import_module("trimaran.cli.main").main()


if __name__ == "__main__":
    main()
