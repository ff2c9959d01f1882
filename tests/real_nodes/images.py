"""Images for the nodes, which can pull none: archives with a static program of ours, and nothing else.

python tests/real_nodes/images.py       build this program
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from control_plane.builds import Program, build

GENERATOR = Program(Path(__file__).parent / "generator", package=".", seconds=10)
WORKER = Program(Path(__file__).parent / "worker", package=".", seconds=10)
#: Image of the tests' containers, with the program of ``worker/``.
WORKER_IMAGE = "example.io/worker:1"
PAUSE_IMAGE = "registry.k8s.io/pause:3.10"


def worker() -> Path:
    """Return the path of the program in ``worker/``; build it if necessary."""
    return build("worker", WORKER)


def generator() -> Path:
    """Return the path of the program in ``generator/``; build it if necessary."""
    return build("generator", GENERATOR)


def write_archive(target: Path, *names: str) -> Path:
    """Write an archive, as ``docker save`` does, of one image with several names, whose entry point is the worker."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        info = tarfile.TarInfo("worker")
        info.mode, info.size = 0o755, worker().stat().st_size
        with worker().open("rb") as program:
            files.addfile(info, program)
    digest = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
    configuration = json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/worker"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]}, "history": [{"created_by": "tests"}],
    }).encode()  # fmt: skip
    name = hashlib.sha256(configuration).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": list(names), "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(target, "w") as archive:
        for path, body in (("layer.tar", layer.getvalue()), (name, configuration), ("manifest.json", manifest)):
            info = tarfile.TarInfo(path)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return target


if __name__ == "__main__":
    worker()
