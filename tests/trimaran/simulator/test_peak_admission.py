"""Admission by predicted peaks of nodes, on worlds whose peaks can be computed by hand."""

from bisect import bisect_left
from dataclasses import replace

import numpy as np
import pytest
from support.worlds import GIB, small_world

from trimaran.simulator.cluster import Cluster
from trimaran.simulator.peak_admission import PeakAdmission, PeakPredictor
from trimaran.simulator.policies.catalogue import policies
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.simulated_watcher import SimulatedWatcher
from trimaran.simulator.windows import Windows
from trimaran.traces.trace import PodUse, Trace

MINUTES = 240
WARM = 125  # minute from which two hours of rounds are known without a delay


def waving(count: int) -> Trace:
    """Return pods of 2 cores on one node, of which each uses .2 and .6 cores in turns of five minutes."""
    trace = small_world(1, [("Deployment", 0.1)] * count, MINUTES)
    waves = np.where(np.arange(MINUTES) // 5 % 2, 0.3, 0.1).astype(np.float16)
    return replace(trace, use=PodUse(trace.use.offsets, np.tile(waves, count), trace.use.memory))


def admission(trace: Trace, predictor: PeakPredictor, minute: int, *, late: int = 0) -> PeakAdmission:
    """Return the admission in a minute, after all pods but the last ones were placed at the start."""
    cluster = Cluster(trace, (1.0, 1.0))
    for number in range(len(trace.pods) - late):
        cluster.place(number, cluster.pod(number), 0)
    result = PeakAdmission(cluster, SimulatedWatcher(Windows(delay_minutes=0), cluster), predictor)
    for now in range(minute + 1):
        cluster.minute = now
        assert result.refresh() == (now >= 5 and now % 5 == 0)
    for number in range(len(trace.pods) - late, len(trace.pods)):
        cluster.place(number, cluster.pod(number), 0)
    return result


def largest(result: PeakAdmission) -> int:
    """Return the largest CPU request that has room, in millicores."""
    return bisect_left(range(10_001), True, key=lambda cpu: not result.feasible((cpu, 0)).all()) - 1


@pytest.mark.parametrize("predictor", PeakPredictor)
def test_young_pods_count_with_their_requests(predictor: PeakPredictor) -> None:
    """Until two hours of a pod's use are known, its node is as full as by requests; so it is without any use."""
    assert largest(admission(waving(4), predictor, 3)) == 10_000 - 4 * 2000
    assert largest(admission(waving(4), predictor, WARM - 10)) == 10_000 - 4 * 2000


def test_n_sigma_is_the_mean_and_five_deviations_of_the_sum() -> None:
    """Pods that rise together deviate together: their sum is .8 and 2.4 cores in turns."""
    sums = np.tile([800.0, 2400.0], 12)
    peak = sums.mean() + 5 * sums.std(ddof=1)
    assert largest(admission(waving(4), PeakPredictor.N_SIGMA, WARM)) == pytest.approx(10_000 - peak, abs=8)


def test_percentiles_are_added_up() -> None:
    """The 99th percentile of each pod's use is its higher level, here .6 cores; memory counts as well."""
    result = admission(waving(4), PeakPredictor.PERCENTILES, WARM)
    assert largest(result) == pytest.approx(10_000 - 4 * 600, abs=4)
    room = 64 * GIB - 4 * GIB // 2
    assert result.feasible((0, room)).all()
    assert not result.feasible((0, room + 2)).any()


def test_pods_placed_since_the_prediction_count_with_their_requests() -> None:
    """A node does not take pods without end between two rounds."""
    result = admission(waving(6), PeakPredictor.PERCENTILES, WARM, late=2)
    assert largest(result) == pytest.approx(10_000 - 4 * 600 - 2 * 2000, abs=4)


def test_a_replay_places_more_pods_by_their_peaks() -> None:
    """Pods beyond the requests' capacity wait by requests, and are placed once their peaks are known."""
    trace = small_world(1, [("Deployment", 0.1)] * 9)
    run = {
        predictor: Replay(trace, policies(trace)["default"], ReplayOptions(peak_predictor=predictor)).run()
        for predictor in (None, PeakPredictor.N_SIGMA)
    }
    assert len(run[None].unplaced) == 4
    assert run[PeakPredictor.N_SIGMA].unplaced == ()
    late = [each for each in run[PeakPredictor.N_SIGMA].cluster.pod_runs if each.start]
    assert len(late) == 4
    assert min(each.start for each in late) >= 120
