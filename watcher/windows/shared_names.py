"""Nodes whose name several machines have, in any provider: they are marked, and after an hour no longer served."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from watcher.findings import Action, Finding, Kind
from watcher.model import NodeMetrics, Window

LEAST_PERCENT = 5.0
"""Smallest distance between the ranges of two machines: replicas of one machine have the same range."""
_SERVED_SECONDS = 3600  # a node is served for this time although several machines have its name


@dataclass(frozen=True, slots=True)
class SharedName:
    """Node name that several machines have.

    Attributes:
        message: the values that differ, the label that tells the machines apart, and the setting.
        since: when this was noticed, Unix seconds.
    """

    message: str
    since: int


class SharedNameMemory:
    """Memory, for each window, of when each name was first seen at several machines. Thread-safe."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, SharedName]] = {}

    def noticed(self, messages: Mapping[str, str], window: Window) -> Mapping[str, SharedName]:
        """Return the names that several machines have now, each with the time when this was first seen.

        Args:
            messages: name to message, of all names that several machines have now.
            window: the window that was fetched.
        """
        known = self._names.get(window.duration, {})
        names = {
            node: SharedName(message, known[node].since if node in known else window.end)
            for node, message in messages.items()
        }
        self._names[window.duration] = names
        return names


def mark_shared_names(
    nodes: dict[str, NodeMetrics], names: Mapping[str, SharedName], window: Window, findings: list[Finding]
) -> None:
    """Mark nodes whose name several machines have; remove them an hour later, unless they are half of the nodes.

    With two clusters of equal node names, a removal of nearly all nodes would leave nothing useful to serve.

    Args:
        nodes: the nodes, which are changed.
        names: the names that several machines have.
        window: the window that was fetched.
        findings: a list that new findings are added to.
    """
    marked = nodes.keys() & names.keys()
    are_few = 2 * len(marked) < len(nodes)
    for node in marked:
        name = names[node]
        is_over = are_few and window.end - name.since >= _SERVED_SECONDS
        if is_over:
            del nodes[node]
        else:
            nodes[node] = replace(nodes[node], metadata={**nodes[node].metadata, "suspect": str(Kind.DUPLICATE)})
        action = Action.DROPPED if is_over else Action.MARKED
        message = f"not served for that reason: {name.message}" if is_over else name.message
        findings.append(Finding(Kind.DUPLICATE, message, window.duration, node, "", action, name.since))
