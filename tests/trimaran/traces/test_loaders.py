"""``trimaran simulate import``: import of public data sets, with small files in their formats."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trimaran.cli.main import main
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import Trace

GIB = 1024**3
MICRO = 1_000_000


def run(form: str, source: Path, out: Path, *options: object) -> Result:
    span = ("--hours", 1, "--warm-up-hours", 0.5, *options)
    return CliRunner().invoke(main, ["simulate", "import", form, *map(str, (source, out, *span))])


def imported(form: str, source: Path, *options: object) -> Trace:
    result = run(form, source, source / "out", *options)
    assert result.exit_code == 0, result.output
    return read_trace(source / "out")


def pod_rows(trace: Trace) -> dict[str, tuple[str, str, int, int, int, int]]:
    """Return owner kind, owner, arrival, end, millicores and bytes of each pod."""
    rows = zip(
        trace.owner_kinds, trace.owners, trace.arrival_minute.tolist(), trace.end_minute.tolist(),
        trace.cpu_request_milli.tolist(), trace.memory_request_bytes.tolist(), strict=True,
    )  # fmt: skip
    return dict(zip(trace.pods, rows, strict=True))


def cpu(trace: Trace, pod: str) -> list[float]:
    return [float(value) for value in trace.usage(trace.pods.index(pod))[0].round(0)]


def alibaba2018(folder: Path) -> None:
    (folder / "machine_meta.csv").write_text("m_1,0,1,a,96,100,USING\nm_1,60,1,a,96,100,USING\nm_2,0,2,b,96,50,USING\n")
    (folder / "container_meta.csv").write_text(
        "c_1,m_1,0,app_7,started,400,800,1.56\nc_1,m_1,300,app_7,started,400,800,1.56\nc_2,m_9,0,app_8,started,100,100,1\n"
        "c_3,m_2,0,app_9,started,100,100,1\n"
    )
    usage = (
        b"c_1,m_1,600,50,90,1.2,,2,,,3\nc_2,m_9,600,50,90,,,,,,\nc_1,m_1,900,101,80,,,,,,\nc_1,m_1,1200,25,80,,,,,,\n"
        b"c_1,m_1,none,25,80,,,,,,\nc_3,m_2,3300,50,50,,,,,,\n"
    )
    with tarfile.open(folder / "container_usage.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("container_usage.csv")
        member.size = len(usage)
        archive.addfile(member, io.BytesIO(usage))


def google2011(folder: Path) -> None:
    for table in ("machine_events", "task_events", "task_usage"):
        (folder / table).mkdir()
    with gzip.open(folder / "machine_events" / "part-00000-of-00001.csv.gz", "wt") as file:
        file.write(f"0,5,0,HofLG,0.5,0.2493\n{MICRO},5,1,HofLG,,\n0,6,0,HofLG,1,1\n")
    events = [
        "0,2,3418309,0,5,1,user,3,9,0.125,0.07446,0.0004244,0",  # started before the trace
        "600000000,,77,0,,0,user,0,2,0.0625,0.01,0.0001,0",  # submitted, without a machine
        "660000000,,77,0,5,1,user,0,2,0.0625,0.01,0.0001,0",
        "1260000000,,77,0,5,4,user,0,2,0.0625,0.01,0.0001,0",
        "1500000000,,77,0,5,1,user,0,2,0.0625,0.01,0.0001,0",  # it runs again
        "1740000000,,77,0,5,5,user,0,2,0.0625,0.01,0.0001,0",
        "1740000000,,78,0,4155527081,1,user,0,2,0.0625,0.01,0.0001,0",  # on a machine that is not in the data set
    ]
    with gzip.open(folder / "task_events" / "part-00000-of-00001.csv.gz", "wt") as file:
        file.write("\n".join(events) + "\n")
    tail = ",0.07,0.0,0.0,0.07,0,0,0.1,0,2.1,0.001,1,0,0.02"
    usage = [
        f"0,3600000000,3418309,0,5,0.0625,0.05{tail}",
        f"660000000,960000000,77,0,5,0.03125,0.005{tail}",
        f"1500000000,1740000000,77,0,5,0.015625,0.005{tail}",
        f"oops,1740000000,77,0,5,0.0156,0.005{tail}",
        f"0,300000000,99,0,5,0.0156,0.005{tail}",
    ]
    with gzip.open(folder / "task_usage" / "part-00000-of-00001.csv.gz", "wt") as file:
        file.write("\n".join(usage) + "\n")


def google2019(folder: Path) -> None:
    """Write unordered events with numbers as text, as BigQuery does, and the use as CSV with nested columns."""
    machine = {"time": "0", "machine_id": "5", "type": "1", "capacity": {"cpus": 0.5, "memory": 0.25}}
    (folder / "machine_events.json").write_text(json.dumps(machine) + "\n")
    common = {"machine_id": "5", "collection_type": "0", "alloc_collection_id": "0", "priority": "200"}
    requested = {"resource_request": {"cpus": 0.125, "memory": 0.0625}}
    ends, starts = (
        {**common, **requested, "collection_id": "9", "instance_index": "3", "scheduling_class": "2"} for _ in "ab"
    )
    ends |= {"time": "1800000000", "type": "7"}
    starts |= {"time": "600000000", "type": "3"}
    later = {**starts, "instance_index": "4", "time": "3300000000"}
    alloc = {**starts, "collection_id": "10", "collection_type": "1"}
    with gzip.open(folder / "instance_events-000000000000.json.gz", "wt") as file:
        file.write("\n".join(json.dumps(each) for each in (ends, alloc, starts, later)) + "\n[1]\n")
    (folder / "instance_usage-000000000000.csv").write_text(
        "start_time,end_time,collection_id,instance_index,machine_id,average_usage_cpus,average_usage_memory\n"
        "600000000,900000000,9,3,5,0.0625,0.03\n900000000,1200000000,9,3,5,0.03125,\n0,300000000,8,1,5,0.1,0.1\n600000000,900000000,10,3,5,0.1,0.1\n3300000000,3600000000,9,4,5,0.1,0.1\n"
    )


def azure2019(folder: Path) -> None:
    (folder / "vmtable.csv").write_text(
        "vm1,sub,dep1,0,2591700,99.1,10.2,80.5,Interactive,4,32\n"
        "vm2,sub,dep2,600,1800,99.1,10.2,80.5,Delay-insensitive,>24,>64\n"
        "vm3,sub,dep3,7200,9000,1,1,1,Unknown,2,4\n"
    )
    with gzip.open(folder / "vm_cpu_readings-file-1-of-195.csv.gz", "wt") as file:
        file.write(
            "0,vm1,1.0,9.0,5.0\n300,vm1,1.0,20.0,10.0\n600,vm2,1,2,50\n900,vm2,1,2,250\n0,vm9,1,2,3\n1200,vm1,1,12,10\n1200,vm2,1,2,50\n"
            "2400,vm1,1,12,10\n3300,vm1,1,12,10\n"
        )


def planetlab(folder: Path) -> None:
    (folder / "planetlab1.site.edu").write_text("10\n20\n" + "30\n" * 286)
    (folder / "planetlab2.site.edu").write_text("#288\n" + "50\n" * 288)


def openb(folder: Path) -> None:
    (folder / "openb_node_list_all_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,32000,262144,0,\nopenb-node-0001,128000,786432,8,G3\n"
    )
    (folder / "openb_pod_list_default.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
        "openb-pod-0001,6000,12288,1,460,V100M16|V100M32,BE,Succeeded,605,1205,610\n"
        "openb-pod-0002,?,12288,1,460,,BE,Succeeded,605,1205,610\n"
    )


@pytest.mark.parametrize(
    ("write", "nodes", "pods"),
    [
        (
            alibaba2018,
            {"m_1": (96_000, 256 * GIB), "m_2": (96_000, 128 * GIB)},
            {
                "c_1": ("Deployment", "app_7", 10, 25, 4000, round(1.56 * 2.56 * GIB)),
                "c_3": ("Deployment", "app_9", 55, 60, 1000, round(2.56 * GIB)),
            },
        ),
        (
            google2011,
            {"5": (32_000, round(0.2493 * 256 * GIB)), "6": (64_000, 256 * GIB)},
            {
                "3418309-0": ("Deployment", "3418309", 0, 60, 8000, round(0.07446 * 256 * GIB)),
                "77-0": ("Job", "77", 11, 21, 4000, round(2.56 * GIB)),
                "77-0#1": ("Job", "77", 25, 29, 4000, round(2.56 * GIB)),
            },
        ),
        (
            google2019,
            {"5": (32_000, 64 * GIB)},
            {
                "9-3": ("Deployment", "9", 10, 30, 8000, 16 * GIB),
                "9-4": ("Deployment", "9", 55, 60, 8000, 16 * GIB),
            },
        ),
        (
            azure2019,
            {"node-0000": (64_000, 256 * GIB)},
            {"vm1": ("Deployment", "dep1", 0, 60, 4000, 32 * GIB), "vm2": ("Job", "dep2", 10, 30, 24_000, 64 * GIB)},
        ),
        (
            planetlab,
            {"node-0000": (64_000, 256 * GIB)},
            {f"planetlab{number}.site.edu": ("Deployment", "site.edu", 0, 60, 1000, 1024**2) for number in (1, 2)},
        ),
        (
            openb,
            {"openb-node-0000": (32_000, 256 * GIB), "openb-node-0001": (128_000, 768 * GIB)},
            {
                "openb-pod-0000": ("Deployment", "openb-pod-0000", 0, 60, 12_000, 16 * GIB),
                "openb-pod-0001": ("Job", "openb-pod-0001", 10, 21, 6000, 12 * GIB),
            },
        ),
    ],
)
def test_a_data_set_becomes_a_trace(
    tmp_path: Path,
    write: Callable[[Path], None],
    nodes: dict[str, tuple[int, int]],
    pods: dict[str, tuple[object, ...]],
) -> None:
    """A trace has the data set's machines and tasks with their owners, lifetimes and requests."""
    write(tmp_path)
    trace = imported(write.__name__, tmp_path)
    amounts = zip(trace.cpu_capacity_milli.tolist(), trace.memory_capacity_bytes.tolist(), strict=True)
    assert dict(zip(trace.nodes, amounts, strict=True)) == nodes
    assert pod_rows(trace) == pods
    assert (trace.minutes, trace.warm_up_minutes) == (60, 30)


