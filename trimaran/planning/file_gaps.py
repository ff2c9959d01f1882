"""Objects that files of nodes and pods cannot have, and that the scores of a pod depend on: notes for the user."""

from collections.abc import Collection, Iterator

from runtime.kubernetes.scheduling_rules import PodAffinityTerm, SchedulingRules
from scoring import InterPodAffinity, NodeTable, Pod, PodTopologySpread
from scoring.table.placed_rules import NAMESPACE_NAME


def file_gaps(pod: Pod, nodes: NodeTable, plugins: Collection[str]) -> Iterator[str]:
    """Yield a note for each kind of object that is missing: labels of namespaces, and Services.

    Args:
        pod: pod to be placed.
        nodes: nodes with the placed pods, as read from files.
        plugins: names of the plugins that score the pod.
    """
    if InterPodAffinity.name in plugins and (keys := sorted(_namespace_keys(pod, nodes))):
        yield (
            f"files have no labels of namespaces, so namespaceSelector sees none of {', '.join(keys)}, which affects "
            f"{InterPodAffinity.name}; it sees {NAMESPACE_NAME}"
        )
    if PodTopologySpread.name in plugins and not pod.scheduling.spread:
        counted = "its own labels" if pod.owner is not None else "no labels"
        yield (
            "files have no Services, so the default constraints count pods of "
            f"{pod.namespace}/{pod.name} by {counted}, which affects {PodTopologySpread.name}"
        )


def _namespace_keys(pod: Pod, nodes: NodeTable) -> Iterator[str]:
    """Yield the labels of namespaces that are needed to know the pods which the terms of affinity select."""
    terms = list(_terms(pod.scheduling))
    for name in nodes.names:
        for placed in nodes.pods(name):
            terms += [
                term
                for term in _terms(placed.scheduling)
                if term.selector is not None and term.selector.matches(pod.labels)
            ]
    keys = {
        requirement.key
        for term in terms
        if term.namespace_selector is not None
        for requirement in term.namespace_selector.requirements
    }
    yield from keys - {NAMESPACE_NAME}


def _terms(rules: SchedulingRules) -> Iterator[PodAffinityTerm]:
    yield from rules.required_affinity_terms
    yield from rules.required_anti_affinity_terms
    for _, term in (*rules.preferred_affinity_terms, *rules.preferred_anti_affinity_terms):
        yield term
