"""One package with a score plugin and a provider: built as a wheel, installed offline, and used in every place."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
import requests
from control_plane.processes import Process
from support.extending import extender_args
from support.fake_kubernetes import node, run_fake_kubernetes
from support.servers import reply, serving
from support.wheels import ROOT, Site, build_wheels, install, run

from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

pytestmark = pytest.mark.slow

EXAMPLES = (ROOT / "examples/plugin", ROOT / "examples/provider")
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "our-site"
version = "2.1"
dependencies = ["trimaran"]

[project.entry-points."trimaran.plugins"]
CoolMemory = "trimaran_cool_memory:CoolMemory"

[project.entry-points."trimaran.providers"]
Inventory = "trimaran_inventory:InventoryProvider"

[tool.hatch.build.targets.wheel]
include = ["trimaran_*.py"]
"""
MEMORY = {"node-1": 40.0, "node-2": 10.0, "node-3": 75.0}
SCORES = {"node-1": 60, "node-2": 90, "node-3": 0}  # 100 - memory, 0 above the target of 70


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the wheel of trimaran."""
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Site:
    """Environment with a package that has the plugin and the provider of the examples."""
    source = tmp_path_factory.mktemp("own") / "our-site"
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    for example in EXAMPLES:
        for path in example.glob("*.*"):
            if path.suffix in {".py", ".yaml"}:
                shutil.copy(path, source)
    return install(source, wheels)


@pytest.fixture(scope="module")
def inventory() -> Iterator[str]:
    """URL of the inventory; it has a node without a value, which must cost no other node."""

    def answer(handler) -> None:
        load = {name: {"at": time.time(), "cpu": 20.0, "memory": memory} for name, memory in MEMORY.items()}
        reply(handler, {**load, "broken": {"at": time.time()}})

    with serving(answer) as server:
        yield server.url


@contextmanager
def running(command: list[str], log: Path) -> Iterator[str]:
    """Run a service until it is ready, and until the block ends; yield its address."""
    with Process(command, log) as process:
        process.wait_until(lambda: requests.get(f"{process.url}/readyz", timeout=5).ok, "it is ready")
        yield process.url


@pytest.fixture(scope="module")
def watcher(site: Site, inventory: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of ``trimaran watch`` with the provider."""
    command = site.command("watch", "--provider", "Inventory", "--address", inventory, "--port", 0)
    with running(command, tmp_path_factory.mktemp("watcher") / "log") as url:
        yield url


def test_the_environment_has_the_installed_packages(site: Site) -> None:
    """The modules are those of the wheels, and not of this checkout."""
    program = "import trimaran, trimaran_cool_memory, trimaran_inventory as i; print(trimaran.__file__, i.__file__)"
    shown = run(site.python, "-c", program, cwd=site.source.parent).stdout.split()
    assert [str(site.python.parent.parent) in path for path in shown] == [True, True]


def test_watch_measures_by_the_provider(watcher: str) -> None:
    """``trimaran watch`` serves the provider's nodes, and a finding names the node that cannot be read."""
    served = requests.get(f"{watcher}/watcher", timeout=60).json()
    memory = {
        name: metric["value"]
        for name, load in served["data"].items()
        for metric in load["metrics"]
        if (metric["type"], metric["operator"]) == ("Memory", "AVG")
    }
    assert (served["source"], memory) == ("Inventory", MEMORY)
    findings = requests.get(f"{watcher}/findings", timeout=60).json()["findings"]
    assert ("bad_value", "broken") in {(finding["kind"], finding["node"]) for finding in findings}


