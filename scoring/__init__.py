"""Scores for pods on nodes: Trimaran's plugins, kube-scheduler's own, and ours, over arrays of nodes.

Pure functions of their arguments: no input or output, no clock, no logging, no global state.
"""

from scoring.config import plugin_from_config
from scoring.config_fields import ConfigNote
from scoring.load_variation_risk_balancing import LoadVariationRiskBalancing
from scoring.low_risk_over_commitment import LowRiskOverCommitment
from scoring.measured_resource import CPU_LOAD, DISK_LOAD, GPU_LOAD, MEMORY_LOAD, NETWORK_LOAD, MeasuredResource
from scoring.metrics_table import MeasuredUse, MetricsTable
from scoring.node_table import NodePlan, NodeTable
from scoring.objects import Container, Node, Pod, ResourceList
from scoring.plugin import Explanation, PreparedPlugin, ScorePlugin
from scoring.target_load_packing import TargetLoadPacking

__all__ = [
    "CPU_LOAD",
    "DISK_LOAD",
    "GPU_LOAD",
    "MEMORY_LOAD",
    "NETWORK_LOAD",
    "ConfigNote",
    "Container",
    "Explanation",
    "LoadVariationRiskBalancing",
    "LowRiskOverCommitment",
    "MeasuredResource",
    "MeasuredUse",
    "MetricsTable",
    "Node",
    "NodePlan",
    "NodeTable",
    "Pod",
    "PreparedPlugin",
    "ResourceList",
    "ScorePlugin",
    "TargetLoadPacking",
    "plugin_from_config",
]
