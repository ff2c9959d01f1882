"""Use of workloads on the days before a recording, which the learner of a replay knows at its start."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from scoring.arrays import Float64s
from trimaran.traces.history import STEP_SECONDS, STEPS_A_DAY, Owner, TraceHistory, trace_history
from trimaran.traces.recording.history import STEP_SECONDS as MINUTE_SECONDS
from trimaran.traces.recording.history import NoSeries, PrometheusHistory
from trimaran.traces.recording.pods import PodSpec, specs_from_kube_state_metrics
from trimaran.traces.recording.recording import SeriesOptions, read_usage
from trimaran.traces.trace import Trace
from watcher.usage.sources.pods import PodKey

_DAY = STEP_SECONDS * STEPS_A_DAY
_MINUTES_A_STEP = STEP_SECONDS // MINUTE_SECONDS


@dataclass(frozen=True)
class Past:
    """Days before a recording.

    Attributes:
        history: the use of the recorded owners; None if no day has any.
        days: number of days that the Prometheus has.
    """

    history: TraceHistory | None
    days: int


def read_past(
    days: int,
    history_of: Callable[[int, int], PrometheusHistory],
    trace: Trace,
    begin: int,
    specs: Mapping[PodKey, PodSpec],
    *,
    series: SeriesOptions,
    progress: Callable[[float], None],
) -> Past:
    """Return the mean use of a pod of each owner of a trace on the days before it, as shares of its mean request.

    Args:
        days: number of days.
        history_of: returns the history that begins at a Unix time, for a number of minutes.
        trace: the trace.
        begin: Unix time of its minute 0.
        specs: specifications of pods that the Kubernetes API has.
        series: options of the queries.
        progress: called with the share of the days that was read.

    Raises:
        HistoryError: a query fails.
    """
    requests = trace.mean_requests()
    rows: list[tuple[Owner, int, Float64s]] = []
    for day in range(1, days + 1):
        history = history_of(begin - day * _DAY, _DAY // MINUTE_SECONDS)
        read = day - 1
        try:
            usage, _ = read_usage(history, series, partial(_add_share, progress, read, days))
        except NoSeries:  # the Prometheus does not keep as long
            return Past(trace_history(rows, requests), read)
        known = dict(specs)
        if missing := usage.keys - known.keys():
            known |= specs_from_kube_state_metrics(history, missing, series.matchers)
        sums = defaultdict[Owner, Float64s](lambda: np.zeros((3, STEPS_A_DAY)))  # CPU, memory and minutes
        for lifetime in usage.lifetimes():
            spec = known.get(lifetime.key)
            if spec is None or (owner := (spec.owner_kind, spec.owner)) not in requests:
                continue
            steps = np.arange(lifetime.start, lifetime.end) // _MINUTES_A_STEP
            for row, values in enumerate((*lifetime.use, np.ones(len(steps)))):
                np.add.at(sums[owner][row], steps, values)
        for owner, (cpu, memory, minutes) in sums.items():
            with np.errstate(invalid="ignore"):
                rows.append((owner, -day, np.stack([cpu, memory]) / minutes))
    return Past(trace_history(rows, requests), days)


def _add_share(progress: Callable[[float], None], read: int, days: int, share: float) -> None:
    progress((read + share) / days)
