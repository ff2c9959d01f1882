"""Reading, writing and validation of traces."""

import json
from pathlib import Path

import numpy as np
import pytest

from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay
from trimaran.traces.problems import TraceError
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import Trace, write_trace

SYNTHETIC = Synthetic(seed=1, nodes=5, minutes=200, warm_up_minutes=50)
LAST_POD = SYNTHETIC.trace().pods[-1]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return SYNTHETIC.trace()


@pytest.fixture
def folder(trace: Trace, tmp_path: Path) -> Path:
    write_trace(trace, tmp_path / "world")
    return tmp_path / "world"


def test_a_written_trace_is_read_unchanged(trace: Trace, folder: Path) -> None:
    """A trace is equal after writing and reading."""
    read = read_trace(folder)
    assert read.name == "world"
    assert read.nodes == trace.nodes
    assert read.pods == trace.pods
    assert read.owners == trace.owners
    assert read.overcommit == trace.overcommit
    for name in ("arrival_minute", "end_minute", "cpu_request_milli", "memory_request_bytes", "cpu_limit_milli"):
        assert (getattr(read, name) == getattr(trace, name)).all(), name
    assert (read.use.cpu == trace.use.cpu).all()
    assert read.usage(3)[0] == pytest.approx(trace.usage(3)[0])


def test_a_pod_may_have_no_limits(folder: Path) -> None:
    """An empty limit means no limit."""
    lines = (folder / "pods.csv").read_text().splitlines()
    lines[1] = ",".join([*lines[1].split(",")[:7], "", ""])
    (folder / "pods.csv").write_text("\n".join(lines) + "\n")
    assert read_trace(folder).cpu_limit_milli[0] == -1


def test_a_world_may_be_shorter_than_its_pods(trace: Trace, folder: Path) -> None:
    """Pods are clipped to the end of the world, and later pods never arrive."""
    broken_world(minutes=120)(folder)
    read = read_trace(folder)
    assert (read.end_minute == np.minimum(trace.end_minute, 120)).all()
    arrived = int((trace.arrival_minute < 120).sum())
    assert 0 < arrived < len(trace.pods)
    outcome = Replay(read, policies(read)["default"]).run()
    assert outcome.decisions + len(outcome.unplaced) == arrived


def test_empty_rows_are_ignored(trace: Trace, folder: Path) -> None:
    """Empty rows of a table are not pods."""
    path = folder / "pods.csv"
    path.write_text(path.read_text().replace("\n", "\n\n"))
    assert read_trace(folder).pods == trace.pods


