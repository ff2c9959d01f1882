"""Commands in the documentation: all are valid, and those that need only a watcher are run."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
import requests
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from support.commands import ROOT, Command, documented_commands
from support.servers import Service

from runtime.settings.loading import environment_variable, setting_names
from trimaran.cli.main import main
from trimaran.extender.settings import ExtenderSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import UPSTREAM_VARIABLES, WatcherSettings

COMMANDS = documented_commands()
#: Addresses of watchers on the pages, which tests replace.
ADDRESS = re.compile(r"(?:http://)?(?:127\.0\.0\.1|localhost|trimaran|trimaran\.trimaran|load-watcher):20\d\d")


def commands_of(program: str) -> list[Command]:
    """Return the distinct commands of a program; test_cli covers those for shell completion."""
    commands = (command for command in COMMANDS if command.words[0] == program)
    return list(
        {command.words: command for command in commands if "_TRIMARAN_COMPLETE" not in command.variables}.values()
    )


def parse(words: tuple[str, ...], *, whole: bool) -> None:
    """Parse a command line as ``trimaran`` does; unless it is ``whole``, required arguments may be missing."""
    group, arguments, context = main, list(words[1:]), None
    try:
        while True:
            context = group.make_context(group.name, arguments, parent=context)
            rest = [*getattr(context, "_protected_args", ()), *context.args]  # click 9 will have everything in args
            if not isinstance(group, click.Group) or not rest:
                assert not rest, rest
                return
            _, group, arguments = group.resolve_command(context, rest)
            assert group is not None
    except click.exceptions.Exit:  # --help, --version
        return
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
        assert not whole


def test_commands_are_found_on_the_pages() -> None:
    """Commands are found in code blocks, in text, after variables and in pipes."""
    whole = {command.words for command in COMMANDS if command.whole}
    assert ("trimaran", "compare", "http://load-watcher:2020", "http://trimaran:2020", "--for", "1h") in whole
    assert ("make", "image") in whole
    assert ("python", "examples/scheduler.py") in {command.words[:2] for command in COMMANDS}
    assert {"METRICS_PROVIDER_NAME": "KubernetesMetricsServer", "KUBE_CONFIG": "~/.kube/config"} in [
        command.variables for command in COMMANDS
    ]
    assert len(COMMANDS) > 150


@pytest.mark.parametrize("command", commands_of("trimaran"), ids=str)
def test_trimaran_accepts_the_command(command: Command) -> None:
    """The command and its options exist, and accept the given values."""
    words = tuple(word.strip("[]").removesuffix("...") for word in command.words)
    try:
        parse(words, whole=command.whole)
    except click.UsageError as error:
        pytest.fail(f"{command}: {error.format_message()}")


@pytest.mark.parametrize(
    "words",
    [
        ("trimaran", "fly"),
        ("trimaran", "top", "--fast"),
        ("trimaran", "top", "a", "b"),
        ("trimaran", "top", "--interval", "soon"),
        ("trimaran", "config", "check", "file", "--quick"),
    ],
)
def test_invalid_commands_are_detected(words: tuple[str, ...]) -> None:
    """The parser that checks the pages refuses the same commands as the command line."""
    with pytest.raises((click.UsageError, AssertionError)):
        parse(words, whole=True)


def test_variables_before_a_command_are_settings() -> None:
    """Each environment variable before a command belongs to a setting."""
    known = {*UPSTREAM_VARIABLES, *map(environment_variable, setting_names(WatcherSettings)), "_TRIMARAN_COMPLETE"}
    named = {name for command in COMMANDS if command.words[0] in {"trimaran", "export"} for name in command.variables}
    assert "METRICS_PROVIDER_ADDRESS" in named
    assert named <= known


def test_set_names_existing_settings() -> None:
    """``--set`` names settings of the watcher or of the started service."""
    known = {*setting_names(WatcherSettings), *setting_names(ExtenderSettings), *setting_names(NodesSettings)}
    named = {
        assignment.partition("=")[0]
        for command in commands_of("trimaran")
        for option, assignment in pairwise(command.words)
        if option == "--set"
    }
    assert "server.client_ca_file" in named
    assert named <= known


@pytest.mark.parametrize("command", commands_of("make"), ids=str)
def test_make_has_the_targets(command: Command) -> None:
    """The targets and variables exist in the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    for word in command.words[1:]:
        name, equals, _ = word.partition("=")
        if equals:
            assert re.search(rf"\b{name}\b", makefile), word
        else:
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), word


@pytest.mark.parametrize("command", commands_of("pip"), ids=str)
def test_pip_can_install_the_packages(command: Command) -> None:
    """The folders exist, and the extras are defined in pyproject.toml."""
    assert command.words[1] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package in command.words[2:]:
        if package.startswith("."):
            folder, _, named = package.rstrip("]").partition("[")
            assert (ROOT / folder / "pyproject.toml").is_file()
            assert set(filter(None, named.split(","))) <= set(extras)
        else:
            requirement = Requirement(package)
            assert requirement.name == "trimaran"
            assert requirement.extras <= set(extras)


PYTHON = [*commands_of("python"), *commands_of("python3")]


