"""Settings of ``trimaran rebalance``: the section ``rebalance``, and the sections of the watcher that it can embed."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from runtime.errors import quoted
from runtime.settings.fields import comma_separated
from runtime.settings.sections import ServerSettings
from trimaran.cluster.settings import ClusterSection
from trimaran.planning.move_triggers import Trigger
from trimaran.rebalancer.rules import BrakeRules, CapLimits, Cooldowns, MoveRules, NodeRules, PodRules
from watcher.settings import Settings

DEFAULT_PORT = 2024
_LABEL = r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
Texts = Annotated[list[str], BeforeValidator(comma_separated)]


def _triggers(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in set(Trigger)]
    if unknown or not names:
        raise ValueError(
            f"must be some of {', '.join(Trigger)}, got {quoted(', '.join(unknown)) if unknown else 'none'}"
        )
    return names


class RebalanceServerSettings(ServerSettings):
    """Settings of the HTTP server for probes, metrics and plans; its default port differs from the watcher's."""

    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="the port to listen on; 0 selects any free port")


class RebalanceSection(ClusterSection):
    """Section ``rebalance``: settings of the moves of running pods."""

    mode: Literal["observe", "act"] = Field("observe", description="observe plans only and writes nothing; act moves")
    triggers: Annotated[Texts, AfterValidator(_triggers)] = Field(
        ["time"], description="what starts a search: time, load, nodes, pods, fragmentation; comma-separated"
    )
    search_seconds: float = Field(300, ge=1, le=86400, description="time between two searches for moves")
    interval_seconds: float = Field(
        10, ge=0.1, le=600, description="time between two checks of triggers and of evicted pods"
    )
    hot_percent: float = Field(80, gt=0, le=100, description="load in percent of a node for the trigger load")
    min_gain: float = Field(
        0.01, ge=0, le=10, description="least reduction of the average cost by a move; a hot node costs 1"
    )
    startup_seconds: float = Field(
        30, ge=0, le=7199, description="time from an eviction until the replacement works; a move must gain more"
    )
    source_percent: float = Field(
        80, gt=0, le=200, description="CPU or memory load in percent that a source reached within the last day"
    )
    target_percent: float = Field(
        70, gt=0, le=200,
        description="highest load in percent of a target in the last hour, with the pod; below source_percent",
    )  # fmt: skip
    bad_looks: int = Field(
        3, ge=1, le=100, description="searches in a row that must find a node before a pod leaves it"
    )
    good_looks: int = Field(2, ge=1, le=100, description="searches without it after which the count begins again")
    max_disagreement_percent: float = Field(
        30, gt=0, le=1000,
        description="largest difference between a node's measured CPU load and the sum of its pods, percentage points",
    )  # fmt: skip
    max_age_seconds: float = Field(
        900, gt=0, le=86400, description="maximum age of the measured use; with older use nothing moves"
    )
    source_taint: str = Field(
        "", max_length=120, description="key of the soft taint that a source must have, such as trimaran.io/hot"
    )
    cordoned: bool = Field(False, description="move pods away from cordoned nodes, too")
    percent_per_hour: float = Field(
        0.1, gt=0, le=100, description="most moves per hour in percent of the running pods, but at least one"
    )
    moves_per_hour: int = Field(20, ge=1, le=1000, description="most moves per hour in all")
    moves_per_day: int = Field(200, ge=1, le=1000, description="most moves per day in all")
    open_moves: int = Field(5, ge=1, le=100, description="most moves at a time whose replacement is not Ready")
    node_moves_per_hour: int = Field(2, ge=1, le=100, description="most moves per hour from a node, and to a node")
    namespace_moves_per_hour: int = Field(10, ge=1, le=1000, description="most moves per hour in a namespace")
    workload_moves_per_hour: int = Field(2, ge=1, le=100, description="most moves per hour of a workload")
    min_age_seconds: float = Field(1800, ge=0, le=604800, description="least time since a pod is Ready")
    min_replicas: int = Field(2, ge=1, le=100, description="least desired replicas of a workload whose pods move")
    scaler_quiet_seconds: float = Field(
        600, ge=0, le=86400, description="time since a HorizontalPodAutoscaler last scaled the workload"
    )
    pod_cooldown_seconds: float = Field(
        3600, ge=0, le=86400, description="pause after a move of a pod or its predecessors; doubles with each in a day"
    )
    workload_cooldown_seconds: float = Field(300, ge=0, le=86400, description="pause between moves of a workload")
    node_cooldown_seconds: float = Field(300, ge=0, le=86400, description="pause between moves from, and to, a node")
    refusal_seconds: float = Field(
        300, ge=0, le=86400, description="pause after a refused eviction of a pod; doubles with each in a row"
    )
    namespaces: Texts = Field([], description="the only namespaces whose pods move, comma-separated; empty for all")
    excluded_namespaces: Texts = Field(["kube-system"], description="namespaces whose pods never move, comma-separated")
    excluded_labels: Texts = Field([], description="labels, key or key=value, of pods that never move")
    protected_priority: int = Field(
        1_000_000_000, ge=0, le=2_000_000_000, description="pods of this or a higher priority never move"
    )
    max_pod_percent: float = Field(
        25, gt=0, le=100, description="largest mean use of a pod that moves, in percent of its node"
    )
    jobs: bool = Field(False, description="move pods of Jobs, which start over")
    local_storage: bool = Field(False, description="move pods with emptyDir or hostPath volumes, whose content is lost")
    volumes: bool = Field(False, description="move pods with persistent volumes")
    timeout_seconds: float = Field(900, ge=1, le=86400, description="longest time until a replacement is Ready")
    measure_seconds: float = Field(
        7200, ge=900, le=43200, description="time after a move over which its gain is measured"
    )
    holdout_percent: float = Field(
        10, ge=0, le=50, description="share of the pods whose moves are planned and not made, to measure the gain"
    )
    brake_failures: int = Field(
        10, ge=0, le=20, description="most of the last 20 moves that may have gained nothing; one more sets the brake"
    )
    brake_unschedulable_seconds: float = Field(
        120, ge=1, le=86400, description="time without a node for a replacement that sets the brake"
    )
    brake_restarts: int = Field(
        3, ge=0, le=1000, description="restarts of the last 20 replacements; one more sets the brake"
    )
    brake_factor: float = Field(
        2, ge=1, le=100, description="growth of start-up times, or of the wait for a node, that sets the brake"
    )
    lease_namespace: str = Field("trimaran", pattern=_LABEL, description="namespace of the Lease and of the ConfigMap")
    lease_name: str = Field("trimaran-rebalancer", pattern=_LABEL, description="name of the Lease and of the ConfigMap")
    lease_seconds: float = Field(
        15, ge=3, le=600, description="time after which another replica takes over a Lease that is not renewed"
    )

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        self.rules()
        return self

    def rules(self) -> MoveRules:
        """Return the rules that these settings describe."""
        return MoveRules(
            min_gain=self.min_gain,
            startup=self.startup_seconds,
            holdout_percent=self.holdout_percent,
            timeout=self.timeout_seconds,
            measure=self.measure_seconds,
            max_age=self.max_age_seconds,
            caps=CapLimits(
                percent_per_hour=self.percent_per_hour, per_hour=self.moves_per_hour, per_day=self.moves_per_day,
                open_moves=self.open_moves, node_per_hour=self.node_moves_per_hour,
                namespace_per_hour=self.namespace_moves_per_hour, workload_per_hour=self.workload_moves_per_hour,
            ),
            cooldowns=Cooldowns(
                pod=self.pod_cooldown_seconds, workload=self.workload_cooldown_seconds,
                node=self.node_cooldown_seconds, refusal=self.refusal_seconds,
            ),
            pods=PodRules(
                min_age=self.min_age_seconds, min_replicas=self.min_replicas, scaler_quiet=self.scaler_quiet_seconds,
                namespaces=frozenset(self.namespaces), excluded_namespaces=frozenset(self.excluded_namespaces),
                excluded_labels=tuple(self.excluded_labels), protected_priority=self.protected_priority,
                max_pod_percent=self.max_pod_percent, jobs=self.jobs, local_storage=self.local_storage,
                volumes=self.volumes,
            ),
            nodes=NodeRules(
                cordoned=self.cordoned, source_percent=self.source_percent, target_percent=self.target_percent,
                bad_looks=self.bad_looks, good_looks=self.good_looks, source_taint=self.source_taint,
                max_disagreement=self.max_disagreement_percent,
            ),
            brake=BrakeRules(
                max_failures=self.brake_failures, unschedulable=self.brake_unschedulable_seconds,
                max_unready_factor=self.brake_factor, max_restarts=self.brake_restarts,
                max_pending_factor=self.brake_factor,
            ),
        )  # fmt: skip


class RebalanceSettings(Settings):
    """All settings of ``trimaran rebalance``."""

    server: RebalanceServerSettings = Field(default_factory=RebalanceServerSettings)
    rebalance: RebalanceSection = Field(default_factory=RebalanceSection)
