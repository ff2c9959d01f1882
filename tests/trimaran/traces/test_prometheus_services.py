"""Tests that a cluster's Prometheus is found by its Service."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest
import requests

from runtime.http.gather import Deadline
from trimaran.traces.recording.prometheus import find_prometheus

if TYPE_CHECKING:
    from runtime.kubernetes.api import KubernetesApi


class Cluster:
    """API client of a cluster with Services, of which some answer queries."""

    def __init__(self, services: Mapping[str, list[Mapping[str, Any]]], answering: str = "") -> None:
        self._services, self._answering = services, answering
        self.asked: list[str] = []

    def list_items(self, _path: str, _deadline: Deadline) -> Iterator[dict[str, Any]]:
        for name, ports in self._services.items():
            yield {"metadata": {"name": name, "namespace": "monitoring"}, "spec": {"ports": ports}}

    def get(self, path: str, _deadline: Deadline, **_query: str) -> Any:
        self.asked.append(path)
        if f"/{self._answering}%3A" in path:
            return {"status": "success"}
        raise requests.ConnectionError("no endpoints available")


def find(services: Mapping[str, list[Mapping[str, Any]]], answering: str) -> tuple[str, list[str]]:
    """Return the name of the server that was found, and the asked paths."""
    cluster = Cluster(services, answering)
    return find_prometheus(cast("KubernetesApi", cluster)).name, cluster.asked


PORT = [{"name": "web", "port": 9090}]


@pytest.mark.parametrize(
    ("services", "name", "path"),
    [
        ({"prometheus-operated": PORT, "kubernetes": [{"port": 443}]}, "prometheus-operated",
         "/api/v1/namespaces/monitoring/services/prometheus-operated%3A9090/proxy/api/v1/query"),
        ({"prometheus-server": [{"name": "http", "port": 80}]}, "prometheus-server",
         "/api/v1/namespaces/monitoring/services/prometheus-server%3A80/proxy/api/v1/query"),
        ({"prometheus-operated": PORT, "thanos-query": [{"name": "grpc", "port": 10901}, *PORT]},
         "thanos-query", "/api/v1/namespaces/monitoring/services/thanos-query%3A9090/proxy/api/v1/query"),
        ({"vmselect-main": [{"name": "http", "port": 8481}]}, "vmselect-main",
         "/api/v1/namespaces/monitoring/services/vmselect-main%3A8481/proxy/select/0/prometheus/api/v1/query"),
        ({"kube-prometheus-stack-prometheus": PORT, "kube-prometheus-stack-operator": PORT},
         "kube-prometheus-stack-prometheus",
         "/api/v1/namespaces/monitoring/services/kube-prometheus-stack-prometheus%3A9090/proxy/api/v1/query"),
    ],
)  # fmt: skip
def test_the_usual_services_are_found(services: Any, name: str, path: str) -> None:
    """The widest view comes first; the port is the one with a usual name; vmselect has its API below a path."""
    assert find(services, name) == (f"Prometheus at the Service monitoring/{name}", [path])


def test_a_service_that_does_not_answer_is_passed_over() -> None:
    """The next candidate is asked, such as the server behind a Thanos that is scaled to zero."""
    name, asked = find({"thanos-query": PORT, "prometheus-operated": PORT}, "prometheus-operated")
    assert name.endswith("prometheus-operated")
    assert len(asked) == 2


@pytest.mark.parametrize("services", [{"prometheus-operated": PORT}, {"alertmanager-prometheus": PORT}, {}])
def test_without_a_prometheus_the_error_names_the_way_out(services: Any) -> None:
    """The error names the Services that do not answer, or the option for an address."""
    with pytest.raises(LookupError, match="prometheus-operated"):
        find(services, "another")


@pytest.mark.parametrize("ports", [None, "9090", [], [{}], ["9090"]])
def test_odd_services_are_passed_over(ports: Any) -> None:
    """A Service without usable ports is no candidate."""
    with pytest.raises(LookupError, match="--prometheus"):
        find({"prometheus-operated": ports}, "prometheus-operated")
