"""VolumeBinding: nodes from which a pod's volumes can be used, and the binding of claims that wait for the pod.

A claim of a class with ``WaitForFirstConsumer`` gets its volume only once its pod has a node. Before the pod is bound,
an existing volume is reserved for the claim, or the claim is marked with the node, for its provisioner; then the pod
waits until the claim is bound. Each write has the resource version of the object on which the decision is based. If two
schedulers choose the same volume, the API server therefore refuses one write, and its pod is tried again.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding; its score is in
:mod:`~trimaran.scheduler.plugins.volumes.capacity_score`. Volumes of former in-tree plugins are not translated
to CSI: their own node affinity counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.paths import object_path
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable
from trimaran.scheduler.framework.extension_points import PostBindPlugin, PreBindPlugin, Rejection, ReservePlugin, Write
from trimaran.scheduler.plugins.storage_objects import BOUND_BY_CONTROLLER, SELECTED_NODE, Claim, Volume
from trimaran.scheduler.plugins.volumes.claims import PodClaims, claim_names, claims_of
from trimaran.scheduler.plugins.volumes.matching import match_volumes, near
from trimaran.scheduler.plugins.volumes.storage import Storage

if TYPE_CHECKING:
    from scoring.table.node_rows import NodeRows

NOT_BOUND_HERE = "pod has unbound PersistentVolumeClaims, which this scheduler binds only with scheduler.bind_claims"


@dataclass(frozen=True, slots=True)
class _Reservation:
    """Volumes and claims that a pod needs before it can be bound to its node.

    Attributes:
        volumes: volumes to reserve, in their versions before the writes, with their claims.
        to_make: claims to mark with the node, in their versions before the writes.
    """

    volumes: tuple[tuple[Volume, Claim], ...]
    to_make: tuple[Claim, ...]


class VolumeBinding(FilterPlugin, ReservePlugin, PreBindPlugin, PostBindPlugin):
    """Nodes from which a pod's volumes can be used, and the binding of claims that wait for the pod.

    Args:
        objects: claims, volumes and classes.
        binds_claims: whether to bind claims that wait for the pod; if not, their pods stay pending, with a message.
    """

    name = "VolumeBinding"
    depends_on = Dependence.NODES
    requeued_by = frozenset({ClusterEvent.VOLUME_CHANGED, ClusterEvent.NODE_ADDED, ClusterEvent.NODE_CHANGED})

    def __init__(self, objects: Storage, *, binds_claims: bool = False) -> None:
        self._objects, self._binds_claims = objects, binds_claims
        self._rows: NodeRows | None = None  # nodes in the latest attempt
        self._reserved: dict[str, _Reservation] = {}  # by uid of the pod

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Return the nodes where the pod's volumes can be used or provisioned; None for a pod without claims."""
        if not claim_names(pod):
            return None
        claims = self._usable_claims(pod)
        if claims.problem:
            return unresolvable_everywhere(np.zeros(len(nodes), np.bool_)[rows], claims.problem)
        self._rows = nodes.rows
        refusals = match_volumes(claims.bound, claims.unbound, nodes.rows, self._objects).refusals
        masks = [(reason, mask[rows]) for reason, mask in refusals]
        allowed = ~np.logical_or.reduce([mask for _, mask in masks])

        def reasons(index: int) -> tuple[str, ...]:
            return tuple(reason for reason, mask in masks if mask[index])

        return FilterVerdict(allowed, reasons, ~allowed)

    def reserve(self, pod: Pod, node_name: str) -> Rejection | None:
        """Choose the volumes of the pod's unbound claims on its node, so that no other pod gets them."""
        if not claim_names(pod):
            return None
        claims = self._usable_claims(pod)
        if claims.problem or self._rows is None:
            return Rejection(claims.problem or f"the volumes of node {node_name} are not known")
        if not claims.unbound:
            return None
        row = self._rows.row_by_name[node_name]
        matches = match_volumes((), claims.unbound, self._rows, self._objects).claims
        found = [(each.on(row), each.claim) for each in matches]
        reservation = _Reservation(
            tuple((volume, claim) for volume, claim in found if volume is not None),
            tuple(claim for volume, claim in found if volume is None),
        )
        self._reserved[pod.uid] = reservation
        for changed in _assumed(reservation, node_name):
            self._objects.assume(changed)
        return None

    def unreserve(self, pod: Pod, node_name: str) -> None:
        """Undo the reservations of the pod's volumes and claims that the API server does not show yet."""
        reservation = self._reserved.pop(pod.uid, None)
        if reservation is not None:
            for changed in _assumed(reservation, node_name):
                self._objects.forget(changed)

    def pre_bind(self, pod: Pod, node_name: str) -> Sequence[Write] | Rejection:
        """Return the requests that reserve volumes for claims and mark claims with the node.

        The requests are sent even if an earlier attempt sent them: the pod has to wait for its claims in any case.
        """
        reservation = self._reserved.get(pod.uid)
        if reservation is None:
            return ()
        return (
            *(_reserve_volume(volume, claim) for volume, claim in reservation.volumes),
            *(_select_node(claim, node_name) for claim in reservation.to_make),
        )

    def is_ready(self, pod: Pod, node_name: str) -> bool | Rejection:
        """Return whether all claims of the pod are bound to volumes that its node can use."""
        reservation = self._reserved.get(pod.uid)
        if reservation is None:
            return True
        states = [
            *(self._volume_state(volume, claim) for volume, claim in reservation.volumes),
            *(self._claim_state(claim, node_name) for claim in reservation.to_make),
        ]
        rejection = next((state for state in states if isinstance(state, Rejection)), None)
        return all(states) if rejection is None else rejection

    def post_bind(self, pod: Pod, node_name: str) -> None:  # noqa: ARG002
        """Forget the reservation of a bound pod."""
        self._reserved.pop(pod.uid, None)

    def _usable_claims(self, pod: Pod) -> PodClaims:
        claims = claims_of(pod, self._objects)
        if claims.unbound and not self._binds_claims and not claims.problem:
            return PodClaims(problem=NOT_BOUND_HERE)
        return claims

    def _volume_state(self, volume: Volume, claim: Claim) -> bool | Rejection:
        """Return whether a volume and its claim are bound, or why they will not be."""
        shown, current = self._objects.volume(volume.name, assumed=False), self._current(claim)
        if shown is None or current is None:
            gone = f'persistentvolume "{volume.name}"' if shown is None else f'persistentvolumeclaim "{claim.name}"'
            return Rejection(f"{gone} not found")
        if shown.resource_version == volume.resource_version and _needs_write(volume, claim):
            return False  # the write is not visible yet
        if shown.claim is None or shown.claim[2] != claim.uid:
            return Rejection(f'the claim of persistentvolume "{volume.name}" was reset')
        if current.volume_name not in {"", volume.name}:  # another scheduler chose another volume for the claim
            return Rejection(f'persistentvolumeclaim "{claim.name}" has another volume, "{current.volume_name}"')
        return current.is_bound

    def _claim_state(self, claim: Claim, node_name: str) -> bool | Rejection:
        """Return whether a claim has got its new volume, or why it will not."""
        current = self._current(claim)
        if current is None:
            return Rejection(f'persistentvolumeclaim "{claim.name}" not found')
        if current.selected_node != node_name:
            if current.resource_version == claim.resource_version:
                return False  # the write is not visible yet
            return Rejection(f'provisioning failed for persistentvolumeclaim "{claim.name}"')
        volume = self._objects.volume(current.volume_name, assumed=False) if current.volume_name else None
        row = None if self._rows is None else self._rows.row_by_name.get(node_name)
        if volume is not None and row is not None and self._rows is not None and not near(volume, self._rows)[row]:
            return Rejection(f'the node affinity of persistentvolume "{volume.name}" excludes node {node_name}')
        return current.is_bound and volume is not None

    def _current(self, claim: Claim) -> Claim | None:
        current = self._objects.claim(claim.namespace, claim.name, assumed=False)
        return None if current is None or current.uid != claim.uid else current


