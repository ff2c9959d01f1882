"""Harm in full clusters: what the manifest's file does to hot nodes, waits and memory in worlds that nobody tuned.

A world is a trace that the simulator replays. There are four generated worlds and four recombined ones, as they are and
with as many nodes as make the pods request 70, 80, 85, 90 and 95 percent of the CPU: nodes are removed, or repeated, in
random order. With 90 percent they are also replayed with an autoscaler. Every world is replayed by kube-scheduler's
default plugins and by the file in ``deploy/kubernetes/extender.yaml``, with each seed.

A measure of a world is *worse* if its mean over the seeds exceeds the default's by more than the default's standard
deviation over the seeds. Such a world is also replayed with the same pods: only those that got a node by the default,
each arriving when it got it. A difference that remains is due to the choice of nodes, and not to pods that no longer
wait. The verdict is that of ``trimaran doctor --worth-it`` at the busiest of the moments, two hours apart, in the
default's first replay.

Prints CSV, or with ``--markdown`` the sums over the worlds of a kind and the measures that are worse. FOLDER keeps the
worlds and the finished replays, and the same command continues an interrupted one. After a change of the code use
another folder.

    python research/no_harm.py FOLDER TRACE TRACE TRACE TRACE ... [--seeds 4] [--jobs 2] [--markdown]
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import joblib
import numpy as np
import yaml
from benefit_verdicts import Judging
from recombined import check, job_mask, mean_requests, recombine

from trimaran.simulator.autoscaling import Autoscaling
from trimaran.simulator.cluster import Cluster
from trimaran.simulator.measures import measures
from trimaran.simulator.policies.catalogue import DEFAULT, policies
from trimaran.simulator.policies.profiles import configured_policy
from trimaran.simulator.replay import Replay, ReplayOptions
from trimaran.traces.reading import read_trace
from trimaran.traces.synthetic import Synthetic
from trimaran.traces.trace import PodUse, Trace, write_trace

MANIFEST = Path(__file__).parents[1] / "deploy/kubernetes/extender.yaml"
SHIPPED, SAME_PODS = "as shipped", "as shipped, same pods"
AUTOSCALED = "-autoscaled"
WORLDS, FILLS, AUTOSCALED_FILL = 4, (70, 80, 85, 90, 95), 90
FIRST_GENERATED, RECOMBINED_SEED, FILL_SEED = 401, 51, 52
GENERATED = {"nodes": 30, "minutes": 36 * 60, "warm_up_minutes": 8 * 60}
_VERDICT_MINUTES = 120
JUDGED = ("hot_minutes_80", "waited_pod_minutes", "memory_overrun_minutes")
MEASURES = (*JUDGED, "hot_minutes_70", "hot_minutes_90", "unplaced_pods", "node_minutes", "cpu_used_percent")
COLUMNS = (
    "world", "cpu_requested", "memory_requested", "verdict", "policy", "seeds", *MEASURES,
    *(f"{name}_deviation" for name in JUDGED), "worse",
)  # fmt: skip

Row = dict[str, Any]


def filled(trace: Trace, percent: int, name: str) -> Trace:
    """Return a world with as many of its nodes, or of copies, as make the pods request a share of all CPU.

    Args:
        trace: the world.
        percent: requested share of allocatable CPU after the warm-up, if every pod starts when it arrives.
        name: name of the new world.
    """
    wanted = mean_requests(trace, trace.cpu_request_milli) / trace.overcommit[0] / (percent / 100)
    order = np.random.default_rng([FILL_SEED, percent]).permutation(len(trace.nodes))
    rows = np.tile(order, int(np.ceil(wanted / trace.cpu_capacity_milli.sum())) + 1)
    count = int(np.abs(np.cumsum(trace.cpu_capacity_milli[rows]) - wanted).argmin()) + 1
    return replace(
        trace,
        name=name,
        nodes=tuple(f"node-{number:03}" for number in range(count)),
        cpu_capacity_milli=trace.cpu_capacity_milli[rows[:count]],
        memory_capacity_bytes=trace.memory_capacity_bytes[rows[:count]],
    )


def as_started(cluster: Cluster) -> Trace:
    """Return the trace of a finished replay without waits: the pods that got a node arrive when they got it."""
    trace, starts = cluster.trace, cluster.first_start
    pods = np.flatnonzero(starts >= 0)
    pods = pods[np.argsort(starts[pods], kind="stable")]
    late, is_job = starts - trace.arrival_minute, job_mask(trace)
    # Jobs run to their end however late they start. Services end by the clock, and use what they would use then.
    first = np.minimum(trace.use.offsets[:-1] + np.where(is_job, 0, late), trace.use.offsets[1:])
    spans = [slice(*span) for span in zip(first[pods].tolist(), trace.use.offsets[1:][pods].tolist(), strict=True)]

    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names[pod] for pod in pods.tolist())

    return replace(
        trace,
        pods=kept(trace.pods),
        owner_kinds=kept(trace.owner_kinds),
        owners=kept(trace.owners),
        arrival_minute=starts[pods],
        end_minute=(trace.end_minute + np.where(is_job, late, 0))[pods],
        cpu_request_milli=trace.cpu_request_milli[pods],
        memory_request_bytes=trace.memory_request_bytes[pods],
        cpu_limit_milli=trace.cpu_limit_milli[pods],
        memory_limit_bytes=trace.memory_limit_bytes[pods],
        use=PodUse(
            np.concatenate([[0], np.cumsum([span.stop - span.start for span in spans])]),
            np.concatenate([trace.use.cpu[span] for span in spans]),
            np.concatenate([trace.use.memory[span] for span in spans]),
        ),
        priority=None if trace.priority is None else trace.priority[pods],
    )


def write_worlds(folder: Path, sources: list[Trace]) -> None:
    """Write the worlds that the folder does not have yet."""
    seeds = range(FIRST_GENERATED, FIRST_GENERATED + WORLDS)
    generators = {f"generated-{seed}": Synthetic(seed, **GENERATED).trace for seed in seeds}
    for number in range(1, WORLDS + 1):
        name, rng = f"recombined-{number:02}", np.random.default_rng([RECOMBINED_SEED, number])
        generators[name] = lambda name=name, rng=rng: recombine(name, sources, rng)
    for name, generate in generators.items():
        fills = {f"{name}-{percent}": percent for percent in FILLS}
        if all((folder / each / "usage.npz").is_file() for each in (name, *fills)):
            continue
        world = replace(generate(), name=name)
        for each in (world, *(filled(world, percent, filling) for filling, percent in fills.items())):
            write_trace(each, folder / each.name)


def replays(folder: Path, world: str, seed: int, same_pods: bool) -> list[Row]:
    """Return the measures of replays of a world with a seed: of the default and the shipped file, or with same pods.

    Args:
        folder: folder of the worlds.
        world: name of the world, with ``AUTOSCALED`` for replays with an autoscaler.
        seed: seed of the tie-breaks.
        same_pods: whether the shipped file places only the pods that got a node by the default.
    """
    trace = read_trace(folder / world.removesuffix(AUTOSCALED))
    options = ReplayOptions(seed=seed, autoscaling=Autoscaling() if world.endswith(AUTOSCALED) else None)
    judging, ours = Judging(policies(trace)[DEFAULT], _VERDICT_MINUTES), configured_policy(SHIPPED, shipped_file())
    default = Replay(trace, judging, options)
    facts = {"world": world, "seed": seed, "policy": DEFAULT, **measured(default), "verdict": judging.at_peak.verdict}
    if same_pods:
        same = Replay(as_started(default.cluster), ours, options)
        return [{"world": world, "seed": seed, "policy": SAME_PODS, **measured(same)}]
    for resource, amounts, size, factor in (
        ("cpu", trace.cpu_request_milli, trace.cpu_capacity_milli, trace.overcommit[0]),
        ("memory", trace.memory_request_bytes, trace.memory_capacity_bytes, trace.overcommit[1]),
    ):
        facts[f"{resource}_requested"] = 100 * mean_requests(trace, amounts) / factor / float(size.sum())
    return [facts, {"world": world, "seed": seed, "policy": SHIPPED, **measured(Replay(trace, ours, options))}]


def measured(replay: Replay) -> Row:
    """Run a replay and return its measures, with the mean CPU use of all nodes."""
    outcome = replay.run()
    ledger, warm_up = outcome.cluster.ledger, outcome.cluster.trace.warm_up_minutes
    capacity = ledger.capacity[0] @ ledger.present()[:, warm_up:]
    used = 100 * float(ledger.cpu_milli[:, warm_up:].sum() / capacity.sum())
    return {**measures(outcome), "cpu_used_percent": used}


def shipped_file() -> Any:
    """Return the KubeSchedulerConfiguration of the extender in the manifest."""
    (config,) = (each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ConfigMap")
    return yaml.safe_load(config["data"]["scheduler.yaml"])


class Store:
    """Rows of finished replays, in a file of a folder.

    Attributes:
        rows: the rows.
    """

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder, self._jobs, self._file = folder, jobs, folder / "replays.jsonl"
        self.rows: list[Row] = (
            list(map(json.loads, self._file.read_text().splitlines())) if self._file.is_file() else []
        )

    def replay(self, worlds: Iterable[str], seeds: int, *, same_pods: bool = False) -> None:
        """Replay and store what the file does not have yet; arguments as for :func:`replays`."""
        last = SAME_PODS if same_pods else SHIPPED
        known = {(row["world"], row["seed"]) for row in self.rows if row["policy"] == last}
        todo = [(name, seed) for seed in range(seeds) for name in worlds if (name, seed) not in known]
        calls = (joblib.delayed(replays)(self._folder, *each, same_pods) for each in todo)
        with self._file.open("a") as file:
            for done in joblib.Parallel(n_jobs=self._jobs, return_as="generator_unordered")(calls):
                self.rows += done
                file.write("".join(json.dumps(row) + "\n" for row in done))
                file.flush()


def table(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield a row for each world and policy, with what is worse than the default's."""
    worlds: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row["seed"]):
        worlds[row["world"]][row["policy"]].append(row)
    for world, by_policy in sorted(worlds.items()):
        default = summary(by_policy[DEFAULT])
        for policy in (DEFAULT, SHIPPED, SAME_PODS):
            if policy in by_policy:
                each = summary(by_policy[policy])
                worse = [name for name in JUDGED if each[name] - default[name] > default[f"{name}_deviation"]]
                yield {"world": world, **each, "worse": " ".join(worse)}


