"""Programs of others that tests run: the Debian packages of each, their installation, and a run without them.

python tests/support/programs.py install      # as root with CI=true; otherwise it does nothing
python tests/support/programs.py hide COMMAND # run a command as on a machine that has none of these programs
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

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
_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")


def how_to_install(program: str) -> str:
    """Return one line with the command that installs a program; programs of one package have the same line."""
    packages = PACKAGES[program]
    return f"{packages.split()[0]} is not installed: {' '.join(_INSTALL)} {packages}"


def install() -> None:
    """Install the programs that are missing."""
    missing = {PACKAGES[program] for program in PACKAGES if shutil.which(program) is None}
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
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install"]:
            if os.environ.get("CI") == "true" and os.geteuid() == 0:
                install()
        case ["hide", *words] if words:
            sys.exit(hide(words))
        case _:
            sys.exit(__doc__)