def _assumed(reservation: _Reservation, node_name: str) -> list[Claim | Volume]:
    """Return the objects as the writes change them, with their resource versions before the writes."""
    return [
        *(replace(volume, claim=(*claim.key, claim.uid)) for volume, claim in reservation.volumes),
        *(replace(claim, selected_node=node_name) for claim in reservation.to_make),
    ]


def _needs_write(volume: Volume, claim: Claim) -> bool:
    return volume.claim != (*claim.key, claim.uid)


def _reserve_volume(volume: Volume, claim: Claim) -> Write:
    metadata: dict[str, object] = {"resourceVersion": volume.resource_version}
    if not volume.is_reserved_for(claim):
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    reference = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace, "name": claim.name,
        "uid": claim.uid, "resourceVersion": claim.resource_version,
    }  # fmt: skip
    return Write(
        object_path("PersistentVolume", volume.name),
        {"metadata": metadata, "spec": {"claimRef": reference}},
        f"reserve volume {volume.name} for claim {claim.namespace}/{claim.name}",
    )


def _select_node(claim: Claim, node_name: str) -> Write:
    metadata = {"resourceVersion": claim.resource_version, "annotations": {SELECTED_NODE: node_name}}
    return Write(
        object_path("PersistentVolumeClaim", claim.name, claim.namespace),
        {"metadata": metadata},
        f"select node {node_name} for the volume of claim {claim.namespace}/{claim.name}",
    )
