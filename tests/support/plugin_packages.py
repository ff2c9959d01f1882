"""Packages with score plugins, installed in a folder."""

import shutil
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


def install_example(site: Path) -> None:
    """Install examples/plugin into a folder, as pip does."""
    shutil.copy(EXAMPLE / "trimaran_cool_memory.py", site)
    register(site, "trimaran-cool-memory", "CoolMemory = trimaran_cool_memory:CoolMemory")


def register(site: Path, package: str, entry_point: str, group: str = "trimaran.plugins") -> None:
    """Write the metadata of a package with a score plugin or another entry point into a folder."""
    metadata = site / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry_point}\n")
