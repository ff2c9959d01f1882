"""Files of results of replays: a row of JSON for each world, variant and seed, and tables of paired differences."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from trimaran.traces.reading import read_trace
from trimaran.traces.trace import Trace

_OF_REPLAY = ("world", "variant", "seed")
_DRAWS = 4000


def replay_missing(
    folders: Sequence[Path],
    variants: Sequence[str],
    seeds: Sequence[int],
    results: Path,
    measured: Callable[[Trace, str, int], Mapping[str, float]],
) -> None:
    """Replay what a file of results does not have yet, and append it.

    Args:
        folders: worlds.
        variants: names of the variants.
        seeds: seeds of the replays.
        results: the file, which may not exist yet.
        measured: replays a world by a variant with a seed, and returns the measures of the row.
    """
    done = {tuple(row[name] for name in _OF_REPLAY) for row in read(results)} if results.exists() else set()
    for seed in seeds:
        for folder in folders:
            missing = [variant for variant in variants if (folder.name, variant, seed) not in done]
            trace = read_trace(folder) if missing else None
            for variant in missing:
                assert trace is not None
                row = {"world": folder.name, "variant": variant, "seed": seed, **measured(trace, variant, seed)}
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of results."""
    return (json.loads(line) for line in path.read_text().splitlines())


def table(paths: Sequence[Path], prefix: str, against: str) -> None:
    """Print sums over worlds of the means over common seeds, and paired differences with intervals over worlds.

    Args:
        paths: files of results; of two rows of one replay the later one counts.
        prefix: beginning of the names of the worlds.
        against: variant that the others are compared with.
    """
    rows = [row for path in paths for row in read(path) if row["world"].startswith(prefix)]
    known = {(row["world"], row["variant"], row["seed"]): row for row in rows}
    rng = np.random.default_rng(0)
    for variant in dict.fromkeys(row["variant"] for row in rows):
        pairs: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
        for world, name, seed in known:
            if name == variant and (world, against, seed) in known:
                pairs.setdefault(world, []).append((known[world, variant, seed], known[world, against, seed]))
        if not pairs:
            continue
        print(f"{variant}: {len(pairs)} worlds, {sum(map(len, pairs.values()))} replays")
        for measure in _measures(rows):
            both = np.array([np.mean([[a[measure], b[measure]] for a, b in each], axis=0) for each in pairs.values()])
            drawn = both[rng.integers(len(both), size=(_DRAWS, len(both)))].sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                change = 100 * (both[:, 0].sum() / both[:, 1].sum() - 1)
                low, high = np.percentile(100 * (drawn[:, 0] / drawn[:, 1] - 1), (2.5, 97.5))
            worse = int((both[:, 0] > both[:, 1]).sum())
            print(
                f"  {measure:26} {both[:, 0].sum():10.0f} {against} {both[:, 1].sum():10.0f} "
                f"{change:+6.1f} % ({low:+.0f} to {high:+.0f}), worse in {worse}"
            )


def write_means(paths: Sequence[Path], prefix: str, file: TextIO) -> None:
    """Write a CSV of the means over seeds, with a line for each world and variant; arguments as for :func:`table`."""
    known = {tuple(row[name] for name in _OF_REPLAY): row for path in paths for row in read(path)}
    rows = [row for row in known.values() if row["world"].startswith(prefix)]
    measures = _measures(rows)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["world", "variant", "seeds", *measures])
    for world, variant in dict.fromkeys((row["world"], row["variant"]) for row in rows):
        of_seeds = [row for row in rows if (row["world"], row["variant"]) == (world, variant)]
        means = (np.mean([row[measure] for row in of_seeds]) for measure in measures)
        writer.writerow([world, variant, len(of_seeds), *(f"{mean:g}" for mean in means)])


def _measures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in rows[0] if name not in _OF_REPLAY] if rows else []
