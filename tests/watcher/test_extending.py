"""Tests of a provider in a separate package: its installation, its use and the example in docs/extending.md."""

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.plugin_packages import register
from support.servers import reply, serving

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderRefused, ProviderUnavailable
from watcher.model import Metric, NodeMetrics
from watcher.providers.base import Fetched
from watcher.testing import BrokenNodeContract

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "provider"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a copy of the example with pip into a new folder, without a network."""
    folder = tmp_path_factory.mktemp("extending")
    source, target = folder / "source", folder / "site"
    shutil.copytree(EXAMPLE, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    command = [*pip, "--disable-pip-version-check", "--target", str(target), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return target


def trimaran(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the installed package."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "trimaran", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_installed_provider_is_listed(site):
    """``trimaran config`` lists the provider if its package is installed."""
    assert "Inventory" in trimaran(site, "config").stdout.splitlines()[-1].removeprefix("providers: ").split(", ")
    assert "Inventory" not in trimaran(site.parent, "config").stdout


def test_installed_provider_is_used(site, watch):
    """``trimaran watch`` samples it with the settings' address and token, and serves windows of its values."""

    def answer(handler):
        assert handler.path == "/load"
        assert handler.headers["Authorization"] == "Bearer right-token"
        at = time.time()
        reply(handler, {"node-1": {"at": at, "cpu": 20.5, "memory": 40}, "node-2": {"at": at, "cpu": 80, "memory": 10}})

    with serving(answer) as inventory:
        service = watch(
            "--provider", "Inventory", "--address", inventory.url,
            PYTHONPATH=str(site), METRICS_PROVIDER_TOKEN="right-token",
        )  # fmt: skip
        served = service.wait_for("/watcher").json()
    assert served["source"] == "Inventory"
    values = {
        (node, metric["type"], metric["operator"]): metric["value"]
        for node, load in served["data"].items()
        for metric in load["metrics"]
    }
    assert values["node-1", "CPU", "AVG"] == 20.5
    assert values["node-2", "Memory", "AVG"] == 10
    assert values["node-1", "CPU", "STD"] == 0


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"<html>", ProviderAnswerError),
        (200, b"[]", ProviderAnswerError),
        (200, b'{"node-1": {"at": 1, "cpu": 1}}', ProviderAnswerError),
        (401, b"", ProviderRefused),
        (503, b"", ProviderUnavailable),
    ],
)
def test_example_raises_provider_errors(monkeypatch, status, body, expected):
    """For any unexpected response the example raises a ProviderError, and its check has a failed step."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from trimaran_inventory import InventoryProvider

    from watcher.settings import ProviderSettings, Settings

    with serving(lambda handler: reply(handler, body, status)) as inventory:
        provider = InventoryProvider(Settings(provider=ProviderSettings(address=inventory.url)))
        with pytest.raises(expected, match="Inventory"):
            provider.sample(Deadline.after(5))
        (step,) = provider.check()
    assert not step.ok
    assert step.setting == "provider.address"


class AllOrNothing:
    """Harness of a provider that fails for all nodes, or drops a node silently, when it cannot read one."""

    name, tolerance = "AllOrNothing", 1e-9

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent

    @contextmanager
    def running(self, nodes, broken=""):
        def fetch(window):
            if not self.silent:
                raise ProviderAnswerError(f"{broken}: KeyError('cpu')")
            metric = Metric("x", "CPU", "AVG", window.duration, 5.0)
            return Fetched({node: NodeMetrics((metric,)) for node in nodes if node != broken})

        yield SimpleNamespace(fetch=fetch)


@pytest.mark.parametrize(
    ("silent", "problem"), [(False, "one node that cannot be read costs all nodes: node-1"), (True, "no finding names")]
)
def test_the_contract_finds_a_provider_that_fails_for_one_node(silent, problem):
    """The suite fails for a provider that loses all nodes by one, and for one that reports nothing."""
    suite = BrokenNodeContract()
    suite.harness = AllOrNothing(silent=silent)
    with pytest.raises((pytest.fail.Exception, AssertionError), match=problem):
        suite.test_a_broken_node_costs_only_itself()


@pytest.mark.parametrize(
    "line", ["def check(self): raise KeyError('cpu')", "def check(self): return 5", "def __init__(self, _): 1 / 0"]
)
def test_an_error_of_a_provider_is_a_failed_step_of_the_doctor(tmp_path, line):
    """An exception of a third party's provider is a FAIL with its package and place, and the other checks go on."""
    (tmp_path / "faulty.py").write_text(
        "class Faulty:\n    def __init__(self, settings): pass\n    def sample(self, deadline): return {}\n"
        f"    def check(self): return iter(())\n    {line}\n"
    )
    register(tmp_path, "faulty", "Faulty = faulty:Faulty", group="trimaran.providers")
    done = trimaran(tmp_path, "doctor", "--provider", "Faulty")
    assert done.returncode == 1, done.stderr
    failed = r"^FAIL  Faulty: provider: failed unexpectedly: \w+Error: .+\.py, line \d+\); report it to the authors of "
    assert re.search(rf"{failed}the package faulty 1.0", done.stdout, re.MULTILINE)
    assert re.search(r"^ok    store", done.stdout, re.MULTILINE)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_example_passes_its_own_tests(site):
    """The contract of docs/extending.md runs from another project's folder, without our fixtures."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:dash",
        "test_inventory.py",
    ]
    folder, environment = site.parent / "source", {**os.environ, "PYTHONPATH": str(site)}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=environment
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^=+ \d+ passed in", result.stdout, re.MULTILINE)


def test_page_shows_the_example():
    """docs/extending.md has an exact copy of the provider, and links to the other files of the example."""
    page = (ROOT / "docs" / "extending.md").read_text()
    assert f"```python\n{(EXAMPLE / 'trimaran_inventory.py').read_text()}```\n" in page
    for name in sorted(path.name for path in EXAMPLE.iterdir() if path.is_file()):
        assert f"(../examples/provider/{name})" in page


def test_example_is_short():
    """The provider has at most 30 lines of code, without blank lines, docstrings and imports."""
    lines = map(str.strip, (EXAMPLE / "trimaran_inventory.py").read_text().splitlines())
    code = [line for line in lines if line and not line.startswith(('"""', "import ", "from "))]
    assert len(code) <= 30
