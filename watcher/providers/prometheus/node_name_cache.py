"""Node names of Prometheus' series, from the names and addresses in kube-state-metrics and node_exporter."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime.http.gather import Deadline
from watcher.model import Window
from watcher.providers.node_names import NodeLabels, NodeNames, Resolved, is_address, without_port
from watcher.providers.own_labels import own_label
from watcher.providers.prometheus.selectors import any_of

_EXPIRY_SECONDS = 300
_HOSTS_AT_ONCE = 30  # in one query, whose text is a part of the URL
_ONE_ON_EACH_NODE = {"DaemonSet", "Node", "<none>", ""}  # creators of such pods; "" in old kube-state-metrics

Run = Callable[[str, int | None, Deadline], list[dict[str, Any]]]


class NodeNameCache:
    """Cache of the node names that Prometheus knows; it is refreshed when it expires or an unknown series appears."""

    def __init__(self, run: Run, matchers: str, *, has_own_label: bool = False) -> None:
        """Start with an empty cache.

        Args:
            run: runs a PromQL expression at a time, in Unix seconds or now, and returns its series.
            matchers: label matchers for all series.
            has_own_label: whether ``prometheus.node_label`` is set; host names then do not replace the label's values.
        """
        self._run = run
        self._matchers = matchers
        self._has_own_label = has_own_label
        self._pod_hosts: frozenset[str] = frozenset()  # names and addresses that may be pods of an exporter
        self._names = NodeNames.unknown()
        self._until = 0.0
        self._read_at = -math.inf  # on the monotonic clock
        self._read_hosts = self._pod_hosts  # pod hosts that the last read requested
        self._lock = threading.Lock()
        self._unnamed: dict[str, frozenset[NodeLabels]] = {}  # window to series that had no name in the last fetch

    @property
    def listed(self) -> frozenset[str]:
        """The names of the nodes in kube-state-metrics; empty without it."""
        return self._names.listed

    def are_due(self) -> bool:
        """Return whether the names have expired, so the next fetch must read them."""
        return self._until <= time.monotonic()

    def read(self, at: int | None, deadline: Deadline) -> None:
        """Read the names and cache them for 5 minutes; if another thread reads them now, only wait for that thread."""
        began = time.monotonic()
        with self._lock:
            if self._read_at < began:
                self._refresh(at, deadline)

    def _refresh(self, at: int | None, deadline: Deadline) -> None:
        began, hosts = time.monotonic(), self._pod_hosts
        names = self._load(at, deadline)
        if not names.lists_same_as(self._names):  # the resolver caches the nodes of the last series
            self._names = names
        self._read_at, self._read_hosts = began, hosts
        self._until = time.monotonic() + _EXPIRY_SECONDS

    def resolve(self, labels: Iterable[NodeLabels]) -> Mapping[NodeLabels, Resolved]:
        """Return the node of each series, by its labels and the cached names."""
        return self._names.resolve_all(labels)

    def resolve_fetched(
        self, labels: frozenset[NodeLabels], window: Window, deadline: Deadline, *, just_read: bool
    ) -> Mapping[NodeLabels, Resolved]:
        """Return the node of each series of a fetch. If a series is unknown, first read the names again.

        A new node's load may appear before its name. With old names the node would be served under its address; later
        it would be served under its name, and its address would be reported as a missing node.

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
            with self._lock:  # the windows have the same series: the first thread reads for all
                unnamed = _without_name(self.resolve(labels))
                self._unnamed[window.duration] = unnamed
                hosts = _hosts(unnamed)
                self._pod_hosts |= hosts
                if unnamed and not (just_read and hosts <= self._read_hosts):
                    with contextlib.suppress(Exception):  # the next fetch tries again and reports the error
                        self._refresh(window.end, deadline)
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
        if names:
            for host, nodes in self._nodes_of_pods(at, deadline).items():
                aliases.setdefault(host, set()).update(nodes)
        listed = NodeNames(names, aliases)
        if self._has_own_label and not names:
            return listed
        named: dict[str, set[str]] = {}  # node to the instances whose host name is the node's
        for item in self._run(f"node_uname_info{{{self._matchers}}}", at, deadline):
            instance, host = (own_label(item["metric"], name) for name in ("instance", "nodename"))
            resolved = listed.resolve(host)
            # A host name is the node's name only if it is listed, or if nothing else but an address is known.
            if instance and host and not resolved.problem and (names or is_address(without_port(instance))):
                named.setdefault(resolved.name, set()).add(instance)
        for node, instances in named.items():
            # Cloned machines may share a host name: the node is the machine that has the node's address.
            matching = {instance for instance in instances if aliases.get(without_port(instance)) == {node}}
            for instance in matching or instances:
                aliases.setdefault(instance, set()).add(node)
        return NodeNames(names, aliases)

    def _nodes_of_pods(self, at: int | None, deadline: Deadline) -> dict[str, set[str]]:
        """Return the nodes of DaemonSet pods, by the names and addresses of those pods that are hosts of series.

        Exporters such as dcgm-exporter measure the node that their pod runs on, and may not know its name. A pod of
        another kind may measure anything.
        """
        addresses = sorted(filter(is_address, self._pod_hosts))
        names = sorted(self._pod_hosts.difference(addresses))
        nodes: dict[str, set[str]] = {}
        no_name = "-"  # a pattern that no name and no address has
        for first in range(0, max(len(addresses), len(names)), _HOSTS_AT_ONCE):
            some = slice(first, first + _HOSTS_AT_ONCE)
            own, address = (f'=~"{any_of(hosts[some]) or no_name}"' for hosts in (names, addresses))
            pods = (f'exported_pod="",pod{own}', f"exported_pod{own}", f"pod_ip{address}")
            forms = (f"kube_pod_info{{{','.join(filter(None, (pod, self._matchers)))}}}" for pod in pods)
            for item in self._run(" or ".join(forms), at, deadline):
                node, kind = (own_label(item["metric"], name) for name in ("node", "created_by_kind"))
                if node and kind in _ONE_ON_EACH_NODE:
                    for name in ("pod", "pod_ip"):
                        nodes.setdefault(own_label(item["metric"], name), set()).add(node)
        nodes.pop("", None)
        self._pod_hosts &= nodes.keys() | {host for unnamed in self._unnamed.values() for host in _hosts(unnamed)}
        return nodes


def _hosts(series: Iterable[NodeLabels]) -> frozenset[str]:
    return frozenset(without_port(label) for labels in series for label in labels if label)


def _without_name(resolved: Mapping[NodeLabels, Resolved]) -> frozenset[NodeLabels]:
    return frozenset(labels for labels, node in resolved.items() if node.problem or is_address(node.name))
