"""Settings of ``trimaran extender``: the sections ``extender`` and ``cluster``, and those of an embedded watcher."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from runtime.settings.fields import Section, Texts, http_address
from runtime.settings.sections import ServerSettings
from scoring import FallbackPolicy
from scoring.kubernetes_version import known_version
from trimaran.cluster.settings import ControllerSettings
from trimaran.extender.trial.outcomes import LoadThresholds
from trimaran.extender.trial.schedule import TrialSchedule
from trimaran.extender.trial.state import TrialPlan

DEFAULT_PORT = 2021


class ExtenderServerSettings(ServerSettings):
    """Settings of the extender's HTTP server; its default port differs from the watcher's."""

    rejected_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("dialect", "compat_open", "compat_host", "compat_port"),
        "a setting of the watcher; the extender has no dialects",
    )

    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="the port to listen on; 0 selects any free port")


class ExtenderSection(Section):
    """Section ``extender``: settings of the scores, of the filter and of the recorded decisions."""

    rejected_keys: ClassVar[Mapping[str, str]] = {"outage": "renamed to extender.on_outage"}

    config: Path | None = Field(None, description="KubeSchedulerConfiguration file with the scoring plugins")
    allow_plugins: Texts = Field(
        [],
        description="plugins in extender.config that trimaran does not know, such as those of your own scheduler, "
        "comma-separated; other unknown names are refused",
    )
    kubernetes_version: Annotated[str, BeforeValidator(known_version)] | None = Field(
        None, description="version of kube-scheduler, such as 1.37; by default the version of the API server"
    )
    mode: Literal["active", "shadow", "trial"] = Field(
        "shadow",
        description="active: send scores to kube-scheduler; shadow: only record them, and send the same score for all "
        "nodes; trial: alternate between both, and compare them",
    )
    canary: float = Field(
        100,
        ge=0,
        le=100,
        description="percentage of the pods that get scores in mode active, chosen by uid; the other pods "
        "are in shadow",
    )
    learned_use: bool = Field(
        False,
        description="expect a pod to use as much as its workload did in the past, instead of its requests; the "
        "score CongestionCost reads it",
    )
    deadline_seconds: float = Field(
        0.04,
        gt=0,
        le=5,
        description="deadline for scores, after which all nodes get the same score; must be below "
        "kube-scheduler's timeout",
    )
    on_outage: Literal["neutral", "allocation"] = Field(
        "neutral",
        description="scores if metrics are missing; neutral: the same for all nodes, allocation: best fit by requests",
    )
    filter: Literal["off", "open", "closed"] = Field(
        "off",
        description="refuse nodes over a usage limit; if all are over, open accepts all, closed makes the pod wait",
    )
    filter_cpu_percent: float = Field(
        90, gt=0, le=1000, description="limit of a node's expected CPU use with the pod, in percent of capacity"
    )
    filter_memory_percent: float = Field(
        90, gt=0, le=1000, description="limit of a node's expected memory use with the pod, in percent of capacity"
    )
    filter_max_wait_seconds: float = Field(
        300, ge=0, le=86400, description="longest time that filter closed makes a pod wait; then all nodes pass"
    )
    filter_exempt_namespaces: Texts = Field(
        ["kube-system"], description="namespaces whose pods are never filtered, comma-separated"
    )
    explain: Literal["review", "open"] = Field(
        "review",
        description="access to /explain and /decisions; review: only Kubernetes users with permission to get the pods, "
        "open: everyone",
    )
    events_namespace: str | None = Field(
        None,
        description="namespace for the Events about outages; by default the namespace of the extender's pod, or "
        "`default` outside of a cluster; empty: write no Events",
    )

    trial_name: str = Field(
        "trial",
        pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
        description="name of the field trial, which determines the order of its blocks; a new trial needs a new name",
    )
    trial_block_seconds: int = Field(
        1800,
        ge=10,
        le=86400,
        description="length of a block of the field trial; at least twice the window of the metrics",
    )
    trial_pairs: int = Field(
        96, ge=6, le=2000, description="pairs of blocks, one active and one in shadow, after which the field trial ends"
    )
    trial_query: str = Field("", description="PromQL query for one value, recorded for each block; lower is better")
    trial_prometheus: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="address of the Prometheus for the query; by default provider.address"
    )

    # Constants that once were settings: watcher/settings/removed.py has the reasons.
    hot_percent: ClassVar[float] = 80.0
    decisions: ClassVar[int] = 10000
    trial_harm_points: ClassVar[float] = 35.0
    trial_limit_percent: ClassVar[float] = 95.0
    workloads_refresh_seconds: ClassVar[float] = 60.0
    bad_ratio: ClassVar[float] = 0.5
    assume_seconds: ClassVar[float] = 30.0
    seed: ClassVar[int | None] = None
    refresh_seconds: ClassVar[float] = 15.0
    max_age_seconds: ClassVar[float] = 300.0
    assume: ClassVar[bool] = True

    def trial_plan(self) -> TrialPlan:
        """Return the settings of the field trial."""
        return TrialPlan(
            TrialSchedule(self.trial_name, self.trial_block_seconds, self.trial_pairs),
            LoadThresholds(self.hot_percent, self.trial_limit_percent),
            self.trial_harm_points,
            self.trial_query,
        )

    def policy(self) -> FallbackPolicy:
        """Return the policy that decides for each node whether its metrics are trusted."""
        return FallbackPolicy(max_age_seconds=self.max_age_seconds, bad_ratio=self.bad_ratio)

    def event_namespace(self) -> str:
        """Return the namespace for Events, in which the shipped accounts may create them; "" for no Events."""
        from runtime.kubernetes.api import pod_namespace  # not needed for a command's options

        return pod_namespace() or "default" if self.events_namespace is None else self.events_namespace


class ExtenderSettings(ControllerSettings):
    """All settings of ``trimaran extender``."""

    server: ExtenderServerSettings = Field(default_factory=ExtenderServerSettings)
    extender: ExtenderSection = Field(default_factory=ExtenderSection)
