"""Sections that every service has: its HTTP server and its log."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from runtime.masking import MIN_TOKEN_LENGTH
from runtime.settings.fields import Secret, Section


class LogLevel(StrEnum):
    """Log levels, with the names of logrus, which load-watcher uses."""

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
        raise ValueError(
            f"must have at least {MIN_TOKEN_LENGTH} characters and no space, such as the output of openssl rand -hex 32"
        )
    return value


class ServerSettings(Section):
    """Settings of an HTTP server."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="the address to listen on; 0.0.0.0 for all IPv4 addresses, :: for all addresses",
    )
    port: int = Field(2020, ge=0, le=65535, description="the port to listen on; 0 selects any free port")
    threads: int = Field(8, ge=1, le=256, description="number of requests served at the same time")
    token: Annotated[Secret, AfterValidator(_hard_to_guess)] | None = Field(
        None, description="the bearer token that clients must send"
    )
    tokens_file: Path | None = Field(
        None,
        description="file with bearer tokens that clients may send, one per line, each with an optional expiry date",
    )
    certificate: Path | None = Field(
        None, description="PEM file with the server's certificate and the intermediate certificates, to serve HTTPS"
    )
    key: Path | None = Field(
        None, description="file with the private key of server.certificate; not needed if that file contains the key"
    )
    client_ca_file: Path | None = Field(
        None, description="PEM file with certificate authorities; clients must present a certificate from one of them"
    )
    metrics_open: bool = Field(False, description="serve /metrics also without token and certificate")

    @model_validator(mode="after")
    def _certificate_goes_first(self) -> Self:
        if self.certificate is None and (self.key or self.client_ca_file):
            raise ValueError("key and client_ca_file have no effect without certificate: set certificate, too")
        return self


class LogSettings(Section):
    """Settings of the service's log."""

    level: Annotated[LogLevel, BeforeValidator(_level)] = Field(
        LogLevel.INFO, description="log level: panic, fatal, error, warning, info, debug or trace"
    )
    format: Literal["json", "text"] = Field("text", description="log format: text, or json for one object per line")
