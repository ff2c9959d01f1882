"""Settings that there are no longer: what holds instead, and why. They are refused with this text, not ignored."""

from collections.abc import Mapping
from typing import Final

_CONTEXT = "the current context of the kubeconfig applies; `kubectl config use-context` sets it"
_OPT_IN = 'only pods with the annotation rebalancer.trimaran.io/move: "true", as their owner knows the cost'

#: Text for each setting, as ``section.key``.
REMOVED: Final[Mapping[str, str]] = {
    "extender.kube_context": _CONTEXT,
    "nodes.kube_context": _CONTEXT,
    "rebalance.bad_looks": "always 3, as a single search may see a spike",
    "rebalance.brake_factor": "always 2; less is within what start-ups and waits differ by themselves",
    "rebalance.brake_restarts": "always 3 of the last 20 replacements; more than by chance",
    "rebalance.brake_unschedulable_seconds": "always 120 s, several attempts of kube-scheduler",
    "rebalance.cordoned": "pods stay on cordoned nodes; kubectl drain moves them",
    "rebalance.good_looks": "always 2, so that one quiet search does not begin the count again",
    "rebalance.holdout_percent": "always 10 %, without which the gain of the moves is not known",
    "rebalance.hot_percent": "always 80 %, the load at which a node counts as hot everywhere",
    "rebalance.interval_seconds": "always 10 s, much less than a replacement takes to be Ready",
    "rebalance.jobs": _OPT_IN,
    "rebalance.kube_context": _CONTEXT,
    "rebalance.lease_seconds": "always 15 s, as kube-scheduler's Lease",
    "rebalance.local_storage": _OPT_IN,
    "rebalance.max_age_seconds": "always 900 s, three measurements of the pods' use",
    "rebalance.max_disagreement_percent": "always 30 points; with more the pods of the node are not known",
    "rebalance.max_pod_percent": "always 25 %, as a larger pod makes its target hot",
    "rebalance.measure_seconds": "always 7200 s, as the predicted gain is that of two hours",
    "rebalance.min_age_seconds": "always 1800 s, as younger pods still start or their use is not known",
    "rebalance.min_replicas": 'always 2; annotate single replicas with rebalancer.trimaran.io/move: "true"',
    "rebalance.node_cooldown_seconds": "always 300 s, a window of the metrics in which a move shows",
    "rebalance.node_moves_per_hour": "always 2; rebalance.moves_per_hour limits all",
    "rebalance.open_moves": "always 5; rebalance.moves_per_hour limits all",
    "rebalance.pod_cooldown_seconds": "always 3600 s, doubled by each move in a day",
    "rebalance.protected_priority": "always 1000000000, the largest of a user's PriorityClass; use excluded_labels",
    "rebalance.refusal_seconds": "always 300 s, doubled by each refusal in a row",
    "rebalance.scaler_quiet_seconds": "always 600 s, twice the stabilization of a HorizontalPodAutoscaler",
    "rebalance.startup_seconds": "always 30 s; rebalance.min_gain asks for more",
    "rebalance.timeout_seconds": "always 900 s, more than the 600 s in which a rollout must progress",
    "rebalance.volumes": _OPT_IN,
    "rebalance.workload_cooldown_seconds": "always 300 s, a window of the metrics in which a move shows",
    "rebalance.workload_moves_per_hour": "always 2; rebalance.moves_per_hour limits all",
    "scheduler.kube_context": _CONTEXT,
}
