"""Harm in full clusters: the worlds, the replays with the same pods, and what is worse than by the default."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import imported

from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.replay import Replay
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace, write_trace

SIZE = {"nodes": 8, "minutes": 300, "warm_up_minutes": 60}


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("no_harm") as module:
        yield module


def small(seed: int) -> Trace:
    return Synthetic(seed, **SIZE).trace()


@pytest.mark.parametrize("percent", [40, 95])
def test_a_world_is_filled_by_its_number_of_nodes(script: ModuleType, percent: int) -> None:
    """Pods request the wanted share of the nodes, within half of the largest node."""
    trace = small(3)
    world = script.filled(trace, percent, "full")
    requested = script.mean_requests(world, world.cpu_request_milli) / world.overcommit[0]
    capacity, largest = int(world.cpu_capacity_milli.sum()), int(trace.cpu_capacity_milli.max())
    assert abs(requested / (percent / 100) - capacity) <= largest / 2
    assert len(set(world.nodes)) == len(world.nodes) == len(world.memory_capacity_bytes)


def test_the_default_places_the_same_pods_alike(script: ModuleType) -> None:
    """Pods that arrive when the default placed them run as before, and nobody waits."""
    trace = script.filled(small(3), 110, "full")
    before = Replay(trace, policies(trace)[DEFAULT]).run()
    same = script.as_started(before.cluster)
    after = Replay(same, policies(same)[DEFAULT]).run()
    assert measures(before)["waited_pod_minutes"] > 0
    assert measures(after)["waited_pod_minutes"] == 0
    assert (after.cluster.ledger.cpu_milli == before.cluster.ledger.cpu_milli).all()
    assert (after.cluster.ledger.memory_bytes == before.cluster.ledger.memory_bytes).all()


def test_a_measure_is_worse_beyond_the_deviation(script: ModuleType) -> None:
    """Hot minutes above the default's mean and deviation are worse; waits within the deviation are not."""

    def row(policy: str, seed: int, hot: float, waited: float) -> dict[str, object]:
        values = dict.fromkeys(script.MEASURES, 0.0) | {"hot_minutes_80": hot, "waited_pod_minutes": waited}
        return {"world": "w", "policy": policy, "seed": seed, **values}

    rows = [
        row(DEFAULT, 0, 10, 0),
        row(DEFAULT, 1, 14, 20),
        row(script.SHIPPED, 0, 15, 19),
        row(script.SHIPPED, 1, 15, 19),
    ]
    default, ours = script.table(rows)
    assert default["hot_minutes_80"] == 12
    assert default["hot_minutes_80_deviation"] == pytest.approx(2.83)
    assert ours["worse"] == "hot_minutes_80"


def test_a_run_continues(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run replays only what the first one has not stored, and prints the same table."""
    sources = [replace(small(seed), name=f"source-{seed}") for seed in range(1, 5)]
    for trace in sources:
        write_trace(trace, tmp_path / trace.name)
    for name, value in {"WORLDS": 1, "FILLS": (70, 90), "GENERATED": SIZE}.items():
        monkeypatch.setattr(script, name, value)
    folder = tmp_path / "worlds"
    monkeypatch.setattr(
        sys, "argv", ["", str(folder), *(str(tmp_path / trace.name) for trace in sources), "--seeds", "2"]
    )
    script.main()
    table = capsys.readouterr().out
    rows = list(csv.DictReader(table.splitlines()))
    names = {row["world"] for row in rows}
    assert {"generated-401-70", "generated-401-90-autoscaled", "recombined-01", "recombined-01-90"} <= names
    assert {row["world"] for row in rows if row["policy"] == script.SAME_PODS} == {
        row["world"] for row in rows if row["policy"] == script.SHIPPED and row["worse"]
    }
    assert all(row["verdict"] for row in rows if row["policy"] == DEFAULT)
    store = folder / "replays.jsonl"
    lines = store.read_text().splitlines(keepends=True)
    store.write_text("".join(lines[:-2]))
    script.main()
    assert capsys.readouterr().out == table
    assert sorted(store.read_text().splitlines(keepends=True)) == sorted(lines)


def test_harms_and_sums_are_printed(script: ModuleType) -> None:
    """The sums have a row for each kind of world, the harms one for each measure that is worse."""
    values = dict.fromkeys(script.MEASURES, 1.0) | {"hot_minutes_80": 10.0}
    default = {"world": "recombined-01-90", "policy": DEFAULT, "seed": 0, "verdict": "none", **values}
    ours = default | {"policy": script.SHIPPED, "hot_minutes_80": 12.0}
    same = default | {"policy": script.SAME_PODS, "hot_minutes_80": 9.0}
    rows = list(script.table([default, ours, same]))
    assert list(script.sums(rows))[2:] == ["| recombined, 90 | 1 | 1 | 10 | 12 | 1 | 1 | 1 | 1 | 1 | 1 | 1 |"]
    assert list(script.harms(rows))[2:] == [
        "| recombined-01-90 | hot_minutes_80 | 10 ± 0 | 12 ± 0 | 9 | 1.0, 1.0 | 1, 1 | none |"
    ]
