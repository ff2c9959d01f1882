"""The cache of Go programs, without a build."""

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
    """Without Go a build ends with one line that says so, and prints nothing else."""
    with pytest.raises(SystemExit) as ended:
        builds.main(["etcd", "kwok"])
    assert str(ended.value).startswith("go is not installed: ")
    assert "\n" not in str(ended.value)
    assert capsys.readouterr() == ("", "")


def test_built_program_needs_no_go(without_go: Path) -> None:
    """A program in the cache is used without Go."""
    cached = without_go / f"etcd-{PROGRAMS['etcd'].key}"
    cached.mkdir(parents=True)
    assert builds.binary("etcd") == cached / "etcd"


def test_other_version_is_another_program(without_go: Path, tmp_path: Path) -> None:
    """A change of only ``go.sum`` changes the program's key in the cache."""
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
def test_every_program_has_its_modules_version(name: str) -> None:
    """Each program has a version from a ``go.mod`` with checksums; only Kubernetes' programs get it by linker flag."""
    program = PROGRAMS[name]
    assert program.version.startswith("v")
    assert (program.folder / "go.sum").exists()
    assert (program.version in program.linker_flags) == (program.module == "k8s.io/kubernetes")


def test_every_module_is_used() -> None:
    """Every folder of ``programs/`` belongs to a program."""
    assert {program.folder for program in PROGRAMS.values()} == set(MODULES.iterdir())
