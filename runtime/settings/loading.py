"""Loading of settings from flags, environment and file, with one report of all problems.

Flags have the highest precedence, then ``TRIMARAN_<SECTION>__<KEY>`` variables, load-watcher's variables, the TOML
file, and the defaults.
"""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from runtime.errors import SettingsError
from runtime.masking import name_or_mask, without_credentials
from runtime.parsing import parse_toml, read_bounded
from runtime.settings.fields import Section, SettingsModel

Model = TypeVar("Model", bound=SettingsModel)
FILE_VARIABLE = "TRIMARAN_SETTINGS"
_PREFIX = "TRIMARAN_"


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[Model]):
    """Effective settings, and the origin of each value (``provider.name`` -> ``METRICS_...``).

    Attributes:
        settings: all settings.
        origins: origin by setting; settings with their default value are missing.
        file: the TOML file; None if there is none.
        flags: values from the command line, by setting.
    """

    settings: Model
    origins: Mapping[str, str]
    file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    def reload(self) -> "LoadedSettings[Model]":
        """Load the settings again from the same sources.

        Raises:
            SettingsError: the settings have become invalid.
        """
        return load(type(self.settings), self.flags, self.file)


class InvalidSettings(SettingsError):
    """One or more settings are invalid.

    Attributes:
        values: values of all settings as given, by section and key; they may be invalid.
    """

    def __init__(self, problems: Sequence[str], values: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(problems)
        self.values = values


def load(model: type[Model], flags: Mapping[str, Any] | None = None, file: Path | None = None) -> LoadedSettings[Model]:
    """Load all settings.

    Args:
        model: class of the settings.
        flags: values from the command line, by ``section.key``.
        file: TOML file with a table per section; when None, the file that the variable TRIMARAN_SETTINGS names.

    Raises:
        InvalidSettings: a setting is invalid. There is one line per problem, with the setting and its origin.
    """
    problems: list[str] = []
    file = file or (Path(os.environ[FILE_VARIABLE]) if os.environ.get(FILE_VARIABLE) else None)
    merged: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}
    for name, value, origin in _values_by_rising_precedence(model, flags or {}, file, problems):
        section, _, key = name.partition(".")
        if section in model.sections_of_others - model.model_fields.keys() and name not in (flags or {}):
            continue
        if isinstance(value, str) and not _is_unicode(value):  # bytes of the environment that are not UTF-8
            problems.append(f"{name} ({origin}): is not UTF-8 text")
            continue
        merged.setdefault(section, {})[key] = value
        origins[name] = origin
    try:
        settings = model.model_validate(merged)
    except ValidationError as error:
        problems += [line for detail in error.errors() for line in _describe(model, detail, merged, origins)]
    if problems:
        raise InvalidSettings(problems, merged)
    return LoadedSettings(settings, origins, file, dict(flags or {}))


def setting_names(model: type[SettingsModel]) -> Iterator[str]:
    """Yield the name of every setting, as ``section.key``."""
    for name in model.model_fields:
        yield from (f"{name}.{key}" for key in _section(model, name).model_fields)


def environment_variable(name: str) -> str:
    """Return the environment variable of a setting: ``TRIMARAN_SERVER__PORT`` for ``server.port``."""
    return _PREFIX + name.upper().replace(".", "__")


def display(value: Any) -> str:
    """Return a value as text that can be shown: secrets are masked, and URLs lose their credentials."""
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, BaseModel):
        return str(getattr(value, "name", value))
    if isinstance(value, list):
        return ",".join(map(display, value))
    if isinstance(value, dict):
        return ",".join(
            f"{name_or_mask(key) if isinstance(item, SecretStr) else key}={display(item)}"
            for key, item in value.items()
        )
    text = "" if value is None else str(value)
    return without_credentials(text) if "://" in text else text


