"""Checks of a running rebalancer over HTTP, for ``trimaran doctor --rebalancer``."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from watcher.doctor.remote_service import (
    ServiceConnection,
    examine_states,
    lease_step,
    step,
    unknown_node_steps,
)
from watcher.providers.base import Check

_step = partial(step, "rebalancer")


def examine_rebalancer(connection: ServiceConnection) -> Iterator[Check]:
    """Yield the steps in order; stop after a failed step that rules out the next."""
    states = {"/status": _steps, "/rights": _right_steps}
    return examine_states(connection, "rebalancer", "http://trimaran-rebalancer:2024", states)


def _steps(status: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the steps about the state that a rebalancer reports."""
    yield _step("mode", "", str(status["mode"]))
    if not status["leads"]:
        yield lease_step("rebalancer", status, "moves pods; check that one for its searches")
        return
    yield _step("Lease", "", "this replica moves pods" if status["mode"] == "act" else "not needed in mode observe")
    brake = status["brake"]
    problem = "" if brake is None else f"nothing moves: {brake['text']}; trimaran rebalance resume releases it"
    yield _step("brake", problem, "not set")
    yield _step("search", status["nothing"], f"{len(status['planned'])} moves are planned", "cluster.watcher")
    yield from unknown_node_steps("rebalancer", status["unknown_nodes"])


def _right_steps(rights: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the step about the rights of the rebalancer's account."""
    missing = [f"may not {right}; {rule}" for right, rule in rights["missing"].items()]
    problem = f"the rights are not known: {rights['failure']}" if rights["failure"] else "; ".join(missing)
    yield _step("rights", problem, f"those of mode {rights['mode']}", "cluster.kube_config")
