"""Datadog queries of the settings, parsed into metrics and arithmetic."""

import itertools
import re
from dataclasses import dataclass
from typing import Any, Self

from watcher.model import MetricType
from watcher.settings import DatadogSettings

#: Queries for metrics that the Agent always reports, for hosts without cpu.utilization and memory.utilization.
AGENT_QUERIES = {
    MetricType.CPU: "100 - avg:system.cpu.idle",
    MetricType.MEMORY: "100 - 100 * avg:system.mem.pct_usable",
}
_TERM = re.compile(r"\b(?P<metric>(?:avg|max|min|sum):[A-Za-z][\w.]*)(?:\{(?P<scope>[^{}]*)\})?")
_MOST_TERMS = 3  # of a query; up to this many, all 2^n combinations of low and high values are queried
_ARITHMETIC = re.compile(r"[\w\s.,+\-*/()]+")


@dataclass(frozen=True, slots=True)
class DatadogQuery:
    """Parsed query of one resource.

    Attributes:
        text: the text of the setting, which is also the metric's published name.
        type: the resource.
        setting: the setting that holds the query.
        formula: the arithmetic over ``query1``, ``query2`` and so on.
        terms: metric and own filter of ``query1``, ``query2`` and so on.
    """

    text: str
    type: MetricType
    setting: str
    formula: str
    terms: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str, type_: MetricType, setting: str) -> Self:
        """Parse a query.

        Raises:
            ValueError: the query has something other than metrics and arithmetic.
        """
        terms = tuple((match["metric"], match["scope"] or "") for match in _TERM.finditer(text))
        numbers = iter(range(1, len(terms) + 1))
        formula = _TERM.sub(lambda _: f"query{next(numbers)}", text).strip()
        if not terms or ".rollup" in text or not _ARITHMETIC.fullmatch(formula):
            raise ValueError(
                "must be an expression of metrics (such as max:cpu.utilization) and arithmetic, without .rollup(): "
                "grouping by host and rollup are added automatically"
            )
        return cls(text, type_, setting, formula, terms)

    def request(self, scope: str, tag: str, step: int, *, has_extremes: bool) -> dict[str, Any]:
        """Return the queries and formulas of a request: the averages of each step, and then bounds of the samples.

        If a term is subtracted, its lowest value gives the highest sample, so all combinations are queried.

        Args:
            scope: the filter of hosts, in addition to the filter of each term.
            tag: the tag with the host.
            step: length of a step, seconds.
            has_extremes: whether the lowest and the highest sample of each step are queried, too.
        """
        methods = {"query": "avg", "low": "min", "high": "max"} if has_extremes else {"query": "avg"}
        queries = [
            {
                "data_source": "metrics",
                "name": f"{name}{number}",
                "query": f"{metric}{{{_joined(own_scope, scope)}}} by {{{tag}}}.rollup({method}, {step})",
            }
            for name, method in methods.items()
            for number, (metric, own_scope) in enumerate(self.terms, 1)
        ]
        count = len(self.terms)
        bounds = itertools.product(("low", "high"), repeat=count)
        corners = bounds if count <= _MOST_TERMS else zip(*[("low", "high")] * count, strict=True)
        names = [("query",) * count, *(corners if has_extremes else ())]
        formulas = [{"formula": self._named(each)} for each in names]
        return {"queries": queries, "formulas": formulas}

    def _named(self, names: tuple[str, ...]) -> str:
        """Return the formula with other names of queries, such as ``low1`` for ``query1``; one name for each term."""
        return re.sub(r"\bquery(\d+)", lambda match: f"{names[int(match[1]) - 1]}{match[1]}", self.formula)


def _joined(own_scope: str, scope: str) -> str:
    return ",".join(filter(None, (own_scope.strip(), scope))) or "*"


def read_queries(options: DatadogSettings) -> tuple[list[DatadogQuery], list[str]]:
    """Return the queries of all settings, and the problems of queries that cannot be parsed."""
    queries: list[DatadogQuery] = []
    problems: list[str] = []
    for key, type_ in (
        ("cpu_query", MetricType.CPU),
        ("memory_query", MetricType.MEMORY),
        ("storage_query", MetricType.STORAGE),
        ("bandwidth_query", MetricType.BANDWIDTH),
        ("gpu_query", MetricType.GPU),
    ):
        text = getattr(options, key).strip()
        try:
            queries += [DatadogQuery.parse(text, type_, f"datadog.{key}")] if text else []
        except ValueError as error:
            problems.append(f"datadog.{key} (TRIMARAN_DATADOG__{key.upper()}) = {text[:80]!r}: {error}")
    return queries, problems
