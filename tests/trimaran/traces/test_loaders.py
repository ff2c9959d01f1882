"""``trimaran simulate import``: public data sets, in small files of exactly their shape."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trimaran.cli.main import main
from trimaran.traces.trace import Trace, read_trace

GIB = 1024**3
MICRO = 1_000_000


def run(form: str, source: Path, out: Path, *options: object) -> Result:
    asked = ("--hours", 1, "--warm-up-hours", 0.5, *options)
    return CliRunner().invoke(main, ["simulate", "import", form, *map(str, (source, out, *asked))])


def imported(form: str, source: Path, *options: object) -> Trace:
    result = run(form, source, source / "out", *options)
    assert result.exit_code == 0, result.output
    return read_trace(source / "out")


def lives(trace: Trace) -> dict[str, tuple[str, str, int, int, int, int]]:
    """Return each pod's kind, owner, arrival and end, and what it requests: millicores and bytes."""
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
        "0,2,3418309,0,5,1,user,3,9,0.125,0.07446,0.0004244,0",  # there before the trace began
        "600000000,,77,0,,0,user,0,2,0.0625,0.01,0.0001,0",  # submitted: it has no machine yet
        "660000000,,77,0,5,1,user,0,2,0.0625,0.01,0.0001,0",
        "1260000000,,77,0,5,4,user,0,2,0.0625,0.01,0.0001,0",
        "1500000000,,77,0,5,1,user,0,2,0.0625,0.01,0.0001,0",  # it runs again
        "1740000000,,77,0,5,5,user,0,2,0.0625,0.01,0.0001,0",
        "1740000000,,78,0,4155527081,1,user,0,2,0.0625,0.01,0.0001,0",  # another machine's
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
    """Write whole numbers as text, in no order, as BigQuery does, and the usage as CSV of single fields."""
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
    """Machines, tasks with their owners and lives, and requests are those of the files."""
    write(tmp_path)
    trace = imported(write.__name__, tmp_path)
    amounts = zip(trace.cpu_capacity_milli.tolist(), trace.memory_capacity_bytes.tolist(), strict=True)
    assert dict(zip(trace.nodes, amounts, strict=True)) == nodes
    assert lives(trace) == pods
    assert (trace.minutes, trace.warm_up_minutes) == (60, 30)


@pytest.mark.parametrize(
    ("write", "pod", "expected"),
    [
        (alibaba2018, "c_1", [2000] * 10 + [1000] * 5),  # 101 is no value: it goes on as before
        (google2011, "3418309-0", [4000] * 60),
        (google2011, "77-0", [2000] * 10),
        (google2011, "77-0#1", [1000] * 4),
        (google2019, "9-3", [4000] * 5 + [2000] * 15),
        (azure2019, "vm1", [200] * 5 + [400] * 55),
        (azure2019, "vm2", [12_000] * 20),  # 250 percent cannot be
        (planetlab, "planetlab1.site.edu", [100] * 5 + [200] * 5 + [300] * 50),
        (planetlab, "planetlab2.site.edu", [500] * 60),
        (openb, "openb-pod-0001", [6000] * 11),
    ],
)
def test_use_is_that_of_the_files(
    tmp_path: Path, write: Callable[[Path], None], pod: str, expected: list[float]
) -> None:
    """Each minute has what was told of it, within what two bytes can tell; gaps go on as before."""
    write(tmp_path)
    assert cpu(imported(write.__name__, tmp_path), pod) == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (alibaba2018, "container_usage.tar.gz: 1 rows cannot be read and are left out; the first is row 5"),
        (google2011, "part-00000-of-00001.csv.gz: 1 rows cannot be read and are left out; the first is row 4"),
        (google2019, "instance_events-000000000000.json.gz: 1 rows cannot be read"),
        (azure2019, "vm_cpu_readings-file-1-of-195.csv.gz: 1 rows cannot be read and are left out; the first is row 4"),
        (openb, "openb_pod_list_default.csv: 1 rows cannot be read and are left out; the first is row 3"),
    ],
)
def test_bad_rows_are_counted(tmp_path: Path, write: Callable[[Path], None], said: str) -> None:
    """They are left out, and it is said in which file, how many, and what is wrong with the first."""
    write(tmp_path)
    assert said in run(write.__name__, tmp_path, tmp_path / "out").stderr


