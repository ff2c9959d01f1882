"""Settings of ``trimaran rebalance``: the sections ``rebalance`` and ``cluster``, and those of an embedded watcher."""

from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from runtime.errors import quoted
from runtime.settings.fields import ObjectName, Section, Texts
from runtime.settings.sections import ServerSettings
from trimaran.cluster.settings import ControllerSettings
from trimaran.planning.move_triggers import Trigger
from trimaran.rebalancer.rules import RULES, MoveRules

DEFAULT_PORT = 2024


def _triggers(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in set(Trigger)]
    if unknown or not names:
        raise ValueError(
            f"must be one or more of {', '.join(Trigger)}, got {quoted(', '.join(unknown)) if unknown else 'none'}"
        )
    return names


class RebalanceServerSettings(ServerSettings):
    """Settings of the HTTP server for probes, metrics and plans; its default port differs from the watcher's."""

    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="the port to listen on; 0 selects any free port")


def _limit(rule: str, description: str, **bounds: Any) -> Any:
    """Declare a setting for a rule, with the default of the rule.

    Args:
        rule: path of the rule in :class:`MoveRules`, such as ``caps.per_hour``.
        description: effect of the setting.
        bounds: bounds of the value, as keyword arguments of pydantic's ``Field``.
    """
    default = attrgetter(rule)(RULES)
    shown = sorted(default) if isinstance(default, frozenset | tuple) else default
    if isinstance(shown, float) and shown.is_integer():
        shown = int(shown)  # 80, not 80.0, where the default is shown
    return Field(shown, description=description, json_schema_extra={"rule": rule}, **bounds)


class RebalanceSection(Section):
    """Section ``rebalance``: settings of the moves of running pods. All other rules are constants of ``rules``."""

    mode: Literal["observe", "act"] = Field("observe", description="observe plans only and writes nothing; act moves")
    triggers: Annotated[Texts, AfterValidator(_triggers)] = Field(
        ["time"], description="what starts a search: time, load, nodes, pods, fragmentation; comma-separated"
    )
    search_seconds: float = Field(300, ge=1, le=86400, description="time between two searches for moves")
    min_gain: float = _limit(
        "min_gain", "least reduction of the average cost by a move; a hot node costs 1", ge=0, le=10
    )
    source_percent: float = _limit(
        "nodes.source_percent", "CPU or memory load in percent that a source reached within the last day", gt=0, le=200
    )
    target_percent: float = _limit(
        "nodes.target_percent",
        "highest load in percent of a target in the last hour, with the pod; below source_percent", gt=0, le=200,
    )  # fmt: skip
    source_taint: str = _limit(
        "nodes.source_taint", "key of the soft taint that a source must have, such as trimaran.io/hot", max_length=120
    )
    percent_per_hour: float = _limit(
        "caps.percent_per_hour", "most moves per hour in percent of the running pods, but at least one", gt=0, le=100
    )
    moves_per_hour: int = _limit("caps.per_hour", "most moves per hour in all", ge=1, le=1000)
    moves_per_day: int = _limit("caps.per_day", "most moves per day in all", ge=1, le=1000)
    namespace_moves_per_hour: int = _limit(
        "caps.namespace_per_hour", "most moves per hour in a namespace", ge=1, le=1000
    )
    namespaces: Texts = _limit("pods.namespaces", "the only namespaces whose pods move, comma-separated; empty for all")
    excluded_namespaces: Texts = _limit("pods.excluded_namespaces", "namespaces whose pods never move, comma-separated")
    excluded_labels: Texts = _limit("pods.excluded_labels", "labels, key or key=value, of pods that never move")
    brake_failures: int = _limit(
        "brake.max_failures", "how many of the last 20 moves may have gained nothing; one more sets the brake",
        ge=0, le=20,
    )  # fmt: skip
    lease_name: ObjectName = Field("trimaran-rebalancer", description="name of the Lease and of the ConfigMap")

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        self.rules()
        return self

    @classmethod
    def rule_paths(cls) -> dict[str, str]:
        """Return the path of the rule that a setting sets, by name of the setting."""
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        return {name: str(extra["rule"]) for name, extra in extras.items() if isinstance(extra, dict)}

    def rules(self) -> MoveRules:
        """Return the rules that these settings describe."""
        changes: dict[str, dict[str, Any]] = {}
        for name, path in self.rule_paths().items():
            group, _, rule = path.rpartition(".")
            kind = type(attrgetter(path)(RULES))
            changes.setdefault(group, {})[rule] = kind(getattr(self, name))
        own = changes.pop("")
        return replace(
            RULES, **own, **{group: replace(getattr(RULES, group), **values) for group, values in changes.items()}
        )


class RebalanceSettings(ControllerSettings):
    """All settings of ``trimaran rebalance``."""

    server: RebalanceServerSettings = Field(default_factory=RebalanceServerSettings)
    rebalance: RebalanceSection = Field(default_factory=RebalanceSection)
