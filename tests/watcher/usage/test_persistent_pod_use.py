"""Live keeping of the last day of each pod's use: rounds in, table out, stored in blocks of an hour."""

import math
import random
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from support.killed import integrity, run_and_kill
from support.pod_rounds import BEGIN, ROUND, a_pod, pod_round, use_of_pods

from watcher.pod_use_table import STEPS, PodUseTable
from watcher.store import Store
from watcher.usage.history.persistent_pod_use import PersistentPodUse
from watcher.usage.history.pod_day import PodUseDay
from watcher.usage.sources.pods import PodKey
from watcher.usage.store import UsageTables
from watcher.wire import WireError
from watcher.wire.pod_use import decode_pod_use, encode_pod_use

NODES = ("n1", "n2")
COLUMNS = ("timestamp", "uids", "names", "nodes", "workloads", "revisions", "since", "last_seen", "cpu_cores",
           "memory_gib", "courses", "waiting")  # fmt: skip


def keeping(store, courses=None):
    return PersistentPodUse(store, "x", lambda: courses or {})


def same(one, other):
    """Return the names of the columns in which two tables differ, compared by bytes; rows in the order of names."""
    orders = [np.argsort(table.names, kind="stable") for table in (one, other)]

    def column(table, name, order):
        value = getattr(table, name)
        if name == "timestamp":
            return value
        if name == "courses":
            return value[:, order].tobytes()
        return value[order].tobytes() if isinstance(value, np.ndarray) else [value[row] for row in order]

    return [name for name in COLUMNS if column(one, name, orders[0]) != column(other, name, orders[1])]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def test_a_round_is_served_by_node():
    """The table has the pods on the named nodes with the sums of their containers, and pods named by uid."""
    use = use_of_pods(
        BEGIN, ("web", "main", 0.5, 2), ("web", "proxy", 0.25, 1), ("db", "main", 1, 4), ("gone", "main", 9, 9)
    )
    pods = {PodKey("shop", "web"): a_pod("web", "n1"), PodKey("shop", "db"): a_pod("db", "n2")}
    kept = keeping(Store(None), {a_pod("web", "n1").template.workload: np.full((2, 24), 2.0**30)})
    kept.observe(use, pods)
    table = kept.table(["n1", "unknown"])
    assert (table.names, table.nodes, table.uids) == (["shop/web"], ["n1"], ["uid-web"])
    assert table.timestamp == BEGIN
    assert (table.cpu_cores[0, -1], table.memory_gib[0, -1], table.since[0]) == (0.75, 3.0, BEGIN - 300)
    assert np.isnan(table.cpu_cores[0, :-1]).all()
    assert (table.courses[1] == 1.0).all()
    assert kept.table([], ["uid-db", "uid-nobody"]).names == ["shop/db"]


def test_an_unknown_container_makes_the_pod_unknown():
    """A pod with a container that was measured only once has no CPU yet, and not that of its other containers."""
    kept = keeping(Store(None))
    kept.observe(
        use_of_pods(BEGIN, ("web", "main", math.nan, 2), ("web", "proxy", 0.25, 1)),
        {PodKey("shop", "web"): a_pod("web", "n1")},
    )
    table = kept.table(["n1"])
    assert np.isnan(table.cpu_cores).all()
    assert table.memory_gib[0, -1] == 3.0


def test_waiting_for_the_cpu_of_the_node_is_known_for_an_hour():
    """The highest share of a round of the last hour counts, without pods that a limit of their own throttles."""
    pods = {PodKey("shop", name): a_pod(name, "n1") for name in ("free", "limited", "calm")}

    def after(*rounds):
        kept = keeping(Store(None))
        for number, (throttled, waiting) in enumerate(rounds):
            use = use_of_pods(
                BEGIN + ROUND * number, ("free", "main", 1, 1), ("free", "proxy", 1, 1), ("limited", "main", 1, 1),
                ("limited", "proxy", 1, 1), ("calm", "main", 1, 1),
            )  # fmt: skip
            strain = np.array([[0.0, np.nan, throttled, np.nan, np.nan], [waiting, 0.2, waiting, waiting, np.nan]])
            kept.observe(replace(use, strain=strain), pods)
        table = kept.table(["n1"])
        assert same(decode_pod_use(encode_pod_use(table)), replace(table, waiting=table.waiting.astype(np.float16)
                                                                   .astype(np.float64))) == []  # fmt: skip
        return dict(zip(table.names, np.nan_to_num(table.waiting, nan=-1).round(3).tolist(), strict=True))

    assert after((0.5, 0.4)) == {"shop/free": 0.4, "shop/limited": 0.0, "shop/calm": -1}
    assert after((0.04, 0.4), (0.04, 0.1))["shop/limited"] == 0.4
    assert after((0.04, 0.4), *[(0.04, 0.3)] * 11)["shop/free"] == 0.4
    assert after((0.04, 0.4), *[(0.04, 0.3)] * 12)["shop/free"] == 0.3
    kept = keeping(Store(None))
    kept.observe(use_of_pods(BEGIN, ("free", "main", 1, 1)), pods)
    assert np.isnan(kept.table(["n1"]).waiting).all()


