"""Imports inside functions: a service has imported what its requests need before it answers them.

Two threads that import from one package at the same time can deadlock; Python then raises an error in one of them, or
gives it a partially initialized module.
"""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGES = frozenset({"trimaran", "watcher", "client", "scoring", "runtime"})

# Functions with imports that no request calls.
STARTING = {
    "watcher.api.service._open_accesses",
    "client.__getattr__", "client.connecting.connect", "runtime.kubernetes.kubeconfig.KubeConfig.read",
    "runtime.parsing._check_limits", "runtime.parsing.compose_yaml", "runtime.parsing.parse_documents",
    "watcher.api.service.WatcherService._routes", "watcher.pipeline.origins._origin",
    "trimaran.cluster.settings.ClusterSection.check_watcher",
}  # fmt: skip
FETCHING = {
    "runtime.http.budget.Budget.charge_bytes", "watcher.pipeline.watcher._detector",
    "watcher.providers.sampled.Sampled.fetch", "watcher.store.store.Store.save_snapshots.write",
    "watcher.store.store.Store.recorded_minutes", "watcher.store.store.Store.fill_history",
    "watcher.pipeline.backfill.Backfill._fill_chunk",
    "watcher.providers.kubelet.provider.KubeletProvider.pod_use",
    "watcher.providers.kubernetes_metrics_server.KubernetesMetricsServerProvider.pod_use",
    "watcher.usage.rounds._open_sources", "watcher.usage.pod_usage.PodUsage._open_sources",
    "watcher.usage.rounds.PodUseRounds._succeeded",
    "watcher.usage.learn.learner_service.LearnerService.observe",
    "watcher.usage.learn.learner_service.LearnerService._learner",
    "watcher.usage.learn.learner_service.LearnerService._save", "watcher.usage.backfill.WorkloadBackfill._read",
    "watcher.usage.backfill.WorkloadBackfill._names",
    "watcher.providers.prometheus.provider.PrometheusProvider.past_pod_use",
    "watcher.usage.history.persistent_pod_use.PersistentPodUse._day",
    "watcher.providers.fake.FakeProvider.pod_use", "trimaran.extender.trial.promql_value.PromqlValue.ask",
}  # fmt: skip
IN_NOTEBOOKS = {
    "scoring.profiles.scores.Scores.to_frame", "watcher.history.History.times", "watcher.history.History.to_frame",
    "watcher.model.WatcherMetrics.to_frame", "watcher.workload_table.WorkloadTable.to_frame",
}  # fmt: skip
# Functions with imports that only the watcher's routes call, whose modules are imported after the first response.
ROUTES = {
    "watcher.api.node_views.NodeViews.history", "watcher.store.store.Store.history_metrics",
    "watcher.store.store.Store.load_history", "watcher.usage.learn.learner_service.LearnerService.daily",
}  # fmt: skip
# Functions with imports that some services do not call.
HISTORY = {"client.service.ServiceClient.history"}
WORKLOADS = {
    "client.service.ServiceClient.pod_history", "client.service.ServiceClient._pod_history",
    "client.service.ServiceClient.workloads", "client.service.ServiceClient.workload_totals",
}  # fmt: skip
SCORES = {"scoring.beta_distribution.distribution", "scoring.plugins.congestion._uncertain_cost"}

# Programs that bring a process to the moment from which on it answers requests.
WATCHER = """
import pathlib
from runtime.server.access import AccessCheck
from watcher.api import service
from watcher.pipeline.watcher import Watcher
from watcher.settings import ProviderSettings, StoreSettings, WatcherSettings

Watcher.start = lambda _watcher: None  # its thread would import modules, too
service._WARM_SECONDS = 3600
store = StoreSettings(path=pathlib.Path("store"))
application = service.WatcherService(
    WatcherSettings(provider=ProviderSettings(name="Fake"), store=store), AccessCheck()
).start()
"""
PROGRAMS: dict[str, tuple[str, set[str]]] = {
    "watcher's cached responses": (WATCHER, ROUTES),
    "watcher's routes": (f"{WATCHER}application._application.get()", set()),
    "extender": ("import trimaran.extender.service, trimaran.extender.worker", HISTORY | WORKLOADS),
    "nodes": ("import trimaran.soft_taints.service, trimaran.soft_taints.worker", HISTORY | WORKLOADS | SCORES),
    "dashboard": ("import trimaran.dashboard.service", WORKLOADS),
}


@cache
def late_imports(module: str) -> list[tuple[str, str]]:
    """Return the imports inside functions of a module: the function with its module, and the imported module."""
    specification = importlib.util.find_spec(module)
    assert specification is not None
    assert specification.origin is not None
    return list(_late_imports(ast.parse(Path(specification.origin).read_text()), (module,), in_function=False))


def _late_imports(node: ast.AST, path: tuple[str, ...], *, in_function: bool) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _late_imports(child, (*path, child.name), in_function=True)
        elif isinstance(child, ast.ClassDef):
            yield from _late_imports(child, (*path, child.name), in_function=in_function)
        elif isinstance(child, ast.Import) and in_function:
            yield from ((".".join(path), alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and in_function:
            assert child.module is not None
            parts = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from ((".".join(path), part if _is_module(part) else child.module) for part in parts)
        else:
            yield from _late_imports(child, path, in_function=in_function)


def _is_module(name: str) -> bool:
    try:
        return name.partition(".")[0] in PACKAGES and importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, not a package
        return False


def missing(program: str, folder: Path) -> dict[str, str]:
    """Return the functions of the loaded modules that import a module that is not loaded, with that module."""
    program += "\nimport os, sys\nprint(*sys.modules, flush=True)\nos._exit(0)"
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
    loaded = set(output.split())
    ours = sorted(name for name in loaded if name.partition(".")[0] in PACKAGES)
    return {function: name for module in ours for function, name in late_imports(module) if name not in loaded}


@pytest.mark.parametrize("name", PROGRAMS)
def test_requests_import_nothing(name: str, tmp_path: Path) -> None:
    """All functions that a request calls find their imports loaded once a service answers."""
    program, allowed = PROGRAMS[name]
    allowed = allowed | STARTING | FETCHING | IN_NOTEBOOKS
    assert {
        function: module for function, module in missing(program, tmp_path).items() if function not in allowed
    } == {}


def test_the_exceptions_are_needed() -> None:
    """Each exception is a function that contains an import."""
    for function in STARTING | FETCHING | IN_NOTEBOOKS | ROUTES | SCORES | HISTORY | WORKLOADS:
        module = next(name for name in _prefixes(function) if _is_module(name))
        assert function in {found for found, _ in late_imports(module)}


def _prefixes(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def test_the_check_detects_an_import(tmp_path: Path) -> None:
    """The check detects a function whose import is not loaded."""
    assert missing("import watcher.history", tmp_path)["watcher.history.History.to_frame"] == "pandas"
