"""Problems of a trace that would be replayed silently wrong, and the command that lists them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from trimaran.cli.main import main
from trimaran.traces.problems import TraceError
from trimaran.traces.reading import examine_trace, read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

Change = Callable[[Path], object]
TRACE = Synthetic(seed=1, nodes=5, minutes=200, warm_up_minutes=50).trace()
CPU, MEMORY = (each.astype(np.float32) for each in (TRACE.use.cpu, TRACE.use.memory))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_trace(TRACE, tmp_path / "world")
    return tmp_path / "world"


def check(*folders: Path) -> Result:
    return CliRunner().invoke(main, ["simulate", "check", *map(str, folders)])


def world(**changes: object) -> Change:
    """Return a change of keys in world.json; None removes a key."""

    def change(folder: Path) -> None:
        keys = json.loads((folder / "world.json").read_text()) | changes
        (folder / "world.json").write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))

    return change


def text(name: str, before: str, after: str) -> Change:
    """Return a change of the first occurrence of a text in a file."""

    def change(folder: Path) -> None:
        content = (folder / name).read_text()
        assert before in content
        (folder / name).write_text(content.replace(before, after, 1))

    return change


def cell(name: str, row: int | None, column: str, value: str) -> Change:
    """Return a change of a column's value in one row, counted as in a spreadsheet, or in all rows (None)."""

    def change(folder: Path) -> None:
        header, *rows = [line.split(",") for line in (folder / name).read_text().splitlines()]
        for number, cells in enumerate(rows, 2):
            if row in (None, number):
                cells[header.index(column)] = value
        (folder / name).write_text("\n".join(map(",".join, [header, *rows])) + "\n")

    return change


def column(name: str, column: str, change_: Callable[[int], int]) -> Change:
    """Return a change of all numbers of a column."""

    def change(folder: Path) -> None:
        header, *rows = [line.split(",") for line in (folder / name).read_text().splitlines()]
        for cells in rows:
            cells[header.index(column)] = str(change_(int(cells[header.index(column)])))
        (folder / name).write_text("\n".join(map(",".join, [header, *rows])) + "\n")

    return change


def added_column(name: str, column: str) -> Change:
    """Return a change that adds a column to a table."""

    def change(folder: Path) -> None:
        header, *rows = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join([f"{header},{column}", *(f"{row},x" for row in rows)]) + "\n")

    return change


def events(rows: str) -> Change:
    """Return a change that writes a table of node events."""
    header = "minute,event,node,cpu_capacity_milli,memory_capacity_bytes"
    return lambda folder: (folder / "events.csv").write_text(f"{header}\n{rows}\n")


def use(**arrays: object) -> Change:
    """Return a change of arrays in usage.npz."""
    written = {"offsets": TRACE.use.offsets, "cpu": TRACE.use.cpu, "memory": TRACE.use.memory}
    return lambda folder: np.savez(folder / "usage.npz", **(written | arrays))


