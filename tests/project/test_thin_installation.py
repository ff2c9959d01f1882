"""Installation without the extra ``watcher``, and next to other modules of our common names.

``make dist`` installs the wheel without it; here its modules are hidden.
"""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from trimaran.parts import OF_THE_WATCHER

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HIDDEN = f"import sys; sys.modules.update(dict.fromkeys({sorted(OF_THE_WATCHER)!r}));"
SCORE = """
from scoring import CongestionCost, Container, Node, NodeTable, Pod, Profile, ResourceList
from trimaran.client import connect
import trimaran.scoring, trimaran.watcher, scoring.testing
from watcher import WatcherMetrics, Window
room = ResourceList({"cpu": 1000})
nodes = NodeTable([Node("node-1", room, room)])
profile = Profile.of(CongestionCost()).prepare(nodes, WatcherMetrics(900, Window("15m", 0, 900), "none", {}))
profile.score(Pod(name="web", containers=(Container(ResourceList({"cpu": 100})),)))
connect("http://127.0.0.1:9").close()
"""


def run(program: str, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter in a folder, which comes first on its path."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, check=False)


def test_the_modules_are_those_of_the_extra() -> None:
    """The modules that messages ascribe to the extra are those of its packages in pyproject.toml."""
    listed = {re.split(r"[<>=]", each)[0].lower() for each in PROJECT["optional-dependencies"]["watcher"]}
    modules = packages_distributions()
    assert {modules[name][0].lower().replace("_", "-") for name in OF_THE_WATCHER} == listed


def test_clients_and_scores_work_without_it() -> None:
    """A library user scores a pod and connects to a service without any module of the extra."""
    done = run(HIDDEN + SCORE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("from client import connect; connect()", "connect() without an address"),
        ("from client import LibraryClient", "LibraryClient"),
        ("from trimaran.cli import main; main()", "the command trimaran"),
        ("from trimaran.cli import kubectl_plugin; kubectl_plugin()", "the command kubectl trimaran"),
    ],
)
def test_what_needs_it_says_so(program: str, what: str) -> None:
    """The last line names what needs the extra, a missing module, and the command that installs it."""
    done = run(HIDDEN + program, "--help")
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert f"{what} needs " in line
    assert "pip install '.[watcher]'" in line
    assert ("Traceback" in done.stderr) == ("client" in program)


@pytest.mark.parametrize("name", ["client", "runtime", "scoring", "watcher"])
def test_another_module_of_our_name_is_named(name: str, tmp_path: Path) -> None:
    """If a user's file comes before a package of ours, commands and imports end with a line that names the file."""
    file = tmp_path / f"{name}.py"
    file.touch()
    command = run("from trimaran.cli import main; main()", "--version", folder=tmp_path)
    assert (command.returncode, len(command.stderr.splitlines())) == (1, 1)
    alias = name if name != "runtime" else "client"
    imported = run(f"import trimaran.{alias}", folder=tmp_path)
    for done in (command, imported):
        assert str(file) in done.stderr.splitlines()[-1]


def test_an_embedded_watcher_hides_no_package() -> None:
    """While a library user's process imports the watcher, numpy and pandas stay importable."""
    program = """
import sys
class Recorder:
    hidden = set()
    def find_spec(self, name, path=None, target=None):
        self.hidden |= {each for each in ("numpy", "pandas") if sys.modules.get(each, 0) is None}
sys.meta_path.insert(0, Recorder())
from client import LibraryClient
import watcher.store
print(sorted(Recorder.hidden))
"""
    assert run(program).stdout == "[]\n"
