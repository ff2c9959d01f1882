"""Preemption of a real kube-scheduler: the recorded victims and nodes are still what it decides.

To record them again, for another version or other scenarios: ``TRIMARAN_RECORD=1 pytest -m e2e`` with this file. The
replay against our plugin is ``tests/trimaran/scheduler/test_preemption_vectors.py``.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane.api import Object, names, path_of
from control_plane.cluster import ControlPlane
from control_plane.preemption_scenarios import Scenario, draw, objects
from control_plane.scheduler import Scheduler
from support.servers import wait_until

pytestmark = pytest.mark.e2e

VECTORS = Path(__file__).parents[1] / "data" / "preemption.jsonl"
_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_SCENARIOS = 200
_SETTLE_SECONDS = 0.3  # nodes and budgets reach the scheduler by other watches than pods
_STARTED = re.compile(r'"Start the preemption asynchronously" preemptor="default/([^"]+)".* numVictimsToDelete=(\d+)')
_CHECKED = 20
_RECORDS = os.environ.get("TRIMARAN_RECORD") == "1"  # read on import, because tests run without the user's variables


def test_the_recorded_preemptions_are_those_of_kube_scheduler(tmp_path: Path, record_property: Any) -> None:
    """A tenth of the recorded scenarios has the same outcomes again; with TRIMARAN_RECORD=1 all are recorded."""
    recorded = [] if _RECORDS else [json.loads(line) for line in VECTORS.read_text().splitlines()]
    scenarios = [draw(seed) for seed in range(_SCENARIOS)] if _RECORDS else recorded[:: len(recorded) // _CHECKED]
    begun = time.monotonic()
    with (
        ControlPlane(tmp_path) as cluster,
        Scheduler(cluster, [{"schedulerName": "default-scheduler"}], verbosity=4) as scheduler,
    ):
        run = _Run(cluster, scheduler)
        outcomes = [run.outcomes(each) for each in scenarios]
    record_property("figures", f"{len(scenarios)} scenarios of preemption in {time.monotonic() - begun:.0f} s")
    if _RECORDS:
        lines = [
            json.dumps({**each, "outcomes": found}, separators=(",", ":"))
            for each, found in zip(scenarios, outcomes, strict=True)
        ]
        VECTORS.write_text("\n".join(lines) + "\n")
    else:
        assert outcomes == [each["outcomes"] for each in scenarios]


class _Run:
    """Scenarios run one after the other in one cluster."""

    def __init__(self, cluster: ControlPlane, scheduler: Scheduler) -> None:
        self._api, self._log = cluster.api, scheduler.log

    def outcomes(self, scenario: Scenario) -> list[Scenario]:
        """Return the node and the deleted pods of each pending pod, or the node that it got without preemption."""
        nodes, pods, budgets, pending = objects(scenario)
        self._api.create(*nodes)
        self._api.create(*pods)
        self._api.create(*budgets) if budgets else None
        for each in (*pods, *budgets):
            self._api.patch(f"{path_of(each)}/status", {"status": each["status"]})
        time.sleep(_SETTLE_SECONDS)
        try:
            return [self._outcome(each) for each in pending]
        finally:
            for path in (_PODS, _BUDGETS, _EVENTS, _NODES):
                self._api.delete(path)
            wait_until(lambda: not self._api.items(_PODS), "the pods are deleted")

    def _outcome(self, pending: Object) -> Scenario:
        (created,) = self._api.create(pending)
        path = path_of(created)
        size = self._log.stat().st_size

        def is_decided() -> bool:
            self._pod = self._api.get(path)
            conditions = self._pod["status"].get("conditions") or ()
            return any(each["type"] == "PodScheduled" for each in conditions)

        wait_until(is_decided, f"{pending['metadata']['name']} is decided")
        if self._pod["spec"].get("nodeName"):
            return {"bound": self._pod["spec"]["nodeName"]}
        nominated = self._pod["status"].get("nominatedNodeName")
        if not nominated:
            time.sleep(_SETTLE_SECONDS)  # the nomination may follow the condition
            nominated = self._api.get(path)["status"].get("nominatedNodeName")
        if not nominated:
            (condition,) = (each for each in self._pod["status"]["conditions"] if each["type"] == "PodScheduled")
            return {"message": condition["message"]}
        expected = sum(count for name, count in self._started(size) if name == pending["metadata"]["name"])
        wait_until(lambda: len(self._victims(created)) >= expected, "the victims are deleted")
        return {"node": nominated, "victims": sorted(self._victims(created))}

    def _started(self, since: int) -> Iterator[tuple[str, int]]:
        """Yield the pods that began to preempt, and the number of pods that they delete."""
        time.sleep(_SETTLE_SECONDS)
        with self._log.open(errors="replace") as log:
            log.seek(since)
            for line in log:
                match = _STARTED.search(line)
                if match:
                    yield match[1], int(match[2])

    def _victims(self, preemptor: Object) -> set[str]:
        events = [each for each in self._api.items(_EVENTS) if each["reason"] == "Preempted"]
        wanted = preemptor["metadata"]["uid"]
        return {each["regarding"]["name"] for each in events if wanted in each["note"]} & set(
            names(self._api.items(_PODS))
        )
