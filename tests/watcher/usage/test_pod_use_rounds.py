"""Rounds of pod use: their result, failures that cost nothing else, and the metrics about them."""

import contextlib
import gc
import time
from collections.abc import Mapping
from typing import Any

import pytest
from support.servers import Service, wait_until

from runtime.errors import SettingsError
from runtime.http.gather import Deadline
from runtime.kubernetes.workloads import Workload
from watcher.errors import ProviderError, ProviderUnavailable
from watcher.model import Window
from watcher.settings import FakeSettings, ProviderSettings, Settings, WorkloadSettings
from watcher.usage.learn.recurrence import Recurrence
from watcher.usage.rounds import PodUseRounds
from watcher.usage.sources.pods import Capacity, PodKey, PodTemplate, RunningPod, RunningPods
from watcher.usage.sources.sources import FirstWorking, PodUseSources, open_sources
from watcher.windows.container_use import ContainerUse, ContainerUseBuilder


class Recorder:
    """An observer that keeps what it is called with."""

    def __init__(self) -> None:
        self.rounds: list[tuple[ContainerUse, RunningPods]] = []
        self.capacity: Capacity | None = None

    def observe(self, use: ContainerUse, pods: RunningPods, capacity: Capacity | None = None) -> None:
        self.rounds.append((use, pods))
        self.capacity = capacity


class Failing:
    """A source of pods and a provider that fail while ``error`` is set."""

    error: Exception | None = None
    capacity_error: ProviderError | None = None
    problems = ()
    closed = 0

    def running(self, deadline: Deadline) -> RunningPods:
        if self.error is not None:
            raise self.error
        return {}

    def killed(self, deadline: Deadline) -> tuple[RunningPod, ...]:
        return ()

    def capacity(self, deadline: Deadline) -> Capacity:
        if self.capacity_error is not None:
            raise self.capacity_error
        return (8.0, 2.0**35)

    def pod_use(self, window: Window, deadline: Deadline) -> ContainerUse:
        return ContainerUseBuilder().build(window.end, 60)

    def close(self) -> None:
        self.closed += 1


def fake(**options: Any) -> Settings:
    return Settings(provider=ProviderSettings(name="Fake"), fake=FakeSettings(**options))


@pytest.mark.parametrize("error", [None, RuntimeError("a defect")])
def test_garbage_is_not_collected_during_a_round(error: Exception | None) -> None:
    """Requests do not wait for the collector to traverse the objects of a round; it works again afterwards."""
    during = []

    class Observer:
        def observe(self, *_round: object) -> None:
            during.append(gc.isenabled())
            if error is not None:
                raise error

    rounds = PodUseRounds(fake(pods=3), [Observer()])
    with pytest.raises(RuntimeError) if error else contextlib.nullcontext():
        rounds.run_once()
    assert during == [False]
    assert gc.isenabled()
    rounds.stop()


def test_a_round_has_the_use_and_the_workload_of_every_pod() -> None:
    """Observers get the use of every container, and the workload and requests of every pod, of the same moment."""
    seen = Recorder()
    rounds = PodUseRounds(fake(pods=12), [seen], clock=lambda: 1_000_000.7)
    assert rounds.run_once()
    ((use, pods),) = seen.rounds
    assert (use.timestamp, use.window_seconds, len(use)) == (1_000_000, 300, 12)
    assert [PodKey(*key) for key in zip(use.namespaces, use.pods, strict=True)] == list(pods)
    assert {pod.template.workload for pod in pods.values()} == {
        Workload("default", "Deployment", f"app-{number}") for number in (1, 2, 3)
    }
    state = rounds.state
    assert (state.timestamp, state.containers, state.pods, state.workloads) == (1_000_000, 12, 12, 3)
    assert (state.recurring_share, state.failures, state.failure) == (1.0, 0, "")
    rounds.stop()


def test_a_failed_round_is_counted_and_the_next_one_succeeds() -> None:
    """A failure has its reason until a round succeeds; an unexpected one is raised for the loop's log."""
    source, seen = Failing(), Recorder()
    rounds = PodUseRounds(Settings(), [seen], lambda _settings: PodUseSources("Fake", source, FirstWorking([source])))
    source.error = ProviderUnavailable("the pods are not known")
    assert not rounds.run_once()
    assert (rounds.state.failures, rounds.state.failure) == (1, "the pods are not known")
    source.error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        rounds.run_once()
    assert rounds.state.failures == 2
    source.error = None
    assert rounds.run_once()
    assert (rounds.state.failures, rounds.state.failure, len(seen.rounds)) == (2, "", 1)
    rounds.stop()
    assert source.closed == 2


