"""Worker process of ``trimaran scheduler``: watches, the scheduling thread, leader election, and writers."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

import scipy.special  # noqa: F401  scoring imports it inside functions, and no cycle may wait for an import

from runtime.controller.leadership import Leadership
from runtime.controller.own_lease import open_lease
from runtime.controller.service import ControllerWorker
from runtime.kubernetes.api import KubernetesApi
from runtime.kubernetes.keep_alive import KeepAliveConnection
from runtime.kubernetes.optional_lists import OptionalLists
from runtime.kubernetes.paths import PODS
from runtime.kubernetes.reflector import Reflector
from runtime.kubernetes.reflector_group import ReflectorGroup
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from trimaran.scheduler.profiles.configuration import SchedulerSetup
from trimaran.scheduler.service.app import create_app
from trimaran.scheduler.service.binder import Binder
from trimaran.scheduler.service.event_queue import ClusterFeed, EventQueue
from trimaran.scheduler.service.executor import DecisionExecutor
from trimaran.scheduler.service.gang_statuses import POD_GROUP_STATUS
from trimaran.scheduler.service.kubelet_rejections import RejectionFeed
from trimaran.scheduler.service.load_reader import LoadReader
from trimaran.scheduler.service.pod_events import PodEventWriter
from trimaran.scheduler.service.pod_status_writer import StatusWriter
from trimaran.scheduler.service.quota_statuses import QUOTA_STATUS
from trimaran.scheduler.service.scheduling_loop import SchedulingLoop
from trimaran.scheduler.service.settings import SchedulerSettings
from trimaran.scheduler.service.shadow import ShadowRecord
from trimaran.scheduler.service.status import LiveStatus
from trimaran.scheduler.service.status_controller import ObjectStatusWriter
from trimaran.scheduler.service.telemetry import SchedulerTelemetry

LEASE_LOST: Final = 5
"""Exit status of a worker that has lost the Lease; the master process starts another, which waits for the Lease."""

_STATUS_THREADS = 2
_JOIN_SECONDS = 3.0
_log = logging.getLogger(__name__)


class SchedulerWorker(ControllerWorker):
    """Worker process that schedules while it holds the Lease, or in shadow.

    Args:
        settings: settings of ``trimaran scheduler``.
        setup: configuration of the scheduler.
        apis: clients of the Kubernetes API: for watches, and for the Lease and all other requests; closed with the
            worker.
        access: access check of the HTTP routes.
    """

    def __init__(
        self, settings: SchedulerSettings, setup: SchedulerSetup, apis: Sequence[KubernetesApi], access: AccessCheck
    ) -> None:
        super().__init__(apis, access)
        self._settings, self._setup = settings, setup
        self._watch_api, self._api = self._apis
        self._stop = threading.Event()
        self._status_writers: list[ObjectStatusWriter] = []

    def start(self) -> FastPath:
        """Start the threads, and return the WSGI application without waiting for the Lease or the cluster."""
        section = self._settings.scheduler
        telemetry, event_queue = SchedulerTelemetry(), EventQueue()
        scheduler = self._setup.scheduler(section.seed)
        load = LoadReader(
            self._settings.cluster.open_watcher(self._settings), section.refresh_seconds,
            section.workloads_refresh_seconds, section.policy(),
        )  # fmt: skip
        self._closing.callback(load.close)
        leadership, executor, rejections = None, None, None
        if section.mode == "bind":
            leadership = self._leadership()
            executor = self._executor(leadership, event_queue, telemetry, scheduler.is_outdated)
            rejections = RejectionFeed(self._setup.scheduler_names, executor.report_rejection, executor.has_bound)
        shadow = ShadowRecord(scheduler, telemetry)
        handler = executor or shadow
        feed = ClusterFeed(
            self._watch_api, event_queue, self._setup.kinds, handler.observe, rejections, self._setup.annotations,
            *(() if executor is None else (executor.refuse,)),
        )  # fmt: skip

        def leads() -> bool:
            return leadership is None or leadership.may_write()

        def lease_problem() -> str:
            return "" if leadership is None else leadership.problem

        loop = SchedulingLoop(
            scheduler, event_queue, handler, lambda: feed.is_synced and leads(), lambda: load.update(scheduler),
            decides_early=leadership is None,
        )  # fmt: skip
        feeds = self._feeds(feed, leadership)
        for each in feeds:
            self._closing.callback(each.close)
        self._closing.callback(loop.stop)
        self._closing.callback(self._stop.set)
        load.start()
        if executor is not None:
            executor.start()
        loop.start()
        if leadership is not None:
            leadership.start()
        threading.Thread(target=self._begin, args=(feeds, leads), name="begin", daemon=True).start()

        profiles = tuple(scheduler.profiles.values())

        def state() -> dict[str, float]:
            return {
                "leads": float(leads()),
                "load_known": float(not load.why_unknown and any(each.reads_load for each in profiles)),
                "api_age_seconds": feed.age_seconds if feed.is_synced else 0.0,
                "unknown_nodes": float(len(feed.unknown_nodes)),
                "busy_seconds": loop.busy_seconds,
                **({} if executor is None else executor.state()),
            }

        def is_alive() -> bool:
            parts = (loop, executor, leadership, *self._status_writers)
            return all(part is None or part.is_alive() for part in parts)

        def why_not_ready() -> str:  # a replica without the Lease is ready to take over, unless no replica can get it
            return (feed.why_unknown or loop.why_stuck()) if leads() else lease_problem()

        telemetry.watch(state, lambda: loop.counts, lambda: scheduler.failures.counts)
        names = self._setup.scheduler_names
        status = LiveStatus(section.mode, names, event_queue, feed, load, leads, why_not_ready, leadership, profiles)

        report = shadow.report if leadership is None else None
        return create_app(telemetry, is_alive, why_not_ready, status.document, report, self._access)

    def _begin(self, feeds: Sequence[ReflectorGroup], leads: Callable[[], bool]) -> None:
        """Read the cluster once this process leads: earlier lists could lack the previous leader's writes."""
        while not leads():
            if self._stop.wait(0.1):
                return
        for feed in feeds:
            feed.start()

    def _leadership(self) -> Leadership:
        section, namespace = self._settings.scheduler, self._settings.cluster.lease_namespace
        lease = open_lease(self._api, namespace, section.lease_name, section.lease_seconds)
        return Leadership(lease, section.lease_seconds, _end_process)

    def _feeds(self, feed: ClusterFeed, leadership: Leadership | None) -> tuple[ReflectorGroup, ...]:
        """Return all watches; start the writers of statuses that are enabled, which have watches of their own."""
        section = self._settings.scheduler
        rules = ((POD_GROUP_STATUS, section.pod_group_status), (QUOTA_STATUS, section.quota_status))
        feeds: list[ReflectorGroup] = [feed]
        for rule in (rule for rule, enabled in rules if enabled and leadership is not None):
            connection = KeepAliveConnection(self._api)
            writer = ObjectStatusWriter(rule, connection, lambda: leadership is not None and leadership.may_write())
            objects = Reflector(OptionalLists(self._watch_api), rule.path, writer.objects)
            pods = Reflector(self._watch_api, PODS, writer.pods, **rule.selectors)
            feeds.append(ReflectorGroup((objects, pods)))
            self._closing.callback(connection.close)
            self._closing.callback(writer.stop)
            self._status_writers.append(writer)
            writer.start()
        return tuple(feeds)

    def _executor(
        self,
        leadership: Leadership,
        event_queue: EventQueue,
        telemetry: SchedulerTelemetry,
        is_outdated: Callable[[str], bool],
    ) -> DecisionExecutor:
        section, names, may_write = self._settings.scheduler, self._setup.scheduler_names, leadership.may_write
        connections = [KeepAliveConnection(self._api) for _ in range(section.bind_threads + _STATUS_THREADS + 1)]
        opened = tuple(connections)
        events = PodEventWriter(connections.pop(), may_write, names[0], section.events_per_second)
        statuses = StatusWriter([connections.pop() for _ in range(_STATUS_THREADS)], may_write, events.write)
        binder = Binder(connections, may_write, section.timeout_seconds, is_outdated)
        executor = DecisionExecutor(binder, statuses, events, event_queue, telemetry, names)

        def stop() -> None:
            has_ended = executor.stop()
            for connection in opened:
                connection.close()
            leadership.stop(release=has_ended)  # keep the Lease if a request may still be executed

        self._closing.callback(stop)
        return executor


def _end_process() -> None:
    """End this process at once, without finishing anything: another process may lead already."""
    _log.error("the Lease is lost; this process ends, and a new one waits for the Lease")
    logging.shutdown()
    os._exit(LEASE_LOST)
