"""Contract of ``watcher.testing`` for every included provider that has a source."""

import pytest
from support import (
    harness_datadog,
    harness_fake,
    harness_influxdb,
    harness_influxdb2,
    harness_kubelet,
    harness_kubernetes_metrics_server,
    harness_prometheus,
    harness_signalfx,
)

from watcher.providers.base import known_providers, open_provider
from watcher.settings import ProviderSettings, Settings
from watcher.testing import (
    BrokenNodeContract,
    DuplicatedSeriesContract,
    HttpContract,
    PastContract,
    ProviderContract,
    SampledSource,
    Series,
)


class TestDatadog(ProviderContract, HttpContract, DuplicatedSeriesContract, BrokenNodeContract):
    """Contract with a fake of its API."""

    harness = harness_datadog.Harness()


class TestFake(ProviderContract):
    """Contract with a file, in which a node cannot have two series."""

    harness = harness_fake.Harness()

    def test_check_succeeds(self) -> None:
        """Without a file every step succeeds."""
        steps = list(open_provider(self.harness.settings("")).check())
        assert steps
        assert all(step.ok for step in steps)


@pytest.mark.server
class TestInfluxDb(ProviderContract, HttpContract, DuplicatedSeriesContract):
    """Contract with a real influxd 1.x."""

    harness = harness_influxdb.Harness()


class TestInfluxDb2(ProviderContract, HttpContract, DuplicatedSeriesContract):
    """Contract with a fake of the API of 2.x."""

    harness = harness_influxdb2.Harness()


class TestKubelet(ProviderContract, HttpContract, BrokenNodeContract):
    """Contract with a fake API server and fake kubelets, in which a node has one name and one entry."""

    harness = harness_kubelet.Harness()


class TestKubernetesMetricsServer(ProviderContract, HttpContract, BrokenNodeContract):
    """Contract with a fake API server, in which a node has one name and one entry."""

    harness = harness_kubernetes_metrics_server.Harness()


@pytest.mark.server
class TestPrometheus(ProviderContract, HttpContract, DuplicatedSeriesContract, PastContract):
    """Contract with a real Prometheus."""

    harness = harness_prometheus.Harness()


@pytest.mark.server
class TestPrometheus3(ProviderContract, DuplicatedSeriesContract, PastContract):
    """Contract with a real Prometheus 3."""

    harness = harness_prometheus.Harness("prometheus-3")


@pytest.mark.server
class TestVictoriaMetrics(ProviderContract, DuplicatedSeriesContract, PastContract):
    """Contract with a real VictoriaMetrics."""

    harness = harness_prometheus.Harness("victoria-metrics")


class TestSignalFx(ProviderContract, HttpContract, DuplicatedSeriesContract, BrokenNodeContract):
    """Contract with a fake of its API."""

    harness = harness_signalfx.Harness()


def test_every_provider_with_a_past_has_its_contract() -> None:
    """The contract of the past is tested for each included provider that has the ability."""
    able = {name for name, entry in known_providers().items() if hasattr(entry.load(), "past")}
    assert able == {suite.harness.name for suite in PastContract.__subclasses__()}


def test_every_provider_has_a_contract() -> None:
    """Every provider is tested except Host, as this machine's values cannot be set."""
    tested = {suite.harness.name for suite in ProviderContract.__subclasses__()}
    assert tested == known_providers().keys() - {"Host"}


def test_a_source_that_fails_at_the_first_sample_is_closed() -> None:
    """A ``with`` statement that fails on entering does not call ``__exit__``."""

    def fail(*_: object) -> None:
        raise ConnectionError("the source is down")

    settings = Settings(provider=ProviderSettings(name="Host"))
    source = SampledSource(settings, {"a": Series((600.0,), (1.0,), (1.0,))}, fail)
    with pytest.raises(ConnectionError), source:
        pass
    assert source._store._closed
