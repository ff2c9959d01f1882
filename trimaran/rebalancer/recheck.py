"""The last check of a planned move, with the newest state of the cluster, just before the pod is evicted."""

from collections.abc import Sequence

from trimaran.rebalancer.eligibility import REASONS, budget_refusal, pod_refusal, source_barrier, target_barrier
from trimaran.rebalancer.eligibility import workload_refusal as refusal_of_workload
from trimaran.rebalancer.look import ClusterLook
from trimaran.rebalancer.moves import MoveRecord
from trimaran.rebalancer.rules import MoveRules

_NEW_SECONDS = 2.0  # creation times are whole seconds, by the clock of the API server


def objection(look: ClusterLook, record: MoveRecord, records: Sequence[MoveRecord], rules: MoveRules) -> str:
    """Return the reason why a planned move must not be made any more; "" if there is none.

    Args:
        look: newest state of the cluster; its attribute ``use`` is not read.
        record: the planned move.
        records: moves of the past day.
        rules: the limits.
    """
    found = next((each for each in look.members.get(record.of, ()) if each.pod.uid == record.uid), None)
    if found is None or found.pod.node_name != record.source:
        return f"the pod is no longer on {record.source}"
    reason = pod_refusal(found, rules.pods, look.now)
    reason = reason or refusal_of_workload(record.of, look.members[record.of], look.state, rules.pods, look.now)
    reason = reason or budget_refusal(found, look.state)
    if reason is not None:
        return REASONS[reason]
    if any(look.now - each.facts.created_at < _NEW_SECONDS for each in look.members[record.of]):
        return "a pod of its workload is so new that it could be taken for the replacement"
    if any(each.is_open and each.of == record.of for each in records):
        return "another move of its workload is open"
    for name in (record.source, record.target):
        if name not in look.table or name not in look.nodes:
            return f"node {name} is gone"
    if barrier := source_barrier(look.nodes[record.source], rules.nodes):
        return f"node {record.source}: {barrier}"
    if barrier := target_barrier(look.nodes[record.target]):
        return f"node {record.target}: {barrier}"
    if not look.table.feasible(found.pod)[look.table.row(record.target)]:
        return f"node {record.target} has no room for it, or does not accept it"
    return ""
