"""Write the version of ``trimaran/__init__.py``, the one place to change it, wherever else it stands.

``make version`` runs it after a change; ``make lint`` runs it with ``--check``. Places: the chart, the image names in
compose file, manifests and documentation, and the OpenAPI document.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEMANTIC = r"\d+\.\d+\.\d+"
#: Files, and the text before the version in them.
PLACES = {
    "deploy/helm/trimaran/Chart.yaml": r"(?m:^(?:version|appVersion): )",
    "docker-compose.yml": r"image: trimaran:",
    "deploy/kubernetes/*.yaml": r"image: trimaran:",
    "deploy/kustomize/components/*/*.yaml": r"image: trimaran:",
    "docs/**/*.md": r"\btrimaran[:-]",
    "watcher/schemas/openapi.json": r'"title": "trimaran watcher",\s+"version": "',
}


def current() -> str:
    """Return the version of ``trimaran/__init__.py``."""
    text = (ROOT / "trimaran" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(rf'^__version__ = "({SEMANTIC})"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit('trimaran/__init__.py: no line __version__ = "X.Y.Z"')
    return found[1]


def main() -> int:
    """Write the version, or with ``--check`` name the files that have another one and return 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; end with status 1 where versions differ")
    check = parser.parse_args().check
    version, differs = current(), False
    for pattern, before in PLACES.items():
        for path in sorted(ROOT.glob(pattern)):
            old = path.read_text(encoding="utf-8")
            new = re.sub(rf"({before}){SEMANTIC}", rf"\g<1>{version}", old)
            if new != old and check:
                print(
                    f"{path.relative_to(ROOT)}: not the version of trimaran/__init__.py, {version}; run: make version"
                )
            elif new != old:
                path.write_text(new, encoding="utf-8")
                print(f"{path.relative_to(ROOT)}: {version}")
            differs |= new != old
    return int(check and differs)


if __name__ == "__main__":
    sys.exit(main())
