"""``trimaran simulate``: output, stored results and errors."""

import doctest
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result
from support.dask_cluster import dask_cluster
from support.servers import wait_until

from scoring.plugins.node_name import NodeName
from trimaran.cli.main import main
from trimaran.scheduler.profiles.configuration import default_document
from trimaran.simulator import comparison, replay_batch
from trimaran.simulator.comparison import REPLAY_PACKAGES, ReplayTask, ResultStore, program_version, run_replay
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import policies, policy_names
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.windows import Windows
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

PACKAGES = {"client", "runtime", "scoring", "trimaran", "watcher"}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = [tmp_path_factory.mktemp("worlds") / name for name in ("one", "two")]
    for seed, folder in enumerate(folders):
        write_trace(Synthetic(seed=seed, nodes=4, minutes=120, warm_up_minutes=60).trace(), folder)
    return folders


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


class Apart:
    """``trimaran simulate`` in a process of its own: joblib keeps processes, and Dask a thread if it cannot connect."""

    def __init__(self, folder: Path, before: str, arguments: tuple[str, ...]) -> None:
        self._output, self._log = folder / "output", folder / "log"
        program = f"{before}\nfrom trimaran.cli.main import main\nmain(['simulate', *{arguments!r}])"
        with self._output.open("wb") as output, self._log.open("wb") as log:
            self._process = subprocess.Popen([sys.executable, "-c", program], cwd=folder, stdout=output, stderr=log)

    def wait(self) -> int:
        return self._process.wait(120)

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def log(self) -> str:
        return self._log.read_text()


def run_apart(folder: Path, *arguments: object, before: str = "") -> Apart:
    for package in ("distributed", "joblib"):
        pytest.importorskip(package, reason=f"pip install {package}")
    return Apart(folder, before, tuple(map(str, arguments)))


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ReplayTask]]:
    """Return a function that lets Ctrl-C interrupt the replays after some, and returns the list of those that ran."""

    def interrupt(after: int | None = None) -> list[ReplayTask]:
        ran: list[ReplayTask] = []

        def run_some(tasks, jobs, scheduler):
            for task in tasks:
                if len(ran) == after:
                    raise KeyboardInterrupt
                ran.append(task)
                yield run_replay(task)

        monkeypatch.setattr(replay_batch, "run_replays", run_some)
        return ran

    return interrupt


@pytest.mark.slow
def test_every_policy_is_compared_in_every_world(worlds: list[Path]) -> None:
    """Folders may follow one --trace; the JSON is {world: {policy: {measure: number}}}, and reproducible."""
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


def test_overcommit_can_be_overridden(worlds: list[Path]) -> None:
    """--overcommit overrides the trace's own, with one number or with one each for CPU and memory."""
    command = ("compare", "--trace", worlds[0], "--policy", "default", "--json")
    default, both, single = (
        run(*command),
        run(*command, "--overcommit", "0.5,0.5"),
        run(*command, "--overcommit", "0.5"),
    )
    assert default.stdout != both.stdout
    assert both.stdout == single.stdout


def test_measures_are_means_over_seeds(worlds: list[Path], tmp_path: Path) -> None:
    """--seeds replays with successive seeds; measures are means, and the deviation of hot minutes is a column."""
    command = ("compare", "--trace", worlds[0], "--policy", "random", "--overcommit", "3", "-o", "json")
    single = [json.loads(run(*command, "--seed", seed).stdout)["one"]["random"] for seed in (3, 4, 5)]
    stored = ("--seed", 3, "--seeds", 3, "--resume-file", tmp_path / "kept")
    answered = run(*command, *stored)
    assert "3 of 3: " in answered.stderr
    together = json.loads(answered.stdout)["one"]["random"]
    deviation = together.pop("hot_minutes_80_seed_deviation")
    hot = [measures["hot_minutes_80"] for measures in single]
    assert len(set(hot)) > 1
    assert deviation == pytest.approx(stdev(hot))
    assert together == pytest.approx({name: fmean(one[name] for one in single) for name in single[0]})
    table = run(*command[:-2], *stored).stdout.splitlines()
    assert [line.split()[-1] for line in table[1:6]] == ["hot", "minutes", "80", "seed", "deviation"]


