"""Tables as markup: the texts of other systems are shown as texts, and never read as markup or expressions."""

import pytest

pytest.importorskip("dash")

from trimaran.dashboard.components import load_bar, node_link, table
from trimaran.dashboard.markup import markup

HOSTILE = "<script>alert(1)</script> {alert(2)}\n\n* \"quoted\" & 'more'"


def test_texts_are_escaped() -> None:
    """In cells, attributes and links no part of a text is markup, an expression, or the blank line that ends it."""
    shown = table("Pods", ["Pod", HOSTILE], [[node_link(HOSTILE), HOSTILE, None, 7]]).to_plotly_json()
    text = shown["props"]["children"]
    assert (shown["type"], shown["props"]["dangerously_allow_html"]) == ("Markdown", True)
    for part in ("<script", "{", "}", "\n", '"quoted"'):
        assert part not in text
    escaped = "&lt;script&gt;alert(1)&lt;/script&gt; &#123;alert(2)&#125; * &quot;quoted&quot; &amp; &#x27;more&#x27;"
    assert text.count(escaped) == 4  # a header, a link, a cell and its tooltip
    assert "<td></td><td>7</td>" in text


def test_components_keep_their_attributes() -> None:
    """Names, styles and links are those of the components; images have no closing tag."""
    assert markup(load_bar(42.4)) == (
        '<span className="load"><span className="bar"><span className="load-0" style="width: 42%"></span></span>'
        "42 %</span>"
    )
    assert markup(node_link("node-1")) == '<dccLink href="nodes?node=node-1">node-1</dccLink>'
