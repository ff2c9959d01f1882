"""KubeSchedulerConfiguration files: every command reports the same problems in the same form."""

import pytest
from click.testing import CliRunner
from support.plugin_packages import EXAMPLE

from runtime.parsing import MAX_CONFIGURATION_BYTES
from trimaran.cli.main import main

VALID = (EXAMPLE / "scheduler.yaml").read_text().replace("CoolMemory", "TailRisk").partition("  pluginConfig")[0]
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
        ("- a", ": is not a KubeSchedulerConfiguration"),
        ("#" * (MAX_CONFIGURATION_BYTES + 1), ": larger than 4 MiB"),
        (VALID.replace("TailRisk", "TailRsk"), ", line 8: profiles[0].plugins.score.enabled[0].name: no plugin named"),
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
