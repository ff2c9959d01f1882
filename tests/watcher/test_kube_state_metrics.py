"""The running pods by kube-state-metrics, from a real Prometheus."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import run_prometheus

from runtime.http.gather import Deadline
from runtime.kubernetes.workloads import Workload
from watcher.errors import ProviderAnswerError
from watcher.providers.prometheus import PrometheusProvider
from watcher.settings import ProviderSettings, Settings
from watcher.workloads.kube_state_metrics import KubeStatePods
from watcher.workloads.pods import ContainerResources, PodKey

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


def lines(at: int) -> Iterator[str]:
    for metric, series in SERIES.items():
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
        ContainerResources("app", 250, 2**26), ContainerResources("log", cpu_limit_milli=1000)
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
        with pytest.raises(ProviderAnswerError, match="does it scrape kube-state-metrics"):
            source_at(url).running(Deadline.after(10))
