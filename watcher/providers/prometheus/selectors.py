"""Selectors of series: patterns of label values, and the selectors in a user's PromQL expression."""

import re
from collections.abc import Iterable, Iterator

_NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
_STRING = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'
_LABELS = re.compile(
    rf"({_STRING})|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", re.IGNORECASE | re.ASCII
)
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<number>[0-9][0-9a-zA-Z.]*)|(?P<name>{_NAME})?\s*(?P<matchers>\{{(?:[^{{}}\"\'`]|{_STRING})*\}})"
    rf"|{_NAME}\s*\(|(?P<word>{_NAME})",
    re.ASCII,
)
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"})
_KEYWORDS |= {"by", "without", "on", "ignoring", "group_left", "group_right"}


def any_of(texts: Iterable[str]) -> str:
    """Return a regular expression that matches each of some texts, escaped for a string of PromQL in double quotes."""
    return "|".join(map(re.escape, texts)).replace("\\", "\\\\").replace('"', '\\"')


def source_of(promql: str) -> str:
    """Return the selector of one of the series that an expression is computed from; empty if none can be read.

    Series of kube-state-metrics, whose names begin with ``kube_``, are the last choice: they describe a node, often to
    join its name, and go on while its measurements have stopped.
    """
    found = list(_selectors(promql))
    return next((each for each in found if not each.startswith("kube_")), found[0] if found else "")


def _selectors(promql: str) -> Iterator[str]:
    text = _LABELS.sub(lambda match: match[1] or " ", promql)
    for token in _TOKEN.finditer(text):
        if token["matchers"]:
            yield f"{token['name'] or ''}{token['matchers']}"
        elif token["word"] and token["word"].lower() not in _KEYWORDS:
            yield token["word"]
