"""Score plugins of other packages: read from entry points, named in a KubeSchedulerConfiguration, used everywhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import yaml
from click.testing import CliRunner
from support.dask_cluster import dask_cluster
from support.plugin_packages import EXAMPLE, install_example, register
from support.worlds import small_world

from scoring import PodState, Profile, plugin_from_config, read_configuration
from scoring.profiles.configuration.plugins import PLUGINS
from trimaran.cli.main import main
from trimaran.extender.kube_scheduler import ExtenderEndpoint, in_tree_by_scheduler, render_config, validate_config
from trimaran.extender.profiles import Profiles, our_plugins
from trimaran.plugins import installed_plugins
from trimaran.scheduler.profiles.configuration import read_setup
from trimaran.simulator.policies.standalone import standalone_policy
from trimaran.simulator.replay import Replay
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

ROOT = EXAMPLE.parents[1]
CONFIGURATION = yaml.safe_load((EXAMPLE / "scheduler.yaml").read_text())


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Folder on the path of Python, in which packages can be installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_plugins.cache_clear()
    yield tmp_path
    installed_plugins.cache_clear()
    sys.modules.pop("trimaran_cool_memory", None)


def trimaran(site, *arguments):
    """Run the command line with the packages of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "trimaran", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=EXAMPLE.parents[1]
    )


def test_an_installed_plugin_is_read_with_its_arguments(site):
    """The fields of the dataclass are the arguments, with keys in camel case."""
    install_example(site)
    (cool_memory,) = installed_plugins()
    read = read_configuration(CONFIGURATION, plugins=installed_plugins())
    (weighted,) = (each for each in read.profile().plugins if each.plugin.name == "CoolMemory")
    assert weighted.plugin == cool_memory(target_percent=70)
    assert weighted.weight == 2
    assert {note.status for note in read.notes if "CoolMemory" in note.path} == {"honored"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targetPercent": 101}, "CoolMemoryArgs.targetPercent: must be from 0 to 100, got 101"),
        ({"targetPercent": "70"}, "CoolMemoryArgs.targetPercent: "),
    ],
)
def test_arguments_are_checked_by_the_annotations(site, arguments, message):
    """A value outside the annotation is refused with the key's path, without code of the plugin."""
    install_example(site)
    with pytest.raises(ValueError, match=r":|plugin") as caught:
        plugin_from_config("CoolMemory", arguments, plugins=installed_plugins())
    assert str(caught.value).startswith(message)


def test_an_unknown_argument_is_reported(site):
    """A misspelled key is unknown, and the right one is suggested."""
    install_example(site)
    notes = []
    plugin_from_config("CoolMemory", {"targetPercnt": 7}, notes, plugins=installed_plugins())
    assert [str(note) for note in notes] == [
        "unknown  CoolMemoryArgs.targetPercnt: there is no such key; did you mean targetPercent?"
    ]


@dataclass(frozen=True)
class Required(PodState):
    """Plugin with an argument without a default, one that may be absent, and a list."""

    pool: str
    zone: str | None = None
    labels: tuple[str, ...] = ()

    name: ClassVar[str] = "Required"

    def __post_init__(self):
        if self.pool == "closed":
            raise ValueError("the pool closed gets no pods")


@dataclass(frozen=True)
class OwnReader(Required):
    """Plugin that reads its arguments itself."""

    name: ClassVar[str] = "OwnReader"

    @classmethod
    def from_config(cls, arguments):
        return cls(pool=arguments["pools"][0]["name"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "RequiredArgs.pool: is required"),
        ({"pool": "closed"}, "RequiredArgs: the pool closed gets no pods"),
        ({"pool": "a", "zone": 5}, "RequiredArgs.zone: "),
        ({"pool": "a", "labels": ["x", 5]}, "RequiredArgs.labels[1]: "),
    ],
)
def test_wrong_arguments_name_the_key(arguments, message):
    """Missing arguments, errors of the constructor, and elements of optional and listed arguments are refused."""
    with pytest.raises(ValueError, match=r":|plugin") as caught:
        plugin_from_config("Required", arguments, plugins=[Required])
    assert str(caught.value).startswith(message)


def test_lists_and_own_readers():
    """A list of the file is a tuple; a plugin with from_config gets the arguments as in the file."""
    written = {"pool": "a", "zone": "z", "labels": ["x"], "kind": "RequiredArgs"}
    assert plugin_from_config("Required", written, plugins=[Required]) == Required("a", "z", ("x",))
    written = {"pools": [{"name": "b"}], "apiVersion": "v1"}
    assert plugin_from_config("OwnReader", written, plugins=[OwnReader]) == OwnReader("b")


