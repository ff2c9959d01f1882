"""Public interface of the package: its names, and the cost of importing it."""

import subprocess
import sys

import scoring


def test_public_names():
    """The public names are exactly these; adding or removing one is a deliberate change of this list."""
    assert sorted(scoring.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)) == [
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
    assert all(hasattr(scoring, name) for name in scoring.__all__)


def test_every_public_name_is_documented():
    """Public classes and functions have docstrings."""
    for name in scoring.__all__:
        thing = getattr(scoring, name)
        if callable(thing):
            assert thing.__doc__, name


def test_importing_is_light():
    """Importing the package loads no server, no parser and not scipy."""
    heavy = "{'scipy', 'flask', 'pydantic', 'yaml', 'requests', 'pandas', 'kubernetes', 'click', 'sqlite_utils'}"
    program = f"import sys, scoring; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