@pytest.mark.parametrize(
    ("write", "pod", "expected"),
    [
        (alibaba2018, "c_1", [2000] * 10 + [1000] * 5),  # 101 is invalid: the value before continues
        (google2011, "3418309-0", [4000] * 60),
        (google2011, "77-0", [2000] * 10),
        (google2011, "77-0#1", [1000] * 4),
        (google2019, "9-3", [4000] * 5 + [2000] * 15),
        (azure2019, "vm1", [200] * 5 + [400] * 55),
        (azure2019, "vm2", [12_000] * 20),  # 250 percent is invalid
        (planetlab, "planetlab1.site.edu", [100] * 5 + [200] * 5 + [300] * 50),
        (planetlab, "planetlab2.site.edu", [500] * 60),
        (openb, "openb-pod-0001", [6000] * 11),
    ],
)
def test_use_is_that_of_the_files(
    tmp_path: Path, write: Callable[[Path], None], pod: str, expected: list[float]
) -> None:
    """Each minute has its use in the files, with the precision of two bytes; gaps continue the value before."""
    write(tmp_path)
    assert cpu(imported(write.__name__, tmp_path), pod) == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (alibaba2018, "container_usage.tar.gz: 1 rows cannot be read and are left out; the first is row 5"),
        (google2011, "part-00000-of-00001.csv.gz: 1 rows "),
        (google2019, "instance_events-000000000000.json.gz: 1 rows "),
        (azure2019, "vm_cpu_readings-file-1-of-195.csv.gz: 1 rows "),
        (openb, "openb_pod_list_default.csv: 1 rows "),
    ],
)
def test_unreadable_rows_are_counted(tmp_path: Path, write: Callable[[Path], None], message: str) -> None:
    """Unreadable rows are left out; a message has the file, their number, and the error of the first."""
    write(tmp_path)
    assert message in run(write.__name__, tmp_path, tmp_path / "out").stderr


