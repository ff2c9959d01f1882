"""Labels of nodes, and the choice of nodes by them, as kubectl's ``--selector`` makes it."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, KubernetesApi
from runtime.kubernetes.manifests import read_objects
from trimaran.dashboard.result_store import Kept
from watcher.model import WatcherMetrics

LabelsOfNodes = Mapping[str, Mapping[str, str]]
_SECONDS = 60.0
_TIMEOUT_SECONDS = 15.0
_MOST_OFFERED = 200
_LONGEST_SELECTOR = 2000
_TERM = re.compile(r"(?P<not>!?)(?P<key>[\w./-]+)|(?P<name>[\w./-]+)\s*(?P<how>==|=|!=)\s*(?P<value>[\w.-]*)")
_log = logging.getLogger(__name__)


class Labels:
    """What nodes are labelled with: by the cluster, and by the watcher's metadata. Safe to use from several threads.

    Args:
        read: returns the cluster's nodes, as Kubernetes writes them; None where there is no cluster to ask.
    """

    def __init__(self, read: Callable[[], Iterable[Mapping[str, Any]]] | None = None) -> None:
        """Read nothing yet."""
        self._read = read
        self._kept = Kept()
        self._last: LabelsOfNodes = {}

    def of(self, snapshot: WatcherMetrics) -> LabelsOfNodes:
        """Return labels by node, of those that have any; what the cluster says wins over the watcher's metadata.

        Where the cluster does not answer they are those that it had, and the log says why.
        """
        cluster = self._kept.read("cluster", _SECONDS, self._of_cluster)
        return self._kept.made("all", (snapshot, cluster), lambda: _joined(snapshot, cluster))

    def _of_cluster(self) -> LabelsOfNodes:
        if self._read is None:
            return self._last
        try:
            self._last = {
                str(each["metadata"]["name"]): {str(key): str(value) for key, value in labels.items()}
                for each in self._read()
                if (labels := each.get("metadata", {}).get("labels"))
            }
        except (*REQUEST_FAILURES, ValueError) as error:
            _log.warning("the labels of nodes cannot be read", extra={"reason": describe(error).reason})
        return self._last


def of_file(file: Path) -> Callable[[], Iterable[Mapping[str, Any]]]:
    """Return what reads nodes from a file, as ``kubectl get nodes -o yaml`` writes it."""
    return lambda: read_objects(file, "Node")


def of_cluster(api: KubernetesApi) -> Callable[[], Iterable[Mapping[str, Any]]]:
    """Return what reads nodes from the API server."""
    return lambda: api.list_items("/api/v1/nodes", Deadline.after(_TIMEOUT_SECONDS))


def offered(labels: LabelsOfNodes) -> list[str]:
    """Return ``key=value`` of the labels that most nodes have; a label of one node alone is no choice."""
    counts = Counter(f"{key}={value}" for each in labels.values() for key, value in each.items())
    return sorted(pair for pair, count in counts.most_common(_MOST_OFFERED) if count > 1)


def selector(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Return whether labels are as ``key``, ``!key``, ``key=value`` and ``key!=value``, by commas, all say.

    Raises:
        ValueError: the text says something else, or is too long to hold every node against it.
    """
    if len(text) > _LONGEST_SELECTOR:
        raise ValueError(f"a choice of labels has at most {_LONGEST_SELECTOR} characters, not {len(text)}")
    terms = []
    for part in filter(None, map(str.strip, text.split(","))):
        found = _TERM.fullmatch(part)
        if found is None:
            raise ValueError(
                f"{part[:60]!r} is no label: write key=value, key!=value, key or !key, with commas between"
            )
        terms.append(found)

    def holds(labels: Mapping[str, str]) -> bool:
        return all(
            (term["key"] in labels) != bool(term["not"])
            if term["key"]
            else (labels.get(term["name"]) == term["value"]) != (term["how"] == "!=")
            for term in terms
        )

    return holds


def _joined(snapshot: WatcherMetrics, cluster: LabelsOfNodes) -> LabelsOfNodes:
    known = {
        name: {key: value for key, value in each.items() if isinstance(value, str)}
        for name, each in snapshot.metadata.items()
    }
    return known | {name: {**known.get(name, {}), **labels} for name, labels in cluster.items()}
