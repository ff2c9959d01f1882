"""Service of ``trimaran rebalance``: it opens the port and runs the worker process."""

import logging
from typing import TYPE_CHECKING

from runtime.controller.service import ControllerService
from runtime.server import service

if TYPE_CHECKING:
    from trimaran.rebalancer.settings import RebalanceSettings
    from trimaran.rebalancer.worker import RebalancerWorker

_log = logging.getLogger(__name__)


def serve(settings: "RebalanceSettings") -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    access = service.open_access(settings.server)
    apis = [settings.cluster.open_api() for _ in range(3)]

    def open_worker() -> "RebalancerWorker":
        from trimaran.rebalancer.worker import RebalancerWorker

        return RebalancerWorker(settings, apis, access)

    listener = service.open_listener(settings.server)
    _log.info("serving", extra={"url": service.url_of(listener), "mode": settings.rebalance.mode})
    service.serve(ControllerService(open_worker), [listener], threads=settings.server.threads)
