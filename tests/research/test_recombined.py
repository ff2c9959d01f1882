"""Recombined worlds: the origin of their pods and nodes, and the properties that stay unchanged."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from support.scripts import imported

from trimaran.simulator.cluster import Cluster
from trimaran.traces.problems import TraceError
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import NO_LIMIT, Trace, write_trace


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with imported("recombined") as module:
        yield module


SIZES = ((1, 5, 0.5), (2, 6, 0.5), (3, 7, 0.4), (4, 8, 0.5), (5, 9, 0.6))


def worlds() -> list[Trace]:
    """Return five worlds of different sizes and mean uses, one of them without limits."""
    traces = [Synthetic(seed, nodes, 240, 60, mean_use=use).trace() for seed, nodes, use in SIZES]
    unlimited = np.full(len(traces[3].pods), NO_LIMIT)
    traces[3] = replace(traces[3], cpu_limit_milli=unlimited, memory_limit_bytes=unlimited)
    return traces


def parts(world: Trace) -> tuple[set[str], set[str]]:
    """Return the names of the worlds that the services come from, and of those that the jobs come from."""
    services, jobs = set[str](), set[str]()
    for owner, kind in zip(world.owners, world.owner_kinds, strict=True):
        (jobs if kind == "Job" else services).add("-".join(owner.split("-")[:2]))
    return services, jobs


@pytest.mark.parametrize("seed", range(4))
def test_a_world_has_its_parts_of_four_others(script: ModuleType, seed: int) -> None:
    """It has half of the owners of each of two with all of their pods, the jobs of a third, the nodes of a fourth."""
    sources = {trace.name: trace for trace in worlds()}
    world = script.recombine("new", list(sources.values()), np.random.default_rng(seed))
    services, jobs = parts(world)
    (place,) = (name for name, trace in sources.items() if trace.nodes == world.nodes)
    assert len(services) == 2
    assert len(jobs) == 1
    assert len({*services, *jobs, place}) == 4
    for name in services:
        source = sources[name]
        of = [owner for owner, kind in zip(source.owners, source.owner_kinds, strict=True) if kind != "Job"]
        drawn = {owner for owner in of if f"{name}-{owner}" in world.owners}
        assert len(drawn) == len(set(of)) // 2
        assert all(world.owners.count(f"{name}-{owner}") == of.count(owner) for owner in drawn)
    (third,) = jobs
    assert world.owner_kinds.count("Job") == sources[third].owner_kinds.count("Job")
    assert (np.diff(world.arrival_minute) >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_it_is_as_full_as_the_world_whose_nodes_it_has(script: ModuleType, seed: int) -> None:
    """The mean CPU use is equal, and so are requests of CPU and memory relative to allocatable after overcommit."""
    sources = worlds()
    world = script.recombine("new", sources, np.random.default_rng(seed))
    (place,) = (trace for trace in sources if trace.nodes == world.nodes)
    assert script.mean_use(world) == pytest.approx(script.mean_use(place), rel=0.001)
    for number, amount in enumerate(("cpu_request_milli", "memory_request_bytes")):
        before, after = (
            script.mean_requests(trace, getattr(trace, amount)) / trace.overcommit[number] for trace in (place, world)
        )
        assert after == pytest.approx(before, rel=0.001)


def test_the_mean_use_is_the_replays(script: ModuleType) -> None:
    """The warm-up, the time after the end of the trace, and the use of a pod after its own end do not count."""
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
    assert script.mean_use(trace) == pytest.approx(total[60:].mean())
    minutes = np.arange(60, 240)
    alive = (trace.arrival_minute[:, None] <= minutes) & (minutes < trace.end_minute[:, None])
    requests = (alive * trace.cpu_request_milli[:, None]).sum(axis=0).mean()
    assert script.mean_requests(trace, trace.cpu_request_milli) == pytest.approx(requests)


def test_pods_keep_their_lifetimes_and_relative_use(script: ModuleType) -> None:
    """The pods of an owner stay as similar as before, whatever the factor of their requests."""
    sources = {trace.name: trace for trace in worlds()}
    world = script.recombine("new", list(sources.values()), np.random.default_rng(0))
    seen: dict[str, int] = {}
    for pod, owner in enumerate(world.owners):
        name, old = "-".join(owner.split("-")[:2]), "-".join(owner.split("-")[2:])
        source = sources[name]
        same = [number for number, name_there in enumerate(source.owners) if name_there == old]
        number = same[seen.get(owner, 0)]
        seen[owner] = seen.get(owner, 0) + 1
        assert world.owner_kinds[pod] == source.owner_kinds[number]
        assert world.arrival_minute[pod] == source.arrival_minute[number]
        assert world.end_minute[pod] == source.end_minute[number]
        for resource in ("cpu", "memory"):
            new, before = (
                getattr(trace.use, resource)[slice(*trace.use.offsets[at : at + 2])]
                for trace, at in ((world, pod), (source, number))
            )
            assert np.array_equal(new, before)


def test_no_limit_and_no_request_stay_unchanged(script: ModuleType) -> None:
    """Every other amount is at least 1 after scaling."""
    assert script.scaled(np.array([NO_LIMIT, 0, 1, 100, 1000]), 0.004).tolist() == [NO_LIMIT, 0, 1, 1, 4]


def test_the_seed_decides_the_worlds(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Worlds can be read back; the same seed gives the same worlds, another seed gives others."""
    folders = []
    for trace in worlds():
        folders.append(tmp_path / trace.name)
        write_trace(trace, folders[-1])

    def run(into: str, seed: int) -> list[Trace]:
        options = ["--into", str(tmp_path / into), "--count", "2", "--seed", str(seed)]
        monkeypatch.setattr(sys, "argv", ["recombined.py", *options, *map(str, folders)])
        script.main()
        return [read_trace(tmp_path / into / f"recombined-0{number}") for number in (1, 2)]

    one, again, other = run("one", 0), run("again", 0), run("other", 1)
    assert [trace.owners for trace in one] == [trace.owners for trace in again]
    assert one[0].owners != one[1].owners
    assert [trace.owners for trace in one] != [trace.owners for trace in other]
    assert f"{len(one[0].pods):,} pods" in capsys.readouterr().out


