"""Tables as markup: Dash's renderer takes milliseconds for each of its components, and a table has a thousand.

The measured difference for a page of 50 nodes is in benchmarks/README.md.
"""

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

_VOID = frozenset({"img"})
_LINK = "dccLink"  # name of dcc.Link in the markup of dcc.Markdown
_SPACE = re.compile(r"\s+")


class MarkupDiv(html.Div):
    """Div whose content the browser gets as the markup of one ``dcc.Markdown``. Its descendants have no callbacks."""

    def to_plotly_json(self) -> dict[str, Any]:
        """Return the JSON of the component that the browser shows."""
        content = _element("div", super().to_plotly_json()["props"])  # type: ignore[no-untyped-call]
        shown: Any = dcc.Markdown(content, dangerously_allow_html=True)
        return dict(shown.to_plotly_json())


def markup(part: Any) -> str:
    """Return components of ``dash.html`` and links as markup in one line; texts are escaped.

    Args:
        part: component, text, number, None, or a list of these.
    """
    if part is None:
        return ""
    if isinstance(part, list | tuple):
        return "".join(map(markup, part))
    if not isinstance(part, Component):
        return _escaped(part)
    tag = _LINK if isinstance(part, dcc.Link) else type(part).__name__.lower()
    return _element(tag, part.to_plotly_json()["props"])  # type: ignore[no-untyped-call]


def _element(tag: str, properties: Mapping[str, Any]) -> str:
    attributes = "".join(f' {name}="{_value(value)}"' for name, value in properties.items() if name != "children")
    if tag in _VOID:
        return f"<{tag}{attributes} />"
    return f"<{tag}{attributes}>{markup(properties.get('children'))}</{tag}>"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):  # a style
        return _escaped("; ".join(f"{key}: {each}" for key, each in value.items()))
    return _escaped(value)


def _escaped(value: Any) -> str:
    """Return a value as one line of text, with the characters of markup and expressions escaped."""
    text = escape(_SPACE.sub(" ", str(value)))
    return text.replace("{", "&#123;").replace("}", "&#125;")
