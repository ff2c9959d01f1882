"""The command line, in processes of its own as a person calls it."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import trimaran
from trimaran.cli import COMMANDS, main
from watcher.settings.loading import every_setting, variable


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``trimaran`` and return what it printed."""
    command = [sys.executable, "-m", "trimaran", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_version() -> None:
    """--version prints the package's version."""
    assert run("--version").stdout == f"trimaran {trimaran.__version__}\n"


def test_help_of_a_command_names_its_options() -> None:
    """``trimaran watch --help`` lists every way to the settings."""
    text = run("watch", "--help").stdout
    for option in (
        "--host",
        "--port",
        "--provider",
        "--address",
        "--interval",
        "--store",
        "--log-level",
        "--settings",
        "--set",
    ):
        assert option in text


def test_the_commands() -> None:
    """The commands are those promised, and an unknown one is a usage error without a traceback."""
    assert list(COMMANDS) == ["watch", "top", "score", "extender", "simulate", "doctor", "config"]
    result = run("fly")
    assert result.returncode == 2
    assert "No such command 'fly'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("config",), ("top",), ("watch", "--help")])
def test_an_output_that_is_full(arguments: tuple[str, ...]) -> None:
    """``trimaran top > /dev/full`` is one line and status 1, and Python adds nothing at its end."""
    command = [sys.executable, "-m", "trimaran", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert done.returncode == 1
        *embedding, line = done.stderr.splitlines()
        assert line == "trimaran: the output cannot be written: No space left on device"
        assert len(embedding) == (arguments == ("top",))
        assert subprocess.run(command, stdout=full, stderr=full, timeout=60, check=False).returncode == 1


def test_config_shows_every_setting_and_its_origin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each setting has a line with its value, where that came from, and its variable."""
    file = tmp_path / "settings.toml"
    file.write_text("[server]\nthreads = 3\n")
    monkeypatch.setenv("LOG_LEVEL", "debug")
    result = run("config", "--settings", str(file), "--set", "server.port=1", "--set", "server.port=2")
    assert result.returncode == 0
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if "." in line.split(" ")[0]}
    assert list(lines) == list(every_setting())
    assert all(words[-1] == variable(name) for name, words in lines.items())
    assert lines["server.threads"][1:3] == ["3", str(file)]
    assert lines["server.port"][1:4] == ["2", "command", "line"]
    assert lines["log.level"][1:3] == ["debug", "LOG_LEVEL"]
    assert lines["server.host"][1:3] == ["127.0.0.1", "default"]
    providers = result.stdout.splitlines()[-1].removeprefix("providers: ").split(", ")
    assert {"Host", "Prometheus"} <= set(providers)


def test_config_checks_the_provider() -> None:
    """A provider that does not exist is told after the settings, with what was meant, and status 2."""
    result = CliRunner().invoke(main, ["config", "--set", "provider.name=Promtheus"])
    assert result.exit_code == 2
    assert "provider.name" in result.stdout
    assert "did you mean Prometheus?" in result.stderr


def test_config_masks_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Token, application key and an address' credentials are not in the output."""
    monkeypatch.setenv("METRICS_PROVIDER_TOKEN", "hush")
    monkeypatch.setenv("METRICS_PROVIDER_APP_KEY", "hush")
    monkeypatch.setenv("METRICS_PROVIDER_ADDRESS", "https://me:hush@host:1234/x")
    result = run("config")
    assert "hush" not in result.stdout + result.stderr
    assert "https://host:1234/x" in result.stdout
    assert result.stdout.count("********") == 2


@pytest.mark.parametrize("command", ["config", "watch"])
def test_settings_that_cannot_be_used(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every problem on standard error, status 2, no traceback, and nothing is started."""
    monkeypatch.setenv("LOG_LEVEL", "loud")
    result = run(command, "--settings", str(tmp_path / "missing.toml"), "--set", "server.port=x")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("trimaran: 3 settings cannot be used:\n")
    for words in ("missing.toml cannot be read: No such file or directory", "server.port (command line)", "log.level"):
        assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("assignment", ["server.port", "port=1", "a.b.c=1", "=1"])
def test_set_wants_section_key_value(assignment: str) -> None:
    """Another form is a usage error that shows an example."""
    result = run("config", "--set", assignment)
    assert result.returncode == 2
    assert "such as server.port=2021" in result.stderr
