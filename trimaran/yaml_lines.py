"""Line numbers of keys in a KubeSchedulerConfiguration."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import yaml

from runtime.parsing import compose_yaml
from scoring.profiles.configuration.fields import ConfigNote

_ROOT = "KubeSchedulerConfiguration."
_ARGUMENTS = "Args"


@dataclass(frozen=True)
class KeyLines:
    """Line numbers and values of the keys in a YAML file, by path such as ``profiles[0].pluginConfig[1].args``.

    Attributes:
        lines: line number by path, counted from 1.
        values: text of the value by path, for keys with a scalar value.
    """

    lines: Mapping[str, int]
    values: Mapping[str, str]

    @classmethod
    def of(cls, text: bytes, document: Any) -> Self:
        """Find the lines of all keys in the text of a YAML file; ``document`` is the same file, parsed."""
        root = compose_yaml(text)
        keys = [] if root is None or not isinstance(document, dict) else [*_walk(root, "", set())]
        return cls({path: line for path, line, _ in keys}, {path: value for path, _, value in keys if value})

    def line_of(self, path: str, profile: int | None = None) -> int | None:
        """Return the line number of a key, or of its closest parent in the file; None if the file has neither.

        Args:
            path: path in a note or an error; ``TargetLoadPackingArgs.x`` is an argument of this plugin.
            profile: index of the profile with the plugin's arguments; None for any.
        """
        path = path.partition(":")[0].removeprefix(_ROOT)
        plugin, _, key = path.partition(".")
        if plugin.endswith(_ARGUMENTS):
            path = self._argument(plugin.removesuffix(_ARGUMENTS), key, profile)
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None

    def located(self, notes: Iterable[ConfigNote]) -> Iterator[tuple[ConfigNote, int | None]]:
        """Yield each note with the line of its key, which is searched for in the profile of the note."""
        profile = 0
        for note in notes:
            if note.path.startswith("profiles["):
                profile = int(note.path[len("profiles[") :].partition("]")[0])
            yield note, self.line_of(note.path, profile)

    def _argument(self, plugin: str, key: str, profile: int | None) -> str:
        """Return the path of a plugin's argument, in the first profile that has it."""
        paths = [f"{arguments}.{key}" for arguments in self._arguments(plugin, profile)]
        return next((path for path in paths if path in self.lines), paths[0] if paths else "")

    def _arguments(self, plugin: str, profile: int | None) -> Iterator[str]:
        prefix = "profiles[" if profile is None else f"profiles[{profile}].pluginConfig["
        for path, value in self.values.items():
            if value == plugin and path.startswith(prefix) and ".pluginConfig[" in path and path.endswith("].name"):
                yield path.removesuffix("name") + "args"


def _walk(node: yaml.Node, path: str, seen: set[int]) -> Iterator[tuple[str, int, str]]:
    """Yield path, line number and scalar value of every key; a YAML node that aliases repeat is visited once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = f"{path}.{key.value}" if path else str(key.value)
            yield child, key.start_mark.line + 1, value.value if isinstance(value, yaml.ScalarNode) else ""
            yield from _walk(value, child, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            child = f"{path}[{number}]"
            yield child, item.start_mark.line + 1, item.value if isinstance(item, yaml.ScalarNode) else ""
            yield from _walk(item, child, seen)
