"""Base classes of settings, secrets, and validators of text values."""

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from runtime import duration


def comma_separated(value: Any) -> Any:
    """Split text at commas; return other values unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(comma_separated)]
ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]
"""Name of a Kubernetes object."""


def parsed_json(value: Any) -> Any:
    """Parse text as JSON; return other values unchanged."""
    try:
        return orjson.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f'must be JSON, such as {{"key": "value"}} or [{{"key": "value"}}]: {error}') from None


def duration_text(value: str) -> str:
    """Check that a text is a duration, and return it."""
    duration.seconds(value)
    return value


def http_address(value: str) -> str:
    """Check an HTTP URL and return it without a trailing slash. Error messages do not quote the value."""
    if not value.startswith(("http://", "https://")):
        raise ValueError(
            "must start with http:// or https://, such as http://prometheus:9090 or https://api.datadoghq.eu"
        )
    try:
        parts = urlsplit(value)
        usable = bool(parts.hostname) and parts.port != 0 and value.isprintable() and " " not in value
    except ValueError:  # its message may quote a part of the password
        usable = False
    if not usable:
        raise ValueError("must name a host and, where needed, a port, such as http://prometheus:9090")
    if parts.query or parts.fragment:
        raise ValueError("must not contain a query (?) or a fragment (#)")
    return value.rstrip("/")


def _header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value().strip()  # token files end with a newline
    if not (text.isascii() and text.isprintable()):
        raise ValueError("must be printable ASCII, because it is sent in a header")
    return SecretStr(text)


Secret = Annotated[SecretStr, AfterValidator(_header_value)]

# Allowed characters in parts of a query: no quotes, brackets, separators or wildcards.
NAME_PART = r"^[\w.:/-]*$"
KEY = r"^[A-Za-z_][\w./-]*$"


class Section(BaseModel):
    """Group of settings. Unknown keys are errors."""

    rejected_keys: ClassVar[Mapping[str, str]] = {}
    """Error text, such as the new name, for each key that was removed or that belongs to another program."""

    # Pydantic's messages would quote the input, which may be a token; loading quotes only what is not secret.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @model_validator(mode="before")  # one for all fields: one per field takes a fifth of the time to build a model
    @classmethod
    def _seconds(cls, values: Any) -> Any:
        """Convert durations such as ``5m`` for all keys that end in ``_seconds``."""
        if not isinstance(values, dict):
            return values
        read = dict(values)
        for name, value in values.items():
            if isinstance(value, str) and str(name).endswith("_seconds"):
                with contextlib.suppress(ValueError):  # a number, or a text that the field's type will reject
                    read[name] = duration.seconds(value)
        return read


class SettingsModel(Section):
    """All settings of a program, with one field per :class:`Section`."""

    environment_variables: ClassVar[Mapping[str, str]] = {}
    """Setting of each environment variable without the usual prefix, such as ``log.level`` for ``LOG_LEVEL``."""
    sections_of_others: ClassVar[frozenset[str]] = frozenset()
    """Sections of other programs, which a shared file or environment may have; ignored unless they are fields here."""
    removed: ClassVar[Mapping[str, str]] = {}
    """Error text for each removed setting, such as ``rebalance.jobs``, with the replacement."""
