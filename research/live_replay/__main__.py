"""Live replay: worlds played on a real control plane with the services as they ship, and compared with the simulator.

    python research/live_replay run FOLDER --world DIR... [--policy NAME[+MOVER]...] [--runs 3] [--from-hour 12]
        [--hours 12] [--warm-up-hours HOURS/4] [--speed 20] [--form bare] [--deadline-seconds 0.04]
    python research/live_replay history FOLDER --world DIR... [--from-hour 12]
    python research/live_replay check FOLDER [--change no-levels|double-windows|late-metrics|no-history]
    python research/live_replay outcome FOLDER [--seeds 8]

``run`` plays cuts of worlds on etcd, kube-apiserver, kube-scheduler and KWOK's nodes, at most 20 times as fast as life,
into ``FOLDER/WORLD/POLICY/RUN``; a run whose outcome is there is skipped. ``check`` scores every recorded decision of
runs without moves with the simulator's classes, ``outcome`` compares the hot minutes with those of the simulator.
``history`` lets a watcher learn the past of worlds, at the speed of life, into ``FOLDER/WORLD``, and ``check`` compares
what it learned with a replay's learner. This shows that live equals the simulator, and no benefit on real machines. The
programs are built first: see tests/control_plane/README.md.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from control_plane.world_player import PodForm
from cut import cut
from decisions import check_decisions
from learned_levels import LEVELS, check_levels, live_levels
from live import BY_REQUESTS, HIGHEST_SPEED, POLICIES, LiveOptions, live_run
from outcomes import MEASURE, read_outcomes, summary
from recorded_inputs import Change

from trimaran.simulator.policies.catalogue import DEFAULT
from trimaran.traces.reading import read_trace

_LEARNED_MINUTES = 25  # of the trace that Prometheus knows beforehand; promtool drops samples half an hour ahead


def run(options: argparse.Namespace) -> int:
    """Play the worlds, one after the other; print the hot minutes of each run. Return 1 if one failed or was late."""
    failures = 0
    for number in range(1, options.runs + 1):
        for world in options.world:
            minutes, warm_up = round(60 * options.hours), round(60 * (options.warm_up_hours or options.hours / 4))
            trace = cut(read_trace(world), round(60 * options.from_hour), minutes, warm_up)
            for policy in options.policy or [DEFAULT, BY_REQUESTS]:
                folder = options.folder / world.name / policy / str(number)
                if (folder / "outcome.json").exists():
                    continue
                settings = LiveOptions(policy, options.speed, PodForm(options.form), options.deadline_seconds)
                began = time.monotonic()
                shutil.rmtree(folder, ignore_errors=True)  # what a run that did not end has left
                try:
                    measured = live_run(trace, settings, folder)
                except (pytest.fail.Exception, requests.RequestException) as failure:  # the other runs go on
                    print(f"{folder}: {failure}", file=sys.stderr, flush=True)
                    failures += 1
                    continue
                seconds, hot = time.monotonic() - began, measured["measures"][MEASURE]
                print(f"{folder}: {hot:.0f} hot minutes, played in {seconds:.0f} s", flush=True)
                if not measured["in_time"]:
                    print(f"{folder}: the machine was too slow: try a lower --speed", file=sys.stderr, flush=True)
                    failures += 1
    return int(failures > 0)


def history(options: argparse.Namespace) -> int:
    """Let a watcher learn the past of each world."""
    for world in options.world:
        trace = cut(read_trace(world), round(60 * options.from_hour), _LEARNED_MINUTES, 2)
        live_levels(trace, options.folder / world.name)
    return 0


def check(options: argparse.Namespace) -> int:
    """Check the decisions and the learned levels of all runs; return 1 if one fails, or there is none."""
    passed, change = [], Change(options.change)
    for folder in _runs(options.folder) if change is not Change.NO_HISTORY else ():
        if not (folder / "journal.jsonl").exists():
            continue  # the default scheduler has no extender, and runs with moves keep no journal
        report = check_decisions(folder, read_trace(folder / "world"), change)
        passed.append(report.passes)
        print(folder, json.dumps(report.as_document()), flush=True)
    for path in sorted(options.folder.rglob(LEVELS)) if change in {Change.NONE, Change.NO_HISTORY} else ():
        learned = check_levels(path.parent, read_trace(path.parent / "world"), with_history=change is Change.NONE)
        passed.append(learned["passes"])
        print(path.parent, json.dumps(learned), flush=True)
    return int(not (passed and all(passed)))


def outcome(options: argparse.Namespace) -> int:
    """Print the ratios of live to simulated hot minutes; return 1 if one is out of its bounds."""
    result = summary(read_outcomes(_runs(options.folder), options.seeds))
    print(json.dumps(result, indent=1))
    return int(not all(policy["passes"] for policy in result.values()))


def _runs(folder: Path) -> Iterator[Path]:
    return (path.parent for path in sorted(folder.rglob("outcome.json")))


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for command in (run, history, check, outcome):
        added = commands.add_parser(command.__name__, help=command.__doc__)
        added.add_argument("folder", type=Path)
        added.set_defaults(command=command)
        if command in (run, history):
            added.add_argument("--world", type=Path, nargs="+", required=True)
            added.add_argument("--from-hour", type=float, default=12)
        if command is run:
            added.add_argument("--policy", choices=POLICIES, nargs="+")
            added.add_argument("--hours", type=float, default=12)
            added.add_argument("--warm-up-hours", type=float, default=0)
            added.add_argument("--deadline-seconds", type=float, default=0.04)
            added.add_argument("--runs", type=int, default=3)
            added.add_argument("--speed", type=int, default=HIGHEST_SPEED)
            added.add_argument("--form", choices=list(PodForm), default=PodForm.BARE)
        elif command is check:
            added.add_argument("--change", choices=list(Change), default=Change.NONE)
        elif command is outcome:
            added.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    status: int = options.command(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
