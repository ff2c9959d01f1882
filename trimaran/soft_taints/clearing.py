"""Removal of everything that the node writer has written: ``trimaran nodes --clear``."""

from runtime.errors import TrimaranError
from runtime.kubernetes.reflector import Reflector
from trimaran.cluster.view import NODES
from trimaran.soft_taints.node_state import NodeStateCache
from trimaran.soft_taints.settings import NodesSettings
from trimaran.soft_taints.writer import NodeWriter
from watcher.model import WatcherMetrics

_SYNC_SECONDS = 60.0


def clear(settings: NodesSettings) -> int:
    """Remove the taint and the annotations of ``trimaran nodes`` from all nodes; return the number of all nodes.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
        TrimaranError: the nodes cannot be read, or a node could not be written.
    """
    api, nodes = settings.nodes.open_api("nodes"), NodeStateCache()
    reflector = Reflector(api, NODES, nodes)
    reflector.start()
    try:
        if not reflector.synced.wait(_SYNC_SECONDS):
            raise TrimaranError("the nodes cannot be read; the log says why")
        # The reflector follows the nodes until the end, as the API server refuses writes to nodes that have changed.
        failed = NodeWriter(api, nodes, _NoMetricsSource(), settings.nodes.plan()).clear()
    finally:
        reflector.stop()
        reflector.join()
        api.close()
    if failed:
        raise TrimaranError(f"{failed} nodes could not be written, as the log says; run the command again")
    return len(nodes.all())


class _NoMetricsSource:
    """Metrics source that is never read, because removing taints and annotations needs no metrics."""

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        raise NotImplementedError(window)
