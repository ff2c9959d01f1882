"""``trimaran simulate``: what it prints, keeps, and refuses."""

import doctest
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from trimaran.cli.main import main
from trimaran.simulator import comparison, replay_batch
from trimaran.simulator.comparison import REPLAY_PACKAGES, ReplayTask, ResultStore, program_version, run_replay
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import policies, policy_names
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.windows import Windows
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import read_trace, write_trace

PACKAGES = {"client", "runtime", "scoring", "trimaran", "watcher"}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = [tmp_path_factory.mktemp("worlds") / name for name in ("one", "two")]
    for seed, folder in enumerate(folders):
        write_trace(Synthetic(seed=seed, nodes=6, minutes=180, warm_up_minutes=60).trace(), folder)
    return folders


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


@pytest.mark.slow
def test_every_policy_is_compared_in_every_world(worlds: list[Path]) -> None:
    """Folders may follow one --trace; the answer is {world: {policy: {measure: number}}} and the same again."""
    answered = run("compare", "--trace", *worlds, "--json")
    assert answered.exit_code == 0, answered.stderr
    result = json.loads(answered.stdout)
    assert list(result) == ["one", "two"]
    assert all(list(by_policy) == policy_names() for by_policy in result.values())
    numbers = [
        number for by_policy in result.values() for measures in by_policy.values() for number in measures.values()
    ]
    assert all(isinstance(number, float) for number in numbers)
    again = run("compare", "--trace", worlds[0], "--trace", worlds[1], "--json", "--policy", "congestion-cost+moves")
    assert json.loads(again.stdout)["two"]["congestion-cost+moves"] == result["two"]["congestion-cost+moves"]


def test_overcommit_may_be_another(worlds: list[Path]) -> None:
    """The trace's own counts unless another is asked for, which may differ for CPU and memory."""
    asked = ("compare", "--trace", worlds[0], "--policy", "default", "--json")
    own, same, other = run(*asked), run(*asked, "--overcommit", "0.5,0.5"), run(*asked, "--overcommit", "0.5")
    assert own.stdout != same.stdout
    assert same.stdout == other.stdout


def test_a_table_has_a_row_for_each_policy(worlds: list[Path]) -> None:
    """Without --json the main measures stand side by side, the words of a name below each other."""
    lines = run("compare", "--trace", worlds[0], "--policy", "random", "--policy", "default").stdout.splitlines()
    assert lines[0] == "one"
    assert [line.split()[:3] for line in lines[1:4]] == [["hot"] * 3, ["minutes"] * 3, ["70", "80", "90"]]
    assert [line.split()[0] for line in lines[4:]] == ["random", "default"]


def test_one_policy_may_be_run(worlds: list[Path]) -> None:
    """``run`` replays congestion-cost, or another that is named, and answers as ``compare`` does."""
    asked = ("--trace", *worlds, "--overcommit", "1.5", "--json")
    compared = json.loads(run("compare", *asked, "--policy", "congestion-cost", "--policy", "random").stdout)
    for policy, chosen in (("congestion-cost", ()), ("random", ("--policy", "random"))):
        answered = run("run", *asked, *chosen)
        assert answered.exit_code == 0, answered.stderr
        assert json.loads(answered.stdout) == {world: {policy: rows[policy]} for world, rows in compared.items()}
    assert "throttled" in run("run", "--trace", worlds[0], "--policy", "random").stdout


def test_a_sweep_compares_at_each_factor(worlds: list[Path]) -> None:
    """The answer is {factor: {world: ...}}."""
    answered = run("sweep", "--trace", worlds[0], "--policy", "default", "--overcommit", "1,1.5", "--json")
    result = json.loads(answered.stdout)
    assert list(result) == ["1", "1.5"]
    assert result["1"]["one"]["default"] != result["1.5"]["one"]["default"]


