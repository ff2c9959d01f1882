"""Reproduce the TBESK paper: table 2 with Wilcoxon's tests, the claims on placement, and figures 2 to 7.

    python -m research.tbesk [functions | placement | figures ...] [--seeds 30] [--evaluations 9000] [--seconds 0.05]
                             [--seed 0] [--batches 10 60]

``functions`` prints table 2 and the tests, on the plain functions and with their minimum moved from the origin.
``placement`` compares the placement methods on a generated cluster; ``--batches 1 10 60`` also places one pod at a
time, which takes a minute. ``figures`` draws the figures next to this file and needs matplotlib.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np

from research.tbesk.arrivals import churn, follow, in_batches
from research.tbesk.generated import generated_cluster
from research.tbesk.methods import METHODS
from research.tbesk.trials import OPTIMIZERS, compare, contests, rounds_to_converge
from trimaran.planning.bound import lower_bound
from trimaran.planning.local_search import SearchSettings, local_search
from trimaran.planning.problem import cost, measure

TABLE_RUNS = 10
UNLIMITED = 600  # seconds: more than the rounds take, so that results do not depend on the machine
LABELS = {"lra": "LRA", "bra": "BRA", "cwt": "CWT", "bes": "BES", "tbesk": "TBESK", "ours": "ours"}
FIGURE_STEP = 100  # pods that the figures place at a time


def functions(arguments):
    """Print table 2 of the TBESK paper for four functions, plain and with a shifted minimum, and Wilcoxon's tests."""
    for budget in ({"evaluations": arguments.evaluations}, {"seconds": arguments.seconds}):
        ((unit, amount),) = budget.items()
        print(f"\n## {amount:,} {unit} a run, 30 dimensions", flush=True)
        runs = compare(range(arguments.seeds), **budget)
        if unit == "evaluations":
            print("\n| function | method | best | worst | mean rounds to converge |\n|---|---|---:|---:|---:|")
            for function, by_optimizer in runs.items():
                for name, objectives in by_optimizer.items():
                    best = [objective.best for objective in objectives[:TABLE_RUNS]]
                    rounds = np.mean([rounds_to_converge(objective.trace) for objective in objectives[:TABLE_RUNS]])
                    print(f"| {function} | {name} | {min(best):.2e} | {max(best):.2e} | {rounds:.0f} |")
        for champion in ("TBESK (paper)", "TBESK (original)"):
            print(f"\n{champion} against the others, Wilcoxon's signed-rank test at 5 %: wins-losses, verdict\n")
            rivals = [name for name in OPTIMIZERS if name != champion]
            print("| function | " + " | ".join(rivals) + " |\n|---|" + "---|" * len(rivals))
            for function, results in contests(runs, champion):
                print(f"| {function} | " + " | ".join(results.values()) + " |")


def placement(arguments):
    """Print the measures of all placement methods on a cluster like the TBESK paper's, and the paper's claims."""
    problem, weights = generated_cluster(31, 1800, arguments.seed), {"Z": 0.0, "J = Z + spread": 1.0}
    bounds = {weight: lower_bound(problem, spread_weight=weight, seconds=UNLIMITED) for weight in weights.values()}
    for name, weight in weights.items():
        print(f"no plan has a {name} below {bounds[weight].cost:.5f}")
    print("\n| method | Z | gap | spread | J | gap | highest | overloaded | unplaced | processor, s |")
    print("|---|" + "---:|" * 9)
    measures = {}
    for name, method in paper_methods(arguments.batches).items():
        began = time.process_time()
        plan = method(problem, np.random.default_rng(arguments.seed))
        seconds, found = time.process_time() - began, measure(problem, plan)
        gap_z, gap_j = (bounds[weight].gap(cost(problem, plan, weight)) for weight in weights.values())
        print(
            f"| {name} | {found.imbalance:.4f} | {gap_z:.1%} | {found.spread:.4f} | {found.cost():.4f} | {gap_j:.1%} "
            f"| {found.highest:.0%} | {found.overloaded} | {found.unplaced} | {seconds:.1f} |",
            flush=True,
        )
        measures[name] = found

    print("\nTBESK's Z against the paper's claims, 24 % below LRA's and 21 % below BRA's:\n")
    print("| method | Z below LRA's | Z below BRA's |\n|---|---:|---:|")
    for name, found in measures.items():
        if name.startswith("tbesk"):
            below = [1 - found.imbalance / measures[rival].imbalance for rival in ("lra", "bra")]
            print(f"| {name} | {below[0]:.0%} | {below[1]:.0%} |")
    with_churn(problem, arguments.seed)


