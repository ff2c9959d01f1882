"""Arguments of a plugin from another package, read from a KubeSchedulerConfiguration."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from scoring.arguments import ArgumentError, check_arguments
from scoring.plugins.base import Plugin
from scoring.profiles.configuration.fields import FieldReader, camel, is_list

WATCHER_KEYS = ("watcherAddress", "WatcherAddress", "metricProvider")
"""Keys in the arguments of any plugin that have no effect on scores."""
_OTHER_KEYS = ("apiVersion", "kind", *WATCHER_KEYS)


Kind = TypeVar("Kind", bound=Plugin)


def reader_of(plugin: type[Kind]) -> Callable[[FieldReader], Kind]:
    """Return the function that reads the arguments of a plugin from another package.

    The arguments are the fields of the dataclass, unless the plugin has a class method ``from_config(arguments)``.
    """

    def build(arguments: Mapping[str, Any], path: str) -> Kind:
        from_config = getattr(plugin, "from_config", None)
        try:
            built: Kind = plugin(**arguments) if from_config is None else from_config(arguments)
        except ArgumentError:
            raise
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        check_arguments(built)
        return built

    def read(reader: FieldReader) -> Kind:
        arguments = {}
        if hasattr(plugin, "from_config"):
            arguments = {key: reader.value(key, None) for key in reader.fields if key not in _OTHER_KEYS}
        else:
            for field in fields(plugin):  # type: ignore[arg-type]  # an installed plugin is a dataclass
                if not field.init:
                    continue  # state of the plugin
                key = camel(field.name)
                value = reader.value(key, None)
                if value is not None:
                    arguments[field.name] = tuple(value) if is_list(value) else value
                elif field.default is MISSING and field.default_factory is MISSING:
                    raise reader.error(key, "is required")
        return reader.build(lambda: build(arguments, reader.path))

    return read