def test_a_table_has_a_row_for_each_policy(worlds: list[Path]) -> None:
    """Without --json the output is a table of the main measures with a row for each policy."""
    lines = run("compare", "--trace", worlds[0], "--policy", "random", "--policy", "default").stdout.splitlines()
    assert lines[0] == "one"
    assert [line.split()[:3] for line in lines[1:4]] == [["hot"] * 3, ["minutes"] * 3, ["70", "80", "90"]]
    assert [line.split()[0] for line in lines[4:]] == ["random", "default"]


def test_run_replays_one_policy(worlds: list[Path]) -> None:
    """``run`` replays congestion-cost or another policy, with the same results as ``compare``."""
    command = ("--trace", *worlds, "--overcommit", "1.5", "--json")
    compared = json.loads(run("compare", *command, "--policy", "congestion-cost", "--policy", "random").stdout)
    for policy, chosen in (("congestion-cost", ()), ("random", ("--policy", "random"))):
        answered = run("run", *command, *chosen)
        assert answered.exit_code == 0, answered.stderr
        assert json.loads(answered.stdout) == {world: {policy: rows[policy]} for world, rows in compared.items()}
    assert "throttled" in run("run", "--trace", worlds[0], "--policy", "random").stdout


def test_a_sweep_compares_at_each_factor(worlds: list[Path]) -> None:
    """The JSON of ``sweep`` is {factor: {world: ...}}."""
    answered = run("sweep", "--trace", worlds[0], "--policy", "default", "--overcommit", "1,1.5", "--json")
    result = json.loads(answered.stdout)
    assert list(result) == ["1", "1.5"]
    assert result["1"]["one"]["default"] != result["1.5"]["one"]["default"]


def test_a_repeated_list_of_factors_is_added(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors of several --overcommit count together, each once, in both commands with such a list."""
    replayed: list[float] = []

    def noted(tasks, jobs, scheduler):
        replayed.extend(dict.fromkeys(task.options.overcommit[0] for task in tasks))
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(replay_batch, "run_replays", noted)
    run("sweep", "--trace", worlds[0], "--policy", "random", "--overcommit", "1,1.5", "--overcommit", "2,1.5")
    assert replayed == [1.0, 1.5, 2.0]
    replayed.clear()
    run("overcommit", worlds[0], "--overcommit", "1.5", "--overcommit", "1.2,1.5")
    assert replayed == [1.5, 1.2, 1.0]  # 1: the recommended requests are as written


def test_after_an_interruption_policies_are_compared_by_the_same_seeds(
    worlds: list[Path], replaying: Callable[..., list[ReplayTask]]
) -> None:
    """A policy with fewer seeds than another counts with those of both; text and JSON have no other means."""
    command = ("compare", "--trace", worlds[0], "--policy", "random", "--policy", "default", "--seeds", "2")
    first_seed = json.loads(run(*command[:-1], "1", "--json").stdout)
    replaying(3)  # both seeds of random, the first of default
    stopped = run(*command, "--json")
    assert (json.loads(stopped.stdout), stopped.exit_code) == (first_seed, 1)
    replaying(3)
    assert "default" in run(*command).stdout


def test_an_interrupted_run_is_resumed(
    worlds: list[Path], tmp_path: Path, replaying: Callable[..., list[ReplayTask]]
) -> None:
    """After Ctrl-C finished replays are printed and stored; the same command then runs only the missing ones."""
    command = ("compare", "--trace", *worlds, "--policy", "default", "--resume-file", tmp_path / "kept", "--json")
    whole = json.loads(run(*command[:-3], "--json").stdout)
    replaying(1)
    stopped = run(*command)
    assert json.loads(stopped.stdout) == {"one": whole["one"]}
    assert stopped.exit_code == 1  # scripts must not take a partial result for a complete one
    assert "1 of 2" in stopped.stderr
    with (tmp_path / "kept").open("a") as file:
        file.write('{"key": "half a li')
    ran = replaying()
    for _ in range(2):
        assert json.loads(run(*command).stdout) == whole
        assert [task.folder.name for task in ran] == ["two"]  # no replay runs twice, despite the truncated line


def test_sigterm_is_handled_like_ctrl_c(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM prints the finished replays and exits with status 1; its previous handler is restored."""

    def terminated(tasks, jobs, scheduler):
        yield run_replay(tasks[0])
        os.kill(os.getpid(), signal.SIGTERM)
        yield from map(run_replay, tasks[1:])

    def before(*_: object) -> None:
        pytest.fail("the command did not handle the signal")

    monkeypatch.setattr(replay_batch, "run_replays", terminated)
    original = signal.signal(signal.SIGTERM, before)
    try:
        stopped = run("compare", "--trace", *worlds, "--policy", "random", "--json")
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, original)
    assert (list(json.loads(stopped.stdout)), stopped.exit_code) == (["one"], 1)
    assert "1 of 2" in stopped.stderr


