"""Settings of the watcher, except those of single providers: name, unit, default and effect.

``runtime.settings.loading`` reads the settings from flags, environment and file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from runtime import duration
from runtime.errors import quoted
from runtime.http.budget import Budget
from runtime.settings.fields import (
    Secret,
    Section,
    SettingsModel,
    comma_separated,
    duration_text,
    http_address,
    parsed_json,
)
from runtime.settings.sections import LogSettings, ServerSettings
from watcher.findings import Action
from watcher.model import Operator
from watcher.settings.providers import (
    DatadogSettings,
    FakeSettings,
    HostSettings,
    InfluxDbSettings,
    KubeletSettings,
    MetricsServerSettings,
    PrometheusSettings,
    SignalFxSettings,
)
from watcher.settings.removed import REMOVED
from watcher.settings.workloads import WorkloadSettings
from watcher.wire import Dialect

_METRICS_SERVER = "KubernetesMetricsServer"
_USUAL_SECONDS, _HOUR_SECONDS = 900, 3600

#: Environment variables of load-watcher and the settings that they set.
UPSTREAM_VARIABLES = {
    "METRICS_PROVIDER_NAME": "provider.name",
    "METRICS_PROVIDER_ADDRESS": "provider.address",
    "METRICS_PROVIDER_TOKEN": "provider.token",
    "METRICS_PROVIDER_APP_KEY": "provider.app_key",
    "INSECURE_SKIP_VERIFY": "provider.insecure_skip_verify",
    "ENABLE_OPENSHIFT_AUTH": "provider.openshift_auth",
    "KUBE_CONFIG": "provider.kube_config",
    "SIGNALFX_CLUSTER_NAME": "signalfx.cluster_name",
    "SIGNALFX_HOST_NAME_SUFFIX": "signalfx.host_name_suffix",
    "DATADOG_CLUSTER_NAME": "datadog.cluster_name",
    "DATADOG_HOST_NAME_SUFFIX": "datadog.host_name_suffix",
    "LOG_LEVEL": "log.level",
}


def _is_in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def default_provider() -> str:
    """Return the default provider: the metrics server in a cluster, otherwise this machine."""
    return _METRICS_SERVER if _is_in_cluster() else "Host"


def _default_store() -> Path:
    state_home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state_home).expanduser() / "trimaran" / "watcher.sqlite"


class ProviderSettings(Section):
    """Address and credentials of a source of metrics."""

    name: str = Field(
        default_factory=default_provider, description="the metrics provider; trimaran config lists the installed ones"
    )
    address: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="the provider's address, http:// or https://; each provider has its own default"
    )
    token: Secret | None = Field(None, description="bearer token or API key for the provider")
    token_file: Path | None = Field(
        None, description="file with the bearer token for the provider, read for every request"
    )
    app_key: Secret | None = Field(None, description="Datadog's application key")
    headers: Annotated[dict[str, Secret], BeforeValidator(parsed_json)] = Field(
        {},
        description="headers to send to the provider with every request, such as X-Scope-OrgID; "
        "a JSON object in the environment",
    )
    ca_file: Path | None = Field(
        None, description="PEM file with the certificate authorities to trust for the provider, instead of the system's"
    )
    client_certificate: Path | None = Field(
        None, description="PEM file with the client certificate to present to the provider"
    )
    client_key: Path | None = Field(
        None,
        description="file with the private key of provider.client_certificate; not needed if that file "
        "contains the key",
    )
    insecure_skip_verify: bool = Field(False, description="do not verify the provider's certificate")
    openshift_auth: bool = Field(False, description="use the token and the CA of the pod's service account")
    kube_config: Path | None = Field(
        None, description="kubeconfig file, to reach the Kubernetes API from outside the cluster"
    )


class FallbackSettings(Section):
    """Settings of the fallbacks: the providers that are used when the preferred one fails."""

    providers: Annotated[list[ProviderSettings], BeforeValidator(parsed_json)] = Field(
        [],
        description="providers that are tried in order when the first one fails: tables [[fallback.providers]] "
        "with the keys of [provider]",
    )


class WatchSettings(Section):
    """Windows and operators to fetch, the interval, and the limits of a fetch."""

    windows: Annotated[list[Annotated[str, AfterValidator(duration_text)]], BeforeValidator(comma_separated)] = Field(
        ["15m", "10m", "5m"], min_length=1, description="the windows to fetch and serve, comma-separated durations"
    )
    default_window: str = Field(
        "",
        description="the window that is served if a request names no window; empty: 15m if it is one of "
        "watch.windows, else the longest up to 1h, else the shortest",
    )
    operators: Annotated[list[Operator], BeforeValidator(comma_separated)] = Field(
        [Operator.AVG, Operator.STD],
        description="the operators to compute for each window: AVG, STD, and P90, P95, P99, MAX",
    )
    interval_seconds: float = Field(60, ge=0.1, le=3600, description="seconds from one fetch to the next")
    fetch_timeout_seconds: float = Field(
        30, ge=0.1, le=600, description="timeout of a fetch in seconds; windows that have arrived by then are used"
    )
    max_fetch_megabytes: float = Field(
        256,
        ge=1,
        le=1_000_000,
        description="memory in MiB for the decompressed and parsed responses of one fetch, and the same for one "
        "measurement of pods; a fetch or measurement that needs more fails",
    )
    sample_interval_seconds: float = Field(
        15, ge=0.1, le=600, description="seconds between two samples of a provider that only reports the present load"
    )
    expiry_seconds: int = Field(
        300,
        gt=0,
        description="age in seconds above which metrics are never served as fresh; must be longer than "
        "watch.interval_seconds",
    )

    # Fixed: watcher/settings/removed.py has the reasons.
    max_nodes: ClassVar[int] = 20_000

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.default_window and self.default_window not in self.windows:
            raise ValueError(
                f"default_window {quoted(self.default_window)} is not one of windows: {', '.join(self.windows)}"
            )
        if Operator.AVG not in self.operators or Operator.LATEST in self.operators:
            raise ValueError(
                "operators must contain AVG, which every score needs, and must not contain Latest, which has no window"
            )
        if self.expiry_seconds <= self.interval_seconds:
            raise ValueError(
                f"expiry_seconds {self.expiry_seconds} is not longer than interval_seconds {self.interval_seconds:g}: "
                "nothing would stay fresh until the next fetch"
            )
        return self

    def fetch_budget(self) -> Budget:
        """Return a new budget for the memory that the HTTP responses of one fetch may take."""
        return Budget(
            self.max_fetch_megabytes * 1024**2, "the responses of this fetch are", "watch.max_fetch_megabytes"
        )

    def usage_budget(self) -> Budget:
        """Return a new budget, of the same size, for the responses of one measurement of pods."""
        return Budget(
            self.max_fetch_megabytes * 1024**2, "the responses with the use of pods are", "watch.max_fetch_megabytes"
        )

    def fallback_order(self) -> list[str]:
        """Return the default window, then the windows that are shorter than it, longest first.

        Scores follow the default window, so a long window that is kept for another purpose, such as 24h for the peaks
        of a plan, is the default only if the setting names it or if no other window is shorter.
        """
        longest_first = sorted(dict.fromkeys(self.windows), key=duration.seconds, reverse=True)
        default = self.default_window or min(longest_first, key=_distance_from_usual_window)
        return [window for window in longest_first if duration.seconds(window) <= duration.seconds(default)]


def _distance_from_usual_window(window: str) -> tuple[bool, bool, int]:
    """Sort key of windows by how well they suit scores: 15m, then the longest up to 1h, then the shortest."""
    seconds = duration.seconds(window)
    return seconds != _USUAL_SECONDS, seconds > _HOUR_SECONDS, abs(seconds - _HOUR_SECONDS)


class QualitySettings(Section):
    """Thresholds of the checks of metrics, and the action on each kind of suspect metrics."""

    stale_seconds: float = Field(
        300, gt=0, le=86400, description="age in seconds of a node's newest sample above which the node is stale"
    )
    corroborate: Literal["auto", "fallback", "off"] = Field(
        "auto",
        description="second source, with which CPU and Memory are compared; auto: the metrics server, if in a cluster; "
        "fallback: the first of fallback.providers; off: no second source",
    )

    # Fixed: watcher/settings/removed.py has the reasons.
    frozen_action: ClassVar[Action] = Action.MARKED
    duplicate_node_action: ClassVar[Action] = Action.MARKED
    flatline_action: ClassVar[Action] = Action.MARKED
    anomaly_action: ClassVar[Action] = Action.REPORTED
    spike_action: ClassVar[Action] = Action.REPORTED
    disagreement_percent: ClassVar[float] = 10.0
    smoothing_ratio: ClassVar[float] = 4.0
    spike_factor: ClassVar[float] = 1.5
    frozen_resting_seconds: ClassVar[float] = 21600.0
    frozen_seconds: ClassVar[float] = 1200.0
    clock_skew_seconds: ClassVar[float] = 60.0
    min_coverage: ClassVar[float] = 0.5
    missing_seconds: ClassVar[float] = 3600.0
    history_fetches: ClassVar[int] = 60
    wrong_scale_action: ClassVar[Action] = Action.MARKED
    disagreement_action: ClassVar[Action] = Action.MARKED
    stale_action: ClassVar[Action] = Action.MARKED


class WatcherServerSettings(ServerSettings):
    """Settings of the watcher's REST API."""

    dialect: Dialect = Field(
        Dialect.DOCUMENTED,
        description="the JSON dialect of /watcher; documented: as load-watcher documents it, go: as load-watcher's Go "
        "code writes it; /compat always uses go",
    )
    compat_open: bool = Field(False, description="serve /compat to clients that send no token or certificate")
    compat_host: str = Field("127.0.0.1", min_length=1, description="the address on which server.compat_port listens")
    compat_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="additional port, which serves only /compat and the probes, over plain HTTP without token and "
        "certificate; 0 selects any free port",
    )

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.compat_port == self.port != 0:  # 0 selects any free port, a different one for each
            raise ValueError(f"compat_port {self.compat_port} is the same as port; give /compat another port")
        return self


