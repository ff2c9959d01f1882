"""Latency on real nodes: what needs no nodes, which is the generator of requests, counters, files and statistics."""

import os
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from control_plane.builds import GoMissing
from real_nodes import images
from scipy.stats import spearmanr
from support.leaks import kept_by_session
from support.scripts import FOLDER, imported
from support.servers import IN_CI, run_server
from support.waiting import wait_until

SCRIPTS = FOLDER / "real_nodes"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with imported("contrast", SCRIPTS):
        import hot_minutes  # noqa: F401  its modules are found as attributes of sys.modules only
        import moves  # noqa: F401

        yield sys.modules["contrast"]


def module(name: str) -> ModuleType:
    """Return a script that the fixture has imported."""
    return sys.modules[name]


# -- the generator ------------------------------------------------------------------------------------------------


class Stalled(BaseHTTPRequestHandler):
    """A service that answers nothing until it is released."""

    protocol_version = "HTTP/1.1"
    released = threading.Event()
    status = 200
    arrived = 0

    def do_GET(self) -> None:
        Stalled.arrived += 1
        self.released.wait(10)
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class StalledServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 200  # with the usual 5 a busy machine drops connections, which come again after seconds


@pytest.fixture
def server() -> Iterator[str]:
    """Address of a service, not stalled."""
    Stalled.released.set()
    Stalled.status, Stalled.arrived = 200, 0
    httpd = StalledServer(("127.0.0.1", 0), Stalled)
    with run_server(httpd):
        yield f"http://127.0.0.1:{httpd.server_port}/"


@pytest.fixture(scope="module")
def built(script: ModuleType) -> None:
    """The generator's program."""
    try:
        with kept_by_session("programs"):
            images.generator()
    except GoMissing as missing:
        (pytest.fail if IN_CI else pytest.skip)(str(missing))