def one_owner(trace: Trace) -> Trace:
    """Return a trace whose pods belong to one service: half of its owners are zero owners, and it has no jobs."""
    return replace(trace, owner_kinds=("Deployment",) * len(trace.pods), owners=("one",) * len(trace.pods))


def idle(trace: Trace) -> Trace:
    """Return a trace whose pods use no CPU."""
    return replace(trace, use=replace(trace.use, cpu=np.zeros_like(trace.use.cpu)))


REFUSED = {
    "too few": (lambda traces: traces[:3], "3 worlds: a new one needs 4"),
    "several lengths": (lambda traces: [*traces[:3], replace(traces[3], minutes=239)], "different lengths or warm-ups"),
    "one name": (
        lambda traces: [*traces[:3], replace(traces[3], name=traces[0].name)],
        "two worlds have the same name",
    ),
    "no time": (lambda traces: [replace(trace, warm_up_minutes=240) for trace in traces], "end with their warm-up"),
    "no pods": (lambda traces: [one_owner(trace) for trace in traces], "too few services, and synthetic-. has no jobs"),
    "idle": (lambda traces: [idle(trace) for trace in traces], "synthetic-.: no CPU is used"),
}


@pytest.mark.parametrize(("spoil", "message"), REFUSED.values(), ids=REFUSED)
def test_worlds_that_cannot_be_put_together_are_refused(
    script: ModuleType, tmp_path: Path, spoil: Callable[[list[Trace]], list[Trace]], message: str
) -> None:
    """The error comes before any file is written."""
    with pytest.raises(TraceError, match=message):
        script.write(script.check(spoil(worlds())), tmp_path / "new", 2, 0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("there", ["file", "folder"])
def test_nothing_is_written_over(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """Worlds of another run would pass for worlds of this one. A folder that is not a trace is refused, too."""
    folders = [str(tmp_path / trace.name) for trace in worlds()]
    for trace in worlds():
        write_trace(trace, tmp_path / trace.name)
    into = tmp_path / folders[0] if there == "folder" else tmp_path / folders[0] / "world.json"
    monkeypatch.setattr(sys, "argv", ["recombined.py", "--into", str(into), *folders])
    with pytest.raises(SystemExit, match="empty"):
        script.main()
    monkeypatch.setattr(sys, "argv", ["recombined.py", "--into", str(into), *folders, str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="none: "):
        script.main()
