"""Public imports: names that other programs may import stay in the same modules."""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROMISED = {
    "watcher": """
        Grade History HistorySeries Load Metric MetricType NodeMetrics Operator Steps WatcherMetrics Window
    """,
    "client": """
        AccessDenied AssignedPods BadAnswer BadSettings ClientError Collector LibraryClient NoMetrics
        ServiceClient Snapshot StaleMetrics UnknownNode UnknownWindow WatcherClient WatcherUnavailable
        connect
    """,
    "scoring": """
        ArgumentError ClusterEvent CongestionCost Container Explanation FallbackPolicy FilterPlugin FilterVerdict
        INFEASIBLE ImageLocality InterPodAffinity LoadVariationRiskBalancing LowRiskOverCommitment MetricsTable Node
        NodeAffinity NodePlan NodeResourcesAllocatable NodeResourcesBalancedAllocation NodeResourcesFit NodeTable
        Owner Peaks PlacedPod Pod PodState PodTopologySpread PowerModel PreparedPlugin Profile ResourceList Rows
        SchedulerConfiguration ScorePlugin Scores Taint TaintToleration TargetLoadPacking Terms Toleration UseLevels
        WeightedPlugin Workload plugin_from_config read_configuration
    """,
    # Names that docs/extending.md has documented for authors of plugins and providers, now or earlier.
    "scoring.arguments": "Between check_arguments",
    "runtime.kubernetes.pod_demand": "in_tree_requests",
    "scoring.testing": "FilterContract PluginContract",
    "trimaran.plugins": "installed_plugins",
    "trimaran.simulator": "Interval PolicyComparison Trace compare policy_names read_trace",
    "watcher.errors": "ProviderAnswerError ProviderError ProviderRefused ProviderUnavailable SettingsError",
    "watcher.findings": "Finding Kind",
    "watcher.providers.base": "Check Fetched Reading Sample SampleProvider Samples WindowProvider",
    "watcher.pod_use_table": "PodUseTable",
    "watcher.workload_table": "ClusterTotals ContainerKey ContainerTable WorkloadTable",
    "watcher.usage.sources.api_pods": "ApiPods",
    "watcher.settings": "ProviderSettings Settings",
    "watcher.testing": """
        BreakingHarness BrokenNodeContract DuplicatedSeriesContract HttpContract PastContract ProviderContract
        SampledSource Series WindowSource reply serving
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


@pytest.mark.parametrize("package", ["watcher", "client", "scoring", "trimaran.simulator"])
def test_every_export_is_promised(package: str) -> None:
    """Every name in a package's ``__all__`` is promised here, so nothing becomes public by mistake."""
    assert set(import_module(package).__all__) == set(PROMISED[package].split())


def test_scoring_promises_few_names() -> None:
    """Pods, nodes, tables, plugins, profiles and fallback; the rest is imported by module, and may change."""
    assert len(PROMISED["scoring"].split()) <= 45


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
    assert f"'client' is {tmp_path / 'client' / '__init__.py'}, not trimaran's" in done.stderr
    assert "put trimaran first on sys.path" in done.stderr


def test_the_page_for_authors_imports_only_promised_names() -> None:
    """docs/extending.md imports only promised names."""
    page = (ROOT / "docs" / "extending.md").read_text()
    imports = re.findall(r"^from (watcher[\w.]*) import (\([^)]*\)|.+)$", page, re.MULTILINE)
    assert imports
    for module, names in imports:
        assert set(re.findall(r"\w+", names)) <= set(PROMISED[module].split()), module


def hints(annotated: Any) -> dict[str, Any]:
    """Return the types that a function or class mentions, also those that are imported for type checking only."""
    imported: dict[str, Any] = {}
    module = sys.modules[annotated.__module__]
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            exec(ast.unparse(statement.body), imported)
    return typing.get_type_hints(annotated, vars(module) | imported)


def types_of(hint: Any) -> Iterator[type]:
    """Yield the classes that a type consists of."""
    if isinstance(hint, list | tuple):
        for each in hint:
            yield from types_of(each)
    elif typing.get_origin(hint) is not typing.Literal:
        yield from types_of(typing.get_args(hint))
        if isinstance(typing.get_origin(hint) or hint, type):
            yield typing.get_origin(hint) or hint


def mentioned(exported: Any, name: str) -> Iterator[tuple[str, type]]:
    """Yield the classes that the signatures and fields of an exported object mention, each with the place."""
    if isinstance(exported, FunctionType):
        for parameter, hint in hints(exported).items():
            if not parameter.startswith("_"):
                yield from ((f"{name}({parameter})", each) for each in types_of(hint))
    elif isinstance(exported, type):
        if dataclasses.is_dataclass(exported) or issubclass(exported, tuple):
            public = {field: hint for field, hint in hints(exported).items() if not field.startswith("_")}
            for field, hint in public.items():
                yield from ((f"{name}.{field}", each) for each in types_of(hint))
        for member in dir(exported):
            if member == "__init__" or not member.startswith("_"):
                found = inspect.getattr_static(exported, member)
                found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
                found = found.func if isinstance(found, cached_property) else found
                if isinstance(found, FunctionType) and found.__module__.split(".")[0] in PACKAGES:
                    yield from mentioned(found, f"{name}.{member}")


PACKAGES = ("runtime", "watcher", "client", "scoring", "trimaran")
# Objects that users only pass on: their own members are not public.
OPAQUE = {"NodeRows", "Occupancy", "PackedScores", "Trace"}


@pytest.mark.parametrize("package", ["watcher", "client", "trimaran.simulator"])
def test_public_signatures_mention_exported_types(package: str) -> None:
    """Every class of ours in a public signature can be imported from a promised place, for annotations of a user.

    This does not hold for scoring, whose tables mention many classes that users only pass on.
    """
    promised = {
        id(getattr(import_module(module), name, None)) for module, names in PROMISED.items() for name in names.split()
    }
    seen, private = 0, {}
    for name in import_module(package).__all__:
        for place, each in mentioned(getattr(import_module(package), name), name) if name not in OPAQUE else ():
            seen += 1
            if each.__module__.split(".")[0] in PACKAGES and id(each) not in promised:
                private[f"{each.__module__}.{each.__qualname__}"] = place
    assert seen > 20
    assert private == {}
