"""Servers and tools of others that tests run: where they come from, their installation, and a run without them.

python tests/support/programs.py install      # with CI=true; otherwise it does nothing
python tests/support/programs.py install-nodes  # as root, what real nodes need
python tests/support/programs.py hide COMMAND # run a command as on a machine that has none of these programs
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

if __name__ == "__main__":  # as pytest does
    sys.path.insert(0, str(Path(__file__).parents[1]))

from control_plane import builds

#: Debian packages of each program.
PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "influxd": "influxdb",
    "chromium": "chromium fonts-dejavu-core",
    "kubectl": "kubernetes-client",
    "docker-compose": "docker-compose",
    "ip": "iproute2",
    "nft": "nftables",
    "gcc": "gcc libc6-dev",
}
#: Debian packages of what real nodes need, see ``tests/real_nodes``.
NODE_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "ip": "iproute2",
    "openssl": "openssl",
}
#: Programs that are built from their Go modules, because Debian has none, or an old version.
BUILT = ("prometheus-3", "victoria-metrics")
_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")


def how_to_install(program: str) -> str:
    """Return one line with the command that installs a program; programs of one package have the same line."""
    if program in BUILT:
        return f"{BUILT[0]} is not installed: python tests/control_plane/builds.py {' '.join(BUILT)}"
    packages = {**NODE_PACKAGES, **PACKAGES}[program]
    return f"{packages.split()[0]} is not installed: {' '.join(_INSTALL)} {packages}"


def path_of(program: str) -> str | None:
    """Return the path of a program; None if it is not installed."""
    return str(builds.built(program) or "") or None if program in BUILT else shutil.which(program)


def install() -> None:
    """Install the programs that are missing: packages as root only."""
    if os.geteuid() == 0:
        install_packages(PACKAGES)
    try:
        for program in BUILT:
            builds.binary(program)
    except builds.BuildFailed as failure:
        raise SystemExit(str(failure)) from None


def install_packages(of_programs: Mapping[str, str]) -> None:
    """Install the Debian packages of those programs that are missing."""
    missing = {packages for program, packages in of_programs.items() if shutil.which(program) is None}
    if not missing:
        return
    packages = sorted({package for line in missing for package in line.split()})
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], [*_INSTALL, *packages]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            raise SystemExit(f"the tests need these packages, which could not be installed: {' '.join(packages)}")


def hide(command: list[str]) -> int:
    """Run a command with a PATH that has links to all programs except those that tests ask for; return its status."""
    with tempfile.TemporaryDirectory(prefix="without-servers-") as folder:
        for directory in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
            for program in Path(directory).iterdir():
                link = Path(folder, program.name)
                if program.name not in PACKAGES and not link.is_symlink():  # the first one in PATH wins
                    link.symlink_to(program)
        # An environment that make creates from a link in the folder would not outlive it.
        environment = {"PYTHON": sys.executable, **os.environ, "PATH": folder, "CI": ""}
        environment["TRIMARAN_E2E_CACHE"] = str(Path(folder, "no-cache"))
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install"]:
            if os.environ.get("CI") == "true":
                install()
        case ["install-nodes"]:
            if os.geteuid() == 0 and shutil.which("apt-get"):
                install_packages(NODE_PACKAGES)
        case ["hide", *words] if words:
            sys.exit(hide(words))
        case _:
            sys.exit(__doc__)
