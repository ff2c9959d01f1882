"""Build a release into ``dist/`` and try it: ``make dist``.

Source distribution and wheel; ``make`` adds the list of the image's packages, and by ``tools/release.py`` chart,
kubectl plugin and checksums. The wheel is installed into an empty environment, where a library user scores a pod, and
with the extra ``watcher``, where ``trimaran watch`` has to serve this machine and ``trimaran score`` to rank a node for
a pod by it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
PACKAGES = {"client", "runtime", "scoring", "trimaran", "watcher"}
_START_SECONDS = 60.0
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [
    {"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
]}}  # fmt: skip
_THIN = 10  # packages that the wheel needs without an extra
THIN = """
from client import ClientError, connect
from scoring import CongestionCost, Container, Node, NodeTable, Pod, Profile, ResourceList
from watcher import WatcherMetrics, Window

room = ResourceList({"cpu": 1000})
nodes = NodeTable([Node("node-1", room, room), Node("node-2", room, room)])
profile = Profile.of(CongestionCost()).prepare(nodes, WatcherMetrics(900, Window("15m", 0, 900), "none", {}))
print(profile.score(Pod(name="web", containers=(Container(ResourceList({"cpu": 100})),))))
try:
    with connect("http://127.0.0.1:9") as watcher:
        watcher.metrics()
except ClientError as error:
    print(error)
try:
    connect()
except ModuleNotFoundError as error:
    print(error)
"""
RESOURCES = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def run(*command: str | Path, **options: object) -> str:
    """Run a command and return its output; end with its error when it fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def build() -> Path:
    """Build source distribution and wheel; return the wheel, checked to hold our packages only."""
    DIST.mkdir(exist_ok=True)
    for old in DIST.iterdir():
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build", "--directory", DIST, cwd=ROOT)
    (wheel,) = DIST.glob("*.whl")
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as packed_wheel:
        top = {name.partition("/")[0] for name in packed_wheel.namelist()} - {f"trimaran-{version}.dist-info"}
    if top != PACKAGES:
        raise SystemExit(f"the wheel holds {sorted(top)}, not {sorted(PACKAGES)}")
    return wheel


def try_out(wheel: Path) -> None:
    """Install the wheel into an empty environment; watch this machine there, and score a pod by it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        run(sys.executable, "-m", "venv", environment)
        trimaran, python = environment / "bin" / "trimaran", environment / "bin" / "python"
        outside = {"PATH": os.environ["PATH"], "HOME": folder}  # no PYTHONPATH, no settings
        run(python, "-m", "pip", "install", "--quiet", wheel)
        listed = json.loads(run(python, "-m", "pip", "list", "--format", "json"))
        others = sorted({entry["name"] for entry in listed} - {"pip", "setuptools", "trimaran"})
        if len(others) > _THIN:
            raise SystemExit(f"the wheel alone installs {len(others)} packages, more than {_THIN}: {others}")
        print(f"{len(others)} packages; without the extra watcher:")
        print(run(python, "-c", THIN, cwd=folder, env=outside), end="")
        run(python, "-m", "pip", "install", "--quiet", f"{wheel}[watcher]")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        address = f"http://127.0.0.1:{port}"
        options = ["--port", str(port), "--store", f"{folder}/watcher.sqlite", "--provider", "Host"]
        # Samples every half second: two of them are a window.
        options += ["--set", "watch.sample_interval_seconds=0.5", "--interval", "1"]
        watcher = subprocess.Popen([trimaran, "watch", *options], cwd=folder, env=outside)
        try:
            name = next(iter(wait_for_nodes(f"{address}/watcher")))
            files = {"pod.json": POD, "nodes.json": {"apiVersion": "v1", "kind": "NodeList", "items": [
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                 "status": {"capacity": RESOURCES, "allocatable": RESOURCES}},
            ]}}  # fmt: skip
            for file, content in files.items():
                (Path(folder) / file).write_text(json.dumps(content))
            asked = ("--pod", "pod.json", "--nodes", "nodes.json", "--watcher", address)
            print(run(trimaran, "score", *asked, cwd=folder, env=outside), end="")
        finally:
            watcher.send_signal(signal.SIGTERM)
            watcher.wait(30)


def wait_for_nodes(url: str) -> dict[str, object]:
    """Return the nodes that a watcher serves, once it serves any."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                nodes: dict[str, object] = json.load(answer)["data"]
                if nodes:
                    return nodes
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} served no node within {_START_SECONDS:.0f} s")


if __name__ == "__main__":
    try_out(build())
