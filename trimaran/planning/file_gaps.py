"""Notes for the user: objects that scores depend on but files lack, and scheduling rules that a plan ignores."""

from collections.abc import Collection, Iterator, Sequence

from runtime.kubernetes.scheduling_rules import PodAffinityTerm, SchedulingRules
from scoring import InterPodAffinity, NodeTable, Pod, PodTopologySpread
from scoring.table.placed_rules import NAMESPACE_NAME, labels_of_namespace


def file_gaps(pod: Pod, nodes: NodeTable, plugins: Collection[str]) -> Iterator[str]:
    """Yield a note for each missing input of scores: containers, labels of namespaces, and Services.

    Args:
        pod: pod to be placed.
        nodes: nodes with the placed pods, as read from files.
        plugins: names of the plugins that score the pod.
    """
    if not pod.containers:
        yield f"{pod.namespace}/{pod.name} has no containers (spec.containers), so it counts as a pod without requests"
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


def uncounted_rules(pods: Sequence[Pod], nodes: NodeTable) -> Iterator[str]:
    """Yield a note for each kind of rule that a plan ignores, such as affinity between pods, with the number of pods.

    Args:
        pods: pods to be placed.
        nodes: nodes with the placed pods.
    """
    if empty := sum(not pod.containers for pod in pods):
        yield f"{empty} of {len(pods)} pods have no containers (spec.containers): they count as pods without requests"
    preferring = sum(
        bool(rules.preferred_affinity_terms or rules.preferred_anti_affinity_terms or rules.spread)
        for rules in (pod.scheduling for pod in pods)
    )
    if preferring:
        yield (
            f"{preferring} of {len(pods)} pods prefer nodes by the pods on them or by topology: a plan does not "
            "count that"
        )
    avoiding = {
        term
        for name in nodes.names
        for placed in nodes.pods(name)
        for term in placed.scheduling.required_anti_affinity_terms
        if term.selector is not None
    }
    avoided = sum(any(_may_select(term, pod) for term in avoiding) for pod in pods) if avoiding else 0
    if avoided:
        yield (
            f"placed pods may require anti-affinity to {avoided} of {len(pods)} pods: a plan does not check that; "
            "leave these pods to the scheduler"
        )


def _may_select(term: PodAffinityTerm, pod: Pod) -> bool:
    """Return whether a term selects a pod, or may do so because the labels of its namespace are unknown."""
    chosen = term.namespace_selector
    in_namespace = pod.namespace in term.namespaces
    if chosen is not None and not in_namespace:
        has_unknown = any(requirement.key != NAMESPACE_NAME for requirement in chosen.requirements)
        in_namespace = has_unknown or chosen.matches(labels_of_namespace(pod.namespace, {}))
    return in_namespace and term.selector is not None and term.selector.matches(pod.labels)


def _namespace_keys(pod: Pod, nodes: NodeTable) -> Iterator[str]:
    """Yield the keys of the namespace labels that decide which pods the affinity terms select."""
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