def test_what_is_done_is_kept(worlds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C what is done is printed and kept; the same command makes the rest and nothing twice."""
    asked = ("compare", "--trace", *worlds, "--policy", "default", "--resume-file", tmp_path / "kept", "--json")
    whole = json.loads(run(*asked[:-3], "--json").stdout)

    def interrupted(tasks, jobs, scheduler):
        yield run_replay(tasks[0])
        raise KeyboardInterrupt

    made = []

    def counted(tasks, jobs, scheduler):
        for task in tasks:
            made.append(task.folder.name)
            yield run_replay(task)

    monkeypatch.setattr(replay_batch, "run_replays", interrupted)
    stopped = run(*asked)
    assert json.loads(stopped.stdout) == {"one": whole["one"]}
    assert stopped.exit_code == 1  # or a script would take a part for the whole
    assert "stopped: 1 of 2 replays are done" in stopped.stderr
    with (tmp_path / "kept").open("a") as file:
        file.write('{"key": "half a li')
    monkeypatch.setattr(replay_batch, "run_replays", counted)
    assert json.loads(run(*asked).stdout) == whole
    assert made == ["two"]
    assert json.loads(run(*asked).stdout) == whole
    assert made == ["two"]  # nothing twice, the half line notwithstanding


def test_sigterm_ends_as_ctrl_c_does(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done is printed, with status 1; then the signal does again what it did before."""

    def terminated(tasks, jobs, scheduler):
        yield run_replay(tasks[0])
        os.kill(os.getpid(), signal.SIGTERM)
        yield from map(run_replay, tasks[1:])

    def before(*_: object) -> None:
        pytest.fail("the command did not handle the signal")

    monkeypatch.setattr(replay_batch, "run_replays", terminated)
    own = signal.signal(signal.SIGTERM, before)
    try:
        stopped = run("compare", "--trace", *worlds, "--policy", "random", "--json")
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, own)
    assert (list(json.loads(stopped.stdout)), stopped.exit_code) == (["one"], 1)
    assert "stopped: 1 of 2 replays are done" in stopped.stderr


def test_each_replay_is_told_when_it_is_done(worlds: list[Path], tmp_path: Path) -> None:
    """Where stderr is no terminal, a line says how far the work is; what is kept counts as done."""
    asked = ("--trace", *worlds, "--policy", "random", "--resume-file", tmp_path / "kept")
    lines = run("compare", *asked).stderr.splitlines()
    assert [re.sub(r"\d+ s", "- s", line) for line in lines] == ["1 of 2: one, random, - s", "2 of 2: two, random, - s"]
    (line,) = run("compare", *asked[:2], "--overcommit", "1.5,1.2", *asked[3:]).stderr.splitlines()
    assert line.startswith("1 of 1: one, random, overcommit 1.5,1.2, ")
    assert run("sweep", *asked, "--overcommit", "1,2").stderr.startswith("1 of 4: one, random, overcommit 1, ")


def test_what_is_kept_is_of_this_trace_and_these_options(worlds: list[Path], tmp_path: Path) -> None:
    """Another trace in the same folder, other options or another version are replayed anew."""
    folder = tmp_path / "world"
    write_trace(Synthetic(seed=1, nodes=4, minutes=60, warm_up_minutes=10).trace(), folder)
    task = ReplayTask(folder, "random", ReplayOptions())
    ResultStore(tmp_path / "kept", "1").add(run_replay(task))
    assert ResultStore(tmp_path / "kept", "1").find(task) is not None
    assert ResultStore(tmp_path / "kept", "2").find(task) is None
    assert ResultStore(tmp_path / "kept", "1").find(ReplayTask(folder, "random", ReplayOptions(seed=1))) is None
    write_trace(Synthetic(seed=2, nodes=4, minutes=60, warm_up_minutes=10).trace(), folder)
    assert ResultStore(tmp_path / "kept", "1").find(task) is None


def test_the_program_is_all_that_makes_a_replay() -> None:
    """The version covers every package of the project that a replay imports."""
    told = "import sys, trimaran.simulator.comparison; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True).stdout.split()
    ours = {".".join(name.split(".")[: 2 if name.startswith("trimaran.") else 1]) for name in imported}
    assert set(REPLAY_PACKAGES) == {name for name in ours if name.partition(".")[0] in PACKAGES} - {"trimaran"}


