"""Values of a YAML or JSON text as kube-scheduler's Go libraries read them, which differ from PyYAML's.

A plain ``1e3``, ``0o17`` or ``08`` is a number, ``1:30`` and a date are strings, ``y`` is true, and a repeated key is
an error. The Go library converts YAML to JSON, so 1.0 is read as 1. Source: resolve.go of go.yaml.in/yaml/v2,
and yaml.go of sigs.k8s.io/yaml.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from runtime.errors import quoted
from runtime.parsing import compose_yaml, parse_json

_WORDS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")), math.inf),
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LIKE_NUMBER = re.compile(r"[-+.0-9]")
_MAX_INTEGER = 2**64
_MAX_WRITTEN_OUT = 1e21  # Go's JSON writes larger numbers with an exponent, which is not read as an integer


class Refused(ValueError):
    """Error for a text that kube-scheduler's parser refuses."""


class Unclear(ValueError):
    """Error for a text of which it is not known how kube-scheduler's parser reads it."""


def go_values(text: bytes) -> Any:
    """Return the content of a file: dicts with string keys, lists, strings, numbers, booleans and None.

    Raises:
        Refused: kube-scheduler refuses the text.
        Unclear: it is not known how kube-scheduler reads the text.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise Unclear("the text is not UTF-8") from None
    if decoded.lstrip().startswith("{"):
        return _from_json(decoded)
    try:
        root = compose_yaml(text)
    except ValueError as error:
        raise Unclear(str(error)) from None
    return None if root is None else _Reader(decoded).value(root)


def as_text(document: Mapping[str, Any]) -> bytes:
    """Return a configuration as YAML."""
    return yaml.safe_dump(dict(document), sort_keys=False).encode()


def _from_json(text: str) -> Any:
    try:
        values = parse_json(text, _unique)
    except json.JSONDecodeError as error:
        raise Refused(f"the file begins with {{, but is not valid JSON: {error}") from None
    except RecursionError:
        raise Unclear("the file is nested too deeply") from None
    except (Refused, Unclear):
        raise
    except ValueError as error:
        raise Unclear(str(error)) from None
    if re.search(r"\b(NaN|Infinity)\b", text):
        raise Unclear("the file may contain NaN or infinite numbers")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise Refused(f"the key {quoted(key)} is repeated")
        values[key] = value
    return values


class _Reader:
    """Converter of the YAML nodes of ``text``. A node with an anchor is converted only once."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff")
        self._values: dict[int, Any] = {}

    def value(self, node: yaml.Node) -> Any:
        """Return the value of a node."""
        if id(node) not in self._values:
            self._values[id(node)] = self._convert(node)
        return self._values[id(node)]

    def _convert(self, node: yaml.Node) -> Any:
        written = self._text[node.start_mark.index : node.start_mark.index + 200]
        if re.match(r"(&\S+\s+)?!", written):
            raise Unclear(f"line {node.start_mark.line + 1}: YAML tags are not checked")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each) for each in node.value]
        return scalar_value(node)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self.value(key_node)
            if key_node.value == "<<" or not isinstance(key, str | int | None) or isinstance(key, bool):
                raise Unclear(f"line {line}: the key is not a string or an integer")
            if key is None:
                raise Refused(f"line {line}: a key must not be null")
            if str(key) in values:
                raise Refused(f"line {line}: the key {quoted(key)} is repeated")
            values[str(key)] = self.value(value_node)
        return values


def scalar_value(node: yaml.Node) -> Any:
    """Return the value of a node that is neither a mapping nor a list.

    Raises:
        Refused: the value is a number that is not finite.
    """
    if not isinstance(node, yaml.ScalarNode) or node.style in {"'", '"', "|", ">"}:
        return node.value
    value = _plain(node.value)
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise Refused(f"line {node.start_mark.line + 1}: the number is not finite")
    # kube-scheduler reads the number from JSON, in which a number without a fraction is an integer.
    return int(value) if value.is_integer() and abs(value) < _MAX_WRITTEN_OUT else value


def _plain(text: str) -> Any:
    """Return the value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if not _LIKE_NUMBER.match(text):
        return text
    if text.startswith("."):  # Go also reads hexadecimal floats and underscores here
        return _float(text)
    plain = text.replace("_", "")
    if (match := _INTEGER.fullmatch(plain)) is not None:
        sign, *written = match.groups()
        digits, base = next(
            (each, base) for each, base in zip(written, (16, 2, 8, 10), strict=True) if each is not None
        )
        number = int(sign + digits, base)
        if -_MAX_INTEGER // 2 <= number < _MAX_INTEGER and not (sign == "+" and number >= _MAX_INTEGER // 2):
            return number
    value = _float(plain)
    return text if isinstance(value, str) else value


def _float(text: str) -> float | str:
    """Return the number in a text; the text itself if it is not a number, or too large for Go."""
    return number if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)) else text
