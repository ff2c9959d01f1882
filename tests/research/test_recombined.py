"""Worlds put together anew: of whose pods and nodes they are, and what stays as it was."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trimaran.simulator.cluster import Cluster
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import NO_LIMIT, Trace, TraceError, read_trace, write_trace

FOLDER = Path(__file__).parents[2] / "research"


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
    """Warm-up, what is beyond the end, and what pods would have used after their own are left out."""
    trace = worlds()[0]
    last = np.where(
        np.arange(len(trace.pods)) % 2, trace.end_minute, (trace.arrival_minute + trace.end_minute + 1) // 2
    )
    trace = replace(trace, end_minute=last)
    cluster = Cluster(trace, (1.0, 1.0))
    total = np.zeros(trace.minutes)
    for pod, arrival in enumerate(trace.arrival_minute.tolist()):
        cpu = cluster.series(pod, arrival)[0]
        total[arrival : arrival + len(cpu)] += cpu
    assert script.used(trace) == pytest.approx(total[60:].mean())
    minutes = np.arange(60, 240)
    alive = (trace.arrival_minute[:, None] <= minutes) & (minutes < trace.end_minute[:, None])
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


def one_owner(trace: Trace) -> Trace:
    """Return a trace whose pods are one service's: half of its owners is none, and it has no jobs."""
    return replace(trace, owner_kinds=("Deployment",) * len(trace.pods), owners=("one",) * len(trace.pods))


def idle(trace: Trace) -> Trace:
    """Return a trace whose pods use no CPU."""
    return replace(trace, use=replace(trace.use, cpu=np.zeros_like(trace.use.cpu)))


REFUSED = {
    "too few": (lambda made: made[:3], "3 worlds: a new one takes its parts from 4"),
    "several lengths": (lambda made: [*made[:3], replace(made[3], minutes=239)], "several lengths or warm-ups"),
    "one name": (lambda made: [*made[:3], replace(made[3], name=made[0].name)], "two worlds have the same name"),
    "no time": (lambda made: [replace(each, warm_up_minutes=240) for each in made], "over with their warm-up"),
    "no pods": (lambda made: [one_owner(each) for each in made], "too few services, and synthetic-. has no jobs"),
    "idle": (lambda made: [idle(each) for each in made], "synthetic-.: no CPU is used"),
}


@pytest.mark.parametrize(("spoil", "said"), REFUSED.values(), ids=REFUSED)
def test_worlds_that_cannot_be_put_together_are_refused(
    script: ModuleType, tmp_path: Path, spoil: Callable[[list[Trace]], list[Trace]], said: str
) -> None:
    """Before anything is written."""
    with pytest.raises(TraceError, match=said):
        script.write(script.check(spoil(worlds())), tmp_path / "new", 2, 0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("there", ["file", "folder"])
def test_nothing_is_written_over(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """Worlds of another run would be taken for those of this one. Nor is a folder taken that is no trace."""
    folders = [str(tmp_path / trace.name) for trace in worlds()]
    for trace in worlds():
        write_trace(trace, tmp_path / trace.name)
    into = tmp_path / folders[0] if there == "folder" else tmp_path / folders[0] / "world.json"
    monkeypatch.setattr(sys, "argv", ["recombined.py", "--into", str(into), *folders])
    with pytest.raises(SystemExit, match="is no empty folder; name another one"):
        script.main()
    monkeypatch.setattr(sys, "argv", ["recombined.py", "--into", str(into), *folders, str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="none: is not a folder"):
        script.main()
