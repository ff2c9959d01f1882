"""Worker process of ``trimaran nodes``: reflector of the nodes, leader election by a Lease, and node writer."""

import contextlib
from functools import partial

from runtime.controller.leader_threads import LeaderThreads
from runtime.controller.own_lease import open_lease
from runtime.kubernetes.api import KubernetesApi
from runtime.kubernetes.paths import NODES
from runtime.kubernetes.reflector import Reflector
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from trimaran.soft_taints.app import create_app
from trimaran.soft_taints.node_state import NodeStateCache
from trimaran.soft_taints.settings import NodesSettings
from trimaran.soft_taints.writer import NodeWriter


class SoftTaintsWorker:
    """Worker process that runs the reflector of the nodes, the leader election and the node writer in threads.

    Args:
        settings: settings of ``trimaran nodes``.
        api: Kubernetes API; closed with the worker.
        access: access check of the HTTP routes.
    """

    def __init__(self, settings: NodesSettings, api: KubernetesApi, access: AccessCheck) -> None:
        self._settings = settings
        self._access = access
        self._api = api
        self._closing = contextlib.ExitStack()

    def start(self) -> FastPath:
        """Start the threads, and return the WSGI application without waiting for the nodes or the metrics."""
        section = self._settings.nodes
        watcher = self._settings.cluster.open_watcher(self._settings)
        nodes = NodeStateCache()
        reflector = Reflector(self._api, NODES, nodes)
        lease = open_lease(self._api, self._settings.cluster.lease_namespace, section.lease_name, section.lease_seconds)
        writer = NodeWriter(self._api, nodes, watcher, section.plan(), lambda: lease.term)
        reflector.start()
        cycle = partial(self._cycle, writer, reflector)
        threads = LeaderThreads(lease, section.lease_seconds, cycle, section.interval_seconds)
        threads.start()
        self._closing.callback(self._api.close)
        self._closing.callback(watcher.close)
        for close in (reflector.join, threads.stop, reflector.stop):  # called in reverse
            self._closing.callback(close)

        def why_not_ready() -> str:
            if reflector.synced.is_set():
                return threads.failure
            return f"the nodes are not known: {reflector.failure or 'not listed yet'}"

        return create_app(writer.counts, lease, threads.is_alive, why_not_ready, self._access)

    def close(self) -> None:
        """Stop the threads, and release the Lease."""
        self._closing.close()

    @staticmethod
    def _cycle(writer: NodeWriter, reflector: Reflector) -> bool:
        """Run a cycle of the writer once all nodes are known; return whether any has run."""
        if reflector.synced.is_set():
            writer.run_cycle()
        return bool(writer.counts.cycles)
