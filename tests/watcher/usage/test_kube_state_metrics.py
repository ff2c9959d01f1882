"""The running pods by kube-state-metrics, from a real Prometheus."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from support.servers import run_prometheus

from runtime.http.gather import Deadline
from runtime.kubernetes.workloads import ContainerRole, Workload
from watcher.errors import ProviderAnswerError
from watcher.providers.prometheus import PrometheusProvider
from watcher.settings import ProviderSettings, Settings
from watcher.usage.learn.use_round import use_round
from watcher.usage.sources.kube_state_metrics import KubeStatePods
from watcher.usage.sources.pods import ContainerResources, ContainerRestart, PodKey, RunningPod, requested
from watcher.windows.container_use import ContainerUse

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("closed_sessions")]

SERIES = {
    "kube_pod_info": [
        ('pod="web-7f9c-a",created_by_kind="ReplicaSet",created_by_name="web-7f9c",node="n1",uid="1"', 1),
        ('pod="web-7f9c-a",created_by_kind="ReplicaSet",created_by_name="web-7f9c",node="n1",uid="1",instance="b"', 1),
        ('pod="save-1-x",created_by_kind="Job",created_by_name="save-1",node="n1"', 1),
        ('pod="alone-x7k2p",created_by_kind="<none>",created_by_name="<none>",node="n1"', 1),
        ('pod="etl-exec-1",created_by_kind="Pod",created_by_name="etl-driver",node="n1"', 1),
        ('pod="done-1",created_by_kind="Job",created_by_name="done",node="n1"', 1),
    ],
    "kube_pod_status_phase": [
        *((f'pod="{pod}",phase="Running"', 1) for pod in ("web-7f9c-a", "save-1-x", "alone-x7k2p", "etl-exec-1")),
        ('pod="done-1",phase="Running"', 0), ('pod="done-1",phase="Succeeded"', 1),
    ],
    "kube_replicaset_owner": [('replicaset="web-7f9c",owner_kind="Deployment",owner_name="web"', 1)],
    "kube_job_owner": [('job_name="save-1",owner_kind="CronJob",owner_name="save",owner_is_controller="true"', 1),
                       ('job_name="done",owner_kind="<none>",owner_name="<none>"', 1)],
    "kube_pod_labels": [('pod="web-7f9c-a",label_pod_template_hash="7f9c"', 1),
                        ('pod="etl-exec-1",label_spark_role="executor",label_spark_app_name="etl"', 1),
                        ('pod="alone-x7k2p",label_example_com_team="search"', 1)],
    "kube_pod_container_resource_requests": [
        ('pod="web-7f9c-a",container="app",resource="cpu",unit="core"', 0.25),
        ('pod="web-7f9c-a",container="app",resource="cpu",unit="core",instance="b"', 0.25),
        ('pod="web-7f9c-a",container="app",resource="memory",unit="byte"', 2**26),
        ('pod="web-7f9c-a",container="log",resource="memory",unit="byte"', -5),
        ('pod="save-1-x",container="main",resource="cpu",unit="core"', 1e30),
    ],
    "kube_pod_container_resource_limits": [('pod="web-7f9c-a",container="log",resource="cpu",unit="core"', 1)],
    "kube_pod_start_time": [('pod="web-7f9c-a"', 1_700_000_000)],
}  # fmt: skip


def lines(at: int, all_series: Mapping[str, list[tuple[str, float]]] = SERIES) -> Iterator[str]:
    for metric, series in all_series.items():
        yield f"# TYPE {metric} gauge\n"
        for labels, value in series:
            yield f'{metric}{{namespace="shop",{labels}}} {value} {at}\n'


def source_at(url: str, *owner_labels: str) -> KubeStatePods:
    provider = PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url)))
    return KubeStatePods(provider.series, "", owner_labels)


def test_running_pods_have_workloads_and_resources(tmp_path: Path) -> None:
    """Each running pod has its workload, revision, start and containers, from one or several instances."""
    with run_prometheus(tmp_path, lines(int(time.time()) - 30)) as url:
        running = source_at(url, "example.com/team").running(Deadline.after(10))
    web = running[PodKey("shop", "web-7f9c-a")]
    assert (web.template.revision, web.started_at) == ("7f9c", 1_700_000_000)
    assert web.template.containers == (
        ContainerResources("app", 250, 2**26, role=ContainerRole.CONTAINER),
        ContainerResources("log", cpu_limit_milli=1000, role=ContainerRole.CONTAINER),
    )  # fmt: skip
    assert {key.name: pod.template.workload for key, pod in running.items()} == {
        "web-7f9c-a": Workload("shop", "Deployment", "web"),
        "save-1-x": Workload("shop", "CronJob", "save"),
        "alone-x7k2p": Workload("shop", "Label", "search"),
        "etl-exec-1": Workload("shop", "SparkApplication", "etl"),
    }
    assert running[PodKey("shop", "save-1-x")].template.containers == ()


def test_a_prometheus_without_kube_state_metrics_is_an_error(tmp_path: Path) -> None:
    """Without its series the error names kube-state-metrics."""
    with run_prometheus(tmp_path, ["# TYPE up gauge\n", f"up 1 {int(time.time()) - 30}\n"]) as url:
        with pytest.raises(ProviderAnswerError, match="kube-state-metrics"):
            source_at(url).running(Deadline.after(10))


# -- all parts of a pod ---------------------------------------------------------------------------------------------

NOW = 1_700_001_000
PODS = ("mesh", "old", "plain", "whole", "crash", "hidden")


def amounts(pod: str, container: str, cpu: float | None, memory: float | None) -> list[tuple[str, float]]:
    """Return the series of a container's requests or limits."""
    named = (("cpu", cpu), ("memory", memory))
    return [(f'pod="{pod}",container="{container}",resource="{name}"', value) for name, value in named if value]


