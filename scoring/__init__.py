"""Score plugins, which rate the nodes for a pending pod, computed over arrays of nodes.

The package contains the plugins of Trimaran (sigs.k8s.io/scheduler-plugins, called upstream), some of kube-scheduler's
and our own. Scoring is pure: it does no input or output, reads no clock, writes no log, and has no global state.
"""

from trimaran.parts import check_own

check_own("runtime", "watcher")

from runtime.kubernetes.constraints import Taint, Toleration
from runtime.kubernetes.objects import Container, Node, Pod, ResourceList
from runtime.kubernetes.workloads import Owner, Workload
from scoring.arguments import ArgumentError
from scoring.load.metrics_table import MetricsTable
from scoring.load.use_levels import UseLevels
from scoring.normalization import INFEASIBLE
from scoring.plugins.base import Explanation, PreparedPlugin, Rows, ScorePlugin, Terms
from scoring.plugins.congestion_cost import CongestionCost
from scoring.plugins.filtering import ClusterEvent, FilterPlugin, FilterVerdict
from scoring.plugins.image_locality import ImageLocality
from scoring.plugins.inter_pod_affinity import InterPodAffinity
from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import LowRiskOverCommitment
from scoring.plugins.node_affinity import NodeAffinity
from scoring.plugins.node_resources_allocatable import NodeResourcesAllocatable
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.pod_state import PodState
from scoring.plugins.pod_topology_spread import PodTopologySpread
from scoring.plugins.taint_toleration import TaintToleration
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.configuration.plugins import plugin_from_config
from scoring.profiles.configuration.profiles import SchedulerConfiguration, read_configuration
from scoring.profiles.fallback import FallbackPolicy
from scoring.profiles.profile import Profile
from scoring.profiles.scores import Scores, WeightedPlugin
from scoring.table.node_table import NodePlan, NodeTable
from scoring.table.placed_pods import PlacedPod

__all__ = [
    "INFEASIBLE", "ArgumentError", "ClusterEvent", "CongestionCost", "Container", "Explanation", "FallbackPolicy",
    "FilterPlugin", "FilterVerdict", "ImageLocality", "InterPodAffinity", "LoadVariationRiskBalancing",
    "LowRiskOverCommitment", "MetricsTable", "Node", "NodeAffinity", "NodePlan", "NodeResourcesAllocatable",
    "NodeResourcesBalancedAllocation", "NodeResourcesFit", "NodeTable", "Owner", "Peaks", "PlacedPod", "Pod",
    "PodState", "PodTopologySpread", "PowerModel", "PreparedPlugin", "Profile", "ResourceList", "Rows",
    "SchedulerConfiguration", "ScorePlugin", "Scores", "Taint", "TaintToleration", "TargetLoadPacking", "Terms",
    "Toleration", "UseLevels", "WeightedPlugin", "Workload", "plugin_from_config", "read_configuration",
]  # fmt: skip
