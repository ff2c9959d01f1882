"""Pods that never move, or by opt-in only, and their workloads and nodes, each with its reason, from manifests."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.rebalancing import NOW, deployment, member, node, pod

from runtime.kubernetes.workloads import Workload
from trimaran.rebalancer.eligibility import (
    REASONS,
    NodeRefusal,
    Refusal,
    WorkloadState,
    pod_refusal,
    source_barrier,
    target_barrier,
    workload_refusal,
)
from trimaran.rebalancer.facts import NodeBarrier, NodeFacts, PodBarrier, ScalerFacts, WorkloadFacts
from trimaran.rebalancer.rules import NodeRules, PodRules

EMPTY_DIR = {"volumes": [{"name": "cache", "emptyDir": {}}]}
HOST_PATH = {"volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}]}
EPHEMERAL = {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
SPREAD = {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
GANG = {"scheduling.x-k8s.io/pod-group": "a", "pod-template-hash": "5d8f7c9b64"}
OPT_IN = {"annotations": {"rebalancer.trimaran.io/move": "true"}}
DESCHEDULER_OPT_IN = {"annotations": {"descheduler.alpha.kubernetes.io/evict": "true"}}


def annotated(name: str, value: str = "true") -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value}}}


PODS: list[tuple[PodBarrier | None, dict[str, Any]]] = [
    (None, {}),
    (PodBarrier.TERMINATING, {"metadata": {"deletionTimestamp": "2026-11-25T12:00:00Z"}}),
    (PodBarrier.NOT_READY, {"ready_at": None}),
    (PodBarrier.DAEMON_SET, {"kind": "DaemonSet"}),
    (PodBarrier.MIRROR, annotated("kubernetes.io/config.mirror", "hash")),
    (PodBarrier.MIRROR, {"kind": "Node"}),
    (PodBarrier.BARE, {"kind": ""}),
    (PodBarrier.CONTROLLER, {"kind": "VirtualMachineInstance"}),
    (PodBarrier.SYSTEM_CRITICAL, {"spec": {"priority": 2_000_000_000}}),
    (PodBarrier.GANG, {"metadata": {"labels": GANG}}),
    (PodBarrier.GANG, {"spec": {"schedulingGroup": {"podGroupName": "a"}}}),
    (PodBarrier.RESIZE, {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}),
    (PodBarrier.RESIZE, {"conditions": [{"type": "PodResizeInProgress", "status": "True"}]}),
    (PodBarrier.OPTED_OUT, annotated("rebalancer.trimaran.io/move", "false")),
    (PodBarrier.OPTED_OUT, annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")),
    (PodBarrier.OPTED_OUT, annotated("karpenter.sh/do-not-disrupt")),
    (PodBarrier.OPTED_OUT, annotated("karpenter.sh/do-not-disrupt", "4h")),
    (PodBarrier.OPTED_OUT, annotated("descheduler.alpha.kubernetes.io/prefer-no-eviction")),
    (PodBarrier.SLOW_EVICTION, annotated("descheduler.alpha.kubernetes.io/request-evict-only", "")),
    (PodBarrier.SLOW_EVICTION, annotated("descheduler.alpha.kubernetes.io/eviction-in-progress", "")),
    (PodBarrier.SLOW_EVICTION, {"spec": {"terminationGracePeriodSeconds": 3601}}),
    (PodBarrier.SLOW_EVICTION, {"spec": {"terminationGracePeriodSeconds": 2**63 - 1}}),
    (None, {"spec": {"terminationGracePeriodSeconds": 3600}}),
    (PodBarrier.REQUIREMENT, {"spec": SPREAD}),
    (PodBarrier.JOB, {"kind": "Job"}),
    (PodBarrier.JOB, {"kind": "CronJob"}),
    (PodBarrier.LOCAL_STORAGE, {"spec": EMPTY_DIR}),
    (PodBarrier.LOCAL_STORAGE, {"spec": HOST_PATH}),
    (PodBarrier.VOLUME, {"kind": "StatefulSet", "spec": CLAIM}),
    (PodBarrier.VOLUME, {"kind": "StatefulSet", "spec": EPHEMERAL}),
]  # fmt: skip


@pytest.mark.parametrize(("barrier", "changes"), PODS)
def test_each_pod_that_never_moves_has_its_reason(barrier: PodBarrier | None, changes: dict[str, Any]) -> None:
    """A pod with the feature is refused for it, and the same pod without it moves."""
    assert pod_refusal(member(pod("web-1", "node-1", **changes)), PodRules(), NOW) == barrier


@pytest.mark.parametrize("changes", [{"kind": "Job"}, {"spec": EMPTY_DIR}, {"kind": "StatefulSet", "spec": CLAIM}])
def test_an_annotation_opts_in(changes: dict[str, Any]) -> None:
    """Jobs, local storage and persistent volumes move with the pod's annotation."""
    for opt_in in (OPT_IN, DESCHEDULER_OPT_IN):
        assert pod_refusal(member(pod("web-1", "node-1", **changes, metadata=opt_in)), PodRules(), NOW) is None


