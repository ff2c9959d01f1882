"""Checks of a running scheduler over HTTP, for ``trimaran doctor --scheduler``."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from runtime import masking
from trimaran.scheduler import STATUS
from watcher.doctor.remote_service import (
    ServiceConnection,
    cluster_step,
    examine_states,
    lease_step,
    step,
    unknown_node_steps,
    unreadable_steps,
)
from watcher.providers.base import Check

_step = partial(step, "scheduler")


def examine_scheduler(connection: ServiceConnection) -> Iterator[Check]:
    """Yield the checks in order; stop after a failed check without which the next ones make no sense."""
    return examine_states(connection, "scheduler", "http://trimaran-standalone:2025", {STATUS: _steps})


def _steps(status: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the checks of the state that a scheduler reports."""
    names = ", ".join(status["schedulers"])
    yield _step("ready", status["reason"], f"mode {status['mode']}, for the pods of {names}")
    if not status["leads"]:
        if not status["reason"]:
            yield lease_step("scheduler", status, "places pods; check that replica for its nodes")
        return
    yield _step("Lease", "", "not needed in shadow" if status["mode"] == "shadow" else "this replica places pods")
    cluster = status["cluster"]
    message = f"{cluster['nodes']} nodes; the API server last responded {cluster['age_seconds']} s ago"
    yield cluster_step("scheduler", message, cluster["failures"], cluster["age_seconds"], "cluster.kube_config")
    yield from unreadable_steps("scheduler", cluster["unreadable"])
    yield from unknown_node_steps("scheduler", cluster.get("unknown_nodes", {}))  # absent in older schedulers
    quotas = status.get("unreadable_quotas") or {}
    if quotas:
        details = tuple(masking.to_line(f"{name}: {why}") for name, why in quotas.items())
        message = f"{len(quotas)} elastic quotas have bounds that are not amounts: {details[0]}"
        yield Check("scheduler: quotas", ok=False, message=message, details=details)
    yield _load_step(status)
    sharing = status["sharing"]
    if status["mode"] == "shadow" or sharing is None:
        return
    for problem in sharing["problems"]:
        yield _step("nodes", problem, "")
    if not sharing["problems"]:
        yield _step("nodes", "", f"{sharing['own']} nodes have pods of this scheduler only, and a NoSchedule taint")
    rejecting = status["rejecting"]
    problem = f"nodes get no pods for a while, as kubelets rejected pods: {', '.join(rejecting)}" if rejecting else ""
    yield _step("kubelets", problem, "no node is in backoff because its kubelet rejected a pod of this scheduler")


def _load_step(status: Mapping[str, Any]) -> Check:
    """Return the check of the load, which passes if no profile reads the load."""
    blind = status.get("without_load") or []
    text = "nodes are scored by measured load"
    if blind:
        text = f"no score plugin of {', '.join(blind)} reads the load; to use it, enable one such as CongestionCost"
    problem = "" if set(blind) >= set(status["schedulers"]) else status["load_problem"]
    return _step("load", problem, text, "cluster.watcher")