@pytest.mark.parametrize("name", ["CongestionCost", "NodeResourcesFit", "InterPodAffinity"])
def test_a_name_that_is_taken_is_refused(name):
    """A plugin cannot replace one of ours or of kube-scheduler, nor can two have the same name."""
    taken = dataclass(frozen=True)(type("Mine", (PodState,), {"name": name}))
    with pytest.raises(ValueError, match=f"Mine: .* {name} "):
        read_configuration(CONFIGURATION, plugins=[taken])
    with pytest.raises(ValueError, match="Required: "):
        read_configuration(CONFIGURATION, plugins=[Required, Required])


@pytest.mark.parametrize(
    ("entry_point", "problem"),
    [
        ("Cool = missing_module:Cool", "cannot be loaded: No module named 'missing_module'; repair or uninstall"),
        ("Cool = trimaran_cool_memory:Hot", "cannot be loaded: "),
        ("Cool = trimaran_cool_memory:CoolMemory", "must have the same name as the class, got 'CoolMemory'"),
        ("Cool = trimaran_cool_memory:np", "must be a dataclass derived from scoring.ScorePlugin"),
    ],
)
def test_a_broken_package_is_named(site, entry_point, problem):
    """A plugin that cannot be used is an error that names plugin and package."""
    install_example(site)
    register(site, "trimaran-broken", entry_point)
    with pytest.raises(ValueError, match=r":|plugin") as caught:
        installed_plugins()
    assert str(caught.value).startswith(f"plugin Cool of the package trimaran-broken {problem}")


def test_the_extender_scores_by_it(site):
    """The extender takes the plugin over, and kube-scheduler's file does not have it."""
    with pytest.raises(ValueError, match="'CoolMemory'"):
        Profiles.read(CONFIGURATION)
    install_example(site)
    installed_plugins.cache_clear()
    assert "CoolMemory" in our_plugins()
    profiles = Profiles.read(CONFIGURATION)
    (weighted,) = profiles.by_scheduler["default-scheduler"].profile.plugins
    assert (weighted.plugin.name, weighted.plugin.target_percent) == ("CoolMemory", 70)
    rendered = render_config(CONFIGURATION, ExtenderEndpoint("http://127.0.0.1:2021"))
    assert "CoolMemory" not in str(rendered)
    assert list(validate_config(rendered)) == []
    assert any("has no plugin CoolMemory" in problem for problem in validate_config(CONFIGURATION))
    in_tree = in_tree_by_scheduler(profiles)["default-scheduler"].profile
    assert "NodeResourcesFit" in {each.plugin.name for each in in_tree.plugins}


def test_recent_pods_count_by_default_in_the_extender(site):
    """A plugin with the argument countRecentPods counts pods in flight, as ours do."""
    (site / "recent.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\nfrom scoring import PodState\n"
        "@dataclass(frozen=True)\nclass Recent(PodState):\n"
        "    count_recent_pods: bool = False\n    name: ClassVar[str] = 'Recent'\n"
    )
    register(site, "recent", "Recent = recent:Recent")
    document = yaml.safe_load(yaml.safe_dump(CONFIGURATION).replace("CoolMemory", "Recent"))
    del document["profiles"][0]["pluginConfig"]
    (weighted,) = Profiles.read(document).by_scheduler["default-scheduler"].profile.plugins
    assert weighted.plugin.count_recent_pods
    assert not replace(weighted.plugin, count_recent_pods=False).count_recent_pods


