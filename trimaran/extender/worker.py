"""Worker process of the extender: it connects the cluster view, metrics, prioritizer, decision record and filter."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import scipy.special  # noqa: F401  scoring imports it inside functions, and no request may wait for an import
from flask import Blueprint

from client import Collector
from runtime.controller.service import ControllerWorker
from runtime.kubernetes.access_reviews import AccessReviews
from runtime.kubernetes.api import KubernetesApi, pod_namespace
from runtime.kubernetes.workloads import Workload, workload_of
from runtime.server.access import AccessCheck
from runtime.server.fast_path import FastPath
from runtime.settings.loading import LoadedSettings
from trimaran.cluster.planned_targets import PlannedTargets
from trimaran.cluster.view import ClusterView, OnBound
from trimaran.cluster.workload_use import WorkloadUse
from trimaran.extender import rollout
from trimaran.extender.app import create_app
from trimaran.extender.benefit_notice import BenefitNotice
from trimaran.extender.decisions.authorizer import AllowAll
from trimaran.extender.decisions.record import DecisionRecord, RecordLimits
from trimaran.extender.decisions.routes import decision_routes
from trimaran.extender.filter_routes import filter_routes
from trimaran.extender.filtering import FilterOptions, NodeFilter
from trimaran.extender.kube_scheduler import in_tree_by_scheduler
from trimaran.extender.outage import EventRecorder
from trimaran.extender.prioritizer import Prioritizer, PrioritizerOptions
from trimaran.extender.profiles import Profiles
from trimaran.extender.requeuer import Requeuer
from trimaran.extender.scheduler_rules import RulesByVersion
from trimaran.extender.settings import ExtenderSettings
from trimaran.extender.status import ExtenderStatus, status_routes
from trimaran.extender.telemetry import ExtenderTelemetry
from trimaran.extender.trial.field_trial import FieldTrial, TrialSources
from trimaran.extender.trial.promql_value import PromqlValue
from trimaran.extender.trial.routes import trial_routes
from trimaran.extender.trial.state import TrialPlan
from watcher.usage.sources.api_pods import ApiPods


class ExtenderWorker(ControllerWorker):
    """Worker process of the extender, which starts and stops its components.

    Args:
        loaded: settings of the extender.
        profiles: profiles to score by.
        apis: one client of the Kubernetes API; closed with the worker.
        access: access check of the routes.
    """

    def __init__(
        self,
        loaded: LoadedSettings[ExtenderSettings],
        profiles: Profiles,
        apis: Sequence[KubernetesApi],
        access: AccessCheck,
    ) -> None:
        super().__init__(apis, access)
        (self._api,) = self._apis
        self._loaded, self._settings, self._profiles = loaded, loaded.settings, profiles

    def start(self) -> FastPath:
        """Start the components, and return the WSGI application without waiting for the cluster or the metrics."""
        section = self._settings.extender
        shared_pods = self._pods_to_share()
        watcher = self._settings.cluster.open_watcher(self._settings, shared_pods)
        collector = Collector(
            watcher, interval_seconds=section.refresh_seconds, max_age_seconds=section.max_age_seconds
        )
        self._closing.callback(collector.close)
        telemetry = ExtenderTelemetry()
        events = EventRecorder(self._api, section.event_namespace())
        rules = RulesByVersion(self._api, partial(in_tree_by_scheduler, self._profiles), section.kubernetes_version)
        self._closing.callback(rules.close)
        configured_rollout = rollout.follow_rollout(self._loaded)
        trial = self._field_trial(configured_rollout, collector, events, rules)
        telemetry.watch_trial(trial)

        def current_rollout() -> rollout.Rollout:
            return configured_rollout().at_present(trial.acts())

        name_workload = partial(workload_of, owner_labels=tuple(self._settings.workloads.owner_labels))
        targets = PlannedTargets()
        view = self._view(shared_pods, trial.add_bound, name_workload, targets)
        workload_use = WorkloadUse(watcher, section.workloads_refresh_seconds)
        self._closing.callback(workload_use.close)
        record = DecisionRecord(
            view, collector, telemetry, RecordLimits(section.decisions), section.hot_percent,
            why_by_requests=partial(self._why_by_requests, workload_use),
        )  # fmt: skip
        self._closing.callback(record.close)
        telemetry.watch(view)
        telemetry.watch_decisions(record.__len__, lambda: record.size, lambda: current_rollout().percent)

        def report_outage(reason: str) -> None:
            telemetry.set_outage(reason)
            events.record(reason)

        options = PrioritizerOptions(
            section.deadline_seconds, section.policy(), section.on_outage, section.assume, section.seed
        )

        def is_active(uid: str) -> bool:
            return rules.is_known and current_rollout().is_active(uid)

        prioritizer = Prioritizer(
            self._profiles, view, collector, options, report_outage, rules=lambda: rules.current,
            is_active=is_active, levels=workload_use.levels, plan_of=targets.claim, record=record.add,
        )  # fmt: skip
        self._closing.callback(prioritizer.close)
        view.start()
        rules.start()
        record.start()
        notice = BenefitNotice(view, collector, configured_rollout, events.announce)
        self._closing.callback(notice.close)
        notice.start()
        trial.start()
        if section.learned_use:
            telemetry.watch_workloads(workload_use)
            workload_use.start()
        prioritizer.start()
        # The first read can block on an unresponsive watcher, so it must not delay the probes.
        threading.Thread(target=collector.start, name="first read", daemon=True).start()
        authorizer = AccessReviews(self._api, "get", "the extender") if section.explain == "review" else AllowAll()
        status = ExtenderStatus(view, collector, rules, self._profiles, prioritizer, current_rollout)
        routes = [decision_routes(record, view, authorizer), trial_routes(trial), status_routes(status)]
        if section.filter != "off":
            routes.append(self._filter(view, collector, telemetry, is_active))
        return create_app(prioritizer, telemetry, status.why_not_ready, self._access, routes, name_workload)

    def _view(
        self,
        shared_pods: ApiPods | None,
        on_bound: OnBound,
        name_workload: Callable[..., Workload],
        targets: PlannedTargets,
    ) -> ClusterView:
        view = ClusterView(
            self._api, assume_seconds=self._settings.extender.assume_seconds, on_bound=on_bound,
            name_workload=name_workload, pod_observer=targets,
        )  # fmt: skip
        if shared_pods is not None:
            shared_pods.share(view.pods)
        self._closing.callback(view.close)  # runs before the API is closed, so that its watches end first
        return view

    def _pods_to_share(self) -> ApiPods | None:
        """Return the source of pods for an embedded watcher, which reads the cluster view; None if it is not needed."""
        access = self._settings.cluster
        if access.watcher or not self._settings.extender.learned_use:
            return None
        return ApiPods(access.open_api(), self._settings.workloads.owner_labels)

    def _why_by_requests(self, use: WorkloadUse) -> str:
        """Return the reason why pods are scored by their requests."""
        if not self._settings.extender.learned_use:
            return "extender.learned_use is off"
        return use.why_unknown or "no plugin of the profile scores by learned use"

    def _field_trial(
        self,
        configured: Callable[[], rollout.Rollout],
        metrics: Collector,
        events: EventRecorder,
        rules: RulesByVersion,
    ) -> FieldTrial:
        section = self._settings.extender

        def plan() -> TrialPlan | None:
            current = configured()
            return current.trial if current.mode == "trial" else None

        sources = TrialSources(
            metrics,
            tuple(self._profiles.by_scheduler),
            can_act=lambda: rules.is_known,
            ask=PromqlValue(self._settings, section.trial_prometheus).ask,
            announce=events.announce,
        )
        trial = FieldTrial(
            self._api, pod_namespace() or "default", plan, sources, section.refresh_seconds, section.max_age_seconds
        )
        self._closing.callback(trial.close)
        return trial

    def _filter(
        self, view: ClusterView, metrics: Collector, telemetry: ExtenderTelemetry, is_active: Callable[[str], bool]
    ) -> Blueprint:
        section = self._settings.extender
        fail: Literal["open", "closed"] = "closed" if section.filter == "closed" else "open"
        limits = {"cpu": section.filter_cpu_percent, "memory": section.filter_memory_percent}
        exempt = frozenset(section.filter_exempt_namespaces)
        options = FilterOptions(limits, fail, section.filter_max_wait_seconds, exempt)
        filtering = NodeFilter(self._profiles.by_scheduler, view, metrics, options, is_active)
        telemetry.watch_filter(filtering)
        if fail == "closed":
            requeuer = Requeuer(self._api, filtering)
            self._closing.callback(requeuer.close)
            requeuer.start()
        return filter_routes(filtering)
