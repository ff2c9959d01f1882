"""What settings are made of: sections, secrets, and texts that are read and checked on the way in."""

import contextlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, model_validator

from runtime import duration


def comma_separated(value: Any) -> Any:
    """Split text at commas; anything else is left as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def parsed_json(value: Any) -> Any:
    """Read text as JSON; anything else is left as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f'must be JSON, such as {{"key": "value"}} or [{{"key": "value"}}]: {error}') from None


def duration_text(value: str) -> str:
    """Refuse what is no duration."""
    duration.seconds(value)
    return value


def http_address(value: str) -> str:
    """Refuse what is no HTTP address, in words that quote nothing of it."""
    if not value.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://, as in http://prometheus:9090, https://api.datadoghq.eu")
    try:
        parts = urlsplit(value)
        usable = bool(parts.hostname) and parts.port != 0 and value.isprintable() and " " not in value
    except ValueError:  # its words quote what may be part of a password
        usable = False
    if not usable:
        raise ValueError("must name a host and, where needed, a port, such as http://prometheus:9090")
    if parts.query or parts.fragment:
        raise ValueError("must end where the API begins: without ? and #")
    return value.rstrip("/")


def _header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value().strip()  # files of tokens end with a newline
    if not (text.isascii() and text.isprintable()):
        raise ValueError("must be printable ASCII, as it is sent in a header")
    return SecretStr(text)


Secret = Annotated[SecretStr, AfterValidator(_header_value)]

# What becomes part of a query: no quotes, brackets, separators or wildcards.
NAME_PART = r"^[\w.:/-]*$"
KEY = r"^[A-Za-z_][\w./-]*$"


class Section(BaseModel):
    """Group of settings. Unknown keys are errors."""

    rejected_keys: ClassVar[Mapping[str, str]] = {}
    """Former or foreign keys of this section, and what the error says of each: its new name, say."""

    # A message that quotes its input would quote tokens too; loading quotes what may be shown.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")  # one of all fields would be made for each, which takes a fifth of making the model
    @classmethod
    def _seconds(cls, values: Any) -> Any:
        """Take a duration such as ``5m`` wherever seconds are asked for."""
        if not isinstance(values, dict):
            return values
        read = dict(values)
        for name, value in values.items():
            if isinstance(value, str) and str(name).endswith("_seconds"):
                with contextlib.suppress(ValueError):  # a number, or what is told to be none
                    read[name] = duration.seconds(value)
        return read


class SettingsModel(Section):
    """All settings of a program: one :class:`Section` a field."""

    environment_variables: ClassVar[Mapping[str, str]] = {}
    """Environment variables with names of their own, and the setting of each: ``LOG_LEVEL`` to ``log.level``."""
