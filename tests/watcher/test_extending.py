"""Tests of a provider in a separate package: its installation, its use and the example in docs/extending.md."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.servers import reply, serving

from runtime.http.gather import Deadline
from watcher.errors import ProviderAnswerError, ProviderRefused, ProviderUnavailable

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
    """docs/extending.md has an exact copy of every file of the example."""
    page = (ROOT / "docs" / "extending.md").read_text()
    for name in sorted(path.name for path in EXAMPLE.iterdir() if path.is_file()):
        language = {".py": "python", ".toml": "toml"}[Path(name).suffix]
        assert f"```{language}\n{(EXAMPLE / name).read_text()}```\n" in page


def test_example_is_short():
    """The provider has at most 30 lines of code, without blank lines, docstrings and imports."""
    lines = map(str.strip, (EXAMPLE / "trimaran_inventory.py").read_text().splitlines())
    code = [line for line in lines if line and not line.startswith(('"""', "import ", "from "))]
    assert len(code) <= 30