class DashboardSettings(Section):
    """Settings of the dashboard for browsers, which needs the extra ``dashboard``."""

    enabled: bool = Field(
        True, description="redirect browsers that open / to the dashboard, which is loaded at the first visit"
    )
    cluster: bool = Field(
        False,
        description="read node labels from the Kubernetes API for the filter of nodes, and nodes and pods for the Pod "
        "page; false: use the watcher's metadata only",
    )
    extender: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="the address of an extender; the dashboard shows its decisions"
    )
    rebalancer: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="the address of a rebalancer; the dashboard shows its moves"
    )
    scheduler: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="the address of trimaran scheduler; the dashboard shows what it places"
    )
    token_file: Path | None = Field(
        None, description="file with the bearer token that the dashboard sends to extender, rebalancer and scheduler"
    )
    ca_file: Path | None = Field(
        None, description="PEM file with the certificate authorities of the extender, the rebalancer and the scheduler"
    )
    client_certificate: Path | None = Field(
        None, description="PEM file with the client certificate and its key for extender, rebalancer and scheduler"
    )
    alerts: Annotated[str, AfterValidator(http_address)] | None = Field(
        None,
        description="the address of a Prometheus that has trimaran's alert rules; the dashboard shows their alerts",
    )
    alerts_token_file: Path | None = Field(None, description="file with the bearer token for dashboard.alerts")
    alerts_ca_file: Path | None = Field(
        None, description="PEM file with the certificate authorities to trust for dashboard.alerts"
    )
    alerts_client_certificate: Path | None = Field(
        None, description="PEM file with the client certificate for dashboard.alerts and its private key"
    )


