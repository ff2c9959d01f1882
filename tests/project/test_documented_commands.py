"""Every command in the documentation can be called so, and those that need nothing but a watcher are called."""

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
from support.servers import Service, free_port

from runtime.settings.loading import environment_variable, setting_names
from trimaran.cli.main import main
from trimaran.extender.settings import ExtenderSettings
from trimaran.soft_taints.settings import NodesSettings
from watcher.settings import UPSTREAM_VARIABLES, WatcherSettings

COMMANDS = documented_commands()
#: What stands for the watchers of the pages.
ADDRESS = re.compile(r"(?:http://)?(?:127\.0\.0\.1|localhost|trimaran|trimaran\.trimaran|load-watcher):20\d\d")


def of(program: str) -> list[Command]:
    """Return the commands of a program, each once; test_cli has those that complete others."""
    own = (command for command in COMMANDS if command.words[0] == program)
    return list({command.words: command for command in own if "_TRIMARAN_COMPLETE" not in command.variables}.values())


def parse(words: tuple[str, ...], *, whole: bool) -> None:
    """Parse a command line as ``trimaran`` would; what is only mentioned may leave out what it needs."""
    group, arguments, context = main, list(words[1:]), None
    try:
        while True:
            context = group.make_context(group.name, arguments, parent=context)
            rest = [*getattr(context, "_protected_args", ()), *context.args]  # click 9 will have all in args
            if not isinstance(group, click.Group) or not rest:
                assert not rest, rest
                return
            _, group, arguments = group.resolve_command(context, rest)
            assert group is not None
    except click.exceptions.Exit:  # --help, --version
        return
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
        assert not whole


def test_the_pages_show_commands() -> None:
    """They are found: in blocks, in text, behind variables and in pipes."""
    whole = {command.words for command in COMMANDS if command.whole}
    assert ("trimaran", "compare", "http://load-watcher:2020", "http://trimaran:2020", "--for", "1h") in whole
    assert ("make", "image") in whole
    assert ("python", "examples/scheduler.py") in {command.words[:2] for command in COMMANDS}
    assert {"METRICS_PROVIDER_NAME": "KubernetesMetricsServer", "KUBE_CONFIG": "~/.kube/config"} in [
        command.variables for command in COMMANDS
    ]
    assert len(COMMANDS) > 150


@pytest.mark.parametrize("command", of("trimaran"), ids=str)
def test_trimaran_takes_it(command: Command) -> None:
    """The command exists, and so does each option, with a value that it takes."""
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
def test_what_trimaran_does_not_take_is_seen(words: tuple[str, ...]) -> None:
    """The parser that checks the pages refuses what the command line refuses."""
    with pytest.raises((click.UsageError, AssertionError)):
        parse(words, whole=True)


def test_variables_before_a_command_are_settings() -> None:
    """Each is one that the settings read."""
    known = {*UPSTREAM_VARIABLES, *map(environment_variable, setting_names(WatcherSettings)), "_TRIMARAN_COMPLETE"}
    named = {name for command in COMMANDS if command.words[0] in {"trimaran", "export"} for name in command.variables}
    assert "METRICS_PROVIDER_ADDRESS" in named
    assert named <= known


def test_what_is_set_is_a_setting() -> None:
    """``--set`` names settings of the watcher, or of the service that is started."""
    known = {*setting_names(WatcherSettings), *setting_names(ExtenderSettings), *setting_names(NodesSettings)}
    named = {
        assignment.partition("=")[0]
        for command in of("trimaran")
        for option, assignment in pairwise(command.words)
        if option == "--set"
    }
    assert "server.client_ca_file" in named
    assert named <= known


@pytest.mark.parametrize("command", of("make"), ids=str)
def test_make_knows_it(command: Command) -> None:
    """Targets and variables are the Makefile's."""
    makefile = (ROOT / "Makefile").read_text()
    for word in command.words[1:]:
        name, equals, _ = word.partition("=")
        if equals:
            assert re.search(rf"\b{name}\b", makefile), word
        else:
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), word


@pytest.mark.parametrize("command", of("pip"), ids=str)
def test_pip_can_install_it(command: Command) -> None:
    """Folders are there, and extras are those of pyproject.toml."""
    assert command.words[1] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for what in command.words[2:]:
        if what.startswith("."):
            folder, _, named = what.rstrip("]").partition("[")
            assert (ROOT / folder / "pyproject.toml").is_file()
            assert set(filter(None, named.split(","))) <= set(extras)
        else:
            requirement = Requirement(what)
            assert requirement.name == "trimaran"
            assert requirement.extras <= set(extras)


