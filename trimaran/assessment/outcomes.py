"""Outcomes of the recorded days with changes: replays of the recording, each compared with kube-scheduler alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np

from trimaran.assessment.model import Change, Effect, Outcome
from trimaran.simulator.policies.catalogue import DEFAULT, RIGHT_SIZED
from trimaran.simulator.replay import ReplayOptions
from trimaran.simulator.replay_batch import ReplayBatch

_SEEDS = 4
_CLEAR = 0.05  # relative difference below which a change has no clear effect
_T = 2.45  # quantile of Student's t for an interval of 95 % with four seeds of each
_MOVES = "default+moves"
_SHIPPED = "congestion-cost-by-requests"
_CONFIGURED = "configured"
_HOT, _WAITED, _OVERRUN = "hot_minutes_80", "waited_pod_minutes", "memory_overrun_minutes"
_MINUTES = 60.0  # node-minutes by which hot minutes or overruns may rise before the rise counts as harm
_WAIT_MINUTES = 0.5  # minutes by which the mean wait of a pod may rise before it counts as harm


def replayed(folder: Path, pods: int, configuration: str, jobs: int) -> list[Outcome]:
    """Replay a recording, and return the outcomes, that of kube-scheduler alone first.

    Args:
        folder: folder of the trace.
        pods: number of its pods.
        configuration: KubeSchedulerConfiguration that would be installed, as JSON; empty for that of the manifests.
        jobs: number of processes.

    Raises:
        TraceError: the trace cannot be replayed.
    """
    extender = _CONFIGURED if configuration else _SHIPPED
    changes = {
        DEFAULT: Change.NONE,
        extender: Change.EXTENDER,
        _MOVES: Change.REBALANCER,
        RIGHT_SIZED: Change.REQUESTS,
    }
    configurations = {extender: configuration} if configuration else {}
    batch = ReplayBatch(
        (folder,), tuple(changes), ReplayOptions(), jobs, "", None, configurations=configurations, seeds=1
    )  # fmt: skip
    by_seed = []
    for seed in range(_SEEDS):
        (section,) = replace(batch, options=ReplayOptions(seed=seed)).run()
        if not section.whole:
            raise KeyboardInterrupt
        (by_policy,) = section.comparison.values()
        by_seed.append(by_policy)
    default = [each[DEFAULT] for each in by_seed]
    return [
        outcome(change, default, default if policy == DEFAULT else [each[policy] for each in by_seed], pods)
        for policy, change in changes.items()
    ]


def outcome(
    change: Change, default: Sequence[Mapping[str, float]], changed: Sequence[Mapping[str, float]], pods: int
) -> Outcome:
    """Return the outcome of a change, compared with kube-scheduler alone.

    Args:
        change: the change.
        default: measures of kube-scheduler alone, by seed.
        changed: measures with the change, by seed; the same object for kube-scheduler alone.
        pods: number of pods.
    """
    means = {name: float(np.mean([each[name] for each in changed])) for name in changed[0]}
    effect, reason = (None, "") if changed is default else _judged(default, changed, pods)
    return Outcome(
        change, effect, reason, means[_HOT], means[_WAITED], means[_OVERRUN], means["cpu_requested_percent"],
        means["moves"],
    )  # fmt: skip


def _judged(
    default: Sequence[Mapping[str, float]], changed: Sequence[Mapping[str, float]], pods: int
) -> tuple[Effect, str]:
    """Return the effect and its reason. A difference that seeds explain, or of 5 %, is not clear."""
    worse = [
        f"{text} rose from {before:.0f} to {after:.0f}"
        for name, text, least in (
            (_HOT, "hot minutes", _MINUTES),
            (_WAITED, "the minutes that pods waited", _WAIT_MINUTES * pods),
            (_OVERRUN, "the minutes with memory above capacity", _MINUTES),
        )
        for before, after in [_means(default, changed, name)]
        if _is_clear(default, changed, name) and after - before > least
    ]
    before, after = _means(default, changed, _HOT)
    share = f"{(after - before) / before:+.0%}" if before else f"{after:.0f} instead of 0"
    if worse:
        return Effect.HARM, "; ".join(worse)
    waited = [60 * each / max(pods, 1) for each in _means(default, changed, _WAITED)]
    longer = f"; a pod waits {waited[1] - waited[0]:.0f} s longer on average" if waited[1] - waited[0] >= 1 else ""
    if after < before and _is_clear(default, changed, _HOT):
        return Effect.GAIN, f"{share}{longer}"
    return Effect.NONE, f"{share} hot minutes, within chance{longer}" if before or after else "no node is hot for long"


def _means(
    default: Sequence[Mapping[str, float]], changed: Sequence[Mapping[str, float]], name: str
) -> tuple[float, float]:
    before, after = (float(np.mean([each[name] for each in seeds])) for seeds in (default, changed))
    return before, after


def _is_clear(default: Sequence[Mapping[str, float]], changed: Sequence[Mapping[str, float]], name: str) -> bool:
    before, after = _means(default, changed, name)
    variance = sum(float(np.var([each[name] for each in seeds], ddof=1)) for seeds in (default, changed))
    return abs(after - before) > max(_T * sqrt(variance / len(default)), _CLEAR * max(before, after))
