"""Files of a release: they name each other rightly, and what a commit lacks is named."""

import re
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
URL = "https://files.example.com/v1"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names of tools/release.py."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))  # where Python finds its neighbours when it runs the script
    return runpy.run_path(str(ROOT / "tools" / "release.py"))


@pytest.fixture
def dist(release: dict[str, Any], tmp_path: Path) -> Path:
    """Return a folder with the files of a release; its wheel is any file, as only its name matters."""
    (tmp_path / f"trimaran-{release['current']()}-py3-none-any.whl").write_bytes(b"wheel")
    release["write"](tmp_path, "registry.example.com/us/trimaran", f"{URL}/")
    return tmp_path


def unpacked(archive: Path, folder: Path) -> Path:
    """Return the folder into which an archive was unpacked."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = lambda member, _folder: member  # Python 3.11.2 has no argument for it
        packed.extractall(folder)
    return folder


def test_the_chart_has_the_image_and_nothing_else_is_changed(dist: Path, release: dict[str, Any]) -> None:
    """image.repository is the one line in which the chart of a release differs from the repository's."""
    chart = unpacked(dist / f"trimaran-{release['current']()}.tgz", dist / "chart") / "trimaran"
    ours = ROOT / "deploy/helm/trimaran"
    files = {path.relative_to(ours) for path in ours.rglob("*") if path.is_file()}
    assert {path.relative_to(chart) for path in chart.rglob("*") if path.is_file()} == files
    pairs = [(old, new) for file in files for old, new in zip(
        (ours / file).read_text().splitlines(), (chart / file).read_text().splitlines(), strict=True
    ) if old != new]  # fmt: skip
    assert len(pairs) == 1
    assert (
        yaml.safe_load((chart / "values.yaml").read_text())["image"]["repository"] == "registry.example.com/us/trimaran"
    )


def test_checksums_are_those_that_people_check_with(dist: Path) -> None:
    """`sha256sum --check` accepts all files, and one byte more in any of them is noticed."""
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(command, cwd=dist, check=False).returncode == 0
    listed = [line.split("  ")[1] for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert sorted(listed) == sorted(path.name for path in dist.iterdir() if path.name != "SHA256SUMS")
    for name in listed:
        before = (dist / name).read_bytes()
        (dist / name).write_bytes(before + b" ")
        assert subprocess.run(command, cwd=dist, capture_output=True, check=False).returncode == 1, name
        (dist / name).write_bytes(before)


def test_krew_gets_the_plugin_of_this_release(dist: Path, release: dict[str, Any]) -> None:
    """The manifest points at the archive, with its checksum and the files that are in it."""
    spec = yaml.safe_load((dist / "krew.yaml").read_text())["spec"]
    assert spec["version"] == f"v{release['current']()}"
    assert len(spec["shortDescription"]) <= 50  # krew's own rule
    (platform,) = spec["platforms"]
    archive = dist / platform["uri"].removeprefix(f"{URL}/")
    assert f"{platform['sha256']}  {archive.name}" in (dist / "SHA256SUMS").read_text().splitlines()
    packed = unpacked(archive, dist / "plugin")
    assert {file["from"] for file in platform["files"]} == {path.name for path in packed.iterdir()}
    assert (packed / platform["bin"]).stat().st_mode & 0o111


def test_the_kubectl_plugin_runs_trimaran_or_says_what_it_needs(dist: Path, release: dict[str, Any]) -> None:
    """It runs the command on PATH with its arguments; without it, uv and pipx, one line says how to install it."""
    version = release["current"]()
    plugin = unpacked(dist / f"kubectl-trimaran-{version}.tar.gz", dist / "plugin") / "kubectl-trimaran"
    shell = ["/bin/sh", str(plugin), "--version"]
    path = str(Path(sys.executable).parent)
    done = subprocess.run(shell, env={"PATH": path}, capture_output=True, text=True, check=True)
    assert version in done.stdout
    done = subprocess.run(shell, env={"PATH": str(dist)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f'pip install "trimaran[watcher,kubernetes] @ {URL}/trimaran-{version}-py3-none-any.whl"' in line


def test_a_commit_that_is_not_ready_is_named(release: dict[str, Any], tmp_path: Path) -> None:
    """No section, no date, entries that are left, a tag that exists and changes each give one line."""
    version, changelog = release["current"](), tmp_path / "CHANGELOG.md"

    def faults(text: str) -> list[str]:
        changelog.write_text(text)
        git("commit", "--quiet", "--all", "--message", "Change it")
        found: list[str] = release["faults"](tmp_path)
        return found

    def git(*words: str) -> None:
        who = ("-c", "user.name=tester", "-c", "user.email=tester@example.com")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    changelog.write_text("")
    git("add", ".")
    ready = f"# Changelog\n\n## [Unreleased]\n\n## [{version}] - 2026-11-29\n\n- It works.\n"
    assert faults(ready) == []
    assert release["section"](ready, version) == "- It works."
    assert [version in fault for fault in faults(ready.replace(version, "0.0.1"))] == [True]
    assert ["no date" in fault for fault in faults(ready.replace(" - 2026-11-29", ""))] == [True]
    assert [
        "Unreleased" in fault for fault in faults(ready.replace("[Unreleased]\n", "[Unreleased]\n\n- More.\n"))
    ] == [True]
    git("tag", f"v{version}")
    assert [f"v{version}" in fault for fault in faults(ready)] == [True]
    git("tag", "--delete", f"v{version}")
    changelog.write_text(f"{ready}- Not committed.\n")
    assert len(release["faults"](tmp_path)) == 1


def test_each_step_of_the_workflow_is_a_target_of_make() -> None:
    """Makefile has each target that the workflow runs, so that a release can be made on any machine."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = {target for run in runs for target in re.findall(r"^make ([a-z-]+)", run, re.MULTILINE)}
    assert {"release-check", "dist", "image", "push-chart"} <= targets
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert any(".ci/run" in run for run in runs)
