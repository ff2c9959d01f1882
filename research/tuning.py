"""Are the policies' places their settings'? Every policy gets as many settings to choose from, and is judged elsewhere.

Each of the settings below, of which the first is the shipped one, is replayed in each of the *tuning* worlds. The best
is the one with the fewest hot node-minutes at 75 and at 85 percent, added, in parts of those of the default scheduler
as shipped in the same world, on average over worlds: neither is reported of a policy anywhere. A setting that has more
memory overruns or unplaced pods in all tuning worlds together than the shipped one of the same policy cannot be chosen;
a tenth more, and five a world, are chance.

Then the shipped and the chosen setting are replayed in *other* worlds and reported, by hot minutes at 70, 80 and 90
percent of all worlds together, in percent more or fewer (-) than the default scheduler's as shipped.

    python research/tuning.py [--tune DIR ...] [--judge DIR ...] [--policy NAME ...] [--jobs N] [--resume-file FILE]

Worlds are folders as ``trimaran simulate`` takes them; without them synthetic ones are drawn. ``--resume-file
FILE`` stores finished replays, and a later run with the same file continues from there. The random policy has no
settings, and the clairvoyant greedy and the oracle are yardsticks, not rivals: all three are left out.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import process_time

import click
import joblib
from tuning_settings import TRIED, Arguments

from trimaran.simulator.comparison import ReplayResult, ReplayTask, ResultStore, program_version
from trimaran.simulator.measures import HOT_PERCENTS, hot_minutes, measures
from trimaran.simulator.policies.catalogue import CLAIRVOYANT, DEFAULT, policies
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import read_trace, write_trace

TUNED_PERCENTS = (75, 85)
TUNING_SEEDS, JUDGING_SEEDS = range(1, 5), range(5, 9)
HARM = ("memory_overrun_minutes", "unplaced_pods")
CHANCE_PART, CHANCE_A_WORLD = 0.1, 5

Results = dict[tuple[Path, str], Mapping[str, float]]
"""Measures by world, and by policy with setting."""


def setting(different: Arguments) -> str:
    return ", ".join(f"{name} {value}" for name, value in different.items())


def label(policy: str, different: Arguments) -> str:
    return f"{policy}: {setting(different) or 'as shipped'}"


REPLAYED = {label(name, each): (name, each) for name, tried in TRIED.items() for each in tried.settings()}


def make(task: ReplayTask) -> ReplayResult:
    """Make a replay; the task's policy is a label, or the clairvoyant."""
    began, trace = process_time(), read_trace(task.folder)
    if task.policy == CLAIRVOYANT:
        policy = policies(trace)[CLAIRVOYANT]
    else:
        name, different = REPLAYED[task.policy]
        policy = TRIED[name].policy(name, trace, different)
    outcome = Replay(trace, policy, task.options).run()
    made = measures(outcome) | {f"hot_minutes_{percent}": hot_minutes(outcome, percent) for percent in TUNED_PERCENTS}
    return ReplayResult(task, made, outcome.decisions, process_time() - began)


def results(what: str, worlds: Sequence[Path], labels: Iterable[str], kept: ResultStore, jobs: int) -> Results:
    """Make the replays that were not made before."""
    tasks = [ReplayTask(world, each, ReplayOptions()) for world in worlds for each in dict.fromkeys(labels)]
    found = {task: kept.find(task) for task in tasks}
    missing = [task for task, done in found.items() if done is None]
    made = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(joblib.delayed(make)(each) for each in missing)
    with click.progressbar(made, length=len(missing), label=f"{what}, replays", file=sys.stderr) as bar:
        for done in bar:
            kept.add(done)
            found[done.task] = done
    return {(task.folder, task.policy): done.measures for task, done in found.items() if done is not None}


def total(found: Results, worlds: Iterable[Path], name: str, measure: str) -> float:
    """Return a measure, added up over worlds."""
    return sum(found[world, name][measure] for world in worlds)


def objective(found: Results, worlds: Sequence[Path], name: str) -> float:
    """Return the hot minutes that are tuned by, in parts of the default scheduler's, on average over worlds."""

    def hot(world: Path, of: str) -> float:
        return sum(found[world, of][f"hot_minutes_{percent}"] for percent in TUNED_PERCENTS)

    return fmean(hot(world, name) / max(hot(world, label(DEFAULT, {})), 1.0) for world in worlds)


