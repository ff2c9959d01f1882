"""Settings of ``trimaran scheduler``: the sections ``scheduler`` and ``cluster``, and those of an embedded watcher."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from runtime.kubernetes.leader_election import LEASE_SECONDS
from runtime.settings.fields import ObjectName, Section, Texts
from runtime.settings.sections import ServerSettings
from scoring import FallbackPolicy
from scoring.kubernetes_version import LATEST_VERSION, known_version
from trimaran.cluster.settings import ControllerSettings

DEFAULT_PORT = 2025


class SchedulerServerSettings(ServerSettings):
    """Settings of the HTTP server for probes and metrics; its default port differs from the watcher's."""

    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="the port to listen on; 0 selects any free port")


class SchedulerSection(Section):
    """Section ``scheduler``: settings of the scheduler that needs no kube-scheduler."""

    config: Path | None = Field(None, description="KubeSchedulerConfiguration file with the profiles")
    name: str = Field(
        "", pattern=r"^$|^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$",
        description="without a file: schedulerName of the pods to place, with the default profile",
    )  # fmt: skip
    mode: Literal["bind", "shadow"] = Field(
        "bind", description="bind: place pods; shadow: only compare own decisions with those of another scheduler"
    )
    allow_plugins: Texts = Field([], description="plugins in the file that trimaran does not know, to be ignored")
    kubernetes_version: Annotated[str, BeforeValidator(known_version)] = Field(
        LATEST_VERSION, description="version of kube-scheduler whose plugins and rules of scoring apply, such as 1.37"
    )
    bind_claims: bool = Field(
        False, description="bind volume claims that wait for their pod; without it such pods stay pending"
    )
    preempt_shared: bool = Field(
        False,
        description="preempt also on nodes that other schedulers use, or may use for lack of a NoSchedule taint",
    )
    pod_group_status: bool = Field(
        False,
        description="write the status of PodGroups of scheduling.x-k8s.io, as the controller of scheduler-plugins does",
    )
    quota_status: bool = Field(
        False,
        description="write the status of ElasticQuotas of scheduling.x-k8s.io, as the controller of scheduler-plugins "
        "does",
    )
    lease_name: ObjectName = Field("trimaran-standalone", description="name of the leader election Lease")

    # Constants that once were settings: watcher/settings/removed.py has the reasons.
    max_age_seconds: ClassVar[float] = 300.0
    refresh_seconds: ClassVar[float] = 15.0
    seed: ClassVar[int | None] = None
    events_per_second: ClassVar[float] = 200.0
    workloads_refresh_seconds: ClassVar[float] = 60.0
    bind_threads: ClassVar[int] = 4
    timeout_seconds: ClassVar[float] = 10.0
    lease_seconds: ClassVar[float] = LEASE_SECONDS

    def policy(self) -> FallbackPolicy:
        """Return the policy that decides for each node whether its metrics are trusted."""
        return FallbackPolicy(max_age_seconds=self.max_age_seconds)


class SchedulerSettings(ControllerSettings):
    """All settings of ``trimaran scheduler``."""

    server: SchedulerServerSettings = Field(default_factory=SchedulerServerSettings)
    scheduler: SchedulerSection = Field(default_factory=SchedulerSection)