def test_doctor_checks_the_provider(site: Site, inventory: str) -> None:
    """``trimaran doctor`` runs the provider's steps, and reports the node that cannot be read."""
    done = run(*site.command("doctor", "--provider", "Inventory", "--address", inventory), cwd=site.source)
    assert re.search("^ok    Inventory: read /load: 3 nodes", done.stdout, re.MULTILINE)
    assert re.search("^FAIL  Inventory: bad value: broken", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("selected", [("--config", "scheduler.yaml"), ("--plugin", "CoolMemory")])
def test_score_ranks_by_the_plugin(site: Site, watcher: str, selected: tuple[str, str]) -> None:
    """``trimaran score`` ranks by the plugin, in a file and by its name, over the provider's metrics."""
    files = ("--pod", ROOT / "examples/pod.yaml", "--nodes", ROOT / "examples/nodes.yaml", "--watcher", watcher)
    shown = json.loads(site.run("score", *selected, *files, "-o", "json").stdout)
    scores = {
        entry["name"]: plugin["score"]
        for entry in shown["nodes"]
        for plugin in entry["plugins"]
        if plugin["name"] == "CoolMemory"
    }
    # Without the file the target is 80, so that node-3 is below it.
    assert scores == (SCORES if selected[0] == "--config" else {**SCORES, "node-3": 25})


def test_the_extender_answers_with_the_plugin(site: Site, watcher: str, tmp_path: Path) -> None:
    """POST /prioritize of an extender in mode active returns 5 x weight x the plugin's scores."""
    with run_fake_kubernetes(tmp_path) as fake:
        for name in MEMORY:
            fake.put("nodes", node(name))
        command = site.command(
            "extender", "--config", site.source / "scheduler.yaml", "--kube-config", fake.kube_config(), "--watcher",
            watcher, "--port", 0, "--set", "extender.mode=active", "--set", "extender.canary=100",
        )  # fmt: skip
        with running(command, tmp_path / "extender.log") as url:
            body = orjson.dumps(extender_args(*MEMORY, scheduler="default-scheduler"))
            answer = requests.post(f"{url}/prioritize", body, timeout=60).json()
    assert {entry["Host"]: entry["Score"] for entry in answer} == {
        name: 5 * 2 * score for name, score in SCORES.items()
    }


def test_simulate_compares_the_policy(site: Site, tmp_path: Path) -> None:
    """``trimaran simulate compare`` has the policy of the file in its tables, with intervals, and in the report."""
    worlds = [tmp_path / f"world-{seed}" for seed in range(5)]
    for seed, folder in enumerate(worlds):
        write_trace(Synthetic(seed, nodes=6, minutes=6 * 60, warm_up_minutes=60).trace(), folder)
    done = site.run(
        "simulate", "compare", "--trace", *worlds, "--policy", "own=scheduler.yaml", "--policy", "default",
        "--policy", "clairvoyant", "--html", tmp_path / "report.html",
    )  # fmt: skip
    assert "5 worlds: mean, 95 % bootstrap interval" in done.stdout
    assert len(re.findall(r"^own +-?\d", done.stdout, re.MULTILINE)) == 5 + 2  # worlds, means, and the gap closed
    assert ">own<" in (tmp_path / "report.html").read_text()
    (section,) = json.loads((tmp_path / "report.json").read_text())
    assert section["means"]["own"]["hot_minutes_80"]["low"] is not None
    assert section["means"]["own"] != section["means"]["default"]


def test_both_contracts_pass(site: Site) -> None:
    """The suites of ``scoring.testing`` and ``watcher.testing`` run in the package's own folder."""
    flags = ("-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:dash", "-p", "no:xdist")
    done = run(site.python, "-m", "pytest", *flags, "test_cool_memory.py", "test_inventory.py", cwd=site.source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


def test_the_page_leads_from_an_empty_folder_to_a_comparison(tmp_path: Path, wheels: Path) -> None:
    """The files of "Your first plugin" in an empty folder, and its commands as written, compare the plugin."""
    page = (ROOT / "docs/extending.md").read_text().partition("### Your first plugin")[2].partition("\n### ")[0]
    source = tmp_path / "empty"
    source.mkdir()
    for name, content in re.findall(r"`([\w.]+)`[^`]*:\n\n```(?:python|toml|yaml)\n(.*?)```", page, re.DOTALL):
        (source / name).write_text(content)
    assert len(list(source.iterdir())) == 3
    commands = re.search(r"```console\n(\$ pip install \.\n.*?)```", page, re.DOTALL)
    assert commands
    first = Site(install(source, wheels).python, source)
    for line in commands[1].replace("$ ", "").splitlines()[1:]:
        done = first.run(*line.split()[1:])
    assert re.search(r"^mine +\d", done.stdout, re.MULTILINE)
