"""Service of ``trimaran nodes``: it opens the port and runs the worker process."""

import logging
from typing import TYPE_CHECKING

from runtime.server import service
from runtime.server.access import AccessCheck

if TYPE_CHECKING:
    from runtime.server.fast_path import FastPath
    from trimaran.soft_taints.settings import NodesSettings
    from trimaran.soft_taints.worker import SoftTaintsWorker

_log = logging.getLogger(__name__)


def serve(settings: "NodesSettings") -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    soft_taints = SoftTaintsService(settings, service.open_access(settings.server))
    listener = service.open_listener(settings.server)
    _log.info("serving", extra={"url": service.url_of(listener)})
    service.serve(soft_taints, [listener], threads=settings.server.threads)


class SoftTaintsService:
    """Service of ``trimaran nodes``, to be served by :mod:`runtime.server.service`.

    Args:
        settings: settings of ``trimaran nodes``.
        access: access check of the HTTP routes.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
    """

    def __init__(self, settings: "NodesSettings", access: AccessCheck) -> None:
        self._api = settings.nodes.open_api("nodes")
        self._settings, self._access = settings, access
        self._worker: SoftTaintsWorker | None = None

    def start(self) -> "FastPath":
        """Start the worker, and return its WSGI application."""
        from trimaran.soft_taints.worker import SoftTaintsWorker  # the master needs none of its imports

        self._worker = SoftTaintsWorker(self._settings, self._api, self._access)
        return self._worker.start()

    def stop(self) -> None:
        """Stop the worker, which releases the Lease."""
        if self._worker is not None:
            self._worker.close()
