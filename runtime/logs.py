"""Structured logs: a message with fields, as text or as one JSON object per line."""

import logging
import sys
from datetime import datetime
from typing import Any

import orjson

from runtime import masking

TRACE = 5
_LEVELS = {
    "panic": logging.CRITICAL, "fatal": logging.CRITICAL, "error": logging.ERROR, "warning": logging.WARNING,
    "info": logging.INFO, "debug": logging.DEBUG, "trace": TRACE,
}  # fmt: skip
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str = "info", form: str = "text") -> None:
    """Send all logs to standard error. Only programs call this; the library leaves logging to its program.

    Args:
        level: panic, fatal, error, warning, info, debug or trace: the names of logrus, which load-watcher uses.
        form: ``json`` for one JSON object per line, ``text`` for lines that are easy to read.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=_LEVELS[level], force=True)
    logging.captureWarnings(True)  # otherwise Python's warnings would be unformatted text between the lines
    # Libraries log every connection at level debug, so their debug messages appear at level trace only.
    chatty = logging.DEBUG if _LEVELS[level] == TRACE else logging.WARNING
    logging.getLogger("urllib3").setLevel(chatty)


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object per line: time, level, logger, message, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line = {
            "time": _time(record, "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": masking.to_line(record.getMessage()),
            **{key: _harmless(value) for key, value in _fields(record).items()},
        }
        if record.exc_info:
            line["exception"] = "\n".join(_lines(self.formatException(record.exc_info)))
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class TextFormatter(logging.Formatter):
    """Formatter of text: ``2030-01-31T12:00:00+01:00 info  message key=value`` on one line; tracebacks are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        fields = "".join(f" {key}={_quoted(value)}" for key, value in _fields(record).items())
        message = masking.to_line(record.getMessage().rstrip())
        line = f"{_time(record, 'seconds')} {record.levelname.lower():<8} {message}{fields}"
        trace = _lines(self.formatException(record.exc_info)) if record.exc_info else []
        return "\n  ".join([line, *trace])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord, precision: str) -> str:
    """Return the time of a record, with date and time zone."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec=precision)


def _lines(trace: str) -> list[str]:
    return [masking.to_line(line) for line in masking.redact(trace).split("\n")]


def _harmless(value: object) -> object:
    """Return a field's value as JSON can hold it: numbers, booleans and null unchanged, anything else as one line."""
    return value if isinstance(value, bool | int | float | None) else masking.to_line(value)


def _quoted(value: object) -> str:
    text = masking.redact(str(value))
    return text if text.isprintable() and " " not in text and text else repr(text)
