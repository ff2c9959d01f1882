"""Study of tuning: does the rank of a policy depend on its settings?

A world is a trace that the simulator replays. Each policy has eight settings (``tuning_settings.py``), the first of
which is the shipped one. Each setting is replayed in each *tuning* world. The best setting has the fewest hot
node-minutes at 75 and at 85 percent, added up, relative to those of the default scheduler as shipped in the same world,
on average over worlds. (No report shows these two percentages.) A setting that leads to more memory overruns or
unplaced pods, added up over the tuning worlds, than the shipped one cannot be chosen; up to 10 percent more, plus five
per world, count as chance.

Then the shipped and the best setting are replayed in *other* worlds. The report has the hot minutes at 70, 80 and 90
percent, added up over these worlds, compared with the default scheduler's as shipped, in percent (negative: fewer).

    python research/tuning.py [--tune DIR ...] [--judge DIR ...] [--policy NAME ...] [--jobs N] [--resume-file FILE]

Worlds are folders as ``trimaran simulate`` reads them; without folders, synthetic worlds are generated. With
``--resume-file FILE`` every finished replay is stored, and a later run resumes there. Random placement has no settings;
the clairvoyant greedy and the oracle know the future, so they serve only for comparison. All policies take more than an
hour.
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
from tuning_settings import TUNED_POLICIES, Arguments

from trimaran.simulator.comparison import ReplayResult, ReplayTask, ResultStore, program_version
from trimaran.simulator.measures import HOT_PERCENTS, hot_minutes, measures
from trimaran.simulator.policies.catalogue import CLAIRVOYANT, DEFAULT, policies
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import write_trace

TUNED_PERCENTS = (75, 85)
TUNING_SEEDS, JUDGING_SEEDS = range(1, 5), range(5, 9)
HARM = ("memory_overrun_minutes", "unplaced_pods")
CHANCE_PART, CHANCE_A_WORLD = 0.1, 5

Results = dict[tuple[Path, str], Mapping[str, float]]
"""Measures, such as hot minutes, by world (the folder of a trace) and label (a policy with a setting)."""


def describe(arguments: Arguments) -> str:
    return ", ".join(f"{name} {value}" for name, value in arguments.items())


def label(policy: str, change: Arguments) -> str:
    return f"{policy}: {describe(change) or 'as shipped'}"


BY_LABEL = {label(name, change): (tuned, change) for name, tuned in TUNED_POLICIES.items() for change in tuned.changes}


def run_replay(task: ReplayTask) -> ReplayResult:
    """Run a replay; the policy of the task is a label (a policy with a setting), or the clairvoyant policy."""
    start, trace = process_time(), read_trace(task.folder)
    if task.policy == CLAIRVOYANT:
        policy = policies(trace)[CLAIRVOYANT]
    else:
        tuned, change = BY_LABEL[task.policy]
        policy = tuned.build(trace, change)
    outcome = Replay(trace, policy, task.options).run()
    measured = measures(outcome)
    measured |= {f"hot_minutes_{percent}": hot_minutes(outcome, percent) for percent in TUNED_PERCENTS}
    return ReplayResult(task, measured, outcome.decisions, process_time() - start)


def run_replays(stage: str, worlds: Sequence[Path], labels: Iterable[str], store: ResultStore, jobs: int) -> Results:
    """Return the measures of replays; run only the replays whose results are not in the store.

    Args:
        stage: name of the stage, for the progress bar.
        worlds: folders of the traces to replay.
        labels: policies with settings, each replayed in each world.
        store: store of the results.
        jobs: number of parallel processes.
    """
    tasks = [ReplayTask(world, name, ReplayOptions()) for world in worlds for name in dict.fromkeys(labels)]
    results = {task: store.find(task) for task in tasks}
    missing = [task for task, result in results.items() if result is None]
    calls = (joblib.delayed(run_replay)(task) for task in missing)
    finished = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)
    with click.progressbar(finished, length=len(missing), label=f"{stage}, replays", file=sys.stderr) as bar:
        for result in bar:
            store.add(result)
            results[result.task] = result
    return {(task.folder, task.policy): result.measures for task, result in results.items() if result is not None}


def total(results: Results, worlds: Iterable[Path], name: str, measure: str) -> float:
    """Return the sum of a measure over worlds, for the label ``name`` (a policy with a setting)."""
    return sum(results[world, name][measure] for world in worlds)


def objective(results: Results, worlds: Sequence[Path], name: str) -> float:
    """Return the number that tuning minimizes for a label (a policy with a setting): relative hot minutes.

    It is the sum of the hot minutes at 75 and at 85 percent, divided by the default scheduler's, on average over
    worlds.
    """

    def hot(world: Path, policy: str) -> float:
        return sum(results[world, policy][f"hot_minutes_{percent}"] for percent in TUNED_PERCENTS)

    return fmean(hot(world, name) / max(hot(world, label(DEFAULT, {})), 1.0) for world in worlds)


def is_allowed(results: Results, worlds: Sequence[Path], name: str, shipped: str) -> bool:
    """Return whether a setting leads to no more memory overruns and unplaced pods than the shipped one, but for chance.

    Args:
        results: measures of the replays.
        worlds: tuning worlds.
        name: label of the setting.
        shipped: label of the shipped setting.
    """
    for measure in HARM:
        limit = (1 + CHANCE_PART) * total(results, worlds, shipped, measure) + CHANCE_A_WORLD * len(worlds)
        if total(results, worlds, name, measure) > limit:
            return False
    return True


def choose(results: Results, worlds: Sequence[Path], policy: str) -> Arguments:
    """Return the best setting of a policy in the tuning worlds, as its changes; the first of equally good settings."""
    labels = {label(policy, change): change for change in TUNED_POLICIES[policy].changes}
    allowed = [name for name in labels if is_allowed(results, worlds, name, label(policy, {}))]
    return labels[min(allowed, key=lambda name: objective(results, worlds, name))]


def format_cells(results: Results, worlds: Sequence[Path], name: str) -> list[str]:
    """Return the cells of a label's row in the report.

    These are the change of the hot minutes from the default scheduler's in percent, at 70, 80 and 90 percent; how far
    the hot minutes get from the default scheduler's to the clairvoyant policy's, in percent; and the memory overruns
    and unplaced pods per world.
    """
    cells = []
    for percent in HOT_PERCENTS:
        before, after = (total(results, worlds, each, f"hot_minutes_{percent}") for each in (label(DEFAULT, {}), name))
        cells.append(f"{100 * (after / before - 1):.0f}" if before else "")
    policies_of_gap = label(DEFAULT, {}), CLAIRVOYANT, name
    default, best, reached = (total(results, worlds, policy, "hot_minutes_80") for policy in policies_of_gap)
    cells.append(f"{100 * (default - reached) / (default - best):.0f}" if default > best else "")
    return [*cells, *(f"{total(results, worlds, name, measure) / len(worlds):,.1f}" for measure in HARM)]


def main(tuning: Sequence[Path], judging: Sequence[Path], names: Sequence[str], store: ResultStore, jobs: int) -> None:
    """Choose the best setting of each policy in the tuning worlds, replay it in the judging worlds, print a table."""
    default = label(DEFAULT, {})
    candidates = [label(name, change) for name in names for change in TUNED_POLICIES[name].changes]
    tuned = run_replays("tuning", tuning, [default, *candidates], store, jobs)
    best = {name: choose(tuned, tuning, name) for name in names}
    finalists = [label(name, change) for name, chosen in best.items() for change in ({}, chosen)]
    judged = run_replays("judging", judging, [default, CLAIRVOYANT, *finalists], store, jobs)
    print(f"\nTuned in {len(tuning)} worlds, judged in {len(judging)} others\n")
    hot = " | ".join(f"{'at ' if place else 'hot minutes at '}{p} %" for place, p in enumerate(HOT_PERCENTS))
    print(f"| policy | setting | tuned by | {hot} | gap closed, % | overruns | unplaced |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in names:
        shipped = f"shipped: {describe(TUNED_POLICIES[name].shipped)}"
        for change in [{}, best[name]] if best[name] else [{}]:
            key = label(name, change)
            cells = [f"{objective(tuned, tuning, key):.2f}", *format_cells(judged, judging, key)]
            setting = describe(change) if change else shipped if best[name] else f"{shipped}; chosen"
            print(f"| {'' if change else f'`{name}`'} | {setting} | {' | '.join(cells)} |")


def draw_worlds(folder: Path, seeds: Iterable[int]) -> list[Path]:
    """Generate a synthetic world (trace) for each seed, and write it to a folder; return the folders."""
    worlds = [folder / f"seed-{seed}" for seed in seeds]
    for seed, world in zip(seeds, worlds, strict=True):
        write_trace(Synthetic(seed, 30 + 10 * (seed % 3), 36 * 60, 8 * 60).trace(), world)
    return worlds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--judge", type=Path, nargs="+", metavar="DIR")
    parser.add_argument(
        "--policy", nargs="+", choices=list(TUNED_POLICIES), default=list(TUNED_POLICIES), metavar="NAME"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--resume-file", type=Path, metavar="FILE")
    options = parser.parse_args()
    try:
        results = ResultStore(options.resume_file, program_version())
    except (OSError, ValueError) as error:
        parser.error(f"--resume-file {options.resume_file}: {error}")
    with tempfile.TemporaryDirectory() as folder:
        main(
            options.tune or draw_worlds(Path(folder), TUNING_SEEDS),
            options.judge or draw_worlds(Path(folder), JUDGING_SEEDS), options.policy, results, options.jobs,
        )  # fmt: skip
