"""Which system metrics come from: another cluster under the same provider's name is another past."""

from pathlib import Path
from typing import Any

import pytest
from support.bench import START, Source, down, fetched
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
    """Return the system that these settings name."""
    provider = {"name": name, **sections.pop("provider", {})}
    settings = Settings.model_validate({"provider": provider, **sections})
    return origins(settings.for_each_provider())[name]


def watch(path: Path, source: Source, **provider: Any) -> Watcher:
    """Return a watcher over a store, as a restart makes it."""
    settings = Settings.model_validate({"provider": {"name": "Prometheus", **provider}})
    return open_watcher(settings, path, provider=source, clock=lambda: START)


def test_the_nodes_of_another_cluster_are_not_served(tmp_path: Path) -> None:
    """After a change of provider.address nodes of the old cluster do not come back as last good ones; its own do."""
    path, source = tmp_path / "store.sqlite", Source()
    east, west = {"address": "http://east:9090"}, {"address": "http://west:9090"}
    watcher = watch(path, source, **east)
    watcher.fetch_once()
    watcher.stop()
    one_node = NodeMetrics(fetched(source.windows[0]).nodes["a"].metrics)
    source.answers = dict.fromkeys(("15m", "10m", "5m"), lambda window: Fetched({"b": one_node}))
    watcher = watch(path, source, **west)
    with not_served(MetricsCode.NO_METRICS):
        watcher.published()
    watcher.fetch_once()
    assert set(watcher.published("5m").metrics.data) == {"b"}
    assert not watcher.findings()
    watcher.stop()
    source.answers = dict.fromkeys(("15m", "10m", "5m"), down)
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
def test_what_leads_to_other_nodes_is_another_origin(name: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    """An address, a cluster's name, a tenant or a selector makes another system of the same provider."""
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
def test_what_leads_to_the_same_nodes_is_the_same_origin(change: dict[str, Any]) -> None:
    """A renewed secret, and settings of how to fetch or of other providers, leave a source what it was."""
    assert origin(**change) == origin()


def test_an_origin_holds_no_secret(tmp_path: Path) -> None:
    """Neither passwords in addresses nor what headers say is in what the store keeps."""
    kube_config = tmp_path / "kubeconfig"
    kube_config.write_text(KUBE_CONFIG)
    address = {"address": "http://me:hush@a:9090", "headers": {"X-Scope-OrgID": "hush"}, "token": "hush"}
    assert "hush" not in origin(provider=address)
    assert origin("KubernetesMetricsServer", provider={"kube_config": kube_config}) == "https://east:6443"


def test_a_kubeconfig_counts_by_where_it_leads(tmp_path: Path) -> None:
    """Its current context or the one that is set tells the cluster; one that cannot be read counts by its path."""
    kube_config = tmp_path / "kubeconfig"
    kube_config.write_text(KUBE_CONFIG)
    provider = {"kube_config": kube_config}
    west = {"kube_context": "west"}
    assert origin("KubernetesMetricsServer", provider=provider, metrics_server=west) == "https://west:6443"
    kube_config.write_text(KUBE_CONFIG.replace("current-context: east", "current-context: west"))
    assert origin("KubernetesMetricsServer", provider=provider) == "https://west:6443"
    for broken in ("", "[]", "current-context: x", "{"):
        kube_config.write_text(broken)
        assert origin("KubernetesMetricsServer", provider=provider) == str(kube_config)


def test_providers_of_one_name_stand_for_all_of_theirs() -> None:
    """Two addresses of a pair count as one system, whichever answered; providers of other names are their own."""
    fallback = {"providers": [{"name": "Prometheus", "address": "http://b"}, {"name": "Host"}]}
    settings = Settings.model_validate(
        {"provider": {"name": "Prometheus", "address": "http://a"}, "fallback": fallback, "host": {"node_name": "n"}}
    )
    assert origins(settings.for_each_provider()) == {"Prometheus": "http://a | http://b", "Host": "host.node_name=n"}
