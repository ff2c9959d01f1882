"""Command line as a user calls it, in its own process where a test needs one."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from support.refusals import check_refusal
from support.servers import run_trimaran

import trimaran
from runtime.settings.loading import environment_variable, setting_names
from trimaran.cli.main import COMMANDS, main
from trimaran.extender.settings import ExtenderSettings
from trimaran.rebalancer.settings import RebalanceSettings
from trimaran.scheduler.service.settings import SchedulerSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import WatcherSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def call(*arguments: str) -> Result:
    """Call ``trimaran`` in this process."""
    return CliRunner().invoke(main, arguments, prog_name="trimaran")


def test_version() -> None:
    """--version prints the package's version."""
    assert run_trimaran("--version").stdout == f"trimaran {trimaran.__version__}\n"


def test_kubectl_runs_the_program_as_a_plugin() -> None:
    """The package installs ``kubectl-trimaran``; its texts show the command that a user of kubectl types."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, function = scripts["kubectl-trimaran"].split(":")
    program = f"import {module}; {module}.{function}()"
    result = subprocess.run(
        [sys.executable, "-c", program, "top", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0
    assert result.stdout.startswith("Usage: kubectl trimaran top [OPTIONS]")


@pytest.mark.parametrize(("name", "hint"), [("wach", "'wach': did you mean watch?"), ("qqq", "No such command 'qqq'.")])
def test_an_unknown_command_names_the_nearest(name: str, hint: str) -> None:
    """A misspelled command is a usage error with the nearest name, if one is near."""
    check_refusal(call(name), hint)


@pytest.mark.parametrize("pod", ["web", "default/", "/web", "a/b/c"])
@pytest.mark.parametrize("command", [("explain", "--extender"), ("rebalance explain", "--url")])
def test_explain_needs_a_namespace_before_a_service(command: tuple[str, str], pod: str) -> None:
    """A pod without a namespace and a name is a usage error, even if neither extender nor rebalancer runs."""
    done = call(*command[0].split(), pod, command[1], "http://127.0.0.1:1")
    check_refusal(done, "NAMESPACE/NAME, such as default/web")


@pytest.mark.parametrize("url", ["", "trimaran:2021"])
@pytest.mark.parametrize(
    "command",
    ["explain a/b --extender", "extender trial --extender", "rebalance explain a/b --url", "rebalance status --url"],
)
def test_an_address_without_a_scheme_is_a_usage_error(command: str, url: str) -> None:
    """An address that was not set, or has no scheme, is named with what it must begin with."""
    check_refusal(call(*command.split(), url), f"{url!r} ")


def test_help_of_a_command_names_its_options() -> None:
    """``trimaran watch --help`` lists the options for settings."""
    text = call("watch", "--help").stdout
    for option in ("host", "port", "provider", "address", "interval", "store", "log-level", "settings", "set"):
        assert f"--{option}" in text


@pytest.mark.parametrize("command", [[name] for name in COMMANDS] + [["config", "check"], ["extender", "config"]])
def test_every_command_has_help(command: list[str]) -> None:
    """-h and --help print the same text, with an example for commands that users run by hand."""
    results = [CliRunner().invoke(main, [*command, option]) for option in ("-h", "--help")]
    assert [result.exit_code for result in results] == [0, 0]
    assert results[0].output == results[1].output
    if command not in (["watch"], ["extender"], ["config"]):
        assert "\n  Example" in results[0].output  # at the start of a line


@pytest.mark.parametrize(
    "command",
    [
        "top", "score", "compare", "place", "explain pod", "extender regret", "simulate run", "simulate compare",
        "simulate sweep", "simulate overcommit", "simulate check", "doctor",
    ],
)  # fmt: skip
def test_commands_with_results_have_the_same_forms_of_output(command: str) -> None:
    """Each command that shows results accepts the same values of ``-o``, and refuses others."""
    assert "-o, --output [text|wide|json|yaml]" in call(*command.split(), "--help").stdout
    check_refusal(call(*command.split(), "-o", "xml"), "'text', 'wide', 'json', 'yaml'")


def test_the_forms_of_output(tmp_path: Path) -> None:
    """JSON and YAML are equal, ``--json`` is ``-o json``, and ``wide`` is ``text`` if there are no more columns."""
    command = ("simulate", "check", str(tmp_path))
    text, wide, as_json, flag, as_yaml = (
        call(*command, *form.split()).stdout for form in ("", "-o wide", "-o json", "--json", "-o yaml")
    )
    assert text == wide != ""
    assert json.loads(as_json) == json.loads(flag) == yaml.safe_load(as_yaml)
    assert json.loads(as_json)[0]["trace"] == str(tmp_path)
    assert json.loads(as_json)[0]["errors"]


def test_each_server_has_its_own_default_port() -> None:
    """All servers can run on one machine; the documentation, help texts and manifests name the same ports."""
    sentence = PAGE.partition("Default ports, ")[2].partition("\n\n")[0]
    documented = dict(re.findall(r"`(?:trimaran )?(\w+)`\s(\d{4})", sentence))
    assert list(documented) == ["watch", "extender", "dashboard", "nodes", "rebalance", "scheduler"]
    assert len(set(documented.values())) == len(documented)
    settings = {"watch": WatcherSettings, "extender": ExtenderSettings, "nodes": NodesSettings,
                "rebalance": RebalanceSettings, "scheduler": SchedulerSettings}  # fmt: skip
    assert {name: str(kind().server.port) for name, kind in settings.items()}.items() <= documented.items()
    for command, port in documented.items():
        assert f"[default: {port}]" in call(command, "--help").stdout
    for command, file in (("dashboard", "dashboard"), ("nodes", "nodes"), ("rebalance", "rebalancer")):
        for folder in ("kubernetes", "helm/trimaran/templates"):
            manifest = (ROOT / "deploy" / folder / f"{file}.yaml").read_text(encoding="utf-8")
            assert re.findall(r"containerPort: (\d+)", manifest) == [documented[command]]


def test_the_list_of_commands() -> None:
    """All commands exist, in the order of the help text."""
    assert list(COMMANDS) == [
        "watch", "top", "workloads", "score", "compare", "place", "extender", "explain", "nodes", "rebalance",
        "scheduler", "simulate", "assess", "record", "dashboard", "doctor", "config",
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [("--help",), ("config",), ("top",), ("watch", "--help")])
def test_an_unwritable_output_is_one_line_and_status_1(arguments: tuple[str, ...]) -> None:
    """``trimaran top > /dev/full`` prints one line and exits with status 1; Python adds no message at exit."""
    command = [sys.executable, "-m", "trimaran", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert done.returncode == 1
        *embedding, line = done.stderr.splitlines()
        assert line == "trimaran: the output cannot be written: No space left on device"
        assert len(embedding) == (arguments == ("top",))
        assert subprocess.run(command, stdout=full, stderr=full, timeout=60, check=False).returncode == 1


def test_config_shows_every_setting_and_its_origin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each setting has a line with its value, the origin of the value, and its environment variable."""
    file = tmp_path / "settings.toml"
    file.write_text("[server]\nthreads = 3\n")
    monkeypatch.setenv("LOG_LEVEL", "debug")
    result = call("config", "--settings", str(file), "--set", "server.port=1", "--set", "server.port=2")
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if "." in line.split(" ")[0]}
    assert list(lines) == list(setting_names(WatcherSettings))
    assert all(words[-1] == environment_variable(name) for name, words in lines.items())
    assert lines["server.threads"][1:3] == ["3", str(file)]
    assert lines["server.port"][1:4] == ["2", "command", "line"]
    assert lines["log.level"][1:3] == ["debug", "LOG_LEVEL"]
    assert lines["server.host"][1:3] == ["127.0.0.1", "default"]
    providers = result.stdout.splitlines()[-1].removeprefix("providers: ").split(", ")
    assert {"Host", "Prometheus"} <= set(providers)


