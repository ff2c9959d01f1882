"""Settings that there are no longer: what holds instead, and why. They are refused with this text, not ignored."""

from collections.abc import Mapping
from typing import Final

_CONTEXT = "the current context of the kubeconfig applies; `kubectl config use-context` sets it"
_OPT_IN = 'only pods with the annotation rebalancer.trimaran.io/move: "true", as their owner knows the cost'
_MOVED = {
    f"{section}.{key}": f"renamed to cluster.{key}, which all controllers share"
    for section in ("extender", "nodes", "rebalance", "scheduler")
    for key in ("watcher", "watcher_token_file", "watcher_ca_file", "kube_config", "lease_namespace")
    if (section, key) != ("extender", "lease_namespace")
}
_SHARED = {
    f"dashboard.{service}_{file}": f"renamed to dashboard.{file}, for extender, rebalancer and scheduler"
    for service in ("extender", "rebalancer", "scheduler")
    for file in ("token_file", "ca_file", "client_certificate")
}

#: Text for each setting, as ``section.key``.
REMOVED: Final[Mapping[str, str]] = {
    **_MOVED,
    **_SHARED,
    "extender.assume": "always true; without it a burst of pods goes to one node",
    "extender.assume_seconds": "always 30 s, within which the watch shows a binding or kube-scheduler has given up",
    "extender.bad_ratio": "always a half, as the design of Trimaran has it",
    "extender.decisions": "always the last 10000, in at most 64 MB",
    "extender.hot_percent": "always 80 %, the load at which a node counts as hot everywhere",
    "extender.kube_context": _CONTEXT,
    "extender.max_age_seconds": "always 300 s, as watch.expiry_seconds",
    "extender.refresh_seconds": "always 15 s, a fourth of the time between two fetches",
    "extender.score_factor": "always 5; the weights of plugins in extender.config do the same",
    "extender.seed": "always random, so that replicas do not choose the same node",
    "extender.trial_harm_points": "always 35 points, which two blocks of equal placement do not reach by chance",
    "extender.trial_limit_percent": "always 95 %; a trial that changes its measure proves nothing",
    "extender.workloads_refresh_seconds": "always 60 s; the watcher learns once in workloads.interval_seconds",
    "fake.failing_windows": "fake.failure fails all windows",
    "kubelet.concurrency": "always 32, so that 5000 kubelets answer within an interval",
    "kubelet.refresh_seconds": "always 60 s; new nodes are read at once",
    "kubelet.timeout_seconds": "always 5 s; a slow kubelet costs one node, watch.fetch_timeout_seconds limits all",
    "metrics_server.capacity_refresh_seconds": "always 300 s; new nodes are read at once",
    "metrics_server.kube_context": _CONTEXT,
    "nodes.interval_seconds": "always 30 s, half of the time between two fetches",
    "nodes.kube_context": _CONTEXT,
    "nodes.lease_seconds": "always 15 s, as kube-scheduler's Lease",
    "nodes.max_age_seconds": "always 300 s, as watch.expiry_seconds",
    "nodes.max_hot_fraction": "always a quarter; with more tainted nodes pods have nowhere better to go",
    "nodes.min_hot_seconds": "always 300 s, a window of the metrics, so that a taint does not flap",
    "nodes.refresh_seconds": "always 600 s, so that a reader knows that an unchanged load is not an old one",
    "nodes.step_percent": "always 5 %; less is within what a load differs by itself",
    "nodes.warm_taint_key": "always trimaran.io/warm",
    "quality.anomaly_action": "always report, as few of these findings are faults",
    "quality.clock_skew_seconds": "always 60 s, more than any delay and less than a window",
    "quality.disagreement_action": "always mark; quality.corroborate = off has no second source",
    "quality.disagreement_percent": "always 10 points, more than two sources differ by their windows",
    "quality.duplicate_node_action": "always mark",
    "quality.flatline_action": "always mark",
    "quality.frozen_resting_seconds": "always 6 h, as values that rest are often constant",
    "quality.frozen_seconds": "always 1200 s and 20 fetches; real CPU use is never constant for so long",
    "quality.history_fetches": "always 60 fetches, an hour by default",
    "quality.min_coverage": "always half of the window, below which its average says little",
    "quality.missing_seconds": "always 3600 s; a node that is gone for longer was removed",
    "quality.smoothing_ratio": "always 4, the ratio of a random walk",
    "quality.spike_action": "always report, as a spike is often true",
    "quality.spike_factor": "always 1.5 times the fastest change that a window allows",
    "quality.wrong_scale_action": "always mark, so that schedulers avoid the nodes",
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
    "scheduler.bind_threads": "always 4 Bindings at a time, more than one scheduling thread can fill",
    "scheduler.events_per_second": "always 200 Events a second, for more pods than are placed in one",
    "scheduler.kube_context": _CONTEXT,
    "scheduler.lease_seconds": "always 15 s, as kube-scheduler's Lease",
    "scheduler.max_age_seconds": "always 300 s, as watch.expiry_seconds",
    "scheduler.refresh_seconds": "always 15 s, a fourth of the time between two fetches",
    "scheduler.restart_if_stuck": "/livez never fails for a plugin that does not return, as a restart meets it again",
    "scheduler.seed": "always random, as in kube-scheduler; replays pass a seed",
    "scheduler.timeout_seconds": "always 10 s, less than the Lease, so that no request outlives the leader's term",
    "scheduler.workloads_refresh_seconds": "always 60 s; the watcher learns once in workloads.interval_seconds",
    "signalfx.metadata_seconds": "always 600 s; a new series is mapped at once",
    "store.backfill_hours": "always 24 h, the day that the dashboard shows; without store.history_megabytes none",
    "workloads.max_megabytes": "as watch.max_fetch_megabytes, which limits the responses of pods, too",
    "workloads.timeout_seconds": "always 120 s, less than half of the default interval",
}