def paper_methods(batches):
    """Return the placement methods by name; BES and TBESK place all pods at once, and in batches of the given sizes."""
    methods = {name: METHODS[name] for name in ("lra", "bra", "cwt", "fitness")}
    for name in ("bes", "tbesk", "tbesk-original"):
        methods[f"{name}, all at once"] = METHODS[name]
        for size in batches:
            methods[f"{name}, {size} at a time"] = partial(_batched, METHODS[name], size)
    for name, weight in (("Z", 0.0), ("J", 1.0)):
        methods[f"ours, for {name}"] = partial(local_search, settings=SearchSettings(weight, seconds=15))
    return methods


def _batched(method, size, problem, rng):
    return in_batches(method, problem, size, rng)


def with_churn(problem, seed):
    """Print the mean measures of each placement method on a cluster in which pods leave and arrive."""
    print("\n## 900 pods, then ten times a tenth leave and as many arrive: means over the rounds\n")
    steps = list(churn(problem.pods, start=900, rounds=10, share=0.1, seed=seed))
    bounds = [lower_bound(problem.take(step.present), seconds=UNLIMITED) for step in steps[1:]]
    print(f"no plan that places all pods again has a mean J below {np.mean([bound.cost for bound in bounds]):.4f}\n")
    print("| method | Z | spread | J | gap | overloaded | unplaced |\n|---|---:|---:|---:|---:|---:|---:|")
    search = partial(local_search, settings=SearchSettings(rounds=400, seconds=UNLIMITED))
    methods = {name: (method, 0) for name, method in METHODS.items()}
    methods |= {"ours": (search, 0), "ours, and 1 % of the pods moved": (search, 9)}
    for name, (method, moves) in methods.items():
        rounds = follow(problem, method, steps, seed, moves=moves)[1:]
        gap = np.mean([bound.gap(found.cost()) for bound, found in zip(bounds, rounds, strict=True)])
        columns = [(found.imbalance, found.spread, found.cost(), found.overloaded, found.unplaced) for found in rounds]
        z, spread, j, over, unplaced = np.mean(columns, axis=0)
        print(f"| {name} | {z:.4f} | {spread:.4f} | {j:.4f} | {gap:.1%} | {over:.1f} | {unplaced:.1f} |", flush=True)


def figures(arguments, folder=Path(__file__).parent):
    """Draw figures 2 and 3, Z (mean imbalance) over the number of pods placed, and figures 4 to 7, use by node."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("matplotlib is not installed: pip install matplotlib") from None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "trimaran"
    from matplotlib import pyplot as plt

    problem = generated_cluster(31, 1800, arguments.seed)
    ends = range(FIGURE_STEP, problem.pods + 1, FIGURE_STEP)
    search = partial(local_search, settings=SearchSettings(rounds=300, seconds=UNLIMITED))
    plans = {}
    for name in LABELS:
        rng = np.random.default_rng(arguments.seed)
        plans[name] = in_batches(METHODS.get(name, search), problem, FIGURE_STEP, rng)

    def draw(number, names, points, **labels):
        figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
        for name in names:
            axes.plot(*points(plans[name]), label=LABELS[name], marker=".", linewidth=1.5 if number < 4 else 0.8)
        axes.set(**labels)
        axes.legend(ncols=len(names), frameon=False, fontsize="small")
        figure.savefig(folder / f"figure-{number}.svg", metadata={"Date": None})
        plt.close(figure)

    def imbalance(plan):
        return ends, [measure(problem.take(np.arange(end)), plan[:end]).imbalance for end in ends]

    draw(2, ("lra", "bra", "tbesk", "ours"), imbalance, xlabel="pods placed", ylabel="Z")
    draw(3, ("cwt", "bes", "tbesk", "ours"), imbalance, xlabel="pods placed", ylabel="Z")
    for column, resource in enumerate(problem.resources):

        def use(plan, column=column):
            return (100 * problem.use(plan)[:, column],)

        draw(4 + column, ("lra", "bra", "tbesk", "ours"), use, xlabel="node", ylabel=f"{resource}, %")


PARTS = {"functions": functions, "placement": placement, "figures": figures}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS), help="default: all of them")
    parser.add_argument("--seeds", type=int, default=30, help="runs of each optimizer on each function")
    parser.add_argument("--evaluations", type=int, default=9_000, help="budget of a run")
    parser.add_argument("--seconds", type=float, default=0.05, help="the other budget of a run, in processor seconds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated cluster and of the methods")
    parser.add_argument("--batches", type=int, nargs="*", default=[10, 60], help="pods that are searched for together")
    arguments = parser.parse_args(argv)
    for part in arguments.parts or PARTS:
        PARTS[part](arguments)


if __name__ == "__main__":
    main()
