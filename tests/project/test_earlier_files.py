"""Files that an earlier version has left in a cluster or on disk are read: ledger, Lease, annotations, taints, store.

The files of tests/data/earlier were written by the code of commit 486406a7, of 2026-11.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.extending import metrics
from support.nodes_api import NodesApi

from runtime.kubernetes.leader_election import Lease
from runtime.kubernetes.workloads import Workload
from trimaran.cluster.target_note import TargetNote, is_noted
from trimaran.rebalancer.brake import BrakeReason
from trimaran.rebalancer.ledger import Ledger
from trimaran.rebalancer.moves import MoveState
from trimaran.soft_taints.hysteresis import HotNodeRule
from trimaran.soft_taints.node_state import NodeStateCache
from trimaran.soft_taints.writer import NodeWriter, WritePlan
from watcher.history import Steps
from watcher.model import WatcherMetrics
from watcher.store import Store
from watcher.usage.learn.learner_state import load_state
from watcher.usage.store import UsageTables

FILES = Path(__file__).parents[1] / "data/earlier"
AT = 1_795_000_200  # Unix seconds of the newest measurement


def document(name: str) -> Any:
    """Return a JSON file."""
    return json.loads((FILES / name).read_text())


def test_the_ledger_keeps_its_moves_and_the_brake() -> None:
    """Each state of a move, all its figures, and the brake are read, and written again as they were."""
    text = (FILES / "ledger.json").read_text()
    ledger = Ledger.from_json(text)
    assert [record.state for record in ledger.records] == list(MoveState)
    assert ledger.brake is not None
    assert (ledger.brake.reason, ledger.brake.at, ledger.wait) == (BrakeReason.LOST, AT - 10, 41.5)
    landed = ledger.records[2]
    assert (landed.gain, landed.low, landed.measured, landed.cores) == (0.25, 1.5, 0.125, 0.75)
    assert (landed.planned_at, landed.ready_at, landed.landed_on) == (AT - 598, AT - 558.25, "node-3")
    assert json.loads(ledger.to_json()) == json.loads(text)


def test_a_lease_is_respected_until_it_ends() -> None:
    """A Lease of the earlier version is not taken before its duration is over."""

    class Api:
        lease = document("lease.json")

        def send(self, method: str, _path: str, _deadline: object, body: Any = None, _type: str = "") -> Any:
            if method == "PUT":
                self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": "8"}}
            return self.lease

    now = [1000.0]
    lease = Lease(Api(), "trimaran", "trimaran-rebalancer", "pod-2", 15.0, (lambda: now[0],))
    assert not lease.acquire()
    now[0] += 14.9
    assert not lease.acquire()
    now[0] += 0.2
    assert lease.acquire()
    assert lease.is_taken_over


class Loads:
    """Source of metrics with fixed loads."""

    def __init__(self, **loads: float) -> None:
        self._loads = {name.replace("_", "-"): load for name, load in loads.items()}

    def metrics(self, window: str | None = None) -> WatcherMetrics:
        """Return the metrics."""
        del window
        return metrics(self._loads, AT + 60.0)


@pytest.mark.parametrize(("loads", "changed"), [((95.0, 10.0), []), ((20.0, 10.0), ["node-1"])])
def test_taints_and_annotations_of_nodes_go_on(loads: tuple[float, float], changed: list[str]) -> None:
    """A taint that still holds and equal loads are not written again; a taint that no longer holds is removed."""
    api, nodes = NodesApi("node-1", "node-2"), NodeStateCache()
    api.nodes = {each["metadata"]["name"]: each for each in document("nodes.json")}
    nodes.replace(api.nodes.values())
    now = [AT + 70.0]
    plan = WritePlan(rule=HotNodeRule(max_hot_fraction=1.0), windows=("15m",), whole_number=True)
    source = Loads(node_1=loads[0], node_2=loads[1])
    writer = NodeWriter(api, nodes, source, plan, clock=lambda: now[0], monotonic=lambda: now[0])
    writer.run_cycle()
    now[0] += 100.0
    writer.run_cycle()
    assert [name for name, node in api.nodes.items() if not node["spec"].get("taints")] == ["node-2", *changed][::-1]
    assert bool(api.writes) == bool(changed)


def test_a_note_of_a_planned_target_is_read() -> None:
    """The annotations of a pod that is about to be evicted are a note, with all its parts."""
    annotations = document("target-note.json")
    assert is_noted(annotations)
    assert TargetNote.read(annotations) == TargetNote("node-2", "node-1", AT + 900.0)


def test_the_store_keeps_everything(tmp_path: Path) -> None:
    """Snapshots, history, learned workloads and the past use of pods are read from the file, which stays in place."""
    path = tmp_path / "watcher.sqlite"
    path.write_bytes(gzip.decompress((FILES / "watcher.sqlite.gz").read_bytes()))
    store = Store(path)
    try:
        assert (store.failure, store.set_aside) == ("", None)
        (snapshot,) = store.load_snapshots(["x", "Fake"], ["15m"]).values()
        assert (snapshot.timestamp, sorted(snapshot.data)) == (AT, [f"node-{number}" for number in (1, 2, 3, 4)])
        history = store.load_history(["Fake"], Steps(AT - 3600, 60, 61), None, None, None, AT + 60)
        assert len(history.series) == 4
        learner = load_state(UsageTables(store, "Fake").load_state(), 100)
        learned = {key.workload for key in learner.keys}
        assert len(learned) == 4
        assert Workload("shop", "Deployment", "web-0") in learned
        assert len(UsageTables(store, "Fake").load_pods().pods) == 12
    finally:
        store.close()
