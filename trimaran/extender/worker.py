"""Work of the extender's process: follow the cluster and the metrics, and score."""

import contextlib
import threading
from collections.abc import Callable
from typing import Literal

from flask import Blueprint

from client import Collector
from runtime.kubernetes.api import KubernetesApi
from runtime.server.access import Access
from runtime.server.fast_path import Front
from runtime.settings.loading import Loaded
from trimaran.cluster.view import ClusterView
from trimaran.extender import rollout
from trimaran.extender.app import create_app
from trimaran.extender.decisions.authorizer import AccessReviewAuthorizer, AllowAll
from trimaran.extender.decisions.record import DecisionRecord, RecordLimits
from trimaran.extender.decisions.routes import decision_routes
from trimaran.extender.filter_routes import filter_routes
from trimaran.extender.filtering import FilterOptions, NodeFilter
from trimaran.extender.kube_scheduler import in_tree_by_scheduler
from trimaran.extender.outage import EventRecorder
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions, SnapshotSource
from trimaran.extender.profiles import Profiles
from trimaran.extender.requeuer import Requeuer
from trimaran.extender.settings import ExtenderSettings
from trimaran.extender.telemetry import ExtenderTelemetry


class ExtenderWorker:
    """Cluster view, metrics, prioritizer and decision record, put together.

    Args:
        loaded: the extender's settings.
        profiles: profiles to score by.
        api: Kubernetes API; closed with the worker.
        access: access check of the routes.
    """

    def __init__(
        self, loaded: Loaded[ExtenderSettings], profiles: Profiles, api: KubernetesApi, access: Access
    ) -> None:
        self._loaded, self._settings = loaded, loaded.settings
        self._profiles = profiles
        self._api = api
        self._access = access
        self._closing = contextlib.ExitStack()

    def start(self) -> Front:
        """Follow the cluster and the metrics, and return the application, without waiting for either."""
        own = self._settings.extender
        view = ClusterView(self._api, assume_seconds=own.assume_seconds)
        self._closing.callback(self._api.close)
        self._closing.callback(view.close)  # first: it stops its watches and ends them, so none counts as broken
        collector = Collector(
            own.open_watcher(self._settings), interval_seconds=own.refresh_seconds, max_age_seconds=own.max_age_seconds
        )
        self._closing.callback(collector.close)
        telemetry = ExtenderTelemetry()
        acting = rollout.follow_rollout(self._loaded)
        record = DecisionRecord(view, collector, telemetry, RecordLimits(own.decisions), own.hot_percent)
        self._closing.callback(record.close)
        telemetry.watch(view)
        telemetry.watch_decisions(record, lambda: acting().percent)
        events = EventRecorder(self._api, own.events_namespace)

        def report_outage(reason: str) -> None:
            telemetry.set_outage(reason)
            events.record(reason)

        options = PrioritizerOptions(own.deadline_seconds, own.policy(), own.on_outage, own.assume, own.seed)
        prioritizer = Prioritizer(
            self._profiles, view, collector, options, report_outage, in_tree=in_tree_by_scheduler(self._profiles),
            is_active=lambda uid: acting().is_active(uid), record=record.add,
        )  # fmt: skip
        self._closing.callback(prioritizer.close)
        view.start()
        record.start()
        # Its first read may wait for a watcher that does not answer; probes are answered meanwhile.
        threading.Thread(target=collector.start, name="first read", daemon=True).start()
        readers = AccessReviewAuthorizer(self._api) if own.explain == "review" else AllowAll()
        more = [decision_routes(record, view, readers)]
        if own.filter != "off":
            more.append(self._filter(view, collector, telemetry, lambda uid: acting().is_active(uid)))
        return create_app(prioritizer, telemetry, lambda: view.is_synced, self._access, more)

    def _filter(
        self, view: ClusterView, metrics: SnapshotSource, telemetry: ExtenderTelemetry, is_active: Callable[[str], bool]
    ) -> Blueprint:

        own = self._settings.extender
        fail: Literal["open", "closed"] = "closed" if own.filter == "closed" else "open"
        limits = {"cpu": own.filter_cpu_percent, "memory": own.filter_memory_percent}
        exempt = frozenset(own.filter_exempt_namespaces)
        options = FilterOptions(limits, fail, own.filter_max_wait_seconds, exempt)
        filtering = NodeFilter(self._profiles.by_scheduler, view, metrics, options, is_active)
        telemetry.watch_filter(filtering)
        if fail == "closed":
            waker = Requeuer(self._api, filtering)
            self._closing.callback(waker.close)
            waker.start()
        return filter_routes(filtering)

    def close(self) -> None:
        """Stop following the cluster and the metrics."""
        self._closing.close()
