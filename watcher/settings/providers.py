"""Settings of single providers; ``settings.ProviderSettings`` has the settings that all providers share."""

import socket
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from runtime.settings.fields import KEY, NAME_PART, Section, parsed_json
from watcher.model import MetricType


class HostSettings(Section):
    """Settings of the provider Host."""

    node_name: str = Field(
        default_factory=socket.gethostname, min_length=1, description="the node name of this machine"
    )


class PrometheusQuery(Section):
    """Custom PromQL query of one metric. It replaces the built-in queries of the same resource type."""

    name: str = Field(min_length=1, description="the name under which the metric is published")
    type: MetricType = Field(description="the resource that the query measures")
    query: str = Field(
        min_length=1, description="a PromQL expression; $matchers and $labels stand for the matchers and node labels"
    )
    scale: float = Field(
        100.0, gt=0, description="factor that turns the query's value into percent of capacity: 100 for ratios"
    )
    smoothing: str = Field("", description="the time over which the query itself averages, such as 5m")


class PrometheusSettings(Section):
    """Settings of the provider Prometheus."""

    node_label: str = Field(
        "",
        pattern="^([a-zA-Z_][a-zA-Z0-9_]*)?$",
        description="the label that holds the node's name; empty: the first of node, Hostname and instance whose "
        "value is a node's name",
    )
    matchers: str = Field(
        "", description='label matchers for every query, such as cluster="prod" in a Thanos that many clusters share'
    )
    query_set: Literal["auto", "kube-prometheus", "node-exporter", "openshift"] = Field(
        "auto", description="the built-in queries to try; auto tries all"
    )
    queries: Annotated[list[PrometheusQuery], BeforeValidator(parsed_json)] = Field(
        [], description="custom queries: tables [[prometheus.queries]], or JSON in the environment"
    )
    pressure: bool = Field(
        False,
        description="query the percent of time in which tasks waited for CPU, memory and I/O (PSI); this doubles the "
        "queries: ten more for each window",
    )
    node_power_watts: float = Field(
        0,
        ge=0,
        description="maximum power of a node in watts, to publish Energy in percent of it; 0: do not publish Energy",
    )


class InfluxDbQuery(Section):
    """Custom InfluxDB query of one metric. It replaces the built-in queries of the same resource type."""

    name: str = Field(
        min_length=1,
        description="the name under which the metric is published; of several queries with the same name, the first "
        "that has data is used",
    )
    type: MetricType = Field(description="the resource that the query measures")
    measurement: str = Field(min_length=1, description="the InfluxDB measurement to read")
    field: str = Field(min_length=1, description="the field of the measurement")
    where: dict[str, str] = Field({}, description="the tags that select the series, such as cpu = cpu-total")
    rate: bool = Field(False, description="true if the field is a counter: its increase per second is used")
    scale: float = Field(
        1.0, allow_inf_nan=False, description="factor that turns the field into percent of capacity; not 0"
    )
    offset: float = Field(
        0.0, allow_inf_nan=False, description="number added after scaling; 100, with scale -1, turns idle time into use"
    )
    combine: Literal["one", "all", "busiest"] = Field(
        "one",
        description="how to combine a node's series; all: use the samples of all series together, busiest: use the "
        "series with the highest average, such as the busiest disk, one: like all, but report several series as a "
        "finding",
    )

    @model_validator(mode="after")
    def _scale_is_not_zero(self) -> Self:
        if self.scale == 0:
            raise ValueError(f"scale of {self.name} must not be 0")
        return self


class InfluxDbSettings(Section):
    """Settings of the provider InfluxDB."""

    version: Annotated[Literal["auto", "1", "2"], BeforeValidator(str)] = Field(
        "auto", description="1: InfluxQL, 2: Flux, auto: the version that the server reports"
    )
    database: str = Field("telegraf", min_length=1, description="the database; InfluxDB 1.x only")
    retention_policy: str = Field(
        "", description="the database's retention policy; empty: the default one; InfluxDB 1.x only"
    )
    username: str = Field("", description="the user of InfluxDB; if empty, provider.token is used")
    password: SecretStr | None = Field(None, description="the password of influxdb.username")
    organization: str = Field("", description="the organization, by name or id; InfluxDB 2.x only")
    bucket: str = Field("telegraf", min_length=1, description="the bucket; InfluxDB 2.x only")
    host_tag: str = Field("host", min_length=1, description="the tag that holds the node's name")
    host_name_suffix: str = Field("", description="suffix of host names, which is removed to get the node's name")
    queries: Annotated[list[InfluxDbQuery], BeforeValidator(parsed_json)] = Field(
        [], description="custom queries: tables [[influxdb.queries]], or JSON in the environment"
    )


