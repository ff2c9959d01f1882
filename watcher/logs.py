"""Structured logs: a message and its fields, as text for people or as one JSON object a line."""

import logging
import sys
from typing import Any

import orjson

from watcher.settings import LogLevel, LogSettings

_LEVELS = {
    LogLevel.PANIC: logging.CRITICAL,
    LogLevel.FATAL: logging.CRITICAL,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.INFO: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.TRACE: 5,
}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(settings: LogSettings) -> None:
    """Send all logs to standard error in the configured shape; for programs, never called by the library."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=_LEVELS[settings.level], force=True)
    # Below debug: what libraries say about every connection.
    chatty = logging.DEBUG if settings.level is LogLevel.TRACE else logging.WARNING
    logging.getLogger("urllib3").setLevel(chatty)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class TextFormatter(logging.Formatter):
    """``12:00:00 info  message key=value``, always on one line but for tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        fields = "".join(f" {key}={_quoted(value)}" for key, value in _fields(record).items())
        message = record.getMessage().replace("\n", " ")
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():<8} {message}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else repr(text)
