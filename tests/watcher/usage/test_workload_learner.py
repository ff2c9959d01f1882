"""Learner of what workloads use: means, deviations, histograms, revisions, bad input, limits and saved states."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kubernetes.workloads import Workload
from watcher.usage.array_bytes import pack, unpack
from watcher.usage.learn.cpu_histograms import BIN_ENDS, BINS, PackedDay, bins_of, percentiles
from watcher.usage.learn.learner import ROW, WorkloadLearner
from watcher.usage.learn.learner_state import PRESENT, UnreadableStateError, load_state, save_state
from watcher.usage.learn.use_round import ContainerFacts, UseRound
from watcher.usage.recommend.recommendation import recommend
from watcher.usage.sources.pods import DAYS
from watcher.workload_table import ContainerKey

DAY, ROUND, GIB = 86400, 300.0, 2.0**30
NOON = 20_000 * DAY + DAY / 2
WEB, JOB = Workload("default", "Deployment", "web"), Workload("default", "CronJob", "nightly")
MAIN, PROXY, RUN = ContainerKey(WEB, "main"), ContainerKey(WEB, "proxy"), ContainerKey(JOB, "main")


def use_round(time, *measured, seconds=ROUND):
    """Return a round of measurements: container, pods, cores, bytes, and optionally cores requested and revision."""
    rows = [(*each, 1.0, 0)[:6] if len(each) == 4 else (*each, 0)[:6] for each in measured]
    keys = list(dict.fromkeys(row[0] for row in rows))
    _, pods, cores, memory, requests, revision = zip(*rows, strict=True)
    return UseRound(
        time=time,
        seconds=seconds,
        keys=keys,
        container=np.array([keys.index(row[0]) for row in rows]),
        revision=np.array(revision, np.int64),
        pods=np.array(pods, np.float64),
        measured_seconds=np.full(len(rows), seconds),
        use=np.array([cores, memory], np.float64),
        requests=np.array([requests, [GIB] * len(rows)], np.float64),
    )


def learner_of(*rounds):
    learner = WorkloadLearner()
    for each in rounds:
        learner.observe(each)
    return learner


def use_of(learner, workload=WEB):
    table = learner.table()
    return table.use[:, table.workloads.index(workload)].tolist()


def test_use_and_deviation_follow_the_formulas():
    """After some rounds, use is shrunk to the cluster's level for an hour, and the deviation has both of its parts."""
    cores = [0.2, 0.4, 0.9, 0.4]
    learner = learner_of(*(use_round(NOON + ROUND * n, (MAIN, 2, each, GIB / 2)) for n, each in enumerate(cores)))
    weights = [5 * math.exp(-5 / 1440 * age) for age in (3, 2, 1, 0)]
    level = np.mean(cores)  # of the last 20 minutes, with 1 core requested
    mean = (np.dot(weights, cores) + 60 * level) / (sum(weights) + 60)
    seen = np.dot(weights, cores) / sum(weights)
    over_time = np.dot(weights, np.square(cores)) / sum(weights) - seen**2
    table = learner.table()
    assert table.use[0, 0] == pytest.approx(mean, rel=1e-12)
    assert table.deviations[0, 0] == pytest.approx(math.sqrt(over_time + (0.8 * mean) ** 2 / (1 + 20 / 120)), rel=1e-12)
    assert table.deviations[1, 0] == pytest.approx(0.3 * GIB / 2 / math.sqrt(1 + 20 / 120), rel=1e-9)
    assert table.level == pytest.approx([level, 0.5], rel=1e-12)
    assert table.level_deviation == pytest.approx([0.8 * level, 0.15], rel=1e-12)
    assert (table.pods[0], table.pod_minutes[0], table.first_seen[0]) == (2, 40, NOON)


def test_a_round_is_one_value_however_many_pods():
    """The value of a round is the mean over all pods, weighted by the time that each ran."""
    half = use_round(NOON, (MAIN, 1, 0.2, GIB), (MAIN, 3, 0.6, GIB))
    learner = learner_of(half, use_round(NOON + ROUND, (MAIN, 1, 0.5, GIB)))
    assert learner.rows["sums"][0, 0] == pytest.approx(5 * 0.5 * math.exp(-5 / 1440) + 5 * 0.5)
    assert learner.table().pods.tolist() == [1.0]


