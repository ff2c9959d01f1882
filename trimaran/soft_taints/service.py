"""Service of ``trimaran nodes``: it opens the port and runs the worker process."""

from typing import TYPE_CHECKING

from runtime.controller.service import serve_controller

if TYPE_CHECKING:
    from runtime.server.access import AccessCheck
    from trimaran.soft_taints.settings import NodesSettings
    from trimaran.soft_taints.worker import SoftTaintsWorker


def serve(settings: "NodesSettings") -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    apis = [settings.cluster.open_api()]

    def open_worker(access: "AccessCheck") -> "SoftTaintsWorker":
        from trimaran.soft_taints.worker import SoftTaintsWorker

        return SoftTaintsWorker(settings, apis, access)

    serve_controller(settings.server, open_worker, "serving")
