"""An installed plugin that raises in a tenth of its calls, while leaders are killed, on a real control plane.

``TRIMARAN_FAULT_PODS=2000`` makes it harder.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane.cluster import ControlPlane
from support.plugin_packages import register
from support.servers import wait_until
from support.standalone import (
    CORES,
    NAME,
    RunningScheduler,
    all_bound,
    overcommitted,
    pending,
    scheduled_events,
    standalone_cluster,
)

pytestmark = pytest.mark.e2e

PODS = int(os.environ.get("TRIMARAN_FAULT_PODS", "160"))
PATIENCE = 60 + PODS // 4
PLUGIN = '''
import random
from dataclasses import dataclass

import numpy as np

from scoring import FilterPlugin, ScorePlugin


def may_fail():
    if random.random() < 0.1:
        raise RuntimeError("out of humour")


@dataclass(frozen=True)
class Grumpy(ScorePlugin, FilterPlugin):
    """Plugin that fails in a tenth of its calls."""

    name = "Grumpy"

    def filter(self, pod, nodes, rows=slice(None)):
        may_fail()

    def node_terms(self, nodes, metrics):
        return {"zero": np.zeros(len(nodes), np.int64)}

    def pod_terms(self, pods, node, nodes, rows):
        may_fail()
        size = len(nodes.names[rows]) if isinstance(rows, slice) else len(rows)
        return {"score": np.zeros((len(pods), size), np.int64)}

    def line(self, terms):
        return "nothing"
'''
CONFIGURATION = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- schedulerName: {NAME}
  plugins:
    multiPoint: {{enabled: [{{name: Grumpy}}]}}
"""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of simulated nodes into which the pods fit exactly."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), PODS // (2 * CORES)) as cluster:
        yield cluster


def test_every_pod_is_bound_despite_a_plugin_that_fails(
    cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pods get a node and none is bound twice; the status, an Event and a metric name the plugin."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "grumpy.py").write_text(PLUGIN)
    register(site, "grumpy", "Grumpy = grumpy:Grumpy")
    (site / "config.yaml").write_text(CONFIGURATION)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{os.environ.get('PYTHONPATH', '')}")
    options = ("--config", str(site / "config.yaml"))
    started = [RunningScheduler(cluster, options=options) for _ in range(2)]
    running = list(started)
    failures = 0.0
    try:
        for kill in range(2):
            leader = wait_until(lambda: next((each for each in running if each.leads), None), "a replica leads", 150)
            names = range(kill * PODS // 4, (kill + 1) * PODS // 4)
            cluster.api.create(*(pending(f"grumpy-{number}") for number in names))
            wait_until(lambda: scheduled_events(cluster, "grumpy"), "some pods are bound")
            failures += leader.value(
                'trimaran_scheduler_plugin_failures_total{extension_point="Filter",plugin="Grumpy"}'
            )
            leader.process.kill()
            running.remove(leader)
            started.append(RunningScheduler(cluster, options=options))
            running.append(started[-1])
        cluster.api.create(*(pending(f"grumpy-{number}") for number in range(PODS // 2, PODS)))
        wait_until(lambda: all_bound(cluster, "grumpy", PODS), "all pods are bound", PATIENCE)
        assert overcommitted(cluster) == {}
        assert max(scheduled_events(cluster, "grumpy").values()) == 1
        leader = next(each for each in running if each.leads)
        failures += leader.value('trimaran_scheduler_plugin_failures_total{extension_point="Filter",plugin="Grumpy"}')
        assert failures > 0
        notes = [each["note"] for each in cluster.api.items("/apis/events.k8s.io/v1/events")]
        assert any(note.startswith("running Filter plugin Grumpy: RuntimeError: out of humour") for note in notes)
    finally:
        for each in started:
            each.process.kill()
