"""Pods that never move, or by opt-in only, each with its reason, read from manifests."""

from typing import Any

import pytest
from support.rebalancing import NOW, member, pod

from trimaran.rebalancer.eligibility import REASONS, Refusal, pod_refusal
from trimaran.rebalancer.facts import PodBarrier
from trimaran.rebalancer.rules import PodRules

EMPTY_DIR = {"volumes": [{"name": "cache", "emptyDir": {}}]}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
SPREAD = {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
GANG = {"scheduling.x-k8s.io/pod-group": "a", "pod-template-hash": "5d8f7c9b64"}
OPT_IN = {"annotations": {"rebalancer.trimaran.io/move": "true"}}


def annotated(name: str, value: str = "true") -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value}}}


PODS: list[tuple[PodBarrier | None, dict[str, Any]]] = [
    (None, {}),
    (PodBarrier.TERMINATING, {"metadata": {"deletionTimestamp": "2026-11-25T12:00:00Z"}}),
    (PodBarrier.NOT_READY, {"ready_at": None}),
    (PodBarrier.DAEMON_SET, {"kind": "DaemonSet"}),
    (PodBarrier.MIRROR, annotated("kubernetes.io/config.mirror", "hash")),
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
    (PodBarrier.REQUIREMENT, {"spec": SPREAD}),
    (PodBarrier.JOB, {"kind": "Job"}),
    (PodBarrier.LOCAL_STORAGE, {"spec": EMPTY_DIR}),
    (PodBarrier.VOLUME, {"kind": "StatefulSet", "spec": CLAIM}),
]  # fmt: skip


@pytest.mark.parametrize(("barrier", "changes"), PODS)
def test_each_pod_that_never_moves_has_its_reason(barrier: PodBarrier | None, changes: dict[str, Any]) -> None:
    """A pod with the feature is refused for it, and the same pod without it moves."""
    assert pod_refusal(member(pod("web-1", "node-1", **changes)), PodRules(), NOW) == barrier


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"kind": "Job"}, PodRules(jobs=True)),
        ({"spec": EMPTY_DIR}, PodRules(local_storage=True)),
        ({"kind": "StatefulSet", "spec": CLAIM}, PodRules(volumes=True)),
    ],
)
def test_a_setting_or_an_annotation_opts_in(changes: dict[str, Any], rules: PodRules) -> None:
    """Jobs, local storage and persistent volumes move with their setting, or with the pod's annotation."""
    assert pod_refusal(member(pod("web-1", "node-1", **changes)), rules, NOW) is None
    assert pod_refusal(member(pod("web-1", "node-1", **changes, metadata=OPT_IN)), PodRules(), NOW) is None


def test_local_storage_that_is_safe_to_evict_is_none() -> None:
    """The cluster autoscaler's annotation that a pod is safe to evict covers its local storage."""
    safe = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}
    assert pod_refusal(member(pod("web-1", "node-1", spec=EMPTY_DIR, metadata=safe)), PodRules(), NOW) is None


def test_opting_in_does_not_allow_what_never_moves() -> None:
    """The annotation that opts in changes nothing for a pod without a controller."""
    assert pod_refusal(member(pod("web-1", "node-1", kind="", metadata=OPT_IN)), PodRules(), NOW) is PodBarrier.BARE


def test_each_reason_has_a_text() -> None:
    """Every reason has a text for people."""
    assert set(REASONS) == {*PodBarrier, *Refusal}
