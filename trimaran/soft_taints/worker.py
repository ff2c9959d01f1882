"""Worker process of ``trimaran nodes``: reflector of the nodes, leader election by a Lease, and node writer."""

from collections.abc import Sequence
from functools import partial

from runtime.controller.leader_loop import LeaderElectedLoop
from runtime.controller.leadership import Leadership
from runtime.controller.own_lease import open_lease
from runtime.controller.service import ControllerWorker
from runtime.kubernetes.api import KubernetesApi
from runtime.kubernetes.paths import NODES
from runtime.kubernetes.reflector import Reflector
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from trimaran.soft_taints.app import create_app
from trimaran.soft_taints.node_state import NodeStateCache
from trimaran.soft_taints.settings import NodesSettings
from trimaran.soft_taints.writer import NodeWriter


class SoftTaintsWorker(ControllerWorker):
    """Worker process that runs the reflector of the nodes, the leader election and the node writer in threads.

    Args:
        settings: settings of ``trimaran nodes``.
        apis: one client of the Kubernetes API; closed with the worker.
        access: access check of the HTTP routes.
    """

    def __init__(self, settings: NodesSettings, apis: Sequence[KubernetesApi], access: AccessCheck) -> None:
        super().__init__(apis, access)
        self._settings = settings

    def start(self) -> FastPath:
        """Start the threads, and return the WSGI application without waiting for the nodes or the metrics."""
        section, (api,) = self._settings.nodes, self._apis
        watcher = self._settings.cluster.open_watcher(self._settings)
        nodes = NodeStateCache()
        reflector = Reflector(api, NODES, nodes)
        lease = open_lease(api, self._settings.cluster.lease_namespace, section.lease_name, section.lease_seconds)
        writer = NodeWriter(api, nodes, watcher, section.plan(), lambda: lease.term)
        reflector.start()
        cycle = partial(self._cycle, writer, reflector)
        loop = LeaderElectedLoop(Leadership(lease, section.lease_seconds), cycle, section.interval_seconds)
        loop.start()
        for close in (watcher.close, reflector.join, loop.stop, reflector.stop):  # called in reverse
            self._closing.callback(close)

        def why_not_ready() -> str:
            if reflector.synced.is_set():
                return loop.failure
            return f"the nodes are not known: {reflector.failure or 'not listed yet'}"

        return create_app(writer.counts, lease, loop.is_alive, why_not_ready, self._access)

    @staticmethod
    def _cycle(writer: NodeWriter, reflector: Reflector) -> bool:
        """Run a cycle of the writer once all nodes are known; return whether a cycle has ever run."""
        if reflector.synced.is_set():
            writer.run_cycle()
        return bool(writer.counts.cycles)
