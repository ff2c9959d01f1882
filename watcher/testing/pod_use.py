"""Contract of providers that measure pods, as tests: each value is right, or unknown, never a wrong number.

Subclass the suites in a class whose name pytest collects, and set its harness::

    class TestInventoryPods(PodUseContract, PodUseHttpContract):
        harness = Harness()
"""

import contextlib
import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderError, ProviderRefused, ProviderUnavailable
from watcher.model import Window
from watcher.providers.base import PodUseProvider, close_provider, open_provider
from watcher.settings import Settings
from watcher.testing.servers import reply, serving, trickling
from watcher.windows.container_use import ContainerUse

_STEP_SECONDS = 30
_WINDOW_SECONDS = 300
_TIMEOUT_SECONDS = 20
_MEBI = 2.0**20


class ContainerId(NamedTuple):
    """Identity of a container: namespace and name of its pod, and its own name."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class MeasuredContainer:
    """Container whose use is constant, and the times at which it was measured.

    Attributes:
        cpu_cores: use of CPU; may be NaN, infinite, negative or huge.
        memory_bytes: working set; may be NaN, infinite, negative or huge.
        ages: times of the measurements in seconds before the end of the window, the newest last; the container starts
            half a step before the first measurement.
    """

    cpu_cores: float
    memory_bytes: float
    ages: npt.NDArray[np.int64] = field(default_factory=lambda: np.arange(1200, -1, -_STEP_SECONDS))


class PodUseSource(Protocol):
    """Running source of the use of containers."""

    def pod_use(self, window: Window) -> ContainerUse:
        """Read the use with the provider, built from settings like a user's."""
        ...


class PodUseHarness(Protocol):
    """Provider under test, and its source: the real source if it can run here, else a fake.

    Attributes:
        name: the provider's name for METRICS_PROVIDER_NAME.
        tolerance: largest relative error of CPU use.
    """

    name: str
    tolerance: float

    def measuring(
        self, containers: Mapping[ContainerId, MeasuredContainer], end: int
    ) -> AbstractContextManager[PodUseSource]:
        """Start the source with these containers.

        Args:
            containers: the containers.
            end: end of the window, Unix seconds.
        """
        ...

    def settings(self, address: str) -> Settings:
        """Return settings for an address, with the token ``right-token`` if the provider uses tokens."""
        ...