PYTHON = [*of("python"), *of("python3")]


@pytest.mark.parametrize("command", [each for each in PYTHON if not each.words[1].startswith("-")], ids=str)
def test_python_can_run_the_script(command: Command) -> None:
    """The script exists, and names each option that it is given."""
    path, *rest = command.words[1:]
    script = (ROOT / path).read_text()
    for option in (word for word in rest if word.startswith("--")):
        assert f'"{option.partition("=")[0]}"' in script


@pytest.mark.parametrize("command", [each for each in PYTHON if each.words[1].startswith("-")], ids=str)
def test_python_can_run_the_module(command: Command) -> None:
    """The module exists."""
    option, module = command.words[1:3]
    assert option == "-m"
    assert importlib.util.find_spec(module)


# -- run ----------------------------------------------------------------------------------------------------------

NODES = ("node-1", "node-2", "node-3", "worker-1", "worker-2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the pages name."""
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
    made = CliRunner().invoke(main, ["extender", "config", str(folder / "scheduler.yaml")])
    (folder / "kube-scheduler.yaml").write_text(made.output)
    return folder


#: Those that end by themselves, and need a watcher, files and nothing else.
ONCE = {"top", "score", "compare", "doctor", "config", "place"}
#: What needs a cluster, certificates, somebody's input, a real address, or more time than a test has.
ELSEWHERE = {"--cluster", "--nodes=-", "--ca-file", "--client-certificate", "--watch", "--bind"}


def can_run(command: Command) -> bool:
    """Say whether a command ends by itself over a watcher and the files of ``folder``."""
    words = command.words[1:]
    if not words or command.fed or ELSEWHERE & set(words) or any(word.isupper() for word in words):
        return False
    if words[:2] == ("extender", "config"):
        return len(words) > 2 and ("scheduler.yaml" in words or "kube-scheduler.yaml" in words)
    complete = command.whole or len(words) > 1 or words[0] in {"doctor", "config", "top"}
    if words == ("config", "check") or "[NODE]" in words:
        return False
    return words[0] in ONCE and complete


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Run a watcher that knows the nodes of the pages; yields its address."""
    service = Service(
        folder / "watcher.sqlite", folder / "watcher.log", free_port(), "--provider", "Fake",
        "--set", f"fake.file={folder / 'loads.json'}", "--interval", "1",
        # What placement asks for besides.
        "--set", "watch.windows=24h,15m,10m,5m", "--set", "watch.default_window=15m",
        "--set", "watch.operators=AVG,STD,MAX",
    )  # fmt: skip
    try:
        service.wait_for("/readyz")
        yield service.url
    finally:
        service.terminate()


RUN = [command for command in of("trimaran") if can_run(command)]


def test_what_runs_is_not_little() -> None:
    """Each of the commands that can is among those that run."""
    assert {command.words[1] for command in RUN} == ONCE | {"extender"}
    assert len(RUN) >= 25


@pytest.mark.parametrize("command", RUN, ids=str)
def test_it_runs(command: Command, address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of a watcher, in a folder with the files that it names, it ends with status 0."""
    monkeypatch.chdir(folder)
    for name, value in {"METRICS_PROVIDER_NAME": "Fake", "TRIMARAN_FAKE__FILE": "loads.json"}.items():
        monkeypatch.setenv(name, value)
    words = [ADDRESS.sub(address, word) for word in command.words[1:]]
    if "--for" in words:
        del words[words.index("--for") : words.index("--for") + 2]  # once, in place of an hour
    if words[0] == "place":
        words += ["--rounds", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert result.output


@pytest.mark.parametrize("command", of("curl"), ids=str)
def test_curl_is_answered(command: Command, address: str) -> None:
    """The route is the watcher's."""
    words = list(command.words[1:])
    headers = {}
    if "--header" in words:
        at = words.index("--header")
        name, _, headers[name] = words[at + 1].partition(": ")
        del words[at : at + 2]
    *options, url = words
    assert set(options) <= {"-s"}
    assert ADDRESS.match(url)
    answer = requests.get(ADDRESS.sub(address, url), headers=headers, timeout=10)
    assert answer.status_code == 200, answer.text
