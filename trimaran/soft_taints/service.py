"""Service of ``trimaran nodes``: it opens the port and runs the worker process."""

import logging
from typing import TYPE_CHECKING

from runtime.controller.service import ControllerService
from runtime.server import service

if TYPE_CHECKING:
    from trimaran.soft_taints.settings import NodesSettings
    from trimaran.soft_taints.worker import SoftTaintsWorker

_log = logging.getLogger(__name__)


def serve(settings: "NodesSettings") -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    access = service.open_access(settings.server)
    api = settings.cluster.open_api()

    def open_worker() -> "SoftTaintsWorker":
        from trimaran.soft_taints.worker import SoftTaintsWorker

        return SoftTaintsWorker(settings, api, access)

    listener = service.open_listener(settings.server)
    _log.info("serving", extra={"url": service.url_of(listener)})
    service.serve(ControllerService(open_worker), [listener], threads=settings.server.threads)