ERRORS: list[tuple[Change, str]] = [
    (world(warm_up_minutes=None, warmup_minutes=50), "key 'warmup_minutes' is not read; did you mean warm_up_minutes?"),
    (world(overcommit={"cpu": 1.5, "mem": 1.2}), "key of overcommit 'mem' is not read; did you mean memory?"),
    (text("world.json", '"minutes"', '"minutes": 60, "minutes"'), "world.json: key 'minutes' is given more than once"),
    (text("world.json", '"cpu"', '"cpu": 9, "cpu"'), "world.json: key 'cpu' is given more than once"),
    (cell("pods.csv", 3, "owner_kind", "job"), "pods.csv: row 3: owner_kind 'job' is not read as a kind"),
    (cell("pods.csv", 3, "owner_kind", "deployments"), "as a kind; did you mean Deployment?"),
    (cell("pods.csv", 3, "owner_kind", "CronJob"), "as a kind; did you mean Job?"),
    (cell("pods.csv", 4, "cpu_limit_milli", "1"), "pods.csv: row 4: cpu_limit_milli 1 is below cpu_request_milli"),
    (cell("pods.csv", 4, "memory_limit_bytes", "0"), "row 4: memory_limit_bytes 0 is below memory_request_bytes"),
    (text("pods.csv", "cpu_limit_milli", "cpu_limit_mili"), "is not read; did you mean cpu_limit_milli?"),
    (text("pods.csv", "cpu_limit_milli", "memory_limit_bytes"), "column 'memory_limit_bytes' is given 2 times"),
    (cell("pods.csv", 2, "arrival_minute", "190"), "row 2: end_minute"),
    (column("nodes.csv", "cpu_capacity_milli", lambda each: each // 1000), "_milli 32 of the largest node is not in"),
    (column("nodes.csv", "memory_capacity_bytes", lambda each: each >> 30), "128 of the largest node is not in bytes"),
    (use(cpu=100 * CPU), "usage.npz: cpu: pods use"),
    (use(memory=100 * MEMORY), "usage.npz: memory: pods use"),
    (lambda folder: (folder / "events.csv").symlink_to("nowhere.csv"), "events.csv: cannot be read: No such file"),
]  # fmt: skip

WARNINGS: list[tuple[Change, str]] = [
    (world(source="our cluster"), "key 'source' is not read; known names: overcommit, warm_up_minutes, minutes"),
    (world(overcommit=150), "world.json: overcommit divides all requests by 150; for 150 %, write 1.5"),
    (added_column("nodes.csv", "zone"), "nodes.csv: column 'zone' is not read; known names: node, cpu_capacity_milli"),
    (use(tasks=CPU), "usage.npz: array 'tasks' is not read; known names: offsets, cpu, memory"),
    (use(cpu=np.append(CPU, 1)), "values, and only the first"),
    (cell("pods.csv", 3, "owner_kind", "Workflow"), "row 3: owner_kind 'Workflow' counts as a service; write Job"),
    (cell("pods.csv", 5, "cpu_request_milli", "0"), "row 5: cpu_request_milli is 0, so the pod's use counts"),
    (cell("pods.csv", 5, "memory_request_bytes", "0"), "row 5: memory_request_bytes is 0, so the pod's"),
    (cell("nodes.csv", 3, "memory_capacity_bytes", "128"), "row 3: memory_capacity_bytes 128 is less than a"),
    (column("nodes.csv", "cpu_capacity_milli", lambda _: 512), "cpu_capacity_milli 512 of the largest node is unusual"),
    (column("nodes.csv", "cpu_capacity_milli", lambda each: each * 10**6), "node is unusual; the unit is millicores"),
    (events("9,join,x,4,16"), "world: events, minute 9: node 'x' joins with 4 millicores and 16 bytes"),
    (use(cpu=3 * CPU), "% of all nodes on average"),
    (use(memory=0 * MEMORY), "usage.npz: memory: no pod uses any, so policies that read it see idle nodes"),
    (world(minutes=500), "no pod runs after minute 200 of 500; are all times in minutes?"),
    (world(minutes=2, warm_up_minutes=0), "arrive after the end of the trace, minute 2, and are left out"),
    (lambda folder: (folder / "event.csv").touch(), "event.csv: is not read; node events are read from"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), ERRORS)
def test_input_that_would_be_replayed_wrongly_is_refused(folder: Path, change: Change, message: str) -> None:
    """Reading fails with file, row, value and remedy, and the command lists the problem with status 2."""
    change(folder)
    with pytest.raises(TraceError) as caught:
        read_trace(folder)
    assert message in str(caught.value)
    result = check(folder)
    assert result.exit_code == 2
    assert any(line.startswith("error: ") and message in line for line in result.stdout.splitlines())
    assert f"{folder}: " in result.stdout


@pytest.mark.parametrize(("change", "message"), WARNINGS)
def test_odd_input_is_read_with_a_warning(folder: Path, change: Change, message: str) -> None:
    """Input that is odd but possible, or that nothing reads, is a warning: the trace is read, and the status is 0."""
    change(folder)
    read_trace(folder)
    result = check(folder)
    assert result.exit_code == 0, result.stdout
    assert any(line.startswith("warning: ") and message in line for line in result.stdout.splitlines()), result.stdout


def test_a_replay_says_the_warnings(folder: Path) -> None:
    """A replay prints the warnings of its trace, of --events and of --faults to standard error."""
    world(source="ours", minutes=120)(folder)
    faults, joins = folder.parent / "faults.csv", folder.parent / "joins.csv"
    faults.write_text("start_minute,end_minute,node,fault,value,why\n60,70,*,outage,,x\n")
    joins.write_text("minute,event,node,cpu_capacity_milli,memory_capacity_bytes,why\n")
    arguments = ["run", "--trace", str(folder), "--policy", "random", "--faults", str(faults), "--events", str(joins)]
    result = CliRunner().invoke(main, ["simulate", *arguments])
    assert result.exit_code == 0, result.stderr
    for path, key in ((folder / "world.json", "key 'source'"), (faults, "column 'why'"), (joins, "column 'why'")):
        assert f"{path}: {key} " in result.stderr


def test_all_problems_are_listed_at_once(folder: Path) -> None:
    """The command lists the problems of all files and rows; reading names the first, and the command for the others."""
    changes = [
        world(warm_up_minutes=None, warmup_minutes=50), cell("nodes.csv", 3, "cpu_capacity_milli", "two"),
        cell("pods.csv", 3, "owner_kind", "job"), cell("pods.csv", 4, "cpu_limit_milli", "1"),
        cell("pods.csv", 5, "end_minute", "soon"), cell("pods.csv", 6, "cpu_request_milli", "-1"),
        cell("pods.csv", 7, "pod", "pod-00000"), use(cpu=100 * CPU), events("9,burn,node-001,,\n8,fail,node-009,,"),
    ]  # fmt: skip
    for change in changes:
        change(folder)
    result = check(folder)
    assert result.exit_code == 2
    errors = [line for line in result.stdout.splitlines() if line.startswith("error: ")]
    for words in (
        "world.json: key 'warmup_minutes'", "nodes.csv: row 3: cpu_capacity_milli must be a whole number",
        "pods.csv: row 3: owner_kind 'job'", "pods.csv: row 4: cpu_limit_milli 1",
        "pods.csv: row 5: end_minute must be", "pods.csv: row 6: cpu_request_milli must be",
        "pods.csv: row 7: pod 'pod-00000' is also in row 2", "usage.npz: cpu: pods use",
        "events.csv: row 2: event must be fail or join, got 'burn'",
        "events, minute 8: node 'node-009' fails but does not exist",
    ):  # fmt: skip
        assert sum(words in error for error in errors) == 1, words
    assert len(errors) == 10
    assert result.stdout.splitlines()[-1] == f"{folder}: cannot be replayed: 10 errors, 0 warnings"
    with pytest.raises(TraceError, match=r"'warmup_minutes' .* 9 .*simulate check .*world"):
        read_trace(folder)


def test_many_problems_of_one_kind_are_counted(folder: Path) -> None:
    """Of a problem that each row has, the first 20 rows are listed and the others counted."""
    cell("pods.csv", None, "owner_kind", "job")(folder)
    lines = check(folder).stdout.splitlines()
    assert len(lines) == 22
    assert lines[-2] == f"error: {folder / 'pods.csv'}: {len(TRACE.pods) - 20} more problems like the last one"


def test_a_sound_trace_has_a_summary(folder: Path) -> None:
    """The summary has the size of the trace and the use of each resource; several folders have one each."""
    events("9,fail,node-001,,\n20,join,node-001,,")(folder)
    result = check(folder)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{folder}: 5 nodes, {len(TRACE.pods)} pods, 200 minutes (50 of them warm-up), 2 node events; 0 warnings",
        "  cpu: use is 41 % of capacity and 36 % of requests; overcommit 1.611",
        "  memory: use is 49 % of capacity and 59 % of requests; overcommit 1.2",
    ]
    both = check(folder, folder.parent)
    assert both.exit_code == 2
    assert f"{folder.parent / 'world.json'}: " in both.stdout
    assert f"{folder}: 5 nodes" in both.stdout


def test_invalid_minutes_are_no_reason_for_other_problems(folder: Path) -> None:
    """With invalid minutes, the trace is as long as its pods, so no other problem follows."""
    world(minutes="many")(folder)
    trace, problems = examine_trace(folder)
    assert trace is None
    assert (len(problems.errors), problems.warnings) == (1, [])