def test_the_deviation_of_memory_is_at_least_the_distance_to_its_peak():
    """A short peak is enough to run out of memory, so the variance over time is not."""
    learner = learner_of(*(use_round(NOON + ROUND * n, (MAIN, 2, 0.5, (1 + n // 3) * GIB)) for n in range(4)))
    (row,), table = learner.rows, learner.table()
    distance = 2 * GIB - row["sums"][1] / row["weights"][1]
    expected = math.sqrt(distance**2 + (0.3 * table.use[1, 0]) ** 2 / (1 + 20 / 120))
    assert table.deviations[1, 0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("measured", "level"),
    [
        ([(MAIN, 1, 0.01, GIB / 100)], [0.05, 0.05]),
        ([(MAIN, 1, 10.0, 10 * GIB)], [4.0, 4.0]),
        ([(MAIN, 1, 0.5, GIB / 2, 0.0)], [1.0, 0.5]),  # no request for CPU
        ([(MAIN, 2, 0.5, GIB), (RUN, 1, 0.2, math.nan), (PROXY, 1, math.nan, GIB / 2)], [1.2 / 3, 2.5 / 3]),
    ],
)
def test_the_level_is_bounded_and_leaves_out_what_is_unknown(measured, level):
    """It is 0.05 to 4; a container counts with its pods, for the resources whose use and request are known."""
    learner = learner_of(*(use_round(NOON + ROUND * n, *measured) for n in range(2)))
    assert learner.cluster_level().tolist() == pytest.approx(level)


def test_after_a_gap_the_level_is_that_of_containers_with_a_past():
    """Until ten minutes are known, containers count that were observed for an hour, by their pods."""
    cores = [1.0] * 11 + [0.5]
    learner = learner_of(*(use_round(NOON + ROUND * n, (MAIN, 2, 0.4, GIB / 2, each)) for n, each in enumerate(cores)))
    learner.observe(use_round(NOON + DAY, (RUN, 1, 0.1, GIB, 2.0), (PROXY, 1, 0.1, GIB, 0.0)))
    assert learner.cluster_level().tolist() == pytest.approx([0.8, 0.5])
    assert use_of(learner, JOB)[0] == pytest.approx((5 * 0.1 + 60 * 0.4 * 2) / 65)  # the level of the first requests


def test_a_request_halved_in_mid_run_changes_no_expected_use():
    """Use is kept in cores: after a change of the requests the same measurements give the same expected use."""
    rounds = [use_round(NOON + ROUND * n, (MAIN, 2, 0.3, GIB / 4, 1.0), (RUN, 1, 0.1, GIB)) for n in range(12)]
    unchanged, halved = learner_of(*rounds), learner_of(*rounds)
    for n in range(12, 24):
        unchanged.observe(use_round(NOON + ROUND * n, (MAIN, 2, 0.3, GIB / 4, 1.0), (RUN, 1, 0.1, GIB)))
        halved.observe(use_round(NOON + ROUND * n, (MAIN, 2, 0.3, GIB / 4, 0.5), (RUN, 1, 0.1, GIB)))
        np.testing.assert_allclose(halved.table().use, unchanged.table().use, rtol=1e-12)
    assert halved.containers().requests[0].tolist() == [0.5, 1.0]
    assert halved.table().level[0] > unchanged.table().level[0]


def test_a_new_revision_starts_with_the_use_of_the_one_before():
    """A revision begins when most pods have it: the use stays, older data counts two hours at most, and is unsure."""
    learner = learner_of(*(use_round(NOON + ROUND * n, (MAIN, 4, 0.4, GIB, 1.0, 11)) for n in range(288)))
    before, sure = use_of(learner), learner.table().deviations[0, 0]
    for pods, other in ((1, 22), (2, 0), (2, 22)):  # half of the pods, or unknown ones, are no new revision
        learner.observe(use_round(NOON + DAY, (MAIN, 4 - pods, 0.4, GIB, 1.0, 11), (MAIN, pods, 0.4, GIB, 1.0, other)))
        assert learner.containers().revision_since.tolist() == [NOON]
    learner.observe(use_round(NOON + DAY + ROUND, (MAIN, 1, 0.4, GIB, 1.0, 11), (MAIN, 3, 0.4, GIB, 1.0, 22)))
    assert learner.containers().revision_since.tolist() == [NOON + DAY + ROUND]
    assert use_of(learner) == pytest.approx(before, rel=1e-3)
    assert learner.table().deviations[0, 0] > 2 * sure
    for n in range(24):  # two hours at twice the use
        learner.observe(use_round(NOON + DAY + ROUND * (2 + n), (MAIN, 4, 0.8, GIB, 1.0, 22)))
    assert use_of(learner)[0] == pytest.approx(0.6, rel=0.02)


def test_an_hour_of_the_day_has_a_memory_of_seven_days():
    """A round belongs to the hour of its middle; earlier rounds of the hour weigh less, by the minutes of the hour."""
    rounds = [use_round(NOON + ROUND * n, (MAIN, 2, cores, GIB)) for n, cores in enumerate([0.9, 0.2, 0.6])]
    row, left = learner_of(*rounds).rows[0], math.exp(-5 / 420)
    assert row["hour_weights"][11:14, 0].tolist() == pytest.approx([5, 5 * left + 5, 0], rel=1e-6)
    assert row["hour_sums"][11:14, 0].tolist() == pytest.approx([4.5, left + 3, 0], rel=1e-6)


def test_a_pod_is_the_sum_of_its_containers():
    """Use and deviation of a pod are those of its containers, without a container that is gone for 15 minutes."""
    both = [use_round(NOON + ROUND * n, (MAIN, 2, 0.4, GIB), (PROXY, 2, 0.1, GIB / 8)) for n in range(12)]
    learner = learner_of(*both)
    containers = learner.containers()
    assert use_of(learner) == containers.use.sum(axis=1).tolist()
    assert learner.table().deviations[:, 0].tolist() == containers.deviations.sum(axis=1).tolist()
    for n in range(12, 16):
        assert use_of(learner) == learner.containers().use.sum(axis=1).tolist()
        learner.observe(use_round(NOON + ROUND * n, (MAIN, 2, 0.4, GIB)))
    assert use_of(learner) == learner.containers().use[:, 0].tolist()


def test_the_course_of_the_day():
    """Each hour of the day has a mean of its own, over several days; hours without measurements have none."""
    learner = WorkloadLearner()
    for day in range(3):
        for n in range(12 * 12):
            cores = 0.8 if n >= 72 else 0.2
            learner.observe(use_round(20_000 * DAY + DAY * day + ROUND * (n + 1), (MAIN, 1, cores, GIB)))
    by_hour = learner.containers().by_hour[0, 0]
    assert by_hour[:12].tolist() == pytest.approx([0.2] * 6 + [0.8] * 6, rel=1e-6)
    assert np.isnan(by_hour[12:]).all()


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [math.nan, -1.0, math.inf, -math.inf, 1e18])
def test_impossible_use_is_left_out(cores):
    """A counter that was reset, NaN and absurd values change nothing but leave the container's memory known."""
    good = [use_round(NOON + ROUND * n, (MAIN, 2, 0.4, GIB)) for n in range(4)]
    learner, clean = learner_of(*good), learner_of(*good)
    learner.observe(use_round(NOON + 4 * ROUND, (MAIN, 1, cores, GIB), (MAIN, 1, 0.4, GIB)))
    clean.observe(use_round(NOON + 4 * ROUND, (MAIN, 1, math.nan, GIB), (MAIN, 1, 0.4, GIB)))
    assert learner.rows.tobytes() == clean.rows.tobytes()
    learner.observe(use_round(NOON + 5 * ROUND, (MAIN, 1, cores, cores)))
    assert learner.rows.tobytes() == clean.rows.tobytes()
    assert np.isfinite(learner.table().use).all()


@pytest.mark.parametrize("wrong", [1e18, -1.0, math.nan, 0.0])
def test_impossible_requests_count_as_none(wrong):
    """A container without a usable request has its mean as expected use, and does not change the cluster's level."""
    rounds = [use_round(NOON + ROUND * n, (MAIN, 1, 0.4, GIB, wrong), (RUN, 1, 0.25, GIB)) for n in range(4)]
    learner = learner_of(*rounds)
    assert use_of(learner)[0] == pytest.approx(0.4, rel=1e-12)
    assert learner.table().level[0] == pytest.approx(0.25, rel=1e-12)


def test_a_resource_that_is_known_alone_is_learned():
    """A container counts if either amount is known; one without any in a round is not added by it."""
    rows = (MAIN, 1, math.nan, GIB), (PROXY, 1, math.nan, -1.0), (RUN, 1, 0.2, math.nan)
    learner = learner_of(use_round(NOON, *rows))
    assert learner.keys == [MAIN, RUN]
    assert learner.rows["minutes"].tolist() == learner.rows["weights"].tolist() == [[0, 5], [5, 0]]
    assert learner.rows["sums"].tolist() == [[0, 5 * GIB], [1, 0]]


@pytest.mark.parametrize(
    "changes",
    [{"seconds": 0.0}, {"seconds": -300.0}, {"measured_seconds": np.zeros(1)}, {"pods": np.array([math.inf])},
     {"use": np.full((2, 1), math.nan)}],
)  # fmt: skip
def test_a_round_without_known_use_is_not_observed(changes):
    """A round of no time, or without a pod that ran for a known time, changes nothing."""
    learner = learner_of(only_main(1))
    before = learner.rows.tobytes()
    assert learner.observe(only_main(2, **changes)) is False
    assert (learner.time, learner.rows.tobytes()) == (NOON + ROUND, before)


def test_measurements_without_a_container_are_left_out():
    """The number -1 stands for a container without a workload, which is not learned."""
    measured = use_round(NOON, (MAIN, 1, 0.4, GIB), (RUN, 1, 0.25, GIB))
    measured.container[:] = [-1, 1]
    assert learner_of(measured).keys == [RUN]
    measured.container[:] = -1
    assert learner_of(measured).table().workloads == ()


def test_a_workload_of_20000_pods():
    """A workload of 20,000 pods has the mean of its pods, and every pod in its histogram."""
    dice = np.random.default_rng(1)
    cores = dice.uniform(0.1, 0.5, 20_000)
    learner = learner_of(*(use_round(NOON + ROUND * n, *((MAIN, 1, each, GIB) for each in cores)) for n in range(2)))
    assert learner.rows["sums"][0, 0] / learner.rows["weights"][0, 0] == pytest.approx(cores.mean(), rel=1e-9)
    table = learner.containers((0.5, 0.99))
    assert table.cpu_percentiles[:, 0] == pytest.approx(np.quantile(cores, [0.5, 0.99]), rel=0.06)
    assert (table.pods[0], table.pod_minutes[0]) == (20_000, 200_000)


def test_a_wrong_clock_keeps_the_other_days():
    """A clock that jumps ten years ahead and back ends two days early, and the other days keep their histograms."""
    learner = WorkloadLearner()
    for day in range(5):
        learner.observe(use_round(NOON + DAY * day, (MAIN, 1, 0.4, GIB)))
    learner.observe(use_round(NOON + 3650 * DAY, (MAIN, 1, 0.4, GIB)))
    learner.observe(use_round(NOON + 4 * DAY + ROUND, (MAIN, 1, 0.4, GIB)))
    learner.observe(use_round(NOON + 4 * DAY - ROUND, (MAIN, 1, 0.4, GIB)))
    assert [day.counts.sum() for _, day in learner.past] == [5.0] * 6
    assert use_of(learner)[0] == pytest.approx(0.4, rel=0.1)


@pytest.mark.parametrize("ahead", [DAY, 9 * DAY, DAY // 2])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_two_clocks_in_turn_do_not_push_the_days_out(ahead: int, *, is_restarted: bool) -> None:
    """Two sources whose clocks differ end three days more than one does, also if the learner is restarted."""
    learner = learner_of(*(use_round(NOON + DAY * day, (MAIN, 1, 0.4, GIB)) for day in range(10)))
    for number in range(60):
        at = NOON + 9 * DAY + ROUND * (number + 1) + ahead * (number % 2)
        learner.observe(use_round(at, (MAIN, 1, 0.4, GIB)))
        if is_restarted:
            learner = load_state({name: part for name, part in save_state(learner, ()).items() if part}, 50)
    assert len(learner.past) <= 9 + 3
    assert [day.counts.sum() for _, day in learner.past][-9:] == [5.0] * 9


def test_a_clock_that_is_set_back_again_counts_after_a_day() -> None:
    """A source that is right, after one that is ahead was used for a time twice, is learned from again."""
    learner = learner_of(*(use_round(NOON + DAY * day, (MAIN, 1, 0.4, GIB)) for day in range(3)))
    for at in (NOON + 30 * DAY, NOON + 2 * DAY + ROUND, NOON + 30 * DAY + ROUND):
        learner.observe(use_round(at, (MAIN, 1, 0.4, GIB)))
    for number in range(288):
        learner.observe(use_round(NOON + 3 * DAY + ROUND * number, (MAIN, 1, 0.4, GIB)))
    assert learner.time == NOON + 30 * DAY + ROUND
    learner.observe(use_round(NOON + 4 * DAY, (MAIN, 1, 0.4, GIB)))
    assert learner.time == NOON + 4 * DAY


def test_a_clock_that_is_corrected_by_less_than_an_hour_ends_no_day() -> None:
    """Shortly after midnight a round of less than an hour earlier belongs to the present day."""
    midnight = 20_001 * DAY
    learner = learner_of(*(use_round(midnight + at, (MAIN, 1, 0.4, GIB)) for at in (60.0, 60.0 - 3599)))
    assert (learner.day, learner.past) == (20_001, [])
    for at in (60.0, 60.0 - 3600):
        learner.observe(use_round(midnight + at, (MAIN, 1, 0.4, GIB)))
    assert (learner.day, len(learner.past), learner.calm_rounds) == (20_000, 1, 0)


# -- histograms ---------------------------------------------------------------------------------------------------


@given(cores=st.floats(0, 5000))
def test_the_bins_are_those_of_vertical_pod_autoscaler(cores):
    """Bin i begins at 0.2 * (1.05 ^ i - 1) cores; the last one has no end."""
    bin_ = int(bins_of(np.array([cores]))[0])
    begin, end = 0.2 * (1.05**bin_ - 1), 0.2 * (1.05 ** (bin_ + 1) - 1)
    assert begin * (1 - 1e-9) - 1e-12 <= cores
    assert cores <= end * (1 + 1e-9) or bin_ == BINS - 1
    assert BIN_ENDS[0] == pytest.approx(0.01)


def test_old_days_weigh_less_and_leave_after_14_days():
    """Percentiles weigh each day half of the next one, and use and peaks of more than 14 days ago are forgotten."""
    learner = WorkloadLearner()
    for day in range(20):
        cores, memory = (2.0, 4 * GIB) if day < 2 else (0.1, GIB)
        learner.observe(use_round(NOON + DAY * day, (MAIN, 1, cores, memory)))
        table = learner.containers((0.5, 0.75, 1.0))
        if day == 2:  # weights 1 for today, 0.5 and 0.25 for the days before
            assert table.cpu_percentiles[:, 0] == pytest.approx([0.1, 2.0, 2.0], rel=0.11)
        assert bool(table.highest_memory[0] == 4 * GIB) is (day < DAYS + 1)
        assert bool(table.cpu_percentiles[2, 0] > 1.9) is (day < DAYS + 1)
    assert len(learner.past) == DAYS - 1


def test_packed_days_add_up_to_the_dense_counts():
    """Percentiles of packed days equal those of the dense counts, also after some containers were removed."""
    dice = np.random.default_rng(2)
    dense = [np.where(dice.random((50, BINS)) < 0.1, dice.random((50, BINS)), 0).astype(np.float32) for _ in range(3)]
    rows = np.array([0, 7, 8, 49, 60])
    today = np.zeros((61, BINS), np.float32)
    taken = [(PackedDay.pack(day).take(rows), 1.0) for day in dense]
    padded = sum(np.pad(day, ((0, 11), (0, 0))) for day in dense)[rows]
    quantiles = (0.1, 0.5, 0.9, 1.0)
    np.testing.assert_array_equal(percentiles(today[rows], taken, quantiles), percentiles(padded, [], quantiles))
    assert (percentiles(today, [], quantiles) == 0).all()
    assert (percentiles(-np.eye(1, BINS, dtype=np.float32), [], quantiles) == 0).all()  # of a damaged state
    summed = np.pad(dense[0], ((0, 13), (0, 0)))
    summed[[60, 3]] += dense[1][:2]
    merged = PackedDay.pack(dense[0]).merged(np.array([60, 3, 62]), np.pad(dense[1][:2], ((0, 1), (0, 0))))
    for found, expected in zip(merged, PackedDay.pack(summed), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_a_percentile_is_the_end_of_its_bin():
    """A percentile that lies exactly at the end of a bin is of this bin; past days count by their weights."""
    today, past = np.zeros((2, 4100, BINS), np.float32)  # containers are summed in blocks of 4,096
    today[[0, 4095, 4097, 4097], [8, 9, 20, 30]] = past[[1, 4096, 4097], [10, 175, 40]] = 1
    found = percentiles(today, [(PackedDay.pack(past), 0.5)], (0.4, 0.5, 0.8, 0.81))
    at = np.flatnonzero(found.any(axis=0)).tolist()
    bins = {0: [8] * 4, 1: [10] * 4, 4095: [9] * 4, 4096: [175] * 4, 4097: [20, 30, 30, 40]}
    assert dict(zip(at, found[:, at].T.tolist(), strict=True)) == {
        row: BIN_ENDS[each].tolist() for row, each in bins.items()
    }


@pytest.mark.parametrize(
    ("offsets", "bins", "counts", "size"),
    [([], [5, 0, 175], 3, 3), ([0, 1, 1, 3], [5, 0, 175], 3, 2), ([0, 1, 1, 3], [5, 0], 3, 3),
     ([0, 1, 1, 3], [5, 0, 175], 2, 3), ([0, 1, 1, 2], [5, 0, 175], 3, 3), ([1, 1, 1, 3], [5, 0, 175], 3, 3),
     ([0, 3, 1, 3], [5, 0, 175], 3, 3), ([0, 1, 1, 3], [5, 0, 176], 3, 3)],
)  # fmt: skip
def test_inconsistent_days_are_not_valid(offsets: list[int], bins: list[int], counts: int, size: int):
    """Offsets begin at 0, do not fall, and end at the number of bins and counts; bins are below 176."""
    day = PackedDay(np.array(offsets, np.uint32), np.array(bins, np.uint8), np.ones(counts, np.float32))
    assert not day.is_valid(size)
    assert PackedDay(np.array([0, 1, 1, 3], np.uint32), np.array([5, 0, 175], np.uint8), np.ones(3)).is_valid(3)


# -- limits and states --------------------------------------------------------------------------------------------


def many(numbers, time, revision=0):
    keys = {each: ContainerKey(Workload("n", "Deployment", f"w-{each}"), "main") for each in numbers}
    return use_round(time, *((key, 1, 0.1 + each / 100, GIB, 1.0, revision) for each, key in keys.items()))


def test_the_least_recently_seen_workloads_go_first():
    """Above the limit the workloads that were seen longest ago are forgotten, and the others keep everything."""
    learner, all_kept = WorkloadLearner(max_workloads=20), WorkloadLearner()
    for each in (learner, all_kept):
        each.observe(many(range(20), NOON))
        each.observe(many(range(10, 20), NOON + DAY))
        each.observe(many(range(10, 25), NOON + DAY + ROUND))
    names = [workload.name for workload in learner.workloads]
    assert len(names) == 19
    assert {f"w-{each}" for each in range(10, 25)} <= set(names)
    kept, reference = learner.containers(), all_kept.containers()
    at = [reference.keys.index(key) for key in kept.keys]
    np.testing.assert_array_equal(kept.cpu_percentiles, reference.cpu_percentiles[:, at])
    np.testing.assert_array_equal(kept.use, reference.use[:, at])
    learner.observe(many(range(10, 25), NOON + 2 * DAY))
    assert len(learner.table()) == 19
    learner.observe(many([50], NOON + 2 * DAY))
    assert len(learner.table()) == 20  # as many as the limit
    assert (learner.keys[-1].workload.name, learner.rows["sums"][-1, 0]) == ("w-50", pytest.approx(5 * 0.6))


def test_a_saved_learner_continues_as_if_it_had_never_stopped():
    """A learner that is saved and loaded after every round is equal to one that runs on, bit for bit, over days."""
    dice = random.Random(3)
    running, stopped = WorkloadLearner(30), WorkloadLearner(30)
    parts: dict[str, bytes] = {}
    for n in range(60):
        measured = many(sorted(dice.sample(range(40), 15)), NOON + n * DAY / 5, 1 + n // 20)
        running.observe(measured)
        stopped.observe(measured)
        changes = save_state(stopped, parts)
        parts = {name: parts[name] if body is None else body for name, body in changes.items()}
        stopped = load_state(parts, 30)
    assert running.rows.tobytes() == stopped.rows.tobytes()
    for field in ("cpu_percentiles", "use", "deviations", "by_hour"):
        np.testing.assert_array_equal(getattr(running.containers(), field), getattr(stopped.containers(), field))
    np.testing.assert_array_equal(running.table().level, stopped.table().level)
    assert len(parts) == 1 + len(running.past)


def test_past_days_are_saved_once():
    """A past day is not packed again while it stays the same."""
    learner = learner_of(*(many(range(3), NOON + DAY * day) for day in range(3)))
    first = save_state(learner)
    assert [name for name, body in save_state(learner, first).items() if body is not None] == [PRESENT]


def test_a_state_of_other_fields_is_loaded(monkeypatch):
    """Fields that a state does not have are 0, and fields that only a later version knows are left out."""
    fields = [(name, *ROW.fields[name][:1]) for name in ROW.names if name != "pod_minutes"]
    other = np.dtype([*fields, ("later", "f8")])
    learner = learner_of(use_round(NOON, (MAIN, 2, 0.4, GIB)))
    stored = np.zeros(1, other)
    for name, _ in fields:
        stored[name] = learner.rows[name]
    monkeypatch.setattr(type(learner), "rows", property(lambda self: stored))
    parts = save_state(learner)
    monkeypatch.undo()
    loaded = load_state(parts, 10)
    assert loaded.rows["pod_minutes"].tolist() == [0.0]
    assert loaded.rows["sums"].tolist() == learner.rows["sums"].tolist()


def test_a_state_of_an_earlier_version_is_loaded():
    """Without the days to fill, and with the first of the times only, the rest is loaded, and counts begin again."""
    learner = learner_of(use_round(NOON, (MAIN, 2, 0.4, GIB)))
    learner.live_since, learner.calm_rounds, learner.refused_rounds, learner.unfilled = 5.0, 6, 7, [8, 9]
    for times, expected in ((4, (5.0, 6, 7, [8, 9])), (2, (5.0, 14 * 288, 0, [])), (1, (0.0, 14 * 288, 0, []))):
        present = unpack(save_state(learner)[PRESENT])
        present["time"] = present["time"][:times]
        if times < 4:
            del present["unfilled"]
        old = load_state({PRESENT: pack(**present)}, 10)
        assert (old.live_since, old.calm_rounds, old.refused_rounds, old.unfilled) == expected
        assert (old.time, old.max_workloads, old.keys) == (NOON, 10, [MAIN])


@pytest.mark.parametrize("damage", [b"", b"x", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_damaged_state_is_refused_and_a_damaged_day_is_empty(damage):
    """Without a readable present part nothing is loaded; a damaged day is a gap."""
    learner = learner_of(*(many(range(3), NOON + DAY * day) for day in range(3)))
    parts = save_state(learner)
    with pytest.raises(UnreadableStateError):
        load_state({**parts, PRESENT: damage}, 10)
    with pytest.raises(UnreadableStateError):
        load_state({}, 10)
    name = next(name for name in parts if name != PRESENT)
    for broken in (damage, parts[PRESENT]):
        loaded = load_state({**parts, name: broken}, 10)
        assert len(loaded.past) == 2
        assert loaded.containers().cpu_percentiles.shape == (4, 3)
        assert sum(day.counts.sum() for _, day in loaded.past) == 15.0


# -- state of the containers ---------------------------------------------------------------------------------------


def facts(**changes: object) -> ContainerFacts:
    """Return the facts of MAIN: no limits, restarts and kills."""
    names = ("restarted_at", "killed_at", "killed_requests", "killed_limits", "pods")
    column = {name: np.zeros(1) for name in names}
    both = {"requests": np.zeros((2, 1)), "limits": np.zeros((2, 1)), "has_pod_requests": np.zeros((2, 1), np.bool_)}
    return ContainerFacts(**{**both, "roles": np.ones(1, np.int64),
                             "is_guaranteed": np.zeros(1, np.bool_), **column, **changes})  # fmt: skip


def only_main(n: int, *values: float, **fields: object) -> UseRound:
    return replace(use_round(NOON + ROUND * n, (MAIN, 1, 0.4, *(values or (GIB,)))), **fields)


@pytest.mark.parametrize(
    ("limit", "peak", "base"),
    [(4 * GIB, 3.2 * GIB, 4 * GIB), (4 * GIB, 3.1 * GIB, 3.1 * GIB), (0.0, 2 * GIB, 2 * GIB), (1e30, 2 * GIB, 2 * GIB),
     (GIB, 3 * GIB, 3 * GIB), (4 * GIB, 0.1 * GIB, GIB)],
)  # fmt: skip
@pytest.mark.parametrize("days", [0, 1])
def test_the_base_of_a_kill_is_request_highest_sample_or_limit(limit: float, peak: float, base: float, days: int):
    """The limit counts if a sample of the last 14 days reached 80 percent of it; without one it is the request."""
    learner = WorkloadLearner()
    learner.observe(only_main(0, peak))
    n = 1 + 288 * days
    killed = facts(killed_at=np.array([NOON + n * ROUND - 60]), killed_requests=np.array([GIB]),
                   killed_limits=np.array([limit]))  # fmt: skip
    learner.observe(only_main(n, 0.05 * GIB, facts=killed))
    assert learner.containers().killed_memory.tolist() == pytest.approx([1.2 * base])


def test_a_container_that_is_killed_before_it_is_measured_is_known():
    """Its request and pods come from the running pods, its need from the kill, and its use is that of all pods."""
    other = ContainerKey(WEB, "loop")
    names = ("restarted_at", "killed_at", "killed_requests", "killed_limits")
    column = {name: np.array([0.0, value]) for name, value in zip(names, (NOON, NOON, GIB, GIB), strict=True)}
    known = facts(**column, requests=np.array([[1.0, 0.5], [GIB, GIB]]), limits=np.array([[0.0, 0.0], [0.0, GIB]]),
                  has_pod_requests=np.zeros((2, 2), np.bool_), roles=np.ones(2, np.int64),
                  is_guaranteed=np.zeros(2, np.bool_), pods=np.array([1.0, 3.0]))  # fmt: skip
    learner = WorkloadLearner()
    for n in range(3):
        learner.observe(replace(only_main(n), keys=[MAIN, other], facts=known))
    table = learner.containers()
    assert table.keys == (MAIN, other)
    assert (table.first_seen.tolist(), table.last_seen.tolist()) == ([NOON] * 2, [NOON + 2 * ROUND] * 2)
    assert (table.requests[:, 1].tolist(), table.limits[1, 1], table.pods[1]) == ([0.5, GIB], GIB, 3.0)
    assert (table.killed_memory[1], table.highest_memory[1]) == (pytest.approx(1.2 * GIB), 0.0)
    advice = recommend(table)
    assert advice.verdicts[:, 1].tolist() == ["", "raise"]
    assert advice.reasons[:, 1].tolist() == ["the use of CPU is not known", ""]
    assert advice.requests[1, 1] == pytest.approx(1.38 * GIB, rel=0.07)
    learner.observe(replace(use_round(NOON + 900, (MAIN, 1, 0.4, GIB), (other, 3, 0.2, GIB / 2, 0.5)), facts=known))
    assert learner.containers().highest_memory[1] == GIB / 2


def test_an_old_kill_adds_no_container():
    """A kill of more than 14 days ago adds no container that was never measured."""
    old = facts(killed_at=np.array([NOON - 15 * DAY]), pods=np.ones(1))
    learner = WorkloadLearner()
    learner.observe(replace(use_round(NOON, (PROXY, 1, 0.4, GIB)), keys=[PROXY], facts=None))
    learner.observe(replace(use_round(NOON + 300, (PROXY, 1, 0.4, GIB)), facts=old, keys=[PROXY]))
    assert learner.containers().keys == (PROXY,)
    for later, keys in ((0, []), (1, [MAIN])):
        killed = facts(killed_at=np.array([NOON - 14 * DAY + later]))
        assert learner_of(only_main(0, use=np.full((2, 1), math.nan), facts=killed)).keys == keys


def test_a_kill_counts_for_14_days():
    """The need after an earlier kill stays for less than 14 days."""
    for later, gibibytes in ((14 * DAY - 1, 2.4), (14 * DAY, 1.2)):
        killed = [facts(killed_at=np.array([NOON + after]), killed_requests=np.array([size * GIB]))
                  for after, size in ((0, 2), (later, 1))]  # fmt: skip
        learner = learner_of(only_main(0, facts=killed[0]), only_main(later / ROUND, facts=killed[1]))
        assert learner.rows["killed_memory"].tolist() == pytest.approx([gibibytes * GIB])


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ([(1.0, 1, 9), (1.0, 1, 9), (4.0, 1, 9)], 1.0),  # one of three was resized
        ([(1.0, 1, 9), (4.0, 1, 9), (4.0, 1, 9)], 4.0),
        ([(1.0, 1, 9), (4.0, 1, 10)], 4.0),  # a tie: that of the pod that started last
        ([(1.0, 1, 9), (1.0, 1, 9), (2.0, 2, 10)], 2.0),  # a new revision
        ([(1.0, 1, 9), (1.0, 1, 10), (2.0, 2, 5)], 1.0),  # a revision that is older by its pods
        ([(1.0, 1, np.nan), (1.0, 1, np.nan), (4.0, 1, np.nan)], 1.0),  # no start is known
        ([(0.0, 1, 9), (0.0, 1, 9), (4.0, 1, 9)], 0.0),
        ([(1.0, 1, 9), (1.0, 1, 9), (1.0, 1, 9), (2.0, 2, 10)], 2.0),
        ([(1.0, 1, np.nan), (1.0, 1, np.nan), (4.0, 2, 9)], 4.0),
        ([(4.0, 2, 0.0), (1.0, 1, np.nan)], 4.0),  # an unknown start is before all others
    ],
)
def test_the_request_is_that_of_most_pods_of_the_newest_revision(measured: list[tuple], expected: float):
    """After a resize of one pod, or during a rollout, no mean of the pods' requests is shown, which no pod has."""
    cores, revisions, starts = zip(*measured, strict=True)
    # A second container in between, so that groups are kept apart.
    rows = [(key, 1, 0.1, GIB, value, revision) for value, revision in zip(cores, revisions, strict=True)
            for key in (MAIN, PROXY)]  # fmt: skip
    started_at = np.repeat(np.array(starts, np.float64), 2)
    learner = learner_of(replace(use_round(NOON, *rows), started_at=started_at))
    assert learner.containers().requests[0].tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("request_", "peak", "needed"),
    [(GIB, 0.2 * GIB, 1.2 * GIB), (0.1 * GIB, 0.3 * GIB, 0.3 * GIB + 100 * 2**20), (1e30, GIB, 1.2 * 2**53)],
)
def test_a_kill_for_lack_of_memory_adds_20_percent_or_100_mebibytes(request_: float, peak: float, needed: float):
    """The larger of request and use at the kill grows by the larger of 20 percent and 100 MiB, once for each kill."""
    learner, killed = WorkloadLearner(), facts(killed_at=np.array([NOON]), killed_requests=np.array([request_]))
    for n in range(3):
        learner.observe(only_main(n, peak, facts=killed))
    table = learner.containers()
    assert table.killed_memory.tolist() == pytest.approx([needed])
    assert (table.killed_at.tolist(), table.highest_memory.tolist()) == ([NOON], [peak])
    later = facts(killed_at=np.array([NOON + 700]), killed_requests=np.array([1.2 * GIB]))
    learner.observe(only_main(3, peak, facts=later))
    learner.observe(only_main(4, peak, facts=killed))  # an earlier kill of another pod
    assert learner.containers().killed_memory.tolist() == pytest.approx([max(needed, 1.44 * GIB)])


def test_strain_is_the_mean_of_about_a_day():
    """Strain is averaged over pods and rounds; unknown and impossible shares do not change it."""
    learner = WorkloadLearner()
    learner.observe(only_main(0))
    assert np.isnan(learner.containers().strain).all()
    for n in range(1, 13):
        learner.observe(only_main(n, strain=np.array([[0.5 if n % 2 else 0.1], [np.nan]])))
    learner.observe(only_main(13, strain=np.array([[7.0], [-1.0]])))
    throttled, waiting = learner.containers().strain[:, 0]
    assert throttled == pytest.approx(0.3, rel=0.01)
    assert np.isnan(waiting)


def test_runs_are_pods_that_started_later():
    """A pod counts as a run once, when it started after all pods that were known before."""
    learner = WorkloadLearner()
    for n, start in enumerate([100.0, 100.0, 200.0, 150.0, np.nan, 300.0]):
        learner.observe(only_main(n, started_at=np.array([start])))
    assert learner.containers().runs.tolist() == [3.0]


def test_limits_role_and_class_are_of_the_newest_template():
    """Limits, role and QoS class follow the newest facts; impossible limits count as none, the newest restart stays."""
    learner = WorkloadLearner()
    learner.observe(only_main(0, facts=facts(limits=np.array([[2.0], [1e30]]), restarted_at=np.array([NOON]))))
    learner.observe(only_main(1, facts=facts(limits=np.array([[3.0], [GIB]]), roles=np.array([2]),
                                             is_guaranteed=np.ones(1, np.bool_))))  # fmt: skip
    table = learner.containers()
    assert (table.limits[:, 0].tolist(), table.roles.tolist(), table.is_guaranteed.tolist()) == (
        [3.0, GIB],
        [2],
        [True],
    )
    assert table.restarted_at.tolist() == [NOON]


def test_the_course_of_a_pod_is_the_sum_of_its_containers():
    """In each hour the course of a pod adds up its present containers; an unmeasured hour is unknown."""
    rounds = [use_round(NOON + ROUND * n, (MAIN, 2, 0.4, GIB), (PROXY, 2, 0.1, GIB / 8)) for n in range(12)]
    learner = learner_of(*rounds, use_round(NOON + 3600, (RUN, 1, 1.0, GIB)))
    course = learner.courses()[WEB]
    assert course[:, 12] == pytest.approx([0.5, 1.125 * GIB])
    assert np.isnan(course[:, 13]).all()
    for n in range(13, 17):
        learner.observe(use_round(NOON + ROUND * n, (MAIN, 2, 0.4, GIB)))
    assert learner.courses()[WEB][:, 12] == pytest.approx([0.4, GIB])
    assert set(learner.courses()) == {WEB, JOB}
