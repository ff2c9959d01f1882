"""Which node a Prometheus series is about, by what kube-state-metrics and node_exporter tell of names and addresses."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime.http.gather import Deadline
from watcher.model import Window
from watcher.providers.node_names import NodeNames, Resolved, Words, is_address, without_port

_EXPIRY_SECONDS = 300

Run = Callable[[str, int | None, Deadline], list[dict[str, Any]]]


class NodeNameCache:
    """Keeps the names that the source told, and asks again when they are old or a series is new to them."""

    def __init__(self, run: Run, matchers: str) -> None:
        """Know nothing yet.

        Args:
            run: runs a PromQL expression at a time, unix seconds, or now, and returns its series.
            matchers: label matchers for all series.
        """
        self._run = run
        self._matchers = matchers
        self._names = NodeNames.unknown()
        self._until = 0.0
        self._doubtful: dict[str, frozenset[Words]] = {}  # by window: series without a name when seen last

    def are_due(self) -> bool:
        """Return whether the next fetch has to read the names."""
        return self._until <= time.monotonic()

    def read(self, at: int | None, deadline: Deadline) -> None:
        """Read the names and keep them for some minutes."""
        self._names = self._ask(at, deadline)
        self._until = time.monotonic() + _EXPIRY_SECONDS

    def resolve(self, words: Iterable[Words]) -> Mapping[Words, Resolved]:
        """Return the node of each series, by what its labels say and what was read."""
        return self._names.resolve_all(words)

    def resolve_fetched(
        self, words: frozenset[Words], window: Window, deadline: Deadline, *, just_read: bool
    ) -> Mapping[Words, Resolved]:
        """Return the node of each series of a fetch. Where one is new to the names, they are read again first.

        A node whose name came after its load would else be served under its address, and that one be missed later.

        Args:
            words: what the labels of each series say.
            window: whose fetch it is.
            deadline: of the fetch.
            just_read: whether this fetch has read the names already; the next one then does.
        """
        resolved = self.resolve(words)
        doubtful = _doubtful(resolved)
        if doubtful - self._doubtful.get(window.duration, frozenset()):
            if not just_read:
                with contextlib.suppress(Exception):  # the next fetch tries again, and says why it cannot
                    self.read(window.end, deadline)
                resolved = self.resolve(words)
                doubtful = _doubtful(resolved)
            if doubtful:
                self._until = 0.0
        self._doubtful[window.duration] = doubtful
        return resolved

    def _ask(self, at: int | None, deadline: Deadline) -> NodeNames:
        names: set[str] = set()
        aliases: dict[str, set[str]] = {}
        for item in self._run(f"kube_node_info{{{self._matchers}}}", at, deadline):
            node = item["metric"].get("node", "")
            if node:
                names.add(node)
                aliases.setdefault(item["metric"].get("internal_ip", ""), set()).add(node)
        aliases.pop("", None)
        listed = NodeNames(names, aliases)
        named: dict[str, set[str]] = {}  # what each instance calls itself, by node
        for item in self._run(f"node_uname_info{{{self._matchers}}}", at, deadline):
            instance, host = item["metric"].get("instance", ""), item["metric"].get("nodename", "")
            resolved = listed.resolve(host)
            if instance and host and not resolved.problem:
                named.setdefault(resolved.name, set()).add(instance)
        for node, instances in named.items():
            # Of several machines with one host name, as cloned ones have, the node is the one with its address.
            own = {instance for instance in instances if aliases.get(without_port(instance)) == {node}}
            for instance in own or instances:
                aliases.setdefault(instance, set()).add(node)
        return NodeNames(names, aliases)


def _doubtful(resolved: Mapping[Words, Resolved]) -> frozenset[Words]:
    return frozenset(words for words, each in resolved.items() if each.problem or is_address(each.name))
