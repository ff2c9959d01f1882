"""Configurations of kube-scheduler, written after those of real clusters, and mutations of them by a seed.

python tests/support/scheduler_files.py KUBE-SCHEDULER [SEED COUNT]     record what a kube-scheduler says of them
"""

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from trimaran.kube_scheduler.binary import KubeSchedulerProgram

FOLDER = Path(__file__).parents[1] / "data" / "kube_scheduler"
_POINTS = (
    "bind", "filter", "multiPoint", "permit", "placementGenerate", "placementScore", "podGroupPostFilter", "postBind",
    "postFilter", "preBind", "preEnqueue", "preFilter", "preScore", "queueSort", "reserve", "score",
)  # fmt: skip
_PLUGINS = (
    "DefaultBinder", "DefaultPreemption", "DynamicResources", "ImageLocality", "InterPodAffinity", "NodeAffinity",
    "NodeName", "NodePorts", "NodeResourcesBalancedAllocation", "NodeResourcesFit", "NodeVolumeLimits",
    "PodTopologySpread", "PrioritySort", "SchedulingGates", "TaintToleration", "VolumeBinding", "VolumeZone",
    "Coscheduling", "EBSLimits", "noderesourcesfit", "*",
)  # fmt: skip
_ARGUMENTS: tuple[Any, ...] = (
    None, {}, {"x": 1}, [1], "text", {"kind": "NodeAffinityArgs"}, {"apiVersion": "kubescheduler.config.k8s.io/v1"},
    {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, {"resources": [{"name": "cpu"}]}, {"addedAffinity": None},
    {"hardPodAffinityWeight": 100}, {"bindTimeoutSeconds": 0}, {"minCandidateNodesAbsolute": 0},
    {"shape": [{"utilization": 10, "score": 11}]}, {"defaultingType": "List"}, {"filterTimeout": "0s"},
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, "", "text", "10", "5s", "1h30m", "-1s", "5", True, False, 0, 1, -1, 7, 100, 101, 1.5, 2.0, 2**31, 2**63, [],
    {}, [None], ["text"], [1], {"x": 1},
)  # fmt: skip
_RAW = (
    "yes", "off", "y", "~", "1e1", "0x10", "010", "0o10", "08", "1_0", "1:30", "2026-11-28", ".5", "1.0", "+5", "-0",
    "1e400", ".inf", "'5'", '"\\u0035"', "|-\n  text", "1e3s", "0.5s", "!!str 5",
)  # fmt: skip
_BENIGN: tuple[tuple[str, Any], ...] = (
    ("parallelism", 4), ("parallelism", None), ("percentageOfNodesToScore", 0), ("podMaxBackoffSeconds", 60),
    ("podInitialBackoffSeconds", None), ("enableProfiling", False), ("delayCacheUntilActive", True), ("extenders", []),
    ("extenders", None), ("profiles", None), ("leaderElection", None), ("clientConnection", None),
    ("leaderElection", {"leaderElect": False, "leaseDuration": "0s"}),
)  # fmt: skip


def base_files() -> dict[str, bytes]:
    """Return the files by name."""
    return {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.yaml"))}


def mutations(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield mutated files, each with a name that stays the same for the same seed."""
    bases = list(base_files().items())
    for number in range(count):
        dice = random.Random(f"{seed} {number}")
        name, text = bases[number % len(bases)]
        document = yaml.safe_load(text)
        for _ in range(dice.choice((1, 1, 1, 2))):
            dice.choice(_MUTATIONS)(document, dice)
        yield f"{seed}-{number}-{name}", _written(document, dice)


def digest(text: bytes) -> str:
    """Return a short hash of a file, by which a recorded verdict is known to be of the same file."""
    return hashlib.sha256(text).hexdigest()[:12]


def _written(document: Any, dice: random.Random) -> bytes:
    """Return a document as YAML, sometimes as JSON or with one line twice."""
    text = yaml.safe_dump(document, sort_keys=False)
    for raw in _RAW:
        text = text.replace(f"RAW<{raw}>".replace("\n", "\\n"), raw).replace(
            f"'RAW<{raw.replace(chr(39), chr(39) * 2)}>'", raw
        )
    form = dice.random()
    if form < 0.05 and "RAW<" not in text:
        return json.dumps(document).encode()
    lines = text.splitlines(keepends=True)
    if form > 0.97:
        place = dice.randrange(len(lines))
        lines.insert(place, lines[place])
    return "".join(lines).encode()


def _mappings(node: Any) -> list[dict[str, Any]]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [
        *([node] if isinstance(node, dict) and node else []),
        *(each for child in inner for each in _mappings(child)),
    ]


def _place(document: Any, dice: random.Random) -> tuple[dict[str, Any], str]:
    mapping = dice.choice(_mappings(document))
    return mapping, dice.choice([*mapping])


def _change_key(document: Any, dice: random.Random) -> None:
    mapping, key = _place(document, dice)
    letter = dice.randrange(len(key))
    changed = dice.choice((
        key[:letter] + key[letter].swapcase() + key[letter + 1 :], key[:letter] + key[letter + 1 :], f"{key}s",
        key.capitalize(), f"{key[:letter]}_{key[letter:]}",
    ))  # fmt: skip
    mapping[changed] = mapping.pop(key)


def _change_value(document: Any, dice: random.Random) -> None:
    mapping, key = _place(document, dice)
    mapping[key] = deepcopy(dice.choice(_VALUES))


def _nudge(document: Any, dice: random.Random) -> None:
    """Replace a value by another of its type."""
    mapping, key = _place(document, dice)
    value = mapping[key]
    if isinstance(value, bool):
        mapping[key] = not value
    elif isinstance(value, int | float):
        mapping[key] = dice.choice((value + 1, value - 1, value * 10, 0, -value, 3, 50))
    elif isinstance(value, str):
        mapping[key] = dice.choice((f"{value}-2", value.upper(), "", f" {value}", "3s", "other"))
    elif isinstance(value, list):
        mapping[key] = dice.choice((value[:-1], value * 2, value[::-1], []))


def _write_raw(document: Any, dice: random.Random) -> None:
    mapping, key = _place(document, dice)
    if not isinstance(mapping[key], dict | list):
        mapping[key] = f"RAW<{dice.choice(_RAW)}>"


def _remove(document: Any, dice: random.Random) -> None:
    mapping, key = _place(document, dice)
    del mapping[key]


def _move(document: Any, dice: random.Random) -> None:
    mapping, key = _place(document, dice)
    dice.choice(_mappings(document)).setdefault(key, deepcopy(mapping.get(key)))


def _add_benign(document: Any, dice: random.Random) -> None:
    key, value = dice.choice(_BENIGN)
    document[key] = deepcopy(value)


def _profile(document: Any, dice: random.Random) -> dict[str, Any]:
    profiles = document.get("profiles")
    if not (isinstance(profiles, list) and profiles and all(isinstance(each, dict) for each in profiles)):
        profiles = document["profiles"] = [{}]
    chosen: dict[str, Any] = dice.choice(profiles)
    return chosen


def _add_plugin(document: Any, dice: random.Random) -> None:
    plugins = _profile(document, dice).setdefault("plugins", {})
    if isinstance(plugins, dict):
        point = plugins.setdefault(dice.choice(_POINTS), {})
        listed = point.setdefault(dice.choice(("enabled", "disabled")), []) if isinstance(point, dict) else None
        if isinstance(listed, list):
            entry: dict[str, Any] = {"name": dice.choice(_PLUGINS)}
            listed.append(entry | dice.choice(({}, {"weight": 2}, {"weight": 0}, {"weight": None})))


def _add_arguments(document: Any, dice: random.Random) -> None:
    listed = _profile(document, dice).setdefault("pluginConfig", [])
    if isinstance(listed, list):
        listed.append({"name": dice.choice(_PLUGINS), "args": deepcopy(dice.choice(_ARGUMENTS))})


def _rename_profile(document: Any, dice: random.Random) -> None:
    _profile(document, dice)["schedulerName"] = dice.choice(("batch", "default-scheduler", "", None))


_MUTATIONS: tuple[Callable[[Any, random.Random], None], ...] = (
    _change_key, _change_value, _change_value, _nudge, _nudge, _write_raw, _write_raw, _remove, _remove, _move,
    _add_benign, _add_benign, _add_benign, _add_plugin, _add_plugin, _add_plugin, _add_arguments, _add_arguments,
    _rename_profile,
)  # fmt: skip


def main(program: str, seed: str = "56", count: str = "240") -> None:
    """Record the verdicts of a kube-scheduler on mutated files."""
    judged, scheduler = {}, KubeSchedulerProgram(Path(program))
    version = scheduler.judge.rpartition(" v")[2]
    for name, text in mutations(int(seed), int(count)):
        verdict = scheduler.verdict(text)
        judged[name] = [digest(text), verdict.answer, verdict.row[:200]]
    document = {"kubernetes": version, "seed": int(seed), "count": int(count), "files": judged}
    lines = json.dumps(document, indent=0, ensure_ascii=False).replace("[\n", "[").replace('",\n"', '", "')
    (FOLDER / f"verdicts-{version}.json").write_text(lines + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
