"""Every setting: name, unit, default, effect. ``loading`` reads them from flags, environment and file."""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from runtime import duration
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
from watcher.model import Operator
from watcher.settings.providers import (
    DatadogSettings,
    FakeSettings,
    HostSettings,
    InfluxDbSettings,
    MetricsServerSettings,
    PrometheusSettings,
    SignalFxSettings,
)
from watcher.wire import Dialect

_METRICS_SERVER = "KubernetesMetricsServer"

#: load-watcher's environment names, and the settings they stand for.
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
    """The provider when none is named: the metrics server in a cluster, this machine elsewhere."""
    return _METRICS_SERVER if _is_in_cluster() else "Host"


def _default_store() -> Path:
    state_home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state_home).expanduser() / "trimaran" / "watcher.sqlite"


class ProviderSettings(Section):
    """Where metrics come from, and how to get in."""

    name: str = Field(default_factory=default_provider, description="the metrics provider")
    address: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="its address; each provider has a default of its own"
    )
    token: Secret | None = Field(None, description="bearer token or API key")
    token_file: Path | None = Field(None, description="a file with the token, read anew for every request")
    app_key: Secret | None = Field(None, description="Datadog's application key")
    headers: Annotated[dict[str, Secret], BeforeValidator(parsed_json)] = Field(
        {}, description="sent with every request, such as X-Scope-OrgID; a JSON object in the environment"
    )
    ca_file: Path | None = Field(None, description="certificate authorities to trust instead of the system's")
    client_certificate: Path | None = Field(None, description="a PEM file that proves who we are")
    client_key: Path | None = Field(None, description="its key, where that is not in the same file")
    insecure_skip_verify: bool = Field(False, description="do not verify the provider's certificate")
    openshift_auth: bool = Field(False, description="use the pod's service account: its token and its CA")
    kube_config: Path | None = Field(None, description="a kubeconfig, to reach the Kubernetes API from outside")


class FallbackSettings(Section):
    """Other providers, for when the first one fails."""

    providers: Annotated[list[ProviderSettings], BeforeValidator(parsed_json)] = Field(
        [], description="tables [[fallback.providers]] with the keys of [provider], tried in order"
    )


class WatchSettings(Section):
    """What to fetch, and how often."""

    windows: Annotated[list[Annotated[str, AfterValidator(duration_text)]], BeforeValidator(comma_separated)] = Field(
        ["15m", "10m", "5m"], min_length=1, description="the windows to keep, comma-separated"
    )
    default_window: str = Field("", description="the window served when none is asked for; empty: the longest")
    operators: Annotated[list[Operator], BeforeValidator(comma_separated)] = Field(
        [Operator.AVG, Operator.STD], description="what to compute of a window: AVG, STD, and P90, P95, P99, MAX"
    )
    interval_seconds: float = Field(60, ge=0.1, le=3600, description="time from one fetch to the next")
    fetch_timeout_seconds: float = Field(30, ge=0.1, le=600, description="a fetch is given up after this time")
    max_fetch_megabytes: float = Field(
        256, ge=1, le=1_000_000, description="memory that the answers of one fetch may take, unpacked and read"
    )
    max_nodes: int = Field(20_000, ge=1, le=1_000_000, description="nodes beyond these, by name, are dropped")
    sample_interval_seconds: float = Field(
        15, ge=0.1, le=600, description="time between samples, for providers that only know the present"
    )
    expiry_seconds: int = Field(300, gt=0, description="older metrics are never served as fresh")

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.default_window and self.default_window not in self.windows:
            raise ValueError(f"default_window {self.default_window!r} is not one of windows: {', '.join(self.windows)}")
        if Operator.AVG not in self.operators or Operator.LATEST in self.operators:
            raise ValueError("operators must hold AVG, which every score needs, and not Latest, which is no window's")
        if self.expiry_seconds <= self.interval_seconds:
            raise ValueError(
                f"expiry_seconds {self.expiry_seconds} is not longer than interval_seconds {self.interval_seconds:g}: "
                "nothing would stay fresh until the next fetch"
            )
        return self

    def fetch_budget(self) -> Budget:
        """Return a new budget for the answers of one fetch."""
        return Budget(self.max_fetch_megabytes * 1024**2, "the answers of this fetch are", "watch.max_fetch_megabytes")

    def fallback_order(self) -> list[str]:
        """The default window, then the shorter ones, longest first."""
        longest_first = sorted(dict.fromkeys(self.windows), key=duration.seconds, reverse=True)
        default = self.default_window or longest_first[0]
        return [window for window in longest_first if duration.seconds(window) <= duration.seconds(default)]


class Reaction(StrEnum):
    """What is done about metrics that are beyond doubt suspect."""

    REPORT = "report"
    MARK = "mark"
    DROP = "drop"


