"""Structs, plugins and feature gates of kube-scheduler by version, from the generated ``table.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import orjson

from scoring.kubernetes_version import KUBERNETES_VERSIONS

Struct = Mapping[str, str]
"""Types of a struct's keys in Go's notation, such as ``[]*int32``; also ``any``, ``bytes`` and ``duration``."""


@dataclass(frozen=True)
class VersionTable:
    """Configuration that a version of kube-scheduler reads.

    Attributes:
        structs: structs of the file, by name; the arguments of plugin X are ``XArgs``.
        plugins: extension points of each plugin, by name.
        defaults: plugins that are enabled at ``multiPoint`` by default.
        gates: feature gates that are on by default.
    """

    structs: Mapping[str, Struct]
    plugins: Mapping[str, frozenset[str]]
    defaults: tuple[str, ...]
    gates: frozenset[str]


@cache
def table_of(version: str) -> VersionTable:
    """Return the structs, plugins and gates of a version in :data:`~scoring.kubernetes_version.KUBERNETES_VERSIONS`."""
    table = orjson.loads((files(__package__) / "table.json").read_bytes())
    number = KUBERNETES_VERSIONS.index(version)

    def exists(first: str, last: str = KUBERNETES_VERSIONS[-1]) -> bool:
        return KUBERNETES_VERSIONS.index(first) <= number <= KUBERNETES_VERSIONS.index(last)

    structs = {
        name: {key: kind for key, (kind, *span) in keys.items() if exists(*span)}
        for name, keys in table["structs"].items()
    }
    plugins = {
        name: frozenset(point for point, span in points.items() if exists(*span))
        for name, points in table["plugins"].items()
    }
    return VersionTable(
        {name: keys for name, keys in structs.items() if keys},
        {name: points for name, points in plugins.items() if points},
        tuple(name for name, span in table["defaults"].items() if exists(*span)),
        frozenset(name for name, span in table["gates"].items() if exists(*span)),
    )