def test_config_checks_the_provider() -> None:
    """An unknown provider is an error with a suggestion and status 2, after the settings."""
    result = CliRunner().invoke(main, ["config", "--set", "provider.name=Promtheus"])
    assert result.exit_code == 2
    assert "provider.name" in result.stdout
    assert "did you mean Prometheus?" in result.stderr


def test_config_masks_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output has no token, application key or credentials of an address."""
    monkeypatch.setenv("METRICS_PROVIDER_TOKEN", "hush")
    monkeypatch.setenv("METRICS_PROVIDER_APP_KEY", "hush")
    monkeypatch.setenv("METRICS_PROVIDER_ADDRESS", "https://me:hush@host:1234/x")
    result = call("config")
    assert "hush" not in result.stdout + result.stderr
    assert "https://host:1234/x" in result.stdout
    assert result.stdout.count("********") == 2


@pytest.mark.parametrize("command", ["config", "watch"])
def test_all_invalid_settings_are_reported(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every invalid setting is printed to standard error; the status is 2, and nothing is started."""
    monkeypatch.setenv("LOG_LEVEL", "loud")
    result = run_trimaran(command, "--settings", str(tmp_path / "missing.toml"), "--set", "server.port=x")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("trimaran: 3 settings cannot be used:\n")
    for words in ("missing.toml cannot be read: No such file or directory", "server.port (command line)", "log.level"):
        assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("assignment", ["server.port", "port=1", "a.b.c=1", "=1"])
def test_set_needs_section_key_value(assignment: str) -> None:
    """A malformed --set is a usage error with an example."""
    check_refusal(call("config", "--set", assignment), "such as server.port=2021")


def test_seconds_are_also_durations() -> None:
    """Settings in seconds accept 300 and ``5m``; other values are refused."""
    shown = call(
        "config", "--set", "watch.expiry_seconds=1h", "--set", "watch.interval_seconds=5m",
        "--set", "quality.stale_seconds=90",
    ).stdout  # fmt: skip
    lines = {line.split()[0]: line.split()[1] for line in shown.splitlines() if "_seconds" in line}
    assert (lines["watch.expiry_seconds"], lines["watch.interval_seconds"]) == ("3600", "300.0")
    assert lines["quality.stale_seconds"] == "90.0"
    assert "watch.interval_seconds" in call("config", "--set", "watch.interval_seconds=soon").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_works(shell: str) -> None:
    """The commands of docs/command-line.md print a completion script for ``trimaran``."""
    assert f"_TRIMARAN_COMPLETE={shell}_source trimaran" in PAGE
    result = CliRunner().invoke(main, prog_name="trimaran", env={"_TRIMARAN_COMPLETE": f"{shell}_source"})
    assert (result.exit_code, f"_TRIMARAN_COMPLETE={shell}_complete" in result.output) == (0, True)


def test_the_documentation_of_commands_is_correct() -> None:
    """docs/command-line.md names every command, and each option in it exists."""
    helps = {name: CliRunner().invoke(main, [name, "--help"]).output for name in COMMANDS}
    for name in COMMANDS:
        assert f"`trimaran {name}" in PAGE
    for inner in (("simulate", "overcommit"), ("config", "check")):
        helps[" ".join(inner)] = CliRunner().invoke(main, [*inner, "--help"]).output
    options = set(re.findall(r"(--[a-z][a-z-]+)", PAGE))
    elsewhere = {"--help", "--write-config-to"}  # the second is kube-scheduler's
    assert {option for option in options if not any(option in text for text in helps.values())} <= elsewhere
