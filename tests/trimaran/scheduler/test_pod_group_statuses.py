"""Status of PodGroups, as upstream's controller writes it."""

from dataclasses import replace
from typing import Any

import pytest
from support.binding_api import refusal
from support.waiting import wait_until

from runtime.kubernetes.gangs import POD_GROUP_LABEL
from trimaran.scheduler.service.gang_statuses import POD_GROUP_STATUS, next_status
from trimaran.scheduler.service.status_controller import ObjectStatusWriter

PATH = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ml/podgroups/a/status"


def pods(*phases: str, namespace: str = "ml") -> list[dict[str, Any]]:
    owners = [{"name": "job"}]
    return [
        {
            "metadata": {
                "name": f"a{number}", "namespace": namespace, "uid": f"{namespace}-{number}",
                "labels": {POD_GROUP_LABEL: "a"}, "ownerReferences": owners,
            },
            "status": {"phase": phase},
        }
        for number, phase in enumerate(phases)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        (["Pending"], "Pending"),
        (["Pending", "Running"], "Scheduling"),
        (["Running", "Running", "Pending"], "Running"),
        (["Running", "Succeeded"], "Running"),
        (["Succeeded", "Succeeded"], "Finished"),
        (["Failed", "Running"], "Failed"),
        (["Failed", "Pending"], "Scheduling"),
    ],
)
def test_the_phase_follows_the_pods(phases: list[str], phase: str) -> None:
    """The phase is that of upstream's controller, after as many of its steps as there are."""
    status = next_status(2, {}, pods(*phases))
    assert status["phase"] == phase
    if phase != "Pending":
        counts = [status[each] for each in ("running", "succeeded", "failed")]
        assert counts == [phases.count(each) for each in ("Running", "Succeeded", "Failed")]
        assert status["occupiedBy"] == "ml/job"


def test_a_final_phase_stays() -> None:
    """A gang that has finished or failed keeps its status when its pods are deleted."""
    for phase in ("Finished", "Failed"):
        assert next_status(2, {"phase": phase, "succeeded": 2}, []) == {"phase": phase, "succeeded": 2}


class Patches:
    """API server that records patches, or refuses them with a status."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.refuses = 0

    def send(self, method: str, path: str, _deadline: object, body: Any = None, content_type: str = "") -> Any:
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        if self.refuses:
            raise refusal(self.refuses)
        self.sent.append((path, body))


def writer(api: Patches, *, leads: bool = True) -> ObjectStatusWriter:
    made = ObjectStatusWriter(POD_GROUP_STATUS, api, lambda: leads)
    made.objects.replace([{"metadata": {"name": "a", "namespace": "ml", "uid": "g"}, "spec": {"minMember": 2}}])
    return made


def test_only_pods_of_the_groups_namespace_count_and_only_changes_are_written() -> None:
    """Upstream counts pods of all namespaces with the label. The patch has the UID, so it meets no other group."""
    api = Patches()
    statuses = writer(api)
    assert statuses.write_due()
    assert api.sent == []  # the pods are not known yet
    statuses.pods.replace([*pods("Running"), *pods("Running", "Running", namespace="other")])
    assert statuses.write_due()
    assert api.sent == [(PATH, {"metadata": {"uid": "g"}, "status": {"phase": "Pending"}})]
    known = {"metadata": {"name": "a", "namespace": "ml", "uid": "g"}, "spec": {"minMember": 2}}
    statuses.objects.put({**known, "status": {"phase": "Pending"}})
    assert statuses.write_due()
    assert len(api.sent) == 1
    for pod in pods("Running", "Running"):
        statuses.pods.put(pod)
    assert statuses.write_due()
    assert api.sent[1][1]["status"]["phase"] == "Running"


@pytest.mark.parametrize(("status", "written"), [(403, False), (409, True)])
def test_a_refused_patch_is_tried_again_unless_the_group_is_gone(
    status: int, written: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing right is logged with the rule that is needed; a group that was replaced is left alone."""
    api = Patches()
    api.refuses = status
    statuses = writer(api)
    statuses.pods.replace(pods("Running"))
    assert statuses.write_due() == written
    reasons = [str(vars(record).get("error")) for record in caplog.records]
    assert any('resources: ["podgroups/status"], verbs: ["patch"]' in each for each in reasons) == (not written)
    api.refuses = 0
    statuses.write_due()
    assert len(api.sent) == (0 if written else 1)


def test_a_status_that_cannot_be_made_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object whose status raises costs no other object its status, and is tried again when it has changed."""
    api = Patches()
    made = writer(api)
    rule = made._rule

    def next_status(document: Any, found: Any) -> Any:
        if document["metadata"]["name"] == "odd":
            raise TypeError("odd")
        return rule.next_status(document, found)

    monkeypatch.setattr(made, "_rule", replace(rule, next_status=next_status))
    odd = {"metadata": {"name": "odd", "namespace": "ml", "uid": "o"}, "spec": {"minMember": 2}}
    made.objects.put(odd)
    made.pods.replace(pods("Running"))
    assert made.write_due()
    assert [path for path, _ in api.sent] == [PATH]
    made.objects.put({**odd, "metadata": {**odd["metadata"], "name": "even"}})
    assert made.write_due()
    assert len(api.sent) == 2


def test_a_replica_without_the_lease_writes_nothing() -> None:
    """Only the leader writes; the change stays due."""
    api = Patches()
    statuses = writer(api, leads=False)
    statuses.pods.replace(pods("Running"))
    assert not statuses.write_due()
    assert api.sent == []


def test_the_thread_writes_and_stops() -> None:
    """A change that comes while the thread waits is written."""
    api = Patches()
    statuses = writer(api)
    statuses.start()
    statuses.pods.replace(pods("Running"))
    wait_until(lambda: api.sent, "the status is written")
    assert statuses.stop()
