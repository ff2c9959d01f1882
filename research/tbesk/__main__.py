"""TBESK, BES, tSSA, tSBO and tPSO on benchmark functions, plain and shifted: the paper's second table, and Wilcoxon.

python research/tbesk/__main__.py [--seeds 30] [--evaluations 9000] [--seconds 0.05]
"""

import argparse

from research.tbesk.trials import compare, contests
from trimaran.planning.bald_eagle import tbesk

TABLE_RUNS = 10


def table(runs):
    print("\n| function | method | best | worst | mean rounds to converge |\n|---|---|---:|---:|---:|")
    for each in runs:
        values, rounds = each.values[:TABLE_RUNS], each.rounds[:TABLE_RUNS]
        print(f"| {each.function} | {each.optimizer} | {values.min():.2e} | {values.max():.2e} | {rounds.mean():.0f} |")


def tests(runs, champion):
    print(f"\n{champion} against the others, Wilcoxon's signed-rank test at 5 %: wins-losses, verdict\n")
    found = contests(runs, champion)
    rivals = list(dict.fromkeys(each.rival for each in found))
    print("| function | " + " | ".join(rivals) + " |\n|---|" + "---|" * len(rivals))
    for function in dict.fromkeys(each.function for each in found):
        cells = [f"{each.wins}-{each.losses} {each.verdict}" for each in found if each.function == function]
        print(f"| {function} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--evaluations", type=int, default=9_000)
    parser.add_argument("--seconds", type=float, default=0.05)
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    for budget in ({"evaluations": arguments.evaluations}, {"seconds": arguments.seconds}):
        ((unit, amount),) = budget.items()
        print(f"\n## {amount:,} {unit} a run, 30 dimensions", flush=True)
        runs = compare(seeds, **budget)
        if unit == "evaluations":
            table(runs)
        for stage3 in ("paper", "original"):
            tests(runs, tbesk(stage3).name)


if __name__ == "__main__":
    main()
