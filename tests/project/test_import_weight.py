"""What importing the light parts brings along."""

import subprocess
import sys

import pytest

HEAVY = ("flask", "gunicorn", "pydantic", "pandas", "kubernetes", "sqlite_utils", "requests", "psutil",
         "prometheus_client", "prometheus_api_client", "signalfx", "numpy", "scipy")  # fmt: skip


def modules_behind(statement: str) -> set[str]:
    """Return the top packages that a statement imports in a fresh interpreter."""
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
    """Importing the package or a leaf brings no web framework, no settings, no database and no numpy."""
    assert modules_behind(statement).isdisjoint(HEAVY)


def test_the_command_line_is_light() -> None:
    """``trimaran --help`` needs none of them before a command is called."""
    assert modules_behind("import trimaran.cli.main").isdisjoint(HEAVY)


def test_a_watcher_is_without_the_page() -> None:
    """What the service imports brings neither the page nor data frames, whether they are installed or not."""
    behind = modules_behind("import watcher.commands, watcher.api.service, watcher.api.app, client.library")
    assert behind.isdisjoint({"dash", "plotly", "pandas"})


def test_a_watcher_answers_before_what_only_fetches_need() -> None:
    """What a restarted watcher imports before its first answer brings neither numpy nor HTTP to providers."""
    behind = modules_behind("import watcher.commands, watcher.api.service, watcher.providers.fake")
    assert behind.isdisjoint({"numpy", "requests", "urllib3", "yaml", "flask"})


def test_sqlite_utils_is_without_data_frames_and_numpy() -> None:
    """The store keeps them from being imported for types that it does not use, and leaves them there for others."""
    behind = modules_behind("import sys, watcher.store; print('numpy' in sys.modules)\nimport numpy, watcher.store")
    assert {"False", "numpy"} <= behind
    assert "pandas" not in behind


def test_the_check_sees_what_is_imported() -> None:
    """The same check does see a heavy package where there is one."""
    assert {"pydantic", "watcher"} <= modules_behind("import watcher.settings")
