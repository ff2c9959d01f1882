"""Checks of a running extender over HTTP, for ``trimaran doctor --extender``."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from trimaran.extender import STATUS
from watcher.doctor.remote_service import (
    ServiceConnection,
    cluster_step,
    examine_states,
    step,
    unknown_node_steps,
    unreadable_steps,
)
from watcher.providers.base import Check

_step = partial(step, "extender")


def examine_extender(connection: ServiceConnection) -> Iterator[Check]:
    """Yield the checks in order; stop after a failed check without which the next ones make no sense."""
    return examine_states(connection, "extender", "https://trimaran-extender:2021", {STATUS: _steps})


def _steps(status: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the checks of the state that an extender reports."""
    yield _step("ready", status["reason"], "it can score pods")
    yield from _cluster_steps(status["cluster"])
    metrics = status["metrics"]
    if metrics["nodes"]:
        message = (
            f"{metrics['nodes']} nodes from {metrics['source'] or 'a source without a name'}, "
            f"window {metrics['window']}, {metrics['age_seconds']} s old"
        )
        failed = f"{message}; the last refresh failed: {metrics['failure']}" if metrics["failure"] else ""
        yield _step("metrics", metrics.get("problem") or failed, message, "cluster.watcher")
    else:
        yield _step("metrics", metrics["failure"], "", "cluster.watcher")
    kubernetes = status["kubernetes"]
    version = f"the API server has version {kubernetes['server']}" if kubernetes["server"] else "version not read yet"
    rules = f"rules of kube-scheduler {kubernetes['rules']}; {version}"
    problem = kubernetes["refusal"] or ("" if kubernetes["rules"] else version)
    yield _step("Kubernetes", problem, rules, "extender.kubernetes_version")
    for profile in status["profiles"]:
        plugins = ", ".join(f"{plugin['weight']} x {plugin['name']}" for plugin in profile["plugins"])
        yield _step("profile", "", f"{profile['scheduler']}: {plugins}")
    acts = f"{status['percent']:g} percent of the pods get scores"
    yield _step("mode", "", f"{status['mode']}: {acts}")
    yield _step("scores", status["outage"], "the last pod was scored by the nodes' load, or no pod has come yet")


def _cluster_steps(cluster: Mapping[str, Any]) -> Iterator[Check]:
    seen = f"{cluster['nodes']} nodes, {cluster['pods']} pods on them, {cluster['in_flight']} in flight"
    is_heard = cluster.get("heard", True)  # absent in older extenders
    heard = "last responded" if is_heard else "has not responded since the start,"
    message = f"{seen}; the API server {heard} {cluster['age_seconds']} s ago"
    failures = [*([] if cluster["synced"] else ["the first full lists have not arrived"]), *cluster["failures"]]
    yield cluster_step("extender", message, failures, cluster["age_seconds"], "cluster.kube_config")
    yield from unreadable_steps("extender", cluster["unreadable"])
    yield from unknown_node_steps("extender", cluster.get("unknown_nodes", {}))  # absent in older extenders
