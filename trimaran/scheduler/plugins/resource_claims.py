"""DynamicResources: pods with resource claims stay pending, because this scheduler does not allocate devices."""

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.plugins.base import EVERY_ROW, Rows
from scoring.plugins.filtering import Dependence, FilterPlugin, FilterVerdict, unresolvable_everywhere
from scoring.table.node_table import NodeTable

NOT_SUPPORTED = "pod has resource claims, which this scheduler does not allocate"


class DynamicResources(FilterPlugin):
    """Filter that refuses a pod with an entry in ``spec.resourceClaims``; another scheduler has to place the pod."""

    name = "DynamicResources"
    depends_on = Dependence.NODES
    requeued_by = frozenset()

    def filter(self, pod: Pod, nodes: NodeTable, rows: Rows = EVERY_ROW) -> FilterVerdict | None:
        """Refuse every node for a pod with resource claims; return None, which allows all nodes, for other pods."""
        if not pod.scheduling.resource_claims:
            return None
        return unresolvable_everywhere(np.zeros(len(nodes), np.bool_)[rows], NOT_SUPPORTED)
