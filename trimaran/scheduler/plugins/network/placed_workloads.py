"""Number of the AppGroups' pods on each node, with assumed pods, kept up to date with the node table."""

from collections import Counter
from collections.abc import Mapping
from weakref import ReferenceType, ref

from scoring.table.node_table import NodeTable
from trimaran.scheduler.plugins.network.objects import group_of, workload_of

Workloads = Mapping[str, int]
"""Number of pods by selector of their workload."""


class PlacedWorkloads:
    """Number of pods by AppGroup, node and workload. After a change of the table only the changed nodes are read."""

    def __init__(self) -> None:
        self._table: ReferenceType[NodeTable] | None = None
        self._version = -1
        self._groups_on: dict[str, frozenset[str]] = {}  # by name of the node
        self._by_group: dict[str, dict[str, Workloads]] = {}  # by group, then by name of the node

    def of(self, nodes: NodeTable, group: str) -> Mapping[str, Workloads]:
        """Return the number of a group's pods by node name and workload."""
        self._follow(nodes)
        return self._by_group.get(group, {})

    def _follow(self, nodes: NodeTable) -> None:
        is_same = self._table is not None and self._table() is nodes
        if is_same and self._version == nodes.version:
            return
        if not is_same:
            self._table, self._version, self._groups_on, self._by_group = ref(nodes), -1, {}, {}
        for name in [name for name in self._groups_on if name not in nodes]:
            self._replace(name, {})
        for row in nodes.changed_rows(self._version).tolist():
            found: dict[str, Counter[str]] = {}
            for placed in nodes.placed_on(row):
                group = group_of(placed.pod)
                if group:
                    found.setdefault(group, Counter())[workload_of(placed.pod)] += 1
            self._replace(nodes.names[row], found)
        self._version = nodes.version

    def _replace(self, name: str, found: Mapping[str, Workloads]) -> None:
        for group in self._groups_on.pop(name, frozenset()):
            del self._by_group[group][name]
            if not self._by_group[group]:
                del self._by_group[group]
        for group, workloads in found.items():
            self._by_group.setdefault(group, {})[name] = workloads
        if found:
            self._groups_on[name] = frozenset(found)
