"""State of a running rebalancer as JSON: the last plan, the moves of the past day, and why a pod stays."""

from collections.abc import Collection, Mapping
from typing import Any

from runtime.http.failures import describe
from runtime.http.gather import Deadline
from runtime.kubernetes.api import REQUEST_FAILURES, Sender
from runtime.kubernetes.own_rights import missing_rights
from trimaran.rebalancer.controller import PublishedPlan, Rebalancer
from trimaran.rebalancer.eligibility import REASONS, Refusal
from trimaran.rebalancer.evictions import MOVE_RIGHTS
from trimaran.rebalancer.moves import MoveRecord
from trimaran.rebalancer.plan import MovePlan, PlannedMove

_REVIEW_SECONDS = 5.0


def status_document(rebalancer: Rebalancer, mode: str, *, leads: bool) -> dict[str, Any]:
    """Return the state of a rebalancer.

    Args:
        rebalancer: the rebalancer.
        mode: the mode of the settings.
        leads: whether this replica holds the Lease.
    """
    published, counts = rebalancer.published, rebalancer.counts
    plan, look, ledger = published.plan, published.look, published.ledger
    brake = ledger.brake
    return {
        "mode": mode,
        "acts": published.acts and leads,
        "leads": leads,
        "brake": None if brake is None else {"reason": brake.reason, "text": brake.text, "at": brake.at},
        "nothing": plan.nothing,
        "searched_at": 0.0 if look is None else look.now,
        "use_until": counts.used_at,
        "searches": counts.searches,
        "caps": {name: list(of) for name, of in published.caps.items()},
        "planned": [_move(move) for move in plan.moves],
        "held": [_move(move) for move in plan.held],
        "hot": sorted(plan.hot),
        "unknown_nodes": {} if look is None else dict(look.unknown_nodes),
        "stays": dict(counts.stays),
        "gains": {"/".join(key): round(value, 4) for key, value in counts.gains.items()},
        "measured": dict(counts.measured),
        "moves": [_record(record) for record in ledger.records],
    }


def rights_document(api: Sender, mode: str, namespaces: Collection[str]) -> dict[str, Any]:
    """Ask the API server which rights to pods the rebalancer's account lacks; return each with its remedy.

    Args:
        api: Kubernetes API.
        mode: the mode of the settings; ``observe`` needs only the rights of the watches.
        namespaces: the only namespaces whose pods move; empty for all.
    """
    missing: Mapping[str, str] = {}
    failure = ""
    try:
        if mode == "act":
            needed = [right._replace(namespace=each) for each in namespaces or ("",) for right in MOVE_RIGHTS]
            found = missing_rights(api, needed, Deadline.after(_REVIEW_SECONDS))
            missing = {str(right): right.needed_rule() for right in found}
    except REQUEST_FAILURES as error:
        failure = describe(error).reason
    return {"mode": mode, "missing": missing, "failure": failure}


def explanation(published: PublishedPlan, pod: str) -> dict[str, Any] | None:
    """Return why a pod moves or stays, by the last plan; None if the pod is unknown.

    Args:
        published: the last plan.
        pod: namespace and name of the pod, with a slash between them.
    """
    plan, look = published.plan, published.look
    planned = next((move for move in plan.moves if f"{move.record.namespace}/{move.record.name}" == pod), None)
    if planned is not None:
        return {"pod": pod, "moves": True, "reason": "planned", "text": "a move is planned", **_move(planned)}
    no_search = {"pod": pod, "moves": False, "reason": "no_search", "text": plan.nothing}
    if look is None:
        return no_search
    found = next(
        ((row, each.pod) for row, each in look.running if f"{each.pod.namespace}/{each.pod.name}" == pod), None
    )
    if found is None or plan.nothing:
        return None if found is None else no_search
    row, node = found[1], look.table.names[found[0]]
    reason = plan.stays.get(row.uid)
    word, text = (reason, REASONS[reason]) if reason is not None else _no_move(published, row.uid, node)
    if reason is Refusal.SOURCE:
        text = _source_text(plan, node)
    shown: dict[str, Any] = {"pod": pod, "node": node, "moves": False, "reason": word, "text": text}
    if row.uid in plan.prospects:
        target, gain, low = plan.prospects[row.uid]
        shown |= {"target": target, "gain": gain, "low": low}
    if hidden := plan.hidden.get(row.uid, 0.0):
        shown["hidden_cores"] = hidden
    targets = [name for name in look.table.names if name not in plan.targets and name != node]
    coldest = min(targets, key=lambda name: look.measured.get(name, 100.0), default="")
    return {**shown, "min_gain": plan.min_gain, "coldest_target": coldest}


def _no_move(published: PublishedPlan, uid: str, node: str) -> tuple[str, str]:
    """Return a code and a text that explain why the plan does not move an eligible pod."""
    plan = published.plan
    if missing := plan.missing.get(node, 0):
        return "few_bad_looks", f"{missing} more searches in a row must find its node {node}"
    if uid not in plan.prospects:
        if node not in plan.hot:
            return "no_gain", f"no move from its node {node} would gain rebalance.min_gain ({plan.min_gain:g})"
        bound = " below rebalance.target_percent, with its hidden demand" if uid in plan.hidden else ""
        return "others_first", f"other pods would relieve its node {node} more, or no node has capacity for it{bound}"
    target, gain, low = plan.prospects[uid]
    best = f"its best move, to {target}, would gain {gain:.3f}"
    if gain <= plan.min_gain:
        return "no_gain", f"{best}, not more than rebalance.min_gain ({plan.min_gain:g})"
    if low <= 0:
        return (
            "uncertain",
            f"{best}, but the interval begins at {low:.3f}: more measured quarters of an hour are needed",
        )
    used = ", ".join(f"{name} {number} of {most}" for name, (number, most) in published.caps.items() if number >= most)
    if used:
        return "caps", f"{best}, but the caps are used up: {used}"
    return "others_first", f"{best}; others came first"


def _source_text(plan: MovePlan, node: str) -> str:
    """Return the reason why no pod leaves a node."""
    texts = {
        "not_hot": "its load never reached rebalance.source_percent in the last day",
        "not_measured": "it has no fresh metrics that can be trusted",
        "disagrees": "its measured load differs from the sum of its pods",
        "not_tainted": "it lacks the taint rebalance.source_taint",
        "cooldown": "a pod left it recently, and its cooldown has not ended",
        "cap": "its moves per hour are used up",
        "few_bad_looks": "too few searches in a row found it",
    }
    why = str(plan.sources.get(node, ""))
    return f"no pod leaves {node}: {texts.get(why, why.replace('_', ' '))}"


def _move(move: PlannedMove) -> dict[str, Any]:
    return {
        **_record(move.record),
        "source_load": {"before": list(move.source.before), "after": list(move.source.after)},
        "target_load": {"before": list(move.target.before), "after": list(move.target.after)},
    }


def _record(record: MoveRecord) -> dict[str, Any]:
    return {
        "name": f"{record.namespace}/{record.name}",
        "workload": f"{record.kind}/{record.workload}",
        "state": record.state,
        "source": record.source,
        "target": record.target,
        "landed_on": record.landed_on,
        "planned_at": record.planned_at,
        "gain": record.gain,
        "low": record.low,
        "measured": record.measured,
    }
