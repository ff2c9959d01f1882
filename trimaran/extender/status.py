"""State of a running extender: readiness, and the cluster, metrics, rules and profiles that it scores by."""

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response

from client import ClientError, Collector
from runtime.server import responses
from runtime.server.flask_app import flask_response
from trimaran.cluster.measured_nodes import why_unmeasured
from trimaran.cluster.view import ClusterView
from trimaran.extender import STATUS
from trimaran.extender.prioritizer import Prioritizer
from trimaran.extender.profiles import Profiles
from trimaran.extender.rollout import Rollout
from trimaran.extender.scheduler_rules import RulesByVersion


class ExtenderStatus:
    """State of the components of an extender, for its readiness probe and for ``trimaran doctor --extender``.

    Args:
        view: the live cluster.
        metrics: source of the metrics.
        rules: rules of kube-scheduler.
        profiles: profiles to score by.
        prioritizer: scorer of the pods.
        rollout: returns the current rollout.
    """

    def __init__(
        self,
        view: ClusterView,
        metrics: Collector,
        rules: RulesByVersion,
        profiles: Profiles,
        prioritizer: Prioritizer,
        rollout: Callable[[], Rollout],
    ) -> None:
        self._view, self._metrics, self._rules = view, metrics, rules
        self._profiles, self._prioritizer, self._rollout = profiles, prioritizer, rollout

    def why_not_ready(self) -> str:
        """Return the reason why pods cannot be scored yet; empty if they can."""
        unknown_rules = "" if self._rules.current else "the version of the API server has not been read yet"
        return self._view.why_unknown or unknown_rules

    def document(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        current, rollout, reason = self._rules.current, self._rollout(), self.why_not_ready()
        return {
            "ready": not reason,
            "reason": reason,
            "outage": self._prioritizer.outage,
            "mode": rollout.mode,
            "percent": rollout.percent,
            "kubernetes": {
                "rules": self._rules.version,
                "server": self._rules.server_version,
                "refusal": current.refusal if current else "",
            },
            "cluster": self._cluster(),
            "metrics": self._measured(),
            "profiles": [
                {
                    "scheduler": name,
                    "plugins": [{"name": each.plugin.name, "weight": each.weight} for each in profile.profile.plugins],
                }
                for name, profile in self._profiles.by_scheduler.items()
            ],
            "configuration": self._profiles.scoring_document(),
        }

    def _cluster(self) -> dict[str, Any]:
        view = self._view
        with view.reading() as table:
            nodes, pods = len(table), int(table.pod_counts.sum())
        return {
            "synced": view.is_synced,
            "heard": view.was_heard,
            "age_seconds": round(view.age_seconds, 1),
            "nodes": nodes,
            "pods": pods,
            "in_flight": view.in_flight,
            "failures": view.failures,
            "unreadable": dict(view.unreadable),
            "unknown_nodes": dict(view.unknown_nodes),
        }

    def _measured(self) -> dict[str, Any]:
        try:
            snapshot = self._metrics.snapshot()
        except ClientError as error:
            return {"nodes": 0, "age_seconds": None, "window": "", "source": "", "failure": str(error), "problem": ""}
        with self._view.reading() as table:
            problem = why_unmeasured(table.names, snapshot)
        return {
            "nodes": len(snapshot.data),
            "age_seconds": round(snapshot.age_seconds, 1),
            "window": snapshot.window.duration,
            "source": snapshot.source,
            "failure": snapshot.failure,
            "problem": problem,
        }


def status_routes(status: ExtenderStatus) -> Blueprint:
    """Return the route ``GET /status``, with the state of the extender."""
    routes = Blueprint("status", __name__)

    @routes.get(STATUS)
    def read() -> Response:
        return flask_response(responses.json_response(status.document()))

    return routes
