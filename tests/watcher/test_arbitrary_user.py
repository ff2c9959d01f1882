"""The watcher as OpenShift runs it: under a user ID without an account, on a read-only root file system."""

import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from support.ports import served_url
from support.servers import wait_until

ROOT = Path(__file__).parents[2]
USER, GROUP = 1000680000, 1000680000  # from the range that OpenShift assigns to a project; the primary group is 0
POD = next(
    manifest for manifest in yaml.safe_load_all((ROOT / "deploy/kubernetes/watcher.yaml").read_text())
    if manifest["kind"] == "Deployment"
)["spec"]["template"]["spec"]  # fmt: skip
CLOSED = {
    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
}  # fmt: skip
SYSTEM = [folder for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/proc") if Path(folder).is_dir()]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[str, int, Path]]:
    """A watcher in a mount namespace whose root is read-only, except for the pod's volume and /dev/shm."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("starting a process as another user in its own root needs root: run this test as root")
    for folder in (sys.base_prefix, sys.prefix, f"{sys.prefix}/bin", str(ROOT)):
        if not Path(folder).stat().st_mode & stat.S_IXGRP:  # the user is in root's group
            pytest.skip(f"another user cannot read {folder}: create it with umask 022")
    with pytest.raises(KeyError):
        pwd.getpwuid(USER)
    root = tmp_path / "root"
    root.mkdir()
    shown = [*SYSTEM, sys.base_prefix, sys.prefix, str(ROOT)]
    (mount,) = POD["containers"][0]["volumeMounts"]
    lines = [
        "umask 022",
        f"mount -t tmpfs -o mode=755 tmpfs {root}",
        *(f"mkdir -p {root}{folder} && mount --rbind {folder} {root}{folder}" for folder in shown),
        f"mkdir -p {root}/dev/shm {root}{mount['mountPath']}",
        *(f"touch {root}/dev/{name} && mount --bind /dev/{name} {root}/dev/{name}" for name in ("null", "urandom")),
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm",
        # An emptyDir with the fsGroup that OpenShift chooses.
        f"mount -t tmpfs -o mode=2770,gid={GROUP} tmpfs {root}{mount['mountPath']}",
        f"mount -o remount,ro,bind {root}",
        f'exec chroot --userspec={USER}:0 --groups={GROUP} {root} /usr/bin/env -i "$@"',
    ]
    set_by_the_image = re.findall(r"(TRIMARAN_(?:STORE|LOG)\w+)=(\S+)", (ROOT / "Dockerfile").read_text())
    environment = {**dict(set_by_the_image), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}
    command = [
        *(f"{name}={value}" for name, value in environment.items()), sys.executable, "-m", "trimaran", "watch",
        "--provider", "Fake", "--interval", "0.5", "--port", "0",
    ]  # fmt: skip
    log = tmp_path / "watch.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", "\n".join(lines), "sh", *command],
            stdout=output,
            stderr=output,
            cwd=ROOT,
        )
    try:
        yield served_url(log, lambda: process.poll() is not None), process.pid, log
    finally:
        process.terminate()
        process.wait(20)


def test_store_and_api_work_under_any_user(started: tuple[str, int, Path]) -> None:
    """Under any user with group 0 the watcher is healthy, writes its store, and cannot write anywhere else."""
    url, pid, log = started

    def is_ready() -> bool:
        try:
            return requests.get(f"{url}/readyz", timeout=60).ok
        except requests.ConnectionError:
            return False

    wait_until(is_ready, f"it is ready; {log.read_text()}")
    health = wait_until(lambda: requests.get(f"{url}/watcher/health", timeout=5), "it reports its health")
    assert (health.status_code, health.json().get("warnings", [])) == (200, []), log.read_text()
    assert "trimaran_store_works 1.0" in requests.get(f"{url}/metrics", timeout=60).text
    status = Path(f"/proc/{pid}/status").read_text()
    assert re.search(rf"^Uid:\s+{USER}\s", status, re.MULTILINE)
    assert re.search(r"^Gid:\s+0\s", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    root = Path(f"/proc/{pid}/root")
    assert (root / "var/lib/trimaran/watcher.sqlite").stat().st_uid == USER
    with pytest.raises(OSError, match="Read-only"):
        (root / "tmp-file").touch()


def test_pods_meet_openshifts_restricted_policy() -> None:
    """No deployment uses host namespaces, host volumes or extra privileges, as OpenShift's policy demands."""
    for file in (ROOT / "deploy/kubernetes").glob("*.yaml"):
        for manifest in yaml.safe_load_all(file.read_text()):
            if manifest["kind"] == "Deployment":
                spec = manifest["spec"]["template"]["spec"]
                assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
                for volume in spec.get("volumes", ()):
                    assert volume.keys() - {"name"} <= {"emptyDir", "configMap", "secret"}
                for container in spec["containers"]:
                    assert container["securityContext"] == CLOSED
