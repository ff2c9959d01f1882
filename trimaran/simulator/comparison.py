"""Comparison of policies over worlds, the replayed traces.

Replays run one after another, in parallel processes or on a Dask cluster, and their results are stored.
"""

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

from runtime.parsing import parse_json
from trimaran.plugins import installed_plugins, plugin_packages, read_scheduler_file
from trimaran.scheduler.framework.node_sampling import sample_percent
from trimaran.simulator.heat_map import HeatMap, heat_map
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.policies.profiles import configured_policy
from trimaran.simulator.policies.standalone import standalone_policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.simulator.saving import nodes_saved
from trimaran.traces.events import EVENTS
from trimaran.traces.history import HISTORY, HISTORY_USE
from trimaran.traces.reading import read_trace
from trimaran.traces.trace import NODES, PODS, USAGE, WORLD, world_name

Comparison = dict[str, dict[str, dict[str, float]]]
"""Measures by world, policy and measure name."""

_CONNECT_SECONDS = 10
_LOGGER = logging.getLogger(__name__)
_STORED_FIELDS = ("measures", "decisions", "processor_seconds", "heat")  # fields of a result that the file stores
_LINE_START = b'{"key": '  # start of each line of a result file


class WorkerError(Exception):
    """Replays cannot run in a worker or on the Dask cluster; the message names the cause and the remedy."""


@dataclass(frozen=True)
class ReplayTask:
    """Replay to run.

    Attributes:
        folder: the trace's folder.
        policy: the policy's name, in the catalogue unless the task has a configuration.
        options: options of the replay.
        nodes_saved: also measure the number of nodes that the policy saves.
        heat: also return a heat map of the nodes.
        configuration: KubeSchedulerConfiguration of the policy, as JSON; empty for a policy of the catalogue.
        standalone: ``trimaran scheduler`` carries the configuration out, not kube-scheduler with the extender.
    """

    folder: Path
    policy: str
    options: ReplayOptions
    nodes_saved: bool = False
    heat: bool = False
    configuration: str = ""
    standalone: bool = False


@dataclass(frozen=True)
class ReplayResult:
    """Result of a finished replay.

    Attributes:
        task: the task that was run.
        measures: measures by name; see :mod:`trimaran.simulator.measures`.
        decisions: number of placements.
        processor_seconds: CPU time of the replay.
        heat: heat map of the nodes, if the task asks for it; see :func:`trimaran.simulator.heat_map.heat_map`.
    """

    task: ReplayTask
    measures: Mapping[str, float]
    decisions: int
    processor_seconds: float
    heat: HeatMap | None = None


def run_replay(task: ReplayTask) -> ReplayResult:
    """Run a replay and measure it.

    Raises:
        TraceError: the trace cannot be read.
        KeyError: no policy has the task's policy name.
        ValueError: the task's configuration is not valid.
    """
    trace = read_trace(task.folder)
    started = process_time()
    catalogue, options = policies(trace), task.options
    if task.configuration:
        document = parse_json(task.configuration)
        if task.standalone:
            catalogue[task.policy] = standalone_policy(task.policy, document, options.objects)
        else:
            catalogue[task.policy] = configured_policy(task.policy, document, learned_use=options.learned_use)
        options = replace(options, percent_of_nodes=sample_percent(document, default=options.percent_of_nodes))
    policy = catalogue[task.policy]
    outcome = Replay(trace, policy, options).run()
    measured = measures(outcome)
    if task.nodes_saved:
        default = measures(Replay(trace, catalogue[DEFAULT], task.options).run())
        saved = nodes_saved(trace, policy, default, task.options)
        measured["nodes_saved_percent"] = round(100 * saved / len(trace.nodes), 3)
    heat = heat_map(outcome) if task.heat else None
    return ReplayResult(task, measured, outcome.decisions, process_time() - started, heat)


def run_replays(tasks: Sequence[ReplayTask], jobs: int = 1, scheduler: str = "") -> Iterator[ReplayResult]:
    """Run replays and yield the results as they finish; parallel replays finish in any order.

    Args:
        tasks: the replays to run.
        jobs: number of processes; more than one needs joblib.
        scheduler: address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``, whose workers run the replays instead.

    Raises:
        ModuleNotFoundError: joblib or Dask is not installed.
        WorkerError: the Dask scheduler cannot be reached, its workers fail, or a worker does not have a plugin.
    """
    if scheduler:
        yield from _run_on_dask(tasks, scheduler)
    elif jobs == 1:
        yield from map(run_replay, tasks)
    else:
        joblib = import_module("joblib")
        run = partial(_run_in_worker, packages=plugin_packages())
        calls = (joblib.delayed(run)(task) for task in tasks)
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls)


def _run_in_worker(task: ReplayTask, packages: Mapping[str, str]) -> ReplayResult:
    """Run a replay in another process, which may not have the plugins of the process that started the comparison.

    Args:
        task: the replay.
        packages: packages of the plugins that are installed where the comparison was started, by the plugin's name.

    Raises:
        WorkerError: a plugin of the task's configuration is missing here, has another version, or cannot be loaded.
    """
    if task.configuration:
        try:
            used = read_scheduler_file(parse_json(task.configuration), allow=None).enabled & packages.keys()
        except ValueError as error:
            raise WorkerError(f"{_worker()}: {error}") from error
        for name in sorted(used):
            if packages[name] != plugin_packages().get(name):
                raise WorkerError(
                    f"{_worker()} does not have the plugin {name} of {packages[name]}, which the policy {task.policy} "
                    f"needs; pip install {packages[name]} in the worker's environment"
                )
    return run_replay(task)


