"""Score plugins, which rate the nodes for a pending pod, computed over arrays of nodes.

The package contains the plugins of Trimaran (sigs.k8s.io/scheduler-plugins, called upstream), some of kube-scheduler's
and our own. Scoring is pure: it does no input or output, reads no clock, writes no log, and has no global state.
"""

from trimaran.parts import check_own

check_own("runtime", "watcher")

from runtime.kubernetes.constraints import NodeRequirement, NodeSelectorTerm, Taint, Toleration
from runtime.kubernetes.objects import CachedRequests, Container, Node, Pod, ResourceList
from runtime.kubernetes.scheduling_rules import LabelSelector, PodAffinityTerm, SchedulingRules, SpreadConstraint
from runtime.kubernetes.workloads import Owner, Workload
from scoring.arguments import ArgumentError
from scoring.kubernetes_version import KUBERNETES_VERSIONS
from scoring.load.measured_resource import CPU_LOAD, DISK_LOAD, GPU_LOAD, MEMORY_LOAD, NETWORK_LOAD, MeasuredResource
from scoring.load.metrics_table import MeasuredUse, MetricsTable
from scoring.load.owner_index import OwnerIndex, OwnersOnRows
from scoring.load.use_levels import UseLevels
from scoring.normalization import INFEASIBLE
from scoring.plugins.base import Explanation, PreparedPlugin, Rows, RowSliceCache, ScorePlugin, Terms
from scoring.plugins.congestion_cost import CongestedResource, CongestionCost
from scoring.plugins.filtering import ClusterEvent, Dependence, FilterPlugin, FilterVerdict
from scoring.plugins.image_locality import ImageLocality
from scoring.plugins.inter_pod_affinity import InterPodAffinity
from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import LowRiskOverCommitment
from scoring.plugins.node_affinity import NodeAffinity
from scoring.plugins.node_resources_allocatable import NodeResourcesAllocatable
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit, ResourceWeight, ShapePoint, fits
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.pod_state import PodState
from scoring.plugins.pod_topology_spread import PodTopologySpread
from scoring.plugins.taint_toleration import TaintToleration
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profiles.configuration.fields import ConfigNote
from scoring.profiles.configuration.plugins import PLUGINS, plugin_from_config
from scoring.profiles.configuration.profiles import SchedulerConfiguration, read_configuration
from scoring.profiles.explanations import PackedScores, ProfileExplanation
from scoring.profiles.fallback import Evidence, FallbackPolicy, FallbackScores, Judgment, NodeGrade
from scoring.profiles.profile import PreparedProfile, Profile
from scoring.profiles.scores import PluginScores, Scores, WeightedPlugin
from scoring.table.node_rows import NodeRows
from scoring.table.node_table import NodePlan, NodeTable
from scoring.table.occupancy import Occupancy, OwnedPods
from scoring.table.placed_pods import DepartedPod, PlacedPod
from scoring.table.placed_rules import PlacedRules, PlacedTerm, PodCriterion, SelectorSources

__all__ = [
    "CPU_LOAD", "DISK_LOAD", "GPU_LOAD", "INFEASIBLE", "KUBERNETES_VERSIONS", "MEMORY_LOAD", "NETWORK_LOAD", "PLUGINS",
    "ArgumentError", "CachedRequests", "ClusterEvent", "ConfigNote", "CongestedResource", "CongestionCost",
    "Container", "DepartedPod", "Dependence", "Evidence", "Explanation", "FallbackPolicy", "FallbackScores",
    "FilterPlugin", "FilterVerdict", "ImageLocality", "InterPodAffinity", "Judgment", "LabelSelector",
    "LoadVariationRiskBalancing", "LowRiskOverCommitment", "MeasuredResource", "MeasuredUse", "MetricsTable", "Node",
    "NodeAffinity", "NodeGrade", "NodePlan", "NodeRequirement", "NodeResourcesAllocatable",
    "NodeResourcesBalancedAllocation", "NodeResourcesFit", "NodeRows", "NodeSelectorTerm", "NodeTable", "Occupancy",
    "OwnedPods", "Owner", "OwnerIndex", "OwnersOnRows", "PackedScores", "Peaks", "PlacedPod", "PlacedRules",
    "PlacedTerm", "PluginScores", "Pod", "PodAffinityTerm", "PodCriterion", "PodState", "PodTopologySpread",
    "PowerModel", "PreparedPlugin", "PreparedProfile", "Profile", "ProfileExplanation", "ResourceList",
    "ResourceWeight", "RowSliceCache", "Rows", "SchedulerConfiguration", "SchedulingRules", "ScorePlugin", "Scores",
    "SelectorSources", "ShapePoint", "SpreadConstraint", "Taint", "TaintToleration", "TargetLoadPacking",
    "Terms", "Toleration", "UseLevels", "WeightedPlugin", "Workload", "fits", "plugin_from_config",
    "read_configuration",
]  # fmt: skip
