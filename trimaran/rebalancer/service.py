"""Service of ``trimaran rebalance``: it opens the port and runs the worker process."""

import logging
from typing import TYPE_CHECKING

from runtime.server import service
from runtime.server.access import AccessCheck

if TYPE_CHECKING:
    from runtime.server.fast_path import FastPath
    from trimaran.rebalancer.settings import RebalanceSettings
    from trimaran.rebalancer.worker import RebalancerWorker

_log = logging.getLogger(__name__)


def serve(settings: "RebalanceSettings") -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    rebalancer = RebalancerService(settings, service.open_access(settings.server))
    listener = service.open_listener(settings.server)
    _log.info("serving", extra={"url": service.url_of(listener), "mode": settings.rebalance.mode})
    service.serve(rebalancer, [listener], threads=settings.server.threads)


class RebalancerService:
    """Service of ``trimaran rebalance``, to be served by :mod:`runtime.server.service`.

    Args:
        settings: settings of ``trimaran rebalance``.
        access: access check of the HTTP routes.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
    """

    def __init__(self, settings: "RebalanceSettings", access: AccessCheck) -> None:
        self._apis = [settings.rebalance.open_api("rebalance") for _ in range(3)]
        self._settings, self._access = settings, access
        self._worker: RebalancerWorker | None = None

    def start(self) -> "FastPath":
        """Start the worker, and return its WSGI application."""
        from trimaran.rebalancer.worker import RebalancerWorker  # the master needs none of its imports

        self._worker = RebalancerWorker(self._settings, self._apis, self._access)
        return self._worker.start()

    def stop(self) -> None:
        """Stop the worker, which releases the Lease."""
        if self._worker is not None:
            self._worker.close()