class StoreSettings(Section):
    """Settings of the database file with snapshots and history, which survive a crash."""

    path: Path = Field(
        default_factory=_default_store,
        description="the SQLite file for snapshots and history; on a local disk, one file per watcher",
    )
    keep_hours: float = Field(
        24, gt=0, le=8760, description="snapshots and history older than this many hours are deleted"
    )
    max_megabytes: float = Field(
        256, ge=1, le=1_000_000, description="size in MiB above which the oldest snapshots are deleted"
    )
    history_megabytes: float = Field(
        128,
        ge=0,
        le=1_000_000,
        description="size in MiB above which the oldest hours of the history are deleted; 0 stores no history",
    )

    # Fixed: watcher/settings/removed.py has the reasons.
    backfill_hours: ClassVar[float] = 24.0


class Settings(SettingsModel):
    """Settings of a watcher, embedded or served.

    ``runtime.settings.loading.load`` reads them from flags, environment and file. A program can also build them from
    sections.
    """

    environment_variables: ClassVar[Mapping[str, str]] = UPSTREAM_VARIABLES
    removed: ClassVar[Mapping[str, str]] = REMOVED
    sections_of_others: ClassVar[frozenset[str]] = frozenset({"cluster", "extender", "nodes", "rebalance", "scheduler"})

    provider: ProviderSettings = Field(default_factory=ProviderSettings)
    fallback: FallbackSettings = Field(default_factory=FallbackSettings)
    watch: WatchSettings = Field(default_factory=WatchSettings)
    quality: QualitySettings = Field(default_factory=QualitySettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    dashboard: DashboardSettings = Field(default_factory=DashboardSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    workloads: WorkloadSettings = Field(default_factory=WorkloadSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    host: HostSettings = Field(default_factory=HostSettings)
    prometheus: PrometheusSettings = Field(default_factory=PrometheusSettings)
    metrics_server: MetricsServerSettings = Field(default_factory=MetricsServerSettings)
    kubelet: KubeletSettings = Field(default_factory=KubeletSettings)
    signalfx: SignalFxSettings = Field(default_factory=SignalFxSettings)
    datadog: DatadogSettings = Field(default_factory=DatadogSettings)
    influxdb: InfluxDbSettings = Field(default_factory=InfluxDbSettings)
    fake: FakeSettings = Field(default_factory=FakeSettings)

    def for_each_provider(self) -> list[Self]:
        """Return these settings, then a copy of them for each fallback, with the fallback as ``provider``."""
        return [self, *(self.model_copy(update={"provider": each}) for each in self.fallback.providers)]

    def corroborating(self) -> Self | None:
        """Return a copy of these settings with the second source as ``provider``; None if there is no second source.

        The second source is a provider whose CPU and Memory are compared with those of the first, to detect wrong
        values. A provider is never compared with itself.
        """
        if self.quality.corroborate == "fallback":
            return next(iter(self.for_each_provider()[1:]), None)
        if self.quality.corroborate == "off" or not _is_in_cluster() or self.provider.name == _METRICS_SERVER:
            return None
        return self.model_copy(update={"provider": ProviderSettings(name=_METRICS_SERVER)})


class WatcherSettings(Settings):
    """Settings of ``trimaran watch``."""

    server: WatcherServerSettings = Field(default_factory=WatcherServerSettings)
