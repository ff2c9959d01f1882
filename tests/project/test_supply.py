"""Packages in the image: their bill of materials, and wheels for each processor architecture."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.markers import Marker

import trimaran

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements/run.txt").read_text()
OLDEST = "3.11"  # Python
FROM_SOURCE = "pyformance"  # pure Python, published without a wheel; the Dockerfile builds it


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program in the repository."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def of_the_oldest_python(package: str) -> str:
    """Return a package of the lock without its marker; "" if the oldest Python does not need it.

    pip would compare the marker with the Python that runs it.
    """
    requirement, semicolon, rest = package.partition(";")
    if not semicolon:
        return package
    marker, newline, hashes = rest.partition(" \\\n")
    needed = Marker(marker).evaluate({"python_version": OLDEST, "python_full_version": f"{OLDEST}.0"})
    return f"{requirement.rstrip()}{newline}{hashes}" if needed else ""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.slow
def test_the_bill_of_materials_is_the_lock(tmp_path: Path) -> None:
    """The CycloneDX file lists every locked package with its version and dependencies, and no local paths."""
    file = tmp_path / "bill.json"
    done = run("make", "sbom", f"SBOM={file}")
    assert done.returncode == 0, done.stderr
    bill = json.loads(file.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    image = bill["metadata"]["component"]
    assert (image["name"], image["version"], image["type"]) == (
        "trimaran",
        trimaran.__version__,
        "application",
    )
    listed = {(normal(each["name"]), each["version"]) for each in bill["components"]}
    locked = {(normal(name), version) for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", LOCK, re.MULTILINE)}
    only_elsewhere = {normal(name) for name in re.findall(r"^([\w.-]+)==[^;\n]+;", LOCK, re.MULTILINE)}
    assert listed <= locked
    missing = {name for name, _ in locked} - {name for name, _ in listed}
    assert missing - only_elsewhere == {"pip"}  # the image does not have it either
    needed = {each["ref"].partition("==")[0]: str(each.get("dependsOn", "")) for each in bill["dependencies"]}
    assert "numpy==" in needed["scipy"]
    licensed = [each for each in bill["components"] if each.get("licenses")]
    assert len(licensed) > 0.9 * len(listed)
    assert str(ROOT) not in file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_package_has_a_wheel_for_each_architecture(machine: str, tmp_path: Path) -> None:
    """Every package but one has a wheel with a locked hash, so no compiler is needed."""
    packages = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)
    assert sum(each.startswith(f"{FROM_SOURCE}==") for each in packages) == 1
    wheels = tmp_path / "wheels.txt"
    others = (each for each in packages if not each.startswith(f"{FROM_SOURCE}=="))
    wheels.write_text("".join(map(of_the_oldest_python, others)))
    platforms = [f"--platform={kind}_{machine}" for kind in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    done = run(
        sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--require-hashes", "--only-binary=:all:",
        f"--python-version={OLDEST}", "--implementation=cp", *platforms, "--target", tmp_path / "nowhere", "-r", wheels,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{machine}.whl" in done.stdout
    assert not (tmp_path / "nowhere").exists()
