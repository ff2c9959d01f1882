"""Many replays: every policy in every world, one after the other or side by side; what is done is kept."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

from trimaran.simulator.heat_map import HeatMap, heat_map
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.saving import nodes_saved
from trimaran.traces.events import EVENTS
from trimaran.traces.trace import NODES, PODS, USAGE, WORLD, read_trace, world_name

Comparison = dict[str, dict[str, dict[str, float]]]
"""World to policy to measure to number."""

_CONNECT_SECONDS = 10
_LOGGER = logging.getLogger(__name__)
_KEPT = ("measures", "decisions", "processor_seconds", "heat")  # of what is done
_KEPT_LINE = b'{"key": '  # how each line of a file with it begins


class SchedulerError(Exception):
    """Replays cannot be made on a Dask cluster; the message says why, and what to do."""


@dataclass(frozen=True)
class ReplayTask:
    """One replay to make.

    Attributes:
        folder: the trace's.
        policy: its name in the catalogue.
        options: of the replay.
        nodes_saved: measure also how many nodes the policy saves.
        heat: return also how hot each node was over time.
    """

    folder: Path
    policy: str
    options: ReplayOptions
    nodes_saved: bool = False
    heat: bool = False


@dataclass(frozen=True)
class ReplayResult:
    """A replay that was made.

    Attributes:
        task: what was asked.
        measures: see :mod:`trimaran.simulator.measures`.
        decisions: how many pods were placed.
        processor_seconds: what it cost.
        heat: CPU use in percent, a row a node, if it was asked for; see :func:`trimaran.simulator.heat_map.heat_map`.
    """

    task: ReplayTask
    measures: Mapping[str, float]
    decisions: int
    processor_seconds: float
    heat: HeatMap | None = None


def run_replay(task: ReplayTask) -> ReplayResult:
    """Make a replay.

    Raises:
        TraceError: its trace cannot be read.
        KeyError: there is no such policy.
    """
    trace = read_trace(task.folder)
    began = process_time()
    known = policies(trace)
    outcome = Replay(trace, known[task.policy], task.options).run()
    made = measures(outcome)
    if task.nodes_saved:
        default = measures(Replay(trace, known[DEFAULT], task.options).run())
        saved = nodes_saved(trace, known[task.policy], default, task.options)
        made["nodes_saved_percent"] = round(100 * saved / len(trace.nodes), 3)
    hot = heat_map(outcome) if task.heat else None
    return ReplayResult(task, made, outcome.decisions, process_time() - began, hot)


def run_replays(tasks: Sequence[ReplayTask], jobs: int = 1, scheduler: str = "") -> Iterator[ReplayResult]:
    """Make replays, and yield each as soon as it is done, in no certain order when several are made at once.

    Args:
        tasks: what to make.
        jobs: processes to make them in; more than one needs joblib.
        scheduler: a Dask scheduler's address, such as ``tcp://10.0.0.1:8786``, to make them on its workers instead.

    Raises:
        ModuleNotFoundError: joblib, or Dask, is not installed.
        SchedulerError: the Dask scheduler cannot be reached, or its workers cannot make them.
    """
    if scheduler:
        yield from _run_on_dask(tasks, scheduler)
    elif jobs == 1:
        yield from map(run_replay, tasks)
    else:
        joblib = import_module("joblib")
        made = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
            joblib.delayed(run_replay)(t) for t in tasks
        )
        yield from made


def _run_on_dask(tasks: Sequence[ReplayTask], scheduler: str) -> Iterator[ReplayResult]:
    distributed = import_module("distributed")
    try:
        client = distributed.Client(scheduler, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"the Dask scheduler {scheduler} cannot be used: {error}; is --scheduler right?"
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            _LOGGER.warning("the Dask scheduler %s has no workers; replays wait until it has", scheduler)
        asked = [replace(task, folder=task.folder.absolute()) for task in tasks]  # workers run in folders of their own
        futures = client.map(run_replay, asked, pure=False)
        by_key = {future.key: task for future, task in zip(futures, tasks, strict=True)}
        for future in distributed.as_completed(futures):
            try:
                done = future.result()
            except (distributed.KilledWorker, ModuleNotFoundError) as error:
                raise SchedulerError(
                    f"a worker of {scheduler} failed: {error}; is trimaran installed there?"
                ) from error
            yield replace(done, task=by_key[future.key])


class ResultStore:
    """What was done before, in a file with one line for each replay: an interrupted comparison goes on from it.

    A replay is known by its trace's bytes, its policy and its options; of another trace or program it is made again.

    Args:
        path: the file, made where there is none; None keeps nothing.
        program: what made it, as :func:`program` tells it.

    Raises:
        OSError: the file cannot be read and written.
        ValueError: it holds something else.
    """

    def __init__(self, path: Path | None, program_version: str) -> None:
        self._path, self._program = path, program_version
        self._digests: dict[Path, str] = {}
        self._known: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        with path.open("a+b") as file:
            file.seek(0)
            content = file.read()
            if content.strip() and not content.startswith(_KEPT_LINE[: len(content)]):
                raise ValueError("holds something else than replays that were kept; name a file of its own")
            if content and not content.endswith(b"\n"):
                file.write(b"\n")  # after a line that was being written when the program was killed
        for line in content.splitlines():
            try:
                entry = json.loads(line)
                self._known[entry["key"]] = {name: entry[name] for name in _KEPT}
            except (ValueError, KeyError, TypeError):
                continue

    def find(self, task: ReplayTask) -> ReplayResult | None:
        """Return a replay that was made before, with all that is asked for."""
        known = None if self._path is None else self._known.get(self._key(task))
        return None if known is None or (task.heat and known["heat"] is None) else ReplayResult(task, **known)

    def add(self, done: ReplayResult) -> None:
        """Keep what was made."""
        if self._path is None:
            return
        entry: dict[str, Any] = {
            "key": self._key(done.task), "world": str(done.task.folder), "policy": done.task.policy,
            **{name: getattr(done, name) for name in _KEPT},
        }  # fmt: skip
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _key(self, task: ReplayTask) -> str:
        folder = task.folder
        if folder not in self._digests:
            digest = sha256()
            for name in (WORLD, NODES, PODS, USAGE, EVENTS):
                if (folder / name).exists():
                    digest.update((folder / name).read_bytes())
            self._digests[folder] = digest.hexdigest()
        said = json.dumps(
            [self._program, self._digests[folder], task.policy, asdict(task.options), task.nodes_saved], sort_keys=True
        )
        return sha256(said.encode()).hexdigest()


REPLAY_PACKAGES = ("runtime", "scoring", "trimaran.simulator", "trimaran.soft_taints", "trimaran.traces", "watcher")
"""The packages whose source makes a replay what it is."""


def program_version(packages: Sequence[str] = REPLAY_PACKAGES) -> str:
    """Return what tells programs apart by what they make of a replay: the version, and a digest of packages' source.

    The version alone does not: it stays the same from commit to commit.
    """
    digest = sha256()
    for package in packages:
        root = Path(str(import_module(package).__file__)).parent
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(root).as_posix()}".encode() + b"\0")
            digest.update(sha256(path.read_bytes()).digest())
    return f"{version('trimaran')} {digest.hexdigest()}"


def world_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return what each world is called: its folder's name, or the path as it was given where several have one name."""
    names = [world_name(folder) for folder in folders]
    return {f: n if names.count(n) == 1 else str(f) for f, n in zip(folders, names, strict=True)}