def test_local_storage_that_is_safe_to_evict_is_none() -> None:
    """The cluster autoscaler's annotation that a pod is safe to evict covers its local storage."""
    safe = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}
    assert pod_refusal(member(pod("web-1", "node-1", spec=EMPTY_DIR, metadata=safe)), PodRules(), NOW) is None


def test_opting_in_does_not_allow_what_never_moves() -> None:
    """The annotation that opts in changes nothing for a pod without a controller."""
    assert pod_refusal(member(pod("web-1", "node-1", kind="", metadata=OPT_IN)), PodRules(), NOW) is PodBarrier.BARE


def test_a_resize_is_seen_in_the_containers() -> None:
    """A container whose actual requests are not the desired ones is being resized, also without a condition."""
    manifest = pod("web-1", "node-1")
    manifest["status"]["containerStatuses"][0]["resources"] = {"requests": {"cpu": "900m", "memory": "256Mi"}}
    assert pod_refusal(member(manifest), PodRules(), NOW) is PodBarrier.RESIZE


@pytest.mark.parametrize(
    ("label", "expected"),
    [("app", Refusal.LABEL), ("app=web", Refusal.LABEL), ("app=other", None), ("other", None), ("other=web", None)],
)
def test_labels_exclude_by_key_or_by_value(label: str, expected: Refusal | None) -> None:
    """A label excludes with any value if none is given, else with this value only."""
    assert pod_refusal(member(pod("web-1", "node-1")), PodRules(excluded_labels=(label,)), NOW) is expected


WEB = Workload("default", "Deployment", "web")
JOB = Workload("default", "Job", "job")


def state(replicas: int = 2, scaled_at: Sequence[float] = ()) -> WorkloadState:
    """Return the state of a Deployment with autoscalers that last scaled at these times."""
    return WorkloadState.of({WEB: WorkloadFacts(replicas)}, (), [ScalerFacts(WEB, at) for at in scaled_at])


def test_a_single_replica_moves_if_all_its_pods_opt_in() -> None:
    """Below the least replicas pods move only if each pod of the workload opts in."""
    opted, other = member(pod("web-1", "node-1", metadata=OPT_IN)), member(pod("web-2", "node-1"))
    assert workload_refusal(WEB, [opted], state(1), PodRules(), NOW) is None
    assert workload_refusal(WEB, [opted, other], state(1), PodRules(), NOW) is Refusal.FEW_REPLICAS


@pytest.mark.parametrize("times", [(NOW - 60, NOW - 9000), (NOW - 9000, NOW - 60)])
def test_the_last_scaling_of_any_autoscaler_counts(times: tuple[float, float]) -> None:
    """With several autoscalers of one workload the last scaling counts, whatever their order."""
    members = [member(pod(f"web-{number}", "node-1")) for number in range(2)]
    assert workload_refusal(WEB, members, state(2, times), PodRules(), NOW) is Refusal.SCALED


def test_the_least_ages_are_inclusive() -> None:
    """A pod moves once it is Ready for ``min_age``, and its workload ``scaler_quiet`` after the last scaling."""
    for seconds, expected in ((1799, Refusal.YOUNG), (1800, None)):
        young = member(pod("web-1", "node-1", ready_at=NOW - seconds))
        assert pod_refusal(young, PodRules(), NOW) is expected
    members = [member(pod(f"web-{number}", "node-1")) for number in range(2)]
    for seconds, expected in ((599, Refusal.SCALED), (600, None)):
        assert workload_refusal(WEB, members, state(2, [NOW - seconds]), PodRules(), NOW) is expected


