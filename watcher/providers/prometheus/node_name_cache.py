"""Node names of Prometheus' series, from the names and addresses in kube-state-metrics and node_exporter."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime.http.gather import Deadline
from watcher.model import Window
from watcher.providers.node_names import NodeLabels, NodeNames, Resolved, is_address, without_port
from watcher.providers.own_labels import own_label

_EXPIRY_SECONDS = 300

Run = Callable[[str, int | None, Deadline], list[dict[str, Any]]]


class NodeNameCache:
    """Cache of the node names that Prometheus knows; it is refreshed when it expires or an unknown series appears."""

    def __init__(self, run: Run, matchers: str) -> None:
        """Start with an empty cache.

        Args:
            run: runs a PromQL expression at a time, in Unix seconds or now, and returns its series.
            matchers: label matchers for all series.
        """
        self._run = run
        self._matchers = matchers
        self._names = NodeNames.unknown()
        self._until = 0.0
        self._unnamed: dict[str, frozenset[NodeLabels]] = {}  # window to series that had no name in the last fetch

    def are_due(self) -> bool:
        """Return whether the names have expired, so the next fetch must read them."""
        return self._until <= time.monotonic()

    def read(self, at: int | None, deadline: Deadline) -> None:
        """Read the names and cache them for some minutes."""
        names = self._load(at, deadline)
        if not names.lists_same_as(self._names):  # the resolver caches the nodes of the last series
            self._names = names
        self._until = time.monotonic() + _EXPIRY_SECONDS

    def resolve(self, labels: Iterable[NodeLabels]) -> Mapping[NodeLabels, Resolved]:
        """Return the node of each series, by its labels and the cached names."""
        return self._names.resolve_all(labels)

    def resolve_fetched(
        self, labels: frozenset[NodeLabels], window: Window, deadline: Deadline, *, just_read: bool
    ) -> Mapping[NodeLabels, Resolved]:
        """Return the node of each series of a fetch. If a series is unknown, first read the names again.

        A new node's load may appear before its name. With old names the node would be served under its address, and
        later, under its name, the address would be reported as a missing node.

        Args:
            labels: the node labels of each series.
            window: the window of the fetch.
            deadline: the deadline of the fetch.
            just_read: whether this fetch has already read the names. If so, they are not read again for an unknown
                series until the next fetch.
        """
        resolved = self.resolve(labels)
        unnamed = _without_name(resolved)
        if unnamed - self._unnamed.get(window.duration, frozenset()):
            if not just_read:
                with contextlib.suppress(Exception):  # the next fetch tries again and reports the error
                    self.read(window.end, deadline)
                resolved = self.resolve(labels)
                unnamed = _without_name(resolved)
            if unnamed:
                self._until = 0.0
        self._unnamed[window.duration] = unnamed
        return resolved

    def _load(self, at: int | None, deadline: Deadline) -> NodeNames:
        names: set[str] = set()
        aliases: dict[str, set[str]] = {}
        for item in self._run(f"kube_node_info{{{self._matchers}}}", at, deadline):
            node = own_label(item["metric"], "node")
            if node:
                names.add(node)
                aliases.setdefault(own_label(item["metric"], "internal_ip"), set()).add(node)
        aliases.pop("", None)
        listed = NodeNames(names, aliases)
        named: dict[str, set[str]] = {}  # node to the instances whose host name is the node's
        for item in self._run(f"node_uname_info{{{self._matchers}}}", at, deadline):
            instance, host = (own_label(item["metric"], name) for name in ("instance", "nodename"))
            resolved = listed.resolve(host)
            if instance and host and not resolved.problem:
                named.setdefault(resolved.name, set()).add(instance)
        for node, instances in named.items():
            # Cloned machines may share a host name: the node is the machine that has the node's address.
            matching = {instance for instance in instances if aliases.get(without_port(instance)) == {node}}
            for instance in matching or instances:
                aliases.setdefault(instance, set()).add(node)
        return NodeNames(names, aliases)


def _without_name(resolved: Mapping[NodeLabels, Resolved]) -> frozenset[NodeLabels]:
    return frozenset(labels for labels, node in resolved.items() if node.problem or is_address(node.name))
