"""Batch placement: every way to place pods, against what no plan can beat, on a cluster of the TBESK paper's shape.

    python benchmarks/placement.py [--one] [--seed 0] [--large] [--figures FOLDER]

``--one`` also lets BES and TBESK search for one pod at a time, which takes a minute. ``--large`` places 20,000 pods on
2,000 nodes instead, which takes minutes. ``--figures`` redraws the paper's figures 2 to 7; it needs matplotlib.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from research.tbesk.arrivals import Churn, follow, turns
from research.tbesk.generated import generated_cluster
from trimaran.planning.bound import lower_bound
from trimaran.planning.local_search import Search, local_search
from trimaran.planning.methods import OURS, RIVALS, in_batches, ours
from trimaran.planning.problem import cost, measure

ENOUGH = 600  # seconds: rounds end it, so that it is the same each time
BATCHES = (10, 60)  # how many pods are searched for together: the paper does not say
NAMES = {"lra": "LRA", "bra": "BRA", "cwt": "CWT", "bes": "BES", "tbesk": "TBESK", OURS: "ours"}


def timed(work):
    """Return what it makes, with seconds of the processor and of the clock."""
    cpu, wall = time.process_time(), time.monotonic()
    made = work()
    return made, time.process_time() - cpu, time.monotonic() - wall


def row(name, problem, plan, bounds, cpu, wall):
    found = measure(problem, plan)
    gaps = [f"{bounds[w].gap(cost(problem, plan, w)):.1%}" if w in bounds else "-" for w in (0.0, 1.0)]
    over = (problem.load(plan) > problem.limit).any(axis=1).sum()
    print(
        f"| {name} | {found.imbalance:.4f} | {gaps[0]} | {found.spread:.4f} | {found.cost:.4f} | {gaps[1]} "
        f"| {found.highest:.0%} | {over} | {found.unplaced} | {cpu:.1f} | {wall:.1f} |",
        flush=True,
    )
    return found


def header(nodes, pods, seed, bounds):
    print(f"\n## {pods:,} pods on {nodes:,} nodes, seed {seed}\n")
    for weight in bounds:
        name = "J = Z + spread" if weight else "Z"
        (bound, cpu, wall) = bounds[weight]
        exact = "" if bound.exact else ", time ran out"
        print(f"no plan has a {name} below {bound.cost:.5f}{exact} ({cpu:.1f} s of the processor, {wall:.1f} s)")
    print("\n| method | Z | gap | spread | J | gap | highest | overloaded | unplaced | processor, s | s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")


def compare(nodes, pods, seed, seconds, methods, bound_seconds, weights=(0.0, 1.0)):
    problem = generated_cluster(nodes, pods, seed)
    made = {w: timed(lambda w=w: lower_bound(problem, spread_weight=w, seconds=bound_seconds)) for w in weights}
    header(nodes, pods, seed, made)
    bounds = {weight: made[weight][0] for weight in weights}
    found = {}
    for name, method in methods.items():
        plan, cpu, wall = timed(lambda method=method: method(problem, np.random.default_rng(seed)))
        found[name] = row(name, problem, plan, bounds, cpu, wall)
    for weight in weights:
        name = "ours, for J" if weight else "ours, for Z"
        search = Search(weight, seconds=seconds)
        plan, cpu, wall = timed(lambda search=search: local_search(problem, np.random.default_rng(seed), search))
        found[name] = row(name, problem, plan, bounds, cpu, wall)
    return problem, found


def batched(method, size):
    return lambda problem, rng: in_batches(method, problem, size, rng)


def paper(batches):
    """Return every method: TBESK and BES on all pods at once, and on batches, as pods come."""
    methods = {name: RIVALS[name] for name in ("lra", "bra", "cwt", "fitness")}
    for name in ("bes", "tbesk", "tbesk-original"):
        methods[f"{name}, all at once"] = RIVALS[name]
        methods |= {f"{name}, {size} at a time": batched(RIVALS[name], size) for size in batches}
    return methods


def claims(found):
    print("\nTBESK's Z against the paper's claims, 24 % below LRA's and 21 % below BRA's:\n")
    print("| method | Z below LRA's | Z below BRA's |\n|---|---:|---:|")
    for name, each in found.items():
        if name.startswith("tbesk"):
            below = [1 - each.imbalance / found[rival].imbalance for rival in ("lra", "bra")]
            print(f"| {name} | {below[0]:.0%} | {below[1]:.0%} |")


def churn(problem, seed):
    print("\n## 900 pods, then ten times a tenth leave and as many arrive: means over the rounds\n")
    pods = Churn(start=900, rounds=10, share=0.1)
    bounds = [lower_bound(problem.take(turn.here), seconds=ENOUGH) for turn in turns(problem.pods, pods, seed)][1:]
    early = "" if all(each.exact for each in bounds) else ", time ran out"
    print(f"where all pods were placed anew, none had a J below {np.mean([each.cost for each in bounds]):.4f}{early}\n")
    print("| method | Z | spread | J | gap | overloaded | unplaced |\n|---|---:|---:|---:|---:|---:|---:|")
    quick = Search(rounds=400, seconds=ENOUGH)
    methods = {name: (method, 0) for name, method in RIVALS.items()}
    methods |= {"ours": (ours(quick), 0), "ours, and 1 % of the pods moved": (ours(quick), 9)}
    for name, (method, moves) in methods.items():
        rounds = follow(problem, method, pods, seed, moves=moves, search=Search(rounds=20, seconds=ENOUGH))[1:]
        gap = np.mean([bound.gap(each.cost) for bound, each in zip(bounds, rounds, strict=True)])
        fields = ("imbalance", "spread", "cost", "overloaded", "unplaced")
        z, spread, j, over, unplaced = (np.mean([getattr(each, field) for each in rounds]) for field in fields)
        print(f"| {name} | {z:.4f} | {spread:.4f} | {j:.4f} | {gap:.1%} | {over:.1f} | {unplaced:.1f} |", flush=True)


def figures(problem, seed, folder):
    """Redraw figures 2 to 7: Z over the pods placed, and each node's use at the end."""
    try:
        import matplotlib as mpl  # not everyone has it
    except ImportError:
        raise SystemExit("matplotlib is not installed: pip install matplotlib") from None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "trimaran"
    from matplotlib import pyplot as plt  # after the choice of what draws

    folder.mkdir(parents=True, exist_ok=True)
    step = 100
    plans, lines = {}, {}
    for name in NAMES:
        method = ours(Search(rounds=300)) if name == OURS else RIVALS[name]
        plan = in_batches(method, problem, step, np.random.default_rng(seed))
        ends = range(step, problem.pods + 1, step)
        lines[name] = [measure(problem.take(np.arange(end)), plan[:end]).imbalance for end in ends]
        plans[name] = plan

    def draw(number, names, plot, labels):
        figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
        for name in names:
            plot(axes, name)
        axes.set(**labels)
        axes.legend(ncols=len(names), frameon=False, fontsize="small")
        figure.savefig(folder / f"figure-{number}.svg", metadata={"Date": None})
        plt.close(figure)

    def over_pods(axes, name):
        axes.plot(range(step, problem.pods + 1, step), lines[name], label=NAMES[name], marker=".")

    labels = {"xlabel": "pods placed", "ylabel": "Z"}
    draw(2, ("lra", "bra", "tbesk", OURS), over_pods, labels)
    draw(3, ("cwt", "bes", "tbesk", OURS), over_pods, labels)
    for number, resource in enumerate(problem.resources, 4):
        column = number - 4

        def over_nodes(axes, name, column=column):
            axes.plot(100 * problem.use(plans[name])[:, column], label=NAMES[name], marker=".", linewidth=0.8)

        draw(number, ("lra", "bra", "tbesk", OURS), over_nodes, {"xlabel": "node", "ylabel": f"{resource}, %"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    if arguments.large:
        methods = {name: RIVALS[name] for name in ("lra", "bra", "cwt", "fitness")}
        compare(2000, 20_000, arguments.seed, 240, methods, 120, weights=(1.0,))
        return
    batches = (1, *BATCHES) if arguments.one else BATCHES
    problem, found = compare(31, 1800, arguments.seed, 15, paper(batches), 20)
    claims(found)
    churn(problem, arguments.seed)
    if arguments.figures:
        figures(problem, arguments.seed, arguments.figures)


if __name__ == "__main__":
    main()
