"""Storage objects that the plugins for volumes read, with the changes that these plugins assume."""

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from trimaran.scheduler.plugins.storage_objects import Attachment, Claim, StorageCapacity, Volume, VolumeClass


@runtime_checkable  # VolumeCapacityScore checks the types of its arguments
class Storage(Protocol):
    """Source of claims, volumes and limits, such as :class:`~trimaran.scheduler.profiles.object_cache.ObjectCache`."""

    @property
    def has_volume_limits(self) -> bool:
        """True if any node limits the number of its volumes."""
        ...

    def claim(self, namespace: str, name: str, *, assumed: bool = True) -> Claim | None:
        """Return a claim, None if it does not exist; if ``assumed``, with the node that a plugin selected for it."""
        ...

    def volume(self, name: str, *, assumed: bool = True) -> Volume | None:
        """Return a volume, None if it does not exist; if ``assumed``, with the claim that it was chosen for."""
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
        """Apply a change of an object that is not written to the API server yet."""
        ...

    def forget(self, changed: Claim | Volume) -> None:
        """Undo an assumed change, unless it was replaced."""
        ...
