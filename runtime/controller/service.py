"""Service of a controller: the master process opens the API and the port, and a worker process does the work."""

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from runtime.server import service, serving

if TYPE_CHECKING:
    from runtime.kubernetes.api import KubernetesApi
    from runtime.server.access import AccessCheck
    from runtime.server.fast_path import FastPath
    from runtime.server.serving import Listener
    from runtime.settings.sections import ServerSettings

_log = logging.getLogger(__name__)


class ControllerWorker(ABC):
    """Work of a controller in its worker process.

    Subclasses register each resource that they open in ``_closing``; :meth:`close` closes them in reverse order.

    Args:
        apis: clients of the Kubernetes API; closed last.
        access: access check of the HTTP routes.
    """

    def __init__(self, apis: "Sequence[KubernetesApi]", access: "AccessCheck") -> None:
        self._apis, self._access = tuple(apis), access
        self._closing = contextlib.ExitStack()
        for api in self._apis:
            self._closing.callback(api.close)

    @abstractmethod
    def start(self) -> "FastPath":
        """Start the threads, and return the WSGI application without waiting for the cluster or the metrics."""

    def close(self) -> None:
        """Stop the threads, and release the Lease if there is one."""
        self._closing.close()


class _Service:
    """Service for :func:`runtime.server.service.serve` that creates its worker in the worker process."""

    def __init__(self, open_worker: Callable[[], ControllerWorker]) -> None:
        self._open_worker = open_worker
        self._worker: ControllerWorker | None = None

    def start(self) -> "FastPath":
        self._worker = self._open_worker()
        return self._worker.start()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.close()


def serve_controller(
    server: "ServerSettings",
    open_worker: "Callable[[AccessCheck], ControllerWorker]",
    message: str,
    *,
    tokenless_routes: Iterable[str] = (),
    max_body_bytes: int = serving.MAX_BODY_BYTES,
    warn: "Callable[[AccessCheck, Listener], None]" = lambda _access, _listener: None,
    **logged: str,
) -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Args:
        server: settings of the HTTP server.
        open_worker: imports and creates the worker, in the worker process, so that the master process stays small.
        message: log message at the start, such as the controller's mode.
        tokenless_routes: routes that check a token themselves.
        max_body_bytes: size limit of a request's body.
        warn: logs a warning if the access check or the address does not suit the controller.
        logged: further fields of the log line.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens or the certificates cannot be used.
    """
    access = service.open_access(server, tokenless_routes=tokenless_routes)
    listener = service.open_listener(server)
    warn(access, listener)
    _log.info(message, extra={"url": service.url_of(listener), **logged})
    work = _Service(lambda: open_worker(access))
    service.serve(work, [listener], threads=server.threads, max_body_bytes=max_body_bytes)
