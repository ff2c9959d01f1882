"""KubeSchedulerConfiguration files: every command reports the same problems in the same form."""

import pytest
import yaml
from click.testing import CliRunner
from support.plugin_packages import EXAMPLE
from support.refusals import check_refusal

from runtime.parsing import MAX_CONFIGURATION_BYTES
from trimaran.cli.main import main
from trimaran.extender.service import read_profiles
from trimaran.yaml_lines import KeyLines

VALID = (EXAMPLE / "scheduler.yaml").read_text().replace("CoolMemory", "CongestionCost").partition("  pluginConfig")[0]
COMMANDS = (
    "config check {file} --kubernetes-version 1.37",
    "score --config {file} --pod examples/pod.yaml --nodes examples/nodes.yaml --kubernetes-version 1.37",
    "extender --config {file} --watcher http://127.0.0.1:9",
    "extender config {file} --kubernetes-version 1.37",
    "simulate compare --policy mine={file}",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, " cannot be read: No such file or directory"),
        ("a: [", ": while parsing"),
        ("a: 1\n---\nb: 2", ": expected one YAML document, but there are several, separated by ---"),
        ("- a", ": must be a YAML mapping with a KubeSchedulerConfiguration"),
        ("#" * (MAX_CONFIGURATION_BYTES + 1), ": larger than 4 MiB"),
        (VALID.replace("CongestionCost", "CongestionCst"), ", line 8: profiles[0].plugins.score.enabled[0].name: "),
        (VALID.replace("weight: 2", "weight: x"), ", line 9: profiles[0].plugins.score.enabled[0].weight: must be"),
    ],
    ids=["missing", "not YAML", "two documents", "a list", "too large", "a misspelled name", "a wrong weight"],
)
def test_every_command_names_file_and_line(tmp_path, command, content, problem):
    """A file that cannot be used is one line with the file, the line of the key and the reason, and status 2."""
    file = tmp_path / "scheduler.yaml"
    if content is not None:
        file.write_text(content)
    done = CliRunner().invoke(main, command.format(file=file).split())
    assert done.exit_code == 2, done.stderr
    assert done.stderr.startswith("trimaran: ")
    assert f"{file}{problem}" in done.stderr


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("config check {file} --kubernetes-version 1.37", "--allow Mine"),
        ("extender --config {file} --watcher http://127.0.0.1:9", "accepted with --set extender.allow_plugins=Mine"),
        ("scheduler --config {file} --watcher http://127.0.0.1:9", "accepted with --set scheduler.allow_plugins=Mine"),
        ("simulate compare --policy mine={file}", "no plugin named 'Mine' is known."),
        ("simulate compare --policy mine=standalone:{file}", "no plugin named 'Mine' is known."),
    ],
)
def test_an_unknown_plugin_has_the_commands_own_remedy(tmp_path, command, remedy):
    """The error about an unknown plugin ends with the option that the command has, or without one."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(VALID.replace("CongestionCost", "Mine"))
    done = CliRunner().invoke(main, command.format(file=file).split())
    assert done.exit_code == 2
    assert done.stderr.strip().endswith(remedy)


TYPO = VALID + "  pluginConfig:\n  - name: CongestionCost\n    args:\n      foo: 1\n"
UNKNOWN = f", line {TYPO.count(chr(10))}: CongestionCostArgs.foo"


@pytest.mark.parametrize("command", ["scheduler --config {file}", "simulate compare --policy mine=standalone:{file}"])
def test_the_scheduler_refuses_an_unknown_argument(tmp_path, command):
    """``trimaran scheduler`` and its replays refuse a typo, as kube-scheduler does, with the line of the argument."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(TYPO)
    check_refusal(CliRunner().invoke(main, command.format(file=file).split()), f"{file}{UNKNOWN}: ")


def test_others_warn_of_an_unknown_argument(tmp_path, caplog):
    """The extender and replays of kube-scheduler warn of a typo, with its line, and go on."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(TYPO)
    read_profiles(file)
    assert caplog.messages == [f"{file}{UNKNOWN} is ignored: there is no such key"]
    done = CliRunner().invoke(main, f"simulate compare --policy mine={file} --policy nosuch".split())
    assert done.stderr.startswith(f"trimaran: warning: {file}{UNKNOWN} is ignored: there is no such key\n")


def test_errors_in_yaml_name_the_file(tmp_path):
    """The file's name stands before the error, not libyaml's name of a text without one."""
    file = tmp_path / "scheduler.yaml"
    file.write_text("a: [")
    done = CliRunner().invoke(main, ["config", "check", str(file), "--kubernetes-version", "1.37"])
    assert done.stderr.startswith(
        f"trimaran: {file}: while parsing a flow node did not find expected node content at line 2"
    )


def test_lines_are_those_of_the_profile_with_the_key():
    """Without a profile's index, an argument's line is that in the first profile that has the argument."""
    text = TYPO + TYPO[TYPO.index("- ") :].replace("foo", "bar")
    assert KeyLines.of(text.encode(), yaml.safe_load(text)).line_of("CongestionCostArgs.bar") == text.count("\n")
