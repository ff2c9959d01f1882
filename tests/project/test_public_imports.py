"""Public imports: names that other programs may import stay in the same modules."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISED = {
    "watcher": """
        Grade Metric MetricType NodeMetrics Operator WatcherMetrics Window
    """,
    "client": """
        AccessDenied AssignedPods BadAnswer BadSettings ClientError Collector LibraryClient NoMetrics
        ServiceClient Snapshot StaleMetrics UnknownNode UnknownWindow WatcherClient WatcherUnavailable
        connect
    """,
    "scoring": """
        CPU_LOAD DISK_LOAD GPU_LOAD INFEASIBLE KUBERNETES_VERSIONS MEMORY_LOAD NETWORK_LOAD PLUGINS ConfigNote
        CongestedResource CongestionCost Container
        Explanation FallbackPolicy ImageLocality Judgment LoadVariationRiskBalancing LowRiskOverCommitment
        MeasuredResource MeasuredUse MetricsTable Node NodeGrade NodePlan NodeResourcesAllocatable
        NodeResourcesBalancedAllocation NodeResourcesFit NodeTable Peaks PlacedPod Pod PodState PowerModel
        PreparedPlugin PreparedProfile Profile ProfileExplanation ResourceList ResourceWeight
        SchedulerConfiguration ScorePlugin Scores ShapePoint TailRisk TargetLoadPacking UseLevels WeightedPlugin fits
        plugin_from_config read_configuration
    """,
    # Names that docs/extending.md has documented for authors of providers, now or earlier.
    "watcher.errors": "ProviderAnswerError ProviderError ProviderRefused ProviderUnavailable SettingsError",
    "watcher.findings": "Finding",
    "watcher.providers.base": "Check Fetched Reading Sample SampleProvider Samples WindowProvider",
    "watcher.settings": "ProviderSettings Settings",
    "watcher.testing": """
        DuplicatedSeriesContract HttpContract ProviderContract SampledSource Series WindowSource reply serving
    """,
    "watcher.providers.session": "ProviderSession bearer provider_error",
    "runtime.http.gather": "Deadline gather",
}


@pytest.mark.parametrize("module", PROMISED)
def test_promised_names_exist(module: str) -> None:
    """Every promised name can be imported, and is in ``__all__`` if the module has it."""
    names = set(PROMISED[module].split())
    imported = import_module(module)
    assert {name for name in names if not hasattr(imported, name)} == set()
    assert names <= set(getattr(imported, "__all__", names))


@pytest.mark.parametrize("package", ["watcher", "client", "scoring"])
def test_every_export_is_promised(package: str) -> None:
    """Every name in a package's ``__all__`` is promised here, so nothing becomes public by mistake."""
    assert set(import_module(package).__all__) == set(PROMISED[package].split())


@pytest.mark.parametrize("package", ["watcher", "client", "scoring"])
def test_the_aliases_are_the_packages(package: str) -> None:
    """``trimaran.client`` and the other aliases export the same objects as the packages."""
    ours, alias = import_module(package), import_module(f"trimaran.{package}")
    assert {name for name in ours.__all__ if getattr(alias, name) is not getattr(ours, name)} == set()


def test_the_alias_refuses_another_package_of_the_same_name(tmp_path: Path) -> None:
    """If another ``client`` is first on the path, the alias reports its place and the remedy."""
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "__init__.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import trimaran.client"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert f"'client' is {tmp_path / 'client'}, not trimaran's" in done.stderr
    assert "put trimaran first on sys.path" in done.stderr


def test_the_page_for_authors_imports_only_promised_names() -> None:
    """docs/extending.md imports only promised names."""
    page = (ROOT / "docs" / "extending.md").read_text()
    imports = re.findall(r"^from (watcher[\w.]*) import (.+)$", page, re.MULTILINE)
    assert imports
    for module, names in imports:
        assert set(names.split(", ")) <= set(PROMISED[module].split()), module