def test_a_watcher_of_an_older_version_knows_no_waiting():
    """Without the column nothing is known of it; joined tables know what their parts do."""
    import orjson

    kept = keeping(Store(None))
    kept.observe(*pod_round(0))
    table = kept.table(NODES)
    document = orjson.loads(encode_pod_use(table))
    del document["waiting"]
    old = decode_pod_use(orjson.dumps(document))
    assert old.waiting is None
    assert len(PodUseTable.joined([old, table]).waiting) == 2 * len(table)


def test_rounds_of_a_minute_are_averaged():
    """With an interval of a minute a step has the mean of its five rounds, and not the last one."""
    day, pods = PodUseDay(), {PodKey("shop", "web"): a_pod("web", "n1")}
    for minute, cores in enumerate((1, 2, 3, 4, 10)):
        day.observe(use_of_pods(BEGIN + 60 * (minute + 1), ("web", "main", cores, 1), seconds=60), pods)
    assert day.table(["n1"], [], {}).cpu_cores[0, -1] == 4.0


def test_a_round_of_an_hour_fills_its_steps():
    """With an interval of an hour each round gives its mean to all of its twelve steps."""
    day, pods = PodUseDay(), {PodKey("shop", "web"): a_pod("web", "n1")}
    for hour in range(2):
        day.observe(use_of_pods(BEGIN + 3600 * (hour + 1), ("web", "main", hour + 1, 1), seconds=3600), pods)
    assert day.table(["n1"], [], {}).cpu_cores[0, -24:].tolist() == [1.0] * 12 + [2.0] * 12


def test_a_gone_pod_keeps_its_use_for_a_day(path):
    """A pod that ended is found by its uid for a day, not by its node, and leaves the memory and the store then."""
    store = Store(path)
    kept, pods = keeping(store), {PodKey("shop", name): a_pod(name, "n1") for name in ("old", "new")}
    kept.observe(use_of_pods(BEGIN, ("old", "main", 1, 1), ("new", "main", 1, 1)), pods)
    for step in (1, STEPS - 1, STEPS):
        kept.observe(use_of_pods(BEGIN + step * ROUND, ("new", "main", 2, 1)), pods)
        assert kept.table(["n1"]).uids == ["uid-new"]
        assert (kept.table([], ["uid-old"]).uids == ["uid-old"]) is (step < STEPS)
    assert [row[1] for row in UsageTables(store, "x").load_pods().pods] == ["uid-new"]
    assert len(UsageTables(store, "x").load_pods().blocks) == 2  # the hour of the first round is a day old
    store.close()


def test_a_pod_of_the_same_name_is_another_pod():
    """A pod of a StatefulSet that comes back under its name has a past of its own, by its uid."""
    kept = keeping(Store(None))
    for step, uid in enumerate(("uid-1", "uid-2")):
        pods = {PodKey("shop", "db-0"): a_pod("db-0", "n1")._replace(uid=uid)}
        kept.observe(use_of_pods(BEGIN + step * ROUND, ("db-0", "main", step + 1, 1)), pods)
    table = kept.table(["n1"], ["uid-1"])
    assert list(zip(table.uids, table.last_seen - BEGIN, strict=True)) == [("uid-2", 300.0), ("uid-1", 0.0)]


def test_pods_beyond_the_limit_are_left_out(caplog):
    """With more pods than the limit the first ones stay, with one warning, until one has been gone for a day."""
    day, pods = PodUseDay(max_pods=2), {PodKey("shop", name): a_pod(name, "n1") for name in "abc"}
    for step in range(2):
        day.observe(use_of_pods(BEGIN + step * ROUND, *[(name, "main", 1, 1) for name in "abc"]), pods)
    assert day.table(["n1"], [], {}).names == ["shop/a", "shop/b"]
    assert caplog.text.count("the past use of further pods is not kept") == 1
    for step in (STEPS + 1, STEPS + 2):
        day.observe(use_of_pods(BEGIN + step * ROUND, ("b", "main", 1, 1), ("c", "main", 1, 1)), pods)
    assert day.table(["n1"], [], {}).names == ["shop/b", "shop/c"]


