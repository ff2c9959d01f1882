"""The contract of ``watcher.testing`` over every provider of ours that talks to a source."""

from support import (
    harness_datadog,
    harness_fake,
    harness_influxdb,
    harness_influxdb2,
    harness_kubernetes_metrics_server,
    harness_prometheus,
    harness_signalfx,
)

from watcher.providers.base import known_providers, open_provider
from watcher.testing import DuplicatedSeriesContract, HttpContract, ProviderContract


class TestDatadog(ProviderContract, HttpContract, DuplicatedSeriesContract):
    """Over a fake of its API."""

    harness = harness_datadog.Harness()


class TestFake(ProviderContract):
    """Over a file; a node cannot be in it twice."""

    harness = harness_fake.Harness()

    def test_check_finds_nothing_wrong(self) -> None:
        """Without a file every step is fine."""
        steps = list(open_provider(self.harness.settings("")).check())
        assert steps
        assert all(step.ok for step in steps)


class TestInfluxDb(ProviderContract, HttpContract, DuplicatedSeriesContract):
    """Over a real influxd 1.x."""

    harness = harness_influxdb.Harness()


class TestInfluxDb2(ProviderContract, HttpContract, DuplicatedSeriesContract):
    """Over a fake of the API of 2.x."""

    harness = harness_influxdb2.Harness()


class TestKubernetesMetricsServer(ProviderContract, HttpContract):
    """Over a fake API server, in which a node has one name and one entry."""

    harness = harness_kubernetes_metrics_server.Harness()


class TestPrometheus(ProviderContract, HttpContract, DuplicatedSeriesContract):
    """Over a real Prometheus."""

    harness = harness_prometheus.Harness()


class TestSignalFx(ProviderContract, HttpContract, DuplicatedSeriesContract):
    """Over a fake of its API."""

    harness = harness_signalfx.Harness()


def test_no_provider_is_forgotten() -> None:
    """Every provider is under the contract but Host: this machine cannot be told what to hold."""
    tested = {suite.harness.name for suite in ProviderContract.__subclasses__()}
    assert tested == known_providers().keys() - {"Host"}
