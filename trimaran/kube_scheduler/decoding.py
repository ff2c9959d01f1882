"""Strict decoding of a file's values into kube-scheduler's structs: case-sensitive keys, and the types of Go.

Source: UnmarshalStrict of sigs.k8s.io/json, and the types' own UnmarshalJSON.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from runtime.errors import quoted
from scoring.profiles.configuration.fields import did_you_mean
from trimaran.kube_scheduler.findings import Findings
from trimaran.kube_scheduler.table import Struct

_INTEGERS = {"int32": 2**31, "int64": 2**63}
_LARGEST_FLOAT32 = 3.4028235677973366e38
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_NANOSECONDS["h"] = 3600 * 10**9
_EXPECTED = {
    "string": "a string", "bool": "true or false", "float32": "a number", "int32": "an integer of 32 bits",
    "int64": "an integer of 64 bits",
}  # fmt: skip


def nanoseconds(text: str) -> int | None:
    """Return a duration in Go's notation, such as ``1m30s``, in nanoseconds; None if the text is not a duration."""
    sign, written = (text[0], text[1:]) if text[:1] in {"-", "+"} else ("", text)
    if written == "0":
        return 0
    parts = _DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        return None
    total = 0
    for number, unit in parts:
        whole, _, fraction = number.partition(".")
        total += int(whole or 0) * _NANOSECONDS[unit]
        total += int(fraction or 0) * _NANOSECONDS[unit] // 10 ** len(fraction)
    return None if total >= 2**63 else -total if sign == "-" else total


class Decoder:
    """Decoder that records every value of a wrong type and every unknown key.

    Args:
        structs: structs by name.
        findings: collects these values and keys.
    """

    def __init__(self, structs: Mapping[str, Struct], findings: Findings) -> None:
        self._structs = structs
        self._findings = findings

    def decode(self, value: Any, kind: str, path: str) -> Any:
        """Convert a value to a Go type, durations to nanoseconds. Omit keys with null or a wrong type."""
        if kind.startswith("*"):
            return None if value is None else self.decode(value, kind[1:], path)
        if kind == "any":
            return value
        if kind == "duration":
            return self._duration(value, path)
        if value is None:
            return None  # leaves Go's zero value
        if kind.startswith("[]"):
            return self._list(value, kind[2:], path)
        if kind.startswith("map[string]"):
            return self._map(value, kind.removeprefix("map[string]"), path)
        if kind in self._structs:
            return self._struct(value, kind, path)
        return self._scalar(value, kind, path)

    def _struct(self, value: Any, kind: str, path: str) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            self._refuse(path, f"must be a mapping, got {quoted(value)}")
            return None
        decoded, fields = {}, self._structs[kind]
        for key, each in value.items():
            inner = f"{path}.{key}" if path else key
            if key not in fields:
                self._findings.refuse(inner, f"there is no such key{did_you_mean(key, fields)}".removesuffix("."))
            elif (result := self.decode(each, fields[key], inner)) is not None:
                decoded[key] = result
        return decoded

    def _list(self, value: Any, kind: str, path: str) -> list[Any] | None:
        if not isinstance(value, list):
            self._refuse(path, f"must be a list, got {quoted(value)}")
            return None
        zero: Any = {} if kind in self._structs else "" if kind == "string" else 0
        decoded = (self.decode(each, kind, f"{path}[{index}]") for index, each in enumerate(value))
        return [zero if each is None else each for each in decoded]

    def _map(self, value: Any, kind: str, path: str) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            self._refuse(path, f"must be a mapping, got {quoted(value)}")
            return None
        return {key: self.decode(each, kind, f"{path}.{key}") for key, each in value.items()}

    def _duration(self, value: Any, path: str) -> int | None:
        # Null is not "unset" here: the type's own UnmarshalJSON parses it as an empty text.
        result = nanoseconds(value) if isinstance(value, str) else None
        if result is None:
            self._refuse(path, f"must be a duration such as 500ms, got {quoted(value)}")
        return result

    def _scalar(self, value: Any, kind: str, path: str) -> Any:
        if kind == "bytes":
            return self._bytes(value, path)
        if kind in _INTEGERS:
            valid = type(value) is int and -_INTEGERS[kind] <= value < _INTEGERS[kind]
        elif kind == "float32":
            valid = type(value) in {int, float} and abs(value) <= _LARGEST_FLOAT32
        elif kind in {"string", "bool"}:
            valid = type(value) is (str if kind == "string" else bool)
        else:
            self._findings.leave(path, f"values of type {kind} are not known")
            return None
        if not valid:
            self._refuse(path, f"must be {_EXPECTED[kind]}, got {quoted(value)}")
        return value if valid else None

    def _bytes(self, value: Any, path: str) -> bytes | None:
        if isinstance(value, list):
            self._findings.leave(path, "a list of numbers is not checked")
            return None
        try:
            return base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
        except (TypeError, binascii.Error, ValueError):
            self._refuse(path, f"must be base64, got {quoted(value)}")
            return None

    def _refuse(self, path: str, reason: str) -> None:
        self._findings.refuse(path, reason)
