"""Index of the placed pods by what other pods' scheduling rules ask for: labels, affinity terms and host ports.

The index follows a table's pods. An update visits only pods that came or went on changed rows, so its time depends on
the changes, not on the number of nodes or pods. Pods with the same namespace and labels form one label set, which is
compared with a selector only once.
"""

from collections.abc import Collection, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Literal, NamedTuple

import numpy as np

from runtime.kubernetes.objects import Pod
from runtime.kubernetes.scheduling_rules import (
    ANY_ADDRESS,
    NO_RULES,
    LabelSelector,
    PodAffinityTerm,
    SchedulingRules,
    SpreadConstraint,
)
from scoring.arrays import Bools, Int64s
from scoring.table.node_rows import NodeRows
from scoring.table.placed_pods import PlacedPod
from scoring.table.shared_counts import NodeCounts, SharedCounts

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""Label of each namespace with its name, since Kubernetes 1.22."""
_MAX_CACHED_RULES = 10_000


class LabelSet(NamedTuple):
    """Namespace and labels that several pods have in common, and whether these pods terminate."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    terminating: bool


class PlacedTerm(NamedTuple):
    """Affinity term of placed pods.

    Attributes:
        role: kind of rule that contains the term; ``_anti`` stands for anti-affinity.
        weight: weight of a preferred term; 0 for a required one.
        term: the term.
    """

    role: Literal["required", "required_anti", "preferred", "preferred_anti"]
    weight: int
    term: PodAffinityTerm


