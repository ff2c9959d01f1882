"""Doctor's steps about the use of pods."""

import time
from pathlib import Path

import pytest
from support.fake_kubernetes import METRICS_GROUP, TOKEN, pod, pod_metrics, run_fake_kubernetes

from watcher.doctor.pods import examine_pods
from watcher.settings import FakeSettings, ProviderSettings, Settings, WorkloadSettings


def steps(settings: Settings) -> list[tuple[str, bool, str]]:
    return [(check.step, check.ok, check.message) for check in examine_pods(settings, time.time())]


def test_the_containers_and_workloads_are_counted() -> None:
    """With a provider that measures pods the steps have the containers, the window, the pods and the workloads."""
    settings = Settings(provider=ProviderSettings(name="Fake"), fake=FakeSettings(pods=12))
    assert steps(settings) == [
        ("use of pods", True, "Fake measures 12 containers over 300 s"),
        ("names of workloads", True, "12 running pods are of 3 workloads"),
    ]


@pytest.mark.parametrize(
    ("settings", "is_ok", "reason"),
    [
        (Settings(provider=ProviderSettings(name="Host")), True, "Host cannot measure pods; Kubelet, "),
        (Settings(workloads=WorkloadSettings(enabled=False)), True, "workloads.enabled is false"),
        (Settings(provider=ProviderSettings(name="Fake"), fake=FakeSettings(failure="refused")), False, "fake.failure"),
        (
            Settings(provider=ProviderSettings(name="KubernetesMetricsServer", address="http://127.0.0.1:9")),
            False, "Connection refused",
        ),
    ],
)  # fmt: skip
def test_a_provider_that_can_measure_pods_must_do_so(settings: Settings, is_ok: bool, reason: str) -> None:
    """The step has the reason why pods are not measured, and fails if the provider could measure them."""
    ((step, ok, message),) = steps(settings)
    assert (step, ok) == ("use of pods", is_ok)
    assert message.startswith("not measured: ")
    assert reason in message


def test_missing_rights_are_named(tmp_path: Path) -> None:
    """Missing rights for pods, for their metrics or for their owners are named with the rule."""
    with run_fake_kubernetes(tmp_path) as fake:
        fake.put("pods", pod("web-1", "node-1"))
        fake.pod_metrics = {"a": pod_metrics("web-1", time.time(), ("main", "1", "1Mi"))}
        settings = Settings(
            provider=ProviderSettings(
                name="KubernetesMetricsServer", address=fake.url, token=TOKEN, ca_file=fake.ca_file
            )
        )
        fake.forbidden = {("apps", "replicasets", "list"), ("batch", "jobs", "list")}
        message = steps(settings)[0][2]
        assert message.startswith("KubernetesMetricsServer measures 1 ")
        assert 'resources: ["replicasets"]' in message
        fake.forbidden = {(METRICS_GROUP, "pods", "list")}
        assert 'apiGroups: ["metrics.k8s.io"], resources: ["pods"]' in steps(settings)[0][2]
        fake.forbidden = {("", "pods", "list")}
        assert 'apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]' in steps(settings)[0][2]


def test_names_that_separate_the_pods_of_a_program_fail(tmp_path: Path) -> None:
    """Below 80 percent of pods in workloads that recur, a failed step has examples and the setting."""
    with run_fake_kubernetes(tmp_path) as fake:
        for name in ("notebook-alice", "notebook-bob", "etl-1", "etl-2"):
            fake.put("pods", pod(name, "node-1"))
            fake.pod_metrics[name] = pod_metrics(name, time.time(), ("main", "1", "1Mi"))
        settings = Settings(
            provider=ProviderSettings(
                name="KubernetesMetricsServer", address=fake.url, token=TOKEN, ca_file=fake.ca_file
            )
        )
        *_, names = examine_pods(settings, time.time())
    assert (names.step, names.ok, names.setting) == ("names of workloads", False, "workloads.owner_labels")
    assert "4 running pods" in names.message
    assert "default/Pod/notebook-bob, default/Pod/notebook-alice" in names.message
