"""The cache of Go programs, without building any."""

import shutil
from pathlib import Path

import pytest
from control_plane import builds
from control_plane.builds import MODULES, PROGRAMS, GoMissing, Program


@pytest.fixture
def without_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache on a machine without Go."""
    monkeypatch.setattr(builds, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "cache"


def test_missing_go_is_one_line(without_go: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine without Go is told in one line what is missing, and nothing else."""
    with pytest.raises(SystemExit) as ended:
        builds.main(["etcd", "kwok"])
    assert str(ended.value).startswith("go is not installed: ")
    assert "\n" not in str(ended.value)
    assert capsys.readouterr() == ("", "")


def test_built_program_needs_no_go(without_go: Path) -> None:
    """What is in the cache is used as it is."""
    made = without_go / f"etcd-{PROGRAMS['etcd'].key}"
    made.mkdir(parents=True)
    assert builds.binary("etcd") == made / "etcd"


def test_other_version_is_another_program(without_go: Path, tmp_path: Path) -> None:
    """A change of ``go.sum`` alone makes the cache's program another one."""
    folder = tmp_path / "module"
    shutil.copytree(MODULES / "etcd", folder)
    program = Program(folder, PROGRAMS["etcd"].module)
    key = program.key
    assert key == PROGRAMS["etcd"].key
    with (folder / "go.sum").open("a") as sums:
        sums.write("example.com/other v1.0.0 h1:other\n")
    assert program.key != key
    with pytest.raises(GoMissing):
        builds.build("etcd", program)


@pytest.mark.parametrize("name", PROGRAMS)
def test_version_is_that_of_its_module(name: str) -> None:
    """Every program has a version, from a ``go.mod`` with checksums beside it; Kubernetes' own are told theirs."""
    program = PROGRAMS[name]
    assert program.version.startswith("v")
    assert (program.folder / "go.sum").exists()
    assert (program.version in program.linker_flags) == (program.module == "k8s.io/kubernetes")


def test_no_module_is_left_over() -> None:
    """Every folder of ``programs/`` is built by someone."""
    assert {program.folder for program in PROGRAMS.values()} == set(MODULES.iterdir())
