"""Write chart, kubectl plugin, krew manifest and checksums of a release, and check what it needs. make calls it.

python tools/release.py files --image REPOSITORY --url URL   # write into dist/
python tools/release.py check                                # name what this commit lacks
python tools/release.py notes                                # print that section

IMAGE is written into the chart as ``image.repository``. URL is the address from which the files of dist/ can be
downloaded: the kubectl plugin installs the wheel from there, and the krew manifest points at the plugin.
"""

import argparse
import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from version import current

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy" / "helm" / "trimaran"
CHECKSUMS = "SHA256SUMS"
_REPOSITORY: Final = re.compile(r"(?m)^(image:\n  repository: )\S+")

#: What krew installs: trimaran is a Python package with compiled dependencies, which no archive for kubectl can hold.
_PLUGIN = """#!/bin/sh
# kubectl trimaran: run the command trimaran of this machine, or an environment that uv or pipx makes for it.
package='trimaran[watcher,kubernetes] @ {wheel}'
if command -v trimaran > /dev/null; then
    exec trimaran "$@"
elif command -v uvx > /dev/null; then
    exec uvx --from "$package" trimaran "$@"
elif command -v pipx > /dev/null; then
    exec pipx run --spec "$package" trimaran "$@"
fi
echo "kubectl trimaran needs Python 3.11 or newer, and one of: uv, pipx, or pip install \\"$package\\"" >&2
exit 1
"""

_MANIFEST = """apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: trimaran
spec:
  version: v{version}
  homepage: {url}
  shortDescription: What load-aware placement would gain
  description: |
    Reads the use of nodes and workloads from Prometheus, metrics-server or kubelets, shows hot nodes and unused
    requests, and replays recorded days to tell whether placing by load pays. It writes nothing to the cluster unless
    a command says so.
  caveats: |
    The plugin runs the Python package trimaran. It needs `trimaran` on PATH, or uv or pipx, which install it.
  platforms:
    - selector: {{matchLabels: {{os: linux}}}}
      uri: {url}/{archive}
      sha256: {checksum}
      files:
        - {{from: kubectl-trimaran, to: .}}
        - {{from: LICENSE, to: .}}
      bin: kubectl-trimaran
"""


def section(changelog: str, name: str) -> str:
    """Return the text of a version in the changelog, without its heading; "" if it has none."""
    found = re.search(rf"(?ms)^## \[{re.escape(name)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog)
    return found[1].strip() if found else ""


def faults(root: Path) -> list[str]:
    """Return why this commit cannot be released; empty if it can."""
    changelog, name = (root / "CHANGELOG.md").read_text(), current()
    found = []
    if not section(changelog, name):
        found.append(f"CHANGELOG.md: no section [{name}] with what changed")
    elif not re.search(rf"(?m)^## \[{re.escape(name)}\] - \d{{4}}-\d\d-\d\d$", changelog):
        found.append(f"CHANGELOG.md: the section [{name}] has no date: ## [{name}] - YYYY-MM-DD")
    if section(changelog, "Unreleased"):
        found.append(f"CHANGELOG.md: the section [Unreleased] has entries; move them to [{name}]")
    if _git(root, "tag", "--list", f"v{name}"):
        found.append(f"the tag v{name} exists; raise the version in trimaran/__init__.py, then: make version")
    if _git(root, "status", "--porcelain"):
        found.append("there are changes that are not committed")
    return found


def write(folder: Path, image: str, url: str) -> None:
    """Write chart, kubectl plugin, krew manifest and the checksums of all files of the folder, which has the wheel."""
    (wheel,) = folder.glob("*.whl")
    name, url = current(), url.rstrip("/")
    values = _REPOSITORY.sub(rf"\g<1>{image}", (CHART / "values.yaml").read_text()).encode()
    chart = {
        f"trimaran/{path.relative_to(CHART)}": path.read_bytes() for path in sorted(CHART.rglob("*")) if path.is_file()
    }
    _pack(folder / f"trimaran-{name}.tgz", {**chart, "trimaran/values.yaml": values})
    plugin, archive = _PLUGIN.format(wheel=f"{url}/{wheel.name}"), folder / f"kubectl-trimaran-{name}.tar.gz"
    _pack(archive, {"kubectl-trimaran": plugin.encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()})
    manifest = _MANIFEST.format(version=name, url=url, archive=archive.name, checksum=_checksum(archive))
    (folder / "krew.yaml").write_text(manifest)
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    (folder / CHECKSUMS).write_text("".join(f"{_checksum(path)}  {path.name}\n" for path in files))


def _pack(path: Path, files: dict[str, bytes]) -> None:
    """Write an archive without times and owners, so that equal contents are equal files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run the command; return its status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    files = commands.add_parser("files", help="write the files that name each other into dist/")
    files.add_argument("--image", default="trimaran", help="repository of the image, without the version")
    files.add_argument(
        "--url", default=(ROOT / "dist").as_uri(), help="address of the files of dist/; by default the folder"
    )
    commands.add_parser("check", help="name what this commit lacks for a release, with status 1")
    commands.add_parser("notes", help="print the section of this version in the changelog")
    options = parser.parse_args()
    match options.command:
        case "files":
            write(ROOT / "dist", options.image, options.url)
        case "check":
            if found := faults(ROOT):
                print(*found, sep="\n", file=sys.stderr)
                return 1
            print(f"{current()} can be released")
        case "notes":
            print(section((ROOT / "CHANGELOG.md").read_text(), current()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