@pytest.mark.server
@pytest.mark.usefixtures("built")
class TestGenerator:
    def test_each_phase_has_its_requests_at_the_times_of_the_seed(self, server: str) -> None:
        """Arrivals are a Poisson process within their phase, the same for the same seed, and others for another one."""
        generator = module("open_loop").Generator
        phases = [(0.0, 0.5, 400.0, server), (0.5, 1.0, 100.0, server)]
        found = []
        for seed in (1, 1, 2):
            with generator(phases, seed) as running:
                found.append(running.result())
        requests = found[0][np.lexsort(found[0][:, :2].T[::-1])]
        assert (requests[:, 4] == 200).all()
        for number, (begin, end, rate, _) in enumerate(phases):
            times = requests[requests[:, 0] == number, 1]
            assert ((begin <= times) & (times < end)).all()
            expected = rate * (end - begin)
            assert abs(len(times) - expected) < 4 * np.sqrt(expected)
        times = [sorted(each[:, 1]) for each in found]
        assert times[0] == times[1]
        assert not set(times[0]) & set(times[2])
        # Phase 1 of a seed must not be phase 0 of the next one.
        gaps = [np.diff(np.sort(each[each[:, 0] == n, 1])) for each, n in ((found[0], 1), (found[2], 0))]
        assert abs(np.corrcoef(gaps[0][:30], gaps[1][:30])[0, 1]) < 0.6

    def test_a_stalled_service_gets_all_requests_and_each_counts_from_its_intended_time(self, server: str) -> None:
        """While no answer comes requests go on, and the latency of each is the time from its intention to the end."""
        Stalled.released.clear()
        with module("open_loop").Generator([(0.0, 1.0, 40.0, server)], 3) as running:
            wait_until(lambda: time.time() > running.begin + 1.5, "all requests are intended")
            wait_until(lambda: Stalled.arrived > 10, "they arrive without an answer to any", 9)
            Stalled.released.set()
            released = 1000 * (time.time() - running.begin)
            requests = running.result()
        assert len(requests) > 15
        intended = 1000 * requests[:, 1]
        assert (requests[:, 3] >= released - intended - 5).all()
        assert requests[:, 3].min() > 400
        assert (requests[:, 3] - requests[:, 2]).min() > 0

    def test_the_lateness_is_that_of_the_generator_only(self, server: str) -> None:
        """A stalled service makes no request late; a generator that was stopped is late by the time of its stop."""
        Stalled.released.clear()
        with module("open_loop").Generator([(0.0, 2.0, 100.0, server)], 4) as running:
            wait_until(lambda: time.time() > running.begin + 0.5, "it sends")
            Stalled.released.set()
            subprocess.run(["kill", "-STOP", str(running.pid)], check=True)
            stopped = time.time() - running.begin
            time.sleep(0.5)
            subprocess.run(["kill", "-CONT", str(running.pid)], check=True)
            requests = running.result()
        during = (requests[:, 1] > stopped + 0.05) & (requests[:, 1] < stopped + 0.2)
        assert during.any()
        assert (requests[during, 2] > 250).all()
        before = requests[requests[:, 1] < stopped - 0.05, 2]
        assert np.median(before) < 50
        assert module("open_loop").lateness(requests) > 250

    def test_requests_without_an_answer_took_the_longest(self, server: str) -> None:
        """Refused connections and errors fail at once; their latency is the generator's limit, not this moment."""
        open_loop = module("open_loop")
        Stalled.status = 500
        with open_loop.Generator([(0.0, 0.2, 100.0, server), (0.0, 0.2, 100.0, "http://127.0.0.1:1/")], 5) as running:
            requests = running.result()
        assert set(requests[requests[:, 0] == 0, 4]) == {500}
        assert set(requests[requests[:, 0] == 1, 4]) == {0}
        assert open_loop.latencies(requests) == (10_000, 10_000, 100)

    def test_a_file_of_urls_is_read_at_each_request(self, server: str, tmp_path: Path) -> None:
        """Requests go to the URLs in turn, to new ones once the file has changed, and fail while it has none."""
        urls, refused = tmp_path / "urls", "http://127.0.0.1:1/"
        urls.write_text(f"{server}\n{refused}\n")
        with module("open_loop").Generator([(0.0, 3.0, 100.0, f"@{urls}")], 6) as running:
            times = []
            for text in ("", server):
                wait_until(lambda: time.time() > running.begin + 1 + len(times), "a second has passed")
                before = time.time()
                urls.write_text(text)
                times.append((before - running.begin, time.time() - running.begin))
            requests = running.result()
        requests = requests[np.argsort(requests[:, 1])]
        due, status = requests[:, 1], requests[:, 4]
        sent = due + requests[:, 2] / 1000  # a busy machine is late; the file is read in between
        (empty, is_empty), (new, is_new) = times
        in_turn = np.where(np.arange(len(due)) % 2, 0, 200)
        assert (status[sent < empty] == in_turn[sent < empty]).all()
        assert not status[(due > is_empty) & (sent < new)].any()
        assert (status[due > is_new] == 200).all()

    def test_a_phase_that_cannot_be_read_is_an_error(self, server: str) -> None:
        """A generator that ends with an error has no result."""
        with (
            module("open_loop").Generator([(0.0, 1.0, 10.0, "")], 1) as running,
            pytest.raises(AssertionError, match="status 2"),
        ):
            running.result()


def test_latencies_are_percentiles_and_the_percentage_over_50_ms(script: ModuleType) -> None:
    """Requests of 1 to 100 ms: half is over 50 ms."""
    took = np.arange(1.0, 101.0)
    requests = np.stack([np.zeros(100), took, np.zeros(100), took, np.full(100, 200.0)], axis=1)
    assert module("open_loop").latencies(requests) == pytest.approx((50.5, 99.01, 50))


# -- counters and disturbances ------------------------------------------------------------------------------------


def test_waiting_grows_by_tasks_that_began_and_not_by_those_that_ended(script: ModuleType) -> None:
    """A new task counts since its begin, an ended one no more, and one with the number of an ended one in full."""
    assert module("queue_waits").growth({"1": 10, "2": 50, "3": 90}, {"1": 15, "3": 20, "4": 7}) == 5 + 20 + 7


def test_the_waiting_of_a_group_is_that_of_all_its_tasks(script: ModuleType, tmp_path: Path) -> None:
    """Tasks of groups below count; two processes that share a processor wait as long as they run."""
    queue_waits = module("queue_waits")
    (tmp_path / "pod").mkdir()
    processor = min(os.sched_getaffinity(0))
    busy = [
        subprocess.Popen(["taskset", "-c", str(processor), sys.executable, "-c", "while True: pass"]) for _ in range(2)
    ]
    try:
        (tmp_path / "cgroup.procs").write_text(f"0\n{busy[0].pid}\n")
        (tmp_path / "pod/cgroup.procs").write_text(f"{busy[1].pid}\n")
        with queue_waits.QueueWaits({"node-1": tmp_path}) as recorder:
            begin = time.time() + 1.5
            wait_until(lambda: time.time() > begin + 2.5, "it has read the counters")
            waited = recorder.rate("node-1", begin, begin + 2)
            with pytest.raises(AssertionError, match="recorded since"):
                recorder.rate("node-1", begin - 60, begin)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert 0.7 < waited < 2.1