PARTS = {
    "kube_pod_info": [(f'pod="{pod}",created_by_kind="StatefulSet",created_by_name="{pod}"', 1) for pod in PODS],
    "kube_pod_status_phase": [(f'pod="{pod}",phase="Running"', 1) for pod in PODS],
    "kube_pod_container_info": [
        (f'pod="{pod}",container="{name}",image="x"', 1)
        for pod, name in (("mesh", "main"), ("old", "main"), ("plain", "main"), ("plain", "free"), ("whole", "main"),
                          ("crash", "main"))
    ],
    "kube_pod_init_container_info": [
        ('pod="mesh",container="proxy",restart_policy="Always"', 1), ('pod="mesh",container="setup"', 1),
        ('pod="old",container="proxy"', 1), ('pod="old",container="setup"', 1),
    ],
    # Of a kube-state-metrics without restart_policy: an init container that runs in a running pod is a sidecar.
    "kube_pod_init_container_status_running": [
        ('pod="mesh",container="proxy"', 1), ('pod="mesh",container="setup"', 0),
        ('pod="old",container="proxy"', 1), ('pod="old",container="setup"', 0),
    ],
    "kube_pod_container_resource_requests": [
        *amounts("mesh", "main", 1, 1e9), *amounts("old", "main", 1, 1e9), *amounts("plain", "main", 1, 1e9),
        *amounts("crash", "main", 0.1, 2**26), *amounts("hidden", "main", 1, 1e9),
    ],
    "kube_pod_container_resource_limits": [
        *amounts("mesh", "main", 1, 1e9), *amounts("plain", "main", 1, 1e9), *amounts("crash", "main", None, 2**26),
    ],
    "kube_pod_init_container_resource_requests": [
        *amounts("mesh", "proxy", 0.5, 5e8), *amounts("mesh", "setup", 4, None), *amounts("old", "proxy", 0.5, 5e8),
        *amounts("hidden", "proxy", 0.5, 5e8),
    ],
    "kube_pod_init_container_resource_limits": [*amounts("mesh", "proxy", 0.5, 5e8)],
    "kube_pod_status_qos_class": [
        ('pod="whole",qos_class="Guaranteed"', 1), ('pod="whole",qos_class="Burstable"', 0),
        ('pod="mesh",qos_class="Guaranteed"', 0), ('pod="mesh",qos_class="Burstable"', 1),
    ],
    # kube-scheduler's, scraped without honor_labels: the pod's own labels have the prefix.
    "kube_pod_resource_request": [
        ('pod="kube-scheduler",exported_namespace="shop",exported_pod="whole",resource="cpu",unit="cores"', 2),
        ('pod="kube-scheduler",exported_namespace="shop",exported_pod="whole",resource="memory",unit="bytes"', 4e9),
        ('pod="mesh",resource="cpu",unit="cores"', 4.5), ('pod="plain",resource="cpu",unit="cores"', 1.25),
    ],
    "kube_pod_resource_limit": [('pod="whole",resource="memory",unit="bytes"', 4e9)],
    "kube_pod_overhead_cpu_cores": [('pod="plain"', 0.25)],
    "kube_pod_start_time": [('pod="mesh"', 1_700_000_100)],
    "kube_pod_init_container_status_last_terminated_reason": [('pod="mesh",container="proxy",reason="OOMKilled"', 1)],
    "kube_pod_container_status_last_terminated_reason": [('pod="crash",container="main",reason="OOMKilled"', 1)],
    "kube_pod_container_status_last_terminated_timestamp": [('pod="crash",container="main"', 1_700_000_500)],
}  # fmt: skip


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunningPod]:
    """Return the running pods of PARTS by name."""
    with run_prometheus(tmp_path_factory.mktemp("parts"), lines(int(time.time()) - 30, PARTS)) as url:
        provider = PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url)))
        with contextlib.closing(provider):
            running = KubeStatePods(provider.series, "").running(Deadline.after(10))
    return {key.name: pod for key, pod in running.items()}


MAIN = ContainerResources("main", 1000, 10**9, role=ContainerRole.CONTAINER)
PROXY = ContainerResources("proxy", 500, 5 * 10**8, role=ContainerRole.SIDECAR)