def may_be_chosen(found: Results, worlds: Sequence[Path], name: str, shipped: str) -> bool:
    """Say whether a setting does no more harm than the shipped one, but for chance."""
    for measure in HARM:
        most = (1 + CHANCE_PART) * total(found, worlds, shipped, measure) + CHANCE_A_WORLD * len(worlds)
        if total(found, worlds, name, measure) > most:
            return False
    return True


def chosen(found: Results, worlds: Sequence[Path], policy: str) -> Arguments:
    """Return the best setting of a policy in the tuning worlds; of equal ones the first."""
    shipped = label(policy, {})
    allowed = [each for each in TRIED[policy].settings() if may_be_chosen(found, worlds, label(policy, each), shipped)]
    return min(allowed, key=lambda each: objective(found, worlds, label(policy, each)))


def cells(judged: Results, worlds: Sequence[Path], name: str) -> list[str]:
    """Return hot minutes beside the default's, the part of the gap closed, overruns and unplaced pods a world."""
    default, made = [], []
    hot = [f"hot_minutes_{percent}" for percent in HOT_PERCENTS]
    for measure in hot:
        before, after = total(judged, worlds, label(DEFAULT, {}), measure), total(judged, worlds, name, measure)
        made.append(f"{100 * (after / before - 1):.0f}" if before else "")
    default, best, own = (
        total(judged, worlds, each, "hot_minutes_80") for each in (label(DEFAULT, {}), CLAIRVOYANT, name)
    )
    made.append(f"{100 * (default - own) / (default - best):.0f}" if default > best else "")
    return [*made, *(f"{total(judged, worlds, name, measure) / len(worlds):,.1f}" for measure in HARM)]


def main(tuning: Sequence[Path], judging: Sequence[Path], names: Sequence[str], kept: ResultStore, jobs: int) -> None:
    """Tune, judge, and print a table."""
    default = label(DEFAULT, {})
    tried = [label(name, each) for name in names for each in TRIED[name].settings()]
    tuned = results("tuning", tuning, [default, *tried], kept, jobs)
    best = {name: chosen(tuned, tuning, name) for name in names}
    wanted = [label(name, each) for name, other in best.items() for each in ({}, other)]
    judged = results("judging", judging, [default, CLAIRVOYANT, *wanted], kept, jobs)
    print(f"\nTuned in {len(tuning)} worlds, judged in {len(judging)} others\n")
    hot = " | ".join(f"{'at ' if place else 'hot minutes at '}{p} %" for place, p in enumerate(HOT_PERCENTS))
    print(f"| policy | setting | tuned by | {hot} | gap closed, % | overruns | unplaced |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in names:
        said = f"shipped: {setting(TRIED[name].shipped)}"
        for each in [{}, best[name]] if best[name] else [{}]:
            row = [f"{objective(tuned, tuning, label(name, each)):.2f}", *cells(judged, judging, label(name, each))]
            first = f"`{name}`" if not each else ""
            told = setting(each) if each else said if best[name] else f"{said}; chosen"
            print(f"| {first} | {told} | {' | '.join(row)} |")


def drawn(folder: Path, seeds: Iterable[int]) -> list[Path]:
    """Draw synthetic worlds."""
    worlds = [folder / f"seed-{seed}" for seed in seeds]
    for seed, world in zip(seeds, worlds, strict=True):
        write_trace(Synthetic(seed, 30 + 10 * (seed % 3), 36 * 60, 8 * 60).trace(), world)
    return worlds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--judge", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--policy", nargs="+", choices=list(TRIED), default=list(TRIED), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--resume-file", type=Path, metavar="FILE")
    options = parser.parse_args()
    try:
        keep = ResultStore(options.resume_file, program_version())
    except (OSError, ValueError) as error:
        parser.error(f"--resume-file {options.resume_file}: {error}")
    with tempfile.TemporaryDirectory() as folder:
        main(
            options.tune or drawn(Path(folder), TUNING_SEEDS), options.judge or drawn(Path(folder), JUDGING_SEEDS),
            options.policy, keep, options.jobs,
        )  # fmt: skip
