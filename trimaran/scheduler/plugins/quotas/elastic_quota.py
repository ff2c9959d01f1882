"""ElasticQuota of ``scheduling.x-k8s.io/v1alpha1``: guaranteed and largest amounts of a namespace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from runtime.kubernetes.k8s_fields import decoder, get
from runtime.kubernetes.objects import CPU, MEMORY, ResourceList

Amounts = Mapping[str, int]
"""Amounts by resource: millicores, bytes or pieces."""
_ALWAYS: Final = (CPU, MEMORY)


@dataclass(frozen=True)
class ElasticQuota:
    """Quota of a namespace.

    Attributes:
        namespace: the namespace.
        name: name of the object.
        least: guaranteed amounts (``spec.min``); other resources have no guarantee.
        most: largest amounts (``spec.max``); other resources are not limited.
        unreadable: resources whose amount is not valid, with the reason; pods that request these are refused.
    """

    namespace: str
    name: str
    least: ResourceList
    most: ResourceList
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @decoder("elastic quota")
    def from_k8s(cls, document: Mapping[str, Any]) -> Self:
        """Read an ElasticQuota. The API server also accepts texts that are not amounts; these become ``unreadable``.

        Raises:
            ValueError: the object has another form.
        """
        metadata, spec = get(document, "metadata"), get(document, "spec")
        namespace, name = str(get(metadata, "namespace") or "default"), str(get(metadata, "name") or "")
        where = f"elastic quota {namespace}/{name}: spec"
        bounds: dict[str, dict[str, int]] = {"min": {}, "max": {}}
        unreadable: dict[str, str] = {}
        for key, amounts in bounds.items():
            stated = get(spec, key) or {}
            if not isinstance(stated, Mapping):
                raise ValueError(f"{where}.{key}: must map resources to amounts")  # noqa: TRY004  a user's mistake
            for resource, written in stated.items():
                try:
                    bound = ResourceList.from_k8s({resource: written}, f"{where}.{key}", may_be_negative=True)
                except ValueError as error:
                    unreadable[resource] = str(error)
                else:
                    amounts.update(bound)
        return cls(namespace, name, ResourceList(bounds["min"]), ResourceList(bounds["max"]), unreadable)

    def excess(self, used: Amounts, more: Amounts) -> Amounts:
        """Return by how much ``used`` plus ``more`` exceeds ``most``, for the resources that exceed it."""
        return excess(used, more, {name: self.most[name] for name in compared(more) if name in self.most})

    def is_over_least(self, used: Amounts, resources: Iterable[str]) -> bool:
        """Return whether ``used`` is above the guarantee for any of the resources, so that the namespace borrows."""
        return any(used.get(name, 0) > self.least.amount(name) for name in resources)


def excess(used: Amounts, more: Amounts, bounds: Amounts) -> Amounts:
    """Return by how much ``used`` plus ``more`` exceeds ``bounds``, for the resources that exceed them."""
    by_name = {name: used.get(name, 0) + more.get(name, 0) - bound for name, bound in bounds.items()}
    return {name: amount for name, amount in by_name.items() if amount > 0}


def added(*amounts: Amounts) -> Amounts:
    """Return the sum of the amounts."""
    total: dict[str, int] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total


def compared(more: Amounts) -> Iterable[str]:
    """Return the resources to compare with bounds: CPU, memory, and all resources in ``more``."""
    return dict.fromkeys((*_ALWAYS, *more))