@dataclass(frozen=True, slots=True)
class PodCriterion:
    """Condition on a pod's namespace and labels.

    Attributes:
        selector: labels of the pods; None selects no pod.
        namespaces: namespaces of the pods; None stands for all.
    """

    selector: LabelSelector | None
    namespaces: Container[str] | None

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod meets the condition."""
        if self.selector is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return self.selector.matches(labels)


@dataclass(frozen=True, eq=False)
class SelectorSources:
    """Objects other than nodes and pods that select pods.

    Attributes:
        namespace_labels: labels of each namespace; ``kubernetes.io/metadata.name`` follows from its name.
        service_selectors: selectors of each namespace's Services; Services without a selector are left out.
        owner_selectors: selectors of ReplicationControllers, ReplicaSets and StatefulSets, by namespace, kind and name.
        default_constraints: cache of the default spread constraints by the properties of pods that determine them.
    """

    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    service_selectors: Mapping[str, Collection[Mapping[str, str]]] = field(default_factory=dict)
    owner_selectors: Mapping[tuple[str, str, str], LabelSelector] = field(default_factory=dict)
    default_constraints: dict[Hashable, tuple[SpreadConstraint, ...]] = field(
        init=False, default_factory=dict, repr=False
    )

    def criterion(self, term: PodAffinityTerm) -> PodCriterion:
        """Return the criterion of an (anti-)affinity term, with the namespaces that its namespace selector selects."""
        chosen = term.namespace_selector
        if chosen is None:
            return PodCriterion(term.selector, term.namespaces)
        if not chosen.requirements:
            return PodCriterion(term.selector, None)
        return PodCriterion(term.selector, _SelectedNamespaces(term.namespaces, chosen, self.namespace_labels))


@dataclass(frozen=True, slots=True)
class _SelectedNamespaces:
    """Namespaces of a term: those it names, and those whose labels its selector matches."""

    named: Collection[str]
    selector: LabelSelector
    labels: Mapping[str, Mapping[str, str]]

    def __contains__(self, namespace: object) -> bool:
        return namespace in self.named or self.selector.matches(labels_of_namespace(str(namespace), self.labels))


def labels_of_namespace(namespace: str, known: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """Return the labels of a namespace, with the label for its name that the API server sets on every namespace.

    Args:
        namespace: name of the namespace.
        known: labels of the known namespaces.
    """
    return {NAMESPACE_NAME: namespace, **(known.get(namespace) or {})}


NO_SOURCES = SelectorSources()


class PlacedRules:
    """Index of the placed pods of a table, as the module describes; :attr:`scoring.NodeTable.placed_rules` returns it.

    Args:
        rows: nodes of the table.
    """

    def __init__(self, rows: NodeRows) -> None:
        self._lock = Lock()  # the first reader after a change updates the index
        self._rows, self._version = rows, -1
        self._is_shared = False
        self._seen: list[Mapping[str, PlacedPod]] = [{}] * len(rows)
        self._label_sets: NodeCounts[LabelSet] = NodeCounts()
        self._sets_by_label: SharedCounts[tuple[str, str], LabelSet] = SharedCounts()
        self._terms: NodeCounts[PlacedTerm] = NodeCounts()
        self._terms_by_label: SharedCounts[tuple[str, str] | None, PlacedTerm] = SharedCounts()
        self._ports: NodeCounts[tuple[str, str, int]] = NodeCounts()
        self._addresses: SharedCounts[tuple[str, int], str] = SharedCounts()
        self._terms_of: dict[int, tuple[SchedulingRules, tuple[PlacedTerm, ...]]] = {}

    def __reduce__(self) -> tuple[type["PlacedRules"], tuple[NodeRows]]:
        return PlacedRules, (self._rows,)  # a copy in another process builds its index again

    def share(self) -> "PlacedRules":
        """Return this index for a copy of the table; whichever of the two tables changes first copies the index."""
        self._is_shared = True
        return self

    def following(
        self, rows: NodeRows, pods: Sequence[Mapping[str, PlacedPod]], row_version: Int64s, version: int
    ) -> "PlacedRules":
        """Return the index of a table's present pods: this object, or a copy if another table shares it.

        Args:
            rows: nodes of the table.
            pods: for each row, its pods by uid. A row's mapping is replaced, never modified.
            row_version: version number of the latest change of each row, shape (nodes,).
            version: version number of the table's pods.
        """
        with self._lock:
            if version == self._version and rows is self._rows:
                return self
            index = self._copy() if self._is_shared else self
            index._follow(rows, pods, row_version)  # noqa: SLF001  same class
            index._version = version  # noqa: SLF001
            return index

    def pods_matching(self, criteria: Sequence[PodCriterion], *, terminating: bool = True) -> Int64s:
        """Return the number of pods on each node that meet all criteria, shape (nodes,), which must not be modified.

        Args:
            criteria: conditions, at least one.
            terminating: count terminating pods, too.
        """
        matching = [
            each
            for each in self._candidates(criteria[0].selector)
            if (terminating or not each.terminating) and _meets(each, criteria)
        ]
        return self._label_sets.sum(matching, self._rows.ids)

    def terms_matching(self, pod: Pod, namespace_labels: Mapping[str, Mapping[str, str]]) -> list[PlacedTerm]:
        """Return the terms of placed pods that select a pending pod.

        Args:
            pod: pending pod.
            namespace_labels: labels of each namespace.
        """
        if not len(self._terms):
            return []
        candidates = [term for item in (*pod.labels.items(), None) for term in self._terms_by_label.get(item)]
        labels = labels_of_namespace(pod.namespace, namespace_labels)
        return [placed for placed in candidates if _selects(placed.term, pod, labels)]

    def pods_with(self, placed: PlacedTerm) -> Int64s:
        """Return the number of pods on each node that have a term, shape (nodes,), which must not be modified."""
        return self._terms.array(placed, self._rows.ids)

    def has_port(self, address: str, protocol: str, number: int) -> Bools | None:
        """Return a mask of the nodes where a pod uses a host port, shape (nodes,); None if there are none.

        Args:
            address: address of the port; the address of all interfaces conflicts with every other.
            protocol: protocol, such as TCP.
            number: number of the port.
        """
        others = [
            other
            for other in self._addresses.get((protocol, number))
            if ANY_ADDRESS in (address, other) or address == other
        ]
        if not others:
            return None
        return self._ports.sum([(other, protocol, number) for other in others], self._rows.ids) > 0

    def _candidates(self, selector: LabelSelector | None) -> Collection[LabelSet]:
        """Return the label sets that may match a selector: those with the rarest label that the selector requires."""
        if selector is None:
            return ()
        best: Sequence[Mapping[LabelSet, int]] | None = None
        for requirement in selector.requirements:
            if requirement.operator == "In":
                found = [self._sets_by_label.get((requirement.key, value)) for value in requirement.values]
                if best is None or sum(map(len, found)) < sum(map(len, best)):
                    best = found
        return list(self._label_sets) if best is None else [each for found in best for each in found]

    def _copy(self) -> "PlacedRules":
        copied = PlacedRules(self._rows)
        copied._version, copied._seen = self._version, list(self._seen)
        for name in ("_label_sets", "_terms", "_ports"):
            setattr(copied, name, getattr(self, name).copy())
        for name in ("_sets_by_label", "_terms_by_label", "_addresses"):
            getattr(self, name).copy_to(getattr(copied, name))
        return copied

    def _follow(self, rows: NodeRows, pods: Sequence[Mapping[str, PlacedPod]], row_version: Int64s) -> None:
        if rows.names is not self._rows.names:
            self._move(rows)
        self._rows = rows
        ids = rows.ids
        for row in (row_version > self._version).nonzero()[0].tolist():
            before, now = self._seen[row], pods[row]
            if before is now:
                continue
            # Add before removing, so that a replaced pod does not remove the last count of a key.
            for uid, placed in now.items():
                if not _counts_alike(placed, before.get(uid)):
                    self._count(placed.pod, ids.item(row), row, 1)
            for uid, placed in before.items():
                if not _counts_alike(placed, now.get(uid)):
                    self._count(placed.pod, ids.item(row), row, -1)
            self._seen[row] = now

    def _move(self, rows: NodeRows) -> None:
        """Drop the pods of nodes that left, and bring the rest into the order of the new rows."""
        before, seen = self._rows, self._seen
        surviving = rows.surviving(before)
        for counts in (self._label_sets, self._terms, self._ports):
            counts.forget_arrays()
        gone = np.ones(len(before), np.bool_)
        gone[surviving] = False
        for row in gone.nonzero()[0].tolist():
            for placed in seen[row].values():
                self._count(placed.pod, before.ids.item(row), row, -1)
        self._seen = [*(seen[row] for row in surviving.tolist()), *([{}] * (len(rows) - len(surviving)))]

    def _count(self, pod: Pod, node_id: int, row: int, by: int) -> None:
        labels = LabelSet(pod.namespace, tuple(sorted(pod.labels.items())), pod.terminating)
        if self._label_sets.change_row(labels, node_id, row, by):
            for item in labels.labels:
                self._sets_by_label.change(item, labels, by)
        if pod.scheduling is NO_RULES:
            return
        for placed in self._placed_terms(pod.scheduling):
            if self._terms.change_row(placed, node_id, row, by):
                for key in _index_keys(placed.term):
                    self._terms_by_label.change(key, placed, by)
        for address, protocol, number in pod.scheduling.host_ports:
            if self._ports.change_row((address, protocol, number), node_id, row, by):
                self._addresses.change((protocol, number), address, by)

    def _placed_terms(self, rules: SchedulingRules) -> tuple[PlacedTerm, ...]:
        """Return the terms of a pod's rules; cached for pods that share the rules, because hashing terms takes time."""
        known = self._terms_of.get(id(rules))
        if known is None or known[0] is not rules:
            if len(self._terms_of) >= _MAX_CACHED_RULES:
                self._terms_of.clear()
            known = self._terms_of[id(rules)] = rules, tuple(_terms_of(rules))
        return known[1]


