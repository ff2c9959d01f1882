"""Comparison of policies from Python: the results of the command line, with plugins that are not installed."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from support.plugin_packages import EXAMPLE

from scoring import (
    CongestionCost,
    LoadVariationRiskBalancing,
    NodeResourcesFit,
    Profile,
    TargetLoadPacking,
    WeightedPlugin,
)
from trimaran import simulator
from trimaran.cli.main import main
from trimaran.simulator import compare, read_trace
from trimaran.simulator.policies.catalogue import configuration_of
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

ROOT = EXAMPLE.parents[1]
# The same policy as a profile and as a file.
PROFILE = Profile((WeightedPlugin(TargetLoadPacking(90), 2), WeightedPlugin(NodeResourcesFit("MostAllocated"), 3)))
DOCUMENT = yaml.safe_load("""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: TargetLoadPacking, weight: 2}, {name: NodeResourcesFit, weight: 3}]}}
  pluginConfig:
  - {name: TargetLoadPacking, args: {targetUtilization: 90, countRecentPods: false}}
  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
""")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory) -> Path:
    """Folder with the small worlds a and b."""
    folder = tmp_path_factory.mktemp("compared") / "worlds"
    for seed, name in enumerate("ab"):
        write_trace(Synthetic(seed, nodes=8, minutes=10 * 60, warm_up_minutes=60).trace(), folder / name)
    return folder


def test_the_results_are_those_of_the_command_line(worlds, tmp_path):
    """A profile, the same profile as a mapping, and the command line with its file have the same measures."""
    traces, profiles = [read_trace(worlds / "a")], {"mine": PROFILE, "file": DOCUMENT}
    compared = compare(traces, profiles, overcommit=(2.0, 2.0), seed=3, seeds=2)
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT))
    options = ["--overcommit", "2", "--seed", "3", "--seeds", "2", "-o", "json"]
    command = ["simulate", "compare", "--trace", str(worlds / "a"), *options]
    done = CliRunner().invoke(main, [*command, "--policy", f"mine={file}", "--policy", "default"])
    assert done.exit_code == 0, done.stderr
    shown = json.loads(done.stdout)["a"]
    assert compared.measures["a"] == {**shown, "file": shown["mine"]}
    assert shown["mine"] != shown["default"]


def test_a_file_is_replayed_as_the_extender_would_run_it(worlds, tmp_path):
    """The extender's file scores by requests, as with ``extender.learned_use`` off, and by learned use on request."""
    profile, document = Profile.of(CongestionCost()), configuration_of(CongestionCost.name)
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    named = {False: "congestion-cost-by-requests", True: "congestion-cost"}
    hot = {}
    for learned_use, name in named.items():
        profiles = {"profile": profile, "file": document}
        compared = compare([read_trace(worlds / "a")], profiles, baselines=[name], learned_use=learned_use)
        command = ["simulate", "compare", "--trace", str(worlds / "a"), "--policy", f"command={file}", "-o", "json"]
        done = CliRunner().invoke(main, [*command, *["--learned-use"] * learned_use])
        assert done.exit_code == 0, done.stderr
        measured = compared.measures["a"] | json.loads(done.stdout)["a"]
        assert measured == dict.fromkeys(measured, measured[name])
        hot[name] = measured[name]
    assert hot["congestion-cost"] != hot["congestion-cost-by-requests"]


# In a process of its own, as joblib keeps its processes for the next call.
SIDE_BY_SIDE = """
import sys
from scoring import NodeResourcesFit, Profile, TargetLoadPacking, WeightedPlugin
from trimaran.simulator import compare, read_trace

profile = Profile((WeightedPlugin(TargetLoadPacking(90), 2), WeightedPlugin(NodeResourcesFit("MostAllocated"), 3)))
traces = [read_trace(folder) for folder in sys.argv[1:]]
in_two = compare(traces, {"mine": profile}, jobs=2)
assert in_two == compare(traces, {"mine": profile})
print(*in_two.measures)
"""


