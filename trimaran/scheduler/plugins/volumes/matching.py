"""Volumes for the claims of a pod on every node: existing ones, or free space for new ones. Pure functions.

Source: ``FindPodVolumes`` of VolumeBinding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.kubernetes.constraints import NodeSelectorTerm
from scoring.arrays import Bools, Int64s
from scoring.table.node_rows import NodeRows
from trimaran.scheduler.plugins.storage_objects import Claim, Volume
from trimaran.scheduler.plugins.volumes.storage import Storage

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_NO_PROVISIONER = frozenset({"", "kubernetes.io/no-provisioner"})
_NONE = -1


@dataclass(frozen=True, slots=True)
class ClaimMatches:
    """Volumes for one unbound claim on each node.

    Attributes:
        claim: the claim.
        volumes: volumes among which ``chosen`` chooses.
        chosen: index of the volume on each node, shape (nodes,); -1 where a new volume is needed.
        free_space: free space in bytes for a new volume on each node, as its CSI driver reports it, shape (nodes,); -1
            where it is not known or too small.
    """

    claim: Claim
    volumes: Sequence[Volume]
    chosen: Int64s
    free_space: Int64s

    @property
    def exists(self) -> Bools:
        """Mask of the nodes with an existing volume for the claim, shape (nodes,)."""
        mask: Bools = self.chosen != _NONE
        return mask

    def on(self, row: int) -> Volume | None:
        """Return the volume for the node of a row; None if a new volume is needed."""
        index = int(self.chosen[row])
        return None if index == _NONE else self.volumes[index]


@dataclass(frozen=True, slots=True)
class VolumeMatches:
    """Volumes for the claims of a pod on each node.

    Attributes:
        refusals: reasons with the masks of the nodes that they exclude, shape (nodes,).
        claims: volumes for each unbound claim.
    """

    refusals: Sequence[tuple[str, Bools]]
    claims: Sequence[ClaimMatches]


def match_volumes(bound: Sequence[Claim], unbound: Sequence[Claim], rows: NodeRows, objects: Storage) -> VolumeMatches:
    """Return the volumes that can serve a pod's claims on each node.

    Args:
        bound: claims that are bound to a volume.
        unbound: claims that wait for the pod to get a node.
        rows: all nodes.
        objects: volumes, classes and free space.
    """
    reachable, exist = np.ones(len(rows), np.bool_), True
    for claim in bound:
        volume = objects.volume(claim.volume_name)
        if volume is None:
            exist = False
        else:
            reachable &= near(volume, rows)
    # Small claims come first; each gets the smallest suitable volume of every node.
    volumes = sorted(objects.volumes(), key=lambda volume: volume.capacity) if unbound else []
    taken = np.zeros((len(volumes), len(rows)), np.bool_)
    matches = []
    served, roomy = np.ones(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    for claim in sorted(unbound, key=lambda claim: claim.request or 0):
        chosen = np.full(len(rows), _NONE)
        if claim.selected_node:
            served &= [name == claim.selected_node for name in rows.names]
        else:
            chosen = _choose(claim, volumes, taken, rows)
        to_make = chosen == _NONE
        can_make, has_room, free_space = _provisioning(claim, rows, objects)
        served &= ~to_make | can_make
        roomy &= ~to_make | ~can_make | has_room
        matches.append(ClaimMatches(claim, volumes, chosen, free_space))
    refusals = [(NODE_CONFLICT, ~reachable), (BIND_CONFLICT, ~served), (NOT_ENOUGH_SPACE, ~roomy)]
    if not exist:
        refusals.append((NO_VOLUME, np.ones(len(rows), np.bool_)))
    return VolumeMatches(refusals, matches)


def near(volume: Volume, rows: NodeRows) -> Bools:
    """Return a mask of the nodes from which a volume can be used, shape (nodes,)."""
    if volume.node_terms is None:
        return np.ones(len(rows), np.bool_)
    return rows.constraints.matching_any(volume.node_terms)


def _choose(claim: Claim, volumes: Sequence[Volume], taken: Bools, rows: NodeRows) -> Int64s:
    """Return the index of a claim's volume on each node, -1 for none, and mark the volumes as taken there."""
    chosen = np.full(len(rows), _NONE)
    suitable = [index for index, volume in enumerate(volumes) if volume.suits(claim)]
    reserved = [index for index in suitable if volumes[index].is_reserved_for(claim)]
    for index in reserved[:1] or suitable:  # a claim with a reserved volume gets no other volume
        free = near(volumes[index], rows) & ~taken[index] & (chosen == _NONE)
        chosen[free] = index
        taken[index] |= free
    return chosen


def _provisioning(claim: Claim, rows: NodeRows, objects: Storage) -> tuple[Bools, Bools, Int64s]:
    """Return for each node whether it may provision a claim's volume, whether it has the space, and its free space.

    The free space is in bytes, and -1 where it is unknown or too small.
    """
    everywhere: Bools = np.ones(len(rows), np.bool_)
    free_space = np.full(len(rows), _NONE)
    storage_class = objects.storage_class(claim.storage_class)
    if storage_class is None or storage_class.provisioner in _NO_PROVISIONER:
        return ~everywhere, everywhere, free_space
    topologies = storage_class.topologies
    allowed = rows.constraints.matching_any(topologies) if topologies else everywhere
    if claim.request is None or not objects.tracks_capacity(storage_class.provisioner):
        return allowed, everywhere, free_space
    has_room = ~everywhere
    for capacity in objects.capacities():
        if capacity.storage_class != storage_class.name or (capacity.limit or 0) < max(claim.request, 1):
            continue
        if capacity.nodes is not None:
            requirements = capacity.nodes.requirements
            near_it = rows.constraints.matching_any([NodeSelectorTerm(requirements)]) if requirements else everywhere
            free_space[near_it & ~has_room] = capacity.free  # kube-scheduler takes any of several
            has_room = has_room | near_it
    return allowed, has_room, free_space
