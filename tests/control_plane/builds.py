"""The Go programs that end-to-end tests and benchmarks run, built from their modules.

Each folder of ``programs/`` is a Go module of ours that names versions and holds nothing else: ``go.mod``, and
``go.sum`` as ``go mod tidy`` made it. A built program lies in a cache outside the checkout, in a folder named by what
it was built from, so that it is built once and never mistaken for another version's.

    python tests/control_plane/builds.py [PROGRAM ...]     build these, or say which there are
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "programs"
# Read at once, because tests run without the user's variables.
CACHE = Path(
    os.environ.get("TRIMARAN_E2E_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimaran" / "control-plane"
)
_NO_GO = "go is not installed: Kubernetes' own programs are built with Go 1.26 or newer (https://go.dev/doc/install)"


class BuildFailed(Exception):
    """A program cannot be had; the message says why."""


class GoMissing(BuildFailed):
    """This machine has no Go."""


@dataclass(frozen=True)
class Program:
    """A Go program.

    Attributes:
        folder: the Go module of ours that names its version.
        module: the module it comes from, as ``go.mod`` requires it; "" when its sources are in ``folder``.
        package: the path of its main package within that module, such as "/cmd/kwok"; within ``folder`` "./decode".
        seconds: how long it usually takes to build on two processors, after those above it.
        data: a folder of the module that the program needs when it runs; it is copied beside the binary.
    """

    folder: Path
    module: str = ""
    package: str = ""
    seconds: int = 60
    data: str = ""

    @property
    def version(self) -> str:
        """The version that ``go.mod`` requires; "" for a program of ours."""
        go_mod = (self.folder / "go.mod").read_text()
        found = re.search(rf"^(?:require )?[ \t]*{re.escape(self.module)} (v\S+)", go_mod, re.MULTILINE)
        return found[1] if self.module and found else ""

    @property
    def linker_flags(self) -> str:
        """What the linker is told: Kubernetes' programs do not know their version otherwise."""
        flags = "-s -w"
        if self.module == "k8s.io/kubernetes":
            major, minor = self.version.removeprefix("v").split(".")[:2]
            stamped = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
            flags += "".join(f" -X k8s.io/component-base/version.{name}={value}" for name, value in stamped.items())
        return flags

    @property
    def key(self) -> str:
        """What the program is built from, in twelve digits: its versions, its sources if they are ours, its flags."""
        digest = hashlib.sha256(f"{self.module}{self.package} {self.linker_flags} {self.data}".encode())
        for file in sorted(self.folder.rglob("*")):
            if file.suffix in {".go", ".mod", ".sum"}:
                digest.update(f"\0{file.relative_to(self.folder)}\0".encode() + file.read_bytes())
        return digest.hexdigest()[:12]


_KUBERNETES = "k8s.io/kubernetes"
PROGRAMS: Mapping[str, Program] = {
    "etcd": Program(MODULES / "etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program(MODULES / "kubernetes", _KUBERNETES, "/cmd/kube-apiserver", 240),
    "kube-scheduler": Program(MODULES / "kubernetes", _KUBERNETES, "/cmd/kube-scheduler", 30),
    "kube-scheduler-oldest": Program(MODULES / "kubernetes-oldest", _KUBERNETES, "/cmd/kube-scheduler", 240),
    "kwok": Program(MODULES / "kwok", "sigs.k8s.io/kwok", "/cmd/kwok", 100, data="kustomize"),
    "metrics-server": Program(MODULES / "metrics-server", "sigs.k8s.io/metrics-server", "/cmd/metrics-server", 100),
    "trimaran-scheduler": Program(
        MODULES / "trimaran-scheduler", "sigs.k8s.io/scheduler-plugins", "/cmd/scheduler", 150
    ),
    "load-watcher": Program(MODULES / "load-watcher", "github.com/paypal/load-watcher"),
    "descheduler": Program(MODULES / "descheduler", "sigs.k8s.io/descheduler", "/cmd/descheduler", 120),
    "helm": Program(MODULES / "helm", "helm.sh/helm/v3", "/cmd/helm", 100),
    "kustomize": Program(MODULES / "kustomize", "sigs.k8s.io/kustomize/kustomize/v5"),
}


def binary(name: str) -> Path:
    """Return where a program of :data:`PROGRAMS` is, built if need be. See :func:`build`."""
    return build(name, PROGRAMS[name])


def build(name: str, program: Program) -> Path:
    """Return where a program is; build it first, and say so, when the cache does not have it.

    Raises:
        GoMissing: it has to be built, and there is no Go.
        BuildFailed: Go could not build it.
    """
    home = CACHE / f"{name}-{program.key}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that want the same program build it once
        if not home.exists():
            _build(name, program, home)
    return home / name


def _build(name: str, program: Program, home: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise GoMissing(_NO_GO)
    what = f"{name} {program.version}".strip()
    _say(f"building {what}: usually {program.seconds} s ... ")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        flags = ["-buildvcs=false", "-trimpath", "-ldflags", program.linker_flags, "-o", str(made / name)]
        _go(go, program, "build", *flags, program.module + program.package)
        if program.data:
            source = _go(go, program, "list", "-m", "-f", "{{.Dir}}", program.module).strip()
            shutil.copytree(Path(source) / program.data, made / program.data, copy_function=shutil.copyfile)
        made.rename(home)
    _say(f"done in {time.monotonic() - started:.0f} s\n")


def _go(go: str, program: Program, *arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    run = subprocess.run(
        [go, *arguments], cwd=program.folder, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        _say("failed\n")
        last = "\n".join(run.stderr.strip().splitlines()[-10:])
        raise BuildFailed(f"go {arguments[0]} in {program.folder} failed:\n{last}")
    return run.stdout


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def main(names: list[str]) -> None:
    """Build programs by name; without names say which there are."""
    unknown = sorted(set(names) - PROGRAMS.keys())
    if unknown or not names:
        sys.exit(f"{', '.join(unknown) or 'nothing'} to build; there are: {', '.join(PROGRAMS)}")
    try:
        for name in names:
            binary(name)
    except BuildFailed as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main(sys.argv[1:])