@pytest.mark.parametrize("command", [each for each in PYTHON if not each.words[1].startswith("-")], ids=str)
def test_python_can_run_the_script(command: Command) -> None:
    """The script exists and defines each given option."""
    path, *rest = command.words[1:]
    folder = ROOT / path
    script = (folder / "__main__.py" if folder.is_dir() else folder).read_text()
    for option in (word for word in rest if word.startswith("--")):
        assert f'"{option.partition("=")[0]}"' in script


@pytest.mark.parametrize("command", [each for each in PYTHON if each.words[1].startswith("-")], ids=str)
def test_python_can_run_the_module(command: Command) -> None:
    """The module can be found."""
    option, module = command.words[1:3]
    assert option == "-m"
    assert importlib.util.find_spec(module)


# -- run ----------------------------------------------------------------------------------------------------------

NODES = ("node-1", "node-2", "node-3", "worker-1", "worker-2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files named on the pages."""
    folder = tmp_path_factory.mktemp("documented")
    (folder / "examples").symlink_to(ROOT / "examples")
    loads = {name: {"cpu": 20 + 5 * place, "memory": 40} for place, name in enumerate(NODES)}
    (folder / "loads.json").write_text(json.dumps(loads))
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    nodes = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}}
        for name in NODES
    ]
    pod = yaml.safe_load((ROOT / "examples/pod.yaml").read_text())
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": pod}}
    enabled = [{"name": "LoadVariationRiskBalancing", "weight": 1}]
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "load-aware", "plugins": {"score": {"enabled": enabled}}}],
    }
    documents = {
        "nodes.yaml": {"kind": "NodeList", "items": nodes},
        "pods.yaml": {"kind": "PodList", "items": [pod]},
        "deployment.yaml": deployment,
        "scheduler.yaml": scheduler,
    }
    for name, document in documents.items():
        (folder / name).write_text(yaml.safe_dump(document))
        (folder / name).with_suffix(".json").write_text(json.dumps(document))
    (folder / "token").write_text("a token of sixteen letters\n")
    rendered = CliRunner().invoke(
        main, ["extender", "config", str(folder / "scheduler.yaml"), "--kubernetes-version", "1.37"]
    )
    (folder / "kube-scheduler.yaml").write_text(rendered.stdout)
    return folder


#: Commands that end, and need only a watcher and files.
ONCE = {"top", "score", "compare", "doctor", "config", "place", "workloads"}
#: Options that need a cluster, certificates, input, a real address, or more time than a test has.
ELSEWHERE = {
    "--cluster",
    "--kube-config",
    "--scheduler",
    "--worth-it",
    "--nodes=-",
    "--ca-file",
    "--client-certificate",
    "--watch",
    "--bind",
}


def can_run(command: Command) -> bool:
    """Return whether a command ends and needs only a watcher and the files of ``folder``."""
    words = command.words[1:]
    if not words or command.reads_pipe or ELSEWHERE & set(words) or any(word.isupper() for word in words):
        return False
    if words[:2] == ("extender", "config"):
        return len(words) > 2 and ("scheduler.yaml" in words or "kube-scheduler.yaml" in words)
    complete = command.whole or len(words) > 1 or words[0] in {"doctor", "config", "top"}
    if words == ("config", "check") or "[NODE]" in words:
        return False
    return words[0] in ONCE and complete


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Run a watcher with the nodes named on the pages; yield its address."""
    service = Service(
        folder / "watcher.sqlite", folder / "watcher.log", "--provider", "Fake",
        "--set", f"fake.file={folder / 'loads.json'}", "--interval", "1",
        # Windows and operators that placement needs in addition.
        "--set", "watch.windows=24h,15m,10m,5m", "--set", "watch.operators=AVG,STD,MAX",
    )  # fmt: skip
    try:
        service.wait_for("/readyz")
        service.wait_for("/workloads")
        yield service.url
    finally:
        service.terminate()


RUN = [command for command in commands_of("trimaran") if can_run(command)]


def test_enough_commands_are_run() -> None:
    """Every command in ``ONCE`` is run at least once."""
    assert {command.words[1] for command in RUN} == ONCE | {"extender"}
    assert len(RUN) >= 25


@pytest.mark.parametrize("command", RUN, ids=str)
def test_the_command_succeeds(command: Command, address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a watcher and the files that it names, the command exits with status 0."""
    monkeypatch.chdir(folder)
    for name, value in {"METRICS_PROVIDER_NAME": "Fake", "TRIMARAN_FAKE__FILE": "loads.json"}.items():
        monkeypatch.setenv(name, value)
    words = [ADDRESS.sub(address, word) for word in command.words[1:]]
    if "--for" in words:
        del words[words.index("--for") : words.index("--for") + 2]  # one comparison instead of an hour
    if words[0] == "place":
        words += ["--rounds", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert result.output


@pytest.mark.parametrize("command", commands_of("curl"), ids=str)
def test_the_watcher_serves_the_route(command: Command, address: str) -> None:
    """The watcher responds to the documented curl command with status 200."""
    words = list(command.words[1:])
    headers = {}
    if "--header" in words:
        at = words.index("--header")
        name, _, headers[name] = words[at + 1].partition(": ")
        del words[at : at + 2]
    *options, url = words
    assert set(options) <= {"-s"}
    assert ADDRESS.match(url)
    answer = requests.get(ADDRESS.sub(address, url), headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
