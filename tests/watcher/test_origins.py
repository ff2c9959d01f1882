"""Identity of a metrics source: another cluster under the same provider name has a separate history."""

from pathlib import Path
from typing import Any

import pytest
from support.bench import START, Source, one_node_result, unreachable
from support.not_served import not_served

from watcher.model import NodeMetrics
from watcher.pipeline.factory import open_watcher
from watcher.pipeline.origins import origins
from watcher.pipeline.watcher import Watcher
from watcher.providers.base import Fetched
from watcher.settings import Settings
from watcher.wire import MetricsCode

KUBE_CONFIG = """
current-context: east
contexts:
- {name: east, context: {cluster: one, user: me}}
- {name: west, context: {cluster: two, user: me}}
clusters:
- {name: one, cluster: {server: "https://me:hush@east:6443"}}
- {name: two, cluster: {server: "https://west:6443"}}
users:
- {name: me, user: {token: hush}}
"""


def origin(name: str = "Prometheus", **sections: Any) -> str:
    """Return the origin of the provider with these settings."""
    provider = {"name": name, **sections.pop("provider", {})}
    settings = Settings.model_validate({"provider": provider, **sections})
    return origins(settings.for_each_provider())[name]


def watch(path: Path, source: Source, **provider: Any) -> Watcher:
    """Return a watcher over a store, as after a restart."""
    settings = Settings.model_validate({"provider": {"name": "Prometheus", **provider}})
    return open_watcher(settings, path, provider=source, clock=lambda: START)


def test_the_nodes_of_another_cluster_are_not_served(tmp_path: Path) -> None:
    """After provider.address changed, the old cluster's nodes are not served; those of the new cluster are."""
    path, source = tmp_path / "store.sqlite", Source()
    east, west = {"address": "http://east:9090"}, {"address": "http://west:9090"}
    watcher = watch(path, source, **east)
    watcher.fetch_once()
    watcher.stop()
    one_node = NodeMetrics(one_node_result(source.windows[0]).nodes["a"].metrics)
    source.answers = dict.fromkeys(("15m", "10m", "5m"), lambda window: Fetched({"b": one_node}))
    watcher = watch(path, source, **west)
    with not_served(MetricsCode.NO_METRICS):
        watcher.published()
    watcher.fetch_once()
    assert set(watcher.published("5m").metrics.data) == {"b"}
    assert not watcher.findings()
    watcher.stop()
    source.answers = dict.fromkeys(("15m", "10m", "5m"), unreachable)
    watcher = watch(path, source, **west, token="renewed")
    assert set(watcher.published("5m").metrics.data) == {"b"}
    watcher.stop()


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("Prometheus", {}, {"provider": {"address": "http://a:9090"}}),
        ("Prometheus", {}, {"prometheus": {"matchers": 'cluster="b"'}}),
        ("Prometheus", {}, {"provider": {"headers": {"X-Scope-OrgID": "b"}}}),
        ("InfluxDB", {}, {"influxdb": {"bucket": "b"}}),
        ("InfluxDB", {}, {"influxdb": {"database": "b"}}),
        ("SignalFx", {}, {"signalfx": {"cluster_name": "b"}}),
        ("Datadog", {}, {"datadog": {"cluster_name": "b"}}),
        ("KubernetesMetricsServer", {}, {"metrics_server": {"node_selector": "pool=b"}}),
        ("Host", {"host": {"node_name": "a"}}, {"host": {"node_name": "b"}}),
    ],
)
def test_settings_that_select_other_nodes_change_the_origin(
    name: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Another address, cluster name, tenant or selector makes another origin."""
    assert origin(name, **one) != origin(name, **other)


@pytest.mark.parametrize(
    "change",
    [
        {"provider": {"token": "renewed"}},
        {"provider": {"headers": {"Authorization": "renewed"}}},
        {"watch": {"interval_seconds": 30}},
        {"host": {"node_name": "another-pod"}},
        {"prometheus": {"node_label": "node"}},
    ],
)
def test_other_settings_keep_the_origin(change: dict[str, Any]) -> None:
    """Renewed secrets, fetch settings and settings of other providers do not change the origin."""
    assert origin(**change) == origin()


def test_origins_contain_no_secrets(tmp_path: Path) -> None:
    """Origins, which the store keeps, contain neither passwords in addresses nor values of headers."""
    kube_config = tmp_path / "kubeconfig"
    kube_config.write_text(KUBE_CONFIG)
    address = {"address": "http://me:hush@a:9090", "headers": {"X-Scope-OrgID": "hush"}, "token": "hush"}
    assert "hush" not in origin(provider=address)
    assert origin("KubernetesMetricsServer", provider={"kube_config": kube_config}) == "https://east:6443"


def test_origin_of_a_kubeconfig_is_its_cluster(tmp_path: Path) -> None:
    """The origin is the cluster of the current context, and the file's path if it cannot be read."""
    kube_config = tmp_path / "kubeconfig"
    kube_config.write_text(KUBE_CONFIG)
    provider = {"kube_config": kube_config}
    assert origin("KubernetesMetricsServer", provider=provider) == "https://east:6443"
    kube_config.write_text(KUBE_CONFIG.replace("current-context: east", "current-context: west"))
    assert origin("KubernetesMetricsServer", provider=provider) == "https://west:6443"
    for broken in ("", "[]", "current-context: x", "{"):
        kube_config.write_text(broken)
        assert origin("KubernetesMetricsServer", provider=provider) == str(kube_config)


def test_providers_with_one_name_share_an_origin() -> None:
    """Providers with the same name share one origin of all their addresses; other names have their own."""
    fallback = {"providers": [{"name": "Prometheus", "address": "http://b"}, {"name": "Host"}]}
    settings = Settings.model_validate(
        {"provider": {"name": "Prometheus", "address": "http://a"}, "fallback": fallback, "host": {"node_name": "n"}}
    )
    assert origins(settings.for_each_provider()) == {"Prometheus": "http://a | http://b", "Host": "host.node_name=n"}
