"""Service of ``trimaran rebalance``: it opens the port and runs the worker process."""

from typing import TYPE_CHECKING

from runtime.controller.service import serve_controller

if TYPE_CHECKING:
    from runtime.server.access import AccessCheck
    from trimaran.rebalancer.settings import RebalanceSettings
    from trimaran.rebalancer.worker import RebalancerWorker


def serve(settings: "RebalanceSettings") -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    apis = [settings.cluster.open_api() for _ in range(3)]

    def open_worker(access: "AccessCheck") -> "RebalancerWorker":
        from trimaran.rebalancer.worker import RebalancerWorker

        return RebalancerWorker(settings, apis, access)

    serve_controller(settings.server, open_worker, "serving", mode=settings.rebalance.mode)
