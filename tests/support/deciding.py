"""A real extender process with a fake cluster and a real watcher, and decisions for it to explain."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import orjson
import requests
import yaml
from support.extending import CONFIGURATION, extender_args
from support.fake_kubernetes import FakeKubernetes, node, pod, rfc3339, run_fake_kubernetes
from support.servers import TrimaranProcess

POOLS = ("general", "batch", "spot")


@contextmanager
def cluster(folder: Path, names: Sequence[str]) -> Iterator[FakeKubernetes]:
    """Run a fake API server with these nodes, each labeled with a pool and a zone."""
    with run_fake_kubernetes(folder) as kubernetes:
        for number, name in enumerate(names):
            labeled_node = node(name)
            labels = {"pool": POOLS[number % len(POOLS)], "topology.kubernetes.io/zone": f"zone-{number % 2}"}
            labeled_node["metadata"]["labels"] = {**labels, "kubernetes.io/hostname": name}
            kubernetes.put("nodes", labeled_node)
        yield kubernetes


def extender(folder: Path, kubernetes: FakeKubernetes, watcher: str, *settings: str) -> AbstractContextManager[str]:
    """Run ``trimaran extender`` with decisions open to every client; yield its address."""
    options = ["extender.mode=active", "extender.explain=open", "extender.deadline_seconds=5", *settings]
    return run_extender(folder, kubernetes, watcher, *options, probe="readyz")


@contextmanager
def run_extender(
    folder: Path, kubernetes: FakeKubernetes, watcher: str, *settings: str, probe: str = "livez"
) -> Iterator[str]:
    """Run ``trimaran extender``; yield its address once a probe succeeds. Its authority is in ``ca.pem``."""
    scheduler = folder / "scheduler.yaml"
    scheduler.write_text(yaml.safe_dump(dict(CONFIGURATION)))
    command = [
        "extender", "--config", scheduler, "--kube-config", kubernetes.kube_config(),
        "--watcher", watcher, "--port", "0", *(word for each in settings for word in ("--set", each)),
    ]  # fmt: skip
    process = TrimaranProcess(command, folder / "extender.log")
    try:
        trust = str(folder / "ca.pem") if process.url.startswith("https:") else True
        process.wait_until(
            lambda: requests.get(f"{process.url}/{probe}", timeout=20, verify=trust).ok, f"{probe} succeeds"
        )
        yield process.url
    finally:
        process.terminate()


def decide(url: str, kubernetes: FakeKubernetes, names: Sequence[str], pods: int, seed: int = 5) -> None:
    """Request scores for some pods; bind each to a candidate, about half to the best, an hour before now."""
    dice = random.Random(seed)
    for number in range(pods):
        name = f"web-{number}"
        candidates = dice.sample(list(names), min(20, len(names)))
        answer = requests.post(
            f"{url}/prioritize", orjson.dumps(extender_args(*candidates, pod=name)), timeout=60
        ).json()
        best = max(answer, key=lambda each: each["Score"])["Host"]
        bound_pod = pod(name, best if dice.random() < 0.5 else dice.choice(candidates))
        bound_pod["metadata"]["uid"] = f"uid-of-{name}"
        bound_pod["spec"]["schedulerName"] = "load-aware"
        since = rfc3339(time.time() - 3600)
        bound_pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
        kubernetes.put("pods", bound_pod)