class FakeSettings(Section):
    """Settings of the provider Fake, for tests."""

    nodes: int = Field(3, ge=0, le=100_000, description="number of nodes; not used if fake.file lists the nodes")
    pods: int = Field(
        30, ge=0, le=1_000_000, description="number of pods whose use is measured, five for each workload"
    )
    file: Path | None = Field(None, description="JSON or TOML file with every node's load, read for every fetch")
    failure: Literal["", "unavailable", "refused", "unusable", "empty", "slow"] = Field(
        "", description="simulated failure of fetches; empty: fetches succeed"
    )

    # Fixed: watcher/settings/removed.py has the reasons.
    failing_windows: ClassVar[tuple[str, ...]] = ()


class MetricsServerSettings(Section):
    """Settings of the provider KubernetesMetricsServer."""

    node_selector: str = Field(
        "", description="label selector of the nodes to watch, such as type!=virtual-kubelet; empty: all"
    )

    # Fixed: watcher/settings/removed.py has the reasons.
    capacity_refresh_seconds: ClassVar[float] = 300.0


class KubeletSettings(Section):
    """Settings of the provider Kubelet."""

    ca_file: Path | None = Field(
        None,
        description="PEM file with the certificate authorities to trust for the kubelets; by default "
        "provider.ca_file, then the CA of the pod's service account; needed outside of a cluster",
    )
    insecure_skip_verify: bool = Field(
        False,
        description="do not verify the kubelets' certificates: any host that answers at a node's address receives "
        "the token",
    )
    through_api_server: bool = Field(
        False,
        description="read the kubelets through the API server; this needs the permission nodes/proxy, which lets its "
        "holder run commands in all pods",
    )
    only_cpu_and_memory: bool = Field(
        False, description="request shorter summaries from the kubelets, without IOPressure and IOFullPressure"
    )
    node_selector: str = Field("", description="label selector of the nodes to watch; empty: all")

    # Fixed: watcher/settings/removed.py has the reasons.
    refresh_seconds: ClassVar[float] = 60.0
    concurrency: ClassVar[int] = 32
    timeout_seconds: ClassVar[float] = 5.0


class SignalFxSettings(Section):
    """Settings of the provider SignalFx."""

    cluster_name: str = Field("", pattern=r'^[^"\\]*$', description="watch only hosts of this cluster; empty: all")
    host_name_suffix: str = Field(
        "",
        pattern=NAME_PART,
        description="suffix of host names, which is removed to get the node's name, such as .example.com",
    )
    node_dimension: str = Field(
        "host", pattern=KEY, description="the dimension that holds the node's name, such as k8s.node.name"
    )
    cluster_dimension: str = Field(
        "cluster",
        pattern=KEY,
        description="the dimension that signalfx.cluster_name refers to, such as k8s.cluster.name",
    )

    # Fixed: watcher/settings/removed.py has the reasons.
    metadata_seconds: ClassVar[float] = 600.0


class DatadogSettings(Section):
    """Settings of the provider Datadog."""

    cluster_name: str = Field("", pattern=NAME_PART, description="watch only hosts of this cluster; empty: all")
    host_name_suffix: str = Field(
        "",
        pattern=NAME_PART,
        description="suffix of host names, which is removed to get the node's name, such as -my-cluster",
    )
    node_tag: str = Field("host", pattern=KEY, description="the tag that holds the node's name, such as kube_node")
    cluster_tag: str = Field(
        "cluster_name",
        pattern=KEY,
        description="the tag that datadog.cluster_name refers to, such as kube_cluster_name",
    )
    cpu_query: str = Field(
        "max:cpu.utilization",
        min_length=1,
        description="expression of metrics and arithmetic that gives CPU in percent; for the Agent's own metrics: "
        "100 - avg:system.cpu.idle",
    )
    memory_query: str = Field(
        "max:memory.utilization",
        min_length=1,
        description="expression that gives Memory in percent; for the Agent's own metrics: "
        "100 - 100 * avg:system.mem.pct_usable",
    )
    storage_query: str = Field(
        "", description="expression that gives Storage in percent, such as max:system.io.util; empty: not published"
    )
    bandwidth_query: str = Field(
        "",
        description="expression that gives Bandwidth in percent, which must contain the link speed; empty: "
        "not published",
    )
    gpu_query: str = Field(
        "", description="expression that gives GPU in percent, such as avg:dcgm.gpu_utilization; empty: not published"
    )
