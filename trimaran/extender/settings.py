"""The extender's settings: those of the watcher, which it embeds in library mode, and its own section."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from runtime.settings.fields import comma_separated
from scoring import FallbackPolicy
from trimaran.cluster.settings import ClusterSection
from watcher.settings import ServerSettings, Settings

DEFAULT_PORT = 2021
_OF_DIALECTS = frozenset({"dialect", "compat_open", "compat_host", "compat_port"})


class ExtenderServerSettings(ServerSettings):
    """The extender's HTTP API: the watcher's settings but those of its dialects, on a port of its own."""

    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="the port to listen on; 0 takes any free one")

    @model_validator(mode="after")
    def _has_no_dialects(self) -> Self:
        if own := sorted(self.model_fields_set & _OF_DIALECTS):
            raise ValueError(f"{', '.join(own)}: settings of a watcher's answers, of which the extender gives none")
        return self


class ExtenderSection(ClusterSection):
    """What to score by, where from, and what to do without."""

    config: Path | None = Field(None, description="the KubeSchedulerConfiguration whose plugins score")
    mode: Literal["active", "shadow"] = Field(
        "active", description="shadow: answer all nodes alike, and record what would have been chosen"
    )
    canary: float = Field(
        100,
        ge=0,
        le=100,
        description="percent of the pods, by uid, that mode active acts for; the others are in shadow",
    )
    deadline_seconds: float = Field(
        0.04, gt=0, le=5, description="after this time all nodes are answered alike; below kube-scheduler's httpTimeout"
    )
    refresh_seconds: float = Field(15, ge=0.1, le=600, description="time between reads of the watcher")
    max_age_seconds: float = Field(300, gt=0, le=86400, description="older metrics are none")
    bad_ratio: float = Field(
        0.5, ge=0, le=1, description="above this share of nodes that are not measured all are answered alike"
    )
    outage: Literal["alike", "allocation"] = Field(
        "alike", description="without metrics: all nodes alike, or best fit by allocation"
    )
    assume: bool = Field(True, description="count the best node as taken until the API server says where the pod went")
    assume_seconds: float = Field(30, gt=0, le=3600, description="for so long without a word of the API server")
    seed: int | None = Field(None, description="of the draw among equally good nodes to assume; none: at random")
    filter: Literal["off", "open", "closed"] = Field(
        "off", description="keep pods off nodes over a limit; where all are: open lets pods pass, closed lets them wait"
    )
    filter_cpu_percent: float = Field(90, gt=0, le=1000, description="CPU a node may be expected to use with the pod")
    filter_memory_percent: float = Field(90, gt=0, le=1000, description="memory, the same")
    filter_max_wait_seconds: float = Field(300, ge=0, le=86400, description="after which a pod that waits passes")
    filter_exempt_namespaces: Annotated[list[str], BeforeValidator(comma_separated)] = Field(
        ["kube-system"], description="whose pods always pass, comma-separated"
    )
    explain: Literal["review", "open"] = Field(
        "review",
        description="who reads /explain and /decisions: those whose token may get the pods, or all who are admitted",
    )
    decisions: int = Field(10_000, ge=1, le=1_000_000, description="how many are kept to explain, in 64 MB at most")
    hot_percent: float = Field(80, gt=0, le=100, description="of CPU or memory; from here on a node is called hot")
    events_namespace: str = Field("default", description="where an outage is told by an Event; empty: nowhere")

    def policy(self) -> FallbackPolicy:
        """Return when metrics are trusted."""
        return FallbackPolicy(max_age_seconds=self.max_age_seconds, bad_ratio=self.bad_ratio)


class ExtenderSettings(Settings):
    """All that ``trimaran extender`` can be told."""

    server: ExtenderServerSettings = Field(default_factory=ExtenderServerSettings)
    extender: ExtenderSection = Field(default_factory=ExtenderSection)
