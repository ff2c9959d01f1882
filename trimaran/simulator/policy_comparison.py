"""Comparison of policies from Python: the replays of ``trimaran simulate compare`` as one function."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any

from runtime.errors import quoted
from scoring import Profile
from trimaran.scheduler.framework.node_sampling import sample_percent
from trimaran.simulator.comparison import Comparison
from trimaran.simulator.heat_map import HeatMap, heat_map
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import DEFAULT, policies, policy_names
from trimaran.simulator.policies.profiles import configured_policy, extended_policy
from trimaran.simulator.policy import Policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.report.section import ReportSection
from trimaran.simulator.report.statistics import Interval, by_policy, gaps, over_seeds
from trimaran.simulator.report.text import tables
from trimaran.traces.trace import MAX_OVERCOMMIT, MIN_OVERCOMMIT, Trace


@dataclass(frozen=True)
class PolicyComparison:
    """Measures of policies in one or more worlds, the replayed traces, as :func:`compare` returns them.

    ``print`` shows the tables.
    """

    _section: ReportSection

    @property
    def measures(self) -> Comparison:
        """Measures by world, policy and measure name, such as ``measures["a"]["default"]["hot_minutes_80"]``."""
        return self._section.comparison

    def means(self) -> dict[str, dict[str, Interval]]:
        """Return the mean over the worlds by policy and measure; with at least five worlds also its interval."""
        return by_policy(self.measures)

    def gaps_closed(self) -> dict[str, dict[str, dict[str, Interval]]]:
        """Return the gap closed in percent, by goal, policy and measure: 0 is the default scheduler, 100 the goal.

        The goals are those of the baselines ``clairvoyant`` and ``oracle`` that were replayed.
        """
        return gaps(self.measures)

    def __str__(self) -> str:
        """Return the tables that ``trimaran simulate compare`` prints."""
        return tables(self.measures)

    def write_html(self, path: Path | str) -> None:
        """Write the report, and its data as JSON to the same path with suffix ``.json``.

        Raises:
            ModuleNotFoundError: matplotlib is not installed; ``pip install matplotlib jinja2`` installs what it needs.
            OSError: a file cannot be written.
        """
        from trimaran.simulator.report.page import write_report  # imports matplotlib for a second

        write_report([self._section], Path(path), f"trimaran {version('trimaran')}: simulator.compare")


def compare(
    traces: Iterable[Trace],
    profiles: Mapping[str, Profile | Mapping[str, Any]],
    *,
    baselines: Sequence[str] = (DEFAULT,),
    seed: int = 0,
    seeds: int = 1,
    overcommit: tuple[float, float] | None = None,
    learned_use: bool = False,
    jobs: int = 1,
) -> PolicyComparison:
    """Replay traces with scoring profiles, and with policies of the simulator as baselines.

    Args:
        traces: traces with different names, such as :func:`read_trace` returns.
        profiles: profiles by the name that the policy gets. A :class:`scoring.Profile` scores as the extender does,
            next to kube-scheduler's own plugins; its plugins need not be installed. A mapping is a parsed
            KubeSchedulerConfiguration with one profile.
        baselines: names of policies of the simulator; see :func:`policy_names`. With ``clairvoyant`` the result has
            gaps closed.
        seed: seed of the choice among equally good nodes.
        seeds: number of replays of each policy, with successive seeds; the measures are their means.
        overcommit: divisors of CPU and memory requests; None means each trace's own.
        learned_use: whether the plugins of the profiles get the use of workloads, as with ``extender.learned_use``.
        jobs: number of processes, -1 for all processors; more than one needs joblib: ``pip install joblib``.

    Raises:
        ValueError: there is no trace or no policy, a trace is something else, such as a path, two traces have the same
            name, a policy has the name of another one, a baseline is unknown, a number is out of range, or a
            KubeSchedulerConfiguration is not valid.
    """
    worlds = _checked_traces(traces)
    _check_mapping(profiles)
    _check_names([trace.name for trace in worlds], profiles, baselines)
    _check_numbers(seed, seeds, overcommit, jobs)
    added = {name: _policy(name, profile, learned_use) for name, profile in profiles.items()}
    percents = {
        name: sample_percent(profile, default=0)
        for name, profile in profiles.items()
        if not isinstance(profile, Profile)
    }
    tasks = [
        (
            trace,
            policy,
            ReplayOptions(seed=number, overcommit=overcommit, percent_of_nodes=percents.get(policy.name, 0)),
            trace is worlds[0] and number == seed,
        )
        for trace in worlds
        for catalogue in [policies(trace)]
        for policy in (*added.values(), *(catalogue[name] for name in baselines))
        for number in range(seed, seed + seeds)
    ]
    if jobs == 1:
        results = [_measured(*task) for task in tasks]
    else:
        joblib = import_module("joblib")
        results = joblib.Parallel(n_jobs=jobs)(joblib.delayed(_measured)(*task) for task in tasks)
    section = ReportSection(
        label=f"{overcommit[0]:g}" if overcommit else "",
        overcommit={trace.name: (overcommit or trace.overcommit)[0] for trace in worlds},
        heat_world=worlds[0].name,
        heat_hours=(worlds[0].minutes - worlds[0].warm_up_minutes) / 60,
    )
    replays: dict[tuple[str, str], list[dict[str, float]]] = {}
    for (trace, policy, _, _), (measured, heat) in zip(tasks, results, strict=True):
        replays.setdefault((trace.name, policy.name), []).append(measured)
        if heat is not None:
            section.heat[policy.name] = heat
    for (world, name), measured_by_seed in replays.items():
        section.comparison.setdefault(world, {})[name] = over_seeds(measured_by_seed)
    return PolicyComparison(section)


def _checked_traces(traces: Any) -> list[Trace]:
    if isinstance(traces, Trace | str | Path) or not isinstance(traces, Iterable):
        raise ValueError("traces: must be a list of traces, such as [read_trace('worlds/a')]")  # noqa: TRY004
    worlds = list(traces)
    for trace in worlds:
        if not isinstance(trace, Trace):
            problem = f"traces: must be Trace objects, got {quoted(trace)}; use read_trace to read a folder"
            raise ValueError(problem)  # noqa: TRY004  a user's mistake
    return worlds


def _check_numbers(seed: Any, seeds: Any, overcommit: Any, jobs: Any) -> None:
    for name, number, least in (("seed", seed, 0), ("seeds", seeds, 1), ("jobs", jobs, -1)):
        if not isinstance(number, Integral) or number < least:
            raise ValueError(f"{name}: must be a whole number of at least {least}, got {quoted(number)}")
    if jobs == 0:
        raise ValueError("jobs: must not be 0; -1 starts one process per processor")
    if overcommit is not None:
        _check_overcommit(overcommit)


def _check_overcommit(overcommit: Any) -> None:
    factors: Any = overcommit if isinstance(overcommit, tuple | list) else ()
    valid = [each for each in factors if isinstance(each, int | float) and MIN_OVERCOMMIT <= each <= MAX_OVERCOMMIT]
    if len(factors) != 2 or len(valid) != 2:
        wanted = f"two numbers from {MIN_OVERCOMMIT:g} to {MAX_OVERCOMMIT:g}, for CPU and memory"
        raise ValueError(f"overcommit: must be {wanted}, got {quoted(overcommit)}")


def _check_mapping(profiles: Any) -> None:
    if not isinstance(profiles, Mapping):
        wanted = "must be a mapping of names to profiles; policies of the simulator go into baselines"
        raise ValueError(f"profiles: {wanted}, got {quoted(profiles)}")  # noqa: TRY004


def _check_names(worlds: Sequence[str], profiles: Mapping[str, object], baselines: Sequence[str]) -> None:
    if not worlds:
        raise ValueError("traces: give at least one trace to replay")
    for name in worlds:
        if worlds.count(name) > 1:
            raise ValueError(f"traces: two are named {name}; name one with dataclasses.replace(trace, name=...)")
    if isinstance(baselines, str):
        raise ValueError(f"baselines: must be a list of names, such as [{baselines!r}]")  # noqa: TRY004
    if not profiles and not baselines:
        raise ValueError("profiles, baselines: name at least one policy to replay")
    known = policy_names()
    for name in baselines:
        if name not in known:
            raise ValueError(f"baselines: unknown policy {name}; policies are: {', '.join(known)}")
    for name in profiles:
        if name in known:
            raise ValueError(f"profiles: the name {name} is taken; choose another name")


def _policy(name: str, profile: Profile | Mapping[str, Any], learned_use: bool) -> Policy:
    if isinstance(profile, Profile):
        return extended_policy(name, profile, learned_use=learned_use)
    return configured_policy(name, profile, learned_use=learned_use)


def _measured(
    trace: Trace, policy: Policy, options: ReplayOptions, wants_heat: bool
) -> tuple[dict[str, float], HeatMap | None]:
    outcome = Replay(trace, policy, options).run()
    return measures(outcome), heat_map(outcome) if wants_heat else None
