"""HTTP service of the watcher: opens the ports and the access check, and runs the watcher in a gunicorn worker."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from runtime.server import service, serving
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath, LazyApplication
from runtime.server.serving import Listener
from watcher.api.node_views import NodeViews
from watcher.api.page import PageMiddleware, is_page_request, load_page
from watcher.pipeline.factory import open_watcher
from watcher.settings import WatcherServerSettings, WatcherSettings
from watcher.telemetry import WatcherTelemetry

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

    from watcher.api.pod_access import PodAccess
    from watcher.doctor import Doctor

_log = logging.getLogger(__name__)
MAX_BODY_BYTES = 65536  # only the dashboard reads request bodies
_HISTORIES = frozenset({"/history", "/pods/history"})
_WARM_SECONDS = 0.3  # delay before the routes are built in advance, so that cached responses are served first


def serve(settings: WatcherSettings) -> None:
    """Run the HTTP service until SIGTERM or SIGINT. Never returns, since gunicorn ends the process.

    Raises:
        ServerError: the address is in use, or does not belong to this machine.
        SettingsError: the tokens, the certificates or the access to the Kubernetes API cannot be used.
    """
    server = settings.server
    listeners, compat_url = [], {}
    if server.compat_port is not None:
        compat = serving.listen(server.compat_host, server.compat_port, "server.compat_host", "server.compat_port")
        listeners.append(Listener(compat))
        # With port 0 the number is known only now, and the access check distinguishes the ports by number.
        server = server.model_copy(update={"compat_port": compat.getsockname()[1]})
        settings = settings.model_copy(update={"server": server})
        compat_url = {"compat_url": f"{service.url_of(listeners[0])}/compat"}
    access, pod_access = _open_accesses(settings)
    listeners.append(service.open_listener(server))
    if access.requires_credentials and not server.compat_open and server.compat_port is None:
        _log.info(
            "a stock kube-scheduler is refused, since it cannot send a token or a client certificate "
            "(server.compat_port, server.compat_open)"
        )
    is_open = service.is_open_to_others(access, listeners[-1])
    if settings.workloads.access == "auto":
        workloads = settings.workloads.model_copy(update={"access": "closed" if is_open else "open"})
        settings = settings.model_copy(update={"workloads": workloads})
    if is_open:
        _log.warning(
            "everyone who can reach the port can read the load of nodes, since no token is required (server.token, "
            "server.tokens_file)",
            extra={"host": service.host_of(listeners[-1]), "workloads": settings.workloads.access},
        )
    url = f"{service.url_of(listeners[-1])}/watcher"
    _log.info("serving", extra={"url": url, **compat_url, "provider": settings.provider.name})
    watcher = WatcherService(settings, access, pod_access)
    service.serve(watcher, listeners, threads=server.threads, max_body_bytes=MAX_BODY_BYTES)


def open_access(
    server: WatcherServerSettings,
    *,
    clock: Callable[[], float] = time.time,
    open_routes: Iterable[str] = (),
    tokenless_routes: Iterable[str] = (),
) -> AccessCheck:
    """Return the access check of the watcher's API.

    Args:
        server: settings of tokens, certificates, and routes that need no credentials.
        clock: function that returns Unix seconds.
        open_routes: further routes that need no credentials here, because they check credentials themselves.
        tokenless_routes: routes that need no token of the watcher, because they review Kubernetes tokens.

    Raises:
        SettingsError: the tokens cannot be used.
    """
    return service.open_access(
        server,
        open_routes=[*open_routes, *(["/compat/"] if server.compat_open else [])],
        tokenless_routes=tokenless_routes,
        ports={} if server.compat_port is None else {server.compat_port: "/compat/"},
        clock=clock,
    )


def _open_accesses(settings: WatcherSettings) -> "tuple[AccessCheck, PodAccess | None]":
    """Return the access check of all routes, and the one of routes about pods if ``workloads.access`` is ``review``.

    Raises:
        SettingsError: the tokens or the access to the Kubernetes API cannot be used.
    """
    if settings.workloads.access != "review":
        return open_access(settings.server), None
    from watcher.api.pod_access import POD_ROUTES, PodAccess, open_reviews  # imports the HTTP client

    access = open_access(settings.server, tokenless_routes=POD_ROUTES)
    return access, PodAccess(access, open_reviews(settings))


class WatcherService:
    """Service that the gunicorn worker runs: the watcher and its WSGI application."""

    def __init__(self, settings: WatcherSettings, access: AccessCheck, pod_access: "PodAccess | None" = None) -> None:
        self._settings = settings
        self._access, self._pod_access = access, pod_access
        self._doctor: Doctor | None = None

    def start(self) -> FastPath:
        """Start the watcher, and return its WSGI application.

        The snapshots that the previous run stored are served at once, from the cache. The routes need Flask, which is
        slow to import, so a background thread builds them 0.3 seconds later, unless a request needs them earlier.
        """
        self._telemetry = WatcherTelemetry()
        self._watcher = open_watcher(
            self._settings,
            self._settings.store.path,
            self._telemetry,
            dialect=self._settings.server.dialect,
            recommends=True,
        )
        self._views = NodeViews(self._watcher, self._settings.server.dialect)
        self._watcher.start()
        self._watcher.usage.start()
        routes = LazyApplication(self._routes)
        warm = threading.Timer(_WARM_SECONDS, routes.get)
        warm.daemon = True
        warm.start()
        return FastPath(
            routes, self._telemetry.observe_request, self._access, self._views.cached_response, is_background=_is_slow
        )

    def stop(self) -> None:
        """Stop the watcher and the background checks."""
        if self._doctor is not None:
            self._doctor.stop()
        self._watcher.stop()

    def _routes(self) -> "WSGIApplication":
        # Slow to import. The first four are for requests of histories and of one workload, which must not import
        # anything themselves.
        import watcher.store.history
        import watcher.usage.history.pod_day
        import watcher.usage.learn.daily_use
        import watcher.wire.history  # noqa: F401
        from watcher.api.app import create_routes
        from watcher.api.pod_access import PodAccess
        from watcher.doctor import Doctor

        self._doctor = Doctor(self._settings, lambda: self._watcher.last_fetch)
        self._doctor.start()
        dialect = self._settings.server.dialect
        routes = create_routes(
            self._watcher,
            self._telemetry,
            self._access,
            dialect,
            self._views,
            self._doctor,
            self._pod_access or PodAccess(self._access, is_closed=self._settings.workloads.access == "closed"),
        )
        if not self._settings.dashboard.enabled:
            return routes
        return PageMiddleware(routes, self._access, lambda: load_page(self._watcher, self._access, self._settings))


def _is_slow(environ: "WSGIEnvironment") -> bool:
    """Return whether an HTTP request may take long: a request for a history or for the dashboard."""
    return environ["PATH_INFO"] in _HISTORIES or is_page_request(environ)