class QualitySettings(Section):
    """What is held to be wrong with metrics, and what is done about it."""

    history_fetches: int = Field(60, ge=20, le=1440, description="how many fetches a value is held against")
    missing_seconds: float = Field(
        3600, ge=0, le=86400, description="a node or metric that is gone is reported for so long, then forgotten"
    )
    min_coverage: float = Field(0.5, ge=0, le=1, description="less of a window with samples is reported, 0 to 1")
    stale_seconds: float = Field(300, gt=0, le=86400, description="a source whose newest sample is older is stale")
    clock_skew_seconds: float = Field(
        60, gt=0, le=86400, description="a source whose newest sample is so far in the future has another clock"
    )
    frozen_seconds: float = Field(
        1200, gt=0, le=604800, description="CPU that stands still for longer, and for 20 fetches, is frozen"
    )
    frozen_resting_seconds: float = Field(
        21600, gt=0, le=604800, description="the same for what may rest: other metrics, whole numbers, coarse steps"
    )
    spike_factor: float = Field(
        1.5, ge=1, le=100, description="an average that moves so many times faster than its window can is a spike"
    )
    smoothing_ratio: float = Field(
        4.0, ge=1, le=1000, description="square of averages' moves over deviations; a random walk has 4"
    )
    corroborate: Literal["auto", "fallback", "off"] = Field(
        "auto",
        description="a second source to hold CPU and Memory against; auto: the metrics server, in a cluster; "
        "fallback: the first of fallback.providers",
    )
    disagreement_percent: float = Field(
        10, gt=0, le=100, description="points a second source may differ in from what is usual between the two"
    )
    stale_action: Reaction = Field(Reaction.MARK, description="about nodes whose newest sample is stale")
    frozen_action: Reaction = Field(Reaction.MARK, description="about metrics frozen for three times as long")
    spike_action: Reaction = Field(Reaction.REPORT, description="about metrics in a spike")
    wrong_scale_action: Reaction = Field(Reaction.MARK, description="about metrics of which a whole fetch is wrong")
    flatline_action: Reaction = Field(Reaction.MARK, description="about CPU that is 0 or moves no more")
    duplicate_node_action: Reaction = Field(Reaction.MARK, description="about nodes that report the same series")
    anomaly_action: Reaction = Field(
        Reaction.REPORT, description="about levels far below what a node's past and the other nodes make likely"
    )
    disagreement_action: Reaction = Field(Reaction.MARK, description="about metrics that a second source contradicts")


class WatcherServerSettings(ServerSettings):
    """REST API of the watcher."""

    dialect: Dialect = Field(Dialect.DOCUMENTED, description="the dialect of /watcher; /compat is always Go's")
    compat_open: bool = Field(False, description="answer /compat also without token and certificate")
    compat_host: str = Field("127.0.0.1", min_length=1, description="the address of compat_port")
    compat_port: int | None = Field(
        None, ge=1, le=65535, description="a port that answers /compat alone: plain HTTP, without token and certificate"
    )

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.compat_port == self.port:
            raise ValueError(f"compat_port {self.compat_port} is the same as port: a port tells what is open")
        return self


class DashboardSettings(Section):
    """The page that browsers get, where the extra ``dashboard`` is installed."""

    enabled: bool = Field(True, description="send browsers that ask for / to the page; it is loaded at the first look")
    cluster: bool = Field(False, description="filter by the labels that the Kubernetes API has; else by metadata alone")
    extender: Annotated[str, AfterValidator(http_address)] | None = Field(
        None, description="the address of an extender, whose decisions are shown"
    )
    extender_token_file: Path | None = Field(None, description="a file with the token that it asks for")
    extender_ca_file: Path | None = Field(None, description="certificate authorities to trust for it")
    extender_client_certificate: Path | None = Field(None, description="a PEM file with certificate and key for it")


class StoreSettings(Section):
    """The file that survives a crash."""

    path: Path = Field(default_factory=_default_store, description="the SQLite file, on a local disk")
    keep_hours: float = Field(24, gt=0, le=8760, description="older snapshots and history are deleted")
    max_megabytes: float = Field(
        256, ge=1, le=1_000_000, description="the oldest snapshots are deleted beyond this size"
    )
    history_megabytes: float = Field(
        128,
        ge=0,
        le=1_000_000,
        description="the oldest hours of history are deleted beyond this size; 0: none is kept",
    )


class Settings(SettingsModel):
    """Settings of a watcher, embedded or served.

    ``runtime.settings.loading.load`` reads them from flags, environment and file; programs may also build them from
    sections.
    """

    variables: ClassVar[Mapping[str, str]] = UPSTREAM_VARIABLES

    provider: ProviderSettings = Field(default_factory=ProviderSettings)
    fallback: FallbackSettings = Field(default_factory=FallbackSettings)
    watch: WatchSettings = Field(default_factory=WatchSettings)
    quality: QualitySettings = Field(default_factory=QualitySettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    dashboard: DashboardSettings = Field(default_factory=DashboardSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    host: HostSettings = Field(default_factory=HostSettings)
    prometheus: PrometheusSettings = Field(default_factory=PrometheusSettings)
    metrics_server: MetricsServerSettings = Field(default_factory=MetricsServerSettings)
    signalfx: SignalFxSettings = Field(default_factory=SignalFxSettings)
    datadog: DatadogSettings = Field(default_factory=DatadogSettings)
    influxdb: InfluxDbSettings = Field(default_factory=InfluxDbSettings)
    fake: FakeSettings = Field(default_factory=FakeSettings)

    def for_each_provider(self) -> list[Self]:
        """Return these settings once for the provider and once for each fallback, ``provider`` being that one's."""
        return [self, *(self.model_copy(update={"provider": each}) for each in self.fallback.providers)]

    def corroborating(self) -> Self | None:
        """Return these settings with ``provider`` being the second source's; None where there is none to ask.

        A source is never held against itself.
        """
        if self.quality.corroborate == "fallback":
            return next(iter(self.for_each_provider()[1:]), None)
        if self.quality.corroborate == "off" or not _is_in_cluster() or self.provider.name == _METRICS_SERVER:
            return None
        return self.model_copy(update={"provider": ProviderSettings(name=_METRICS_SERVER)})


class WatcherSettings(Settings):
    """Settings of ``trimaran watch``."""

    server: WatcherServerSettings = Field(default_factory=WatcherServerSettings)
