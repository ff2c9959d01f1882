"""Translation of a source's node names to Kubernetes node names.

Sources identify nodes by name, address, address and port, or a longer or shorter form of the name. Aliases are resolved
with the source's own data about its nodes; a name is only shortened if exactly one node matches. The case of letters is
ignored, since the kubelet turns host names into lower case. A listed name keeps its spelling.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

#: Labels of a series that may name its node, the most specific first; a missing label is empty.
NodeLabels = tuple[str, ...]

_HOST_AND_PORT = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^:\[\]]+)):[0-9]+")


@dataclass(frozen=True, slots=True)
class Resolved:
    """Node that a series belongs to.

    Attributes:
        name: the node's name; empty if unknown.
        problem: the reason why the name is uncertain or unknown; empty if it is certain.
    """

    name: str
    problem: str = ""


class NodeNames:
    """Resolver from a source's labels to node names.

    Args:
        names: the node names, if the source lists them; else empty.
        aliases: other names of nodes, such as addresses, to the names of the nodes that may have this alias.
    """

    def __init__(self, names: Iterable[str] = (), aliases: Mapping[str, Iterable[str]] | None = None) -> None:
        self._names = frozenset(names)
        self._aliases: dict[str, set[str]] = {}
        for alias, candidates in (aliases or {}).items():
            self._aliases.setdefault(alias.casefold(), set()).update(candidates)
        self._last: tuple[frozenset[NodeLabels], dict[NodeLabels, Resolved]] = (frozenset(), {})
        self._folded: dict[str, set[str]] = {}
        self._short: dict[str, set[str]] = {}
        for name in self._names:
            self._folded.setdefault(name.casefold(), set()).add(name)
            self._short.setdefault(name.casefold().partition(".")[0], set()).add(name)

    @classmethod
    def unknown(cls) -> Self:
        """Return a resolver for a source that lists no nodes: it uses the names in the labels, without ports."""
        return cls()

    @property
    def listed(self) -> frozenset[str]:
        """The names of the nodes that the source lists; empty if it lists none."""
        return self._names

    def lists_same_as(self, other: "NodeNames") -> bool:
        """Return whether another resolver has the same names and aliases, and so resolves every series alike."""
        return (self._names, self._aliases) == (other._names, other._aliases)  # noqa: SLF001  the same class

    def resolve(self, *labels: str) -> Resolved:
        """Return the node of a series.

        Args:
            labels: labels of the series that may name the node, the most specific first; empty labels are skipped.
        """
        labels = tuple(filter(None, labels))
        if not labels:
            return Resolved("", "the series has no label that names a node")
        # The first label wins that is a listed name, or an alias or short form that fits exactly one node.
        hosts = tuple(map(without_port, labels))
        ambiguous: frozenset[str] | set[str] = frozenset()
        for label, host in zip(labels, hosts, strict=True):
            if host in self._names:
                return Resolved(host)
            folded = host.casefold()
            aliased = self._aliases.get(label.casefold()), self._aliases.get(folded)
            for candidates in (self._folded.get(folded), *aliased, self._by_short_form(folded)):
                if candidates and len(candidates) == 1:
                    return Resolved(next(iter(candidates)))
                ambiguous = ambiguous or candidates or frozenset()
        # If nodes are listed, other series have no node. Otherwise the first name that is no address is used.
        unmatched = "" if self._names else hosts[0]
        if ambiguous:
            return Resolved(unmatched, f"{labels[0]!r} may be any of the nodes {', '.join(sorted(ambiguous)[:5])}")
        if self._names:
            return Resolved("", f"{labels[0]!r} is not one of the {len(self._names)} nodes that the source lists")
        return Resolved(next((host for host in hosts if not is_address(host)), hosts[0]))

    def resolve_all(self, series: Iterable[NodeLabels]) -> Mapping[NodeLabels, Resolved]:
        """Return the node of each series; different hosts are not merged into one node by mistake.

        If several hosts resolve to the same node name, such as hosts that all report ``localhost``, each keeps its own
        name, with a problem; they are only merged if the source lists them as aliases of this node. If no series fits a
        listed node, the list is of other machines: each series keeps its own name, with a problem.
        """
        requested = frozenset(series)
        last_requested, resolved = self._last
        if requested != last_requested:  # all windows, and successive fetches, mostly have the same series
            resolved = self._resolve_separately(requested)
            self._last = (requested, resolved)
        return resolved

    def _resolve_separately(self, series: frozenset[NodeLabels]) -> dict[NodeLabels, Resolved]:
        results = {labels: self.resolve(*labels) for labels in series}
        if not any(resolved.name for resolved in results.values()):
            return {labels: Resolved(_first_host(labels), resolved.problem) for labels, resolved in results.items()}
        hosts: dict[str, set[str]] = {}
        for labels, resolved in results.items():
            hosts.setdefault(resolved.name, set()).add(_first_host(labels))
        for labels, resolved in results.items():
            host = _first_host(labels)
            if (
                resolved.name
                and len(hosts[resolved.name]) > 1
                and host != resolved.name
                and not self._is_listed_alias(labels)
            ):
                several = ", ".join(sorted(hosts[resolved.name])[:5])
                own = "" if self._names else host
                served = "served under their own names" if own else "not served"
                results[labels] = Resolved(own, f"{several} would all be the node {resolved.name!r}: they are {served}")
        return results

    def _is_listed_alias(self, labels: NodeLabels) -> bool:
        spellings = {spelling.casefold() for label in labels for spelling in (label, without_port(label))}
        aliased = any(self._aliases.get(spelling, frozenset()) & self._names for spelling in spellings)
        return aliased or bool(spellings & self._folded.keys())

    def _by_short_form(self, host: str) -> set[str]:
        """Return the nodes whose names equal a host up to the first dot; one of the two names must have no dot.

        For example, ``node-1`` matches ``node-1.example.com``. An IP address matches nothing.

        Args:
            host: the host in lower case.
        """
        if is_address(host):
            return set()
        short = host.partition(".")[0]
        if short != host:
            return self._folded.get(short, set())
        return self._short.get(short, set())


def most_by_node(rows: Iterable[tuple[NodeLabels, float]], resolved: Mapping[NodeLabels, Resolved]) -> dict[str, float]:
    """Return the highest value among each node's series; series without a node are left out."""
    most: dict[str, float] = {}
    for labels, value in rows:
        if labels in resolved and (node := resolved[labels].name):
            most[node] = max(value, most.get(node, value))
    return most


def _first_host(labels: NodeLabels) -> str:
    return next((without_port(label) for label in labels if label), "")


def without_port(host: str) -> str:
    """Return the host without the port of a scrape target: ``node-1`` for ``node-1:9100``."""
    match = _HOST_AND_PORT.fullmatch(host)
    return (match["host"] or match["ipv6"]) if match else host


def is_address(text: str) -> bool:
    """Return whether the text is an IP address."""
    if not (text[-1:].isdigit() or ":" in text):
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
