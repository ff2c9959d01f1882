"""Service of ``trimaran extender``: it opens the port, warns of unprotected access, and runs the worker process."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.controller.service import serve_controller
from runtime.errors import SettingsError
from runtime.server import service
from trimaran.extender.decisions import POD_ROUTES
from trimaran.extender.profiles import Profiles
from trimaran.extender.rollout import Rollout
from trimaran.scheduler_file import scheduler_file

if TYPE_CHECKING:
    from runtime.server.access import AccessCheck
    from runtime.server.serving import Listener
    from runtime.settings.loading import LoadedSettings
    from trimaran.extender.settings import ExtenderSettings
    from trimaran.extender.worker import ExtenderWorker

MAX_BODY_BYTES = 32 << 20  # whole nodes of a large cluster; 5,000 names are 100 KB
_log = logging.getLogger(__name__)


def serve(loaded: "LoadedSettings[ExtenderSettings]", profiles: Profiles) -> None:
    """Serve until SIGTERM or SIGINT. Never returns: gunicorn ends the process.

    Args:
        loaded: settings of the extender, which can be reloaded from their file.
        profiles: profiles to score by.

    Raises:
        ServerError: the address is in use, or is not an address of this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    settings = loaded.settings
    section, apis = settings.extender, [settings.cluster.open_api()]

    def open_worker(access: "AccessCheck") -> "ExtenderWorker":
        from trimaran.extender.worker import ExtenderWorker

        return ExtenderWorker(loaded, profiles, apis, access)

    def warn(access: "AccessCheck", listener: "Listener") -> None:
        if service.is_open_to_others(access, listener):
            _log.warning(
                "everyone who reaches the port can send pods, which are then counted on nodes: no client certificate "
                "is required; set server.certificate and server.client_ca_file",
                extra={"host": service.host_of(listener)},
            )
        elif access.requires_credentials and settings.server.client_ca_file is None:
            _log.warning("kube-scheduler's requests are refused: it cannot send a token; set server.client_ca_file")

    rollout = Rollout(section.mode, section.canary)
    serve_controller(
        settings.server, open_worker,
        f"serving in mode {rollout.mode}: {rollout.percent:g} percent of the pods get scores",
        tokenless_routes=POD_ROUTES if section.explain == "review" else (), max_body_bytes=MAX_BODY_BYTES, warn=warn,
        schedulers=",".join(profiles.by_scheduler),
    )  # fmt: skip


def read_profiles(file: Path, allow: Collection[str] = ()) -> Profiles:
    """Read the KubeSchedulerConfiguration to score by; warn of its unknown keys.

    Args:
        file: the KubeSchedulerConfiguration.
        allow: names of plugins that trimaran does not know, ``extender.allow_plugins``.

    Raises:
        SettingsError: the file cannot be read, or is not valid.
    """
    try:
        with scheduler_file(file, "--set extender.allow_plugins=") as read:
            profiles = Profiles.read(read.document, allow=allow)
            for warning in read.unknown_keys(profiles.configuration.notes):
                _log.warning("%s", warning)
            return profiles
    except ValueError as error:
        raise SettingsError([f"extender.config: {error}"]) from error