def _counts_alike(placed: PlacedPod, other: PlacedPod | None) -> bool:
    """Return whether the index has the same entries for two versions of a pod, as when an assumed pod is bound."""
    if placed is other or other is None:
        return other is not None
    pod, before = placed.pod, other.pod
    return (
        pod.scheduling is before.scheduling
        and pod.terminating == before.terminating
        and pod.labels == before.labels
        and pod.namespace == before.namespace
    )


def _terms_of(rules: SchedulingRules) -> Iterator[PlacedTerm]:
    for term in rules.required_affinity_terms:
        yield PlacedTerm("required", 0, term)
    for term in rules.required_anti_affinity_terms:
        yield PlacedTerm("required_anti", 0, term)
    for weight, term in rules.preferred_affinity_terms:
        yield PlacedTerm("preferred", weight, term)
    for weight, term in rules.preferred_anti_affinity_terms:
        yield PlacedTerm("preferred_anti", weight, term)


def _index_keys(term: PodAffinityTerm) -> Collection[tuple[str, str] | None]:
    """Return labels, one of which every pod has that a term selects; None stands for a term that requires no label."""
    if term.selector is None:
        return ()
    for requirement in term.selector.requirements:
        if requirement.operator == "In":
            return {(requirement.key, value) for value in requirement.values}
    return (None,)


def _meets(label_set: LabelSet, criteria: Sequence[PodCriterion]) -> bool:
    labels = dict(label_set.labels)
    return all(criterion.matches(label_set.namespace, labels) for criterion in criteria)


def _selects(term: PodAffinityTerm, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
    """Return whether a placed pod's term selects a pending pod. Source: ``AffinityTerm.Matches``."""
    chosen = term.namespace_selector
    if pod.namespace not in term.namespaces and (chosen is None or not chosen.matches(namespace_labels)):
        return False
    return term.selector is not None and term.selector.matches(pod.labels)
