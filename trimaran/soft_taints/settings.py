"""Settings of ``trimaran nodes``: the sections ``nodes`` and ``cluster``, and those of an embedded watcher."""

from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from runtime.kubernetes.leader_election import LEASE_SECONDS
from runtime.settings.fields import ObjectName, Section, comma_separated, duration_text
from runtime.settings.sections import ServerSettings
from trimaran.cluster.settings import ControllerSettings
from trimaran.soft_taints.hysteresis import HotNodeRule
from trimaran.soft_taints.writer import WRITE_SECONDS, WritePlan

DEFAULT_PORT = 2023


class NodesServerSettings(ServerSettings):
    """Settings of the HTTP server for probes and metrics; its default port differs from the watcher's."""

    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="the port to listen on; 0 selects any free port")


class NodesSection(Section):
    """Section ``nodes``: settings of the taints and annotations that are written on nodes."""

    taints: bool = Field(False, description="taint hot nodes with PreferNoSchedule")
    windows: Annotated[list[Annotated[str, AfterValidator(duration_text)]], BeforeValidator(comma_separated)] = Field(
        [], description="windows whose average load is written as annotations, comma-separated, such as 15m,5m"
    )
    hot_percent: float = Field(
        80, gt=0, le=100, description="CPU or memory load in percent at which a node becomes hot"
    )
    cool_percent: float = Field(
        70, gt=0, le=100, description="load in percent below which a hot node counts as normal again"
    )
    taint_key: str = Field(
        "trimaran.io/hot", pattern=r"^[a-z0-9][-a-z0-9./]{0,120}$", description="key of the taint on hot nodes"
    )
    warm_percent: float = Field(
        0, ge=0, le=100, description="load in percent at which a node gets the taint of warm nodes; 0 for no such taint"
    )
    whole_number: bool = Field(
        False, description="also annotate the higher load of each window as one whole number, per mille"
    )
    writes_per_minute: float = Field(60, ge=1, le=100_000, description="largest number of node patches per minute")
    lease_name: ObjectName = Field("trimaran-nodes", description="name of the leader election Lease")

    # Constants that once were settings: watcher/settings/removed.py has the reasons.
    max_age_seconds: ClassVar[float] = 300.0
    refresh_seconds: ClassVar[float] = 600.0
    lease_seconds: ClassVar[float] = LEASE_SECONDS
    interval_seconds: ClassVar[float] = 30.0
    step_percent: ClassVar[float] = 5.0
    min_hot_seconds: ClassVar[float] = 300.0
    max_hot_fraction: ClassVar[float] = 0.25
    warm_taint_key: ClassVar[str] = "trimaran.io/warm"

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        self.plan()
        return self

    def plan(self) -> WritePlan:
        """Return the options of the node writer that these settings describe."""
        rule = HotNodeRule(self.hot_percent, self.cool_percent, self.min_hot_seconds, self.max_hot_fraction)
        if self.warm_percent >= self.hot_percent:
            raise ValueError(f"warm_percent {self.warm_percent:g} must be below hot_percent {self.hot_percent:g}")
        if self.warm_taint_key == self.taint_key:
            raise ValueError(f"taint_key must not be {self.taint_key}, the key of the taint on warm nodes")
        windows = tuple(dict.fromkeys(self.windows))
        # A term is two thirds of the Lease's duration: a write that begins at its end ends before another term begins.
        seconds = min(WRITE_SECONDS, self.lease_seconds / 3)
        return WritePlan(
            self.taints, rule, self.taint_key, windows, self.step_percent, self.refresh_seconds, self.writes_per_minute,
            self.max_age_seconds, seconds, rule.warm(self.warm_percent) if self.warm_percent else None,
            self.warm_taint_key, self.whole_number,
        )  # fmt: skip


class NodesSettings(ControllerSettings):
    """All settings of ``trimaran nodes``."""

    server: NodesServerSettings = Field(default_factory=NodesServerSettings)
    nodes: NodesSection = Field(default_factory=NodesSection)