def test_an_unknown_capacity_fails_no_round() -> None:
    """A round has the capacity of the nodes; where that cannot be read, the round succeeds without it."""
    source, seen = Failing(), Recorder()
    rounds = PodUseRounds(Settings(), [seen], lambda _settings: PodUseSources("Fake", source, FirstWorking([source])))
    assert rounds.run_once()
    assert seen.capacity == (8.0, 2.0**35)
    source.capacity_error = ProviderUnavailable("no right to list nodes")
    assert rounds.run_once()
    assert (seen.capacity, rounds.state.failures) == (None, 0)
    rounds.stop()


def test_a_provider_that_cannot_ends_the_rounds() -> None:
    """Without a provider that measures pods there is no further round, and the reason names those that can."""
    settings = Settings(provider=ProviderSettings(name="Host"))
    rounds = PodUseRounds(settings)
    assert not rounds.run_once()
    assert "Host cannot measure pods; Kubelet" in rounds.state.failure
    assert rounds.state.failures == 0
    with pytest.raises(SettingsError, match=r"Host .*Kubelet"):
        open_sources(settings)


def test_a_fallback_that_can_measures_pods() -> None:
    """If the preferred provider cannot measure pods, the first fallback that can does."""
    settings = Settings(
        provider=ProviderSettings(name="Host"), fallback={"providers": [{"name": "Fake"}]}, fake=FakeSettings(pods=5)
    )
    sources = open_sources(settings)
    assert sources.name == "Fake"
    sources.close()


def pods(*named: tuple[str, str, str]) -> Mapping[PodKey, RunningPod]:
    return {
        PodKey("ns", pod): RunningPod(PodTemplate(Workload("ns", kind, name), "", ()), None)
        for pod, kind, name in named
    }


def test_a_workload_recurs_with_a_second_pod_or_run() -> None:
    """Pods of lasting controllers recur; others once a second pod or a later run of their workload was seen."""
    recurrence = Recurrence()
    first = pods(("web-1", "Deployment", "web"), ("etl-1", "Job", "etl"), ("nb-1", "Pod", "nb"), ("nb-2", "Pod", "nb"))
    assert recurrence.update(first) == 0.75
    assert recurrence.update(first) == 0.75
    assert recurrence.lone(3) == ["ns/Job/etl"]
    assert recurrence.update(pods(("etl-2", "Job", "etl"))) == 1.0
    assert recurrence.update({}) == 1.0


def test_the_least_recently_seen_workloads_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit a workload that is seen again is new; the names of lone workloads begin with the newest."""
    monkeypatch.setattr("watcher.usage.learn.recurrence._MOST_WORKLOADS", 2)
    recurrence = Recurrence()
    recurrence.update(pods(("a-1", "Job", "a"), ("b-1", "Job", "b")))
    assert (recurrence.lone(5), recurrence.lone(1)) == (["ns/Job/b", "ns/Job/a"], ["ns/Job/b"])
    for name in "ac":
        recurrence.update(pods((f"{name}-1", "Job", name)))
    assert recurrence.lone(5) == ["ns/Job/c", "ns/Job/a"]
    assert recurrence.update(pods(("b-2", "Job", "b"))) == 0.0


def test_the_service_measures_pods_beside_the_nodes(watch: Any) -> None:
    """The service's metrics show the newest round; nodes are served at the same time."""
    service: Service = watch("--provider", "Fake", TRIMARAN_FAKE__PODS="40")
    service.wait_for("/watcher/node-1")

    def measured() -> bool:
        return "trimaran_pod_use_containers 40.0" in service.get("/metrics").text

    wait_until(measured, "the first round has ended")
    text = service.get("/metrics").text
    assert "trimaran_pod_use_workloads 8.0" in text
    assert "trimaran_pod_use_recurring_ratio 1.0" in text
    assert "trimaran_pod_use_failures_total 0.0" in text


def test_nodes_are_served_while_pods_hang(watch: Any) -> None:
    """A failing measurement of pods is counted, and leaves the nodes' health as it was."""
    service: Service = watch(
        "--provider", "Prometheus", "--address", "http://127.0.0.1:9",
        TRIMARAN_FALLBACK__PROVIDERS='[{"name": "Fake"}]',
    )  # fmt: skip
    service.wait_for("/watcher/node-1")
    wait_until(lambda: "trimaran_pod_use_failures_total 1.0" in service.get("/metrics").text, "a round has failed")
    assert service.get("/watcher/health").status_code == 200
    assert time.time() - service.get("/watcher").json()["timestamp"] < 120


def test_a_watcher_can_leave_pods_alone() -> None:
    """With workloads.enabled = false no round is started."""
    rounds = PodUseRounds(fake().model_copy(update={"workloads": WorkloadSettings(enabled=False)}))
    rounds.start()
    assert not rounds._timer.is_alive()
    rounds.stop()