def test_processes_change_no_result(worlds):
    """Replays in two processes have the results of replays in one."""
    command = [sys.executable, "-c", SIDE_BY_SIDE, str(worlds / "a"), str(worlds / "b")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("a b\n", 0), done.stderr


def test_the_report_has_all_parts(worlds, tmp_path):
    """The HTML report and its JSON have the worlds, the means and a heat map of the first world."""
    traces = [read_trace(worlds / name) for name in "ab"]
    compared = compare(traces, {"mine": Profile.of(LoadVariationRiskBalancing())})
    compared.write_html(str(tmp_path / "report.html"))
    (section,) = json.loads((tmp_path / "report.json").read_text())
    assert section["worlds"] == compared.measures
    assert list(section["means"]) == list(compared.means()) == ["mine", "default"]
    assert list(section["heat"]["cpu_percent"]) == ["mine", "default"]
    assert "2 worlds, each at its own overcommit" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("names", "arguments", "problem"),
    [
        ("", {}, "traces: give at least one trace to replay"),
        ("aa", {}, r"traces: two are named a; name one with dataclasses.replace\(trace, name=...\)"),
        ("a", {"profiles": {"default": PROFILE}}, "profiles: the name default is taken; choose another name"),
        ("a", {"baselines": ["defaults"]}, "baselines: unknown policy defaults; policies are: default, "),
        (
            "a",
            {"profiles": ["default"]},
            "profiles: must be a mapping of names to profiles; policies .* go into baselines",
        ),
        ("a", {"profiles": None}, "profiles: must be a mapping of names to profiles"),
        ("a", {"profiles": {"mine": {}}}, "kind: must be KubeSchedulerConfiguration"),
        ("a", {"baselines": []}, "profiles, baselines: name at least one policy to replay"),
        ("a", {"seeds": 0}, "seeds: must be a whole number of at least 1, got 0"),
        ("a", {"seeds": -2}, "seeds: must be a whole number of at least 1, got -2"),
        ("a", {"seed": -1}, "seed: must be a whole number of at least 0, got -1"),
        ("a", {"seeds": 1.5}, "seeds: must be a whole number of at least 1, got 1.5"),
        ("a", {"seed": "1"}, "seed: must be a whole number of at least 0, got '1'"),
        ("a", {"jobs": None}, "jobs: must be a whole number of at least -1, got None"),
        ("a", {"overcommit": ("2", 1)}, "overcommit: must be two numbers"),
        ("a", {"jobs": 0}, "jobs: must not be 0; -1 starts one process per processor"),
        ("a", {"overcommit": (0, 1)}, "overcommit: must be two numbers from 0.01 to 1000, for CPU and memory, got"),
        ("a", {"overcommit": 2}, "overcommit: must be two numbers"),
        ("a", {"overcommit": (2,)}, "overcommit: must be two numbers"),
    ],
)
def test_mistakes_are_named(worlds, names, arguments, problem):
    """Wrong arguments are ValueErrors with the argument's name and the remedy, before any replay."""
    with pytest.raises(ValueError, match=problem):
        compare([read_trace(worlds / name) for name in names], **{"profiles": {}, **arguments})


@pytest.mark.parametrize(
    ("as_traces", "arguments", "problem"),
    [
        (str, {}, r"traces: must be a list of traces, such as \[read_trace\('worlds/a'\)\]"),
        (read_trace, {}, "traces: must be a list of traces"),
        (lambda _: None, {}, "traces: must be a list of traces"),
        (lambda folder: folder, {}, "traces: must be a list of traces"),
        (lambda folder: [folder], {}, "traces: must be Trace objects, got .*; use read_trace to read a folder"),
        (lambda folder: [read_trace(folder)], {"baselines": "default"}, "list of names, such as .'default'"),
    ],
)
def test_arguments_of_another_type_are_named(worlds, as_traces, arguments, problem):
    """A path for a trace, one trace for a list, and a text for a list of names are errors with the remedy."""
    with pytest.raises(ValueError, match=problem):
        compare(as_traces(worlds / "a"), {}, **arguments)


def test_the_public_surface_is_pinned():
    """Names and signatures of trimaran.simulator stay the same: programs of users call them."""
    shown = {}
    for name in simulator.__all__:
        exported = getattr(simulator, name)
        members = inspect.getmembers(exported) if name == "PolicyComparison" else [("", exported)]
        for member, value in members:
            if inspect.isfunction(value) and not member.startswith("_"):
                shown[f"{name}.{member}".rstrip(".")] = str(inspect.signature(value))
            elif isinstance(value, property):
                shown[f"{name}.{member}"] = "property"
    signature = (
        "(traces: collections.abc.Iterable[trimaran.traces.trace.Trace], "
        "profiles: collections.abc.Mapping[str, scoring.profiles.profile.Profile | "
        "collections.abc.Mapping[str, typing.Any]], *, baselines: collections.abc.Sequence[str] = ('default',), "
        "seed: int = 0, seeds: int = 1, overcommit: tuple[float, float] | None = None, "
        "learned_use: bool = False, jobs: int = 1) -> "
        "trimaran.simulator.policy_comparison.PolicyComparison"
    )
    interval = "dict[str, dict[str, trimaran.simulator.report.statistics.Interval]]"
    # Python 3.13 shows the private module of Path.
    shown = {name: text.replace(f"{Path.__module__}.Path", "pathlib.Path") for name, text in shown.items()}
    assert shown == {
        "PolicyComparison.gaps_closed": f"(self) -> dict[str, {interval}]",
        "PolicyComparison.means": f"(self) -> {interval}",
        "PolicyComparison.measures": "property",
        "PolicyComparison.write_html": "(self, path: pathlib.Path | str) -> None",
        "compare": signature,
        "policy_names": "() -> list[str]",
        "read_trace": "(folder: pathlib.Path | str) -> trimaran.traces.trace.Trace",
    }


def test_the_example_of_the_page_runs(worlds):
    """The ten lines of docs/simulator.md run as written, and show tables, intervals, gaps and the report."""
    page = (ROOT / "docs" / "simulator.md").read_text()
    (example,) = re.findall(r"```python\n(from scoring import CongestionCost.*?)```", page, re.DOTALL)
    assert len(example.strip().splitlines()) <= 11
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command, folder = [sys.executable, "-c", example], worlds.parent
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    for part in ("2 worlds: mean", "gap closed, %: default is 0, clairvoyant 100", "Interval(mean=", "low=None"):
        assert part in done.stdout
    assert "unowned" in (folder / "report.html").read_text()
