"""Settings of workloads: the use of every container, and the names of workloads."""

from typing import ClassVar, Literal

from pydantic import Field

from runtime.settings.fields import Section, Texts

RuleName = Literal["vpa", "krr"]


class WorkloadSettings(Section):
    """Settings of the measurement of pods by workload."""

    enabled: bool = Field(
        True, description="measure the use of every container, if the provider and the permissions allow it"
    )
    owner_labels: Texts = Field(
        [],
        description="labels of pods that name their workload, the most important first, such as "
        "serving.knative.dev/service; other pods are named by their controllers",
    )
    access: Literal["auto", "open", "review", "closed"] = Field(
        "auto",
        description="access to /workloads and /pods; open: everyone whom the server admits sees all, review: callers "
        "with a Kubernetes token see the workloads of namespaces whose pods they may list, others totals only, closed: "
        "all see totals only, auto: open on a loopback address and where the server requires a token or a client "
        "certificate, otherwise closed",
    )
    interval_seconds: float = Field(
        300,
        ge=60,
        le=3600,
        description="seconds from one measurement of all containers to the next, and the window of their CPU use",
    )

    backfill_days: int = Field(
        14,
        ge=0,
        le=14,
        description="days of past use of containers to read from Prometheus at the first start; 0 reads nothing",
    )
    rule: RuleName = Field(
        "vpa", description="rule of recommended requests: vpa, the 90th percentile of CPU use, or krr, the 95th"
    )

    # Fixed: watcher/settings/removed.py has the reasons.
    timeout_seconds: ClassVar[float] = 120.0
