"""Service of ``trimaran scheduler``: it opens the port and runs the worker process."""

import logging
from functools import partial
from typing import TYPE_CHECKING

from runtime.errors import SettingsError
from runtime.server import service
from runtime.server.access import AccessCheck
from trimaran.scheduler_file import scheduler_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime.server.fast_path import FastPath
    from trimaran.scheduler.profiles.configuration import SchedulerSetup
    from trimaran.scheduler.service.settings import SchedulerSection, SchedulerSettings
    from trimaran.scheduler.service.worker import SchedulerWorker

_log = logging.getLogger(__name__)


def serve(settings: "SchedulerSettings", adapt: "Callable[[SchedulerSetup], SchedulerSetup] | None" = None) -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Args:
        settings: settings of ``trimaran scheduler``.
        adapt: returns the configuration with plugins of your own. Called in the worker process, so that it may start
            threads; see examples/scheduler.py.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the configuration, the tokens, the certificates or the access to the Kubernetes API cannot be
            used.
    """
    setup = setup_of(settings.scheduler)
    scheduler = SchedulerService(settings, setup, service.open_access(settings.server), adapt)
    listener = service.open_listener(settings.server)
    extra = {"url": service.url_of(listener), "schedulers": ",".join(setup.scheduler_names)}
    _log.info("serving in mode %s", settings.scheduler.mode, extra=extra)
    service.serve(scheduler, [listener], threads=settings.server.threads)


def setup_of(section: "SchedulerSection") -> "SchedulerSetup":
    """Return the scheduler's configuration: that of its file, or the default one for a scheduler name.

    Raises:
        SettingsError: there is neither, or the file cannot be used.
    """
    from trimaran.scheduler.profiles.configuration import default_document, read_setup

    read = partial(
        read_setup,
        binds_claims=section.bind_claims,
        preempts_shared=section.preempt_shared,
        kubernetes_version=section.kubernetes_version,
    )
    if section.config is None:
        if not section.name:
            remedy = "with --config, or only the schedulerName of the pods to place with --name"
            raise SettingsError([f"scheduler.config: no file; name a KubeSchedulerConfiguration {remedy}"])
        return read(default_document(section.name))
    if section.name:
        raise SettingsError(["scheduler.name: the names of the schedulers are in the file of scheduler.config"])
    try:
        with scheduler_file(section.config) as file:
            return read(file.document, section.allow_plugins)
    except ValueError as error:
        raise SettingsError([f"scheduler.config: {error}"]) from error


class SchedulerService:
    """Service of ``trimaran scheduler``, to be served by :mod:`runtime.server.service`.

    Args:
        settings: settings of ``trimaran scheduler``.
        setup: configuration of the scheduler.
        access: access check of the HTTP routes.
        adapt: changes the configuration in the worker process; None leaves it.

    Raises:
        SettingsError: the settings give no access to the Kubernetes API.
    """

    def __init__(
        self,
        settings: "SchedulerSettings",
        setup: "SchedulerSetup",
        access: AccessCheck,
        adapt: "Callable[[SchedulerSetup], SchedulerSetup] | None" = None,
    ) -> None:
        self._apis = [settings.scheduler.open_api("scheduler") for _ in range(2)]
        self._settings, self._setup, self._access, self._adapt = settings, setup, access, adapt
        self._worker: SchedulerWorker | None = None

    def start(self) -> "FastPath":
        """Start the worker, and return its WSGI application."""
        from trimaran.scheduler.service.worker import SchedulerWorker  # the master needs none of its imports

        setup = self._setup if self._adapt is None else self._adapt(self._setup)
        self._worker = SchedulerWorker(self._settings, setup, self._apis, self._access)
        return self._worker.start()

    def stop(self) -> None:
        """Stop the worker, which releases the Lease."""
        if self._worker is not None:
            self._worker.close()
