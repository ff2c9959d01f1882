"""Datadog's queries as data: what stands in the settings, taken apart into metrics and arithmetic."""

import re
from dataclasses import dataclass
from typing import Self

from watcher.model import MetricType
from watcher.settings import DatadogSettings

#: What the Agent reports on every host by itself, for those who have no cpu.utilization and memory.utilization.
AGENT_QUERIES = {
    MetricType.CPU: "100 - avg:system.cpu.idle",
    MetricType.MEMORY: "100 - 100 * avg:system.mem.pct_usable",
}
_TERM = re.compile(r"\b(?P<metric>(?:avg|max|min|sum):[A-Za-z][\w.]*)(?:\{(?P<scope>[^{}]*)\})?")
_ARITHMETIC = re.compile(r"[\w\s.,+\-*/()]+")


@dataclass(frozen=True, slots=True)
class DatadogQuery:
    """One resource's query, taken apart.

    Attributes:
        text: as it stands in the setting, and as the metric is called.
        type: the resource.
        setting: where it stands.
        formula: the arithmetic over ``query1``, ``query2`` and so on.
        terms: what these are: pairs of metric and scope of its own.
    """

    text: str
    type: MetricType
    setting: str
    formula: str
    terms: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str, type_: MetricType, setting: str) -> Self:
        """Take a query apart.

        Raises:
            ValueError: it is not metrics and arithmetic.
        """
        terms = tuple((match["metric"], match["scope"] or "") for match in _TERM.finditer(text))
        numbers = iter(range(1, len(terms) + 1))
        formula = _TERM.sub(lambda _: f"query{next(numbers)}", text).strip()
        if not terms or ".rollup" in text or not _ARITHMETIC.fullmatch(formula):
            raise ValueError(
                "must be metrics, such as max:cpu.utilization or avg:system.cpu.idle{env:prod}, and arithmetic; what "
                "groups by host and rolls up is added"
            )
        return cls(text, type_, setting, formula, terms)


def read_queries(own: DatadogSettings) -> tuple[list[DatadogQuery], list[str]]:
    """Return the queries of all settings, and what is wrong with those that cannot be read."""
    queries: list[DatadogQuery] = []
    problems: list[str] = []
    for key, type_ in (
        ("cpu_query", MetricType.CPU),
        ("memory_query", MetricType.MEMORY),
        ("storage_query", MetricType.STORAGE),
        ("bandwidth_query", MetricType.BANDWIDTH),
        ("gpu_query", MetricType.GPU),
    ):
        text = getattr(own, key).strip()
        try:
            queries += [DatadogQuery.parse(text, type_, f"datadog.{key}")] if text else []
        except ValueError as error:
            problems.append(f"datadog.{key} (TRIMARAN_DATADOG__{key.upper()}) = {text[:80]!r}: {error}")
    return queries, problems
