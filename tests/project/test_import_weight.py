"""Imports of the light modules: they do not load heavy packages."""

import subprocess
import sys

import pytest

HEAVY = ("flask", "gunicorn", "pydantic", "pandas", "kubernetes", "sqlite_utils", "requests", "psutil",
         "prometheus_client", "prometheus_api_client", "signalfx", "numpy", "scipy")  # fmt: skip


def modules_behind(statement: str) -> set[str]:
    """Return the top-level packages that a statement imports in a fresh interpreter."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


@pytest.mark.parametrize(
    "statement",
    ["import watcher", "import watcher.model", "import watcher.wire", "import runtime.kubernetes.quantity",
     "import runtime.duration", "import watcher.errors", "import watcher.providers.node_names",
     "import watcher.findings"],
)  # fmt: skip
def test_the_leaves_are_light(statement: str) -> None:
    """The package and its leaf modules import no web framework, no settings, no database and no numpy."""
    assert modules_behind(statement).isdisjoint(HEAVY)


def test_the_command_line_is_light() -> None:
    """``trimaran --help`` imports no heavy package; commands import them when they are called."""
    assert modules_behind("import trimaran.cli.main").isdisjoint(HEAVY)


STARTED = "from watcher.commands import import_sqlite_utils; import_sqlite_utils()\n"


def test_a_watcher_does_not_import_the_dashboard() -> None:
    """The service imports neither the dashboard nor pandas, even if they are installed."""
    behind = modules_behind(f"{STARTED}import watcher.api.service, watcher.api.app")
    assert behind.isdisjoint({"dash", "plotly", "pandas"})


def test_a_restarted_watcher_answers_before_it_imports_providers() -> None:
    """Until its first response a restarted watcher imports neither numpy nor the HTTP client for providers."""
    behind = modules_behind(f"{STARTED}import watcher.api.service, watcher.providers.fake")
    assert behind.isdisjoint({"numpy", "requests", "urllib3", "yaml", "flask"})


def test_sqlite_utils_does_not_import_pandas_and_numpy() -> None:
    """The command prevents their import by sqlite_utils, and other code can still import numpy."""
    behind = modules_behind(f"{STARTED}import sys, watcher.store; print('numpy' in sys.modules)\nimport numpy")
    assert {"False", "numpy"} <= behind
    assert "pandas" not in behind


def test_the_check_detects_heavy_packages() -> None:
    """The same check detects a heavy package that is imported."""
    assert {"pydantic", "watcher"} <= modules_behind("import watcher.settings")