def test_progress_has_a_line_for_each_replay(worlds: list[Path], tmp_path: Path) -> None:
    """If stderr is not a terminal, each finished replay has a line; stored replays count as finished."""
    command = ("--trace", *worlds, "--policy", "random", "--resume-file", tmp_path / "kept")
    lines = run("compare", *command).stderr.splitlines()
    assert [re.sub(r"\d+ s", "- s", line) for line in lines] == ["1 of 2: one, random, - s", "2 of 2: two, random, - s"]
    (line,) = run("compare", *command[:2], "--overcommit", "1.5,1.2", *command[3:]).stderr.splitlines()
    assert line.startswith("1 of 1: one")
    assert run("sweep", *command, "--overcommit", "1,2").stderr.startswith("1 of 4: one")


def test_a_stored_result_depends_on_trace_options_and_version(worlds: list[Path], tmp_path: Path) -> None:
    """Another trace in the same folder, other options or another version are replayed again."""
    folder = tmp_path / "world"
    write_trace(Synthetic(seed=1, nodes=4, minutes=60, warm_up_minutes=10).trace(), folder)
    task = ReplayTask(folder, "random", ReplayOptions())
    ResultStore(tmp_path / "kept", "1").add(run_replay(task))
    assert ResultStore(tmp_path / "kept", "1").find(task) is not None
    assert ResultStore(tmp_path / "kept", "2").find(task) is None
    assert ResultStore(tmp_path / "kept", "1").find(ReplayTask(folder, "random", ReplayOptions(seed=1))) is None
    write_trace(Synthetic(seed=1, nodes=4, minutes=60, warm_up_minutes=10, history_days=1).trace(), folder)
    assert ResultStore(tmp_path / "kept", "1").find(task) is None  # the learner of a replay begins with the history
    (folder / "history.csv").unlink()
    (folder / "history.npz").unlink()
    assert ResultStore(tmp_path / "kept", "1").find(task) is not None
    write_trace(Synthetic(seed=2, nodes=4, minutes=60, warm_up_minutes=10).trace(), folder)
    assert ResultStore(tmp_path / "kept", "1").find(task) is None


def test_the_version_covers_all_packages_of_a_replay() -> None:
    """The version covers every package of the project that a replay imports."""
    program = "import sys, trimaran.simulator.comparison; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    ours = {".".join(name.split(".")[: 2 if name.startswith("trimaran.") else 1]) for name in imported}
    assert set(REPLAY_PACKAGES) == {name for name in ours if name.partition(".")[0] in PACKAGES} - {"trimaran"}