def test_commands_use_it(site):
    """``trimaran score`` ranks and explains by the plugin, and ``config check`` says who can use the file."""
    install_example(site)
    scheduler = EXAMPLE / "scheduler.yaml"
    done = trimaran(
        site, "score", "--config", scheduler, "--pod", "examples/pod.yaml", "--nodes", "examples/nodes.yaml",
        "--watcher", "http://127.0.0.1:9", "-o", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["weights"]["CoolMemory"] == 2
    assert "CoolMemory" not in done.stderr
    checked = trimaran(site, "config", "check", scheduler, "--kubernetes-version", "1.36").stdout
    assert re.search("kube-scheduler with trimaran's extender +yes, converted by", checked)
    assert "2 x CoolMemory" in checked


SCORE = ("score", "--pod", "examples/pod.yaml", "--nodes", "examples/nodes.yaml", "--watcher", "http://127.0.0.1:9")


@pytest.mark.parametrize("name", sorted(PLUGINS - {"RequestedToCapacityRatio"}))
def test_every_included_plugin_scores_by_its_name(name):
    """``trimaran score --plugin`` takes every included plugin, with its default arguments."""
    done = CliRunner().invoke(main, [*SCORE, "--plugin", name, "-o", "json"])
    assert done.exit_code == 0, done.stderr
    assert list(json.loads(done.stdout)["weights"].values()) == [1]


def test_an_installed_plugin_scores_by_its_name(site, monkeypatch):
    """--plugin takes an installed plugin with default arguments, or with those of --config, and no other plugin."""
    install_example(site)
    used, arguments = [], [*SCORE, "--plugin", "CoolMemory", "--kubernetes-version", "1.37"]
    monkeypatch.setattr(Profile, "prepare", lambda self, *_: used.append(self) or 1 / 0)
    for options in ([], ["--config", str(EXAMPLE / "scheduler.yaml")]):
        CliRunner().invoke(main, [*arguments, *options])
    default, configured = used
    assert [(each.plugin.target_percent, each.weight) for each in default.plugins] == [(80, 1)]
    assert [(each.plugin.target_percent, each.weight) for each in configured.plugins] == [(70, 1)]


def test_a_plugin_that_needs_arguments_names_the_option():
    """Without --config, missing arguments are one line with the argument and the remedy."""
    done = CliRunner().invoke(main, [*SCORE, "--plugin", "RequestedToCapacityRatio"])
    remedy = "write the arguments into a KubeSchedulerConfiguration, and add --config"
    expected = f"trimaran: RequestedToCapacityRatioArgs.shape: must not be empty, got (); {remedy}\n"
    assert (done.exit_code, done.stderr) == (2, expected)


WRONG = """
from dataclasses import dataclass

from scoring import ScorePlugin
from scoring.plugins.base import WithoutNodeTerms


@dataclass(frozen=True)
class WrongScore(WithoutNodeTerms, ScorePlugin):
    name = "WrongScore"

    def pod_terms(self, pods, node, nodes, rows):
        return 1 / 0

    def line(self, terms):
        return "never"


@dataclass(frozen=True)
class Abstract(ScorePlugin):
    name = "Abstract"


@dataclass(frozen=True)
class NeverAgain(WrongScore):
    name = "NeverAgain"
    requeued_by = {"pod changed"}
"""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("WrongScore", "trimaran: running Score plugin WrongScore: ZeroDivisionError: "),
        ("Abstract", "trimaran: plugin Abstract of the package trimaran-wrong does not define line, node_terms"),
        ("NeverAgain", "NeverAgain of the package trimaran-wrong: requeued_by must be a set of scoring.ClusterEvent"),
    ],
)
def test_a_wrong_plugin_is_one_line(site, name, problem):
    """A plugin that fails, lacks a method, or names no event as one ends ``trimaran score`` with one line, status 2."""
    (site / "wrong.py").write_text(WRONG)
    register(site, "trimaran-wrong", f"{name} = wrong:{name}")
    enabled = {"score": {"enabled": [{"name": name}]}}
    file = site / "scheduler.yaml"
    file.write_text(yaml.safe_dump({**CONFIGURATION, "profiles": [{"schedulerName": "a", "plugins": enabled}]}))
    done = trimaran(site, *SCORE, "--config", file, "--kubernetes-version", "1.37")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert problem in done.stderr.splitlines()[-1]


def test_the_page_shows_the_example():
    """docs/extending.md has an exact copy of the files of the example."""
    page = (ROOT / "docs" / "extending.md").read_text()
    pairs = EXAMPLE.parent / "pairs" / "trimaran_pairs.py"
    for path in (*sorted(path for path in EXAMPLE.iterdir() if path.is_file()), pairs):
        language = {".py": "python", ".toml": "toml", ".yaml": "yaml"}[path.suffix]
        assert f"```{language}\n{path.read_text()}```\n" in page, path.name


def test_the_example_passes_its_own_tests(site):
    """The contract runs in another project's folder, with the installed plugin."""
    install_example(site)
    shutil.copy(EXAMPLE / "test_cool_memory.py", site)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:dash", site]
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=site, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


def test_the_example_is_short():
    """The plugin has at most 30 lines of code, without blank lines, docstrings and imports."""
    lines = map(str.strip, (EXAMPLE / "trimaran_cool_memory.py").read_text().splitlines())
    code = [line for line in lines if line and not line.startswith(('"""', "import ", "from "))]
    assert len(code) <= 30


def test_a_configuration_is_replayed_as_a_policy(site):
    """``simulate compare --policy NAME=FILE`` compares the plugins of files, also with other weights."""
    install_example(site)
    requests = site / "requests.yaml"
    document = yaml.safe_load(yaml.safe_dump(CONFIGURATION))
    document["profiles"][0] = {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 7}]}}}
    requests.write_text(yaml.safe_dump(document))
    write_trace(Synthetic(nodes=8, minutes=12 * 60, warm_up_minutes=60).trace(), site / "world")
    command = (
        "simulate", "compare", "--trace", site / "world", "--policy", f"cool={EXAMPLE / 'scheduler.yaml'}",
        "--policy", f"requests={requests}", "--policy", "default", "--resume-file", site / "done",
    )  # fmt: skip
    done = trimaran(site, *command, "--html", site / "report.html", "--json")
    assert done.returncode == 0, done.stderr
    (measures,) = yaml.safe_load(done.stdout).values()
    assert list(measures) == ["cool", "requests", "default"]
    assert measures["cool"] != measures["default"]
    assert "cool" in (site / "report.html").read_text()
    # A changed plugin and a changed file are replayed again; the others are not.
    requests.write_text(requests.read_text().replace("7", "8"))
    assert trimaran(site, *command).stderr.count(" s\n") == 1
    with (site / "trimaran_cool_memory.py").open("a") as plugin:
        plugin.write("# changed\n")
    assert trimaran(site, *command).stderr.count(" s\n") == 3