def test_tasks_are_clipped_to_the_span(tmp_path: Path) -> None:
    """--from-hour and --hours select a span; tasks are clipped to it, and tasks outside are left out."""
    azure2019(tmp_path)
    trace = imported("azure2019", tmp_path, "--from-hour", 0.25, "--hours", 0.5, "--warm-up-hours", 0.1)
    assert {pod: row[2:4] for pod, row in pod_rows(trace).items()} == {"vm1": (0, 30), "vm2": (0, 15)}


@pytest.mark.parametrize(
    ("write", "hours", "minutes"),
    [(planetlab, 60, 1440), (alibaba2018, 2, 60), (azure2019, 10, 60), (google2011, 3, 60), (google2019, 3, 60)],
)
def test_a_trace_ends_with_the_data(tmp_path: Path, write: Callable[[Path], None], hours: int, minutes: int) -> None:
    """A trace has no hours without data; the warm-up keeps its share, and a message has the new length."""
    write(tmp_path)
    result = run(write.__name__, tmp_path, tmp_path / "out", "--hours", hours, "--warm-up-hours", hours / 5)
    trace = read_trace(tmp_path / "out")
    assert (trace.minutes, trace.warm_up_minutes, trace.end_minute.max()) == (minutes, minutes // 5, minutes)
    assert f"{minutes / 60:g} of the requested {hours} hours" in result.stderr


def test_a_data_set_without_use_ends_with_its_last_task(tmp_path: Path) -> None:
    """Openb has only starts and ends of pods; a pod without an end runs as long as the others."""
    openb(tmp_path)
    file = tmp_path / "openb_pod_list_default.csv"
    file.write_text(file.read_text().replace("12537496", ""))
    trace = imported("openb", tmp_path)
    assert (trace.minutes, trace.end_minute.tolist()) == (21, [21, 21])


def test_assumed_use_is_not_overcommitted(tmp_path: Path) -> None:
    """The overcommit of openb is 1, as use that is assumed from requests would overload the nodes."""
    openb(tmp_path)
    with (tmp_path / "openb_pod_list_default.csv").open("a") as file:
        file.writelines(f"crowd-{number},12000,90000,0,0,,LS,Running,0,12537496,0\n" for number in range(30))
    trace = imported("openb", tmp_path)
    assert trace.cpu_request_milli.sum() > 2 * trace.cpu_capacity_milli.sum()
    assert trace.overcommit == (1, 1)


def test_generated_machines_have_enough_memory(tmp_path: Path) -> None:
    """Azure's virtual machines use all memory that they request: generated machines can hold all of them."""
    rows = (f"vm{number},s,d{number},0,36000,1,1,1,Unknown,2,32\n" for number in range(80))
    (tmp_path / "vmtable.csv").write_text("".join(rows))
    readings = (f"{start},vm{number},1,1,20\n" for start in range(0, 3600, 300) for number in range(80))
    (tmp_path / "vm_cpu_readings-file-1-of-195.csv").write_text("".join(readings))
    trace = imported("azure2019", tmp_path)
    assert trace.overcommit == (pytest.approx(1.42, abs=0.01), 1)
    assert trace.memory_request_bytes.sum() == pytest.approx(0.88 * trace.memory_capacity_bytes.sum())
    command = ("simulate", "compare", "--trace", str(tmp_path / "out"), "--policy", "default", "--json")
    measures = json.loads(CliRunner().invoke(main, command).stdout)["out"]["default"]
    assert (measures["memory_overrun_minutes"], measures["unplaced_pods"]) == (0, 0)


def test_machines_are_sampled_by_the_seed(tmp_path: Path) -> None:
    """--nodes limits the sample of machines; a seed always selects the same ones, with the tasks on them."""
    google2011(tmp_path)
    nodes = {}
    for seed in range(6):
        result = run("google2011", tmp_path, tmp_path / f"out{seed}", "--nodes", 1, "--seed", seed)
        if result.exit_code == 0:
            nodes[seed] = read_trace(tmp_path / f"out{seed}").nodes
        else:
            assert "clusterdata-2011-2" in result.stderr  # nothing ran on machine 6
    assert 0 < len(nodes) < 6
    assert set(nodes.values()) == {("5",)}


def test_a_sample_of_tasks_fills_the_generated_machines(tmp_path: Path) -> None:
    """Virtual machines are sampled until requests are 88 percent of capacity at an overcommit of 1.5."""
    rows = (f"vm{number},s,d{number},0,36000,1,1,1,Unknown,8,32\n" for number in range(200))
    (tmp_path / "vmtable.csv").write_text("".join(rows))
    readings = [f"0,vm{number},1,1,20\n" for number in range(200)]
    file = tmp_path / "vm_cpu_readings-file-1-of-195.csv"
    file.write_text("".join(readings[::20]))
    few = run("azure2019", tmp_path, tmp_path / "few", "--nodes", 4)  # most have no use
    assert "/few: 1 nodes" in few.stdout
    assert "left out" in few.stderr
    file.write_text("".join(readings))
    trace = imported("azure2019", tmp_path, "--nodes", 4)
    assert len(trace.nodes) == 4
    assert trace.cpu_request_milli.sum() == pytest.approx(0.88 * 1.5 * 4 * 64_000, rel=0.05)
    assert trace.overcommit[0] == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(
    ("prepare", "form", "options", "message"),
    [
        (lambda folder: None, "google2011", (), "has no machine_events*; Google clusterdata-2011-2 is read from files"),
        (lambda folder: folder.rmdir(), "openb", (), "is not a folder; give the folder with the files of openb"),
        (azure2019, "azure2019", ("--from-hour", 9000), "and 9001; it has tasks from hour 0 to 719.92"),
        (azure2019, "azure2019", ("--from-hour", 500), "the data set has use from hour 0 to 1"),
        (google2011, "google2011", ("--from-hour", 9), "from hour 0 to 1"),
        (azure2019, "azure2019", ("--warm-up-hours", 1), "--warm-up-hours 1 must be less than --hours 1"),
        (planetlab, "planetlab", ("--history-days", 1), "--history-days 1: the data set has 0 whole days before"),
        (azure2019, "azure2019", ("--from-hour", 47, "--history-days", 2), "has 1 whole days before --from-hour 47; "),
        (planetlab, "planetlab", ("--from-hour", 24, "--history-days", 1), "to 24, too few for --history-days 1"),
        (azure2019, "azure2018", (), "'azure2018'"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    tmp_path: Path, prepare: Callable[[Path], None], form: str, options: tuple[object, ...], message: str
) -> None:
    """The error names the folder or option, and nothing is written."""
    source = tmp_path / "source"
    source.mkdir()
    prepare(source)
    result = run(form, source, tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_folders_of_several_days_are_days_in_a_row(tmp_path: Path) -> None:
    """Days are ordered by the numbers in their names; a virtual machine runs over those with a file of its name."""
    for day, names in (("day9", "ab"), ("day10", "a"), ("day11", "ab")):
        (tmp_path / day).mkdir()
        for name in names:
            (tmp_path / day / name).write_text(f"{day[3:]}\n" * 288)
    result = run("planetlab", tmp_path, tmp_path / "out", "--from-hour", 23, "--hours", 26)
    assert "day9 to day11 are read as 3 days in a row" in result.stderr
    trace = read_trace(tmp_path / "out")
    assert {pod: row[2:4] for pod, row in pod_rows(trace).items()} == {
        "a": (0, 1560),
        "b": (0, 60),
        "b#1": (1500, 1560),
    }
    assert cpu(trace, "a") == pytest.approx([90] * 60 + [100] * 1440 + [110] * 60, rel=0.001)


def test_progress_is_one_line_for_all_files_of_a_table(tmp_path: Path) -> None:
    """Twenty files of a table have one progress line."""
    day = tmp_path / "20110303"
    day.mkdir()
    for number in range(20):
        (day / f"vm{number}").write_text("10\n" * 288)
    assert run("planetlab", day, tmp_path / "out", "--hours", 24).stderr.splitlines() == ["20110303"]


def changed(file: Path, *replaced: tuple[str, str]) -> None:
    """Replace texts that a file contains."""
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


READINGS, PART = "vm_cpu_readings-file-1-of-195.csv.gz", "part-00000-of-00001.csv.gz"
USAGE = "container_usage.tar.gz"


@pytest.mark.parametrize(
    ("write", "file", "spoiled", "message"),
    [
        (azure2019, "vmtable.csv", (",", ";"), "vmtable.csv: is not a file of Azure public"),
        (azure2019, "vmtable.csv", b"", "vmtable.csv: is empty; download it again"),
        (azure2019, "vmtable.csv", bytes(range(256)) * 9, "vmtable.csv: "),
        (azure2019, READINGS, (",", ";"), "row 1: too few columns"),
        (azure2019, READINGS, b"", f"{READINGS}: "),
        (azure2019, READINGS, b"0,vm1", f"{READINGS}: is damaged at row 1: Not a gzipped"),
        (azure2019, READINGS, -12, f"{READINGS}: "),  # a download that was cut, whose first rows are readable
        (google2011, f"machine_events/{PART}", (",", "\t"), f"machine_events/{PART}: "),
        (alibaba2018, USAGE, 60, f"{USAGE}: is not a complete tar archive; download it again"),
        (alibaba2018, USAGE, b"<html>404</html>", f"{USAGE}: "),
        (openb, "openb_pod_list_default.csv", (",", ";"), "row 1: no field name"),
        (openb, "openb_node_list_all_node.csv", ("sn,", "s,"), "row 1: no field sn"),
        (google2019, "machine_events.json", ("0.5", "Infinity"), "row 1: inf"),
        (google2019, "machine_events.json", ("0.5", "[" * 5_000), "row 1: nested too deeply"),
        (planetlab, "README.md", b"PlanetLab\n", "README.md: is not a file of PlanetLab"),
        (planetlab, ".", openb, "openb_node_list_all_node.csv: "),
        (planetlab, "day.tar.gz", b"", "day.tar.gz: is an archive; unpack it"),
        (planetlab, ".", lambda folder: [each.unlink() for each in folder.iterdir()], "source: has no files"),
    ],
)
def test_files_that_cannot_be_used_are_refused(
    tmp_path: Path, write: Callable[[Path], None], file: str, spoiled: Any, message: str
) -> None:
    """The error is one line with the file and the problem, whatever the file contains."""
    source = tmp_path / "source"
    source.mkdir()
    write(source)
    match spoiled:
        case bytes():
            (source / file).write_bytes(spoiled)
        case int():
            (source / file).write_bytes((source / file).read_bytes()[:spoiled])
        case tuple():
            changed(source / file, spoiled)
        case _:
            spoiled(source)
    result = run(write.__name__, source, tmp_path / "out")
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[-1]
    assert "left out" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("write", "file", "old", "new", "message"),
    [
        (azure2019, "vmtable.csv", "dep2,600", "dep2,-inf", "row 2: -inf is not a finite number"),
        (azure2019, "vmtable.csv", ",>24,", ",nan,", "row 2: nan "),
        (azure2019, "vmtable.csv", ",>24,", ",-4,", "row 2: -4 is negative"),
        (azure2019, "vmtable.csv", "vm2,", ",", "row 2: the name"),
        (azure2019, READINGS, "\n300,vm1", "\nnan,vm1", "the first is row 2: nan"),
        (google2011, f"machine_events/{PART}", "6,0,HofLG,1,1", "6,0,HofLG,1e300,1", "row 3: '6' with"),
        (google2011, f"task_usage/{PART}", "0.03125,0.005", "-1,0.005", "row 2: -1 "),
        (google2011, f"task_usage/{PART}", "1500000000,1740000000", "1500000000,inf", "row 3: inf "),
        (openb, "openb_pod_list_default.csv", ",6000,", ",nan,", "row 2: nan "),
    ],
)
def test_rows_with_invalid_values_are_left_out(
    tmp_path: Path, write: Callable[[Path], None], file: str, old: str, new: str, message: str
) -> None:
    """Rows with invalid values are counted, and the trace is readable."""
    write(tmp_path)
    changed(tmp_path / file, (old, new))
    result = run(write.__name__, tmp_path, tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert message in result.stderr
    read_trace(tmp_path / "out")


@pytest.mark.parametrize(
    ("write", "file"),
    [
        (alibaba2018, "machine_meta.csv"),
        (azure2019, "vmtable.csv"),
        (google2011, f"task_events/{PART}"),
        (openb, "openb_node_list_all_node.csv"),
        (openb, "openb_pod_list_default.csv"),
    ],
)
def test_duplicate_rows_are_ignored(tmp_path: Path, write: Callable[[Path], None], file: str) -> None:
    """Duplicate rows add neither machines nor tasks."""
    write(tmp_path)
    once = imported(write.__name__, tmp_path)
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content * 2)
    assert run(write.__name__, tmp_path, tmp_path / "twice").exit_code == 0
    twice = read_trace(tmp_path / "twice")
    assert (twice.nodes, twice.pods) == (once.nodes, once.pods)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """A byte order mark, as spreadsheets write it, is not a part of the first column's name."""
    openb(tmp_path)
    changed(tmp_path / "openb_node_list_all_node.csv", ("sn,", "\ufeffsn,"))
    assert len(imported("openb", tmp_path).nodes) == 2


@pytest.mark.parametrize(
    ("write", "file"),
    [(azure2019, "vmtable.csv"), (planetlab, "planetlab1.site.edu"), (google2019, "machine_events.json")],
)
def test_empty_lines_are_ignored(tmp_path: Path, write: Callable[[Path], None], file: str) -> None:
    """Empty lines are not counted as unreadable rows, and do not shift times."""
    write(tmp_path)
    (tmp_path / file).write_text((tmp_path / file).read_text().replace("\n", "\n\n"))
    result = run(write.__name__, tmp_path, tmp_path / "out")
    assert f"{file}:" not in result.stderr
    assert read_trace(tmp_path / "out").minutes == 60


def test_an_unclosed_quote_is_an_unreadable_row(tmp_path: Path) -> None:
    """An unclosed quote makes the rest of a file one overlong field; rows before it are read."""
    azure2019(tmp_path)
    with (tmp_path / "vmtable.csv").open("a") as file:
        file.write('"' + "x" * 200_000)
    assert "vmtable.csv: 1 rows" in run("azure2019", tmp_path, tmp_path / "out").stderr
    (tmp_path / "vmtable.csv").write_text('"' + "x" * 200_000)
    assert "Azure" in run("azure2019", tmp_path, tmp_path / "none").stderr


def test_an_unreadable_row_does_not_shift_times(tmp_path: Path) -> None:
    """The time of PlanetLab's rows is their position in the file, with unreadable rows counted."""
    planetlab(tmp_path)
    changed(tmp_path / "planetlab1.site.edu", ("10\n20\n", "10\n-20\n"))
    expected = [100] * 10 + [300] * 50
    assert cpu(imported("planetlab", tmp_path), "planetlab1.site.edu") == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("option", ["--from-hour", "--hours", "--warm-up-hours"])
def test_hours_are_numbers(tmp_path: Path, option: str) -> None:
    """NaN is refused with the option's name."""
    azure2019(tmp_path)
    result = run("azure2019", tmp_path, tmp_path / "out", option, "nan")
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': nan is not a finite number" in result.stderr


def test_an_import_can_be_replayed(tmp_path: Path) -> None:
    """``simulate compare`` replays an imported trace, and a second import does not overwrite it."""
    google2011(tmp_path)
    imported("google2011", tmp_path)
    command = ("simulate", "compare", "--trace", str(tmp_path / "out"), "--policy", "congestion-cost", "--json")
    assert json.loads(CliRunner().invoke(main, command).stdout)["out"]["congestion-cost"]["nodes"] == 2
    assert run("google2011", tmp_path, tmp_path / "out").exit_code == 2


def add_next_day(folder: Path, level: float) -> None:
    """Write use in the first minutes of the second day, at a level, and means that end there.

    PlanetLab's files become the first day of two.
    """
    if (folder / "vmtable.csv").exists():
        (folder / "vm_cpu_readings-file-2-of-195.csv").write_text(f"86100,vm1,1,1,40\n86400,vm1,1,1,{100 * level}\n")
    elif (folder / "machine_events").exists():
        (folder / "task_usage" / "part-00001-of-00002.csv").write_text(
            f"86099000000,86400000001,3418309,0,5,{level / 8},0.01\n"
            f"86400000000,86700000000,3418309,0,5,{level / 8},0.01\n"
        )
    elif (folder / "machine_events.json").exists():
        with (folder / "instance_usage-000000000000.csv").open("a") as file:
            file.write(
                f"86399000000,86401000000,9,4,5,{level / 8},0.01\n86400000000,86700000000,9,4,5,{level / 8},0.01\n"
            )
    elif (folder / "machine_meta.csv").exists():
        (folder / "container_usage_2.csv").write_text(
            f"c_1,m_1,86101,{100 * level},90\nc_1,m_1,86400,{100 * level},90\n"
        )
    else:
        (folder / "20110303").mkdir()
        for path in list(filter(Path.is_file, folder.iterdir())):
            path.rename(folder / "20110303" / path.name)
        (folder / "20110306").mkdir()
        (folder / "20110306" / "planetlab1.site.edu").write_text(f"{100 * level:g}\n" * 288)


@pytest.mark.parametrize(
    ("write", "owner", "cpu_levels", "memory_levels"),
    [
        (alibaba2018, "app_7", {2: 0.5, 4: 0.25}, {2: 0.9, 3: 0.8, 4: 0.8}),
        (azure2019, "dep1", {0: 0.05, 1: 0.1, 4: 0.1, 8: 0.1, 11: 0.1, 287: 0.4}, {}),
        (google2011, "3418309", dict.fromkeys(range(12), 0.5), dict.fromkeys(range(12), 0.05 / 0.07446)),
        (google2019, "9", {2: 0.5, 3: 0.25, 11: 0.8}, {2: 0.48, 11: 1.6}),  # also of the owner's pod that has ended
        (planetlab, "site.edu", {0: 0.3, 1: 0.35} | dict.fromkeys(range(2, 288), 0.4), {}),
    ],
)
def test_the_history_is_the_use_before_minute_0(
    tmp_path: Path,
    write: Callable[[Path], None],
    owner: str,
    cpu_levels: dict[int, float],
    memory_levels: dict[int, float],
) -> None:
    """A day of the history has the mean use of an owner's tasks in each step, and nothing of the replayed time.

    Means that begin before minute 0 and end after it are left out, and the trace is the same without a history.
    """
    write(tmp_path)
    add_next_day(tmp_path, 0.75)
    options = ("--from-hour", 24, "--warm-up-hours", 0)
    result = run(write.__name__, tmp_path, tmp_path / "past", *options, "--history-days", 1)
    assert result.exit_code == 0, result.output
    trace, plain = read_trace(tmp_path / "past"), imported(write.__name__, tmp_path, *options)
    assert cpu(trace, trace.pods[0])[0] == pytest.approx(0.75 * trace.cpu_request_milli[0], rel=0.001)
    assert plain.history is None
    assert pod_rows(trace) == pod_rows(plain)
    assert (trace.use.cpu == plain.use.cpu).all()
    history = trace.history
    assert history is not None
    assert (history.owner_kinds, history.owners, history.revisions) == (("Deployment",), (owner,), ("",))
    assert history.days.tolist() == [-1]
    for values, levels in ((history.cpu, cpu_levels), (history.memory, memory_levels)):
        expected = [levels.get(step, float("nan")) for step in range(288)]
        assert values[0].tolist() == pytest.approx(expected, rel=0.001, nan_ok=True)


def test_a_history_has_the_owners_mean_pod_on_each_day(tmp_path: Path) -> None:
    """A pod counts by its time in the step, and levels are shares of the mean request; other days are left out."""
    (tmp_path / "vmtable.csv").write_text(
        "vm1,s,dep,0,900000,1,1,1,Unknown,4,32\nvm2,s,dep,0,900000,1,1,1,Unknown,8,32\nvm3,s,gone,0,90000,1,1,1,Unknown,8,32\n"
        "x\n"
    )
    days = "".join(
        f"{86400 * day},vm1,1,1,{10 + day}\n{86400 * day + 150},vm2,1,1,50\n{86400 * day},vm3,1,1,1\n"
        for day in range(4)
    )
    (tmp_path / "vm_cpu_readings-file-1-of-195.csv").write_text(days)
    result = run("azure2019", tmp_path, tmp_path / "out", "--from-hour", 72, "--history-days", 2)
    assert "vmtable.csv: 1 rows cannot be read" in result.stderr
    history = read_trace(tmp_path / "out").history
    assert history is not None
    assert history.owners == ("dep", "dep")
    by_day = {day: values[:3].tolist() for day, values in zip(history.days.tolist(), history.cpu, strict=True)}
    expected = {day: [((13 + day) * 40 * 2 + 4000) / 3 / 6000, 4000 / 6000, float("nan")] for day in (-2, -1)}
    assert by_day == {day: pytest.approx(values, rel=0.001, nan_ok=True) for day, values in expected.items()}


def test_too_few_days_before_minute_0_are_refused(tmp_path: Path) -> None:
    """The error has the option and the number of days, also if the data set's use begins after its hour 0."""
    (tmp_path / "vmtable.csv").write_text("vm1,s,dep,0,900000,1,1,1,Unknown,4,32\n")
    (tmp_path / "vm_cpu_readings-file-1-of-195.csv").write_text(f"{86400 + 300},vm1,1,1,9\n{3 * 86400},vm1,1,1,9\n")
    result = run("azure2019", tmp_path, tmp_path / "out", "--from-hour", 72, "--history-days", 3)
    assert result.exit_code == 2
    assert "--history-days 3: the use of the trace's owners begins 2 days before hour 72; choose 2" in result.stderr
    history = imported("azure2019", tmp_path, "--from-hour", 72, "--history-days", 2).history
    assert history is not None
    assert history.days.tolist() == [-2]
