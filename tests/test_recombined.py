"""Worlds put together anew: of whose pods and nodes they are, and what stays as it was."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from simulator.synthetic import Synthetic
from simulator.trace import NO_LIMIT, Trace, read_trace, write_trace

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("recombined")
    sys.modules.pop("recombined")


SIZES = ((1, 5, 0.5), (2, 6, 0.5), (3, 7, 0.4), (4, 8, 0.5), (5, 9, 0.6))


def worlds() -> list[Trace]:
    """Return five worlds of several sizes, with several means of use, and one of them without limits."""
    made = [Synthetic(seed, nodes, 240, 60, mean_use=use).trace() for seed, nodes, use in SIZES]
    unlimited = np.full(len(made[3].pods), NO_LIMIT)
    made[3] = replace(made[3], cpu_limit_milli=unlimited, memory_limit_bytes=unlimited)
    return made


def parts(made: Trace) -> tuple[set[str], set[str]]:
    """Return the worlds that services and jobs are of."""
    found: tuple[set[str], set[str]] = set(), set()
    for owner, kind in zip(made.owners, made.owner_kinds, strict=True):
        found[kind == "Job"].add("-".join(owner.split("-")[:2]))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_world_has_its_parts_of_four_others(script: ModuleType, seed: int) -> None:
    """Half of the owners of each of two, with all of their pods; the jobs of a third, and the nodes of a fourth."""
    sources = {trace.name: trace for trace in worlds()}
    made = script.recombined("new", list(sources.values()), np.random.default_rng(seed))
    services, jobs = parts(made)
    (place,) = (name for name, trace in sources.items() if trace.nodes == made.nodes)
    assert len(services) == 2
    assert len(jobs) == 1
    assert len({*services, *jobs, place}) == 4
    for name in services:
        source = sources[name]
        of = [owner for owner, kind in zip(source.owners, source.owner_kinds, strict=True) if kind != "Job"]
        kept = {owner for owner in of if f"{name}-{owner}" in made.owners}
        assert len(kept) == len(set(of)) // 2
        assert all(made.owners.count(f"{name}-{owner}") == of.count(owner) for owner in kept)
    (third,) = jobs
    assert made.owner_kinds.count("Job") == sources[third].owner_kinds.count("Job")
    assert (np.diff(made.arrival_minute) >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_it_is_as_full_as_the_world_whose_nodes_it_has(script: ModuleType, seed: int) -> None:
    """By what is used of CPU, and by what is requested of CPU and memory after overcommit."""
    sources = worlds()
    made = script.recombined("new", sources, np.random.default_rng(seed))
    (place,) = (trace for trace in sources if trace.nodes == made.nodes)
    assert script.used(made) == pytest.approx(script.used(place), rel=0.001)
    for number, amount in enumerate(("cpu_request_milli", "memory_request_bytes")):
        before, after = (
            script.requested(each, getattr(each, amount)) / each.overcommit[number] for each in (place, made)
        )
        assert after == pytest.approx(before, rel=0.001)


def test_what_is_used_is_what_the_replay_says(script: ModuleType) -> None:
    """Counted minute by minute: warm-up and what is beyond the end are left out."""
    trace = worlds()[0]
    total = np.zeros(trace.minutes)
    for pod, arrival in enumerate(trace.arrival_minute.tolist()):
        cpu = trace.used(pod)[0][: trace.minutes - arrival]
        total[arrival : arrival + len(cpu)] += cpu
    assert script.used(trace) == pytest.approx(total[60:].mean())
    alive = (trace.arrival_minute[:, None] <= np.arange(60, 240)) & (np.arange(60, 240) < trace.end_minute[:, None])
    asked = (alive * trace.cpu_request_milli[:, None]).sum(axis=0).mean()
    assert script.requested(trace, trace.cpu_request_milli) == pytest.approx(asked)


def test_pods_keep_their_lives_and_what_they_use_of_their_requests(script: ModuleType) -> None:
    """The pods of an owner stay as alike as they were, whatever their requests are scaled by."""
    sources = {trace.name: trace for trace in worlds()}
    made = script.recombined("new", list(sources.values()), np.random.default_rng(0))
    seen: dict[str, int] = {}
    for pod, owner in enumerate(made.owners):
        name, old = "-".join(owner.split("-")[:2]), "-".join(owner.split("-")[2:])
        source = sources[name]
        same = [number for number, each in enumerate(source.owners) if each == old]
        number = same[seen.get(owner, 0)]
        seen[owner] = seen.get(owner, 0) + 1
        assert made.owner_kinds[pod] == source.owner_kinds[number]
        assert made.arrival_minute[pod] == source.arrival_minute[number]
        assert made.end_minute[pod] == source.end_minute[number]
        for resource in ("cpu", "memory"):
            new, before = (
                getattr(trace.use, resource)[slice(*trace.use.offsets[at : at + 2])]
                for trace, at in ((made, pod), (source, number))
            )
            assert np.array_equal(new, before)


def test_no_limit_and_no_request_stay_what_they_are(script: ModuleType) -> None:
    """The rest is at least 1, however small it becomes."""
    assert script.scaled(np.array([NO_LIMIT, 0, 1, 100, 1000]), 0.004).tolist() == [NO_LIMIT, 0, 1, 1, 4]


def test_the_seed_says_what_is_drawn(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is written can be replayed; of the same seed it is the same, of another one another."""
    folders = []
    for trace in worlds():
        folders.append(tmp_path / trace.name)
        write_trace(trace, folders[-1])

    def made(into: str, seed: int) -> list[Trace]:
        asked = [
            "recombined.py",
            "--into",
            str(tmp_path / into),
            "--count",
            "2",
            "--seed",
            str(seed),
            *map(str, folders),
        ]
        monkeypatch.setattr(sys, "argv", asked)
        script.main()
        return [read_trace(tmp_path / into / f"recombined-0{number}") for number in (1, 2)]

    one, again, other = made("one", 0), made("again", 0), made("other", 1)
    assert [trace.owners for trace in one] == [trace.owners for trace in again]
    assert one[0].owners != one[1].owners
    assert [trace.owners for trace in one] != [trace.owners for trace in other]
    assert f"{len(one[0].pods):,} pods" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "minutes", "said"),
    [(3, 240, "3 worlds: a new one takes its parts from 4"), (4, 300, "several lengths"), (4, None, "is no folder")],
)
def test_worlds_that_cannot_be_put_together_are_refused(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, minutes: int | None, said: str
) -> None:
    """Too few of them, or of several lengths, or none at all."""
    for number in range(count):
        last = number == count - 1
        if not last or minutes:
            write_trace(Synthetic(number, 4, minutes or 240 if last else 240, 60).trace(), tmp_path / str(number))
    folders = [str(tmp_path / str(number)) for number in range(count)]
    monkeypatch.setattr(sys, "argv", ["recombined.py", "--into", str(tmp_path / "new"), *folders])
    with pytest.raises(SystemExit, match=said):
        script.main()
    assert not (tmp_path / "new").exists()
