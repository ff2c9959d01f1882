"""Service of ``trimaran scheduler``: it opens the port and runs the worker process."""

from functools import partial
from typing import TYPE_CHECKING

from runtime.controller.service import serve_controller
from runtime.errors import SettingsError
from trimaran.scheduler_file import scheduler_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime.server.access import AccessCheck
    from trimaran.scheduler.profiles.configuration import SchedulerSetup
    from trimaran.scheduler.service.settings import SchedulerSection, SchedulerSettings
    from trimaran.scheduler.service.worker import SchedulerWorker


def serve(settings: "SchedulerSettings", adapt: "Callable[[SchedulerSetup], SchedulerSetup] | None" = None) -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Args:
        settings: settings of ``trimaran scheduler``.
        adapt: returns the configuration with plugins of your own, as for a replay; see examples/scheduler.py. Called in
            the worker process, so that it may start threads.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the configuration, the tokens, the certificates or the access to the Kubernetes API cannot be
            used.
    """
    setup = setup_of(settings.scheduler)
    apis = [settings.cluster.open_api() for _ in range(2)]

    def open_worker(access: "AccessCheck") -> "SchedulerWorker":
        from trimaran.scheduler.service.worker import SchedulerWorker

        return SchedulerWorker(settings, setup if adapt is None else adapt(setup), apis, access)

    message = f"serving in mode {settings.scheduler.mode}"
    serve_controller(settings.server, open_worker, message, schedulers=",".join(setup.scheduler_names))


def setup_of(section: "SchedulerSection") -> "SchedulerSetup":
    """Return the scheduler's configuration: from its file, or the default configuration for a scheduler name.

    Raises:
        SettingsError: there is neither a file nor a name, or the file cannot be used.
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
        raise SettingsError(["scheduler.name: must be absent, because scheduler.config names the schedulers"])
    try:
        with scheduler_file(section.config) as file:
            return read(file.document, section.allow_plugins)
    except ValueError as error:
        raise SettingsError([f"scheduler.config: {error}"]) from error