def test_a_world_has_the_name_of_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths yield the folder's name, and a link to a folder yields the link's name."""
    link = folder.parent / "other"
    link.symlink_to(folder)
    monkeypatch.chdir(link)
    assert [read_trace(Path(each)).name for each in (folder, link, f"{link}/", "../other", "../world/../world")] == [
        "world", "other", "other", "other", "world",
    ]  # fmt: skip


def test_a_table_may_come_from_a_spreadsheet(trace: Trace, folder: Path) -> None:
    """Windows line ends and a byte order mark are accepted."""
    for name in ("world.json", "nodes.csv", "pods.csv"):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_trace(folder).pods == trace.pods


@pytest.mark.parametrize(
    ("written", "expected"), [(None, (1.0, 1.0)), (1.5, (1.5, 1.5)), (2, (2.0, 2.0)), ({"cpu": 1.5}, (1.5, 1.0))]
)
def test_overcommit_may_be_missing_or_one_number(folder: Path, written: object, expected: tuple[float, float]) -> None:
    """The default is 1 for each resource; one number applies to both."""
    broken_world(overcommit=written)(folder)
    assert read_trace(folder).overcommit == expected


def test_whole_numbers_may_have_a_decimal_point(folder: Path) -> None:
    """200.0 is read as the whole number 200."""
    broken_world(minutes=200.0, warm_up_minutes=50.0)(folder)
    read = read_trace(folder)
    assert (read.minutes, read.warm_up_minutes) == (200, 50)
    assert isinstance(read.minutes, int)


def test_a_trace_may_have_spaces_after_commas_integer_levels_and_no_warm_up(trace: Trace, folder: Path) -> None:
    """Spaces after commas, levels of an integer type, and a missing warm-up are accepted."""
    for name in ("nodes.csv", "pods.csv"):
        (folder / name).write_text((folder / name).read_text().replace(",", ", "))
    world = json.loads((folder / "world.json").read_text())
    del world["warm_up_minutes"]
    (folder / "world.json").write_text(json.dumps(world))
    use = read_use(folder)
    np.savez(folder / "usage.npz", **{**use, "cpu": np.ones(len(use["cpu"]), np.int8)})
    read = read_trace(folder)
    assert (read.warm_up_minutes, read.owners, read.nodes) == (0, trace.owners, trace.nodes)
    assert read.cpu_limit_milli.tolist() == trace.cpu_limit_milli.tolist()
    assert read.use.cpu.dtype == np.float32
    assert (read.use.cpu == 1).all()


def test_pods_without_an_owner_are_their_own_owners(trace: Trace, folder: Path) -> None:
    """A pod without an owner has its own name as owner, so that such pods do not form one service."""
    (folder / "pods.csv").write_text((folder / "pods.csv").read_text().replace(f",{trace.owners[0]},", ",,"))
    read = read_trace(folder)
    orphans = [pod for pod, owner in zip(trace.pods, trace.owners, strict=True) if owner == trace.owners[0]]
    assert len(orphans) > 1
    assert [owner for pod, owner in zip(read.pods, read.owners, strict=True) if pod in orphans] == orphans


def test_an_empty_file_of_events_is_valid(folder: Path) -> None:
    """A file of events without a header has no events."""
    (folder / "events.csv").touch()
    assert read_trace(folder).events == ()


@pytest.mark.parametrize("columns", [7, 8])
def test_a_trace_may_have_no_columns_of_limits(trace: Trace, folder: Path, columns: int) -> None:
    """Pods have no limit if the column of limits is missing."""
    lines = [",".join(line.split(",")[:columns]) for line in (folder / "pods.csv").read_text().splitlines()]
    (folder / "pods.csv").write_text("\n".join(lines) + "\n")
    read = read_trace(folder)
    assert (read.memory_limit_bytes == -1).all()
    assert (read.cpu_limit_milli == (-1 if columns == 7 else trace.cpu_limit_milli)).all()


def broken_world(**changes):
    def change(folder: Path) -> None:
        world = json.loads((folder / "world.json").read_text())
        (folder / "world.json").write_text(json.dumps({**world, **changes}))

    return change


def broken_text(name: str, before: str, after: str):
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after, 1))

    return change


def read_use(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "usage.npz") as archive:
        return dict(archive)


def broken_use(**changes):
    def change(folder: Path) -> None:
        arrays = read_use(folder)
        for name, at in changes.items():
            place, value = at
            arrays[name][place] = value
        np.savez(folder / "usage.npz", **arrays)

    return change


def broken_archive(folder: Path) -> None:
    written = bytearray((folder / "usage.npz").read_bytes())
    middle = len(written) // 2
    written[middle : middle + 100] = bytes(100)
    (folder / "usage.npz").write_bytes(written)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "world.json").unlink(), r"world\.json: cannot be read"),
        (lambda folder: (folder / "world.json").write_text("{"), r"world\.json: is not valid JSON"),
        (lambda folder: (folder / "world.json").write_text("[" * 100_000), r"world\.json: is not valid JSON"),
        (broken_world(minutes=-1), r"world\.json: minutes must be a whole number from 1 .* got -1"),
        (broken_world(overcommit={"cpu": 0}), r"overcommit\.cpu must be a number from 0\.01 to 1000, got 0"),
        (
            broken_world(overcommit={"memory": 1e-9}),
            r"overcommit\.memory must be a number from 0\.01 to 1000, got 1e-09",
        ),
        (broken_world(overcommit={"cpu": 10**400}), r"overcommit\.cpu must be a number from 0\.01 to 1000, got 1000"),
        (broken_world(overcommit={"CPU": 2}), "key of overcommit 'CPU' is not read; did you mean cpu"),
        (broken_world(overcommit=0), r"overcommit must be a number from 0\.01 to 1000, got 0"),
        (broken_world(overcommit="1.5"), r"overcommit must be an object or a number, got '1\.5'"),
        (broken_world(overcommit=True), r"overcommit must be an object or a number, got True"),
        (broken_world(overcommit={"cpu": None}), r"overcommit\.cpu must be a number from 0\.01 to 1000, got None"),
        (broken_world(minutes=200.5), r"world\.json: minutes must be a whole number from 1 .* got 200\.5"),
        (broken_world(minutes=float("inf")), r"world\.json: minutes must be a whole number from 1 .* got inf"),
        (broken_world(minutes=True), r"world\.json: minutes must be a whole number from 1 .* got True"),
        (lambda folder: (folder / "events.csv").write_text("\n"), r"events\.csv: has no column minute"),
        (lambda folder: (folder / "pods.csv").write_text(""), r"pods\.csv: has no column pod"),
        (broken_world(warm_up_minutes=500), r"warm_up_minutes must be a whole number from 0 to 199, got 500"),
        (broken_world(warm_up_minutes=200), r"warm_up_minutes must be a whole number from 0 to 199, got 200"),
        (
            broken_text("nodes.csv", ",cpu_capacity_milli", ",cpu_milli"),
            r"nodes\.csv: has no column cpu_capacity_milli: its header is 'node,cpu_milli,mem.*'; columns",
        ),
        (
            lambda folder: (folder / "nodes.csv").write_text("\n"),
            r"nodes\.csv: has no column node: its header is ''; columns are node,",
        ),
        (
            lambda folder: (folder / "nodes.csv").write_text("x" * 9999),
            r"no column node: its header is 'x{200}'; columns are",
        ),
        (broken_text("nodes.csv", "node-001", "node-000"), r"nodes\.csv: row 3: node 'node-000' is also in row 2"),
        (broken_text("nodes.csv", "node-001", ""), r"nodes\.csv: row 3: node is empty"),
        (broken_text("pods.csv", "\npod-00001,", "\n\n\npod-00001,x,"), r"pods\.csv: row 5: has 10 values"),
        (
            broken_text("pods.csv", "\npod-00002,", "\n\npod-00000,"),
            r"pods\.csv: row 5: pod 'pod-00000' is also in row 2",
        ),
        (
            broken_text("pods.csv", "\npod-00000,", "\npod-00000,x,"),
            r"pods\.csv: row 2: has 10 values, the header has 9",
        ),
        (broken_text("pods.csv", "Deployment", "Deploy,ment"), r"has 10 values"),
        (broken_use(cpu=(0, np.nan)), r"usage\.npz: cpu must be from 0 .* got nan of pod pod-00000"),
        (broken_use(memory=(-1, -1)), rf"usage\.npz: memory must be from 0 .* got -1\.0 of pod {LAST_POD}"),
        (
            lambda folder: np.savez(
                folder / "usage.npz", **{**read_use(folder), "cpu": np.append(read_use(folder)["cpu"], np.inf)}
            ),
            r"usage\.npz: cpu must be from 0 .* got inf of no pod",
        ),
        (broken_use(offsets=(2, 10**6)), r"usage\.npz: offsets must start at 0 or more and ascend"),
        (
            lambda folder: np.savez(
                folder / "usage.npz",
                **{**read_use(folder), "offsets": read_use(folder)["offsets"].astype(np.uint64)[::-1].copy()},
            ),
            r"usage\.npz: offsets must start at 0 or more and ascend",
        ),
        (
            lambda folder: np.savez(
                folder / "usage.npz",
                **{**read_use(folder), "offsets": np.append(read_use(folder)["offsets"][:-1], 2**63).astype(np.uint64)},
            ),
            r"usage\.npz: offsets end at 9223372036854775808, cpu at",
        ),
        (broken_use(offsets=(-1, 10**6)), r"usage\.npz: offsets end at 1000000, cpu at \d+ and memory at \d+"),
        (
            lambda folder: (folder / "usage.npz").write_bytes(b"PK"),
            r"usage\.npz: must be an \.npz archive .* the arrays offsets",
        ),
        (lambda folder: (folder / "usage.npz").write_bytes(b""), r"usage\.npz: must be an \.npz archive"),
        (
            lambda folder: (folder / "usage.npz").write_text("hello"),
            r"must be an \.npz archive .* offsets, cpu, memory$",
        ),
        (broken_archive, r"usage\.npz: must be an \.npz archive"),
        (
            lambda folder: (np.save(folder / "a.npy", np.zeros(3)), (folder / "a.npy").rename(folder / "usage.npz")),
            r"usage\.npz: must be an \.npz archive",
        ),
        (
            lambda folder: np.savez(folder / "usage.npz", offsets=np.zeros(1, int), cpu=np.zeros(1)),
            r"usage\.npz: must be an \.npz archive .*: has no array memory",
        ),
        (
            lambda folder: np.savez(folder / "usage.npz", **{**read_use(folder), "cpu": np.float64(1)}),
            r"usage\.npz: cpu must be a one-dimensional array",
        ),
    ],
)
def test_a_broken_trace_is_refused(folder: Path, change, message: str) -> None:
    """The error names the file and the row or key."""
    change(folder)
    with pytest.raises(TraceError, match=message):
        read_trace(folder)


@pytest.mark.parametrize("written", ["nan", "-5", "1e300", "a lot", "2.5"])
def test_an_invalid_amount_is_refused(folder: Path, written: str) -> None:
    """An amount must be a whole number of 0 or more, and not larger than any node."""
    lines = (folder / "pods.csv").read_text().splitlines()
    cells = lines[4].split(",")
    lines[4] = ",".join([*cells[:5], written, *cells[6:]])
    (folder / "pods.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(TraceError, match=r"pods\.csv: row 5: cpu_request_milli "):
        read_trace(folder)


def test_the_synthetic_world_has_the_requested_statistics() -> None:
    """Mean use and requests after overcommit have the requested shares; a seed yields the same trace again."""
    world = Synthetic(seed=2, nodes=30, minutes=1500, warm_up_minutes=300)
    trace, again = world.trace(), world.trace()
    assert (trace.use.cpu == again.use.cpu).all()
    assert (trace.cpu_request_milli == again.cpu_request_milli).all()
    used = np.zeros(trace.minutes)
    requested = np.zeros(trace.minutes)
    for pod in range(len(trace.pods)):
        start, end = int(trace.arrival_minute[pod]), int(trace.end_minute[pod])
        used[start:end] += trace.usage(pod)[0][: end - start]
        requested[start:end] += trace.cpu_request_milli[pod] / trace.overcommit[0]
    total = trace.cpu_capacity_milli.sum()
    assert used[300:].mean() / total == pytest.approx(0.5, abs=0.01)
    assert requested[300:].mean() / total == pytest.approx(0.88, abs=0.01)