class ProviderSource:
    """Source behind a provider that is built for each call."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def pod_use(self, window: Window) -> ContainerUse:
        """Read the use with a new provider."""
        provider = open_provider(self._settings)
        try:
            assert isinstance(provider, PodUseProvider)
            return provider.pod_use(window, Deadline.after(_TIMEOUT_SECONDS))
        finally:
            close_provider(provider)


class PodUseContract:
    """Tests of the use of containers, for every provider that measures pods."""

    harness: ClassVar[PodUseHarness]

    def test_every_container_has_its_use(self) -> None:
        """Each container of each pod has one row with its CPU use and its working set; names keep every character."""
        containers = {
            ContainerId(f"team-{number % 3}", f"web.v1-{number}", name): MeasuredContainer(0.1 + number, number * _MEBI)
            for number in range(1, 9)
            for name in (("app", "proxy-1") if number % 2 else ("app",))
        }
        use = self._read(containers)
        rows = _rows(use)
        assert rows.keys() == containers.keys()
        for key, (cpu, memory) in rows.items():
            assert cpu == pytest.approx(containers[key].cpu_cores, rel=self.harness.tolerance)
            assert memory == containers[key].memory_bytes
        assert use.window_seconds > 0
        assert use.findings == ()

    def test_a_container_that_was_measured_once_is_unknown(self) -> None:
        """A container with one measurement has no row, or one without values; it never counts as idle."""
        young, old = ContainerId("team", "young", "app"), ContainerId("team", "old", "app")
        rows = _rows(
            self._read({young: MeasuredContainer(1, _MEBI, np.zeros(1, np.int64)), old: MeasuredContainer(1, _MEBI)})
        )
        assert old in rows
        assert all(map(math.isnan, rows.get(young, (math.nan,))))

    def test_a_container_that_ended_is_left_out(self) -> None:
        """A container that was last measured long ago has no row."""
        gone, here = ContainerId("team", "gone", "app"), ContainerId("team", "here", "app")
        ages = np.arange(7200, 3600, -_STEP_SECONDS)
        rows = _rows(self._read({gone: MeasuredContainer(1, _MEBI, ages), here: MeasuredContainer(1, _MEBI)}))
        assert rows.keys() == {here}

    def test_impossible_values_are_unknown(self) -> None:
        """Negative, infinite and huge values and NaN are unknown, with a finding; other containers keep theirs."""
        good = ContainerId("team", "good", "app")
        containers = {good: MeasuredContainer(0.5, _MEBI)}
        for number, bad in enumerate((math.nan, math.inf, -1e9, 1e300)):
            containers[ContainerId("team", f"bad-{number}", "app")] = MeasuredContainer(0.25, bad)
        use = self._read(containers)
        rows = _rows(use)
        cpu, memory = rows.pop(good)
        assert (cpu, memory) == pytest.approx((0.5, _MEBI), rel=self.harness.tolerance)
        assert all(math.isnan(memory) for _, memory in rows.values())
        assert [finding.kind for finding in use.findings] == ["bad_value"]

    def test_no_containers_give_an_error_or_an_empty_table(self) -> None:
        """A source without containers yields a ProviderError or an empty table."""
        with contextlib.suppress(ProviderError):
            assert not len(self._read({}))

    def _read(self, containers: Mapping[ContainerId, MeasuredContainer]) -> ContainerUse:
        end = int(time.time()) - 2
        with self.harness.measuring(containers, end) as source:
            return source.pod_use(Window("5m", end - _WINDOW_SECONDS, end))


class PodUseHttpContract:
    """Tests of failures, for providers that use HTTP with ``provider.address``."""

    harness: ClassVar[PodUseHarness]

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (401, ProviderRefused),
            (403, ProviderRefused),
            (404, ProviderAnswerError),
            (422, ProviderAnswerError),
            (429, ProviderUnavailable),
            (503, ProviderUnavailable),
        ],
    )
    def test_error_statuses_become_provider_errors(self, status: int, expected: type[ProviderError]) -> None:
        """An error status becomes a ProviderError with provider and status."""
        with serving(lambda handler: reply(handler, b'{"error": "because"}', status)) as fake:
            error = self._failure(fake.url)
        assert isinstance(error, expected)
        assert str(status) in str(error)
        assert self.harness.name in str(error)

    @pytest.mark.parametrize("body", [b"<html>please log in</html>", b"", b"[]", b"null", b'{"data": 7}', b"\xff"])
    def test_unexpected_bodies_are_errors(self, body: bytes) -> None:
        """JSON of another shape, or a body that is not JSON, becomes a ProviderError."""
        with serving(lambda handler: reply(handler, body)) as fake:
            self._failure(fake.url)

    def test_slow_response_ends_at_the_deadline(self) -> None:
        """A response that never ends is aborted at the deadline."""
        with trickling() as address:
            began = time.monotonic()
            assert isinstance(self._failure(address, seconds=0.3), ProviderUnavailable)
            assert time.monotonic() - began < _TIMEOUT_SECONDS

    def _failure(self, address: str, seconds: float = 5) -> ProviderError:
        provider = open_provider(self.harness.settings(address))
        try:
            assert isinstance(provider, PodUseProvider)
            with pytest.raises(ProviderError) as caught:
                provider.pod_use(Window("5m", 0, _WINDOW_SECONDS), Deadline.after(seconds))
        finally:
            close_provider(provider)
        assert "right-token" not in str(caught.value)
        return caught.value


def _rows(use: ContainerUse) -> dict[ContainerId, tuple[float, float]]:
    """Return cores and bytes by container, after checking that each container has one row."""
    keys = [ContainerId(*key) for key in zip(use.namespaces, use.pods, use.containers, strict=True)]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, zip(use.cpu_cores.tolist(), use.memory_bytes.tolist(), strict=True), strict=True))