def summary(rows: list[Row]) -> Row:
    """Return the means of a policy's replays of a world, and the deviations of what is judged."""
    first, several = rows[0], len(rows) > 1
    result: Row = {"policy": first["policy"], "seeds": len(rows), "verdict": first.get("verdict", "")}
    result |= {name: round(first[name], 1) for name in ("cpu_requested", "memory_requested") if name in first}
    result |= {name: round(fmean(row[name] for row in rows), 2) for name in MEASURES}
    deviations = {name: stdev(row[name] for row in rows) if several else 0.0 for name in JUDGED}
    return result | {f"{name}_deviation": round(deviation, 2) for name, deviation in deviations.items()}


def kind(world: str) -> str:
    """Return the kind of a world, such as "generated, 90, autoscaled"."""
    source, _, *rest = world.split("-")
    return ", ".join([source, *rest])


def sums(rows: list[Row]) -> Iterator[str]:
    """Yield a Markdown table with the sums over the worlds of each kind."""
    kinds: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        kinds[kind(row["world"])][row["policy"]].append(row)
    names = (*JUDGED, "node_minutes")
    yield f"| kind | worlds | seeds | {' | '.join(f'{name}: default | as shipped' for name in names)} | worse in |"
    yield "|---|" + "---:|" * (3 + 2 * len(names))
    for name, policies_ in sorted(kinds.items()):
        ours = policies_[SHIPPED]
        cells = [
            f"{sum(row[measure] for row in policies_[policy]):,.0f}"
            for measure in names
            for policy in (DEFAULT, SHIPPED)
        ]
        worse, seeds = sum(bool(row["worse"]) for row in ours), min(row["seeds"] for row in ours)
        yield f"| {name} | {len(ours)} | {seeds} | {' | '.join(cells)} | {worse} |"