@pytest.mark.parametrize("point", ["multiPoint", "filter"])
def test_a_plugin_filters_in_the_scheduler_and_its_replays(site, point):
    """A plugin with ``filter`` refuses nodes where a file enables it; at ``filter`` alone it does not score."""
    install_example(site)
    document = yaml.safe_load(yaml.safe_dump(CONFIGURATION))
    arguments = [{"name": "CoolMemory", "args": {"sparePercent": 97}}]
    plugins = {point: {"enabled": [{"name": "CoolMemory"}]}}
    document["profiles"] = [{"schedulerName": "mine", "plugins": plugins, "pluginConfig": arguments}]
    (profile,) = read_setup(document).profiles
    assert profile.filters[-1].spare_percent == 97
    assert ("CoolMemory" in {each.plugin.name for each in profile.scores.plugins}) == (point == "multiPoint")
    outcome = Replay(small_world(2, [("Deployment", 0.5)] * 5), standalone_policy("mine", document)).run()
    assert sorted(run.node for run in outcome.cluster.pod_runs) == [0, 1]  # 1 of 64 GiB each
    assert len(outcome.unplaced) == 3


@pytest.mark.slow
def test_a_worker_without_the_plugin_is_named(site, tmp_path):
    """A Dask worker in an environment without the package is one line: worker, plugin, policy and remedy."""
    pytest.importorskip("distributed", reason="pip install distributed")
    install_example(site)
    write_trace(Synthetic(nodes=8, minutes=2 * 60, warm_up_minutes=60).trace(), site / "world")
    with dask_cluster(tmp_path, workers=1) as cluster:
        done = trimaran(
            site, "simulate", "compare", "--trace", site / "world", "--policy",
            f"cool={EXAMPLE / 'scheduler.yaml'}", "--scheduler", cluster.address,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("trimaran: ")]
    plugin = "does not have the plugin CoolMemory of trimaran-cool-memory==1.0, which the policy cool needs"
    remedy = "pip install trimaran-cool-memory==1.0 in the worker's environment"
    assert re.fullmatch(rf"trimaran: the worker tcp://127.0.0.1:\d+ \(process \d+ on .+\) {plugin}; {remedy}", line)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("default={file}", "--policy default={file}: the name default is taken; choose another name"),
        ("={file}", "--policy ={file}: the name is empty; write NAME=FILE"),
        ("mine={site}/missing.yaml", "{site}/missing.yaml "),
        ("mine={site}/two.yaml", "{site}/two.yaml, line 3: profiles: "),
        ("mine={file}", "'CoolMemory'"),
        ("mine={site}/old.yaml", "{site}/old.yaml, line 1: apiVersion: "),
    ],
)
def test_a_policy_that_cannot_be_replayed_is_refused(site, policy, problem):
    """A taken name, and a file that is missing or is not one policy, are one line and status 2."""
    profiles = [{"schedulerName": "a"}, {"schedulerName": "b"}]
    (site / "two.yaml").write_text(yaml.safe_dump({**CONFIGURATION, "profiles": profiles}))
    old = {"apiVersion": "kubescheduler.config.k8s.io/v1beta2", "kind": "KubeSchedulerConfiguration"}
    old["profiles"] = [{"plugins": {"score": {"enabled": [{"name": "CongestionCost"}]}}}]
    (site / "old.yaml").write_text(yaml.safe_dump(old))
    names = {"site": site, "file": EXAMPLE / "scheduler.yaml"}
    done = CliRunner().invoke(main, ["simulate", "compare", "--policy", policy.format(**names)])
    assert done.exit_code == 2
    assert problem.format(**names) in done.stderr


@pytest.mark.parametrize("command", ["simulate compare --list", "simulate run --policy default"])
def test_a_broken_package_is_one_line_of_the_simulator(site, command):
    """A plugin that cannot be loaded is one line and status 2, also where no file names it."""
    register(site, "trimaran-broken", "Cool = missing_module:Cool")
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 2
    assert "plugin Cool of the package trimaran-broken cannot be loaded" in done.stderr