def test_a_clock_that_is_set_back_begins_again(path):
    """Rounds of the future are dropped, also in the store, when the clock is an hour earlier; a small jump waits."""
    store = Store(path)
    kept, pods = keeping(store), {PodKey("shop", "web"): a_pod("web", "n1")}
    for at in (BEGIN + 10 * 86400, BEGIN + 10 * 86400 - 600, BEGIN):
        kept.observe(use_of_pods(at, ("web", "main", 1, 1)), pods)
    assert kept.table(["n1"]).timestamp == BEGIN
    assert list(UsageTables(store, "x").load_pods().blocks) == [BEGIN // 3600 - 1]
    assert same(kept.table(NODES), keeping(store).table(NODES)) == []
    store.close()


def test_another_origin_has_pods_of_its_own(path):
    """A source that reads another cluster begins with no pods; those of the cluster before leave after a day."""
    for origin, step, known in (("east", 0, 0), ("west", 1, 0), ("east", 2, 1), ("west", STEPS + 24, 1)):
        store = Store(path, origins={"x": origin})
        kept, pods = keeping(store), {PodKey("shop", origin): a_pod(origin, "n1")}
        assert len(kept.table(["n1"])) == known
        kept.observe(use_of_pods(BEGIN + step * ROUND, (origin, "main", 1, 1)), pods)
        store.close()
    store = Store(path, origins={"x": "east"})
    assert (UsageTables(store, "x").load_pods().pods, UsageTables(store, "x").load_pods().blocks) == ([], {})
    store.close()


@pytest.mark.parametrize("seconds", [60, 300, 900])
def test_a_restarted_watcher_continues(path, seconds):
    """After each round a restarted watcher has the same table, bit for bit, with pods that come and go for 30 hours."""
    store, running = Store(path), keeping(Store(None))
    for number in range(0, 30 * 12, 15):
        kept = keeping(store)
        for one in (kept, running):
            one.observe(*pod_round(number, seconds=seconds))
        uids = [f"uid-{pod}" for pod in range(60)]
        assert same(kept.table(NODES, uids), running.table(NODES, uids)) == []
    assert len(kept.table(NODES, uids)) > 20
    assert len(UsageTables(store, "x").load_pods().blocks) <= 25
    store.close()


def test_damaged_blocks_are_left_out(path, caplog):
    """A block that cannot be read costs its hour, with a warning, and the others are restored."""
    store = Store(path)
    kept = keeping(store)
    for number in range(24):
        kept.observe(*pod_round(number))
    before = kept.table(NODES)
    store.close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("update pod_use_blocks set body = x'00' where hour = (select min(hour) from pod_use_blocks)")
    connection.close()
    store = Store(path)
    after = keeping(store).table(NODES)
    assert caplog.text.count("an hour of the stored use of pods is unreadable") == 1
    order = [list(after.names).index(name) for name in before.names]
    np.testing.assert_array_equal(after.cpu_cores[order, -12:], before.cpu_cores[:, -12:])
    store.close()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.killed import integrity, run_and_kill
from support.pod_rounds import pod_round
from watcher.store import Store
from watcher.usage.history.persistent_pod_use import PersistentPodUse

kept = PersistentPodUse(Store(Path({path!r})), "x", dict)
for number in range({first}, 10**5):
    kept.observe(*pod_round(number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_writes(path, times):
    """After kill -9 the use is that of whole rounds, at least all committed ones, and equal to an unbroken run."""
    random_, unbroken, next_round = random.Random(36), keeping(Store(None)), 0
    for _ in range(times):
        committed = run_and_kill(WRITER, path, random_, lines=15, first=next_round)
        assert integrity(path) == "ok"
        store = Store(path)
        table = keeping(store).table(NODES)
        last = round((table.timestamp - BEGIN) / ROUND)
        assert last >= committed
        for number in range(next_round, last + 1):
            unbroken.observe(*pod_round(number))
        assert same(table, unbroken.table(NODES)) == []
        next_round = last + 1
        store.close()
    assert store.set_aside is None


def test_the_wire_keeps_every_bit():
    """A table that is encoded and decoded is the same, with NaN; an empty one, too."""
    kept = keeping(Store(None), {a_pod("0", "n1").template.workload: np.arange(48.0).reshape(2, 24)})
    for number in range(20):
        kept.observe(*pod_round(number))
    for nodes in (NODES, ()):
        table = kept.table(nodes)
        assert same(decode_pod_use(encode_pod_use(table)), table) == []


@pytest.mark.parametrize(
    "change",
    [{"uid": []}, {"cpu_cores": "AAA="}, {"workload": [7]}, {"since": []}, {"cpu_cores": "!"}, {"timestamp": "x"}],
)
def test_a_wrong_body_is_refused(change):
    """A body with missing, short or impossible columns is not taken for a table."""
    import orjson

    kept = keeping(Store(None))
    kept.observe(use_of_pods(BEGIN, ("web", "main", 0.5, 2)), {PodKey("shop", "web"): a_pod("web", "n1")})
    document = orjson.loads(encode_pod_use(kept.table(["n1"])))
    with pytest.raises(WireError):
        decode_pod_use(orjson.dumps({**document, **change}))


def test_the_buffers_of_a_hundred_thousand_pods():
    """A hundred thousand pods take at most 82 MB of buffers."""
    day = PodUseDay()
    day._history._rows(range(100_000))  # the rows alone, without names
    assert day.size <= 82e6