def test_missing_and_unready_replicas_keep_a_workload() -> None:
    """A workload with fewer pods than it should have stays, and so does one with a pod that is not Ready."""
    ready, waiting = member(pod("web-1", "node-1")), member(pod("web-2", "node-1", ready_at=None))
    assert workload_refusal(WEB, [ready, ready], state(), PodRules(), NOW) is None
    assert workload_refusal(WEB, [ready], state(), PodRules(), NOW) is Refusal.PENDING_REPLICA
    assert workload_refusal(WEB, [ready, ready, waiting], state(), PodRules(), NOW) is Refusal.PENDING_REPLICA


def test_the_pods_of_a_job_need_no_replicas() -> None:
    """A Job has no desired replicas, and its pods need not be Ready."""
    members = [member(pod("job-1", "node-1", of="job", kind="Job", ready_at=None))]
    assert workload_refusal(JOB, members, WorkloadState(), PodRules(), NOW) is None


ROLLOUTS: dict[str, tuple[dict[str, Any], bool]] = {
    "done": ({}, False),
    "not seen": ({"observedGeneration": 0}, True),
    "old pods": ({"updatedReplicas": 1}, True),
    "surplus": ({"replicas": 3}, True),
    "other revision": ({"currentRevision": "a", "updateRevision": "b"}, True),
    "same revision": ({"currentRevision": "a", "updateRevision": "a"}, False),
}


@pytest.mark.parametrize("case", ROLLOUTS)
def test_each_sign_of_a_rollout_is_known(case: str) -> None:
    """A workload rolls out while its controller has not seen the newest version, or has pods of another one."""
    status, expected = ROLLOUTS[case]
    manifest = deployment("web", 2)
    manifest["status"].update(status)
    assert WorkloadFacts.from_k8s(manifest).is_rolling_out is expected


@pytest.mark.parametrize("name", ["MemoryPressure", "DiskPressure", "PIDPressure"])
def test_each_pressure_is_a_barrier(name: str) -> None:
    """A node under pressure of memory, disk or process numbers takes no part."""
    conditions = [{"type": "Ready", "status": "True"}, {"type": name, "status": "True"}]
    facts = NodeFacts.from_k8s(node("node-1", status={"conditions": conditions}))
    assert (source_barrier(facts, NodeRules()), target_barrier(facts)) == (NodeBarrier.PRESSURE,) * 2


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
    ],
)  # fmt: skip
def test_each_taint_of_autoscalers_is_a_barrier(key: str) -> None:
    """A node that an autoscaler is about to delete takes no part."""
    facts = NodeFacts.from_k8s(node("node-1", spec={"taints": [{"key": key, "effect": "NoSchedule"}]}))
    assert (source_barrier(facts, NodeRules()), target_barrier(facts)) == (NodeBarrier.LEAVING,) * 2


@pytest.mark.parametrize(("effect", "expected"), [("PreferNoSchedule", None), ("NoSchedule", NodeRefusal.NOT_TAINTED)])
def test_a_taint_first_is_a_soft_one(effect: str, expected: NodeRefusal | None) -> None:
    """``rebalance.source_taint`` is met by a PreferNoSchedule taint only."""
    facts = NodeFacts.from_k8s(node("node-1", spec={"taints": [{"key": "trimaran.io/hot", "effect": effect}]}))
    assert source_barrier(facts, NodeRules(source_taint="trimaran.io/hot")) is expected


def test_each_reason_has_a_text() -> None:
    """Every reason has a text for people."""
    assert set(REASONS) == {*PodBarrier, *Refusal}


def test_each_barrier_of_a_pod_is_tested() -> None:
    """Every barrier stands in a row of this file, as one that no pod meets protects nothing."""
    opted_in = {PodBarrier.JOB, PodBarrier.LOCAL_STORAGE, PodBarrier.VOLUME}
    assert {barrier for barrier, _ in PODS} - {None} | opted_in == set(PodBarrier)
