"""The service of ``trimaran nodes``: a mirror of the nodes, the Lease and the writer, with probes and metrics."""

import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from runtime.errors import TrimaranError
from runtime.server import serving
from runtime.server.access import Access
from runtime.server.serving import Listener
from watcher.api.service import open_access, open_tls

if TYPE_CHECKING:
    from runtime.kubernetes.leader_election import Lease
    from runtime.kubernetes.reflector import Reflector
    from runtime.server.fast_path import Front
    from trimaran.soft_taints.settings import NodesSettings
    from trimaran.soft_taints.writer import Writer
    from watcher.model import WatcherMetrics

NODES = "/api/v1/nodes"
_SYNC_SECONDS = 60.0
_STUCK_SECONDS = 300.0
_log = logging.getLogger(__name__)


def serve(settings: "NodesSettings") -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or not ours.
        SettingsError: tokens, certificates or the way to the Kubernetes API cannot be used.
    """
    service = Service(settings, open_access(settings.server))
    tls = open_tls(settings.server)
    sock = serving.listen(settings.server.host, settings.server.port)
    _log.info("serving", extra={"port": sock.getsockname()[1]})
    serving.serve(service.start, [Listener(sock, tls)], threads=settings.server.threads, stop=service.stop)


def clear(settings: "NodesSettings") -> int:
    """Take all that was written off all nodes; return how many nodes there are.

    Raises:
        SettingsError: there is no way to the Kubernetes API.
        TrimaranError: it cannot be read, or a node could not be written.
    """
    from runtime.kubernetes.reflector import Reflector  # noqa: PLC0415
    from trimaran.soft_taints.node_state import MarkMirror  # noqa: PLC0415
    from trimaran.soft_taints.writer import Writer  # noqa: PLC0415

    api, mirror = settings.nodes.open_api("nodes"), MarkMirror()
    reflector = Reflector(api, NODES, mirror)
    reflector.start()
    synced = reflector.synced.wait(_SYNC_SECONDS)
    reflector.stop()
    reflector.join()
    if not synced:
        raise TrimaranError("the nodes cannot be read; the log says why")
    writer = Writer(api, mirror, _NoWatcher(), settings.nodes.plan())
    writer.clear()
    api.close()
    if writer.counts.failures or writer.counts.conflicts:
        raise TrimaranError("some nodes could not be written; do it again")
    return len(mirror.all())


class Service:
    """What the worker does: follow the nodes, hold the Lease, write.

    Args:
        settings: all.
        access: who may read the metrics.

    Raises:
        SettingsError: there is no way to the Kubernetes API.
    """

    def __init__(self, settings: "NodesSettings", access: Access) -> None:
        self._settings = settings
        self._access = access
        self._api = settings.nodes.open_api("nodes")
        self._stop = threading.Event()
        self._closing = contextlib.ExitStack()
        self._ticked_at = time.monotonic()

    def start(self) -> "Front":
        """Begin, and return the application; nothing is waited for."""
        from runtime.kubernetes.leader_election import Lease  # noqa: PLC0415
        from runtime.kubernetes.reflector import Reflector  # noqa: PLC0415  the master needs none of these
        from trimaran.soft_taints.app import create_app  # noqa: PLC0415
        from trimaran.soft_taints.node_state import MarkMirror  # noqa: PLC0415
        from trimaran.soft_taints.writer import Writer  # noqa: PLC0415

        own = self._settings.nodes
        watcher = own.open_watcher(self._settings)
        mirror = MarkMirror()
        reflector = Reflector(self._api, NODES, mirror)
        identity = f"{socket.gethostname()}_{uuid4().hex[:8]}"
        lease = Lease(self._api, own.lease_namespace, own.lease_name, identity, own.lease_seconds)
        writer = Writer(self._api, mirror, watcher, own.plan(), lambda: lease.is_held)
        reflector.start()
        threads = [
            threading.Thread(target=self._hold, args=(lease,), name="lease", daemon=True),
            threading.Thread(target=self._write, args=(writer, reflector), name="writer", daemon=True),
        ]
        for thread in threads:
            thread.start()
        self._closing.callback(self._api.close)
        self._closing.callback(watcher.close)
        self._closing.callback(self._end, reflector, threads, lease)
        return create_app(writer.counts, lease, self.is_alive, reflector.synced.is_set, self._access)

    def is_alive(self) -> bool:
        """Return whether the writer gets on, or waits for its turn."""
        return time.monotonic() - self._ticked_at < _STUCK_SECONDS + self._settings.nodes.interval_seconds

    def stop(self) -> None:
        """Stop, and give up the Lease."""
        self._stop.set()
        self._closing.close()

    def _hold(self, lease: "Lease") -> None:
        while not self._stop.is_set():
            lease.renew()
            self._stop.wait(self._settings.nodes.lease_seconds / 3)

    def _write(self, writer: "Writer", reflector: "Reflector") -> None:
        while not self._stop.is_set():
            self._ticked_at = time.monotonic()
            if reflector.synced.is_set():
                try:
                    writer.turn()
                except Exception:  # noqa: BLE001  the next turn goes on
                    _log.exception("a turn failed")
            self._stop.wait(self._settings.nodes.interval_seconds if writer.counts.turns else 0.5)

    def _end(self, reflector: "Reflector", threads: list[threading.Thread], lease: "Lease") -> None:
        reflector.stop()
        for thread in threads:
            thread.join(3)
        lease.release()
        reflector.join()


class _NoWatcher:
    """Stands for the watcher where nothing is asked of one."""

    def metrics(self, window: str | None = None) -> "WatcherMetrics":
        raise NotImplementedError(window)
