"""Tests of the commands with files and services that try to end the process or to control the terminal."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from trimaran.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "examples"
DEEP = "- " * 32_000  # ends a process that uses libyaml's loader with SIGSEGV
KUBECTL = f"--pod={EXAMPLES / 'pod.yaml'}", f"--nodes={EXAMPLES / 'nodes.yaml'}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "--watcher=http://127.0.0.1:1", "--pod={}", KUBECTL[1]),
        ("score", "--watcher=http://127.0.0.1:1", KUBECTL[0], "--nodes={}"),
        ("score", "--watcher=http://127.0.0.1:1", *KUBECTL, "--pods={}"),
        ("score", "--watcher=http://127.0.0.1:1", *KUBECTL, "--config={}"),
        ("place", "--nodes={}", "--pods={}"),
        ("config", "check", "{}"),
        ("extender", "config", "{}", "--url=http://127.0.0.1:1"),
        ("extender", "--set=extender.config={}", "--set=extender.watcher=http://127.0.0.1:1"),
        ("doctor", "--provider=Fake", "--nodes={}"),
        ("doctor", "--provider=KubernetesMetricsServer", "--set=provider.kube_config={}"),
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_deep_yaml_is_an_error(tmp_path, arguments):
    """Every command that reads YAML refuses 63 KB of nested sequences with a message, instead of crashing."""
    file = tmp_path / "deep.yaml"
    file.write_text(DEEP)
    result = CliRunner().invoke(main, [argument.format(file) for argument in arguments])
    assert result.exit_code in {1, 2}, result.output
    assert not isinstance(result.exception, Exception), result.exception
    assert "100 nested levels" in result.output or "is not a kubeconfig" in result.output
