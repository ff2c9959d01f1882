"""Commands on the pages about deployment: their programs accept them unchanged."""

import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import click
import pytest
from control_plane import builds

from trimaran.cli.main import main

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
PAGES = (*sorted((ROOT / "docs/clusters").glob("*.md")), ROOT / "docs/deploy.md", ROOT / "docs/nodes.md")
# No API server listens here: a command that kubectl accepts fails with this address.
NOWHERE = """
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: nowhere, context: {cluster: nowhere}}]
"""
# Stand-ins for the reader's own files.
FILES = {
    "scheduler.yaml": "a: b",
    "kube-scheduler.yaml": "a: b",
    "token": "x",
    "server.crt": "",
    "server.key": "",
    "ca.crt": "",
}


def commands() -> list[tuple[str, str]]:
    """Return the pages' commands, each on one line, without comments, with the page's name."""
    return [
        (page.stem, re.sub(r"\s{2,}#.*$", "", line.removeprefix("$ ")))
        for page in PAGES
        for block in re.findall(r"^ *```console\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
        for line in re.sub(r"\\?\n +", " ", textwrap.dedent(block)).splitlines()
        if line.startswith("$ ")
    ]


def calls_of(program: str) -> list[tuple[str, str]]:
    """Return the calls of a program within the shell commands, with the page's name."""
    result = []
    for page, command in commands():
        inner = re.findall(r"\$\(([^)]*)\)", command)
        for text in (re.sub(r"\$\([^)]*\)", "x", command), *inner):
            calls = re.findall(rf"(?:^|&& |\| )({program} [^|&>]*)", text)
            result += [(page, call.strip()) for call in calls]
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder like the reader's: a checkout with the reader's own files."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "nowhere").write_text(NOWHERE)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_command_is_valid_shell_syntax() -> None:
    """Every command has valid shell syntax by ``bash -n``."""
    assert len(commands()) > 40
    for page, command in commands():
        done = subprocess.run(["bash", "-nc", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (page, command, done.stderr)


def test_kubectl_accepts_its_commands(folder: Path) -> None:
    """Each kubectl command gets as far as a request to the API server."""
    calls = calls_of("kubectl")
    assert len({call for _, call in calls}) > 15
    for page, call in calls:
        words = [str(builds.binary("kubectl")), *shlex.split(call.replace("$IP", "10.0.0.1"))[1:]]
        if words[1] == "patch":  # patch reads the object first
            words.append("--dry-run=client")
        environment = {**os.environ, "KUBECONFIG": str(folder / "nowhere")}
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        has_sent = "127.0.0.1:9" in done.stderr or "github.com" in call
        assert has_sent, (page, call, done.stderr)


def test_helm_accepts_its_commands(folder: Path) -> None:
    """Each install and upgrade renders the chart with valid values."""
    # The others need a release.
    calls = [(page, call) for page, call in calls_of("helm") if call.split()[1] not in {"uninstall", "rollback"}]
    assert len(calls) > 5
    for page, call in calls:
        verb, *words = shlex.split(call)[1:]
        assert verb in {"install", "upgrade"}
        options = [word for word in words if not word.endswith("reuse-values")]  # of a release, which is not here
        command = [builds.binary("helm"), "template", "--kube-version", "1.37.0", *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (page, call, done.stderr)


def test_trimaran_accepts_its_commands() -> None:
    """Each command and option exists."""
    calls = calls_of("trimaran")
    assert len(calls) > 5
    for page, call in calls:
        words = shlex.split(call.replace("$IP", "10.0.0.1"))[1:]
        context = click.Context(main)
        command: click.Command = main
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            subcommand = command.get_command(context, words[0])
            assert subcommand is not None, (page, call)
            command, words = subcommand, words[1:]
        parser = command.make_parser(click.Context(command))
        try:
            parser.parse_args(words)
        except click.UsageError as error:
            pytest.fail(f"{page}: {call}: {error.format_message()}")