def test_a_span_is_cut_out(tmp_path: Path) -> None:
    """From --from-hour on, for --hours: tasks are there for their part of it, and the rest is left out."""
    azure2019(tmp_path)
    trace = imported("azure2019", tmp_path, "--from-hour", 0.25, "--hours", 0.5, "--warm-up-hours", 0.1)
    assert {pod: row[2:4] for pod, row in lives(trace).items()} == {"vm1": (0, 30), "vm2": (0, 15)}


@pytest.mark.parametrize(
    ("write", "hours", "minutes"),
    [(planetlab, 60, 1440), (alibaba2018, 2, 60), (azure2019, 10, 60), (google2011, 3, 60), (google2019, 3, 60)],
)
def test_a_trace_ends_where_nothing_more_is_told(
    tmp_path: Path, write: Callable[[Path], None], hours: int, minutes: int
) -> None:
    """No hour is measured in which nothing is known; the warm-up keeps its part of the time, and it is said."""
    write(tmp_path)
    result = run(write.__name__, tmp_path, tmp_path / "out", "--hours", hours, "--warm-up-hours", hours / 5)
    trace = read_trace(tmp_path / "out")
    assert (trace.minutes, trace.warm_up_minutes, trace.end_minute.max()) == (minutes, minutes // 5, minutes)
    assert f"nothing is told after {minutes / 60:g} of these {hours} hours" in result.stderr


def test_without_any_use_the_last_end_of_a_task_ends_the_trace(tmp_path: Path) -> None:
    """Of openb pods come and go, and nothing else is told; one without an end goes on as long as the others."""
    openb(tmp_path)
    file = tmp_path / "openb_pod_list_default.csv"
    file.write_text(file.read_text().replace("12537496", ""))
    trace = imported("openb", tmp_path)
    assert (trace.minutes, trace.end_minute.tolist()) == (21, [21, 21])


def test_what_is_made_up_is_not_overcommitted(tmp_path: Path) -> None:
    """Use that is taken to be the request would overload nodes by the factor: of openb it is 1, of both resources."""
    openb(tmp_path)
    with (tmp_path / "openb_pod_list_default.csv").open("a") as file:
        file.writelines(f"crowd-{each},12000,90000,0,0,,LS,Running,0,12537496,0\n" for each in range(30))
    trace = imported("openb", tmp_path)
    assert trace.cpu_request_milli.sum() > 2 * trace.cpu_capacity_milli.sum()
    assert trace.overcommit == (1, 1)


def test_machines_that_are_made_up_have_the_memory_that_is(tmp_path: Path) -> None:
    """Azure's virtual machines use what they request of it: there is enough for them, and no overrun is built in."""
    rows = (f"vm{number},s,d{number},0,36000,1,1,1,Unknown,2,32\n" for number in range(80))
    (tmp_path / "vmtable.csv").write_text("".join(rows))
    readings = (f"{start},vm{number},1,1,20\n" for start in range(0, 3600, 300) for number in range(80))
    (tmp_path / "vm_cpu_readings-file-1-of-195.csv").write_text("".join(readings))
    trace = imported("azure2019", tmp_path)
    assert trace.overcommit == (pytest.approx(1.42, abs=0.01), 1)
    assert trace.memory_request_bytes.sum() == pytest.approx(0.88 * trace.memory_capacity_bytes.sum())
    asked = ("simulate", "compare", "--trace", str(tmp_path / "out"), "--policy", "default", "--json")
    measures = json.loads(CliRunner().invoke(main, asked).stdout)["out"]["default"]
    assert (measures["memory_overrun_minutes"], measures["unplaced_pods"]) == (0, 0)


def test_machines_are_drawn_by_the_seed(tmp_path: Path) -> None:
    """--nodes takes so many, always the same of one seed, and with them the tasks that ran there."""
    google2011(tmp_path)
    found = {}
    for seed in range(6):
        result = run("google2011", tmp_path, tmp_path / f"out{seed}", "--nodes", 1, "--seed", seed)
        if result.exit_code == 0:
            found[seed] = read_trace(tmp_path / f"out{seed}").nodes
        else:
            assert "there is nothing of Google clusterdata-2011-2" in result.stderr  # nothing ran on machine 6
    assert 0 < len(found) < 6
    assert set(found.values()) == {("5",)}


def test_machines_that_are_made_up_are_as_many_as_tasks_need(tmp_path: Path) -> None:
    """Of many virtual machines so many are drawn that requests are 88 percent at an overcommit of 1.5."""
    rows = (f"vm{number},s,d{number},0,36000,1,1,1,Unknown,8,32\n" for number in range(200))
    (tmp_path / "vmtable.csv").write_text("".join(rows))
    readings = [f"0,vm{number},1,1,20\n" for number in range(200)]
    file = tmp_path / "vm_cpu_readings-file-1-of-195.csv"
    file.write_text("".join(readings[::20]))
    few = run("azure2019", tmp_path, tmp_path / "few", "--nodes", 4)  # of most nothing is told
    assert "/few: 1 nodes" in few.stdout
    assert "pods are left out: nothing is told of their use" in few.stderr
    file.write_text("".join(readings))
    trace = imported("azure2019", tmp_path, "--nodes", 4)
    assert len(trace.nodes) == 4
    assert trace.cpu_request_milli.sum() == pytest.approx(0.88 * 1.5 * 4 * 64_000, rel=0.05)
    assert trace.overcommit[0] == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(
    ("prepare", "form", "options", "said"),
    [
        (lambda folder: None, "google2011", (), "has no machine_events*; Google clusterdata-2011-2 is read from files"),
        (lambda folder: folder.rmdir(), "openb", (), "is no folder; give the one with the files of openb"),
        (azure2019, "azure2019", ("--from-hour", 9000), "and 9001; it tells of tasks from hour 0 to 719.92"),
        (azure2019, "azure2019", ("--from-hour", 500), "no task has use in these hours; it is told from hour 0 to 1"),
        (google2011, "google2011", ("--from-hour", 9), "no task has use in these hours; it is told from hour 0 to 1"),
        (azure2019, "azure2019", ("--warm-up-hours", 1), "--warm-up-hours 1 leaves nothing of --hours 1"),
        (azure2019, "azure2018", (), "'azure2018' is not one of"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    tmp_path: Path, prepare: Callable[[Path], None], form: str, options: tuple[object, ...], said: str
) -> None:
    """It is said which folder or option, and nothing is written."""
    source = tmp_path / "source"
    source.mkdir()
    prepare(source)
    result = run(form, source, tmp_path / "out", *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_several_days_are_refused(tmp_path: Path) -> None:
    """A virtual machine's file has the same name each day, so that one day's folder is asked for."""
    for day in ("20110303", "20110306"):
        (tmp_path / day).mkdir()
        planetlab(tmp_path / day)
    result = run("planetlab", tmp_path, tmp_path / "out")
    assert result.exit_code == 2
    assert f"has files in 2 folders; give one day's folder: {tmp_path / '20110306'}" in result.stderr
    assert run("planetlab", tmp_path / "20110303", tmp_path / "out").exit_code == 0


def test_progress_is_a_line_for_all_files_of_a_table(tmp_path: Path) -> None:
    """Not one for each of a thousand files."""
    day = tmp_path / "20110303"
    day.mkdir()
    for number in range(20):
        (day / f"vm{number}").write_text("10\n" * 288)
    assert run("planetlab", day, tmp_path / "out", "--hours", 24).stderr.splitlines() == ["20110303"]


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """A download that broke off is said with the file, whatever could be read of it."""
    azure2019(tmp_path)
    file = tmp_path / "vm_cpu_readings-file-1-of-195.csv.gz"
    file.write_bytes(file.read_bytes()[:-12])
    result = run("azure2019", tmp_path, tmp_path / "out")
    assert result.exit_code == 2
    assert f"{file}: is damaged at row" in result.stderr


def changed(file: Path, *replaced: tuple[str, str]) -> None:
    """Replace parts of a file, which has them."""
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


READINGS, PART = "vm_cpu_readings-file-1-of-195.csv.gz", "part-00000-of-00001.csv.gz"


@pytest.mark.parametrize(
    ("write", "spoil", "said"),
    [
        (azure2019, lambda it: changed(it / "vmtable.csv", (",", ";")), "vmtable.csv: is no file of Azure public"),
        (azure2019, lambda it: changed(it / READINGS, (",", ";")), "can be read; the first is row 1: it has too few"),
        (azure2019, lambda it: (it / "vmtable.csv").write_text(""), "vmtable.csv: is empty; download it again"),
        (azure2019, lambda it: (it / READINGS).write_bytes(b""), f"{READINGS}: is empty; download it again"),
        (
            azure2019,
            lambda it: (it / READINGS).write_bytes(b"0,vm1"),
            f"{READINGS}: is damaged at row 1: Not a gzipped",
        ),
        (azure2019, lambda it: (it / "vmtable.csv").write_bytes(bytes(range(256)) * 9), "vmtable.csv: is no file of"),
        (
            google2011,
            lambda it: changed(it / "machine_events" / PART, (",", "\t")),
            f"machine_events/{PART}: is no file of Google",
        ),
        (
            alibaba2018,
            lambda it: (it / "container_usage.tar.gz").write_bytes((it / "container_usage.tar.gz").read_bytes()[:60]),
            "container_usage.tar.gz: is no whole tar archive; download it again",
        ),
        (
            alibaba2018,
            lambda it: (it / "container_usage.tar.gz").write_text("<html>404</html>"),
            "container_usage.tar.gz: is no whole tar archive; download it again",
        ),
        (openb, lambda it: changed(it / "openb_pod_list_default.csv", (",", ";")), "1: it has no field name"),
        (openb, lambda it: changed(it / "openb_node_list_all_node.csv", ("sn,", "s,")), "row 1: it has no field sn"),
        (google2019, lambda it: changed(it / "machine_events.json", ("0.5", "Infinity")), "row 1: inf is no number"),
        (planetlab, lambda it: (it / "README.md").write_text("PlanetLab\n"), "README.md: is no file of PlanetLab"),
        (planetlab, openb, "openb_node_list_all_node.csv: is no file of PlanetLab (CoMon): no row can be read"),
        (planetlab, lambda it: (it / "day.tar.gz").write_bytes(b""), "day.tar.gz: is an archive; unpack it"),
        (planetlab, lambda it: [each.unlink() for each in it.iterdir()], "source: has no files"),
    ],
)
def test_files_that_cannot_be_used_are_refused(
    tmp_path: Path, write: Callable[[Path], None], spoil: Callable[[Path], object], said: str
) -> None:
    """In one line with the file and what is wrong with it, whatever was downloaded in its place."""
    source = tmp_path / "source"
    source.mkdir()
    write(source)
    spoil(source)
    result = run(write.__name__, source, tmp_path / "out")
    assert result.exit_code == 2
    assert said in result.stderr.splitlines()[-1]
    assert "left out" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("write", "file", "old", "new", "said"),
    [
        (azure2019, "vmtable.csv", "dep2,600", "dep2,-inf", "row 2: -inf is no number"),
        (azure2019, "vmtable.csv", ",>24,", ",nan,", "row 2: nan is no number"),
        (azure2019, "vmtable.csv", ",>24,", ",-4,", "row 2: -4 is less than nothing"),
        (azure2019, "vmtable.csv", "vm2,", ",", "row 2: it has no name"),
        (
            azure2019,
            READINGS,
            "\n300,vm1",
            "\nnan,vm1",
            "2 rows cannot be read and are left out; the first is row 2: nan",
        ),
        (google2011, f"machine_events/{PART}", "6,0,HofLG,1,1", "6,0,HofLG,1e300,1", "row 3: '6' with"),
        (google2011, f"task_usage/{PART}", "0.03125,0.005", "-1,0.005", "row 2: -1 is less than nothing"),
        (google2011, f"task_usage/{PART}", "1500000000,1740000000", "1500000000,inf", "row 3: inf is no number"),
        (openb, "openb_pod_list_default.csv", ",6000,", ",nan,", "row 2: nan is no number"),
    ],
)
def test_numbers_that_are_none_are_bad_rows(
    tmp_path: Path, write: Callable[[Path], None], file: str, old: str, new: str, said: str
) -> None:
    """Neither a traceback nor a trace that cannot be read comes of them."""
    write(tmp_path)
    changed(tmp_path / file, (old, new))
    result = run(write.__name__, tmp_path, tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert said in result.stderr
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
def test_what_is_told_twice_is_there_once(tmp_path: Path, write: Callable[[Path], None], file: str) -> None:
    """Rows of a part that was downloaded twice make neither machines nor tasks."""
    write(tmp_path)
    once = imported(write.__name__, tmp_path)
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content * 2)
    assert run(write.__name__, tmp_path, tmp_path / "twice").exit_code == 0
    twice = read_trace(tmp_path / "twice")
    assert (twice.nodes, twice.pods) == (once.nodes, once.pods)


def test_a_mark_at_the_beginning_is_no_text(tmp_path: Path) -> None:
    """Spreadsheets write a byte order mark before the first name."""
    openb(tmp_path)
    changed(tmp_path / "openb_node_list_all_node.csv", ("sn,", "\ufeffsn,"))
    assert len(imported("openb", tmp_path).nodes) == 2


@pytest.mark.parametrize(
    ("write", "file"),
    [(azure2019, "vmtable.csv"), (planetlab, "planetlab1.site.edu"), (google2019, "machine_events.json")],
)
def test_empty_lines_are_no_rows(tmp_path: Path, write: Callable[[Path], None], file: str) -> None:
    """They are not told as bad ones, wherever they are, and take no time."""
    write(tmp_path)
    (tmp_path / file).write_text((tmp_path / file).read_text().replace("\n", "\n\n"))
    result = run(write.__name__, tmp_path, tmp_path / "out")
    assert f"{file}:" not in result.stderr
    assert read_trace(tmp_path / "out").minutes == 60


def test_a_field_without_an_end_is_a_bad_row(tmp_path: Path) -> None:
    """A quote that is not closed makes the rest of a file one field, longer than any: nothing else is lost by it."""
    azure2019(tmp_path)
    with (tmp_path / "vmtable.csv").open("a") as file:
        file.write('"' + "x" * 200_000)
    assert "vmtable.csv: 1 rows cannot be read" in run("azure2019", tmp_path, tmp_path / "out").stderr
    (tmp_path / "vmtable.csv").write_text('"' + "x" * 200_000)
    assert "is no file of Azure" in run("azure2019", tmp_path, tmp_path / "none").stderr


def test_a_bad_row_keeps_its_time(tmp_path: Path) -> None:
    """PlanetLab's rows have no time but their place in the file."""
    planetlab(tmp_path)
    changed(tmp_path / "planetlab1.site.edu", ("10\n20\n", "10\n-20\n"))
    expected = [100] * 10 + [300] * 50
    assert cpu(imported("planetlab", tmp_path), "planetlab1.site.edu") == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("option", ["--from-hour", "--hours", "--warm-up-hours"])
def test_hours_are_numbers(tmp_path: Path, option: str) -> None:
    """Not-a-number is refused with the option."""
    azure2019(tmp_path)
    result = run("azure2019", tmp_path, tmp_path / "out", option, "nan")
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': nan is no number of hours" in result.stderr


def test_what_is_imported_is_replayed(tmp_path: Path) -> None:
    """``simulate compare`` takes it as it is, and it is not written over."""
    google2011(tmp_path)
    imported("google2011", tmp_path)
    asked = ("simulate", "compare", "--trace", str(tmp_path / "out"), "--policy", "congestion-cost", "--json")
    assert json.loads(CliRunner().invoke(main, asked).stdout)["out"]["congestion-cost"]["nodes"] == 2
    assert run("google2011", tmp_path, tmp_path / "out").exit_code == 2
