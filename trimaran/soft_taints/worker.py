"""Worker process of ``trimaran nodes``: reflector of the nodes, leader election by a Lease, and node writer."""

import contextlib
import logging
import socket
import threading
import time
from uuid import uuid4

from runtime.kubernetes.api import KubernetesApi
from runtime.kubernetes.leader_election import Lease
from runtime.kubernetes.reflector import Reflector
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from trimaran.cluster.view import NODES
from trimaran.soft_taints.app import create_app
from trimaran.soft_taints.node_state import NodeStateCache
from trimaran.soft_taints.settings import NodesSettings
from trimaran.soft_taints.writer import NodeWriter

_STUCK_SECONDS = 300.0
_log = logging.getLogger(__name__)


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
        self._stop = threading.Event()
        self._closing = contextlib.ExitStack()
        self._threads: list[threading.Thread] = []
        self._ticked_at: dict[str, float] = {}  # by thread, the begin of its last turn

    def start(self) -> FastPath:
        """Start the threads, and return the WSGI application without waiting for the nodes or the metrics."""
        section = self._settings.nodes
        watcher = section.open_watcher(self._settings)
        nodes = NodeStateCache()
        reflector = Reflector(self._api, NODES, nodes)
        identity = f"{socket.gethostname()}_{uuid4().hex[:8]}"
        lease = Lease(self._api, section.lease_namespace, section.lease_name, identity, section.lease_seconds)
        writer = NodeWriter(self._api, nodes, watcher, section.plan(), lambda: lease.term)
        reflector.start()
        self._threads = [
            threading.Thread(target=self._hold, args=(lease,), name="lease", daemon=True),
            threading.Thread(target=self._write, args=(writer, reflector), name="writer", daemon=True),
        ]
        for thread in self._threads:
            self._tick(thread.name)
            thread.start()
        self._closing.callback(self._api.close)
        self._closing.callback(watcher.close)
        self._closing.callback(self._end, reflector, lease)

        def why_not_ready() -> str:
            return (
                "" if reflector.synced.is_set() else f"the nodes are not known: {reflector.failure or 'not listed yet'}"
            )

        return create_app(writer.counts, lease, self.is_alive, why_not_ready, self._access)

    def is_alive(self) -> bool:
        """Return whether all threads run, and make progress or wait for their next turn."""
        nodes = self._settings.nodes
        oldest = time.monotonic() - _STUCK_SECONDS - max(nodes.interval_seconds, nodes.lease_seconds)
        return all(thread.is_alive() and self._ticked_at[thread.name] > oldest for thread in self._threads)

    def close(self) -> None:
        """Stop the threads, and release the Lease."""
        self._stop.set()
        self._closing.close()

    def _hold(self, lease: Lease) -> None:
        while not self._stop.is_set():
            self._tick("lease")
            try:
                lease.renew()
            except Exception:  # noqa: BLE001  the next renewal tries again; until then the Lease may expire
                _log.exception("the Lease could not be renewed")
            self._stop.wait(self._settings.nodes.lease_seconds / 3)

    def _write(self, writer: NodeWriter, reflector: Reflector) -> None:
        while not self._stop.is_set():
            self._tick("writer")
            if reflector.synced.is_set():
                try:
                    writer.run_cycle()
                except Exception:  # noqa: BLE001  the next cycle tries again
                    _log.exception("a cycle of the node writer failed")
            self._stop.wait(self._settings.nodes.interval_seconds if writer.counts.cycles else 0.5)

    def _tick(self, name: str) -> None:
        self._ticked_at[name] = time.monotonic()

    def _end(self, reflector: Reflector, lease: Lease) -> None:
        reflector.stop()
        for thread in self._threads:
            thread.join(3)
        lease.release()
        reflector.join()
