"""Sections that every service has: its HTTP server and its log."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from runtime.server.access import MIN_TOKEN_LENGTH
from runtime.settings.fields import Secret, Section


class LogLevel(StrEnum):
    """How much to log, in logrus' words, as upstream has them."""

    PANIC = "panic"
    FATAL = "fatal"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"
    TRACE = "trace"


def _level(value: Any) -> Any:
    word = value.lower() if isinstance(value, str) else value
    return "warning" if word == "warn" else word


def _hard_to_guess(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if len(text) < MIN_TOKEN_LENGTH or any(character.isspace() for character in text):
        raise ValueError(f"must have {MIN_TOKEN_LENGTH} characters and no space, as what openssl rand -hex 32 prints")
    return value


class ServerSettings(Section):
    """HTTP server."""

    host: str = Field("127.0.0.1", min_length=1, description="the address to listen on")
    port: int = Field(2020, ge=0, le=65535, description="the port to listen on; 0 takes any free one")
    threads: int = Field(8, ge=1, le=256, description="requests served at the same time")
    token: Annotated[Secret, AfterValidator(_hard_to_guess)] | None = Field(
        None, description="the bearer token that readers must send"
    )
    tokens_file: Path | None = Field(
        None, description="a file with such tokens, one a line, each with the day it expires if it does"
    )
    certificate: Path | None = Field(None, description="a PEM file with the server's certificate, to serve HTTPS")
    key: Path | None = Field(None, description="its key, where that is not in the same file")
    client_ca_file: Path | None = Field(None, description="authorities of certificates that readers must have")
    metrics_open: bool = Field(False, description="answer /metrics also without token and certificate")

    @model_validator(mode="after")
    def _certificate_goes_first(self) -> Self:
        if self.certificate is None and (self.key or self.client_ca_file):
            raise ValueError("key and client_ca_file are of no use without certificate")
        return self


class LogSettings(Section):
    """What the service says about itself."""

    level: Annotated[LogLevel, BeforeValidator(_level)] = Field(LogLevel.INFO, description="how much to log")
    format: Literal["json", "text"] = Field("text", description="one JSON object a line, or text for people")
