"""``trimaran score --learned-use``: the expected use of the pod, and the reason where requests count."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from support.refusals import check_refusal
from support.servers import reply, serving

from runtime.kubernetes.workloads import Workload
from trimaran.cli.main import main
from watcher import wire
from watcher.model import Metric, NodeMetrics, WatcherMetrics, Window
from watcher.wire.workloads import encode_workloads
from watcher.workload_table import WorkloadTable

POD = {
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
}
LOADS = {"node-1": 80.0, "node-2": 20.0}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Write a pod and its nodes in kubectl's format."""
    amount = {"cpu": "4", "memory": "8Gi"}
    status = {"capacity": amount, "allocatable": amount}
    nodes = [{"kind": "Node", "metadata": {"name": name}, "status": status} for name in LOADS]
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump({"kind": "List", "items": nodes}))
    return {"pod": str(tmp_path / "pod.yaml"), "nodes": str(tmp_path / "nodes.yaml")}


def run(*arguments: str) -> Result:
    """Call trimaran."""
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def learned() -> Iterator[str]:
    """Serve a watcher whose workload default/Deployment/web uses a fifth of a core; yield its address."""
    now = float(int(time.time()))
    web = Workload("default", "Deployment", "web")
    use, rest = np.array([[0.2], [2.0**28]]), np.full((4, 1), now)
    body = encode_workloads(WorkloadTable(now, (web,), use, use / 10, np.full(2, 0.5), np.zeros(2), *rest))
    window = Window("15m", int(now) - 900, int(now))
    data = {name: NodeMetrics((Metric("cpu", "CPU", "AVG", "15m", load),)) for name, load in LOADS.items()}
    metrics = wire.encode(WatcherMetrics(int(now), window, "Fake", data))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, body if handler.path.startswith("/workloads") else metrics)

    with serving(answer) as fake:
        yield fake.url


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_score_by_learned_use(learned: str, files: dict[str, str], tmp_path: Path, kind: str) -> None:
    """The pod counts with its workload's use, which the output names; an unknown workload counts as all pods."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": POD["spec"]}
    manifest = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(manifest if kind == "Deployment" else POD))
    arguments = (
        "score", "--watcher", learned, "--plugin", "CongestionCost", "--pod", str(tmp_path / "web.yaml"),
        "--nodes", files["nodes"], "--learned-use",
    )  # fmt: skip
    text = run(*arguments)
    assert text.exit_code == 0, text.output
    expected = json.loads(run(*arguments, "-o", "json").stdout)["expected"]
    if kind == "Deployment":
        assert "expected use of the pod: 0.2 ± 0.02 CPUs and 0.25 ± 0.025 GiB, learned of default/Depl" in text.stdout
        assert expected["use"] == {"cpu_cores": 0.2, "memory_bytes": 2.0**28}
    else:
        assert "expected use of the pod: by requests: unknown workload shop/Pod/web" in text.stdout
        assert expected["basis"] == "all_pods"


def test_score_without_learned_use_says_why(learned: str, files: dict[str, str]) -> None:
    """If the plugins ignore it requests count, with the reason; an embedded watcher is an error."""
    common = ("score", "--pod", files["pod"], "--nodes", files["nodes"], "--learned-use")
    refused = run(*common, "--plugin", "Peaks", "--watcher", learned)
    why = "no plugin of the profile scores by learned use; CongestionCost does"
    assert f"trimaran: pods count by requests: {why}\n" in refused.stderr
    assert f"expected use of the pod: by requests: {why}\n" in refused.stdout
    assert refused.exit_code == 0
    check_refusal(run(*common), "--learned-use needs --watcher")
