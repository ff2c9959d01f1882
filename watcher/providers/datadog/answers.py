"""Responses of Datadog's timeseries endpoint: the average, the lowest and the highest sample of each step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from watcher.windows.point_table import to_floats
from watcher.windows.sample_range import are_wrong

_PARTS = ("times", "series", "values")


@dataclass(frozen=True, slots=True)
class Answer:
    """Response to a query.

    Attributes:
        parts: the response's lists by name: ``times``, ``series`` and ``values``; only averages, no bounds of samples.
        errors: the response's error messages as one text, empty without errors.
        step: length of a step, seconds.
        refused: the hosts with samples out of range.
    """

    parts: Mapping[str, list[Any]]
    errors: str
    step: int
    refused: frozenset[str]


def read_answer(document: Any, step: int, host_of: Callable[[Any], str]) -> Answer | None:
    """Parse a response; return None if it lacks a list of times, series or values.

    Args:
        document: the response.
        step: length of a step of the response, seconds.
        host_of: returns the host of a series; empty if it has none.
    """
    errors = document.get("errors") if isinstance(document, dict) else None
    error_text = (", ".join(map(str, errors)) if isinstance(errors, list) else str(errors or ""))[:300]
    data = document.get("data") if isinstance(document, dict) else None
    content = data.get("attributes") if isinstance(data, dict) else None
    parts: dict[str, list[Any]] = {}
    if isinstance(content, dict):
        parts = {key: content[key] for key in _PARTS if isinstance(content.get(key), list)}
    if len(parts) < len(_PARTS):
        return Answer({"series": []}, error_text, step, frozenset()) if error_text else None
    series, values = parts["series"], parts["values"]
    bounds = {number for number, each in enumerate(series) if isinstance(each, dict) and each.get("query_index")}
    refused = {
        host_of(series[number])
        for number in bounds
        if number < len(values) and are_wrong(to_floats(values[number])).any()
    }
    for key in ("series", "values"):
        parts[key] = [each for number, each in enumerate(parts[key]) if number not in bounds]
    return Answer(parts, error_text, step, frozenset(refused - {""}))