def test_init_containers_that_keep_running_are_sidecars(parts: dict[str, RunningPod]) -> None:
    """A sidecar is known by its restart policy, or because it runs in a running pod; others are init containers."""
    mesh, old = parts["mesh"].template, parts["old"].template
    limited = [each._replace(cpu_limit_milli=each.cpu_request_milli, memory_limit_bytes=each.memory_request_bytes)
               for each in (MAIN, PROXY)]  # fmt: skip
    assert (mesh.containers, mesh.init_containers) == (tuple(limited), ("setup",))
    assert (old.containers, old.init_containers) == ((MAIN, PROXY), ("setup",))
    assert requested(mesh) == (4500, 15 * 10**8)  # setup runs with the sidecar


def test_a_sidecar_without_its_info_series_keeps_its_requests(parts: dict[str, RunningPod]) -> None:
    """Without a series of its info, an init container's role is that of a pod that may have more containers."""
    hidden = parts["hidden"].template
    assert [each.name for each in hidden.containers] == ["main"]
    assert not hidden.is_complete


def test_a_container_without_amounts_is_listed(parts: dict[str, RunningPod]) -> None:
    """A container without requests and limits is one of its pod, which is then not of the class Guaranteed."""
    plain = parts["plain"].template
    assert [each.name for each in plain.containers] == ["free", "main"]
    assert plain.containers[0] == ContainerResources("free", role=ContainerRole.CONTAINER)
    assert not plain.is_guaranteed


def test_the_qos_class_is_the_reported_one(parts: dict[str, RunningPod]) -> None:
    """kube_pod_status_qos_class decides; without it all containers count, with sidecars and init containers."""
    assert {name: pod.template.is_guaranteed for name, pod in parts.items()} == dict.fromkeys(PODS, False) | {
        "whole": True
    }


def test_requests_of_a_pod_as_a_whole_come_from_kube_scheduler(parts: dict[str, RunningPod]) -> None:
    """The pod as a whole requests the amount of kube-scheduler, if it is above containers and overhead together."""
    whole = parts["whole"].template
    assert whole.pod == ContainerResources("", 2000, 4 * 10**9, None, 4 * 10**9)
    assert requested(whole) == (2000, 4 * 10**9)
    assert parts["mesh"].template.pod is None  # 4.5 cores are those of setup and proxy
    assert parts["plain"].template.pod is None  # 1.25 cores are those of main and the overhead


def test_restarts_come_from_kube_state_metrics(parts: dict[str, RunningPod]) -> None:
    """With the times of the last ends of containers, restarts and kills are known; a sidecar's from its pod's start."""
    assert parts["crash"].restarts == (ContainerRestart("main", 1_700_000_500.0, was_out_of_memory=True),)
    assert parts["mesh"].restarts == (ContainerRestart("proxy", 1_700_000_100.0, was_out_of_memory=True),)
    assert parts["plain"].restarts == ()


def test_killed_pods_that_do_not_start_again_are_known(tmp_path: Path) -> None:
    """A Job's pod that was killed and has failed is among the killed ones; one that failed otherwise is not."""
    reason = "kube_pod_container_status_terminated_reason"
    series = {
        **SERIES,
        "kube_pod_status_phase": [('pod="save-1-x",phase="Failed"', 1), ('pod="alone-x7k2p",phase="Failed"', 1),
                                  ('pod="etl-exec-1",phase="Running"', 1)],
        reason: [('pod="save-1-x",container="main",reason="OOMKilled"', 1),
                 ('pod="alone-x7k2p",container="main",reason="OOMKilled"', 0)],
        "kube_pod_completion_time": [('pod="save-1-x"', 1_700_000_500), ('pod="alone-x7k2p"', 1_700_000_500)],
    }  # fmt: skip
    with run_prometheus(tmp_path, lines(int(time.time()) - 30, series)) as url:
        provider = PrometheusProvider(Settings(provider=ProviderSettings(name="Prometheus", address=url)))
        with contextlib.closing(provider):
            (found,) = KubeStatePods(provider.series, "").killed(Deadline.after(10))
    assert found.template.workload == Workload("shop", "CronJob", "save")
    assert found.restarts == (ContainerRestart("main", 1_700_000_500.0, was_out_of_memory=True),)


def test_an_ephemeral_container_is_none_of_its_workload(parts: dict[str, RunningPod]) -> None:
    """A measured container that the pod's specification does not name is left out, but not where it may be unnamed."""
    rows = [("mesh", "main"), ("mesh", "shell"), ("hidden", "main"), ("hidden", "proxy"), ("hidden", "debugger-x7k2p")]
    pods, names = zip(*rows, strict=True)
    use = ContainerUse(NOW, 300.0, ["shop"] * len(rows), pods, names, np.ones(len(rows)), np.ones(len(rows)))
    found = use_round(use, {PodKey("shop", name): pod for name, pod in parts.items()}, 0)
    assert found is not None
    assert [place >= 0 for place in found.container.tolist()] == [True, False, True, True, False]
