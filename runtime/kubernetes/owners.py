"""Controllers of ReplicaSets and Jobs, from their metadata: a pod's workload is its owner's owner."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from runtime.kubernetes.paths import LISTS
from runtime.kubernetes.reflector import ListWatch, Object, Reflector
from runtime.kubernetes.workloads import Owner

_KINDS: Final = ("ReplicaSet", "Job")


class OwnerLookup:
    """Lookup of the controllers of all ReplicaSets and Jobs, kept up to date by watches.

    Without the right to list them, or before the lists have arrived, all controllers are unknown.

    Args:
        api: client that reads metadata; :meth:`close` aborts its requests.
    """

    def __init__(self, api: ListWatch) -> None:
        self._parents = {kind: _Parents() for kind in _KINDS}
        self._reflectors = {kind: Reflector(api, LISTS[kind], self._parents[kind]) for kind in _KINDS}

    def start(self) -> None:
        """Start to list and watch in the background."""
        for reflector in self._reflectors.values():
            reflector.start()

    def close(self) -> None:
        """Stop, and abort all requests of the client."""
        for reflector in self._reflectors.values():
            reflector.stop()
        for reflector in self._reflectors.values():
            reflector.join()

    @property
    def is_settled(self) -> bool:
        """True once each list has arrived, or has failed."""
        return all(each.synced.is_set() or each.failure for each in self._reflectors.values())

    @property
    def failures(self) -> Mapping[str, str]:
        """Reasons why lists have not arrived, by kind; "" for a list that has not failed yet."""
        return {kind: each.failure for kind, each in self._reflectors.items() if not each.synced.is_set()}

    def parent_of(self, namespace: str, owner: Owner) -> Owner | None:
        """Return the controller of a ReplicaSet or Job; None if it has none or is unknown. Safe from any thread."""
        known = self._parents.get(owner.kind)
        return None if known is None else known.controllers.get((namespace, owner.name))


class _Parents:
    """Reflector store of the controllers of one kind of objects.

    Attributes:
        controllers: controller by namespace and name of the object; objects without a controller are left out.
    """

    def __init__(self) -> None:
        self.controllers: dict[tuple[str, str], Owner] = {}
        self._shared: dict[Owner, Owner] = {}  # most objects are old ReplicaSets of the same Deployments

    def replace(self, objects: Iterable[Object]) -> None:
        self._shared = {}
        self.controllers = {key: owner for key, owner in map(self._read, objects) if owner is not None}

    def put(self, changed: Object) -> None:
        key, owner = self._read(changed)
        if owner is None:
            self.controllers.pop(key, None)
        else:
            self.controllers[key] = owner

    def drop(self, deleted: Object) -> None:
        self.controllers.pop(self._read(deleted)[0], None)

    def _read(self, item: Object) -> tuple[tuple[str, str], Owner | None]:
        metadata = item.get("metadata")
        fields: Mapping[str, Any] = metadata if isinstance(metadata, dict) else {}
        owner = controller_of(fields)
        return (str(fields.get("namespace")), str(fields.get("name"))), owner and self._shared.setdefault(owner, owner)


def controller_of(metadata: Mapping[str, Any]) -> Owner | None:
    """Return the controller in an object's metadata; None if there is none or it is unreadable."""
    references = metadata.get("ownerReferences")
    for each in references if isinstance(references, list) else ():
        if isinstance(each, dict) and each.get("controller") is True:
            kind, name = each.get("kind"), each.get("name")
            if isinstance(kind, str) and isinstance(name, str) and kind and name:
                return Owner(kind, name)
    return None
