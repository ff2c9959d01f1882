"""The Go programs that end-to-end tests and benchmarks run, built from their modules.

Each folder of ``programs/`` is a Go module that only pins versions: ``go.mod``, and ``go.sum`` from ``go mod tidy``.
Programs of one folder share their libraries, which are compiled once. Built programs are cached outside the checkout,
in folders named by a hash of their sources, so that each version is built once and versions are never mixed up.

    python tests/control_plane/builds.py [PROGRAM ...]     build these programs, or list all programs
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
# Read on import, because tests run without the user's environment variables.
CACHE = Path(
    os.environ.get("TRIMARAN_E2E_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimaran" / "control-plane"
)
_NO_GO = "go is not installed: Kubernetes' own programs are built with Go 1.26 or newer (https://go.dev/doc/install)"


class BuildFailed(Exception):
    """A program cannot be built; the message states the reason."""


class GoMissing(BuildFailed):
    """This machine has no Go."""


@dataclass(frozen=True)
class Program:
    """A Go program.

    Attributes:
        folder: folder of the Go module that pins the program's version.
        module: Go module with the program's sources, as required by ``go.mod``; "" for sources in ``folder``.
        package: path of the main package in that module, such as "/cmd/kwok"; in ``folder`` such as "./decode".
        seconds: usual duration of the build on two processors, after the programs above it.
        data: folder of the module that the program needs at run time; it is copied next to the binary.
        tags: build tags, separated by commas.
    """

    folder: Path
    module: str = ""
    package: str = ""
    seconds: int = 60
    data: str = ""
    tags: str = ""

    @property
    def version(self) -> str:
        """Version that ``go.mod`` requires; "" for a program with sources in ``folder``."""
        go_mod = (self.folder / "go.mod").read_text()
        requirement = re.search(rf"^(?:require )?[ \t]*{re.escape(self.module)} (v\S+)", go_mod, re.MULTILINE)
        return requirement[1] if self.module and requirement else ""

    @property
    def linker_flags(self) -> str:
        """Linker flags; they set the version of Kubernetes' programs, which have none otherwise."""
        flags = "-s -w"
        if self.module == "k8s.io/kubernetes":
            major, minor = self.version.removeprefix("v").split(".")[:2]
            stamped = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
            flags += "".join(f" -X k8s.io/component-base/version.{name}={value}" for name, value in stamped.items())
        return flags

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits of a hash over the program's versions, own sources and flags."""
        digest = hashlib.sha256(f"{self.module}{self.package} {self.linker_flags} {self.data}{self.tags}".encode())
        for file in sorted(self.folder.rglob("*")):
            if file.suffix in {".go", ".mod", ".sum"}:
                digest.update(f"\0{file.relative_to(self.folder)}\0".encode() + file.read_bytes())
        return digest.hexdigest()[:12]


_KUBERNETES = "k8s.io/kubernetes"
PROGRAMS: Mapping[str, Program] = {
    "etcd": Program(MODULES / "etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program(MODULES / "kubernetes", _KUBERNETES, "/cmd/kube-apiserver", 240),
    "kube-controller-manager": Program(
        MODULES / "kube-controller-manager", _KUBERNETES, "/cmd/kube-controller-manager", 90
    ),
    "kubelet": Program(MODULES / "kubelet", _KUBERNETES, "/cmd/kubelet", 150),
    "kube-scheduler": Program(MODULES / "kubernetes", _KUBERNETES, "/cmd/kube-scheduler", 30),
    "kube-apiserver-oldest": Program(MODULES / "kubernetes-oldest", _KUBERNETES, "/cmd/kube-apiserver", 240),
    "kube-scheduler-oldest": Program(MODULES / "kubernetes-oldest", _KUBERNETES, "/cmd/kube-scheduler", 240),
    "kwok": Program(MODULES / "add-ons", "sigs.k8s.io/kwok", "/cmd/kwok", 100, data="kustomize"),
    "metrics-server": Program(MODULES / "add-ons", "sigs.k8s.io/metrics-server", "/cmd/metrics-server", 70),
    "descheduler": Program(MODULES / "add-ons", "sigs.k8s.io/descheduler", "/cmd/descheduler", 20),
    "trimaran-scheduler": Program(
        MODULES / "trimaran-scheduler", "sigs.k8s.io/scheduler-plugins", "/cmd/scheduler", 150
    ),
    "load-watcher": Program(MODULES / "load-watcher", "github.com/paypal/load-watcher"),
    "helm": Program(MODULES / "helm", "helm.sh/helm/v3", "/cmd/helm", 100),
    "kubectl": Program(MODULES / "kubectl", _KUBERNETES, "/cmd/kubectl"),
    # Service discovery needs the libraries of twenty clouds.
    "prometheus-3": Program(
        MODULES / "prometheus", "github.com/prometheus/prometheus", "/cmd/prometheus", 80, tags="remove_all_sd,netgo"
    ),
    "victoria-metrics": Program(
        MODULES / "victoria-metrics", "github.com/VictoriaMetrics/VictoriaMetrics", "/app/victoria-metrics", 20
    ),
}


def binary(name: str) -> Path:
    """Return the path of a program in :data:`PROGRAMS`; build it if necessary. See :func:`build`."""
    return build(name, PROGRAMS[name])


def built(name: str) -> Path | None:
    """Return the path of a program in :data:`PROGRAMS`; None if it is not in the cache."""
    path = _home(name, PROGRAMS[name]) / name
    return path if path.exists() else None


def build(name: str, program: Program) -> Path:
    """Return the path of a program; if it is not in the cache, build it and report the build on stderr.

    Raises:
        GoMissing: the program has to be built, and Go is not installed.
        BuildFailed: Go could not build the program.
    """
    home = _home(name, program)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that need the same program build it once
        if not home.exists():
            _build(name, program, home)
    return home / name


def _home(name: str, program: Program) -> Path:
    return CACHE / f"{name}-{program.key}"


def _build(name: str, program: Program, home: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise GoMissing(_NO_GO)
    title = f"{name} {program.version}".strip()
    _report(f"building {title}: usually {program.seconds} s ... ")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        output = Path(folder) / "output"
        output.mkdir()
        # The linker strips debug information; not generating it saves an eighth of the processor time.
        flags = ["-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", program.linker_flags]
        flags += ["-tags", program.tags, "-o", str(output / name)]
        _go(go, program, "build", *flags, program.module + program.package)
        if program.data:
            source = _go(go, program, "list", "-m", "-f", "{{.Dir}}", program.module).strip()
            shutil.copytree(Path(source) / program.data, output / program.data, copy_function=shutil.copyfile)
        output.rename(home)
    _report(f"done in {time.monotonic() - started:.0f} s\n")


def _go(go: str, program: Program, *arguments: str) -> str:
    # Fewer garbage collections save a sixth of the compiler's processor time, within a gigabyte for each process.
    environment = {"GOGC": "400", "GOMEMLIMIT": "1GiB", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    run = subprocess.run(
        [go, *arguments], cwd=program.folder, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        _report("failed\n")
        last = "\n".join(run.stderr.strip().splitlines()[-10:])
        raise BuildFailed(f"go {arguments[0]} in {program.folder} failed:\n{last}")
    return run.stdout


def _report(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def main(names: list[str]) -> None:
    """Build programs by name; without names list all programs."""
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