def harms(rows: list[Row]) -> Iterator[str]:
    """Yield a Markdown table with each measure of a world that is worse, its deviation, and what the verdict was."""
    yield "| world | measure | default | as shipped | same pods | CPU use, % | waited | verdict |"
    yield "|---|---|---:|---:|---:|---|---|---|"
    worlds: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        worlds[row["world"]][row["policy"]] = row
    for world, policies_ in worlds.items():
        default, ours, same = (policies_.get(name, {}) for name in (DEFAULT, SHIPPED, SAME_PODS))
        for name in ours["worse"].split():
            both = [f"{row[name]:,.0f} ± {row[f'{name}_deviation']:,.0f}" for row in (default, ours)]
            cells = [*both, f"{same[name]:,.0f}" if same else ""]
            cells += [
                f"{default[each]:,.{digits}f}, {ours[each]:,.{digits}f}"
                for each, digits in (("cpu_used_percent", 1), ("waited_pod_minutes", 0))
            ]
            yield f"| {world} | {name} | {' | '.join(cells)} | {default['verdict']} |"


def main() -> None:
    """Write the worlds, replay them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="at least four, to recombine")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    write_worlds(arguments.folder, list(check([read_trace(each) for each in arguments.traces])))
    names = sorted(path.parent.name for path in arguments.folder.glob("*/usage.npz"))
    fills = [name for name in names if name.count("-") > 1]
    scaled = [f"{name}{AUTOSCALED}" for name in fills if name.endswith(f"-{AUTOSCALED_FILL}")]
    store = Store(arguments.folder, arguments.jobs)
    # The first seed shows all worlds; then the fullest come first, where harm is likely.
    store.replay([*fills, *scaled], 1)
    for percent in sorted(FILLS, reverse=True):
        store.replay([name for name in fills if name.endswith(f"-{percent}")], arguments.seeds)
    store.replay([*scaled, *sorted({*names} - {*fills})], arguments.seeds)
    store.replay([row["world"] for row in table(store.rows) if row["worse"]], arguments.seeds, same_pods=True)
    rows = list(table(row for row in store.rows if row["seed"] < arguments.seeds))
    if arguments.markdown:
        print("\n".join([*sums(rows), "", *harms(rows)]))
        return
    lines = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)


if __name__ == "__main__":
    main()
