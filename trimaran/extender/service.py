"""The extender's service: the live cluster, the metrics and the prioritizer, behind the watcher's server."""

import contextlib
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.errors import SettingsError
from runtime.server import serving
from runtime.server.access import Access
from runtime.server.serving import Listener
from trimaran.extender.decisions import OF_PODS
from trimaran.extender.profiles import Profiles
from watcher.api.service import is_open_to_others, open_access, open_tls

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from flask import Blueprint

    from runtime.server.fast_path import Front
    from runtime.settings.loading import Loaded
    from trimaran.cluster.view import ClusterView
    from trimaran.extender.prioritizer import Metrics
    from trimaran.extender.settings import ExtenderSettings
    from trimaran.extender.telemetry import Telemetry

MAX_BODY_BYTES = 32 << 20  # whole nodes of a large cluster; by names 5,000 are 100 KB
_log = logging.getLogger(__name__)


def serve(loaded: "Loaded[ExtenderSettings]", profiles: Profiles) -> None:
    """Serve until SIGTERM or SIGINT; returns never, as gunicorn ends the process.

    Args:
        loaded: the settings, and where they are read anew from.
        profiles: what to score by.

    Raises:
        ServerError: the address is in use, or not ours.
        SettingsError: tokens, certificates or the way to the Kubernetes API cannot be used.
    """
    settings = loaded.settings
    reviewed = OF_PODS if settings.extender.explain == "review" else ()
    service = Service(loaded, profiles, open_access(settings.server, open_routes=reviewed))
    tls = open_tls(settings.server)
    sock = serving.listen(settings.server.host, settings.server.port)
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{shown}:{port}"
    if is_open_to_others(service.access, host):
        _log.warning(
            "whoever reaches the port has nodes scored, and pods counted on them that do not exist: no client "
            "certificate is asked for (server.certificate, server.client_ca_file)",
            extra={"host": host},
        )
    elif service.access.is_locked and settings.server.client_ca_file is None:
        _log.warning("kube-scheduler is refused: it sends no token, but client certificates (server.client_ca_file)")
    _log.info("serving", extra={"url": url, "schedulers": ",".join(profiles.by_scheduler)})
    threads = settings.server.threads
    serving.serve(
        service.start, [Listener(sock, tls)], threads=threads, max_body_bytes=MAX_BODY_BYTES, stop=service.stop
    )


class Service:
    """What the worker does: follow the cluster and the metrics, and answer.

    Args:
        loaded: the extender's settings.
        profiles: what to score by.
        access: who may ask.

    Attributes:
        access: the same.

    Raises:
        SettingsError: there is no way to the Kubernetes API.
    """

    def __init__(self, loaded: "Loaded[ExtenderSettings]", profiles: Profiles, access: Access) -> None:
        settings = loaded.settings
        self._api = settings.extender.open_api("extender")
        self._loaded, self._settings = loaded, settings
        self._profiles = profiles
        self.access = access
        self._closing = contextlib.ExitStack()

    def start(self) -> "Front":
        """Begin to follow cluster and metrics, and return the application; nothing is waited for."""
        from client import Collector  # noqa: PLC0415  the master needs none of these
        from trimaran.cluster.view import ClusterView  # noqa: PLC0415
        from trimaran.extender import rollout  # noqa: PLC0415
        from trimaran.extender.app import create_app  # noqa: PLC0415
        from trimaran.extender.decisions.readers import Everybody, Reviewed  # noqa: PLC0415
        from trimaran.extender.decisions.record import Bounds, Record  # noqa: PLC0415
        from trimaran.extender.decisions.routes import decision_routes  # noqa: PLC0415
        from trimaran.extender.kube_scheduler import in_tree  # noqa: PLC0415
        from trimaran.extender.outage import Events  # noqa: PLC0415
        from trimaran.extender.prioritizer import Options, Prioritizer  # noqa: PLC0415
        from trimaran.extender.telemetry import Telemetry  # noqa: PLC0415

        own = self._settings.extender
        view = ClusterView(self._api, assume_seconds=own.assume_seconds)
        self._closing.callback(self._api.close)
        self._closing.callback(view.close)  # first: it stops its watches and ends them, so none counts as broken
        collector = Collector(
            own.open_watcher(self._settings), interval_seconds=own.refresh_seconds, max_age_seconds=own.max_age_seconds
        )
        self._closing.callback(collector.close)
        telemetry = Telemetry()
        acting = rollout.following(self._loaded)
        record = Record(view, collector, telemetry, Bounds(own.decisions), own.hot_percent)
        self._closing.callback(record.close)
        telemetry.watch(view)
        telemetry.watch_decisions(record, lambda: acting().percent)
        events = Events(self._api, own.events_namespace)

        def outage(why: str) -> None:
            telemetry.outage(why)
            events.tell(why)

        options = Options(own.deadline_seconds, own.policy(), own.outage, own.assume, own.seed)
        prioritizer = Prioritizer(
            self._profiles, view, collector, options, outage,
            acts_for=lambda uid: acting().acts_for(uid), record=record.note, in_tree=in_tree(self._profiles),
        )  # fmt: skip
        self._closing.callback(prioritizer.close)
        view.start()
        record.start()
        # Its first read may wait for a watcher that does not answer; probes are answered meanwhile.
        threading.Thread(target=collector.start, name="first read", daemon=True).start()
        readers = Reviewed(self._api) if own.explain == "review" else Everybody()
        more = [decision_routes(record, view, readers)]
        if own.filter != "off":
            more.append(self._filter(view, collector, telemetry, lambda uid: acting().acts_for(uid)))
        return create_app(prioritizer, telemetry, lambda: view.is_synced, self.access, more)

    def _filter(
        self, view: "ClusterView", metrics: "Metrics", telemetry: "Telemetry", acts_for: "Callable[[str], bool]"
    ) -> "Blueprint":
        from trimaran.extender.filter_routes import filter_routes  # noqa: PLC0415
        from trimaran.extender.filtering import FilterOptions, NodeFilter  # noqa: PLC0415
        from trimaran.extender.requeuer import Waker  # noqa: PLC0415

        own = self._settings.extender
        fail: Literal["open", "closed"] = "closed" if own.filter == "closed" else "open"
        limits = {"cpu": own.filter_cpu_percent, "memory": own.filter_memory_percent}
        exempt = frozenset(own.filter_exempt_namespaces)
        options = FilterOptions(limits, fail, own.filter_max_wait_seconds, exempt)
        filtering = NodeFilter(self._profiles.by_scheduler, view, metrics, options, acts_for)
        telemetry.watch_filter(filtering)
        if fail == "closed":
            waker = Waker(self._api, filtering)
            self._closing.callback(waker.close)
            waker.start()
        return filter_routes(filtering)

    def stop(self) -> None:
        """Stop following."""
        self._closing.close()


def read_profiles(file: Path) -> Profiles:
    """Read the KubeSchedulerConfiguration to score by.

    Raises:
        SettingsError: it cannot be read or used.
    """
    import yaml  # noqa: PLC0415

    try:
        return Profiles.read(yaml.safe_load(file.read_bytes()))
    except OSError as error:
        raise SettingsError([f"extender.config = {str(file)!r}: {error.strerror}"]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise SettingsError([f"extender.config = {str(file)!r}: {error}"]) from error
