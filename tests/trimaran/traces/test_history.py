"""Use on the days before a trace: its files, its checks, and what the learner of a replay takes from it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.learning import UseHistory
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import BEGIN_SECONDS, Windows
from trimaran.traces.history import STEPS_A_DAY, TraceHistory
from trimaran.traces.problems import TraceError
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace, write_trace
from watcher.usage.learn.learner import WorkloadLearner

SYNTHETIC = Synthetic(seed=3, nodes=4, minutes=120, warm_up_minutes=20)
SHAPE = (2, STEPS_A_DAY)


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Return a world with two days of the first owner: half of the request, and before that a quarter."""
    world = SYNTHETIC.trace()
    names = (world.owner_kinds[0],) * 2, (world.owners[0],) * 2, ("",) * 2
    cpu, memory = np.float16([[0.5], [0.25]]) * np.ones(SHAPE), np.full(SHAPE, 0.75)
    return replace(world, history=TraceHistory(*names, np.array([-1, -2]), cpu, memory))


@pytest.fixture
def folder(trace: Trace, tmp_path: Path) -> Path:
    write_trace(trace, tmp_path / "world")
    return tmp_path / "world"


def begun(trace: Trace) -> WorkloadLearner:
    """Return the learner of a replay at its start."""
    cluster = Cluster(trace, trace.overcommit)
    return UseHistory(cluster, SimulatedWatcher(Windows(), cluster)).learner


def test_a_written_history_is_read_unchanged(trace: Trace, folder: Path) -> None:
    """A history is equal after writing and reading; a folder without one has none."""
    read, written = read_trace(folder).history, trace.history
    assert read is not None
    assert written is not None
    assert (read.owner_kinds, read.owners) == (written.owner_kinds, written.owners)
    assert (read.days == written.days).all()
    assert (read.cpu == written.cpu).all()
    (folder / "history.csv").unlink()
    (folder / "history.npz").unlink()
    assert read_trace(folder).history is None


def replaced_day(day: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "history.csv"
        path.write_text(path.read_text().replace(",-1\n", f",{day}\n"))

    return change


def arrays(**changed: np.ndarray) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        np.savez(folder / "history.npz", **({"cpu": np.zeros(SHAPE), "memory": np.zeros(SHAPE)} | changed))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced_day("0"), "day must be a whole number from -366 to -1, got '0'"),
        (replaced_day("1"), "day must be a whole number from -366 to -1, got '1'"),
        (arrays(cpu=np.zeros((2, STEPS_A_DAY + 1))), "cpu must be numbers of the shape (2, 288)"),
        (arrays(cpu=np.full(SHAPE, 10_001.0)), "cpu must be from 0 to 10000 times the request"),
        (lambda folder: (folder / "history.npz").unlink(), "history.npz: cannot be read"),
        (lambda folder: (folder / "history.csv").unlink(), "history.csv: cannot be read"),
    ],
)
def test_a_broken_history_is_refused(folder: Path, change: Callable[[Path], None], message: str) -> None:
    """A history that reaches into the trace is refused, and so are files that do not fit together."""
    change(folder)
    with pytest.raises(TraceError) as refused:
        read_trace(folder)
    assert message in str(refused.value)


def test_the_learner_knows_the_history_before_minute_0(trace: Trace) -> None:
    """The expected use of an owner is that of its days, the newest first; nothing is of a later time."""
    learner = begun(trace)
    table = learner.table()
    assert [workload.name for workload in table.workloads] == [trace.owners[0]]
    of_owner = np.array(trace.owners) == trace.owners[0]
    requests = np.array([trace.cpu_request_milli[of_owner] / 1000, trace.memory_request_bytes[of_owner]]).mean(axis=1)
    newest_first = (0.5 + 0.25 / np.e) / (1 + 1 / np.e)  # a day weighs 1/e of the next one
    assert table.use[:, 0] == pytest.approx(requests * (newest_first, 0.75), rel=0.01)
    assert learner.rows["pod_minutes"][0] == 2 * 1440
    assert learner.rows["first_seen"][0] == pytest.approx(BEGIN_SECONDS - 2 * 86400, abs=300)
    assert learner.rows["last_seen"][0] == table.timestamp == BEGIN_SECONDS
    assert learner.live_since == 0


def test_no_use_of_the_trace_is_in_the_history(trace: Trace) -> None:
    """Use in the trace changes nothing that the learner knows at the start; the history does."""
    idle = replace(trace.use, cpu=np.zeros_like(trace.use.cpu))
    before = begun(trace).table().use
    assert (begun(replace(trace, use=idle)).table().use == before).all()
    assert trace.history is not None
    other = replace(trace.history, cpu=trace.history.cpu / 2)
    assert (begun(replace(trace, history=other)).table().use[0] < before[0]).all()


def test_owners_without_pods_are_gone(trace: Trace) -> None:
    """Use of an owner that has no pod in the trace teaches nothing."""
    assert trace.history is not None
    gone = replace(trace.history, owners=("gone",) * 2)
    assert len(begun(replace(trace, history=gone)).table().workloads) == 0


def test_a_generated_history_changes_nothing_else() -> None:
    """The trace is the same with a history; most owners have one, services on each day unless they are new."""
    plain, trace = SYNTHETIC.trace(), replace(SYNTHETIC, history_days=7).trace()
    assert plain.history is None
    assert (trace.use.cpu == plain.use.cpu).all()
    assert (trace.cpu_request_milli == plain.cpu_request_milli).all()
    history = trace.history
    assert history is not None
    assert set(history.days.tolist()) == set(range(-7, 0))
    owners = set(zip(history.owner_kinds, history.owners, strict=True))
    known = len(owners) / len(set(zip(trace.owner_kinds, trace.owners, strict=True)))
    assert 0.6 < known < 1
    assert 0 < sum(map(bool, history.revisions)) < len(history.revisions) / 2
    days = np.array(history.owner_kinds) == "Deployment"
    assert np.isfinite(history.cpu[days]).all()


def test_jobs_that_are_not_alike_have_levels_of_their_own() -> None:
    """Runs of one owner use similar shares of their requests, unless each has a level of its own."""
    spreads = []
    for alike in (True, False):
        trace = replace(SYNTHETIC, minutes=600, alike_jobs=alike).trace()
        means: dict[str, list[float]] = {}
        for pod, (kind, owner) in enumerate(zip(trace.owner_kinds, trace.owners, strict=True)):
            if kind == "Job":
                means.setdefault(owner, []).append(trace.usage(pod)[0].mean() / trace.cpu_request_milli[pod])
        spreads.append(np.mean([np.std(each) for each in means.values() if len(each) > 2]))
    assert 2 * spreads[0] < spreads[1]