def test_results_of_changed_code_are_not_reused(
    worlds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is a hash of the source code; only unchanged code reuses stored results."""
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
    command = ("run", "--trace", worlds[0], "--policy", "random", "--resume-file", tmp_path / "kept", "--json")
    for source in (before, changed, changed):
        monkeypatch.setattr(replay_batch, "program_version", lambda source=source: source)
        assert run(*command).exit_code == 0
    assert len((tmp_path / "kept").read_text().splitlines()) == 2


def test_an_interruption_ends_the_whole_sweep(worlds: list[Path], replaying: Callable[..., list[ReplayTask]]) -> None:
    """Ctrl-C ends the replays of all factors; finished ones are printed."""
    replaying(1)
    answered = run("sweep", "--trace", *worlds, "--policy", "random", "--overcommit", "1,1.5", "--json")
    assert {factor: list(by_world) for factor, by_world in json.loads(answered.stdout).items()} == {"1": ["one"]}
    assert answered.exit_code == 1


def test_an_unwritable_resume_file_is_refused(worlds: list[Path], tmp_path: Path) -> None:
    """An unwritable resume file is an error before any replay."""
    refused = run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", tmp_path / "nowhere" / "kept")
    assert (refused.exit_code, "No such file" in refused.stderr) == (2, True)


def test_parallel_replays_have_the_same_results(worlds: list[Path], tmp_path: Path) -> None:
    """Several processes yield the same results as one."""
    compared = ("compare", "--trace", *worlds, "--policy", "random", "--json")
    swept = ("sweep", "--trace", *worlds, "--policy", "random", "--overcommit", "1,1.5", "--json")
    for command in (compared, swept):
        parallel = run_apart(tmp_path, *command, "--jobs", 2)
        assert parallel.wait() == 0, parallel.log
        assert parallel.output == run(*command).stdout


@pytest.mark.slow
def test_a_dask_cluster_has_the_same_results(
    worlds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a Dask scheduler yield the same results as one process, also with relative folders and in a sweep."""
    compared = ("compare", "--trace", worlds[0].name, worlds[1], "--policy", "random", "--json")
    swept = ("sweep", "--trace", worlds[0], "--policy", "default", "--policy", "random", "--overcommit", "1,1.5")
    with dask_cluster(tmp_path, workers=2) as cluster:
        for command in (compared, swept):
            remote = run_apart(worlds[0].parent, *command, "--scheduler", cluster.address)
            assert remote.wait() == 0, remote.log
            monkeypatch.chdir(worlds[0].parent)
            assert remote.output == run(*command).stdout


@pytest.mark.slow
def test_replays_wait_for_dask_workers(worlds: list[Path], tmp_path: Path) -> None:
    """Replays wait, with a warning, until a cluster has its first worker."""
    command = ("compare", "--trace", worlds[0], "--policy", "random", "--json")
    with dask_cluster(tmp_path) as cluster:
        remote = run_apart(tmp_path, *command, "--scheduler", cluster.address)
        wait_until(lambda: "has no workers; replays wait for the first" in remote.log, "the replays wait")
        cluster.add_worker()
        assert remote.wait() == 0, remote.log
    assert remote.output == run(*command).stdout


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1"])
def test_an_unreachable_dask_scheduler_is_one_line(worlds: list[Path], tmp_path: Path, address: str) -> None:
    """The error names the scheduler's address, without a traceback."""
    command = ("compare", "--trace", worlds[0], "--policy", "random", "--scheduler", address)
    answered = run_apart(
        tmp_path, *command, before="from trimaran.simulator import comparison as c\nc._CONNECT_SECONDS = 0.2"
    )
    assert answered.wait() == 2
    assert address in answered.log
    assert "Traceback" not in answered.log


def test_a_resume_file_with_other_content_is_refused(worlds: list[Path]) -> None:
    """A file with other content is not overwritten; an empty or truncated file is accepted."""
    pods = worlds[0] / "pods.csv"
    before = pods.read_bytes()
    refused = run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", pods)
    assert refused.exit_code == 2
    assert str(pods) in refused.stderr
    assert pods.read_bytes() == before
    empty = pods.parent / "kept"
    empty.touch()
    assert run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", empty).exit_code == 0
    empty.write_bytes(empty.read_bytes()[:5])  # killed while it wrote its first line
    assert run("compare", "--trace", worlds[0], "--policy", "random", "--resume-file", empty).exit_code == 0


def test_saved_nodes_are_measured_on_request(worlds: list[Path]) -> None:
    """--nodes-saved adds a measure."""
    command = ("compare", "--trace", worlds[0], "--policy", "default", "--policy", "clairvoyant", "--json")
    result = json.loads(run(*command, "--nodes-saved").stdout)["one"]
    assert 0 <= result["default"]["nodes_saved_percent"] <= result["clairvoyant"]["nodes_saved_percent"]
    assert "nodes_saved_percent" not in json.loads(run(*command).stdout)["one"]["default"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--trace", "/nowhere"], "trimaran: /nowhere: is not a folder"),
        (["compare", "--policy", "magic"], "unknown policy magic; policies are: default"),
        (["run", "--policy", "magic"], "magic"),
        (["compare", "--policy", "mine=standalone:"], "--policy mine=standalone:: the name of the file is missing"),
        (["compare", "--policy", "mine="], "--policy mine=: "),
        (["compare", "--overcommit", "0"], "one number from 0.01 to 1000, or two"),
        (["compare", "--overcommit", "nan"], "'--overcommit'"),
        (["compare", "--overcommit", "1e308"], "'--overcommit'"),
        (["sweep", "--overcommit", "1,,2"], "numbers from 0.01 to 1000, separated by commas"),
        (["compare", "--jobs", "0"], "'--jobs': "),
        (["run", "--interval-minutes", "0"], "'--interval-minutes': 0 "),
        (["compare", "--seed", "-1"], "'--seed': -1 "),
        (["compare", "--delay-minutes", "6"], "'--delay-minutes': 6 "),
        (["compare", "--nodes-saved", "--autoscale"], "--autoscale would add them again: use only one of them"),
        (["generate", "/none/x", "--seed", "-1"], "'--seed': -1 "),
        (["generate", "/dev/null/x"], "cannot write /dev/null/x: "),
        (["generate", "/none/x", "--hours", "2", "--warm-up-hours", "2"], "--warm-up-hours 2"),
        (["run", "--trace", ""], "the folder name is empty"),
        (["run", "--trace", "one", ""], "the folder name is empty"),
        (["run", "--policy", "random", "--policy", "default"], "--policy is given twice, but takes one value"),
        (["compare", "--overcommit", "1", "--overcommit=2"], "--overcommit is given twice"),
        (["sweep", "--seeds", "1", "--seeds", "2"], "--seeds is given twice"),
        (["overcommit", "--jobs=1", "--jobs=2"], "--jobs is given twice"),
        (["generate", "--nodes", "1", "--nodes", "2", "world"], "--nodes is given twice"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    """The error names the option, without a traceback."""
    answered = run(*arguments)
    assert answered.exit_code == 2
    assert message in answered.stderr
    assert "Traceback" not in answered.stderr


def test_a_plugin_with_a_wrong_result_is_one_line(
    worlds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that returns no verdict ends the command with one line that names the plugin."""
    monkeypatch.setattr(NodeName, "filter", lambda *_: [True])
    file = tmp_path / "scheduler.yaml"
    file.write_text(json.dumps(default_document("ours")))
    answered = run("run", "--trace", worlds[0], "--policy", f"mine=standalone:{file}")
    assert answered.exit_code == 2
    assert answered.stderr.endswith("NodeName.filter: must return a FilterVerdict or None, got list\n")


def test_the_documentation_is_correct() -> None:
    """The example of docs/simulator.md has the printed output, and the page names every policy and measure."""
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
    """``compare`` reads the output of ``generate``."""
    assert run("generate", tmp_path / "w", "--nodes", 3, "--hours", 2, "--warm-up-hours", 1).exit_code == 0
    assert list(json.loads(run("compare", "--trace", tmp_path / "w", "--policy", "random", "--json").stdout)) == ["w"]


@pytest.mark.parametrize(("hours", "warm_up"), [(2, 0), (6, 60), (60, 720), (61, 720)])
def test_the_default_warm_up(tmp_path: Path, hours: int, warm_up: int) -> None:
    """The default warm-up is a fifth of the hours, at most 12."""
    assert run("generate", tmp_path / "w", "--nodes", 2, "--hours", hours).exit_code == 0
    assert json.loads((tmp_path / "w" / "world.json").read_text())["warm_up_minutes"] == warm_up


def test_the_documented_world_shows_a_difference(tmp_path: Path) -> None:
    """In the first world of docs/simulator.md all pods are placed, and clairvoyant is better than default."""
    text = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    generate, compare = (line.split()[2:] for line in re.findall(r"^    trimaran simulate .*", text, re.MULTILINE)[:2])
    assert run(*generate[:1], tmp_path / "w", *generate[2:]).exit_code == 0
    command = ("--policy", "default", "--policy", "clairvoyant", "--json")
    rows = json.loads(run(*compare[:2], tmp_path / "w", *command).stdout)["w"]
    assert {each["unplaced_pods"] for each in rows.values()} == {0.0}
    assert rows["clairvoyant"]["hot_minutes_70"] < 0.5 * rows["default"]["hot_minutes_70"]


def test_a_trace_is_never_overwritten(tmp_path: Path) -> None:
    """A folder with a trace is refused."""
    command = ("generate", tmp_path / "w", "--nodes", 3, "--hours", 2, "--warm-up-hours", 1)
    assert run(*command).exit_code == 0
    refused = run(*command)
    assert (refused.exit_code, "already has a trace: choose another folder" in refused.stderr) == (2, True)


def test_duplicates_are_replayed_once(
    worlds: list[Path], monkeypatch: pytest.MonkeyPatch, replaying: Callable[..., list[ReplayTask]]
) -> None:
    """Different paths of one folder are one world, and a repeated policy is replayed once."""
    ran = replaying()
    monkeypatch.chdir(worlds[0])
    command = ("--trace", worlds[0], f"{worlds[0]}/", "../one", "--policy", "random", "--policy", "random", "--json")
    assert list(json.loads(run("compare", *command).stdout)) == ["one"]
    assert [task.policy for task in ran] == ["random"]


def test_an_unwritable_report_is_refused(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unwritable report is an error before any replay."""
    pytest.importorskip("matplotlib", reason="pip install matplotlib")
    monkeypatch.setattr(replay_batch, "run_replays", lambda *_: pytest.fail("was replayed"))
    refused = run("compare", "--trace", worlds[0], "--policy", "random", "--html", "/dev/null/x/report.html")
    assert (refused.exit_code, "/dev/null/x/report.html" in refused.stderr) == (2, True)


def test_options_of_metrics(worlds: list[Path]) -> None:
    """Each option of metrics has the same effect as the option in the library."""
    command = ("run", "--trace", worlds[0], "--policy", "load-variation-risk-balancing", "--json")
    plain = run(*command).stdout
    for name in ("window", "interval", "delay", "smoothing"):
        other = getattr(Windows, f"{name}_minutes") + 3
        answered = run(*command, f"--{name}-minutes", other)
        trace = read_trace(worlds[0])
        options = ReplayOptions(windows=Windows(**{f"{name}_minutes": other}))
        expected = measures(Replay(trace, policies(trace)["load-variation-risk-balancing"], options).run())
        assert json.loads(answered.stdout) == {"one": {"load-variation-risk-balancing": expected}}
        assert answered.stdout != plain, name


def test_faults_are_read_from_a_file(worlds: list[Path], tmp_path: Path) -> None:
    """--faults changes the results of load-aware policies; an invalid file is one line with status 2."""
    faults = tmp_path / "faults.csv"
    faults.write_text("start_minute,end_minute,node,fault,value\n0,180,*,outage,\n")
    command = ("compare", "--trace", worlds[0], "--policy", "load-variation-risk-balancing", "--json")
    assert run(*command, "--faults", faults).stdout != run(*command).stdout
    faults.write_text("start_minute,end_minute,node,fault,value\n0,180,*,lost,\n")
    refused = run(*command, "--faults", faults)
    assert refused.exit_code == 2
    assert "faults.csv: row 2: 'lost' " in refused.stderr


def test_a_fault_of_an_unknown_node_is_refused(worlds: list[Path], tmp_path: Path) -> None:
    """A fault with an unknown node is an error; nodes that join later are known."""
    faults, events = tmp_path / "faults.csv", tmp_path / "events.csv"
    faults.write_text("start_minute,end_minute,node,fault,value\n100,180,node-late,missing,\n")
    events.write_text(
        "minute,event,node,cpu_capacity_milli,memory_capacity_bytes\n90,join,node-late,32000,137438953472\n"
    )
    command = ("compare", "--trace", worlds[0], "--policy", "random", "--json", "--faults", faults)
    refused = run(*command)
    assert (refused.exit_code, f"{worlds[0]}: " in refused.stderr) == (2, True)
    assert run(*command, "--events", events).exit_code == 0
    assert run(*command, "--autoscale").exit_code == 0


def test_events_are_read_from_a_file(worlds: list[Path], tmp_path: Path) -> None:
    """--events replaces the traces' own events; an impossible event is an error before any replay."""
    events = tmp_path / "events.csv"
    header = "minute,event,node,cpu_capacity_milli,memory_capacity_bytes\n"
    events.write_text(f"{header}100,fail,node-001,,\n")
    command = ("compare", "--trace", worlds[0], "--policy", "random", "--json", "--events", events)
    assert json.loads(run(*command).stdout)["one"]["random"]["displaced_pods"] > 0
    events.write_text(f"{header}100,fail,node-777,,\n")
    refused = run(*command)
    message = f"{worlds[0]}: events, minute 100: node 'node-777' fails but does not exist"
    assert (refused.exit_code, message in refused.stderr) == (2, True)


def test_too_little_memory_is_reported(worlds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little memory is an error with a remedy, without a traceback."""

    def exhausted(*_: object) -> NoReturn:
        raise MemoryError("Unable to allocate 9.1 TiB")

    monkeypatch.setattr(comparison, "Replay", exhausted)
    refused = run("run", "--trace", worlds[0])
    assert refused.exit_code == 2
    assert "9.1 TiB" in refused.stderr


def test_a_link_is_a_world_of_its_own_name(worlds: list[Path], tmp_path: Path) -> None:
    """A symbolic link to a folder is a world with the link's name."""
    (tmp_path / "linked").symlink_to(worlds[0])
    answered = run("compare", "--trace", tmp_path / "linked", worlds[0], "--policy", "random", "--json")
    result = json.loads(answered.stdout)
    assert list(result) == ["linked", "one"]
    assert result["linked"] == result["one"]


def test_nodes_are_scaled(worlds: list[Path]) -> None:
    """--autoscale and --spare-nodes change the node minutes; an unknown trigger of moves is refused."""
    command = ("compare", "--trace", worlds[0], "--policy", "random", "--json")
    minutes = [
        json.loads(run(*command, *more).stdout)["one"]["random"]["node_minutes"]
        for more in ((), ("--autoscale",), ("--autoscale", "--spare-nodes", 3, "--lead-minutes", 2))
    ]
    assert len(set(minutes)) == 3
    assert minutes[1] < minutes[2]
    assert run(*command, "--move-trigger", "full-moon").exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "value"), [("--moves-at", "--move-trigger", "load"), ("--keep", "--resume-file", "done")]
)
def test_old_option_names_are_refused(old: str, new: str, value: str) -> None:
    """Refuse an option's old name with an error that names the new one."""
    refused = run("compare", old, value)
    assert (refused.exit_code, f"{old} was renamed: use {new}" in refused.stderr) == (2, True)
    assert f"  {old} " not in run("compare", "--help").stdout
