"""In which line of a KubeSchedulerConfiguration a key stands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import yaml

_ROOT = "KubeSchedulerConfiguration."
_ARGUMENTS = "Args"


@dataclass(frozen=True)
class Lines:
    """Where keys are, by paths as configuration notes have them: ``profiles[0].pluginConfig[1].args``.

    Attributes:
        lines: path to line, counted from 1.
        values: path to text, of the keys that have one.
    """

    lines: Mapping[str, int]
    values: Mapping[str, str]

    @classmethod
    def of(cls, text: bytes, document: Any) -> Self:
        """Find the keys of a file, which was read as a document."""
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        found = [] if root is None or not isinstance(document, dict) else [*_walk(root, "", set())]
        return cls({path: line for path, line, _ in found}, {path: value for path, _, value in found if value})

    def at(self, path: str, profile: int | None = None) -> int | None:
        """Return the line of a key, or of the nearest one above it.

        Args:
            path: as a note, or an error, has it; ``TargetLoadPackingArgs.x`` is in the arguments of that plugin.
            profile: in which profile arguments are; any when None.
        """
        path = path.partition(":")[0].removeprefix(_ROOT)
        plugin, _, key = path.partition(".")
        if plugin.endswith(_ARGUMENTS):
            path = f"{self._arguments(plugin.removesuffix(_ARGUMENTS), profile)}.{key}"
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None

    def _arguments(self, plugin: str, profile: int | None) -> str:
        wanted = "profiles[" if profile is None else f"profiles[{profile}].pluginConfig["
        for path, value in self.values.items():
            if value == plugin and path.startswith(wanted) and ".pluginConfig[" in path and path.endswith("].name"):
                return path.removesuffix("name") + "args"
        return ""


def _walk(node: yaml.Node, path: str, seen: set[int]) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and text of every key; what aliases repeat, once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = f"{path}.{key.value}" if path else str(key.value)
            yield below, key.start_mark.line + 1, value.value if isinstance(value, yaml.ScalarNode) else ""
            yield from _walk(value, below, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            below = f"{path}[{number}]"
            yield below, item.start_mark.line + 1, item.value if isinstance(item, yaml.ScalarNode) else ""
            yield from _walk(item, below, seen)
