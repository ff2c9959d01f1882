"""Status of ElasticQuotas, written by the scheduler as the controller of scheduler-plugins does."""

from collections.abc import Mapping
from typing import Any

from runtime.http.gather import Deadline
from trimaran.scheduler.service.quota_statuses import QUOTA_STATUS
from trimaran.scheduler.service.status_controller import ObjectStatusWriter


class Patches:
    """API server that keeps the patches."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Mapping[str, Any]]] = []

    def send(self, method: str, path: str, deadline: Deadline, body: Any, content_type: str) -> Mapping[str, Any]:
        """Keep a patch."""
        del method, deadline, content_type
        self.sent.append((path, body["status"]["used"]))
        return {}


def pod(name: str, namespace: str, cpu: str) -> dict[str, Any]:
    spec = {
        "nodeName": "n",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "example.com/gpu": "1"}}}],
    }
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": spec}


def test_the_use_of_a_namespace_is_written_to_its_quotas_and_only_when_it_changes() -> None:
    """Sums of the running pods; resources of the bounds that nobody uses are 0; all quotas of a namespace have it."""
    api = Patches()
    writer = ObjectStatusWriter(QUOTA_STATUS, api, lambda: True)  # type: ignore[arg-type]
    bounds = {"min": {"cpu": "4", "memory": "1Gi"}}
    quotas = [{"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": bounds} for name in ("one", "two")]
    writer.objects.replace(quotas)
    writer.pods.replace([pod("p", "a", "1500m"), pod("q", "a", "500m"), pod("other", "b", "1")])
    assert writer.write_due()
    root = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/a/elasticquotas"
    used = {"cpu": "2", "memory": "0", "example.com/gpu": "2"}
    assert api.sent == [(f"{root}/one/status", used), (f"{root}/two/status", used)]
    writer.objects.replace([{**each, "status": {"used": used}} for each in quotas])
    assert writer.write_due()
    assert len(api.sent) == 2
    writer.pods.drop(pod("q", "a", "500m"))
    assert writer.write_due()
    assert api.sent[-1][1] == {"cpu": "1500m", "memory": "0", "example.com/gpu": "1"}


def test_a_pod_that_cannot_be_read_counts_nothing() -> None:
    """The scheduler's own watch reports it."""
    api = Patches()
    writer = ObjectStatusWriter(QUOTA_STATUS, api, lambda: True)  # type: ignore[arg-type]
    writer.objects.replace([{"metadata": {"name": "one", "namespace": "a", "uid": "q"}, "spec": {"min": {"cpu": "4"}}}])
    writer.pods.replace([pod("bad", "a", "much")])
    assert writer.write_due()
    assert api.sent[-1][1] == {"cpu": "0"}
