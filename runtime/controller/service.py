"""Service of a controller: the master process opens the API and the port, and a worker process does the work."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from runtime.server.fast_path import FastPath


class ControllerWorker(Protocol):
    """Work of a controller in its worker process."""

    def start(self) -> "FastPath":
        """Start the threads, and return the WSGI application without waiting for the cluster or the metrics."""

    def close(self) -> None:
        """Stop the threads, and release the Lease if there is one."""


class ControllerService:
    """Service for :func:`runtime.server.service.serve` whose worker is made in the worker process.

    Args:
        open_worker: imports and makes the worker; the master process needs none of its imports.
    """

    def __init__(self, open_worker: Callable[[], ControllerWorker]) -> None:
        self._open_worker = open_worker
        self._worker: ControllerWorker | None = None

    def start(self) -> "FastPath":
        """Start the worker, and return its WSGI application."""
        self._worker = self._open_worker()
        return self._worker.start()

    def stop(self) -> None:
        """Stop the worker."""
        if self._worker is not None:
            self._worker.close()
