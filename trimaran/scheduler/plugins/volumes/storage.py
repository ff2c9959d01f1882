"""Storage objects of the cluster as the plugins for volumes read them, with what they assume about them."""

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from trimaran.scheduler.plugins.storage_objects import Attachment, Claim, StorageCapacity, Volume, VolumeClass


@runtime_checkable  # VolumeCapacityScore checks its arguments
class Storage(Protocol):
    """Claims, volumes and what limits them; :class:`~trimaran.scheduler.profiles.object_cache.ObjectCache` is one."""

    @property
    def has_volume_limits(self) -> bool:
        """True if any node limits the number of its volumes."""
        ...

    def claim(self, namespace: str, name: str, *, assumed: bool = True) -> Claim | None:
        """Return a claim; with ``assumed`` with the node that was selected for it. None if there is none."""
        ...

    def volume(self, name: str, *, assumed: bool = True) -> Volume | None:
        """Return a volume; with ``assumed`` with the claim that it was chosen for. None if there is none."""
        ...

    def volumes(self) -> list[Volume]:
        """Return all volumes, with the claims that they were chosen for, by name."""
        ...

    def storage_class(self, name: str) -> VolumeClass | None:
        """Return a StorageClass; None if there is none."""
        ...

    def volume_limits(self, node_name: str) -> Mapping[str, int]:
        """Return the largest number of volumes on a node, by CSI driver."""
        ...

    def tracks_capacity(self, provisioner: str) -> bool:
        """Return whether a provisioner is a CSI driver that publishes the free space for new volumes."""
        ...

    def capacities(self) -> Collection[StorageCapacity]:
        """Return the CSIStorageCapacity objects of the drivers."""
        ...

    def attachments(self) -> Collection[Attachment]:
        """Return all attachments of volumes to nodes."""
        ...

    def assume(self, changed: Claim | Volume) -> None:
        """Let a change of an object count that is not written yet."""
        ...

    def forget(self, changed: Claim | Volume) -> None:
        """Undo an assumed change, if it still counts."""
        ...