def test_idle_time_leaves_out_stolen_time_and_counts_guests_once(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice."""
    monkeypatch.setattr(Path, "read_text", lambda _: "cpu  100 0 50 30 10 0 0 10 60 0\ncpu0 ...\n")
    assert module("measuring").idle_ticks() == (40, 200)


def test_a_disturbed_run_is_repeated_and_kept_apart(script: ModuleType) -> None:
    """The first run without disturbance counts; after the last attempt, or without time, there is none."""
    measuring = module("measuring")
    runs = [measuring.Disturbance(6, 50), measuring.Disturbance(1, 14), measuring.Disturbance(1, 16)]

    def repeat(attempts: int, seconds: float = 0) -> tuple[list[int], list[int]]:
        left, kept = list(enumerate(runs)), []

        def run() -> tuple[list[int], object]:
            number, disturbance = left.pop(0)
            return [number], disturbance

        return measuring.undisturbed(run, attempts, seconds, time.time() + 10, kept.extend), kept

    assert repeat(3) == ([2], [0, 1])
    assert repeat(2) == ([], [0, 1])
    assert repeat(3, seconds=11) == ([], [])


def test_rows_are_added_all_or_none(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed while it writes leaves the file unchanged; else rows are read back, with one header."""
    measuring, file = module("measuring"), tmp_path / "new/rows.csv"
    measuring.append_rows(file, [measuring.Disturbance(1.23456, 50.0)])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            measuring.append_rows(file, [measuring.Disturbance(9, 9)] * 2)
    assert len(measuring.read_rows(file)) == 1
    measuring.append_rows(file, [measuring.Disturbance(2, 60)])
    assert measuring.read_rows(file) == [
        {"lateness": "1.2346", "idle": "50.0"}, {"lateness": "2", "idle": "60"},
    ]  # fmt: skip


# -- statistics of minutes ----------------------------------------------------------------------------------------


def test_rank_correlations_are_spearmans(script: ModuleType) -> None:
    """They equal scipy's, also with ties; a constant column has none."""
    random = np.random.default_rng(0)
    table = np.stack([random.normal(size=40), random.integers(3, size=40), random.normal(size=40)], axis=1)
    ranks = module("ranks")
    np.testing.assert_allclose(ranks.rank_correlations(table), spearmanr(table).statistic)
    constant = ranks.rank_correlations(np.stack([table[:, 0], np.ones(40)], axis=1))
    assert np.isnan(constant[0, 1])


def test_intervals_of_dependent_minutes_hold_in_19_of_20(script: ModuleType) -> None:
    """Minutes of a group are alike: the interval by groups holds the truth, that by single minutes does not."""
    ranks, random = module("ranks"), np.random.default_rng(1)
    groups, minutes = 24, 5
    labels = np.repeat(np.arange(groups), minutes)

    def holds(by: np.ndarray) -> bool:
        table = np.repeat(random.normal(size=(groups, 2)), minutes, axis=0)
        table += 0.3 * random.normal(size=table.shape)
        _, (low, high) = ranks.with_interval(
            lambda rows: ranks.rank_correlations(table[rows])[0, 1], ranks.resampled(by, 200), len(table)
        )
        return bool(low <= 0 <= high)

    assert np.mean([holds(labels) for _ in range(60)]) > 0.85
    assert np.mean([holds(np.arange(len(labels))) for _ in range(60)]) < 0.75


def test_latency_turns_where_it_begins_to_rise(script: ModuleType) -> None:
    """The knee of latency that is constant below 70 percent is found within a few points, in spite of noise."""
    random = np.random.default_rng(2)
    load = random.uniform(20, 100, 200)
    latency = 5 * np.exp(0.08 * np.maximum(load - 70, 0) + 0.2 * random.normal(size=200))
    assert module("ranks").turning_point(load, latency) == pytest.approx(70, abs=4)


def test_the_table_of_minutes_says_which_measure_predicts_best(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Latency that follows throttling has a higher rank correlation with it than with the load, as the table says."""
    hot_minutes, random = module("hot_minutes"), np.random.default_rng(3)
    rows = []
    for seed in range(1, 6):
        for node in range(1, 5):
            for minute in range(5):
                load = random.uniform(30, 100)
                throttled = load + random.normal(0, 25)
                p99 = float(np.exp(throttled / 20))
                rows.append(hot_minutes.NodeMinute(
                    seed, f"node-{node}", minute, load, 13, throttled, 1, 1000, p99 / 5, p99, p99 / 10, 1, 40,
                ))  # fmt: skip
    module("measuring").append_rows(tmp_path / hot_minutes.FILE, rows)
    hot_minutes.minutes_table(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "100 node-minutes, 20 groups: the minutes of a node in a run"
    assert lines[1] == "kubelet and containerd used 13.0 % of a node"
    assert [line for line in lines if line.startswith("| throttled | 1.00 (1.00 to 1.00)")]
    assert not [line for line in lines if line.startswith("| queue_wait")]  # constant here
    differs = [line for line in lines if line.startswith("| throttled |")][1]
    assert "(-" not in differs
    assert any(line.startswith("p99 turns at a load of") for line in lines)
    hot_minutes.plot(Namespace(folder=tmp_path, image=tmp_path / "plot.png"))
    assert (tmp_path / "plot.png").stat().st_size > 10_000


# -- the contrast -------------------------------------------------------------------------------------------------


def test_each_block_of_a_unit_is_equally_often_at_each_place(script: ModuleType) -> None:
    """The order is the same for the same unit, and random over units."""
    orders = [script.order(unit) for unit in range(600)]
    assert orders[5] == script.order(5)
    assert all(sorted(each) == ["active", "stock", "stock again"] for each in orders)
    firsts = [sum(each[place] == "active" for each in orders) for place in range(3)]
    assert all(160 <= count <= 240 for count in firsts)


class LocalCluster:
    """Stand-in for nodes and all that runs on them: its pods run at once, and the services are a server here."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.api, self.nodes, self.placed = self, dict.fromkeys(["node-1", "node-2", "node-3", "node-4"]), 0

    def create(self, pod: dict[str, Any]) -> None:
        self.pods[pod["metadata"]["name"]] = pod
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
        if "nodeName" not in pod["spec"]:
            self.placed += 1
            pod["spec"]["nodeName"] = "node-2"

    def items(self, _: str, labelSelector: str = "") -> list[dict[str, Any]]:  # noqa: N803  the API's name
        return [each for each in self.pods.values() if not labelSelector or each["metadata"]["labels"]]

    def request(self, *_: object, **__: object) -> None:
        self.pods = {name: each for name, each in self.pods.items() if not each["metadata"]["labels"]}

    def metrics(self) -> dict[str, float]:
        return {"trimaran_extender_acting_percent": 100.0 * ("active" in self.settings.read_text())}

    def outcome(self, _: str) -> float:
        return self.placed * self.metrics()["trimaran_extender_acting_percent"] / 100

    def cores(self, name: str, begin: float, end: float) -> float:
        assert end - begin == pytest.approx(10)
        return {"node-1": 0.19, "node-2": 0.21, "node-3": 0.1, "node-4": 0.1}[name]

    def throttled(self, *_: object) -> float:
        return 0.25


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.usefixtures("built")
def test_a_block_has_its_load_by_the_seed_and_leaves_the_jobs_only(
    script: ModuleType, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a unit differ by the extender's mode only, not by pods and requests; the pods end with their block."""
    cluster = LocalCluster()
    cluster.settings = tmp_path / "extender.toml"
    cluster.settings.write_text("")
    monkeypatch.setattr(script, "url", lambda _: server)
    monkeypatch.setattr(script, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(script, "_REFRESH_SECONDS", -1)
    monkeypatch.setattr(script, "load_of_nodes", lambda _: (cluster.nodes, time.time() + 60, 0))
    blocks = script.Blocks(cluster, cluster, None, cluster, cluster.settings)
    blocks.start_jobs()
    sent, created = [], []
    generator = script.Generator
    monkeypatch.setattr(
        script, "Generator", lambda phases, seed: sent.append((phases, seed)) or generator(phases, seed)
    )
    create = script.create_pod
    monkeypatch.setattr(script, "create_pod", lambda *words: created.append(words[1:]) or create(*words))
    found = {name: blocks.run(7, name, 0, 20)[0][0] for name in (script.ACTIVE, script.STOCK)}
    assert sent[0] == sent[1]
    assert created[:8] == created[8:]
    assert sorted(cluster.pods) == [f"job-node-{number}" for number in range(1, 5)]
    assert [each.scored for each in found.values()] == [8, 0]
    for block in found.values():
        assert block.pods == "0 8 0 0"
        assert block.hot_seconds == 20
        assert (block.throttled, block.load) == (25, pytest.approx(60))
        assert 0 < block.p50 <= block.p99


@pytest.mark.parametrize("pairs", [6, 9, 14])
def test_the_smallest_effect_is_found_in_80_percent(script: ModuleType, pairs: int) -> None:
    """Of experiments with this effect so many have an interval without 0; of those without effect at most 5 percent."""
    differences, random = module("differences"), np.random.default_rng(4)
    effect = differences.smallest_effect(pairs)
    found = {0.0: 0, effect: 0}
    for shift in found:
        for _ in range(300):
            result = differences.difference(random.normal(shift, 1, pairs), np.zeros(pairs))
            found[shift] += not result.low <= 0 <= result.high
    assert 0.7 < found[effect] / 300 < 0.9
    assert found[0.0] / 300 < 0.08


def test_few_pairs_have_no_interval(script: ModuleType) -> None:
    """Five pairs have a mean, and neither an interval nor an effect that they would find."""
    differences = module("differences")
    assert str(differences.difference(np.full(5, 3.0), np.ones(5))) == "+2 (no interval)"
    assert differences.smallest_effect(5) is None


def test_the_table_of_blocks_compares_within_units(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Units differ by far more than the effect, which is found all the same; the stock blocks do not differ."""
    random, rows = np.random.default_rng(5), []
    for unit in range(8):
        level = 100.0 * unit
        for place, name in enumerate(script.order(unit)):
            p99 = level + random.normal() - (20 if name == script.ACTIVE else 0)
            rows.append(script.Block(unit, name, place, 8, "2 2 2 2", 5, p99, 3, 30, 120, 60, 1, 40))
    module("measuring").append_rows(tmp_path / script.FILE, rows)
    script.contrast_table(tmp_path)
    line = next(each for each in capsys.readouterr().out.splitlines() if each.startswith("| p99"))
    _, _, stock, active, effect, chance, smallest, _ = (cell.strip() for cell in line.split("|"))
    assert float(stock) - float(active) == pytest.approx(20, abs=2)
    low, high = (float(word) for word in effect.partition("(")[2].strip(")").split(" to "))
    assert -23 < low < -20 < -17 < high + 2 < 0
    low, high = (float(word) for word in chance.partition("(")[2].strip(")").split(" to "))
    assert low < 0 < high
    assert 0.5 < float(smallest) < 4
    script.plan(Namespace(folder=tmp_path, units=8))
    assert f"p99, ms: {smallest}" in capsys.readouterr().out


# -- moves --------------------------------------------------------------------------------------------------------


def test_only_requests_around_a_move_count_for_its_users(script: ModuleType) -> None:
    """From the eviction until ten seconds after the replacement is Ready; the minute before counts apart."""
    moves = module("moves")

    class Loads:
        def cores(self, of: str, begin: float, end: float) -> float:
            assert end - begin == 30
            return {("a", 970): 0.25, ("a", 1005): 0.2, ("b", 970): 0.05, ("b", 1005): 0.1}[of, begin]

    record = moves.MoveRecord(
        "uid", "default", "web-1", "Deployment", "web", "", "", "a", "c", evicted_at=1000, ready_at=1005, landed_on="b"
    )
    # Time, latency and status: one slow before, one failed and one slow around the move, and a slow one long after.
    rows = [
        (930, 80, 200),
        (950, 80, 200),
        (990, 5, 200),
        (1001, 5, 0),
        (1002, 5, 200),
        (1014, 70, 200),
        (1016, 70, 200),
    ]
    requests = np.array([[0, at, 0, took, status] for at, took, status in rows], np.float64)
    move = moves._move(7, record, requests, Loads())
    assert (move.requests, move.failed, move.slow, move.slow_before, move.seconds) == (3, 1, 2, 50, 5)
    assert (move.source_before, move.source_after, move.target_before, move.target_after) == (100, 80, 20, 40)
    assert (move.seed, move.landed_on) == (7, "b")
