"""Rules of the rebalancer: every limit with its default; :mod:`trimaran.rebalancer.settings` sets 12.

The other limits are constants; ``watcher/settings/removed.py`` has the removed settings for them. Replays, benchmarks
and tests create rules with other limits.
"""

from dataclasses import dataclass, field
from typing import Final

#: Time between two checks of triggers and of evicted pods, seconds: a tenth of the time that a replacement usually
#: needs.
CYCLE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapLimits:
    """Largest numbers of moves.

    Attributes:
        percent_per_hour: moves per hour in percent of the running pods, but at least one move.
        per_hour: moves per hour in all.
        per_day: moves per day in all.
        open_moves: moves at a time whose replacement is not Ready yet.
        node_per_hour: moves per hour from one node, and to one node.
        namespace_per_hour: moves per hour in one namespace.
        workload_per_hour: moves per hour of one workload.
    """

    percent_per_hour: float = 0.1
    per_hour: int = 20
    per_day: int = 200
    open_moves: int = 5
    node_per_hour: int = 2
    namespace_per_hour: int = 10
    workload_per_hour: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldowns:
    """Pauses after a move, seconds.

    Attributes:
        pod: after a move of a pod or of the pods that it replaced; each further move within a day doubles it.
        workload: between two moves of pods of one workload.
        node: between two moves from one node, and between two moves to one node.
        refusal: after a refused eviction of a pod; each further refusal within a day doubles it.
    """

    pod: float = 3600.0
    workload: float = 300.0
    node: float = 300.0
    refusal: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """Rules that decide which pods may move.

    Attributes:
        min_age: least time since a pod is Ready, seconds.
        min_replicas: least number of desired replicas of a workload whose pods move.
        scaler_quiet: least time since a HorizontalPodAutoscaler last scaled the workload, seconds.
        namespaces: the only namespaces whose pods move; empty for all.
        excluded_namespaces: namespaces whose pods never move.
        excluded_labels: labels, as ``key`` or ``key=value``, of pods that never move.
        protected_priority: pods of this priority or a higher one never move.
        max_pod_percent: largest mean use of a pod that moves, in percent of its node.
    """

    min_age: float = 1800.0
    min_replicas: int = 2
    scaler_quiet: float = 600.0
    namespaces: frozenset[str] = frozenset()
    excluded_namespaces: frozenset[str] = frozenset({"kube-system"})
    excluded_labels: tuple[str, ...] = ()
    protected_priority: int = 1_000_000_000
    max_pod_percent: float = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """Rules that decide which nodes are sources and targets.

    Attributes:
        source_percent: load in percent that a source must have reached within the past day.
        target_percent: highest load of a target in the last hour, with the pod, in percent.
        bad_looks: consecutive searches that must find a node worth relieving before a pod leaves it.
        good_looks: consecutive searches without such a finding, after which the count is reset.
        source_taint: key of the soft taint that a source must have; empty for none.
        max_disagreement: largest difference between a node's measured load and the sum of its pods, in points of
            percent.
    """

    source_percent: float = 80.0
    target_percent: float = 70.0
    bad_looks: int = 3
    good_looks: int = 2
    source_taint: str = ""
    max_disagreement: float = 30.0

    def __post_init__(self) -> None:
        if self.target_percent >= self.source_percent:
            raise ValueError(
                f"target_percent {self.target_percent:g} must be below source_percent {self.source_percent:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeRules:
    """Limits at which the brake stops all moves.

    Attributes:
        moves: number of the last moves that are judged.
        max_failures: largest number of these moves that may have gained nothing.
        unschedulable: time for which a replacement may find no node, seconds.
        failing: time for which a replacement may fail to start, seconds.
        max_unready_factor: factor by which the replacements' start-ups may take longer than those of the evicted pods.
        max_restarts: largest number of restarts of the replacements of these moves.
        max_pending_factor: factor by which the 95th percentile of the pods' wait for a node may grow.
    """

    moves: int = 20
    max_failures: int = 10
    unschedulable: float = 120.0
    failing: float = 120.0
    max_unready_factor: float = 2.0
    max_restarts: int = 3
    max_pending_factor: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRules:
    """All rules of the rebalancer.

    Attributes:
        min_gain: least reduction of the average cost by a move; a hot node costs 1.
        startup: time from an eviction until the replacement works, seconds; it reduces the predicted gain.
        holdout_percent: share of the planned moves that are not made, to compare the gain of the others with.
        timeout: time for a replacement to become Ready, seconds.
        measure: time after a move over which its gain is measured, seconds, at least a quarter of an hour.
        max_age: maximum age of the measured use, seconds.
        history: length of the past over which cost is averaged, seconds, at most a day.
        last_hour_share: share of each past hour's level that is replaced by the last hour's level, from 0 to 1.
    """

    min_gain: float = 0.01
    startup: float = 30.0
    holdout_percent: float = 10.0
    timeout: float = 900.0
    measure: float = 7200.0
    max_age: float = 900.0
    history: float = 86400.0
    last_hour_share: float = 0.75
    caps: CapLimits = field(default_factory=CapLimits)
    cooldowns: Cooldowns = field(default_factory=Cooldowns)
    pods: PodRules = field(default_factory=PodRules)
    nodes: NodeRules = field(default_factory=NodeRules)
    brake: BrakeRules = field(default_factory=BrakeRules)


#: Rules with all defaults.
RULES: Final = MoveRules()