def test_what_older_code_made_is_made_again(
    worlds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is known by its source, as a checkout's version is always the same; unchanged it is the same."""
    package = tmp_path / "replayed"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "policy.py").write_text("WEIGHT = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = program_version(["replayed"])
    assert program_version(["replayed"]) == before
    (package / "policy.py").write_text("WEIGHT = 2\n")
    changed = program_version(["replayed"])
    (package / "policy.py").rename(package / "rule.py")
    assert len({before, changed, program_version(["replayed"])}) == 3
    asked = ("run", "--trace", worlds[0], "--policy", "random", "--resume-file", tmp_path / "kept", "--json")
    for source in (before, changed, changed):
        monkeypatch.setattr(replay_batch, "program_version", lambda source=source: source)
        assert run(*asked).exit_code == 0
    assert len((tmp_path / "kept").read_text().splitlines()) == 2


def test_a_sweep_stops_at_once(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends all factors, not the one at hand alone; what is done of it is printed."""

    def interrupted(tasks, jobs, scheduler):
        yield run_replay(tasks[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(replay_batch, "run_replays", interrupted)
    answered = run("sweep", "--trace", *worlds, "--policy", "random", "--overcommit", "1,1.5", "--json")
    assert {factor: list(made) for factor, made in json.loads(answered.stdout).items()} == {"1": ["one"]}
    assert answered.exit_code == 1


def test_a_file_that_cannot_be_kept_in_is_refused(worlds: list[Path], tmp_path: Path) -> None:
    """Before anything is replayed."""
    refused = run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", tmp_path / "nowhere" / "kept")
    assert (refused.exit_code, "cannot be read and written: No such file" in refused.stderr) == (2, True)


def test_side_by_side_is_the_same(worlds: list[Path]) -> None:
    """Several processes give what one gives."""
    pytest.importorskip("joblib", reason="pip install joblib")
    compared = ("compare", "--trace", *worlds, "--policy", "random", "--json")
    swept = ("sweep", "--trace", *worlds, "--policy", "random", "--overcommit", "1,1.5", "--json")
    for asked in (compared, swept):
        assert run(*asked, "--jobs", 2).stdout == run(*asked).stdout


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of a Dask scheduler give what one process gives, of folders whose paths begin here, and of a sweep."""
    distributed = pytest.importorskip("distributed", reason="pip install distributed")
    compared = ("compare", "--trace", worlds[0].name, worlds[1], "--policy", "random", "--json")
    swept = ("sweep", "--trace", worlds[0], "--policy", "default", "--policy", "random", "--overcommit", "1,1.5")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        monkeypatch.chdir(worlds[0].parent)
        for asked in (compared, swept):
            there = run(*asked, "--scheduler", cluster.scheduler_address)
            assert there.exit_code == 0, there.output
            assert there.stdout == run(*asked).stdout


@pytest.mark.slow
def test_a_dask_cluster_without_workers_is_told_and_waited_for(
    worlds: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Adaptive clusters start workers when there is work: replays wait for the first."""
    distributed = pytest.importorskip("distributed", reason="pip install distributed")
    asked = ("compare", "--trace", worlds[0], "--policy", "random", "--json")
    with distributed.LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None) as cluster:
        later = threading.Timer(2, cluster.scale, [1])
        later.start()
        there = run(*asked, "--scheduler", cluster.scheduler_address)
        later.join()
        assert there.exit_code == 0, there.output
    assert "has no workers; replays wait for the first" in caplog.text
    assert there.stdout == run(*asked).stdout


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1"])
def test_a_dask_scheduler_that_is_not_there_is_one_line(
    worlds: list[Path], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """It is said which, and no traceback."""
    pytest.importorskip("distributed", reason="pip install distributed")
    monkeypatch.setattr(comparison, "_CONNECT_SECONDS", 0.2)
    answered = run("compare", "--trace", worlds[0], "--policy", "random", "--scheduler", address)
    assert answered.exit_code == 2
    assert f"trimaran: the Dask scheduler {address} cannot be used" in answered.stderr
    assert "Traceback" not in answered.output


def test_a_file_that_holds_something_else_is_not_written_to(worlds: list[Path]) -> None:
    """A table of the trace itself, say; an empty file is as good as none."""
    pods = worlds[0] / "pods.csv"
    before = pods.read_bytes()
    refused = run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", pods)
    assert refused.exit_code == 2
    assert f"--resume-file {pods}: is not a file of stored replays" in refused.stderr
    assert pods.read_bytes() == before
    empty = pods.parent / "kept"
    empty.touch()
    assert run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", empty).exit_code == 0
    empty.write_bytes(empty.read_bytes()[:5])  # killed while it wrote its first line
    assert run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", empty).exit_code == 0


def test_saved_nodes_are_measured_on_request(worlds: list[Path]) -> None:
    """--nodes-saved adds a measure; the default scheduler saves none."""
    asked = ("compare", "--trace", worlds[0], "--policy", "default", "--policy", "clairvoyant", "--json")
    result = json.loads(run(*asked, "--nodes-saved").stdout)["one"]
    assert 0 <= result["default"]["nodes_saved_percent"] <= result["clairvoyant"]["nodes_saved_percent"]
    assert "nodes_saved_percent" not in json.loads(run(*asked).stdout)["one"]["default"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "--trace", "/nowhere"], "trimaran: /nowhere: is no folder"),
        (["compare", "--policy", "magic"], "no policy is called magic; there are: default"),
        (["run", "--policy", "magic"], "no policy is called magic; there are: default"),
        (["compare", "--overcommit", "0"], "one number from 0.01 to 1000, or two"),
        (["compare", "--overcommit", "nan"], "one number from 0.01 to 1000, or two"),
        (["compare", "--overcommit", "1e308"], "one number from 0.01 to 1000, or two"),
        (["sweep", "--overcommit", "1,,2"], "numbers from 0.01 to 1000, separated by commas"),
        (["compare", "--jobs", "0"], "'--jobs': 0"),
        (["run", "--interval-minutes", "0"], "'--interval-minutes': 0 is not in the range x>=1"),
        (["compare", "--seed", "-1"], "'--seed': -1 is not in the range x>=0"),
        (["compare", "--delay-minutes", "6"], "'--delay-minutes': 6 is not in the range 0<=x<=5"),
        (["compare", "--nodes-saved", "--autoscale"], "--autoscale would bring them back: leave out one"),
        (["generate", "/none/x", "--seed", "-1"], "'--seed': -1 is not in the range x>=0"),
        (["generate", "/dev/null/x"], "/dev/null/x cannot be written: Not a directory"),
        (["generate", "/none/x", "--hours", "2", "--warm-up-hours", "2"], "a warm-up of 2 hours leaves nothing of 2"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], said: str) -> None:
    """It is said which option, and no traceback."""
    answered = run(*arguments)
    assert answered.exit_code == 2
    assert said in answered.stderr
    assert "Traceback" not in answered.stderr


def test_the_page_gives_what_it_shows() -> None:
    """The example of docs/simulator.md prints what stands under it, and every policy and measure is in the page."""
    page = Path(__file__).parents[3] / "docs" / "simulator.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0
    text = page.read_text()
    single = [name for name in policy_names() if "load-variation-risk-balancing" not in name]
    assert [name for name in single if f"`{name}`" not in text] == []
    trace = Synthetic(nodes=2, minutes=60, warm_up_minutes=10).trace()
    names = measures(Replay(trace, policies(trace)["random"]).run())
    assert [name for name in names if f"`{name}`" not in text] == []


def test_a_generated_world_can_be_compared(tmp_path: Path) -> None:
    """``generate`` writes what ``compare`` reads."""
    assert run("generate", tmp_path / "w", "--nodes", 3, "--hours", 2, "--warm-up-hours", 1).exit_code == 0
    assert list(json.loads(run("compare", "--trace", tmp_path / "w", "--policy", "random", "--json").stdout)) == ["w"]


@pytest.mark.parametrize(("hours", "warm_up"), [(2, 0), (6, 60), (60, 720), (61, 720)])
def test_a_warm_up_leaves_most_of_a_world(tmp_path: Path, hours: int, warm_up: int) -> None:
    """It is a fifth of the hours, at most 12, so that short worlds can be generated by their hours alone."""
    assert run("generate", tmp_path / "w", "--nodes", 2, "--hours", hours).exit_code == 0
    assert json.loads((tmp_path / "w" / "world.json").read_text())["warm_up_minutes"] == warm_up


def test_the_pages_world_has_something_to_tell(tmp_path: Path) -> None:
    """In the first world of docs/simulator.md all pods find nodes, and the default leaves a gap to close."""
    text = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    generate, compare = (line.split()[2:] for line in re.findall(r"^    trimaran simulate .*", text, re.MULTILINE)[:2])
    assert run(*generate[:1], tmp_path / "w", *generate[2:]).exit_code == 0
    asked = ("--policy", "default", "--policy", "clairvoyant", "--json")
    rows = json.loads(run(*compare[:2], tmp_path / "w", *asked).stdout)["w"]
    assert {each["unplaced_pods"] for each in rows.values()} == {0.0}
    assert rows["clairvoyant"]["hot_minutes_70"] < 0.5 * rows["default"]["hot_minutes_70"]


def test_a_world_is_never_written_over(tmp_path: Path) -> None:
    """Files of another world would be left among those of the new one."""
    asked = ("generate", tmp_path / "w", "--nodes", 3, "--hours", 2, "--warm-up-hours", 1)
    assert run(*asked).exit_code == 0
    refused = run(*asked)
    assert (refused.exit_code, "has a trace already: choose another folder" in refused.stderr) == (2, True)


def test_what_is_named_twice_is_replayed_once(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder is one world, and keeps its name, however its path is written."""
    made = []

    def counted(tasks, jobs, scheduler):
        for task in tasks:
            made.append(task.policy)
            yield run_replay(task)

    monkeypatch.setattr(replay_batch, "run_replays", counted)
    monkeypatch.chdir(worlds[0])
    asked = ("--trace", worlds[0], f"{worlds[0]}/", "../one", "--policy", "random", "--policy", "random", "--json")
    assert list(json.loads(run("compare", *asked).stdout)) == ["one"]
    assert made == ["random"]


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_replayed(
    worlds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after hours of work, which would be lost."""
    pytest.importorskip("matplotlib", reason="pip install matplotlib")
    monkeypatch.setattr(replay_batch, "run_replays", lambda *_: pytest.fail("was replayed"))
    refused = run("compare", "--trace", worlds[0], "--policy", "random", "--html", "/dev/null/x/report.html")
    assert (refused.exit_code, "/dev/null/x/report.html cannot be written: Not a" in refused.stderr) == (2, True)


def test_metrics_may_be_others(worlds: list[Path]) -> None:
    """Each option of metrics changes what a load-aware policy does; those that are not named are as the library's."""
    asked = ("run", "--trace", worlds[0], "--policy", "target-load-packing", "--json")
    plain = run(*asked).stdout
    for name in ("window", "interval", "delay", "smoothing"):
        other = getattr(Windows, f"{name}_minutes") + 3
        answered = run(*asked, f"--{name}-minutes", other)
        trace = read_trace(worlds[0])
        options = ReplayOptions(windows=Windows(**{f"{name}_minutes": other}))
        made = measures(Replay(trace, policies(trace)["target-load-packing"], options).run())
        assert json.loads(answered.stdout) == {"one": {"target-load-packing": made}}
        assert answered.stdout != plain, name


def test_faults_may_be_listed(worlds: list[Path], tmp_path: Path) -> None:
    """--faults changes what load-aware policies do; what is wrong in the list is one line and status 2."""
    faults = tmp_path / "faults.csv"
    faults.write_text("start_minute,end_minute,node,fault,value\n0,180,*,outage,\n")
    asked = ("compare", "--trace", worlds[0], "--policy", "load-variation-risk-balancing", "--json")
    assert run(*asked, "--faults", faults).stdout != run(*asked).stdout
    faults.write_text("start_minute,end_minute,node,fault,value\n0,180,*,lost,\n")
    refused = run(*asked, "--faults", faults)
    assert refused.exit_code == 2
    assert "faults.csv: row 2: 'lost' is not a valid FaultKind" in refused.stderr


def test_a_fault_of_no_node_is_refused(worlds: list[Path], tmp_path: Path) -> None:
    """A name that is written wrong would measure a world without faults; nodes that join later are known."""
    faults, events = tmp_path / "faults.csv", tmp_path / "events.csv"
    faults.write_text("start_minute,end_minute,node,fault,value\n100,180,node-late,missing,\n")
    events.write_text(
        "minute,event,node,cpu_capacity_milli,memory_capacity_bytes\n90,join,node-late,32000,137438953472\n"
    )
    asked = ("compare", "--trace", worlds[0], "--policy", "random", "--json", "--faults", faults)
    refused = run(*asked)
    assert (refused.exit_code, f"{worlds[0]}: a fault names node 'node-late'" in refused.stderr) == (2, True)
    assert run(*asked, "--events", events).exit_code == 0
    assert run(*asked, "--autoscale").exit_code == 0


def test_events_may_be_listed(worlds: list[Path], tmp_path: Path) -> None:
    """--events takes the place of the traces' own; one that cannot be is refused before anything is replayed."""
    events = tmp_path / "events.csv"
    header = "minute,event,node,cpu_capacity_milli,memory_capacity_bytes\n"
    events.write_text(f"{header}100,fail,node-001,,\n")
    asked = ("compare", "--trace", worlds[0], "--policy", "random", "--json", "--events", events)
    assert json.loads(run(*asked).stdout)["one"]["random"]["displaced_pods"] > 0
    events.write_text(f"{header}100,fail,node-777,,\n")
    refused = run(*asked)
    said = f"{worlds[0]}: events, minute 100: node 'node-777' fails but does not exist"
    assert (refused.exit_code, said in refused.stderr) == (2, True)


def test_a_folder_without_a_name_is_refused() -> None:
    """An empty variable of the shell is not the current folder."""
    for asked in (("run", "--trace", ""), ("run", "--trace", "one", "")):
        refused = run(*asked)
        assert (refused.exit_code, "a trace's folder has no name" in refused.stderr) == (2, True)


def test_too_little_memory_is_told(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of millions of minutes ends with what to do, and not with a traceback."""

    def exhausted(*_: object) -> NoReturn:
        raise MemoryError("Unable to allocate 9.1 TiB")

    monkeypatch.setattr(comparison, "Replay", exhausted)
    refused = run("run", "--trace", worlds[0])
    assert refused.exit_code == 2
    assert "not enough memory: Unable to allocate 9.1 TiB; replay fewer at once" in refused.stderr


def test_a_link_is_a_world_of_its_own_name(worlds: list[Path], tmp_path: Path) -> None:
    """What is asked for by a link is answered by its name."""
    (tmp_path / "linked").symlink_to(worlds[0])
    answered = run("compare", "--trace", tmp_path / "linked", worlds[0], "--policy", "random", "--json")
    result = json.loads(answered.stdout)
    assert list(result) == ["linked", "one"]
    assert result["linked"] == result["one"]


def test_nodes_may_be_scaled(worlds: list[Path]) -> None:
    """--autoscale changes how long nodes are there, and so do spare ones; an unknown trigger of moves is refused."""
    asked = ("compare", "--trace", worlds[0], "--policy", "random", "--json")
    minutes = [
        json.loads(run(*asked, *more).stdout)["one"]["random"]["node_minutes"]
        for more in ((), ("--autoscale",), ("--autoscale", "--spare-nodes", 3, "--lead-minutes", 2))
    ]
    assert len(set(minutes)) == 3
    assert minutes[1] < minutes[2]
    assert run(*asked, "--move-trigger", "full-moon").exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "value"), [("--moves-at", "--move-trigger", "load"), ("--keep", "--resume-file", "done")]
)
def test_old_option_names_are_refused(old: str, new: str, value: str) -> None:
    """Refuse an option's old name with an error that names the new one."""
    refused = run("compare", old, value)
    assert (refused.exit_code, f"{old} was renamed: use {new}" in refused.stderr) == (2, True)
    assert f"  {old} " not in run("compare", "--help").stdout
