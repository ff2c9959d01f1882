"""Claims of a pod's volumes, and why a pod has to wait for them."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.kubernetes.objects import Pod
from trimaran.scheduler.plugins.storage_objects import Claim
from trimaran.scheduler.plugins.volumes.storage import Storage


@dataclass(frozen=True, slots=True)
class PodClaims:
    """Claims of a pod's volumes.

    Attributes:
        bound: claims that are bound to a volume.
        unbound: claims whose volume is bound or provisioned once the pod has a node.
        problem: reason why the pod fits on no node at present; "" if there is none.
    """

    bound: Sequence[Claim] = ()
    unbound: Sequence[Claim] = ()
    problem: str = ""


def claim_names(pod: Pod) -> list[str]:
    """Return the names of the claims of a pod's volumes; the claim of an ephemeral volume is named ``POD-VOLUME``."""
    rules = pod.scheduling
    return [*rules.claims, *(f"{pod.name}-{volume}" for volume in rules.ephemeral_volumes)]


def claims_of(pod: Pod, objects: Storage) -> PodClaims:
    """Return the claims of a pod. Source: ``podHasPVCs`` and ``GetPodVolumeClaims`` of VolumeBinding."""
    bound: list[Claim] = []
    unbound: list[Claim] = []
    is_immediate = False
    for index, name in enumerate(claim_names(pod)):
        is_ephemeral = index >= len(pod.scheduling.claims)
        claim = objects.claim(pod.namespace, name)
        problem = _problem(pod, name, claim, is_ephemeral=is_ephemeral)
        if claim is None or problem:
            return PodClaims(problem=problem)
        if claim.is_bound:
            bound.append(claim)
            continue
        storage_class = objects.storage_class(claim.storage_class) if claim.storage_class else None
        if storage_class is None and claim.storage_class:
            return PodClaims(problem=f'storageclass.storage.k8s.io "{claim.storage_class}" not found')
        # A claim that names its volume is bound by the controller, too.
        if storage_class is not None and storage_class.waits_for_pod and not claim.volume_name:
            unbound.append(claim)
        else:
            is_immediate = True
    return PodClaims(bound, unbound, "pod has unbound immediate PersistentVolumeClaims" if is_immediate else "")


def _problem(pod: Pod, name: str, claim: Claim | None, *, is_ephemeral: bool) -> str:
    """Return the reason why a pod cannot use a claim, bound or unbound; "" if there is none."""
    if claim is None:
        if is_ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return f'persistentvolumeclaim "{name}" not found'
    if claim.is_lost:
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume_name}"'
    if claim.is_terminating:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if is_ephemeral and claim.controller != pod.uid:
        title = f"{claim.namespace}/{claim.name}"
        return f"PVC {title} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"
    return ""
