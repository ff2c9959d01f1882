"""The settings of ``trimaran nodes``: those of the watcher, which it embeds in library mode, and its own section."""

from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from runtime.settings.fields import comma_separated, duration_text
from trimaran.cluster.settings import ClusterSection
from trimaran.soft_taints.hysteresis import HeatRule
from trimaran.soft_taints.writer import Plan
from watcher.settings import ServerSettings, Settings

DEFAULT_PORT = 2022
_LABEL = r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"


class NodesServerSettings(ServerSettings):
    """Probes and metrics: the watcher's settings, on a port of its own."""

    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="the port to listen on; 0 takes any free one")


class NodesSection(ClusterSection):
    """What to write on nodes, and how much at most."""

    taints: bool = Field(False, description="taint hot nodes with PreferNoSchedule")
    windows: Annotated[list[Annotated[str, AfterValidator(duration_text)]], BeforeValidator(comma_separated)] = Field(
        [], description="windows whose load annotations tell, comma-separated, such as 15m,5m"
    )
    hot_percent: float = Field(80, gt=0, le=100, description="of CPU or memory; from here on a node becomes hot")
    cool_percent: float = Field(70, gt=0, le=100, description="below this it is no longer")
    hold_seconds: float = Field(300, ge=0, le=86400, description="how long a node is hot at least")
    most_share: float = Field(0.25, ge=0, le=1, description="of all nodes that are hot at once")
    taint_key: str = Field("trimaran.io/hot", pattern=r"^[a-z0-9][-a-z0-9./]{0,120}$", description="of the taint")
    step_percent: float = Field(5, gt=0, le=50, description="between the values that annotations tell")
    writes_per_minute: float = Field(60, ge=1, le=100_000, description="writes of nodes, of all together")
    interval_seconds: float = Field(30, ge=0.1, le=600, description="time between two turns")
    max_age_seconds: float = Field(300, gt=0, le=86400, description="older metrics are none")
    lease_namespace: str = Field("trimaran", pattern=_LABEL, description="where the Lease is")
    lease_name: str = Field("trimaran-nodes", pattern=_LABEL, description="the Lease of the one that writes")
    lease_seconds: float = Field(15, ge=3, le=600, description="after which another one takes over")

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        self.plan()
        return self

    def plan(self) -> Plan:
        """Return what to write."""
        rule = HeatRule(self.hot_percent, self.cool_percent, self.hold_seconds, self.most_share)
        windows = tuple(dict.fromkeys(self.windows))
        return Plan(
            self.taints, rule, self.taint_key, windows, self.step_percent, self.writes_per_minute, self.max_age_seconds
        )


class NodesSettings(Settings):
    """All that ``trimaran nodes`` can be told."""

    server: NodesServerSettings = Field(default_factory=NodesServerSettings)
    nodes: NodesSection = Field(default_factory=NodesSection)