def _worker() -> str:
    """Return the name of the current worker: its address in Dask, otherwise its process."""
    process = f"process {os.getpid()} on {socket.gethostname()}"
    if "distributed" in sys.modules:
        try:
            return f"the worker {sys.modules['distributed'].get_worker().address} ({process})"
        except ValueError:  # not in a task of Dask
            pass
    return f"the worker {process}"


def _run_on_dask(tasks: Sequence[ReplayTask], scheduler: str) -> Iterator[ReplayResult]:
    distributed = import_module("distributed")
    try:
        client = distributed.Client(scheduler, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise WorkerError(f"the Dask scheduler {scheduler} cannot be used: {error}; check --scheduler") from error
    with client:
        if not client.scheduler_info()["workers"]:
            _LOGGER.warning("the Dask scheduler %s has no workers; replays wait for the first", scheduler)
        # Workers have other working directories, so their tasks have absolute paths.
        absolute = [replace(task, folder=task.folder.absolute()) for task in tasks]
        futures = client.map(partial(_run_in_worker, packages=plugin_packages()), absolute, pure=False)
        by_key = {future.key: task for future, task in zip(futures, tasks, strict=True)}
        for future in distributed.as_completed(futures):
            try:
                done = future.result()
            except (distributed.KilledWorker, ModuleNotFoundError) as error:
                raise WorkerError(f"a worker of {scheduler} failed: {error}; is trimaran installed there?") from error
            yield replace(done, task=by_key[future.key])


class ResultStore:
    """Results of finished replays in a file with one JSON line per replay, so that a comparison can resume.

    The key of a result is a digest of the program version, the trace's files, the policy and the options. A replay with
    another key runs again.

    Args:
        path: the file, created if missing; None stores nothing.
        program: the program version; see :func:`program_version`.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: the file is not a result file.
    """

    def __init__(self, path: Path | None, program_version: str) -> None:
        self._path, self._program = path, program_version
        self._digests: dict[Path, str] = {}
        self._stored: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        with path.open("a+b") as file:
            file.seek(0)
            content = file.read()
            if content.strip() and not content.startswith(_LINE_START[: len(content)]):
                raise ValueError("is not a file of stored replays; name another file")
            # Ends a line that was incomplete when the program was killed.
            if content and not content.endswith(b"\n"):
                file.write(b"\n")
        for line in content.splitlines():
            try:
                entry = parse_json(line)
                self._stored[entry["key"]] = {name: entry[name] for name in _STORED_FIELDS}
            except (ValueError, KeyError, TypeError):
                continue

    def find(self, task: ReplayTask) -> ReplayResult | None:
        """Return the stored result of a task, or None if it is missing or lacks the task's heat map."""
        stored = None if self._path is None else self._stored.get(self._key(task))
        return None if stored is None or (task.heat and stored["heat"] is None) else ReplayResult(task, **stored)

    def add(self, done: ReplayResult) -> None:
        """Append a result to the file."""
        if self._path is None:
            return
        entry: dict[str, Any] = {
            "key": self._key(done.task), "world": str(done.task.folder), "policy": done.task.policy,
            **{name: getattr(done, name) for name in _STORED_FIELDS},
        }  # fmt: skip
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _key(self, task: ReplayTask) -> str:
        folder = task.folder
        if folder not in self._digests:
            digest = sha256()
            for name in (WORLD, NODES, PODS, USAGE, EVENTS, HISTORY, HISTORY_USE):
                if (folder / name).exists():
                    digest.update((folder / name).read_bytes())
            self._digests[folder] = digest.hexdigest()
        identity = json.dumps(
            [
                self._program,
                self._digests[folder],
                task.policy,
                task.configuration,
                task.standalone,
                asdict(task.options),
                task.nodes_saved,
            ],
            sort_keys=True,
        )
        return sha256(identity.encode()).hexdigest()


REPLAY_PACKAGES = (
    "client",
    "runtime",
    "scoring",
    "trimaran.cluster",
    "trimaran.extender",
    "trimaran.kube_scheduler",
    "trimaran.parts",
    "trimaran.planning",
    "trimaran.plugins",
    "trimaran.rebalancer",
    "trimaran.scheduler",
    "trimaran.simulator",
    "trimaran.soft_taints",
    "trimaran.traces",
    "watcher",
)
"""Packages whose source code determines the result of a replay."""


def program_version(packages: Sequence[str] = REPLAY_PACKAGES) -> str:
    """Return the project's version and a digest of the source code that determines the result of a replay.

    The version alone is not enough, because it does not change from commit to commit. The digest includes the installed
    score plugins.
    """
    digest = sha256()
    plugins = dict.fromkeys(plugin.__module__.partition(".")[0] for plugin in installed_plugins())
    for package in (*packages, *plugins):
        file = Path(str(import_module(package).__file__))
        root = file.parent
        for path in sorted(root.rglob("*.py")) if file.name == "__init__.py" else [file]:
            digest.update(f"{package}/{path.relative_to(root).as_posix()}".encode() + b"\0")
            digest.update(sha256(path.read_bytes()).digest())
    return f"{version('trimaran')} {digest.hexdigest()}"


def world_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return each world's name: its folder's name, or the given path if several folders have the same name."""
    names = [world_name(folder) for folder in folders]
    return {
        folder: name if names.count(name) == 1 else str(folder) for folder, name in zip(folders, names, strict=True)
    }
