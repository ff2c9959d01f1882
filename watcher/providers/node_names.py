"""From what a source calls a node to its Kubernetes name.

Sources know nodes by name, by address, by address and port, or by a longer or shorter form of the name. Aliases are
resolved through what the source itself tells of its nodes; nothing is cut off unless exactly one node is meant.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

#: What a source calls the node that a series is about, the most telling word first; empty where it has no such word.
Words = tuple[str, ...]

_HOST_AND_PORT = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^:\[\]]+)):[0-9]+")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A node's name, and why it is doubtful; ``problem`` is empty when it is not."""

    name: str
    problem: str = ""


class NodeNames:
    """Resolves what a source calls nodes.

    Args:
        names: the nodes' names, where a list of them is known; empty when it is not.
        aliases: other words for a node, such as addresses, to the names they were seen with.
    """

    def __init__(self, names: Iterable[str] = (), aliases: Mapping[str, Iterable[str]] | None = None) -> None:
        self._names = frozenset(names)
        self._aliases = {alias: frozenset(found) for alias, found in (aliases or {}).items()}
        self._last: tuple[frozenset[Words], dict[Words, Resolved]] = (frozenset(), {})
        self._short: dict[str, set[str]] = {}
        for name in self._names:
            self._short.setdefault(name.partition(".")[0], set()).add(name)

    @classmethod
    def unknown(cls) -> Self:
        """Return what resolves when the source tells nothing of its nodes: names stay, ports go."""
        return cls()

    def resolve(self, *words: str) -> Resolved:
        """Return the node that a series is about.

        Args:
            words: what the series' labels call it, the most telling first; empty ones are skipped.
        """
        words = tuple(filter(None, words))
        if not words:
            return Resolved("", "the series has no label that names a node")
        hosts = tuple(map(without_port, words))
        for host in hosts:
            if host in self._names:
                return Resolved(host)
        ambiguous: frozenset[str] | set[str] = frozenset()
        for word, host in zip(words, hosts, strict=True):
            for found in (self._aliases.get(word), self._aliases.get(host), self._by_short_form(host)):
                if found and len(found) == 1:
                    return Resolved(next(iter(found)))
                ambiguous = ambiguous or found or frozenset()
        if ambiguous:
            return Resolved(hosts[0], f"{words[0]!r} may be any of {', '.join(sorted(ambiguous)[:5])}")
        if self._names:
            return Resolved(hosts[0], f"{words[0]!r} is none of the {len(self._names)} nodes that the source lists")
        return Resolved(next((host for host in hosts if not is_address(host)), hosts[0]))

    def resolve_all(self, series: Iterable[Words]) -> Mapping[Words, Resolved]:
        """Resolve what all series are called, and take back what would make two nodes one.

        That two hosts have one name is believed of nodes that the source lists, each with its addresses; not where a
        name was cut, nor where all hosts may say that they are ``localhost``.
        """
        asked = frozenset(series)
        remembered, found = self._last
        if asked != remembered:  # the windows of a fetch, and one fetch after the other, mostly ask the same
            found = self._resolve_apart(asked)
            self._last = (asked, found)
        return found

    def _resolve_apart(self, series: frozenset[Words]) -> dict[Words, Resolved]:
        found = {words: self.resolve(*words) for words in series}
        hosts: dict[str, set[str]] = {}
        for words, resolved in found.items():
            hosts.setdefault(resolved.name, set()).add(_first_host(words))
        for words, resolved in found.items():
            host = _first_host(words)
            if len(hosts[resolved.name]) > 1 and host != resolved.name and not self._is_listed_alias(words):
                problem = f"{', '.join(sorted(hosts[resolved.name])[:5])} would all be {resolved.name!r}: kept apart"
                found[words] = Resolved(host, problem)
        return found

    def _is_listed_alias(self, words: Words) -> bool:
        spellings = {spelling for word in words for spelling in (word, without_port(word))}
        aliased = any(self._aliases.get(spelling, frozenset()) & self._names for spelling in spellings)
        return aliased or bool(spellings & self._names)

    def _by_short_form(self, host: str) -> set[str]:
        """Return the nodes whose name is a longer or shorter form of this one; never by cutting an address."""
        if is_address(host):
            return set()
        short = host.partition(".")[0]
        if short != host:
            return {short} & self._names if short in self._names else set()
        return self._short.get(short, set())


def most_by_node(rows: Iterable[tuple[Words, float]], resolved: Mapping[Words, Resolved]) -> dict[str, float]:
    """Return the highest value of each node's series; those that are no node's are left out."""
    most: dict[str, float] = {}
    for words, value in rows:
        if words in resolved and (node := resolved[words].name):
            most[node] = max(value, most.get(node, value))
    return most


def _first_host(words: Words) -> str:
    return next((without_port(word) for word in words if word), "")


def without_port(word: str) -> str:
    """Return the word without the port that scraped targets carry: ``node-1`` for ``node-1:9100``."""
    match = _HOST_AND_PORT.fullmatch(word)
    return (match["host"] or match["ipv6"]) if match else word


def is_address(word: str) -> bool:
    """Return whether the word is an IP address."""
    if not (word[-1:].isdigit() or ":" in word):
        return False
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True
