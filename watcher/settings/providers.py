"""The settings of each provider; those that all have are in ``settings.ProviderSettings``."""

import socket
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from runtime.settings.fields import KEY, NAME_PART, Section, comma_separated, parsed_json
from watcher.model import MetricType


class HostSettings(Section):
    """The provider Host."""

    node_name: str = Field(
        default_factory=socket.gethostname, min_length=1, description="the node name of this machine"
    )


class PrometheusQuery(Section):
    """A query of the user's own, instead of the built-in ones of the same type."""

    name: str = Field(min_length=1, description="the name it is published under")
    type: MetricType = Field(description="the resource")
    query: str = Field(min_length=1, description="an instant expression; $matchers and $labels are filled in")
    scale: float = Field(100.0, gt=0, description="what makes a percent of capacity of it: 100 for ratios")
    smoothing: str = Field("", description="the span it averages over by itself, such as 5m")


class PrometheusSettings(Section):
    """The provider Prometheus."""

    node_label: str = Field(
        "",
        pattern="^([a-zA-Z_][a-zA-Z0-9_]*)?$",
        description="the label that holds the node's name; empty: node, Hostname or instance, whichever leads to one",
    )
    matchers: str = Field(
        "", description='label matchers for every query, such as cluster="prod" in a Thanos that many clusters share'
    )
    query_set: Literal["auto", "kube-prometheus", "node-exporter", "openshift"] = Field(
        "auto", description="which built-in queries to try; auto tries all"
    )
    queries: Annotated[list[PrometheusQuery], BeforeValidator(parsed_json)] = Field(
        [], description="queries of your own: tables [[prometheus.queries]], or JSON in the environment"
    )
    node_power_watts: float = Field(0, ge=0, description="a node's highest power, to publish Energy as percent of it")


class InfluxDbQuery(Section):
    """A query of the user's own, instead of the built-in ones of the same type."""

    name: str = Field(min_length=1, description="the name it is published under; of several with one name, the first")
    type: MetricType = Field(description="the resource")
    measurement: str = Field(min_length=1, description="the measurement")
    field: str = Field(min_length=1, description="the field")
    where: dict[str, str] = Field({}, description="the tags that select the series, such as cpu = cpu-total")
    rate: bool = Field(False, description="the field is a counter: its rise in a second is meant")
    scale: float = Field(1.0, allow_inf_nan=False, description="what makes a percent of capacity of it; not 0")
    offset: float = Field(0.0, allow_inf_nan=False, description="added after that: 100 with scale -1 for idle time")
    combine: Literal["one", "all", "busiest"] = Field(
        "one", description="series of a node: one, all samples of several together, or the busiest, such as of disks"
    )

    @model_validator(mode="after")
    def _scale_is_not_zero(self) -> Self:
        if self.scale == 0:
            raise ValueError(f"scale of {self.name} must not be 0")
        return self


class InfluxDbSettings(Section):
    """The provider InfluxDB."""

    version: Annotated[Literal["auto", "1", "2"], BeforeValidator(str)] = Field(
        "auto", description="1: InfluxQL, 2: Flux, auto: as the server says"
    )
    database: str = Field("telegraf", min_length=1, description="the database, of 1.x")
    retention_policy: str = Field("", description="its retention policy; empty: the default one; of 1.x")
    username: str = Field("", description="the user; without one provider.token is used")
    password: SecretStr | None = Field(None, description="the user's password")
    organization: str = Field("", description="the organization, by name or id; of 2.x")
    bucket: str = Field("telegraf", min_length=1, description="the bucket, of 2.x")
    host_tag: str = Field("host", min_length=1, description="the tag that holds the node's name")
    host_name_suffix: str = Field("", description="what hosts' names end with, beyond the node's name")
    queries: Annotated[list[InfluxDbQuery], BeforeValidator(parsed_json)] = Field(
        [], description="queries of your own: tables [[influxdb.queries]], or JSON in the environment"
    )


class FakeSettings(Section):
    """The provider Fake, for tests."""

    nodes: int = Field(3, ge=0, le=100_000, description="how many nodes there are, where no file says")
    file: Path | None = Field(None, description="JSON or TOML with every node's load, read anew for every fetch")
    failure: Literal["", "unavailable", "refused", "unusable", "empty", "slow"] = Field(
        "", description="how fetches fail; empty: they do not"
    )
    failing_windows: Annotated[list[str], BeforeValidator(comma_separated)] = Field(
        [], description="the windows that fail, comma-separated; empty: all"
    )


class MetricsServerSettings(Section):
    """The provider KubernetesMetricsServer."""

    capacity_refresh_seconds: float = Field(
        300, gt=0, le=86400, description="how often to list what nodes have; a new node is looked up at once"
    )
    node_selector: str = Field("", description="only nodes with these labels, such as type!=virtual-kubelet")
    kube_context: str = Field("", description="the context of provider.kube_config; empty: its current one")


class SignalFxSettings(Section):
    """The provider SignalFx."""

    cluster_name: str = Field("", pattern=r'^[^"\\]*$', description="only hosts of this cluster")
    host_name_suffix: str = Field(
        "", pattern=NAME_PART, description="what hosts' names end with, beyond the node's name, such as .example.com"
    )
    node_dimension: str = Field(
        "host", pattern=KEY, description="the dimension that holds the node's name, such as k8s.node.name"
    )
    cluster_dimension: str = Field(
        "cluster", pattern=KEY, description="the dimension that cluster_name is about, such as k8s.cluster.name"
    )
    metadata_seconds: float = Field(
        600,
        ge=0,
        le=86400,
        description="which node a series is about is read anew after this time, or when one is new",
    )


class DatadogSettings(Section):
    """The provider Datadog."""

    cluster_name: str = Field("", pattern=NAME_PART, description="only hosts of this cluster")
    host_name_suffix: str = Field(
        "", pattern=NAME_PART, description="what hosts' names end with, beyond the node's name, such as -my-cluster"
    )
    node_tag: str = Field("host", pattern=KEY, description="the tag that holds the node's name, such as kube_node")
    cluster_tag: str = Field(
        "cluster_name", pattern=KEY, description="the tag that cluster_name is about, such as kube_cluster_name"
    )
    cpu_query: str = Field(
        "max:cpu.utilization",
        min_length=1,
        description="CPU in percent, as metrics and arithmetic; the Agent's own: 100 - avg:system.cpu.idle",
    )
    memory_query: str = Field(
        "max:memory.utilization",
        min_length=1,
        description="Memory in percent; the Agent's own: 100 - 100 * avg:system.mem.pct_usable",
    )
    storage_query: str = Field("", description="Storage in percent, such as max:system.io.util; empty: not published")
    bandwidth_query: str = Field(
        "", description="Bandwidth in percent of a link speed that it has to contain; empty: not published"
    )
    gpu_query: str = Field("", description="GPU in percent, such as avg:dcgm.gpu_utilization; empty: not published")