def _values_by_rising_precedence(
    model: type[SettingsModel], flags: Mapping[str, Any], file: Path | None, problems: list[str]
) -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and origin of each setting; later ones override earlier ones."""
    if file is not None:
        yield from ((name, value, str(file)) for name, value in _read_file(file, problems))
    for upstream, name in model.environment_variables.items():
        if os.environ.get(upstream):
            yield name, os.environ[upstream], upstream
    meant = {environment_variable(name).replace("__", "_"): environment_variable(name) for name in setting_names(model)}
    for ours, value in os.environ.items():
        # Names need the double underscore: for a Service called trimaran, Kubernetes sets TRIMARAN_PORT and the like.
        if ours.startswith(_PREFIX) and "__" in ours and value:
            yield ours.removeprefix(_PREFIX).lower().replace("__", ".", 1), value, ours
        elif ours in meant and not value.startswith(("tcp://", "udp://")):
            problems.append(f"{ours}: there is no such variable; did you mean {meant[ours]}?")
    yield from ((name, value, "command line") for name, value in flags.items())


def _read_file(file: Path, problems: list[str]) -> Iterator[tuple[str, Any]]:
    try:
        with file.open("rb") as opened:
            sections = parse_toml(read_bounded(opened))
    except OSError as error:
        problems.append(f"the settings file {file} cannot be read: {error.strerror}")
        return
    except ValueError as error:
        problems.append(f"the settings file {file} is not TOML: {error}")
        return
    for section, values in sections.items():
        if isinstance(values, dict):
            yield from ((f"{section}.{key}", value) for key, value in values.items())
        else:
            problems.append(f"{section} ({file}): settings belong in a section, such as [server]")


def _describe(
    model: type[SettingsModel],
    error: Mapping[str, Any],
    merged: Mapping[str, Mapping[str, Any]],
    origins: Mapping[str, str],
) -> Iterator[str]:
    """Yield the lines of the report for one of pydantic's errors."""
    section, key, *_ = [*map(str, error["loc"]), ""]
    # Unknown keys: one line each, with the reason or a similar name. In an unknown section, all keys are unknown.
    if error["type"] == "extra_forbidden":
        for unknown in [key] if len(error["loc"]) > 1 else merged[section]:
            name = f"{section}.{unknown}" if unknown else section
            if len(error["loc"]) > 2:
                yield f"{_place(error['loc'])} ({origins[name]}): there is no such key"
                continue
            origin = f" ({origins[name]})" if name in origins else ""
            if reason := model.removed.get(name):
                yield f"{name}{origin}: is no longer a setting: {reason}"
                continue
            if reason := _section(model, section).rejected_keys.get(unknown):
                yield f"{name}{origin}: {reason}"
                continue
            close = difflib.get_close_matches(name, setting_names(model), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield f"{name}{origin}: there is no such setting{hint}"
        return
    # A problem with a combination of settings, which the message names.
    message = str(error["msg"]).removeprefix("Value error, ")
    if not key:
        yield f"{section}: {message}"
        return
    # An invalid value, which is quoted unless it is a secret.
    name = f"{section}.{key}"
    origin = f" ({origins[name]})" if name in origins else ""
    text = str(error["input"])
    shown = without_credentials(text) if key == "address" or "://" in text else text
    value = "" if _holds_secret(model, section, key) or error["type"] == "missing" else f" = {shown[:80]!r}"
    place = _place(error["loc"]) if len(error["loc"]) > 3 else name  # names the invalid item of a list
    yield f"{place}{origin}{value}: {message}"


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: a text with a surrogate cannot be sent, stored or printed."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _place(path: Sequence[str | int]) -> str:
    """Return the place of a problem, such as ``fallback.providers[0].address``, with items counted from 0."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{name_or_mask(part)}" for part in path).removeprefix(
        "."
    )


def _section(model: type[SettingsModel], name: str) -> type[Section]:
    """Return the class of a section, or an empty section if the section is unknown."""
    section = model.model_fields[name].annotation if name in model.model_fields else None
    return section if isinstance(section, type) and issubclass(section, Section) else Section


def _holds_secret(model: type[SettingsModel], section: str, key: str) -> bool:
    """Return whether a setting, or a part of it, is a secret, so that its value must not be quoted."""
    field_ = _section(model, section).model_fields.get(key)
    return field_ is not None and _mentions_secret(field_.annotation)


def _mentions_secret(annotation: Any) -> bool:
    """Return whether a type is or contains SecretStr."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_mentions_secret(part.annotation) for part in annotation.model_fields.values())
    return annotation is SecretStr or any(map(_mentions_secret, get_args(annotation)))
