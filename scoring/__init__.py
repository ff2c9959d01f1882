"""Scores for pods on nodes: Trimaran's plugins, kube-scheduler's own, and ours, over arrays of nodes.

Pure functions of their arguments: no input or output, no clock, no logging, no global state.
"""

from scoring.configuration.fields import ConfigNote
from scoring.configuration.plugins import PLUGINS, plugin_from_config
from scoring.configuration.profiles import SchedulerConfiguration, read_configuration
from scoring.explaining import ProfileExplanation
from scoring.fallback import FallbackPolicy, Judgment, NodeGrade
from scoring.kubernetes_version import KUBERNETES_VERSIONS
from scoring.measured_resource import CPU_LOAD, DISK_LOAD, GPU_LOAD, MEMORY_LOAD, NETWORK_LOAD, MeasuredResource
from scoring.metrics_table import MeasuredUse, MetricsTable
from scoring.node_table import NodePlan, NodeTable
from scoring.normalization import INFEASIBLE
from scoring.objects import Container, Node, Pod, ResourceList
from scoring.occupancy import PlacedPod
from scoring.plugins.base import Explanation, PreparedPlugin, ScorePlugin
from scoring.plugins.congestion_cost import CongestedResource, CongestionCost
from scoring.plugins.image_locality import ImageLocality
from scoring.plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.plugins.low_risk_over_commitment import LowRiskOverCommitment
from scoring.plugins.node_resources_allocatable import NodeResourcesAllocatable
from scoring.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scoring.plugins.node_resources_fit import NodeResourcesFit, ResourceWeight, ShapePoint, fits
from scoring.plugins.peaks import Peaks, PowerModel
from scoring.plugins.pod_state import PodState
from scoring.plugins.tail_risk import TailRisk
from scoring.plugins.target_load_packing import TargetLoadPacking
from scoring.profile import PreparedProfile, Profile
from scoring.scores import Scores, WeightedPlugin
from scoring.use_levels import UseLevels

__all__ = [
    "CPU_LOAD",
    "DISK_LOAD",
    "GPU_LOAD",
    "INFEASIBLE",
    "KUBERNETES_VERSIONS",
    "MEMORY_LOAD",
    "NETWORK_LOAD",
    "PLUGINS",
    "ConfigNote",
    "CongestedResource",
    "CongestionCost",
    "Container",
    "Explanation",
    "FallbackPolicy",
    "ImageLocality",
    "Judgment",
    "LoadVariationRiskBalancing",
    "LowRiskOverCommitment",
    "MeasuredResource",
    "MeasuredUse",
    "MetricsTable",
    "Node",
    "NodeGrade",
    "NodePlan",
    "NodeResourcesAllocatable",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "NodeTable",
    "Peaks",
    "PlacedPod",
    "Pod",
    "PodState",
    "PowerModel",
    "PreparedPlugin",
    "PreparedProfile",
    "Profile",
    "ProfileExplanation",
    "ResourceList",
    "ResourceWeight",
    "SchedulerConfiguration",
    "ScorePlugin",
    "Scores",
    "ShapePoint",
    "TailRisk",
    "TargetLoadPacking",
    "UseLevels",
    "WeightedPlugin",
    "fits",
    "plugin_from_config",
    "read_configuration",
]
