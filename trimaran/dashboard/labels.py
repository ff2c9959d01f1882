"""Labels and soft taints of nodes, and label selectors in the syntax of ``kubectl --selector``."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.k8s_fields import unix_seconds
from runtime.kubernetes.manifests import read_objects
from runtime.kubernetes.paths import NODES
from trimaran.dashboard.ttl_cache import TTLCache
from watcher.model import WatcherMetrics

LabelsByNode = Mapping[str, Mapping[str, str]]
TaintsByNode = Mapping[str, Mapping[str, float]]
_CACHE_SECONDS = 60.0
_TIMEOUT_SECONDS = 15.0
_MAX_SUGGESTIONS = 200
_MAX_SELECTOR_LENGTH = 2000
_TERM = re.compile(r"(?P<not>!?)(?P<key>[\w./-]+)|(?P<name>[\w./-]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[\w.-]*)")
_log = logging.getLogger(__name__)


class NodeLabels:
    """Labels and soft taints of the nodes in the cluster; labels are merged with the watcher's metadata. Thread-safe.

    Args:
        read: returns the cluster's nodes as Kubernetes manifests; None if only the watcher's metadata is available.
    """

    def __init__(self, read: Callable[[], Iterable[Mapping[str, Any]]] | None = None) -> None:
        """Create the cache; nothing is read until a page asks for it."""
        self._read = read
        self._cache = TTLCache()
        self._last: tuple[LabelsByNode, TaintsByNode] = {}, {}

    def by_node(self, snapshot: WatcherMetrics) -> LabelsByNode:
        """Return the labels of each labeled node, by node name; the cluster's labels override the watcher's metadata.

        If the cluster cannot be read, the last known labels are returned, and the reason is logged.
        """
        cluster, _ = self._cache.get("cluster", _CACHE_SECONDS, self._read_cluster)
        return self._cache.memoize("all", (snapshot, cluster), lambda: _merge(snapshot, cluster))

    def soft_taints(self) -> TaintsByNode:
        """Return the PreferNoSchedule taints by node: key, and Unix time at which the taint was added; 0 if unknown.

        Nodes without such taints are left out. Without access to the cluster the result is empty.
        """
        return self._cache.get("cluster", _CACHE_SECONDS, self._read_cluster)[1]

    def _read_cluster(self) -> tuple[LabelsByNode, TaintsByNode]:
        if self._read is None:
            return self._last
        try:
            labels, taints = dict[str, Mapping[str, str]](), dict[str, Mapping[str, float]]()
            for node in self._read():
                name = str(node["metadata"]["name"])
                if known := node["metadata"].get("labels"):
                    labels[name] = {str(key): str(value) for key, value in known.items()}
                if soft := _soft_taints(node):
                    taints[name] = soft
            self._last = labels, taints
        except (*REQUEST_FAILURES, ValueError) as error:
            _log.warning("cannot read the node labels", extra={"reason": describe(error).reason})
        return self._last


def nodes_from_file(file: Path) -> Callable[[], Iterable[Mapping[str, Any]]]:
    """Return a function that reads nodes from a file, as written by ``kubectl get nodes -o yaml``."""
    return lambda: read_objects(file, "Node")


def nodes_from_cluster(api: KubernetesApi) -> Callable[[], Iterable[Mapping[str, Any]]]:
    """Return a function that lists nodes from the API server."""
    return lambda: api.list_items(NODES, Deadline.after(_TIMEOUT_SECONDS))


def common_labels(labels: LabelsByNode) -> list[str]:
    """Return the 200 most common labels as ``key=value``, sorted; labels that only one node has are left out."""
    counts = Counter(f"{key}={value}" for own in labels.values() for key, value in own.items())
    return sorted(pair for pair, count in counts.most_common(_MAX_SUGGESTIONS) if count > 1)


def parse_selector(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Return a function that checks whether labels match a selector.

    Terms are ``key``, ``!key``, ``key=value`` and ``key!=value``, separated by commas; labels must match all terms.

    Raises:
        ValueError: a term is malformed, or the selector is too long to evaluate for every node.
    """
    if len(text) > _MAX_SELECTOR_LENGTH:
        raise ValueError(f"a label selector has at most {_MAX_SELECTOR_LENGTH} characters, not {len(text)}")
    terms = []
    for part in filter(None, map(str.strip, text.split(","))):
        term = _TERM.fullmatch(part)
        if term is None:
            raise ValueError(
                f"{part[:60]!r} is not a valid selector: write key=value, key!=value, key or !key, separated by commas"
            )
        terms.append(term)

    def matches(labels: Mapping[str, str]) -> bool:
        return all(
            (term["key"] in labels) != bool(term["not"])
            if term["key"]
            else (labels.get(term["name"]) == term["value"]) != (term["operator"] == "!=")
            for term in terms
        )

    return matches


def _soft_taints(node: Mapping[str, Any]) -> dict[str, float]:
    """Return the keys of a node's PreferNoSchedule taints with the Unix time of their addition; 0 if unknown."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return {
        str(taint["key"]): unix_seconds(taint.get("timeAdded"), "timeAdded") or 0.0
        for taint in taints
        if taint.get("effect") == "PreferNoSchedule"
    }


def _merge(snapshot: WatcherMetrics, cluster: LabelsByNode) -> LabelsByNode:
    metadata = {
        name: {key: value for key, value in fields.items() if isinstance(value, str)}
        for name, fields in snapshot.metadata.items()
    }
    return metadata | {name: {**metadata.get(name, {}), **labels} for name, labels in cluster.items()}
